"""Derivatives of inverse dynamics in closed form, in time proportional to the size of the result.

All about one point, in common axes. A change of the coordinate d turns everything outboard of it like a rigid body, by
J_d. Seen from axes that turn along, the velocities outboard change by psi_d, the same for all, and the accelerations by
xi_d + psi_d x V (psi_d = V_p x J_d, xi_d = a_p x J_d + V_p x psi_d, p the parent of the joint's body). So the force on
a body changes by

    M xi_d + B psi_d,      B psi = psi x* (M V) + V x* M psi - M (V x psi),

linear in what the coordinate gives, with M and B of the body: sums over subtrees are composite matrices, as in the
composite-body algorithm. A change of a velocity is the same with eta_d = (V + V_p) x J_d and J_d.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.aba import forward_dynamics, mass_matrix_inverse
from jaxdyn.algorithms.articulation import Articulation, Joints, articulation, matrix_like, tile_of_rows
from jaxdyn.algorithms.motion import link_inertias, moving_links, placed_links, world_in_motion
from jaxdyn.joints import combine
from jaxdyn.model import Model
from jaxdyn.recursion import batched
from jaxdyn.spatial import Force, Motion, RigidInertia, Sym3, Vec3

_BASIS = [Motion(Vec3(*e[:3]), Vec3(*e[3:])) for e in np.eye(6).tolist()]


class Composite(NamedTuple):
    """What is outboard of a joint, about the common point."""

    M: RigidInertia
    """Inertia."""
    B: tuple[Force, ...]
    """Columns of B."""
    F: Force
    """Force that the motion takes."""


def _add(outboard: Composite, body: Composite) -> Any:
    total = jax.tree.map(lambda a, b: a + b, outboard, body)
    return total, total


def _of_body(M: RigidInertia, V: Motion, a: Motion) -> Composite:
    """Return what one body contributes."""
    momentum = M @ V
    B = tuple(e.cross_force(momentum) + V.cross_force(M @ e) - M @ V.cross(e) for e in _BASIS)
    return Composite(M, B, M @ a + V.cross_force(momentum))


def _times(B: tuple[Force, ...], x: Motion) -> Force:
    total = Force.zero()
    for column, value in zip(B, (*x.ang, *x.lin), strict=True):
        total = total + value * column
    return total


def _transposed(B: tuple[Force, ...], x: Motion) -> Force:
    """Return B* x."""
    values = [column.dot(x) for column in B]
    return Force(Vec3(*values[:3]), Vec3(*values[3:]))


class Change(NamedTuple):
    """What one column does when its coordinate changes, about the common point; see the top of this file."""

    J: Motion
    psi: Motion
    xi: Motion
    eta: Motion
    S: tuple[Motion, ...]
    """The change of its joint's columns; zero if they are fixed in the body."""


def changes_of_columns(
    joints: Articulation, model: Model, links: Any, placed: Any, moved: Any, q: Any, qd: Any, qdd: Any
) -> tuple[list[Motion], list[Motion], list[tuple[Change, ...]]]:
    """Return velocities and accelerations about the common point, and the changes of all columns, by stage."""
    rates, slopes = joints.subspace_rates(model, q, qd), joints.subspace_slopes(model, q, qd, qdd)
    velocities, accelerations = joints.rows(qd), joints.rows(qdd)
    V, a = ([getattr(m, n).shift(-at.p) for m, at in zip(moved, placed, strict=True)] for n in ("V", "a"))
    stages = []
    for k, at in enumerate(placed):
        here = lambda X, at=at: X.rotate(at.R).shift(-at.p)
        J, dJ = tuple(map(here, links[k].S)), tuple(map(here, rates[k]))
        V_J = combine(J, velocities[k])
        V_p = V[k] - V_J
        a_p = a[k] - combine(J, accelerations[k]) - combine(dJ, velocities[k]) - V[k].cross(V_J)
        changes = []
        for j, dj, slope in zip(J, dJ, slopes[k], strict=True):
            n = here(slope.velocity)
            psi = V_p.cross(j) + n
            xi = a_p.cross(j) - psi.cross(V_p) + V[k].cross(n) + here(slope.acceleration)
            eta = (V[k] + V_p).cross(j) + dj + n
            changes.append(Change(j, psi, xi, eta, tuple(map(here, slope.S))))
        stages.append(tuple(changes))
    return V, a, stages


def _columns(model: Model, q: Any, qd: Any, qdd: Any, f_ext: Any, base_motion: Any) -> Any:
    """Return of every column, (6, columns, batch): J, xi, psi, eta, M J, B* J, and forces by q, by qd and by turning.

    Besides, for joints whose columns are not fixed in the body, (width, columns, batch): the torque at the
    joint's k-th column that comes from its change.
    """
    joints = articulation(model.topology)
    links = joints.links(model, q)
    placed = placed_links(joints, links)
    moved = moving_links(joints, model, links, q, qd, qdd, world_in_motion(model, base_motion))
    V, a, changes = changes_of_columns(joints, model, links, placed, moved, q, qd, qdd)
    M = link_inertias(joints, model, links, placed)
    bodies = [_of_body(I.shift(at.p), *x) for I, at, *x in zip(M, placed, V, a, strict=True)]
    if f_ext is not None:
        external = [f.rotate(m.R).shift(m.p) for f, m in zip(joints.forces(f_ext, links), placed, strict=True)]
        bodies = [b._replace(F=b.F - f) for b, f in zip(bodies, external, strict=True)]
    nothing = Composite(RigidInertia(0.0, Vec3.zero(), Sym3.zero()), (Force.zero(),) * 6, Force.zero())
    composites = joints.walk.inward(_add, nothing, bodies)[1]
    results = [[_of_column(c, C) for c in stage] for stage, C in zip(changes, composites, strict=True)]
    rows = [joints.spatial_columns([tuple(r[i] for r in stage) for stage in results], q.dtype) for i in range(9)]
    flat = jnp.broadcast_arrays(*(part for x in rows for part in (*x.ang, *x.lin)))
    own = [tuple(tuple(C.F.dot(s) for s in c.S) for c in stage) for stage, C in zip(changes, composites, strict=True)]
    return jnp.stack(flat).reshape((9, 6, *flat[0].shape)), _own_torques(joints, own, q.dtype)


def _of_column(c: Change, C: Composite) -> tuple[Any, ...]:
    """Return one column's part of `_columns`."""
    forces = C.M @ c.J, _transposed(C.B, c.J), C.M @ c.xi + _times(C.B, c.psi), C.M @ c.eta + _times(C.B, c.J)
    return c.J, c.xi, c.psi, c.eta, *forces, c.J.cross_force(C.F)


def _own_torques(joints: Joints, changes: list[Any], dtype: Any) -> jax.Array | None:
    """Return F . dS_k / dq_d by (k, column d), or None if all columns are fixed in their bodies."""
    if all(type(x) is float for x in jax.tree.leaves(changes)):
        return None
    width = max(stage.width for stage in joints.stages)
    of_k = lambda k: [tuple(x[k] if k < len(x) else 0.0 for x in columns) for columns in changes]
    return jnp.stack(jnp.broadcast_arrays(*(joints.columns(of_k(k), dtype) for k in range(width))))


def _matrices(parts: Any, model: Model, *_: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the derivatives at one state by q, by qd and by qdd."""
    (J, xi, psi, eta, MJ, BJ, by_q, by_qd, turning), own = parts
    joints = articulation(model.topology)
    inboard = joints.inboard[joints.column_body]  # [d, c]: column c moves the body of d
    upper, lower = inboard.T, inboard & ~inboard.T  # [c, d]: c is inboard of d, or on its body; strictly outboard
    strictly = upper & ~upper.T
    dot = lambda a, b: sum(x[:, None] * y[None] for x, y in zip(a, b, strict=True))
    choose = lambda above, below: jnp.where(upper, above, jnp.where(lower, below, 0))
    dq = choose(dot(J, by_q), dot(MJ, xi) + dot(BJ, psi)) + jnp.where(strictly, dot(J, turning), 0)
    dqd = choose(dot(J, by_qd), dot(MJ, eta) + dot(BJ, J))
    M = choose(dot(J, MJ), dot(MJ, J))
    if own is not None:
        for k, row in enumerate(own):
            index = joints.kth_of_same_body(k)
            there = np.flatnonzero(index >= 0)
            dq = dq.at[index[there], there].add(row[there])
    fold = lambda X: joints.fold(joints.fold(X, 0), 1)
    return fold(dq), fold(dqd), fold(M) + jnp.diag(model.armature.astype(M.dtype))


_derivatives_of_state = batched(
    _columns, tile=tile_of_rows(per_body=300), last=_matrices, like=lambda *args: (matrix_like(*args),) * 3
)


@arguments.compiled
def inverse_dynamics_derivatives(
    model: Model, q: Any, qd: Any, qdd: Any, *, f_ext: Any = None, base_motion: Any = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    r"""Compute the derivatives of joint forces by configuration, velocity and acceleration, in closed form.

    .. math:: \frac{\partial \tau}{\partial q}, \quad \frac{\partial \tau}{\partial \dot q}, \quad
        \frac{\partial \tau}{\partial \ddot q} = M

    Derivatives by q are in the tangent: column d is the derivative along `integrate(model, q, eps * e_d)`, also for
    quaternions.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        qdd: acceleration, (nv,).
        f_ext: as in `inverse_dynamics`; fixed in the axes of the bodies.
        base_motion: as in `inverse_dynamics`.

    Returns:
        (dtau_dq, dtau_dqd, dtau_dqdd), each (nv, nv).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.derivatives import inverse_dynamics_derivatives
        >>> model = jaxdyn.load("arm7")
        >>> x = jnp.ones(7)
        >>> dtau_dq, dtau_dqd, M = inverse_dynamics_derivatives(model, x, x, x)
        >>> bool(jnp.allclose(M, jaxdyn.mass_matrix(model, x), atol=1e-4))
        True
    """
    q, qd, qdd = arguments.vectors(model, q=q, qd=qd, qdd=qdd)
    if not model.nv:
        return (jnp.zeros((0, 0), q.dtype),) * 3
    return _derivatives_of_state(
        model, q, qd, qdd, arguments.forces(model, f_ext), arguments.motion(model, base_motion)
    )


def forward_dynamics_derivatives(
    model: Model, q: Any, qd: Any, tau: Any, *, f_ext: Any = None, base_motion: Any = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    r"""Compute the derivatives of the acceleration by configuration, velocity and joint forces, in closed form.

    .. math:: \frac{\partial \ddot q}{\partial q} = -M^{-1} \frac{\partial \tau}{\partial q}, \quad
        \frac{\partial \ddot q}{\partial \dot q} = -M^{-1} \frac{\partial \tau}{\partial \dot q}, \quad
        \frac{\partial \ddot q}{\partial \tau} = M^{-1}

    with the derivatives of inverse dynamics at the solution. Those by q are in the tangent, as in
    `inverse_dynamics_derivatives`.

    Args:
        model: the model. A joint that moves no inertia is refused: give it armature, or lock it.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        tau: joint forces, (nv,).
        f_ext: as in `inverse_dynamics`; fixed in the axes of the bodies.
        base_motion: as in `inverse_dynamics`.

    Returns:
        (dqdd_dq, dqdd_dqd, dqdd_dtau), each (nv, nv).
    """
    qdd = forward_dynamics(model, q, qd, tau, f_ext=f_ext, base_motion=base_motion)
    by_q, by_qd, _ = inverse_dynamics_derivatives(model, q, qd, qdd, f_ext=f_ext, base_motion=base_motion)
    inverse = mass_matrix_inverse(model, q)
    return -inverse @ by_q, -inverse @ by_qd, inverse
