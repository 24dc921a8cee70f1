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

_MOMENTS = np.array([[4, 5, 7, 1], [5, 6, 8, 2], [7, 8, 9, 3]], np.int32)
"""Places of the second moments (a symmetric matrix) and of the first ones in ten inertial parameters."""

_POSE = jax.tree.structure(Transform(Mat3.identity(), Vec3.zero()))
_INERTIA = jax.tree.structure(RigidInertia(0.0, Vec3.zero(), Sym3.zero()))


def _hinge_quaternions(axis: jax.Array) -> jax.Array:
    """Return quaternions (links, 4, batch) of the least rotations that take e_z to the axes (links, 3, batch).

    Where an axis points down, it is the least rotation from -e_z, after half a turn about e_x. They have
    any length: what is made of them is a rotation to the last place, and stays one along the longest chain.
    """
    axis = _moderate(axis)
    x, y, z = (axis[:, i] for i in range(3))
    size, zero, down = safe_sqrt(x * x + y * y + z * z), jnp.zeros_like(x), z < 0
    either = ((-y, size + z), (size - z, -y), (zero, x), (x, zero))
    return jnp.stack([jnp.where(down, a, b) for a, b in either], axis=1)


def _rotations(q: jax.Array) -> jax.Array:
    """Return the rotations of quaternions (links, 4, batch): 1 + 2 (w v~ + v v* - |v|^2) / |q|^2."""
    w, v = q[:, 0], q[:, 1:]
    vv, one = v[:, :, None] * v[:, None], _one(q)
    # Sums, not matrix products: those are calls of a library, and take as long as the rest of a single state.
    skew = (jnp.asarray(_SKEW, q.dtype)[None, ..., None] * v[:, None, None]).sum(3)
    others = ((1 - one) * (v * v)[:, None]).sum(2)  # |v|^2 - v_i^2, of which nothing cancels
    turn = w[:, None, None] * skew + (1 - one) * vv - one * others[:, None]
    size = w * w + v[:, 0] * v[:, 0] + v[:, 1] * v[:, 1] + v[:, 2] * v[:, 2]
    return one + (2 * safe_reciprocal(size))[:, None, None] * turn


def _moderate(x: jax.Array) -> jax.Array:
    """Return vectors (links, k, batch) whose length does not matter with squares that neither overflow nor vanish."""
    limit = float(jnp.finfo(x.dtype).max) ** 0.3
    size = reduce(jnp.maximum, (jnp.abs(jax.lax.stop_gradient(x[:, i])) for i in range(x.shape[1])))
    scale = jnp.where(size > limit, limit**-2, jnp.where(size < 1 / limit, limit**2, 1.0)).astype(x.dtype)
    return scale[:, None] * x


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
        moments = _product(Q_inverse, inertia[:, _MOMENTS])
        J = _product(moments[:, :, :3], self.Q)
        upper = [J[:, i, i:] for i in range(3)]
        return Packed(jnp.concatenate([inertia[:, :1], moments[:, :, 3], *upper], axis=1), _INERTIA)

    def forces(self, f: Force) -> Force:
        """Return forces on the bodies, given in the axes of their body frames, in link axes."""
        return f.rotate(self.to_link)

    @property
    def to_link(self) -> Mat3:
        """Rotation from the axes of the model's body frame to those of the link."""
        return (self.Q if isinstance(self.Q, Mat3) else _matrix(self.Q)).T


class Frames:
    """The frames of all bodies of a model: where its links are placed, and the axes of its hinges.

    Args:
        placement: of all bodies, (nbodies, 7, batch).
        axis: of all bodies, (nbodies, 3, batch), if some of them are on hinges.
    """

    def __init__(self, placement: jax.Array, axis: jax.Array | None = None):
        self._placement = placement
        self._axis: Any = axis
        self._by_matrices = placement.shape[-1] == 1 and (axis is None or axis.shape[-1] == 1)
        if self._by_matrices:  # all rotations at once; the quaternions are one array, not worked out again for each use
            parts = [_moderate(placement[:, :4])] + ([] if axis is None else [_hinge_quaternions(axis)])
            self._rotations = _rotations(jax.lax.optimization_barrier(jnp.concatenate(parts)))

    def placements(self, links: np.ndarray) -> Transform:
        """Return the placements of some links."""
        if not self._by_matrices:
            return Transform.from_pose(jnp.moveaxis(rows(self._placement, links), -1, 1))
        p = rows(self._placement, links)[:, 4:]
        return Transform(_matrix(rows(self._rotations, links)), Vec3(*(p[:, i] for i in range(3))))

    def hinges(self, links: np.ndarray, parents: np.ndarray, turned: np.ndarray | None = None) -> Hinges:
        """Return the hinges of some links.

        Args:
            links: the bodies on hinges.
            parents: their parents.
            turned: whether the axes of each parent are turned too; by default those that are among the links.
        """
        turned = np.isin(parents, links) if turned is None else turned
        return (self._hinges_by_matrices if self._by_matrices else self._hinges_by_formulas)(links, parents, turned)

    def _hinges_by_formulas(self, links: np.ndarray, parents: np.ndarray, turned: np.ndarray) -> Hinges:
        Q = Quaternion.from_array(jnp.moveaxis(_hinge_quaternions(self._axis), -1, 1)).to_matrix()
        if_turned = lambda x, one: jnp.where(turned[:, None], x[parents], jnp.asarray(one, x.dtype))
        Q_p, Q = jax.tree.map(if_turned, Q, Mat3.identity()), jax.tree.map(lambda x: rows(x, links), Q)
        X = self.placements(links)
        return Hinges(Transform(Q_p.T @ X.R @ Q, Q_p.T @ X.p), Q)

    def _hinges_by_matrices(self, links: np.ndarray, parents: np.ndarray, turned: np.ndarray) -> Hinges:
        bodies = len(self._placement)
        R, Q, Q_p = jnp.split(self._rotations[np.concatenate([links, bodies + links, bodies + parents])], 3)
        X = jnp.concatenate([_product(R, Q), rows(self._placement, links)[:, 4:, None]], axis=2)
        X = _product(jnp.where(turned[:, None, None, None], jnp.swapaxes(Q_p, 1, 2), _one(Q)), X)
        packed = jnp.concatenate([X[:, :, :3].reshape((len(links), 9, 1)), X[:, :, 3]], axis=1)
        return Hinges(Packed(packed, _POSE), Q)


def _matrix(Q: jax.Array) -> Mat3:
    """Return an array (links, 3, 3, batch) by components."""
    return Mat3(*(Vec3(*(Q[:, i, j] for j in range(3))) for i in range(3)))


def _one(like: jax.Array) -> jax.Array:
    return jnp.asarray(np.eye(3)[None, :, :, None], like.dtype)


def _product(a: Any, b: Any) -> jax.Array:
    return (a[:, :, :, None] * b[:, None]).sum(2)
