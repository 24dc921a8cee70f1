"""Vectors and matrices of three-space, component by component."""

from __future__ import annotations

from typing import Any, Self, overload

from jaxdyn._numerics import Scalar, reciprocal_size, safe_rsqrt
from jaxdyn.spatial.components import Components, components, minus, negative, plus, stack, times, unstack


@components
class Vec3(Components):
    """A vector (x, y, z)."""

    x: Scalar
    y: Scalar
    z: Scalar

    @classmethod
    def from_array(cls, array: Any) -> Self:
        """Read an array of shape (..., 3)."""
        return cls(*unstack(array))

    def to_array(self) -> Any:
        """Return an array of shape (..., 3)."""
        return stack([self.x, self.y, self.z])

    @classmethod
    def zero(cls) -> Self:
        """Return the zero vector, in plain numbers."""
        return cls(0.0, 0.0, 0.0)

    def dot(self, b: Vec3) -> Scalar:
        """Compute a . b."""
        return plus(plus(times(self.x, b.x), times(self.y, b.y)), times(self.z, b.z))

    def cross(self, b: Vec3) -> Vec3:
        """Compute a x b."""
        return Vec3(
            minus(times(self.y, b.z), times(self.z, b.y)),
            minus(times(self.z, b.x), times(self.x, b.z)),
            minus(times(self.x, b.y), times(self.y, b.x)),
        )

    def normalized(self) -> Vec3:
        """Return a / |a|; the zero vector stays zero, with zero derivatives."""
        scaled = reciprocal_size(self.x, self.y, self.z) * self
        return safe_rsqrt(scaled.dot(scaled)) * scaled


@components
class Sym3(Components):
    """A symmetric 3x3 matrix by its upper triangle."""

    xx: Scalar
    xy: Scalar
    xz: Scalar
    yy: Scalar
    yz: Scalar
    zz: Scalar

    @classmethod
    def zero(cls) -> Self:
        """Return the zero matrix, in plain numbers."""
        return cls(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

    @classmethod
    def scalar(cls, s: Scalar) -> Self:
        """Return s times the identity."""
        return cls(s, 0.0, 0.0, s, 0.0, s)

    @property
    def full(self) -> Mat3:
        """The same matrix as a Mat3."""
        return Mat3(Vec3(self.xx, self.xy, self.xz), Vec3(self.xy, self.yy, self.yz), Vec3(self.xz, self.yz, self.zz))

    @property
    def trace(self) -> Scalar:
        """Sum of the diagonal."""
        return plus(plus(self.xx, self.yy), self.zz)

    @classmethod
    def from_array(cls, array: Any) -> Self:
        """Read the upper triangle of an array of shape (..., 3, 3)."""
        return cls(*(array[..., i, j] for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))))

    def to_array(self) -> Any:
        """Return an array of shape (..., 3, 3)."""
        return self.full.to_array()

    def __matmul__(self, v: Vec3) -> Vec3:
        """Multiply by a vector."""
        return self.full @ v


@components
class Mat3(Components):
    """A 3x3 matrix by its rows."""

    r1: Vec3
    r2: Vec3
    r3: Vec3

    @classmethod
    def from_array(cls, array: Any) -> Self:
        """Read an array of shape (..., 3, 3)."""
        return cls(*(Vec3.from_array(array[..., i, :]) for i in range(3)))

    def to_array(self) -> Any:
        """Return an array of shape (..., 3, 3)."""
        flat = stack([component for row in self for component in row])
        return flat.reshape((*flat.shape[:-1], 3, 3))

    @classmethod
    def zero(cls) -> Self:
        """Return the zero matrix, in plain numbers."""
        return cls(Vec3.zero(), Vec3.zero(), Vec3.zero())

    @classmethod
    def identity(cls) -> Self:
        """Return the identity, in plain numbers."""
        return cls(Vec3(1.0, 0.0, 0.0), Vec3(0.0, 1.0, 0.0), Vec3(0.0, 0.0, 1.0))

    @property
    def T(self) -> Mat3:
        """The transpose."""
        a, b, c = self.r1, self.r2, self.r3
        return Mat3(Vec3(a.x, b.x, c.x), Vec3(a.y, b.y, c.y), Vec3(a.z, b.z, c.z))

    @property
    def upper(self) -> Sym3:
        """The upper triangle, for a matrix known to be symmetric."""
        return Sym3(self.r1.x, self.r1.y, self.r1.z, self.r2.y, self.r2.z, self.r3.z)

    @overload
    def __matmul__(self, b: Vec3) -> Vec3: ...
    @overload
    def __matmul__(self, b: Mat3) -> Mat3: ...
    def __matmul__(self, b: Vec3 | Mat3) -> Vec3 | Mat3:
        """Multiply by a vector or a matrix."""
        if isinstance(b, Vec3):
            return Vec3(self.r1.dot(b), self.r2.dot(b), self.r3.dot(b))
        if not isinstance(b, Mat3):
            return NotImplemented
        return Mat3(*(row.x * b.r1 + row.y * b.r2 + row.z * b.r3 for row in self))

    def congruence(self, s: Sym3) -> Sym3:
        """Compute A S A^T."""
        a, b, c = s @ self.r1, s @ self.r2, s @ self.r3
        return Sym3(self.r1.dot(a), self.r1.dot(b), self.r1.dot(c), self.r2.dot(b), self.r2.dot(c), self.r3.dot(c))


def skew(v: Vec3) -> Mat3:
    """Return the cross matrix of v: `skew(v) @ x == v.cross(x)`."""
    x, y, z = negative(v.x), negative(v.y), negative(v.z)
    return Mat3(Vec3(0.0, z, v.y), Vec3(v.z, 0.0, x), Vec3(y, v.x, 0.0))


def cross_rows(v: Vec3, a: Mat3) -> Mat3:
    """Compute skew(v) @ A."""
    return Mat3(v.y * a.r3 - v.z * a.r2, v.z * a.r1 - v.x * a.r3, v.x * a.r2 - v.y * a.r1)


def outer(a: Vec3, b: Vec3) -> Mat3:
    """Compute a b^T."""
    return Mat3(a.x * b, a.y * b, a.z * b)


def symmetric_outer(a: Vec3, b: Vec3) -> Sym3:
    """Compute a b^T where it is symmetric (b a multiple of a)."""
    return outer(a, b).upper
