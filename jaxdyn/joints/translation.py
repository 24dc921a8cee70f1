"""Free translation without rotation."""

from __future__ import annotations

from jaxdyn.joints.contract import Coordinates, Joint, JointParameters
from jaxdyn.joints.spherical import E1, E2, E3
from jaxdyn.spatial import Mat3, Motion, Transform, Vec3


class Translation(Joint):
    """q = (x, y, z) along the inboard frame's axes."""

    type = "translation"
    nq = nv = 3
    leaves = ()
    unbounded = 1.0

    def transform(self, parameters: JointParameters, q: Coordinates) -> Transform:
        return Transform(Mat3.identity(), Vec3(*q))

    def subspace(self, parameters: JointParameters, q: Coordinates) -> tuple[Motion, ...]:
        return tuple(Motion(Vec3.zero(), e) for e in (E1, E2, E3))

    def bias(self, parameters: JointParameters, q: Coordinates, qd: Coordinates) -> Motion:
        return Motion.zero()
