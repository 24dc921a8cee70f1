"""Links on hinges, in axes turned such that the axis of every hinge is e_z.

The zeros and ones of (e_z, 0) are known when a program is traced. Here the numbers of the model are brought into those
axes: by the formulas of `spatial`, if there is a batch of models; else as small matrices of all links at once, arrays
(links, 3, 3, 1), because XLA compiles a kernel for each array, and the fewer the better.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import rows, safe_reciprocal, safe_sqrt
from jaxdyn.recursion import Packed
from jaxdyn.spatial import Force, Mat3, Quaternion, RigidInertia, Sym3, Transform, Vec3

_SKEW = np.zeros((3, 3, 3))
"""v~ = sum v_k _SKEW[:, :, k]."""
for _i, _j, _k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    _SKEW[_j, _i, _k], _SKEW[_i, _j, _k] = 1, -1

_SYMMETRIC = np.zeros((3, 3, 6))
"""The matrix of xx, xy, yy, xz, yz, zz."""
for _k, (_i, _j) in enumerate(((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))):
    _SYMMETRIC[_i, _j, _k] = _SYMMETRIC[_j, _i, _k] = 1

_POSE = jax.tree.structure(Transform(Mat3.identity(), Vec3.zero()))
_INERTIA = jax.tree.structure(RigidInertia(0.0, Vec3.zero(), Sym3.zero()))


def _hinge_quaternions(axis: jax.Array) -> jax.Array:
    """Return quaternions (links, 4, batch) of the least rotations that take e_z to the axes (links, 3, batch).

    Where an axis points down, it is the least rotation from -e_z, after half a turn about e_x. They have
    any length: what is made of them is a rotation to the last place, and stays one along the longest chain.
    """
    x, y, z = _moderate(*(axis[:, i] for i in range(3)))
    size, zero, down = safe_sqrt(x * x + y * y + z * z), jnp.zeros_like(x), z < 0
    either = ((-y, size + z), (size - z, -y), (zero, x), (x, zero))
    return jnp.stack([jnp.where(down, a, b) for a, b in either], axis=1)


def _rotations(quaternion: jax.Array) -> jax.Array:
    """Return the rotations of quaternions (links, 4, batch): 1 + 2 (w v~ + v v* - |v|^2) / |q|^2."""
    w, x, y, z = _moderate(*(quaternion[:, i] for i in range(4)))
    v, vv = jnp.stack([x, y, z], axis=1), x * x + y * y + z * z
    turn = w[:, None, None] * _combine(_SKEW, v) + v[:, :, None] * v[:, None] - vv[:, None, None] * _one(v)
    return _one(v) + (2 * safe_reciprocal(w * w + vv))[:, None, None] * turn


def _moderate(*xs: jax.Array) -> tuple[jax.Array, ...]:
    """Return a vector whose length does not matter with one whose square neither overflows nor vanishes."""
    size, limit = reduce(jnp.maximum, map(jnp.abs, jax.lax.stop_gradient(xs))), float(jnp.finfo(xs[0].dtype).max) ** 0.3
    scale = jnp.where(size > limit, limit**-2, jnp.where(size < 1 / limit, limit**2, 1.0)).astype(size.dtype)
    return tuple(scale * x for x in xs)


def placements(placement: jax.Array) -> Transform:
    """Return placements (links, 7, batch) by components."""
    if placement.shape[-1] > 1:
        return Transform.from_pose(jnp.moveaxis(placement, -1, 1))
    return Transform(_matrix(_rotations(placement[:, :4])), Vec3(*(placement[:, i] for i in (4, 5, 6))))


class Hinges(NamedTuple):
    """The hinges of some links, numbers of the model in turned axes."""

    placement: Packed | Transform
    """Of each link in the parent link's axes, before the hinge turns."""
    Q: jax.Array | Mat3
    """Rotation from link axes to those of the model's body frame."""

    def inertias(self, inertia: jax.Array) -> Packed | RigidInertia:
        """Return inertias (links, 10, batch) in link axes."""
        if isinstance(self.Q, Mat3):
            return RigidInertia.from_parameters(jnp.moveaxis(inertia, -1, 1)).rotate(self.Q.T)
        if inertia.shape[-1] > 1:
            return RigidInertia.from_parameters(jnp.moveaxis(inertia, -1, 1)).rotate(_matrix(self.Q).T)
        Q_inverse = jnp.swapaxes(self.Q, 1, 2)
        h = _product(Q_inverse, inertia[:, 1:4, None])[:, :, 0]
        J = _product(_product(Q_inverse, _combine(_SYMMETRIC, inertia[:, 4:])), self.Q)
        upper = [J[:, i, i:] for i in range(3)]
        return Packed(jnp.concatenate([inertia[:, :1], h, *upper], axis=1), _INERTIA)

    def forces(self, f: Force) -> Force:
        """Return forces on the bodies, given in the axes of their body frames, in link axes."""
        return f.rotate(self.to_link)

    @property
    def to_link(self) -> Mat3:
        """Rotation from the axes of the model's body frame to those of the link."""
        return (self.Q if isinstance(self.Q, Mat3) else _matrix(self.Q)).T


def hinges(
    axis: jax.Array, placement: jax.Array, links: np.ndarray, parents: np.ndarray, turned: np.ndarray | None = None
) -> Hinges:
    """Return the hinges of some links.

    Args:
        axis: of all bodies, (nbodies, 3, batch).
        placement: of all bodies, (nbodies, 7, batch).
        links: the bodies on hinges.
        parents: their parents.
        turned: whether the axes of each parent are turned too; by default those that are among the links.
    """
    turned = np.isin(parents, links) if turned is None else turned
    by = _hinges_by_formulas if max(axis.shape[-1], placement.shape[-1]) > 1 else _hinges_by_matrices
    return by(axis, rows(placement, links), links, parents, turned)


def _hinges_by_formulas(axis: Any, placement: Any, links: np.ndarray, parents: np.ndarray, turned: Any) -> Hinges:
    Q = Quaternion.from_array(jnp.moveaxis(_hinge_quaternions(axis), -1, 1)).to_matrix()
    if_turned = lambda x, one: jnp.where(turned[:, None], x[parents], jnp.asarray(one, x.dtype))
    Q_p, Q = jax.tree.map(if_turned, Q, Mat3.identity()), jax.tree.map(lambda x: rows(x, links), Q)
    X = placements(placement)
    return Hinges(Transform(Q_p.T @ X.R @ Q, Q_p.T @ X.p), Q)


def _hinges_by_matrices(axis: Any, placement: Any, links: np.ndarray, parents: np.ndarray, turned: Any) -> Hinges:
    Q = _rotations(_hinge_quaternions(axis))
    Q_p, Q = jnp.where(turned[:, None, None, None], Q[parents], _one(Q)), rows(Q, links)
    X = jnp.concatenate([_product(_rotations(placement[:, :4]), Q), placement[:, 4:, None]], axis=2)
    X = _product(jnp.swapaxes(Q_p, 1, 2), X)
    packed = jnp.concatenate([X[:, :, :3].reshape((len(links), 9, 1)), X[:, :, 3]], axis=1)
    return Hinges(Packed(packed, _POSE), Q)


def _matrix(Q: jax.Array) -> Mat3:
    """Return an array (links, 3, 3, batch) by components."""
    return Mat3(*(Vec3(*(Q[:, i, j] for j in range(3))) for i in range(3)))


def _one(like: jax.Array) -> jax.Array:
    return jnp.asarray(np.eye(3)[None, :, :, None], like.dtype)


def _combine(matrices: np.ndarray, x: jax.Array) -> jax.Array:
    """Return sum x_k matrices[:, :, k] of x (links, k, batch)."""
    return (jnp.asarray(matrices, x.dtype)[None, ..., None] * x[:, None, None]).sum(3)


def _product(a: Any, b: Any) -> jax.Array:
    return (a[:, :, :, None] * b[:, None]).sum(2)
