"""All that a time step and its costs need to first order, from one set of kinematics.

Derivatives of inverse dynamics (as `inverse_dynamics_derivatives`), the mass matrix, gravity's forces and their
derivative, poses and joint columns: a solver wants them together, at all its states. Here they are few operations on
whole arrays, with the states as the last axis, about one point (the origin of the first root link, world axes), as in
`algorithms.dense`; sums over paths and subtrees are products with a matrix of zeros and ones. That compiles in a
fraction of the time of the recursions, and for the hundred states of a trajectory is as fast.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import rows
from jaxdyn.algorithms.articulation import Joints
from jaxdyn.algorithms.dense import _PSEUDO, _SPATIAL, _tables
from jaxdyn.model import Model
from jaxdyn.recursion import batched

LARGEST = 48
"""Number of degrees of freedom up to which arrays are better than recursions."""
_FIXED = {
    "revolute", "continuous", "prismatic", "helical", "cylindrical", "spherical", "translation", "planar", "free",
}  # fmt: skip
"""Joint types whose columns are fixed in the body."""
_CROSS = np.zeros((6, 6, 6))
"""V x X = _CROSS[i, j, k] V_k X_j."""
for _i, _j, _k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    for _a, _b, _c, _sign in ((_i, _k, _j, 1.0), (_i, _j, _k, -1.0)):
        _CROSS[_a, _b, _c] = _CROSS[_a + 3, _b + 3, _c] = _CROSS[_a + 3, _b, _c + 3] = _sign


class FirstOrder(NamedTuple):
    """What is known of a robot at one state; n bodies, nv velocities."""

    R: jax.Array
    """(n, 3, 3) axes of the bodies in the world."""
    p: jax.Array
    """(n, 3) origins of the bodies in the world, from `start`."""
    start: jax.Array
    """(3,) origin of the first root link."""
    S: jax.Array
    """(nv, 6) joint columns [angular; linear], world axes, about `start`."""
    M: jax.Array
    """(nv, nv) mass matrix, without armature."""
    by_q: jax.Array
    """(nv, nv) derivative of joint forces by q, in the tangent."""
    by_qd: jax.Array
    """(nv, nv) by qd."""
    gravity: jax.Array
    """(nv,) gravity's forces."""
    gravity_by_q: jax.Array
    """(nv, nv) their derivative."""


def is_covered(model: Model) -> bool:
    """Return whether a model is of the kind that `first_order` serves: columns fixed in the bodies, not too many."""
    topology = model.topology
    if topology.mimic_names or not 0 < model.nv <= LARGEST:
        return False
    return set(model.joint_types) <= _FIXED


def _first_order(model: Model, q: jax.Array, qd: jax.Array, qdd: jax.Array) -> FirstOrder:
    tables, dtype = _tables(model.topology), q.dtype
    joints, body, n, width = tables.joints, tables.joints.column_body, model.nbodies, q.shape[-1]
    constant = lambda x: jnp.asarray(np.asarray(x, np.float64), dtype)
    links = joints.links(model, q)
    R, p, start = _poses(model, joints, tables.jumps, links, width)
    S = _columns(joints, links, R, p, body, width)

    pseudo = _mapped(constant(_PSEUDO.reshape(10, 16).T), model.inertia)
    last = jnp.broadcast_to(constant([[[[0.0], [0.0], [0.0], [1.0]]]]), (n, 1, 4, width))
    pose = jnp.concatenate([jnp.concatenate([R, p[:, :, None]], axis=2), last], axis=1)
    pseudo = _product(_product(pose, pseudo.reshape(n, 4, 4, -1)), pose.transpose(0, 2, 1, 3))
    I = _mapped(constant(_SPATIAL.reshape(16, 36).T), pseudo.reshape(n, 16, width)).reshape(n, 6, 6, width)

    moves = constant(tables.moves)  # (n, columns)
    rate, push = qd[:, None], qdd[:, None]
    a_0 = jnp.concatenate([jnp.zeros((3, 1), dtype), -model.gravity.astype(dtype)])  # (6, 1)
    V = _sums(moves, S * rate)
    V_here = rows(V, body)
    turning = _cross(V_here, S * rate) + S * push
    a = _sums(moves, turning) + a_0[None]

    X = _product(I, _mapped(constant(_CROSS.reshape(36, 6)), V).reshape(n, 6, 6, width))  # M (V x)
    momentum = _times(I, V)
    by_turning = _mapped(constant(-_CROSS.transpose(1, 2, 0).reshape(36, 6)), momentum).reshape(n, 6, 6, width)
    B = by_turning - X - X.transpose(0, 2, 1, 3)
    F = _times(I, a) + _cross_force(V, momentum)
    outboard = _sums(moves.T, jnp.concatenate([I.reshape(n, 36, width), B.reshape(n, 36, width), F], axis=1))
    I, B = (outboard[:, k : k + 36].reshape(-1, 6, 6, width) for k in (0, 36))
    F = outboard[:, 72:]

    V_J, own = S * rate, constant(joint_sum(tables.joints))
    V_p = V_here - _sums(own, V_J)
    a_p = rows(a, body) - _sums(own, turning)
    psi = _cross(V_p, S)
    xi = _cross(a_p, S) + _cross(V_p, psi)
    eta = _cross(V_here + V_p, S)
    MS, BS = _times(I, S), _times(B.transpose(0, 2, 1, 3), S)
    lifted = _times(I, jnp.broadcast_to(a_0[None], S.shape))
    xi_0 = _cross(jnp.broadcast_to(a_0[None], S.shape), S)
    # Column c inboard of d, or on its body; and outboard. Products of matrices, one for each state.
    forces = (MS, _times(I, xi) + _times(B, psi), _times(I, eta) + _times(B, S), _times(I, xi_0))
    turned = (_cross_force(S, F), _cross_force(S, lifted))
    above = _products([S], [[f] for f in (*forces, *turned)])
    below = _products([MS, BS], [[S, 0 * S], [xi, psi], [eta, S], [xi_0, 0 * S]])
    upper, lower, strictly = (
        (x[..., None]) for x in (tables.inboard.T | tables.beside, tables.inboard, tables.inboard.T)
    )
    M, by_q, by_qd, gravity_by_q = (
        jnp.where(upper, x, jnp.where(lower, y, 0)) for x, y in zip(above[:4], below, strict=True)
    )
    by_q, gravity_by_q = (x + jnp.where(strictly, y, 0) for x, y in zip((by_q, gravity_by_q), above[4:], strict=True))
    gravity = (S * lifted).sum(1)
    return FirstOrder(R, p, start, S, M, by_q, by_qd, gravity, gravity_by_q)


def frame_of(
    model: Model, known: FirstOrder, body: int, rotation: jax.Array, point: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return rotation and position of a frame that is placed in a body; the world is body -1."""
    if body < 0:
        return rotation, point
    return known.R[body] @ rotation, known.start + known.p[body] + known.R[body] @ point


def jacobian_of(model: Model, known: FirstOrder, body: int, rotation: jax.Array, point: jax.Array) -> jax.Array:
    """Return the Jacobian (6, nv) of the same frame."""
    if body < 0:
        return jnp.zeros((6, model.nv), point.dtype)
    moves = jnp.asarray(_tables(model.topology).moves[body], point.dtype)[:, None]
    arm = jnp.broadcast_to((known.p[body] + known.R[body] @ point)[None], (model.nv, 3))
    ang, lin = known.S[:, :3], known.S[:, 3:]
    return (moves * jnp.concatenate([ang, lin + jnp.cross(ang, arm)], axis=1)).T


def joint_sum(joints: Joints) -> np.ndarray:
    """Return (columns, columns) ones where both columns are of one joint."""
    body = joints.column_body
    return body[:, None] == body[None]


def _poses(model: Model, joints: Joints, jumps: Any, links: Any, width: int) -> Any:
    """Return the axes (n, 3, 3, batch) and origins (n, 3, batch) of the bodies, and the origin of the first root."""
    order = np.argsort(np.concatenate([stage.flat for stage in joints.stages])).astype(np.int32)

    def join(*parts: Any) -> jax.Array:
        full = [jnp.broadcast_to(x, (len(s.flat), width)) for x, s in zip(parts, joints.stages, strict=True)]
        return rows(full[0] if len(full) == 1 else jnp.concatenate(full), order)

    X = jax.tree.map(join, *[link.X for link in links])
    R = jnp.stack([jnp.stack([*row], 1) for row in X.R], 1)
    p = jnp.stack([*X.p], 1)
    start = p[0]
    p = jnp.where((np.array(model.parents) < 0)[:, None, None], p - start[None], p)
    still, none = jnp.eye(3, dtype=R.dtype)[None, :, :, None], jnp.zeros((1, 3, width), R.dtype)
    for ancestor in jumps:
        R_a = jnp.concatenate([R, jnp.broadcast_to(still, (1, 3, 3, width))])[ancestor]
        p = jnp.concatenate([p, none])[ancestor] + _times(R_a, p)
        R = _product(R_a, R)
    return R, p, start


def _columns(joints: Joints, links: Any, R: Any, p: Any, body: np.ndarray, width: int) -> jax.Array:
    """Return the joints' columns about the common point, (columns, 6, batch)."""
    S = joints.spatial_columns([link.S for link in links], R.dtype)
    ang, lin = (jnp.stack([jnp.broadcast_to(x, (len(body), width)) for x in part], 1) for part in (S.ang, S.lin))
    R_here, p_here = rows(R, body), rows(p, body)
    ang = _times(R_here, ang.astype(R.dtype))
    return jnp.concatenate([ang, _times(R_here, lin.astype(R.dtype)) + _cross3(p_here, ang)], axis=1)


# Arrays (rows, ..., batch).
def _product(A: jax.Array, B: jax.Array) -> jax.Array:
    return (A[:, :, :, None] * B[:, None]).sum(2)


def _times(A: jax.Array, x: jax.Array) -> jax.Array:
    return (A * x[:, None]).sum(2)


def _products(left: list[jax.Array], right: list[list[jax.Array]]) -> list[jax.Array]:
    """Return for each of `right` the sum over k of left[k][c] . right[k][d], (columns, columns, batch)."""
    first = jnp.concatenate(left, axis=1).transpose(2, 0, 1)
    second = jnp.concatenate([jnp.concatenate(x, axis=1) for x in right]).transpose(2, 1, 0)
    return jnp.split((first @ second).transpose(1, 2, 0), len(right), axis=1)


def _sums(selection: jax.Array, x: jax.Array) -> jax.Array:
    return (selection @ x.reshape(x.shape[0], -1)).reshape(-1, *x.shape[1:])


def _mapped(matrix: jax.Array, x: jax.Array) -> jax.Array:
    """Return a matrix (m, k) applied to the second axis of x (rows, k, batch)."""
    return jnp.einsum("mk,rkb->rmb", matrix, x.astype(matrix.dtype))


def _cross3(a: jax.Array, b: jax.Array) -> jax.Array:
    (x, y, z), (u, v, w) = (tuple(c[:, i] for i in range(3)) for c in (a, b))
    return jnp.stack([y * w - z * v, z * u - x * w, x * v - y * u], axis=1)


def _cross(V: jax.Array, X: jax.Array) -> jax.Array:
    return jnp.concatenate([_cross3(V[:, :3], X[:, :3]), _cross3(V[:, :3], X[:, 3:]) + _cross3(V[:, 3:], X[:, :3])], 1)


def _cross_force(V: jax.Array, f: jax.Array) -> jax.Array:
    return jnp.concatenate([_cross3(V[:, :3], f[:, :3]) + _cross3(V[:, 3:], f[:, 3:]), _cross3(V[:, :3], f[:, 3:])], 1)


first_order: Any = batched(_first_order, tile=lambda *args: 64)
