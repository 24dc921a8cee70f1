"""Dynamics of one small robot at a time, by few operations on whole matrices.

For a single state the time goes into the number of operations, not into arithmetic. So here everything is
about one point (the origin of the first root link, world axes): poses by pointer jumping in log2(depth)
products, sums over paths and subtrees as products with a matrix of zeros and ones, M by its definition
H phi M phi* H*, and a Cholesky factor. The cost grows with the cube of the size; the sweeps take over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import rows
from jaxdyn.algorithms.articulation import Joints, Stage, tile_of_rows
from jaxdyn.model import Model
from jaxdyn.model.topology import Topology
from jaxdyn.recursion import batched


class _Tables(NamedTuple):
    joints: Joints
    jumps: list[np.ndarray]
    """For each doubling, the ancestor whose pose is multiplied from the left; nbodies is the world."""
    moves: np.ndarray
    """(nbodies, columns) ones where a column moves a body."""
    inboard: np.ndarray
    """(columns, columns) ones where column j is inboard of column i, on another body."""
    beside: np.ndarray
    """(columns, columns) ones where both are on one body."""
    qd: np.ndarray
    """(columns,) the velocity that drives each column."""


def _in_body_order(topology: Topology) -> Joints:
    """Return the joints in stages by the number of their columns, each in the order of the bodies."""
    widths = np.zeros(topology.nbodies, np.int32)
    for group in topology.groups:
        widths[group.bodies] = group.qd.shape[1]
    stages = [np.flatnonzero(widths == width).astype(np.int32) for width in dict.fromkeys(widths.tolist())]
    return Joints(topology, [Stage(topology, bodies, canonical=False, is_base=False) for bodies in stages])


def _by_body(joints: Joints, stages: Any) -> Any:
    """Bring components by stage, (bodies, 1), into the order of the bodies, (nbodies,)."""
    order = np.argsort(np.concatenate([stage.flat for stage in joints.stages])).astype(np.int32)

    def join(*parts: Any) -> Any:
        full = [jnp.broadcast_to(x, (len(stage.flat), 1))[:, 0] for x, stage in zip(parts, joints.stages, strict=True)]
        return rows(full[0] if len(full) == 1 else jnp.concatenate(full), order)

    return jax.tree.map(join, *stages)


@lru_cache(maxsize=256)
def _tables(topology: Topology) -> _Tables:
    joints = _in_body_order(topology)
    n = topology.nbodies
    ancestor = np.array([p if p >= 0 else n for p in topology.parents], np.int32)
    jumps = []
    while np.any(ancestor < n):
        jumps.append(ancestor)
        ancestor = np.append(ancestor, np.int32(n))[ancestor]
    moves = joints.inboard[:-1]
    above = moves[joints.column_body]
    qd = np.concatenate([np.arange(topology.nv, dtype=np.int32), joints.followed])
    return _Tables(joints, jumps, moves, above & ~above.T, above & above.T, qd)


# The linear maps from ten inertial parameters to the 4x4 pseudo-inertia, and from that to the 6x6 inertia.
_PSEUDO = np.zeros((10, 4, 4))
_PSEUDO[0, 3, 3] = 1
for _i in range(3):
    _PSEUDO[1 + _i, _i, 3] = _PSEUDO[1 + _i, 3, _i] = 1
for _k, (_i, _j) in zip(range(4, 10), ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)), strict=True):
    _PSEUDO[_k, _i, _j] = _PSEUDO[_k, _j, _i] = -1
    if _i == _j:
        _PSEUDO[_k, :3, :3] += 0.5 * np.eye(3)
_SPATIAL = np.zeros((4, 4, 6, 6))
for _i in range(3):
    for _j in range(3):
        _SPATIAL[_i, _j, :3, :3] = (_i == _j) * np.eye(3)
        _SPATIAL[_i, _j, _i, _j] -= 1
_SPATIAL[3, 3, 3:, 3:] = np.eye(3)
for _i, _j, _k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):  # h~, and its transpose below
    for _row, _column, _sign in ((_k, _j, 1), (_j, _k, -1)):
        _SPATIAL[_i, 3, _row, 3 + _column] = _SPATIAL[_i, 3, 3 + _column, _row] = _sign


class DenseTerms(NamedTuple):
    """All there is to know of the dynamics at one state."""

    M: jax.Array
    """(nv, nv) mass matrix, without armature."""
    tau: jax.Array
    """(nv,) joint forces of velocity, gravity, external forces and, if given, acceleration."""


def dense_terms(
    model: Model, q: jax.Array, qd: jax.Array | None, qdd: jax.Array | None, f_ext: Any, base_motion: Any
) -> DenseTerms:
    """Return mass matrix and joint forces at one state; without qd, only the first is meant."""
    tables, dtype, n = _tables(model.topology), q.dtype, model.nbodies
    joints, body = tables.joints, tables.joints.column_body
    constant = lambda x: jnp.asarray(np.asarray(x, np.float64), dtype)

    batch_of_one = jax.tree.map(lambda x: x[..., None], model)
    links = joints.links(batch_of_one, q[:, None])
    X = _by_body(joints, [link.X for link in links])
    start = jnp.stack([x[0] for x in X.p])  # positions are relative to the first root, wherever it stands
    root = np.array(model.parents) < 0
    reach = [jnp.where(root, x - x[:1], x) for x in X.p]
    pose = jnp.concatenate([jnp.stack([*row, p]).T[:, None] for row, p in zip(X.R, reach, strict=True)], axis=1)
    pose = jnp.concatenate([pose, constant(np.tile([[[0, 0, 0, 1.0]]], (n, 1, 1)))], axis=1)
    for ancestor in tables.jumps:
        pose = _product(jnp.concatenate([pose, constant(np.eye(4)[None])])[ancestor], pose)
    R, p = pose[:, :3, :3], pose[:, :3, 3]

    S = _about(_columns(joints, [link.S for link in links], R, body), rows(p, body))

    pseudo = _product(model.inertia.astype(dtype), constant(_PSEUDO.reshape(10, 16))).reshape(n, 4, 4)
    pseudo = _product(_product(pose, pseudo), pose.transpose(0, 2, 1)).reshape(n, 16)
    inertia = _product(pseudo, constant(_SPATIAL.reshape(16, 36)))
    moves = constant(tables.moves)
    forces = jnp.zeros((n, 6), dtype)
    if qd is not None:
        I = inertia.reshape(n, 6, 6)
        forces = _forces(model, tables, moves, S, I, start, q, qd, qdd, base_motion, R, p)
        if f_ext is not None:
            f = jnp.einsum("nij,nkj->nki", R, f_ext.reshape(n, 2, 3).astype(dtype)).reshape(n, 6)
            forces = forces - jnp.concatenate([f[:, :3] + _cross(p, f[:, 3:]), f[:, 3:]], axis=1)
    outboard = _product(moves.T, jnp.concatenate([inertia, forces], axis=1))  # sums over subtrees
    F = (outboard[:, :36].reshape(-1, 6, 6) * S[:, None]).sum(-1)
    products = _product(F, S.T)
    lower = products * constant(tables.inboard)
    M = lower + lower.T + products * constant(tables.beside)
    tau = (S * outboard[:, 36:]).sum(-1)
    return DenseTerms(joints.fold(joints.fold(M, 0), 1), joints.fold(tau))


SMALL = 4096
"""Below this number of multiplications XLA fuses a product with its surroundings; a library call costs more."""


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return a @ b."""
    if a.size * b.shape[-1] > SMALL:
        return a @ b
    return (a[..., :, :, None] * b[..., None, :, :]).sum(-2)


def _columns(joints: Joints, stages: Any, R: jax.Array, body: np.ndarray) -> jax.Array:
    """Return columns given in body axes as an array (columns, 6) in world axes."""
    S = joints.spatial_columns(stages, R.dtype)
    parts = [x.reshape(len(body)).astype(R.dtype) for x in (*S.ang, *S.lin)]
    return (rows(R, body)[:, None] * jnp.stack(parts).T.reshape(-1, 2, 1, 3)).sum(-1).reshape(-1, 6)


def _forces(
    model: Model,
    tables: _Tables,
    moves: Any,
    S: Any,
    I: Any,
    start: Any,
    q: Any,
    qd: Any,
    qdd: Any,
    base: Any,
    R: Any,
    p: Any,
) -> jax.Array:
    """Return the forces of motion on the bodies, I a + V x* I V, (nbodies, 6)."""
    body, rate = tables.joints.column_body, rows(qd, tables.qd)[:, None]
    V0 = jnp.zeros((1, 6), q.dtype) if base is None else _at(base[0], start)
    a0 = jnp.concatenate([jnp.zeros(3, q.dtype), -model.gravity.astype(q.dtype)])[None]
    a0 = a0 if base is None else a0 + _at(base[1], start)
    V = _product(moves, S * rate) + V0
    turning = _cross_motion(rows(V, body), S * rate)
    rates = tables.joints.subspace_rates(jax.tree.map(lambda x: x[..., None], model), q[:, None], qd[:, None])
    if any(type(x) is not float for x in jax.tree.leaves(rates)):
        turning = turning + rate * _about(_columns(tables.joints, rates, R, body), rows(p, body))
    if qdd is not None:
        turning = turning + S * rows(qdd, tables.qd)[:, None]
    a = _product(moves, turning) + a0
    h = (I[:, None] * jnp.stack([a, V], axis=1)[:, :, None, :]).sum(-1)
    momentum = h[:, 1]
    return h[:, 0] + jnp.concatenate(
        [
            _cross(V[:, :3], momentum[:, :3]) + _cross(V[:, 3:], momentum[:, 3:]),
            _cross(V[:, :3], momentum[:, 3:]),
        ],
        axis=1,
    )


def _about(X: jax.Array, p: jax.Array) -> jax.Array:
    """Return motions about points p, row by row, as motions about the origin."""
    return jnp.concatenate([X[:, :3], X[:, 3:] + _cross(p, X[:, :3])], axis=1)


def _at(x: jax.Array, start: jax.Array) -> jax.Array:
    """Return a motion about the world's origin as one about another point, (1, 6)."""
    return jnp.concatenate([x[:3], x[3:] + _cross(x[None, :3], start[None])[0]])[None]


def _cross(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return a x b, row by row."""
    (x, y, z), (u, v, w) = a.T, b.T
    return jnp.stack([y * w - z * v, z * u - x * w, x * v - y * u], axis=1)


def _cross_motion(V: jax.Array, X: jax.Array) -> jax.Array:
    """Return the motion cross product V x X, row by row."""
    return jnp.concatenate(
        [_cross(V[:, :3], X[:, :3]), _cross(V[:, :3], X[:, 3:]) + _cross(V[:, 3:], X[:, :3])], axis=1
    )


LARGEST = 48
"""Number of degrees of freedom up to which one state is computed by matrices (measured, see benchmarks)."""

Form = Literal["auto", "sweep", "dense"]


def in_all_forms(
    kernel: Callable[..., Any],
    dense: Callable[..., Any],
    last: Callable[..., Any] | None = None,
    make: Callable[..., Any] = batched,
    tile: Callable[..., int] | None = None,
    like: Callable[..., Any] | None = None,
    single_from: int = 4,
) -> Callable[[str], Callable[..., Any]]:
    """Return the choice between two forms of one function: sweeps over batches, and matrices for one state.

    `make` makes the sweeps a function of one state, in tiles by the rule `tile`, of results like `like`. One state is
    computed by matrices in numbers of `single_from` bytes or more.
    """
    sweep = partial(make, kernel, tile=tile or tile_of_rows(), last=last, like=like)
    forms = {
        "auto": sweep(
            single=dense, single_if=lambda model, q, *_: model.nv <= LARGEST and q.dtype.itemsize >= single_from
        ),
        "sweep": sweep(),
        "dense": dense,
    }

    def choose(form: str) -> Callable[..., Any]:
        if form not in forms:
            raise ValueError(f'form must be "auto", "sweep" or "dense"; got {form!r}')
        return forms[form]

    return choose


def forward_dynamics_dense(model: Model, q: Any, qd: Any, tau: Any, f_ext: Any, base_motion: Any) -> jax.Array:
    """Return the acceleration at one state, by the Cholesky factor of M."""
    if q.dtype.itemsize < 8:
        raise ValueError(
            f'form="dense" of forward_dynamics needs float64: about one point for the whole robot, light links lose '
            f'their digits; got {q.dtype}. form="sweep" keeps them'
        )
    terms = dense_terms(model, q, qd, None, f_ext, base_motion)
    factor = jax.lax.linalg.cholesky(terms.M + jnp.diag(model.armature.astype(q.dtype)), symmetrize_input=False)
    return jax.scipy.linalg.cho_solve((factor, True), tau - terms.tau)


def inverse_dynamics_dense(model: Model, q: Any, qd: Any, qdd: Any, f_ext: Any, base_motion: Any) -> jax.Array:
    """Return the joint forces at one state."""
    tau = dense_terms(model, q, qd, qdd, f_ext, base_motion).tau
    return tau if qdd is None else tau + model.armature.astype(q.dtype) * qdd


def mass_matrix_dense(model: Model, q: Any) -> jax.Array:
    """Return the mass matrix at one state."""
    return dense_terms(model, q, None, None, None, None).M + jnp.diag(model.armature.astype(q.dtype))
