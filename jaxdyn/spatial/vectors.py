"""Spatial motion and force vectors, [angular; linear], and their cross products.

A motion vector holds the angular velocity of a body and the linear velocity of the body's point at the
frame's origin; a force vector the moment about that origin and the force. They are dual:
`f.dot(V)` is power, whatever frame both are given in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp

from jaxdyn._numerics import Scalar
from jaxdyn.spatial.components import Components, components, is_known, stack
from jaxdyn.spatial.linear import Vec3


class _Spatial(Components):
    """What motion and force vectors share: their layout."""

    ang: Vec3
    lin: Vec3

    @classmethod
    def from_array(cls, array: Any) -> Self:
        """Read an array of shape (..., 6), [angular; linear]."""
        return cls(Vec3.from_array(array[..., :3]), Vec3.from_array(array[..., 3:]))  # type: ignore[call-arg]

    def to_array(self) -> Any:
        """Return an array of shape (..., 6), [angular; linear]."""
        return stack([*self.ang, *self.lin])

    def rotate(self, R: Any) -> Self:
        """Return the same vector in other axes, about the same point."""
        return type(self)(R @ self.ang, R @ self.lin)  # type: ignore[call-arg]

    @classmethod
    def zero(cls) -> Self:
        """Return the zero vector, in plain numbers."""
        return cls(Vec3.zero(), Vec3.zero())  # type: ignore[call-arg]


@components
class Motion(_Spatial):
    """A spatial velocity or acceleration [angular; linear]."""

    ang: Vec3
    lin: Vec3

    def shift(self, l: Vec3) -> Motion:
        """Return phi* V: the same motion about a point further by l (002 (4.1))."""
        return Motion(self.ang, self.lin + self.ang.cross(l))

    def cross(self, X: Motion) -> Motion:
        """Return V x X, the motion cross product crm(V) X (002 (5.5))."""
        return Motion(self.ang.cross(X.ang), self.lin.cross(X.ang) + self.ang.cross(X.lin))

    def cross_force(self, f: Force) -> Force:
        """Return V x* f, the force cross product crf(V) f = -crm(V)* f."""
        return Force(self.ang.cross(f.ang) + self.lin.cross(f.lin), self.ang.cross(f.lin))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MotionRows:
    """A motion whose components are rows of one array, (..., 6, batch).

    XLA compiles a kernel for each array and starts it wherever the array is made, read, or copied: one instead of six.
    """

    array: jax.Array

    __array_ufunc__ = None  # as for components

    @classmethod
    def zero(cls, dtype: Any) -> Self:
        """Return the zero motion."""
        return cls(jnp.zeros((6, 1), dtype))

    @classmethod
    def of(cls, V: Motion, like: jax.Array) -> Self:
        """Return a motion in rows; `like` lends shape and type to components that are plain numbers."""
        rows = [jnp.asarray(x, like.dtype if isinstance(x, float) else None) for x in (*V.ang, *V.lin)]
        return cls(jnp.stack(jnp.broadcast_arrays(*rows, like)[:6], axis=-2))

    @property
    def ang(self) -> Vec3:
        """The angular part."""
        return Vec3(*(self.array[..., i, :] for i in range(3)))

    @property
    def lin(self) -> Vec3:
        """The linear part."""
        return Vec3(*(self.array[..., i, :] for i in range(3, 6)))

    def shift(self, l: Vec3) -> MotionRows:
        """Return phi* V: the same motion about a point further by l."""
        if all(is_known(x, 0.0) for x in l):
            return self
        return MotionRows.of(Motion(self.ang, self.lin).shift(l), self.array[..., 0, :])

    def __add__(self, other: MotionRows) -> MotionRows:
        return MotionRows(self.array + other.array)

    def __rmul__(self, scalar: Any) -> MotionRows:
        return MotionRows(scalar[..., None, :] * self.array)


@components
class Force(_Spatial):
    """A spatial force or momentum [moment; force]."""

    ang: Vec3
    lin: Vec3

    def shift(self, l: Vec3) -> Force:
        """Return phi f: the same force about a point that lies l before (002 (4.1))."""
        return Force(self.ang + l.cross(self.lin), self.lin)

    def dot(self, V: Motion) -> Scalar:
        """Return the power f . V."""
        return self.ang.dot(V.ang) + self.lin.dot(V.lin)
