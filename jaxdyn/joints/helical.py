"""A screw."""

from __future__ import annotations

from jaxdyn.joints.contract import Coordinates, Joint, JointParameters
from jaxdyn.spatial import Motion, Transform, axis_angle


class Helical(Joint):
    """q = angle about `axis`, with a displacement of pitch * angle along it."""

    type = "helical"
    nq = nv = 1
    leaves = ("axis", "pitch")

    def transform(self, parameters: JointParameters, q: Coordinates) -> Transform:
        return Transform(axis_angle(parameters.axis, q[0]), (parameters.pitch * q[0]) * parameters.axis)

    def subspace(self, parameters: JointParameters, q: Coordinates) -> tuple[Motion, ...]:
        return (Motion(parameters.axis, parameters.pitch * parameters.axis),)

    def bias(self, parameters: JointParameters, q: Coordinates, qd: Coordinates) -> Motion:
        return Motion.zero()
