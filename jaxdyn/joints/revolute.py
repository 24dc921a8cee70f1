"""Rotation about one axis: revolute (with limits) and continuous (without)."""

from __future__ import annotations

from jaxdyn._numerics import wrap_angle
from jaxdyn.joints.contract import Coordinates, Joint, JointParameters
from jaxdyn.spatial import Motion, Transform, Vec3, axis_angle


class Revolute(Joint):
    """q = angle about `axis`; X = Rot(axis, q)."""

    type = "revolute"
    nq = nv = 1
    leaves = ("axis",)

    def transform(self, parameters: JointParameters, q: Coordinates) -> Transform:
        return Transform(axis_angle(parameters.axis, q[0]), Vec3.zero())

    def subspace(self, parameters: JointParameters, q: Coordinates) -> tuple[Motion, ...]:
        return (Motion(parameters.axis, Vec3.zero()),)

    def bias(self, parameters: JointParameters, q: Coordinates, qd: Coordinates) -> Motion:
        return Motion.zero()


class Continuous(Revolute):
    """A revolute joint that turns for ever: one angle, never wrapped by `integrate`."""

    type = "continuous"
    leaves = ("axis",)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Coordinates:
        """Return the shorter way round, in [-pi, pi)."""
        return (wrap_angle(q1[0] - q0[0]),)
