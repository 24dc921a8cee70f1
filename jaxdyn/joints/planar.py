"""Motion in a plane: SE(2)."""

from __future__ import annotations

import math

from jaxdyn._numerics import Scalar, cot_defect, namespace, stumpff, wrap_angle
from jaxdyn.joints.contract import Coordinates, Joint, JointParameters, uniform
from jaxdyn.spatial import Motion, Transform, Vec3, align_z, axis_angle


class Planar(Joint):
    """q = (angle, x, y) in the plane normal to `axis`; qd = (omega, vx, vy) in body axes.

    The plane's x and y directions are those of the inboard frame if the axis is its z, else they are
    turned with it (`align_z`).
    """

    type = "planar"
    nq = nv = 3
    leaves = ("axis",)

    def transform(self, parameters: JointParameters, q: Coordinates) -> Transform:
        in_plane = Vec3(q[1], q[2], 0 * q[1])
        return Transform(axis_angle(parameters.axis, q[0]), align_z(parameters.axis) @ in_plane)

    def subspace(self, parameters: JointParameters, q: Coordinates) -> tuple[Motion, ...]:
        x, y, _ = align_z(parameters.axis).T
        return Motion(parameters.axis, Vec3.zero()), Motion(Vec3.zero(), x), Motion(Vec3.zero(), y)

    def bias(self, parameters: JointParameters, q: Coordinates, qd: Coordinates) -> Motion:
        return Motion.zero()

    def integrate(self, q: Coordinates, dq: Coordinates) -> Coordinates:
        """Compose with the SE(2) exponential of dq."""
        (angle, x, y), (w, vx, vy) = q, dq
        along, across = stumpff(1, w * w), w * stumpff(2, w * w)
        dx, dy = _turn(angle, along * vx - across * vy, across * vx + along * vy)
        return angle + w, x + dx, y + dy

    def difference(self, q0: Coordinates, q1: Coordinates) -> Coordinates:
        """Return the SE(2) logarithm of the relative pose, the angle in [-pi, pi)."""
        w = wrap_angle(q1[0] - q0[0])
        dx, dy = _turn(-q0[0], q1[1] - q0[1], q1[2] - q0[2])
        cot = 1 - cot_defect(w * w) * (w * w)  # (w/2) cot(w/2)
        return w, cot * dx + w / 2 * dy, cot * dy - w / 2 * dx

    def tangent(self, q: Coordinates, rate: Coordinates) -> Coordinates:
        """Return the rates in body axes."""
        return rate[0], *_turn(-q[0], rate[1], rate[2])

    def bracket(self, q: Coordinates, a: Coordinates, b: Coordinates) -> Coordinates:
        return 0 * a[0], b[0] * a[2] - a[0] * b[2], a[0] * b[1] - b[0] * a[1]

    def random(self, u: Coordinates, lower: Coordinates, upper: Coordinates) -> Coordinates:
        return tuple(uniform(*numbers) for numbers in zip(u, lower, upper, (math.pi, 1.0, 1.0), strict=True))


def _turn(angle: Scalar, x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    xp = namespace(angle, x, y)
    c, s = xp.cos(angle), xp.sin(angle)
    return c * x - s * y, s * x + c * y
