"""Derivatives of frames' motion and of momentum in closed form.

The changes psi, xi and eta are those of `slopes`. In fixed axes about a fixed point, velocities outboard of the
coordinate d change by J_d x V + psi_d, accelerations by J_d x a + xi_d + psi_d x V; a velocity qd_d changes them by J_d
and eta_d + J_d x V. The point at which a frame is looked at moves along.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn._compiling import jit
from jaxdyn._numerics import safe_reciprocal
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.articulation import articulation, tile_of_rows
from jaxdyn.algorithms.energy import passive_force
from jaxdyn.algorithms.implicit import mass_product
from jaxdyn.algorithms.kinematics import frame_number
from jaxdyn.algorithms.motion import Moving, Placed, link_inertias, moving_links, placed_links, world_in_motion
from jaxdyn.algorithms.rnea import gravity_force
from jaxdyn.algorithms.sensitivity import mass_matrix_sensitivity_vp
from jaxdyn.algorithms.slopes import changes_of_columns
from jaxdyn.algorithms.velocities import point_in_body
from jaxdyn.model import Model
from jaxdyn.recursion import batched
from jaxdyn.spatial import Force, Mat3, Motion, RigidInertia, Sym3, Vec3

_PLACED = Placed(Mat3.identity(), Vec3.zero(), Vec3.zero())


def _frame_slopes(model: Model, q: Any, qd: Any, qdd: Any, base_motion: Any, body: Any, r: Any) -> jax.Array:
    """Return the slopes of velocity by q and by qd, and of acceleration by q and by qd, (4, 6, nv, batch)."""
    joints = articulation(model.topology, canonical=False)
    links = joints.links(model, q)
    placed = placed_links(joints, links, root_axes=False)
    world = world_in_motion(model, base_motion, gravity=False)
    moved = moving_links(joints, model, links, q, qd, qdd, world, root_axes=False)
    _, _, changes = changes_of_columns(joints, model, links, placed, moved, q, qd, qdd)
    one = lambda x, w: jnp.concatenate([x, jnp.broadcast_to(w, (1, *x.shape[1:])).astype(x.dtype)])[body[0]]
    at = jax.tree.map(one, joints.by_body(placed), _PLACED)
    of_world = Moving(world[0], world[1], world[2], Vec3.zero())
    frame = jax.tree.map(one, joints.by_body(moved), of_world)
    arm = at.R @ Vec3(*r)
    row = lambda X: jax.tree.map(lambda x: x[None], X)
    V, a, p = row(frame.V.shift(arm)), row(frame.a.shift(arm)), row(at.p + arm)
    J, psi, xi, eta = (
        joints.spatial_columns([tuple(c[i] for c in stage) for stage in changes], q.dtype).shift(p) for i in range(4)
    )
    V_q = _following(J.cross(V) + psi, V, J)
    a_q = _following(J.cross(a) + xi + psi.cross(V), a, J)
    parts = V_q, J, _classical(a_q, V, V_q), _classical(eta + J.cross(V), V, J)
    moves = jnp.asarray(joints.inboard)[body[0]]
    rows = jnp.stack(jnp.broadcast_arrays(*(x for X in parts for x in (*X.ang, *X.lin))))
    return joints.fold(jnp.where(moves[None, :, None], rows, 0).reshape((4, 6, *rows.shape[1:])), 2)


def _following(change: Motion, X: Motion, J: Motion) -> Motion:
    """Return the change of a motion about a point that moves by J."""
    return Motion(change.ang, change.lin + X.ang.cross(J.lin))


def _classical(change: Motion, V: Motion, dV: Motion) -> Motion:
    """Return the change of the acceleration of a point, a + w x v, from that of the spatial acceleration."""
    return Motion(change.ang, change.lin + dV.ang.cross(V.lin) + V.ang.cross(dV.lin))


def _add(outboard: Any, body: Any) -> Any:
    total = tuple(a + b for a, b in zip(outboard, body, strict=True))
    return total, total


def _momentum_slopes(model: Model, q: Any, qd: Any) -> jax.Array:
    """Return the slopes of the centroidal momentum by q and by qd, (2, 6, nv, batch)."""
    joints = articulation(model.topology)
    links = joints.links(model, q)
    placed = placed_links(joints, links, root_axes=False)
    world = world_in_motion(model, gravity=False)
    moved = moving_links(joints, model, links, q, qd, None, world, root_axes=False)
    V, _, changes = changes_of_columns(joints, model, links, placed, moved, q, qd, jnp.zeros_like(qd))
    inertias = [M.shift(m.p) for M, m in zip(link_inertias(joints, model, links, placed), placed, strict=True)]
    bodies = [(M, M @ V_k) for M, V_k in zip(inertias, V, strict=True)]
    nothing = RigidInertia(0.0, Vec3.zero(), Sym3.zero()), Force.zero()
    (r, h), composites = joints.walk.inward(_add, nothing, bodies)
    columns = [list(zip(stage, [C] * len(stage), strict=True)) for stage, C in zip(changes, composites, strict=True)]
    by_q = [tuple(c.J.cross_force(C[1]) + C[0] @ c.psi for c, C in stage) for stage in columns]
    by_qd = [tuple(C[0] @ c.J for c, C in stage) for stage in columns]
    per_mass = safe_reciprocal(r.m)
    center, linear = (jax.tree.map(lambda x: x[None], X) for X in (per_mass * r.h, h.lin))
    h_q, A_G = (joints.spatial_columns(x, q.dtype).shift(-center) for x in (by_q, by_qd))
    h_q = Force(h_q.ang - (per_mass[None] * A_G.lin).cross(linear), h_q.lin)  # the centre of mass moves along
    rows = jnp.stack(jnp.broadcast_arrays(*(x for X in (h_q, A_G) for x in (*X.ang, *X.lin))))
    return joints.fold(rows.reshape((2, 6, *rows.shape[1:])), 2)


_frame_slopes_of_state = batched(_frame_slopes, tile=tile_of_rows(per_body=150))
_momentum_slopes_of_state = batched(_momentum_slopes, tile=tile_of_rows(per_body=150))


def frame_velocity_derivatives(
    model: Model, q: Any, qd: Any, frame: str, point: Any = None, *, base_motion: Any = None
) -> tuple[jax.Array, jax.Array]:
    """Compute the derivatives of `frame_velocity` by configuration (in the tangent) and velocity, in closed form.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        frame: name of a body or frame. Asking for another one does not recompile.
        point: a point in that frame, (3,); its origin if not given.
        base_motion: as in `inverse_dynamics`.

    Returns:
        (dV_dq, dV_dqd), each (6, nv), [angular; linear], world axes; the second is the Jacobian.
    """
    number = frame_number(model, frame, point)
    return _frame_slopes_jitted(model, q, qd, None, base_motion, *number)[:2]


def frame_acceleration_derivatives(
    model: Model, q: Any, qd: Any, qdd: Any, frame: str, point: Any = None, *, base_motion: Any = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute the derivatives of `frame_acceleration` by configuration (in the tangent), velocity and acceleration.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        qdd: acceleration, (nv,).
        frame: name of a body or frame. Asking for another one does not recompile.
        point: a point in that frame, (3,); its origin if not given.
        base_motion: as in `inverse_dynamics`.

    Returns:
        (da_dq, da_dqd, da_dqdd), each (6, nv), [angular; linear], world axes; the last is the Jacobian.
    """
    number = frame_number(model, frame, point)
    _, J, by_q, by_qd = _frame_slopes_jitted(model, q, qd, qdd, base_motion, *number)
    return by_q, by_qd, J


@jit
def _frame_slopes_jitted(
    model: Model, q: Any, qd: Any, qdd: Any, base_motion: Any, body: int, number: int, point: Any
) -> tuple[jax.Array, ...]:
    q, qd, qdd = arguments.vectors(model, q=q, qd=qd, qdd=jnp.zeros_like(jnp.asarray(qd)) if qdd is None else qdd)
    if not model.nv:
        return (jnp.zeros((6, 0), q.dtype),) * 4
    r = point_in_body(model, number, point)
    return tuple(_frame_slopes_of_state(model, q, qd, qdd, arguments.motion(model, base_motion), body, r))


@arguments.compiled
def centroidal_momentum_derivatives(model: Model, q: Any, qd: Any) -> tuple[jax.Array, jax.Array]:
    r"""Compute the derivatives of `centroidal_momentum` by configuration (in the tangent) and velocity.

    .. math:: \partial h_G / \partial q, \qquad \partial h_G / \partial \dot q = A_G

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).

    Returns:
        (dh_dq, dh_dqd), each (6, nv), [angular; linear], world axes about the centre of mass.
    """
    q, qd = arguments.vectors(model, q=q, qd=qd)
    if not model.nv:
        return (jnp.zeros((6, 0), q.dtype),) * 2
    by_q, by_qd = _momentum_slopes_of_state(model, q, qd)
    return by_q, by_qd


@arguments.compiled
def kinetic_energy_derivatives(model: Model, q: Any, qd: Any) -> tuple[jax.Array, jax.Array]:
    r"""Compute the derivatives of the kinetic energy by configuration (in the tangent) and velocity.

    .. math:: \partial T / \partial q_d = \tfrac12 \dot q^* M_{\theta,d}\, \dot q, \qquad
        \partial T / \partial \dot q = M \dot q

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).

    Returns:
        (dT_dq, dT_dqd), each (nv,); the second is the generalised momentum.
    """
    q, qd = arguments.vectors(model, q=q, qd=qd)
    by_q = 0.5 * mass_matrix_sensitivity_vp(model, q, qd, qd)
    return by_q, mass_product(model, q, qd) if model.nv else qd


@partial(arguments.compiled, whole=True)
def potential_energy_derivatives(model: Model, q: Any) -> jax.Array:
    r"""Compute the derivative of the potential energy by configuration (in the tangent), springs included.

    .. math:: \partial V / \partial q = g(q) + \partial V_{spring} / \partial q

    Args:
        model: the model.
        q: configuration, (nq,).

    Returns:
        dV_dq, (nv,): the force that holds the robot at rest against gravity and springs.
    """
    (q,) = arguments.vectors(model, q=q)
    at_rest = jnp.zeros(model.nv, q.dtype)
    return gravity_force(model, q) - passive_force(model, q, at_rest)
