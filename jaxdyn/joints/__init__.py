"""Joints: what one joint does. One file a type, one contract (`Joint`)."""

from jaxdyn.joints.contract import LEAVES as LEAVES
from jaxdyn.joints.contract import Coordinates as Coordinates
from jaxdyn.joints.contract import Joint as Joint
from jaxdyn.joints.contract import JointParameters as JointParameters
from jaxdyn.joints.contract import bias_by_autodiff as bias_by_autodiff
from jaxdyn.joints.contract import bracket_by_autodiff as bracket_by_autodiff
from jaxdyn.joints.contract import combine as combine
from jaxdyn.joints.contract import linear_transposed as linear_transposed
from jaxdyn.joints.contract import subspace_by_autodiff as subspace_by_autodiff
from jaxdyn.joints.contract import tangent_by_autodiff as tangent_by_autodiff
from jaxdyn.joints.cylindrical import Cylindrical as Cylindrical
from jaxdyn.joints.fixed import Fixed as Fixed
from jaxdyn.joints.free import Free as Free
from jaxdyn.joints.helical import Helical as Helical
from jaxdyn.joints.mimic import Mimic as Mimic
from jaxdyn.joints.planar import Planar as Planar
from jaxdyn.joints.prismatic import Prismatic as Prismatic
from jaxdyn.joints.revolute import Continuous as Continuous
from jaxdyn.joints.revolute import Revolute as Revolute
from jaxdyn.joints.spherical import Spherical as Spherical
from jaxdyn.joints.translation import Translation as Translation
from jaxdyn.joints.universal import Universal as Universal

JOINT_TYPES: dict[str, type[Joint]] = {
    joint.type: joint
    for joint in (
        Revolute, Continuous, Prismatic, Helical, Universal, Cylindrical,
        Planar, Spherical, Translation, Free, Fixed, Mimic,
    )
}  # fmt: skip
"""The types that files and `ModelBuilder` know by name; `register` adds a user's own."""


def register(joint: type[Joint]) -> type[Joint]:
    """Make a joint type known by its name, so that saved models can hold it; usable as a decorator."""
    if not joint.type:
        raise ValueError(f"{joint.__name__}.type must be a name such as 'revolute'; it is empty")
    known = JOINT_TYPES.setdefault(joint.type, joint)
    if known is not joint and known.__qualname__ != joint.__qualname__:
        raise ValueError(f"a joint type {joint.type!r} exists already ({known.__qualname__}); choose another name")
    JOINT_TYPES[joint.type] = joint
    return joint
