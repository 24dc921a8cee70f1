"""Motors as bodies: rotors geared to the joints they drive, with their gyroscopic effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jaxdyn import _checks
from jaxdyn._checks import ModelError, suggestion
from jaxdyn.joints import Continuous
from jaxdyn.model.builder import ModelBuilder
from jaxdyn.model.edit import build_in
from jaxdyn.model.links import Link, unit
from jaxdyn.model.model import Model
from jaxdyn.spatial import RigidInertia, Sym3, Transform, Vec3, symmetric_outer


@dataclass(frozen=True, kw_only=True)
class Rotor:
    """The rotor of a motor, whose stator sits on the parent of the joint that it drives; see `add_rotors`."""

    ratio: float
    """Gear ratio n: the rotor turns in its stator at n times the joint's velocity (rad/m for a prismatic joint, so
    2 pi / lead times the gears for a screw); negative if the other way round, 1 for a direct drive."""
    inertia: float
    """J, about the spin axis, of the rotor itself (not reflected), kg m^2."""
    axis: Any = None
    """(3,) spin axis in the joint's frame on the parent (`Model.placement`); None is the joint's own axis."""
    mass: float = 0.0
    """Of the rotor; 0 if it is counted with the parent's."""
    position: Any = None
    """(3,) centre of the rotor in the joint's frame on the parent; None is its origin."""
    transverse: float = 0.0
    """Inertia about any axis through the centre that is normal to the spin axis; 0 if counted with the parent's."""


def add_rotors(model: Model, rotors: Mapping[str, Rotor]) -> Model:
    r"""Return a model with the rotors of some joints' motors as bodies of their own.

    `Model.armature` knows of a rotor only the reflected inertia :math:`n^2 J`. A rotor that is a body also turns with
    the parent, on which its stator sits: with :math:`\omega` the parent's angular velocity and a the spin axis it
    adds the kinetic energy

    .. math:: \tfrac12 J\,(n \dot q + a \cdot \omega)^2
        + \tfrac12 J_t\,|\omega - a\,(a \cdot \omega)|^2 + \tfrac12 m\,|v|^2

    (of v, the velocity of its centre), hence couplings between joints and the gyroscopic moment
    :math:`J n \dot q\; \omega \times a` that it exacts from the parent.

    Each rotor is a body `<joint>_rotor` on the joint's parent, or on the world, and follows the joint by a mimic joint
    of that name. So q, qd and tau stay what they were; bodies are numbered anew, depth-first, a rotor after its
    siblings. Ratio and inertia are leaves like all others: they can be identified.

    What a rotor is given must not be counted elsewhere: take :math:`n^2 J` out of the armature (a joint with both is
    reported as a `ModelWarning`), and where the parent's inertia was measured with the motor in place, give no mass
    and no transverse inertia, and take :math:`J a a^T` out of the parent's.

    Args:
        model: the model, with concrete leaves.
        rotors: joint name -> Rotor; the joint must have one coordinate, and must not be a mimic joint.

    Returns:
        The model with the rotors.

    Example:
        >>> import jaxdyn
        >>> arm = jaxdyn.load("arm7")
        >>> arm = arm.replace(armature=0 * arm.armature)
        >>> geared = jaxdyn.add_rotors(arm, {"joint2": jaxdyn.Rotor(ratio=-100, inertia=1e-4)})
        >>> geared.nv, geared.body_names[-1], geared.parents[-1]
        (7, 'joint2_rotor', 0)
    """
    if not isinstance(rotors, Mapping):
        raise ModelError(f"rotors must map joint names to Rotors, such as {{'elbow': Rotor(...)}}; got {rotors!r}")
    model.require_single()
    builder = ModelBuilder.from_model(model)
    joints = {link.joint_name: link for link in builder.links if not link.is_frame}
    for name, rotor in rotors.items():
        if name not in joints:
            raise ModelError(f"add_rotors: no joint named {name!r}: {suggestion(name, joints)}")
        _add_rotor(builder, joints[name], rotor)
    return build_in(builder, model)


def _add_rotor(builder: ModelBuilder, driven: Link, rotor: Rotor) -> None:
    """Add to the builder the rotor of one joint."""
    name, joint = driven.joint_name, driven.joint
    what = f"rotor of joint {name!r}"
    if not isinstance(rotor, Rotor):
        raise ModelError(f"{what}: wanted a jaxdyn.Rotor; got {rotor!r}")
    if driven.follows is not None:
        raise ModelError(f"{what}: it mimics {driven.follows!r}; give that joint the rotor, with the ratio to it")
    if (joint.nq, joint.nv) != (1, 1):
        raise ModelError(
            f"{what}: only a joint with one coordinate can drive a rotor; a {joint.type} joint has {joint.nq}"
        )
    ratio = float(_checks.numbers(f"{what}: ratio", rotor.ratio, ()))
    if ratio == 0:
        raise ModelError(f"{what}: ratio must not be zero; 1 is a direct drive, and what does not turn needs no rotor")
    J, mass, transverse = (_not_negative(what, rotor, field) for field in ("inertia", "mass", "transverse"))
    axis = unit(f"{what}: axis", driven.numbers["axis"] if rotor.axis is None else rotor.axis)
    centre = _checks.numbers(f"{what}: position", (0.0, 0.0, 0.0) if rotor.position is None else rotor.position, (3,))
    builder.add_body(
        f"{name}_rotor", driven.parent, Continuous(), joint_name=f"{name}_rotor", follows=name, ratio=ratio, axis=axis,
        quaternion=driven.placement[:4], xyz=Transform.from_pose(driven.placement).point(Vec3(*centre)).to_array(),
    )  # fmt: skip
    # Not through `add_body`, which would report that no real body has so little mass: the rest is in the parent.
    I = Sym3.scalar(transverse) + (J - transverse) * symmetric_outer(Vec3(*axis), Vec3(*axis))
    parameters = RigidInertia.from_com(mass, Vec3.zero(), I).to_parameters()
    builder.links[-1] = replace(builder.links[-1], inertia=parameters)
    (armature,) = driven.numbers["armature"]
    if armature > 0 and J > 0:
        builder.warn(
            f"{what} reflects {ratio**2 * J:.4g} besides the joint's armature, {armature:.4g}: if that stands for the "
            "same rotor, set it to zero"
        )


def _not_negative(what: str, rotor: Rotor, field: str) -> float:
    number = float(_checks.numbers(f"{what}: {field}", getattr(rotor, field), ()))
    if number < 0:
        raise ModelError(f"{what}: {field} must not be negative; got {number}")
    return number
