"""Rigid transforms, their exponential and logarithm."""

from __future__ import annotations

from typing import Any, Self

from jaxdyn._numerics import cot_defect, stumpff
from jaxdyn.spatial.components import Components, components, stack
from jaxdyn.spatial.linear import Mat3, Vec3
from jaxdyn.spatial.rotation import Quaternion
from jaxdyn.spatial.vectors import Force, Motion


@components
class Transform(Components):
    """A pose `X_a_b` of frame b in frame a: it takes b-coordinates to a-coordinates."""

    R: Mat3
    """Rotation `R_a_b`: axes of b in a-coordinates, as columns."""
    p: Vec3
    """Position of b's origin in a-coordinates."""

    @classmethod
    def identity(cls) -> Self:
        """Return the pose of a frame in itself, in plain numbers."""
        return cls(Mat3.identity(), Vec3.zero())

    @classmethod
    def from_pose(cls, array: Any) -> Self:
        """Read an array (..., 7): quaternion w, x, y, z (normalised here), then position x, y, z."""
        return cls(Quaternion.from_array(array[..., :4]).to_matrix(), Vec3.from_array(array[..., 4:]))

    def to_pose(self) -> Any:
        """Return an array (..., 7): unit quaternion w, x, y, z, then position x, y, z."""
        return stack([*Quaternion.from_matrix(self.R), *self.p])

    @classmethod
    def exp(cls, V: Motion) -> Self:
        """Return the pose reached by the constant body twist V in unit time."""
        return cls(Quaternion.exp(V.ang).to_matrix(), left_jacobian(V.ang, V.lin))

    def log(self) -> Motion:
        """Return the body twist whose `exp` is this pose, its rotation at most half a turn."""
        w = Quaternion.from_matrix(self.R).log()
        return Motion(w, left_jacobian_inverse(w, self.p))

    def __matmul__(self, X_b_c: Transform) -> Transform:
        """Compose: X_a_b @ X_b_c == X_a_c."""
        return Transform(self.R @ X_b_c.R, self.p + self.R @ X_b_c.p)

    def inverse(self) -> Transform:
        """Return X_b_a."""
        R_b_a = self.R.T
        return Transform(R_b_a, -(R_b_a @ self.p))

    def point(self, p_b: Vec3) -> Vec3:
        """Return in a-coordinates a point given in b-coordinates."""
        return self.p + self.R @ p_b

    def motion(self, V_b: Motion) -> Motion:
        """Return in frame a a motion given in frame b (axes and reference point change)."""
        ang = self.R @ V_b.ang
        return Motion(ang, self.R @ V_b.lin + self.p.cross(ang))

    def force(self, f_b: Force) -> Force:
        """Return in frame a a force given in frame b; dual to `motion`: power is the same in both."""
        lin = self.R @ f_b.lin
        return Force(self.R @ f_b.ang + self.p.cross(lin), lin)


def left_jacobian(w: Vec3, v: Vec3) -> Vec3:
    r"""Compute V(w) v, where exp of the twist (w, v) has the translation V(w) v.

    .. math:: V = 1 + \tfrac{1 - \cos x}{x^2} \tilde w + \tfrac{x - \sin x}{x^3} \tilde w^2, \quad x = |w|
    """
    t = w.dot(w)
    wv = w.cross(v)
    return v + stumpff(2, t) * wv + stumpff(3, t) * w.cross(wv)


def left_jacobian_inverse(w: Vec3, v: Vec3) -> Vec3:
    r"""Compute V(w)^{-1} v = v - w x v / 2 + (1 - (x/2) cot(x/2)) / x^2 w x (w x v)."""
    wv = w.cross(v)
    return v - 0.5 * wv + cot_defect(w.dot(w)) * w.cross(wv)
