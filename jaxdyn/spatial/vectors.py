"""Spatial motion and force vectors, [angular; linear], and their cross products.

A motion vector holds the angular velocity of a body and the linear velocity of the body's point at the
frame's origin; a force vector the moment about that origin and the force. They are dual:
`f.dot(V)` is power, whatever frame both are given in.
"""

from __future__ import annotations

from typing import Any, Self

from jaxdyn._numerics import Scalar
from jaxdyn.spatial.components import Components, components, stack
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
