"""All that a time step and its costs need to first order, from one set of kinematics.

Derivatives of inverse dynamics (as `inverse_dynamics_derivatives`), the mass matrix, gravity's forces and their
derivative, poses and joint columns: a solver wants them together, at all its states. Here they are few operations on
whole arrays, about one point (the origin of the first root link, world axes), as in `algorithms.dense`. That compiles
in a fraction of the time of the recursions, and for the hundred states of a trajectory is as fast.

Arrays are (components, bodies or columns, states). What is done to components is arithmetic on rows of states; a linear
map of components, such as V -> V x, is a product with a constant matrix, and a sum over paths or subtrees one with a
matrix of zeros and ones.

Bodies are 4x4 matrices: J is the pseudo-inertia, the integral of (p, 1)(p, 1)* over the mass, and V^ takes (p, 1) to
the velocity of p. Then U = V^ J holds the momentum and the rate of J, and W = (a^ + V^ V^) J the force.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import rows
from jaxdyn.algorithms.articulation import Joints, _leaves, _with_floats
from jaxdyn.algorithms.dense import _PSEUDO, _SPATIAL, _tables
from jaxdyn.model import Model
from jaxdyn.recursion import batched
from jaxdyn.spatial import Motion, Transform

LARGEST = 48
"""Number of degrees of freedom up to which arrays are better than recursions."""
TILE = 104
"""States that are worked out together: those of a motion of a hundred steps."""
_FIXED = {
    "revolute", "continuous", "prismatic", "helical", "cylindrical", "spherical", "translation", "planar", "free",
}  # fmt: skip
"""Joint types whose columns are fixed in the body."""
_CROSS = np.zeros((6, 6, 6))
"""V x X = _CROSS[i, j, k] V_k X_j."""
for _i, _j, _k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    for _a, _b, _c, _sign in ((_i, _k, _j, 1.0), (_i, _j, _k, -1.0)):
        _CROSS[_a, _b, _c] = _CROSS[_a + 3, _b + 3, _c] = _CROSS[_a + 3, _b, _c + 3] = _sign
_BY_MOTION = _CROSS.reshape(36, 6)
"""V x, as a linear function of V."""
_BY_FORCE = -_CROSS.transpose(1, 2, 0).reshape(36, 6)
"""V x* f as a matrix times V: a linear function of f."""
_HAT = np.zeros((3, 4, 6))
"""V^, which takes (p, 1) to the velocity of p."""
_HAT[:, :3, :3], _HAT[:, 3, 3:] = _CROSS[:3, :3, :3], np.eye(3)
_FORCE = np.zeros((6, 3, 4))
"""The force or momentum [angular; linear] that V^ J stands for: the integral of (p x v, v) over the mass."""
_FORCE[:3, :, :3], _FORCE[3:, :, 3] = -_CROSS[:3, :3, :3].transpose(0, 2, 1), np.eye(3)
_RATE = np.zeros((16, 12))
"""The rate of J, V^ J + (V^ J)*."""
for _i in range(3):
    for _j in range(4):
        _RATE[4 * _i + _j, 4 * _i + _j] += 1
        _RATE[4 * _j + _i, 4 * _i + _j] += 1
_INERTIA = _SPATIAL.reshape(16, 36).T
_BY_W = _BY_FORCE @ _FORCE.reshape(6, 12)
_BY_U = _INERTIA @ _RATE + _BY_W
"""From U to B, where B V' is the change of V x* I V along V'."""


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
    simple = np.array_equal(body, np.arange(n))  # one column a joint, in the order of the bodies
    of_column, of_joint = np.arange(n)[:, None] == body[None], body[:, None] == body[None]
    here = lambda x: x if simple else _sums(x, of_column.T)
    own = lambda x: x if simple else _sums(x, of_joint)

    X, S_own = _links(model, joints, q)
    P, start = _poses(model, tables.jumps, X, width)  # (4, 4, n, batch)
    S = _columns(_filled(S_own, width), here(P))  # (6, columns, batch)
    J = jnp.einsum("ijk,nkb->ijnb", constant(_PSEUDO.transpose(1, 2, 0)), model.inertia.astype(dtype))
    J = _product(_product(P, J), P.transpose(1, 0, 2, 3))

    rate, push = qd[None], qdd[None]
    gravity = jnp.concatenate([jnp.zeros_like(model.gravity), -model.gravity]).astype(dtype)  # a_0, (6, 1)
    a_0 = jnp.broadcast_to(gravity[:, None], (6, n, width))
    V_J = own(S * rate)
    V = _sums(S * rate, tables.moves)
    by_V = _matrices(_BY_MOTION, here(V) - V_J)  # with the velocity of the parent's side of the joint
    psi = _times(by_V, S)
    zeta = 0.0 if simple else _times(_matrices(_BY_MOTION, V_J), S)
    turning = (psi + zeta) * rate + S * push
    a = _sums(turning, tables.moves) + a_0
    a_0 = here(a_0)
    by_a = _matrices(_BY_MOTION, here(a) - own(turning))
    xi, eta, xi_0 = _times(by_a, S) + _times(by_V, psi), 2 * psi + zeta, _times(_matrices(_BY_MOTION, a_0), S)

    V_hat, a_hat = (jnp.tensordot(constant(_HAT), x, 1, precision="highest") for x in (V, a))
    U = _product(V_hat, J)
    W = _product(a_hat, J) + _product(V_hat[:, :3], U)
    outboard = _sums(jnp.concatenate([x.reshape(-1, n, width) for x in (J, U, W)]), tables.moves.T)
    I, B, by_F = (
        _matrices(_INERTIA, outboard[:16]), _matrices(_BY_U, outboard[16:28]), _matrices(_BY_W, outboard[28:])
    )  # fmt: skip
    lifted = _times(I, a_0)
    MS, I_xi, I_eta, I_xi_0 = (_times(I, x) for x in (S, xi, eta, xi_0))
    BS, SB = _times(B, S), _times(B.transpose(1, 0, 2, 3), S)
    turned = _times(by_F, S), _times(_matrices(_BY_FORCE, lifted), S)
    # Column c inboard of d, or on its body; and outboard.
    lower, strictly, beside = (x[..., None] for x in (tables.inboard, tables.inboard.T, tables.beside))
    upper = strictly | beside
    by_q, by_qd, gravity_by_q = I_xi + _times(B, psi), I_eta + BS, I_xi_0
    if simple:  # on its own body, S . (S x* f) is zero
        by_q, gravity_by_q = by_q + turned[0], gravity_by_q + turned[1]
    above = _pairs(S, [MS, by_q, by_qd, gravity_by_q])
    below = _pairs(MS, [xi, eta, xi_0])
    twisted = _pairs(SB, [psi, S])
    M = jnp.where(upper, above[0], jnp.where(lower, jnp.swapaxes(above[0], 0, 1), 0))
    by_q, by_qd, gravity_by_q = (
        jnp.where(upper, x, jnp.where(lower, y, 0))
        for x, y in zip(above[1:], (below[0] + twisted[0], below[1] + twisted[1], below[2]), strict=True)
    )
    if not simple:
        by_q, gravity_by_q = (
            x + jnp.where(strictly, y, 0) for x, y in zip((by_q, gravity_by_q), _pairs(S, turned), strict=True)
        )
    R, p, holding = P[:3, :3], P[:3, 3], _times(S[None], lifted)[0]
    R, p, S = R.transpose(2, 0, 1, 3), p.transpose(1, 0, 2), S.transpose(1, 0, 2)
    return FirstOrder(R, p, start, S, M, by_q, by_qd, holding, gravity_by_q)


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


def _links(model: Model, joints: Joints, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the bodies' poses in their parents (3, 4, n, batch), and the joints' columns (6, columns, batch or 1).

    The latter are in the axes of the body.
    """
    leaves = _leaves(model)

    def of_type(joint: Any, parameters: Any, x: Any, _: Any, stage: Any) -> Any:
        S = joint.subspace(parameters, x)
        return joint.transform(parameters, x), S + (Motion.zero(),) * (stage.width - len(S))

    stages = [stage.by_type(partial(of_type, stage=stage), leaves, q) for stage in joints.stages]
    order = np.argsort(np.concatenate([stage.flat for stage in joints.stages])).astype(np.int32)

    def stacked(parts: list[Any]) -> jax.Array:
        """Return components by stage as one array in the order of the bodies."""
        full = [jnp.broadcast_to(x, (len(s.flat), q.shape[1])) for x, s in zip(parts, joints.stages, strict=True)]
        return rows(full[0] if len(full) == 1 else jnp.concatenate(full), order)

    moved = jax.tree.map(lambda *parts: stacked(list(parts)), *[_with_floats(X) for X, _ in stages])
    placed = Transform.from_pose(jnp.moveaxis(model.placement, -1, 1))
    S = joints.spatial_columns([S for _, S in stages], q.dtype)
    in_joint, at = (_matrix(X) for X in (moved, placed))
    X = _product(at[:, :3], in_joint) + jnp.pad(at[:, 3:], ((0, 0), (3, 0), (0, 0), (0, 0)))
    return X.astype(q.dtype), jnp.stack([*S.ang, *S.lin]).astype(q.dtype)


def _matrix(X: Transform) -> jax.Array:
    """Return a pose as an array (3, 4, ...)."""
    return jnp.stack([jnp.stack([*row, p]) for row, p in zip(X.R, X.p, strict=True)])


def _poses(model: Model, jumps: Any, X: jax.Array, width: int) -> tuple[jax.Array, jax.Array]:
    """Return the poses (4, 4, n, batch) of the bodies about the first root's origin, and that origin (3, batch)."""
    n, constant = model.nbodies, lambda x: jnp.asarray(np.asarray(x, np.float64), X.dtype)
    start, last = X[:, 3, 0], np.eye(4)[3][None, :, None]
    root = (np.array(model.parents) < 0)[None, :, None]
    X = jnp.concatenate([X[:, :3], (X[:, 3] - jnp.where(root, start[:, None], 0))[:, None]], axis=1)
    P = jnp.concatenate([_filled(X, width), jnp.broadcast_to(constant(last[..., None]), (1, 4, n, width))])
    for ancestor in jumps:
        world = constant((ancestor == n)[:, None] * np.eye(4)[:, :, None, None])
        P = _product(_sums(P, ancestor[:, None] == np.arange(n)[None]) + world, P)
    return P, start


def _columns(S: jax.Array, P: jax.Array) -> jax.Array:
    """Return columns that are given in body axes, (6, columns, batch), about the common point."""
    ang, lin = (_times(P[:3, :3], x) for x in (S[:3], S[3:]))
    by_p = jnp.tensordot(jnp.asarray(_CROSS[:3, :3, :3], S.dtype), P[:3, 3], 1, precision="highest")
    return jnp.concatenate([ang, lin + _times(by_p, ang)])


# Arrays (..., bodies or columns, batch).
def _filled(x: jax.Array, width: int) -> jax.Array:
    """Return an array (..., batch or 1) with the batch's width."""
    return jnp.broadcast_to(x, (*x.shape[:-1], width))


def _sums(x: jax.Array, selection: Any) -> jax.Array:
    """Return sums over bodies, of x (..., bodies, batch): those that a row of `selection` names."""
    selection = jnp.broadcast_to(jnp.asarray(selection, x.dtype), (*x.shape[:-2], *np.shape(selection)))
    return jnp.matmul(selection, x, precision="highest")


def _matrices(of: np.ndarray, x: jax.Array) -> jax.Array:
    """Return 6x6 matrices that are linear functions, (36, k), of the components of x."""
    return jnp.tensordot(jnp.asarray(of, x.dtype), x, 1, precision="highest").reshape(6, 6, *x.shape[1:])


def _product(A: jax.Array, B: jax.Array) -> jax.Array:
    return sum(A[:, k, None] * B[None, k] for k in range(A.shape[1]))  # type: ignore[return-value]


def _times(A: jax.Array, x: jax.Array) -> jax.Array:
    return sum(A[:, k] * x[None, k] for k in range(A.shape[1]))  # type: ignore[return-value]


def _pairs(left: jax.Array, right: Sequence[jax.Array]) -> jax.Array:
    """Return the products of all columns with all of each of the others, (others, columns, columns, batch)."""
    others = jnp.stack(right)
    return sum(left[None, k, :, None] * others[:, k, None] for k in range(len(left)))  # type: ignore[return-value]


first_order: Any = batched(_first_order, tile=lambda *args: TILE)
