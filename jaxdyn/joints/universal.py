"""Two rotations about two axes (a Cardan joint)."""

from __future__ import annotations

from jaxdyn.joints.contract import Coordinates, Joint, JointParameters
from jaxdyn.spatial import Motion, Transform, Vec3, axis_angle


class Universal(Joint):
    """q = two angles; X = Rot(axis, q1) Rot(axis2, q2), axis fixed in the parent, axis2 in the body."""

    type = "universal"
    nq = nv = 2
    leaves = ("axis", "axis2")

    def transform(self, parameters: JointParameters, q: Coordinates) -> Transform:
        R = axis_angle(parameters.axis, q[0]) @ axis_angle(parameters.axis2, q[1])
        return Transform(R, Vec3.zero())

    def subspace(self, parameters: JointParameters, q: Coordinates) -> tuple[Motion, ...]:
        return Motion(_first_axis(parameters, q), Vec3.zero()), Motion(parameters.axis2, Vec3.zero())

    def bias(self, parameters: JointParameters, q: Coordinates, qd: Coordinates) -> Motion:
        """Return -q2' axis2 x (first axis) q1': the first axis moves in the body."""
        turning = (qd[0] * qd[1]) * _first_axis(parameters, q).cross(parameters.axis2)
        return Motion(turning, Vec3.zero())


def _first_axis(parameters: JointParameters, q: Coordinates) -> Vec3:
    """Return the first axis in body coordinates."""
    return axis_angle(parameters.axis2, q[1]).T @ parameters.axis
