"""Rotation about and translation along one axis, independently."""

from __future__ import annotations

import math

from jaxdyn.joints.contract import Coordinates, Joint, JointParameters, uniform
from jaxdyn.spatial import Motion, Transform, Vec3, axis_angle


class Cylindrical(Joint):
    """q = (angle about `axis`, displacement along it)."""

    type = "cylindrical"
    nq = nv = 2
    leaves = ("axis",)

    def transform(self, parameters: JointParameters, q: Coordinates) -> Transform:
        return Transform(axis_angle(parameters.axis, q[0]), q[1] * parameters.axis)

    def subspace(self, parameters: JointParameters, q: Coordinates) -> tuple[Motion, ...]:
        return Motion(parameters.axis, Vec3.zero()), Motion(Vec3.zero(), parameters.axis)

    def bias(self, parameters: JointParameters, q: Coordinates, qd: Coordinates) -> Motion:
        return Motion.zero()

    def random(self, u: Coordinates, lower: Coordinates, upper: Coordinates) -> Coordinates:
        return uniform(u[0], lower[0], upper[0], math.pi), uniform(u[1], lower[1], upper[1], 1.0)
