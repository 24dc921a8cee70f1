"""Translation along one axis."""

from __future__ import annotations

from jaxdyn.joints.contract import Coordinates, Joint, JointParameters
from jaxdyn.spatial import Mat3, Motion, Transform, Vec3


class Prismatic(Joint):
    """q = displacement along `axis`; X = Trans(q axis)."""

    type = "prismatic"
    nq = nv = 1
    leaves = ("axis",)
    unbounded = 1.0

    def transform(self, parameters: JointParameters, q: Coordinates) -> Transform:
        return Transform(Mat3.identity(), q[0] * parameters.axis)

    def subspace(self, parameters: JointParameters, q: Coordinates) -> tuple[Motion, ...]:
        return (Motion(Vec3.zero(), parameters.axis),)

    def bias(self, parameters: JointParameters, q: Coordinates, qd: Coordinates) -> Motion:
        return Motion.zero()
