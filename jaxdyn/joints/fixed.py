"""No motion at all."""

from __future__ import annotations

from jaxdyn.joints.contract import Coordinates, Joint, JointParameters
from jaxdyn.spatial import Motion, Transform


class Fixed(Joint):
    """A rigid connection: building a model merges the bodies and keeps the outer one as a named frame."""

    type = "fixed"
    leaves = ()

    def transform(self, parameters: JointParameters, q: Coordinates) -> Transform:
        return Transform.identity()

    def subspace(self, parameters: JointParameters, q: Coordinates) -> tuple[Motion, ...]:
        return ()

    def bias(self, parameters: JointParameters, q: Coordinates, qd: Coordinates) -> Motion:
        return Motion.zero()
