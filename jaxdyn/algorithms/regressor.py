"""Regressors: what is linear in the inertial parameters, as a matrix times them.

The ten parameters of a body are those of `inertial_parameters`: m, m c, Ixx, Ixy, Iyy, Ixz, Iyz, Izz. A regressor has
ten columns for each body, in the order of the bodies, so that it multiplies `inertial_parameters(model).ravel()`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.articulation import articulation, tile_of_rows
from jaxdyn.algorithms.kinematics import body_poses
from jaxdyn.algorithms.motion import joint_columns, moving_links, placed_links, world_in_motion
from jaxdyn.algorithms.velocities import body_velocities
from jaxdyn.model import Model
from jaxdyn.recursion import batched
from jaxdyn.spatial import Motion, RigidInertia, Sym3, Vec3


def _unit_inertia(k: int) -> RigidInertia:
    """Return the inertia whose k-th parameter is one, in plain numbers."""
    m, hx, hy, hz, xx, xy, yy, xz, yz, zz = (float(i == k) for i in range(10))
    return RigidInertia(m, Vec3(hx, hy, hz), Sym3(xx, xy, xz, yy, yz, zz))


_UNITS = [_unit_inertia(k) for k in range(10)]


def _columns_and_forces(model: Model, q: Any, qd: Any, qdd: Any, base_motion: Any) -> tuple[jax.Array, jax.Array]:
    """Return about one point the joints' columns, (6, columns, batch), and the forces, (3, 14, nbodies, batch).

    The forces are those that the motion of each body takes for each unit of its parameters (004 (5)): ten moments, and
    four forces, since rotational inertia takes none.
    """
    joints = articulation(model.topology)
    links = joints.links(model, q)
    placed = placed_links(joints, links)
    moved = moving_links(joints, model, links, q, qd, qdd, world_in_motion(model, base_motion))
    forces = []
    for at, m, R in zip(placed, moved, joints.body_rotations(links, [m.R for m in moved]), strict=True):
        V, a = m.V.rotate(R.T), m.a.rotate(R.T)
        by_unit = [(M @ a + V.cross_force(M @ V)).rotate(R).shift(at.p) for M in _UNITS]
        forces.append([f.ang for f in by_unit] + [f.lin for f in by_unit[:4]])
    F = [jnp.stack(jnp.broadcast_arrays(*f)) for f in joints.by_body(forces)]
    H = joint_columns(links, placed)
    about_one_point = [tuple(h.shift(-m.p) for h in hs) for hs, m in zip(H, placed, strict=True)]
    columns = joints.spatial_columns(about_one_point, q.dtype)
    return jnp.stack([*columns.ang, *columns.lin]), jnp.stack(F, axis=1)


def _regressor(parts: Any, model: Model, *_: Any) -> jax.Array:
    """Return the regressor of one state: a force on a body is felt by the joints inboard of it (004 (8))."""
    H, F = parts
    joints = articulation(model.topology)
    moves = joints.inboard[:-1].T  # (columns, nbodies)
    moments, forces = (sum(h[:, None, None] * f.T[None] for h, f in zip(*hf, strict=True))
                       for hf in ((H[:3], F[:, :10]), (H[3:], F[:, 10:])))  # fmt: skip
    Y = jnp.concatenate([moments[..., :4] + forces, moments[..., 4:]], axis=-1)
    return joints.fold(jnp.where(moves[..., None], Y, 0)).reshape((model.nv, 10 * model.nbodies))


_regressor_of_state = batched(_columns_and_forces, tile=tile_of_rows(per_body=120), last=_regressor)


@arguments.compiled
def joint_torque_regressor(model: Model, q: Any, qd: Any, qdd: Any, *, base_motion: Any = None) -> jax.Array:
    r"""Compute the matrix that takes inertial parameters to joint forces.

    .. math:: \mathrm{ID}(q, \dot q, \ddot q) = Y(q, \dot q, \ddot q)\, \pi + \mathrm{armature} \cdot \ddot q

    Args:
        model: the model; its inertias do not enter.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        qdd: acceleration, (nv,).
        base_motion: as in `inverse_dynamics`.

    Returns:
        Y, (nv, 10 * nbodies).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.derivatives import joint_torque_regressor
        >>> model = jaxdyn.load("arm7")
        >>> q = qd = qdd = jnp.ones(7)
        >>> tau = joint_torque_regressor(model, q, qd, qdd) @ jaxdyn.inertial_parameters(model).ravel()
        >>> bool(jnp.allclose(tau, jaxdyn.inverse_dynamics(model, q, qd, qdd) - model.armature * qdd, atol=1e-4))
        True
    """
    q, qd, qdd = arguments.vectors(model, q=q, qd=qd, qdd=qdd)
    if not model.nv:
        return jnp.zeros((0, 10 * model.nbodies), q.dtype)
    return _regressor_of_state(model, q, qd, qdd, arguments.motion(model, base_motion))


@arguments.compiled
def kinetic_energy_regressor(model: Model, q: Any, qd: Any) -> jax.Array:
    r"""Compute the row that takes inertial parameters to kinetic energy, without that of armatures.

    .. math:: T = y(q, \dot q) \cdot \pi

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).

    Returns:
        y, (10 * nbodies,).
    """
    q, qd = arguments.vectors(model, q=q, qd=qd)
    V = Motion.from_array(body_velocities(model, q, qd))
    return _by_body([0.5 * (M @ V).dot(V) for M in _UNITS])


@arguments.compiled
def potential_energy_regressor(model: Model, q: Any) -> jax.Array:
    r"""Compute the row that takes inertial parameters to the potential energy of gravity, zero at the world's origin.

    .. math:: V_{gravity} = y(q) \cdot \pi

    Args:
        model: the model.
        q: configuration, (nq,).

    Returns:
        y, (10 * nbodies,).
    """
    (q,) = arguments.vectors(model, q=q)
    X, g = body_poses(model, q), Vec3.from_array(model.gravity.astype(q.dtype))
    along = X.R.T @ g
    return _by_body([-X.p.dot(g), -along.x, -along.y, -along.z, *[jnp.zeros_like(X.p.x)] * 6])


@arguments.compiled
def momentum_regressor(model: Model, q: Any, qd: Any) -> jax.Array:
    r"""Compute the matrix that takes inertial parameters to the momentum of all bodies about the world's origin.

    .. math:: \sum_k X_k\, M_k V_k = Y(q, \dot q)\, \pi

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).

    Returns:
        Y, (6, 10 * nbodies), [angular; linear], world axes.
    """
    q, qd = arguments.vectors(model, q=q, qd=qd)
    X, V = body_poses(model, q), Motion.from_array(body_velocities(model, q, qd))
    momenta = [(M @ V).rotate(X.R).shift(X.p) for M in _UNITS]
    return jnp.stack([_by_body(list(row)) for row in zip(*((*p.ang, *p.lin) for p in momenta), strict=True)])


def _by_body(columns: list[Any]) -> jax.Array:
    """Return ten components (nbodies,) as one row, body after body."""
    return jnp.stack(jnp.broadcast_arrays(*columns), axis=1).ravel()
