"""Links on hinges, in axes turned such that the axis of every hinge is e_z.

The zeros and ones of (e_z, 0) are known when a program is traced. Here the numbers of the model are brought into those
axes, as small matrices of all links at once: XLA compiles a kernel for each array, so the fewer the better. Arrays are
(links, 3, 3, batch); the batch has length 1 unless it is one of models.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import safe_reciprocal, safe_rsqrt
from jaxdyn.recursion import Packed
from jaxdyn.spatial import Mat3, RigidInertia, Sym3, Transform, Vec3

_SKEW = np.zeros((3, 3, 3))
"""v~ = sum v_k _SKEW[:, :, k]."""
for _i, _j, _k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    _SKEW[_j, _i, _k], _SKEW[_i, _j, _k] = 1, -1

_SYMMETRIC = np.zeros((3, 3, 6))
"""The matrix of xx, xy, yy, xz, yz, zz."""
for _k, (_i, _j) in enumerate(((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))):
    _SYMMETRIC[_i, _j, _k] = _SYMMETRIC[_j, _i, _k] = 1

_POSE = jax.tree.structure(Transform(Mat3.identity(), Vec3.zero()))


def hinge_axes(axis: jax.Array) -> jax.Array:
    """Return rotations that take e_z to the axes (links, 3, batch), as `spatial.align_z` does."""
    axis = axis * safe_rsqrt((axis * axis).sum(1, keepdims=True))
    flip = jnp.where(axis[:, 2:] < -0.9, -1, 1).astype(axis.dtype)[:, None]  # near -e_z, from there
    axis = flip[:, 0] * axis
    v = jnp.stack([-axis[:, 1], axis[:, 0], jnp.zeros_like(axis[:, 0])], axis=1)  # e_z x axis
    v = _combine(_SKEW, v)
    turned = _one(v) + v + _product(v, v) / (1 + axis[:, 2:, None])
    return turned * jnp.concatenate([jnp.ones_like(flip), flip, flip], axis=2)


def _rotations(quaternion: jax.Array) -> jax.Array:
    """Return the rotations of quaternions (links, 4, batch), as `spatial.Quaternion.to_matrix` does."""
    twice = 2 * safe_reciprocal((quaternion * quaternion).sum(1))[:, None, None]
    v = _combine(_SKEW, quaternion[:, 1:])
    return _one(v) + twice * (quaternion[:, 0, None, None] * v + _product(v, v))


def placements(placement: jax.Array) -> Transform:
    """Return placements (links, 7, batch) by components."""
    return Transform(matrix(_rotations(placement[:, :4])), Vec3(*(placement[:, i] for i in (4, 5, 6))))


def hinge_placements(placement: jax.Array, Q_parent: jax.Array, Q: jax.Array) -> Packed:
    """Return placements (links, 7, batch) in the axes of both links: R, p as one array."""
    X = jnp.concatenate([_product(_rotations(placement[:, :4]), Q), placement[:, 4:, None]], axis=2)
    X = _product(jnp.swapaxes(Q_parent, 1, 2), X)
    n, batch = X.shape[0], X.shape[-1]
    return Packed(jnp.concatenate([X[:, :, :3].reshape((n, 9, batch)), X[:, :, 3]], axis=1), _POSE)


def hinge_inertias(inertia: jax.Array, Q: jax.Array) -> RigidInertia:
    """Return inertias (links, 10, batch) in turned axes."""
    Q_inverse = jnp.swapaxes(Q, 1, 2)
    h = _product(Q_inverse, inertia[:, 1:4, None])[:, :, 0]
    J = _product(_product(Q_inverse, _combine(_SYMMETRIC, inertia[:, 4:])), Q)
    upper = Sym3(*(J[:, i, j] for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))))
    return RigidInertia(inertia[:, 0], Vec3(*(h[:, i] for i in range(3))), upper)


def matrix(Q: jax.Array) -> Mat3:
    """Return an array (links, 3, 3, batch) by components."""
    return Mat3(*(Vec3(*(Q[:, i, j] for j in range(3))) for i in range(3)))


def _one(like: jax.Array) -> jax.Array:
    return jnp.asarray(np.eye(3)[None, :, :, None], like.dtype)


def _combine(matrices: np.ndarray, x: jax.Array) -> jax.Array:
    """Return sum x_k matrices[:, :, k] of x (links, k, batch)."""
    return (jnp.asarray(matrices, x.dtype)[None, ..., None] * x[:, None, None]).sum(3)


def _product(a: Any, b: Any) -> jax.Array:
    return (a[:, :, :, None] * b[:, None]).sum(2)
