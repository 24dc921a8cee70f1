"""A joint geared to another one."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxdyn.joints.contract import Coordinates, Joint, JointParameters
from jaxdyn.joints.revolute import Revolute
from jaxdyn.spatial import Motion, Transform


@dataclass(frozen=True)
class Mimic(Joint):
    """A one-coordinate joint that follows another: its coordinate is ratio * q_ref + offset.

    It has no coordinates of its own: `transform` reads the reference's, and the one column of `subspace`
    belongs to the reference's velocity. Sums over bodies of S* f are then the forces on the independent
    coordinates.
    """

    inner: Joint = field(default_factory=Revolute)

    type = "mimic"
    reads = 1

    @property
    def mechanism(self) -> Joint:
        return self.inner

    def _follow(self, parameters: JointParameters, q: Coordinates) -> Coordinates:
        return (parameters.ratio * q[0] + parameters.offset,)

    def transform(self, parameters: JointParameters, q: Coordinates) -> Transform:
        return self.inner.transform(parameters, self._follow(parameters, q))

    def subspace(self, parameters: JointParameters, q: Coordinates) -> tuple[Motion, ...]:
        columns = self.inner.subspace(parameters, self._follow(parameters, q))
        return tuple(parameters.ratio * column for column in columns)

    def bias(self, parameters: JointParameters, q: Coordinates, qd: Coordinates) -> Motion:
        follower = (parameters.ratio * qd[0],)
        return self.inner.bias(parameters, self._follow(parameters, q), follower)
