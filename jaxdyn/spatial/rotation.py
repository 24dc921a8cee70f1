"""Rotations: unit quaternions (w, x, y, z), rotation vectors, roll-pitch-yaw, rotation matrices.

A rotation `R_a_b` takes components in frame b to components in frame a. All functions are smooth or have
their limits filled in: values, gradients and Hessians are finite at zero rotation and at half a turn.
"""

from __future__ import annotations

from typing import Any, Self

import jax.numpy as jnp

from jaxdyn._numerics import (
    Scalar,
    arctan_over,
    namespace,
    once,
    reciprocal_size,
    safe_reciprocal,
    safe_rsqrt,
    safe_sqrt,
    stumpff,
)
from jaxdyn.spatial.components import Components, components, stack, unstack
from jaxdyn.spatial.linear import Mat3, Vec3


@components
class Quaternion(Components):
    """A quaternion w + x i + y j + z k; q and -q are the same rotation."""

    w: Scalar
    x: Scalar
    y: Scalar
    z: Scalar

    @classmethod
    def from_array(cls, array: Any) -> Self:
        """Read an array of shape (..., 4), order w, x, y, z."""
        return cls(*unstack(array))

    def to_array(self) -> Any:
        """Return an array of shape (..., 4), order w, x, y, z."""
        return stack([self.w, self.x, self.y, self.z])

    @classmethod
    def identity(cls) -> Self:
        """Return the rotation by nothing, in plain numbers."""
        return cls(1.0, 0.0, 0.0, 0.0)

    @property
    def vector(self) -> Vec3:
        """The imaginary part (x, y, z)."""
        return Vec3(self.x, self.y, self.z)

    @property
    def norm_squared(self) -> Scalar:
        """w^2 + x^2 + y^2 + z^2."""
        return self.w * self.w + self.vector.dot(self.vector)

    def __matmul__(self, b: Quaternion) -> Quaternion:
        """Compose rotations (Hamilton product)."""
        v = self.w * b.vector + b.w * self.vector + self.vector.cross(b.vector)
        return Quaternion(self.w * b.w - self.vector.dot(b.vector), v.x, v.y, v.z)

    def conjugate(self) -> Quaternion:
        """Return the inverse rotation of a unit quaternion."""
        return Quaternion(self.w, -self.x, -self.y, -self.z)

    def normalized(self) -> Quaternion:
        """Return q / |q|; the zero quaternion gives the identity, with zero derivatives."""
        scaled = reciprocal_size(*self) * self
        n2 = scaled.norm_squared
        unit = safe_rsqrt(n2) * scaled
        xp = namespace(n2)
        return Quaternion(xp.where(n2 > 0, unit.w, 0 * n2 + 1), unit.x, unit.y, unit.z)

    def unit(self) -> tuple[Quaternion, Scalar]:
        """Return q / |q| and 1 / |q|, worked out once; one of length zero gives the identity and zero."""
        size = reciprocal_size(*self)
        scaled = size * self
        squared = scaled.norm_squared
        over = safe_rsqrt(squared)
        w, *rest = over * scaled
        *unit, over_length = once(jnp.where(squared > 0, w, 1), *rest, size * over)
        return Quaternion(*unit), over_length

    def turn(self, v: Vec3) -> Vec3:
        """Rotate a vector by a quaternion of unit length."""
        return v + 2 * self.vector.cross(self.w * v + self.vector.cross(v))

    def to_matrix(self) -> Mat3:
        r"""Return the rotation matrix of q / |q|.

        .. math:: R = 1 + \frac{2}{|q|^2} (w \tilde v + \tilde v \tilde v)

        No root is taken, the result does not depend on the length of q, and the zero quaternion gives
        the identity.
        """
        scaled = reciprocal_size(*self) * self
        s = 2 * safe_reciprocal(scaled.norm_squared)
        w, x, y, z = scaled
        sx, sy, sz = s * x, s * y, s * z
        wx, wy, wz = w * sx, w * sy, w * sz
        xx, xy, xz, yy, yz, zz = x * sx, x * sy, x * sz, y * sy, y * sz, z * sz
        return Mat3(
            Vec3(1 - (yy + zz), xy - wz, xz + wy),
            Vec3(xy + wz, 1 - (xx + zz), yz - wx),
            Vec3(xz - wy, yz + wx, 1 - (xx + yy)),
        )

    @classmethod
    def from_matrix(cls, R: Mat3) -> Self:
        """Return the unit quaternion of a rotation matrix, by the largest of its four components."""
        xx, yy, zz = R.r1.x, R.r2.y, R.r3.z
        xp = namespace(*R.r1, *R.r2, *R.r3)
        a, b, c = R.r3.y - R.r2.z, R.r1.z - R.r3.x, R.r2.x - R.r1.y  # 4 w (x, y, z)
        d, e, f = R.r1.y + R.r2.x, R.r1.z + R.r3.x, R.r2.z + R.r3.y  # 4 (x y, x z, y z)
        rows = (  # 4 times the outer product q q^T, row by row
            (1 + xx + yy + zz, a, b, c),
            (a, 1 + xx - yy - zz, d, e),
            (b, d, 1 - xx + yy - zz, f),
            (c, e, f, 1 - xx - yy + zz),
        )
        best, largest = rows[0], rows[0][0]
        for k in range(1, 4):
            take = rows[k][k] > largest
            best = tuple(xp.where(take, new, old) for new, old in zip(rows[k], best, strict=True))
            largest = xp.where(take, rows[k][k], largest)
        q = cls(*best)
        return safe_rsqrt(q.norm_squared) * q

    @classmethod
    def exp(cls, v: Vec3) -> Self:
        """Return the rotation by the angle |v| about v."""
        quarter = v.dot(v) / 4
        s = stumpff(1, quarter) / 2
        return cls(stumpff(0, quarter), s * v.x, s * v.y, s * v.z)

    def log(self) -> Vec3:
        r"""Return the rotation vector of a unit quaternion, of length at most pi; inverse of `exp`.

        .. math:: \frac{4 \arctan u}{u (1 + w)}\, v, \quad u = \frac{|v|}{1 + w} = \tan\frac{\theta}{4},
            \quad w \ge 0

        At half a turn, where the vector's sign is arbitrary, the result is the limit from w > 0.
        """
        w, v = self.w, self.vector
        xp = namespace(w)
        sign = xp.where(w < 0, 0 * w - 1, 0 * w + 1)
        k = sign / (1 + sign * w)
        return (4 * k * arctan_over(0, k * k * v.dot(v))) * v

    @classmethod
    def from_rpy(cls, roll: Scalar, pitch: Scalar, yaw: Scalar) -> Self:
        """Return Rot(z, yaw) Rot(y, pitch) Rot(x, roll), URDF's convention."""
        xp = namespace(roll, pitch, yaw)
        (cr, sr), (cp, sp), (cy, sy) = ((xp.cos(a / 2), xp.sin(a / 2)) for a in (roll, pitch, yaw))
        return cls(
            cr * cp * cy + sr * sp * sy,
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
        )

    def to_rpy(self) -> tuple[Scalar, Scalar, Scalar]:
        """Return (roll, pitch, yaw) of a unit quaternion, pitch in [-pi/2, pi/2].

        With the nose straight up or down only yaw -+ roll is defined: roll is then zero.
        """
        R = self.to_matrix()
        xp = namespace(self.w)
        cos_pitch = safe_sqrt(R.r3.y * R.r3.y + R.r3.z * R.r3.z)
        roll = xp.arctan2(R.r3.y, xp.where(cos_pitch > 0, R.r3.z, 0 * R.r3.z + 1))
        # Yaw from R Rot(x, -roll), whose second column is (-sin yaw, cos yaw, 0): well conditioned always.
        c, s = xp.cos(roll), xp.sin(roll)
        yaw = xp.arctan2(s * R.r1.z - c * R.r1.y, c * R.r2.y - s * R.r2.z)
        return roll, xp.arctan2(-R.r3.x, cos_pitch), yaw


def axis_angle(axis: Vec3, angle: Scalar) -> Mat3:
    """Return the rotation matrix by `angle` about a unit `axis` (Rodrigues)."""
    xp = namespace(angle, axis.x)
    c, s = xp.cos(angle), xp.sin(angle)
    u = (1 - c) * axis
    x, y, z = axis.x, axis.y, axis.z
    return Mat3(
        Vec3(u.x * x + c, u.x * y - s * z, u.x * z + s * y),
        Vec3(u.x * y + s * z, u.y * y + c, u.y * z - s * x),
        Vec3(u.x * z - s * y, u.y * z + s * x, u.z * z + c),
    )


@components
class Turn(Components):
    """The rotation R Rot(z, angle), kept as its factors: `A @ turn` turns the first two columns of A R."""

    R: Mat3
    """What comes before the turn."""
    cos: Scalar
    sin: Scalar

    def __rmatmul__(self, A: Mat3) -> Mat3:
        """Compute A R Rot(z, angle)."""
        c, s = self.cos, self.sin
        return Mat3(*(Vec3(c * r.x + s * r.y, c * r.y - s * r.x, r.z) for r in A @ self.R))


def align_z(axis: Vec3) -> Mat3:
    """Return the least rotation that takes e_z to a unit `axis`: its columns are two normals and the axis.

    Where the axis points nearly straight down (z < -0.9), where the least rotation is singular, it is the
    least rotation from -e_z after half a turn about e_x; the normals jump where the one hands over to the other.
    """
    xp = namespace(axis.x, axis.y, axis.z)
    down = axis.z < -0.9
    flip = xp.where(down, 0 * axis.z - 1, 0 * axis.z + 1)
    x, y, z = flip * axis.x, flip * axis.y, flip * axis.z
    k = 1 / (1 + z)
    return Mat3(
        Vec3(1 - k * x * x, -k * x * y * flip, axis.x),
        Vec3(-k * x * y, (1 - k * y * y) * flip, axis.y),
        Vec3(-x, -y * flip, axis.z),
    )
