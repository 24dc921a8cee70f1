"""Bundled models: small robots for examples and tests, written as tables.

A robot is a table of rows, one per body, and a table of frames. A body's inertia is that of the solids it
is made of, which are also what a viewer shows, so that every body is one that could be built. At the
neutral configuration all frames of our own robots are parallel to the world's: x forward, y left, z up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from jaxdyn.model.builder import ModelBuilder
from jaxdyn.model.model import Model
from jaxdyn.model.shapes import Solid, lump

Triple = tuple[float, float, float]

X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
ORIGIN = (0.0, 0.0, 0.0)
FREE = (-math.inf, math.inf)

LIGHT, STEEL, DARK = (0.90, 0.90, 0.88, 1.0), (0.55, 0.58, 0.62, 1.0), (0.18, 0.19, 0.21, 1.0)
ORANGE, BLUE = (0.93, 0.49, 0.13, 1.0), (0.20, 0.42, 0.70, 1.0)


class Drive(NamedTuple):
    """What moves a joint, and what hinders it; the names are those of `ModelBuilder.add_body`."""

    effort_limit: float = math.inf
    velocity_limit: float = math.inf
    armature: float = 0.0
    damping: float = 0.0
    friction: float = 0.0


UNDRIVEN = Drive()


@dataclass(frozen=True)
class Row:
    """A body, the joint that carries it, and the solids it is made of.

    Names and parents of a limb's rows hold `{}`, which `_limb` fills in.
    """

    body: str
    parent: str | None
    joint_name: str
    axis: Triple
    xyz: Triple
    solids: tuple[Solid, ...]
    limits: tuple[float, float] = FREE
    drive: Drive = UNDRIVEN
    joint: str = "revolute"
    other: dict[str, Any] = field(default_factory=dict)
    """Further arguments of `add_body`; if `mass` is one, the solids are only shown."""

    def mirrored(self) -> Self:
        """Return the row of the other side: mirrored in the x-z plane, axes as they are, limits to match."""
        x, y, z = self.xyz
        lower, upper = self.limits
        return replace(
            self,
            xyz=(x, -y, z),
            solids=tuple(solid.mirrored() for solid in self.solids),
            # Turns about y are the same on both sides, those about x and z opposite.
            limits=(lower, upper) if self.axis == Y else (-upper, -lower),
        )


class Frame(NamedTuple):
    """A named frame on a body (None: the world) and the shapes that it shows."""

    name: str
    parent: str | None
    xyz: Triple = ORIGIN
    solids: tuple[Solid, ...] = ()


def _limb(rows: Iterable[Row], prefix: str, at: Triple = ORIGIN) -> list[Row]:
    """Name the rows of a limb by its prefix and move its root by `at`; a right limb is mirrored."""
    root, *others = rows
    (x, y, z), (dx, dy, dz) = root.xyz, at
    limb = []
    for row in (replace(root, xyz=(x + dx, y + dy, z + dz)), *others):
        body, parent, joint_name = (str(n).format(prefix) for n in (row.body, row.parent, row.joint_name))
        named = replace(row, body=body, parent=parent, joint_name=joint_name)
        limb.append(named.mirrored() if "right" in prefix else named)
    return limb


def _build(name: str, rows: Iterable[Row], frames: Sequence[Frame]) -> Model:
    """Return the model of a table; frames on the world come first."""
    builder = ModelBuilder(name)
    for frame in (frame for frame in frames if frame.parent is None):
        _add_frame(builder, frame)
    for row in rows:
        body = dict(row.other)
        if "mass" not in body:
            body["mass"], body["com"], body["inertia"] = lump(row.solids)
        builder.add_body(
            row.body, row.parent, row.joint, joint_name=row.joint_name, axis=row.axis, xyz=row.xyz,
            lower=row.limits[0], upper=row.limits[1], **row.drive._asdict(), **body,
        )  # fmt: skip
        _show(builder, row.body, row.solids)
    for frame in (frame for frame in frames if frame.parent is not None):
        _add_frame(builder, frame)
    return builder.build(strict=True)


def _add_frame(builder: ModelBuilder, frame: Frame) -> None:
    builder.add_frame(frame.name, frame.parent, xyz=frame.xyz)
    _show(builder, frame.name, frame.solids)


def _show(builder: ModelBuilder, frame: str, solids: Iterable[Solid]) -> None:
    for s in solids:
        builder.add_geometry(frame, s.shape, s.size, xyz=s.centre, quaternion=s.quaternion, colour=s.colour)


# ------------------------------------------------------------------ pendulums and machines
def planar_chain(
    n: int = 4, *, length: float = 1.0, mass: float = 1.0, radius: float = 0.02, name: str = "planar_chain"
) -> Model:
    """Return n equal links in a vertical plane (000 section XII).

    The links are uniform rods, cylinders of a small radius so that their inertia is that of a real body.
    All joints turn about y; at q = 0 the chain hangs along -z. Nothing damps it. With l the length and
    theta_k = q_1 + ... + q_k the frame "tip" is at -l sum_k (sin theta_k, 0, cos theta_k).

    Args:
        n: number of links, at least one.
        length: of each link.
        mass: of each link.
        radius: of each link.
        name: of the model.

    Example:
        >>> from jaxdyn.model.bundled import planar_chain
        >>> planar_chain(10).nv
        10
    """
    if n < 1:
        raise ValueError(f"n must be at least one link; got {n}")
    end = (0.0, 0.0, -length)
    rows = [
        Row(
            f"link{k + 1}", f"link{k}" if k else None, f"joint{k + 1}", Y, end if k else ORIGIN,
            (
                Solid.cylinder(mass, radius, ORIGIN, end, (ORANGE, BLUE)[k % 2]),
                Solid.sphere(0.0, 1.8 * radius, ORIGIN, DARK),
            ),
        )
        for k in range(n)
    ]  # fmt: skip
    return _build(name, rows, [Frame("tip", rows[-1].body, end)])


def pendulum() -> Model:
    """Return one rod of 1 m and 1 kg that turns about y, hanging along -z at q = 0; see `planar_chain`."""
    return planar_chain(1, name="pendulum")


def double_pendulum() -> Model:
    """Return two rods of 1 m and 1 kg that turn about y, hanging along -z at q = 0; see `planar_chain`."""
    return planar_chain(2, name="double_pendulum")


def cartpole() -> Model:
    """Return a cart on a rail along x ("slider") with a pole on a hinge about y ("hinge").

    At q = 0 the pole stands upright; it falls forward, towards +x, as its angle grows. Only the cart has a
    motor. The frame "tip" is at the end of the pole.
    """
    cart = Solid.box(1.0, (0.30, 0.20, 0.12), colour=BLUE)
    pole = Solid.cylinder(0.2, 0.015, ORIGIN, Z, ORANGE)
    rail = Solid.cylinder(0.0, 0.02, (-2.6, 0, 0), (2.6, 0, 0), STEEL)
    rows = [
        Row("cart", None, "slider", X, ORIGIN, (cart,), (-2.4, 2.4), Drive(20, 5, damping=0.1), "prismatic"),
        Row("pole", "cart", "hinge", Y, ORIGIN, (pole,), drive=Drive(damping=0.002)),
    ]
    return _build("cartpole", rows, [Frame("rail", None, ORIGIN, (rail,)), Frame("tip", "pole", Z)])


def gantry() -> Model:
    """Return a gantry of three prismatic axes, x, y and z, above a floor of 3 m by 2 m.

    At q = 0 the frame "tool" is 0.7 m above the middle of the floor.
    """
    stand = tuple(
        solid
        for y in (-1.0, 1.0)
        for solid in (
            Solid.box(0.0, (3.2, 0.12, 0.12), (0, y, 1.44), STEEL),
            *(Solid.box(0.0, (0.12, 0.12, 1.38), (x, y, 0.69), STEEL) for x in (-1.5, 1.5)),
        )
    )
    bridge = (Solid.box(50.0, (0.18, 2.1, 0.18), (0.22, 0, 0.09), ORANGE),)
    trolley = (Solid.box(18.0, (0.26, 0.26, 0.26), (0, 0, 0.09), BLUE),)
    ram = (
        Solid.box(9.0, (0.08, 0.08, 1.1), (0, 0, -0.10), LIGHT),
        Solid.cylinder(3.0, 0.05, (0, 0, -0.80), (0, 0, -0.65), DARK),
    )
    rows = [
        Row("bridge", None, "x_axis", X, (0, 0, 1.5), bridge, (-1.2, 1.2), Drive(900, 2.0, 8.0, 120, 40)),
        Row("trolley", "bridge", "y_axis", Y, ORIGIN, trolley, (-0.8, 0.8), Drive(500, 2.0, 4.0, 60, 20)),
        Row("ram", "trolley", "z_axis", Z, ORIGIN, ram, (-0.6, 0.3), Drive(400, 1.0, 3.0, 60, 20)),
    ]
    rows = [replace(row, joint="prismatic") for row in rows]
    return _build("gantry", rows, [Frame("base", None, ORIGIN, stand), Frame("tool", "ram", (0, 0, -0.8))])


# ------------------------------------------------------------------ arms
_PUMA_TABLE = (
    # alpha, a, d;              mass, com;                      inertia about it;          limits, degrees
    ((0, 0, 0),                 13.0, ORIGIN,                   (0.35, 0.35, 0.35),        (-160, 160)),
    ((-90, 0, 0.2435),          17.4, (0.068, 0.006, -0.016),   (0.130, 0.524, 0.539),     (-225, 45)),
    ((0, 0.4318, -0.0934),      4.80, (0, -0.070, 0.014),       (0.069, 0.0155, 0.083),    (-45, 225)),
    ((90, -0.0203, 0.4331),     0.82, (0, 0, -0.019),           (1.8e-3, 1.8e-3, 1.3e-3),  (-110, 170)),
    ((-90, 0, 0),               0.34, ORIGIN,                   (0.3e-3, 0.3e-3, 0.4e-3),  (-100, 100)),
    ((90, 0, 0),                0.09, (0, 0, 0.032),            (0.15e-3, 0.15e-3, 4e-5),  (-266, 266)),
)  # fmt: skip
_PUMA_MOTORS = (
    # largest torque; reflected inertia; gear ratio G; at the motor viscous B, Coulomb Tc (mean of both ways)
    (97.6,  1.14,  62.6111, 1.48e-3, (0.395 + 0.435) / 2),
    (186.4, 4.71,  107.815, 0.817e-3, (0.126 + 0.071) / 2),
    (89.4,  0.83,  53.7063, 1.38e-3, (0.132 + 0.105) / 2),
    (24.2,  0.20,  76.0364, 71.2e-6, (11.2e-3 + 16.9e-3) / 2),
    (20.1,  0.179, 71.923,  82.6e-6, (9.26e-3 + 14.5e-3) / 2),
    (21.3,  0.193, 76.686,  36.7e-6, (3.96e-3 + 10.5e-3) / 2),
)  # fmt: skip
_PUMA_SHAPES = (
    (
        Solid.cylinder(0, 0.10, (0, 0, -0.15), (0, 0, 0.12), LIGHT),
        Solid.cylinder(0, 0.09, ORIGIN, (0, 0.16, 0), LIGHT),
    ),
    (
        Solid.box(0, (0.62, 0.20, 0.13), (0.15, 0, 0), ORANGE),
        Solid.cylinder(0, 0.10, (0, 0, -0.09), (0, 0, 0.08), STEEL),
    ),
    (
        Solid.cylinder(0, 0.07, (0, 0, -0.06), (0, 0, 0.06), STEEL),
        Solid.box(0, (0.11, 0.33, 0.10), (-0.02, -0.17, 0), LIGHT),
    ),
    (Solid.cylinder(0, 0.045, (0, 0, -0.10), (0, 0, -0.01), STEEL),),
    (Solid.sphere(0, 0.045, ORIGIN, DARK),),
    (Solid.cylinder(0, 0.025, (0, 0, 0.03), (0, 0, 0.0563), STEEL),),
)


def puma560() -> Model:
    """Return the Unimation PUMA 560, in modified Denavit-Hartenberg frames.

    Kinematics, masses, inertias, reflected motor inertias and largest torques are those of B. Armstrong,
    O. Khatib, J. Burdick, "The explicit dynamic model and inertial parameters of the PUMA 560 arm", ICRA
    1986; friction is from P. Corke, B. Armstrong-Helouvry, "A search for consensus among model parameters
    reported for the PUMA 560 robot", ICRA 1994, brought to the joint side (G^2 B and G Tc).

    Two bodies differ from the paper, which gives numbers that no real body has:

    * link 1: only Izz = 0.35 is published, and only that matters on a fixed base. Its mass of 13 kg and
      the other two moments are ours.
    * link 3: the published moments (0.066, 0.0125, 0.086) break the triangle inequality by 0.0075. Each is
      moved by 0.003, just beyond the nearest consistent ones (0.0025, a flat body).

    The world's origin is in the shoulder. The frame "tool" is the mounting flange, 56.3 mm from the wrist.
    """
    rows = []
    for k, ((twist, a, d), mass, com, inertia, limits) in enumerate(_PUMA_TABLE):
        torque, armature, G, B, Tc = _PUMA_MOTORS[k]
        alpha = math.radians(twist)
        rows.append(
            Row(
                f"link{k + 1}", f"link{k}" if k else None, f"joint{k + 1}", Z,
                (a, -math.sin(alpha) * d, math.cos(alpha) * d),
                _PUMA_SHAPES[k],
                (math.radians(limits[0]), math.radians(limits[1])),
                Drive(torque, math.inf, armature, G * G * B, G * Tc),
                other={"rpy": (alpha, 0, 0), "mass": mass, "com": com, "inertia": inertia},
            )
        )  # fmt: skip
    column = Solid.cylinder(0, 0.09, (0, 0, -0.66), (0, 0, -0.15), DARK)
    frames = [Frame("base", None, ORIGIN, (column,)), Frame("tool", "link6", (0, 0, 0.0563))]
    return _build("puma560", rows, frames)


_ARM7_TABLE = (
    # axis, distance from the last joint, limit, drive, solids
    (Z, 0.16, 2.96, Drive(300, 1.7, 0.60, 2.0, 3.0), (
        Solid.cylinder(3.2, 0.075, (0, 0, -0.04), (0, 0, 0.17), LIGHT),)),
    (Y, 0.17, 2.09, Drive(300, 1.7, 0.60, 2.0, 3.0), (
        Solid.cylinder(2.2, 0.080, (0, -0.085, 0), (0, 0.085, 0), ORANGE),
        Solid.cylinder(1.8, 0.062, (0, 0, 0), (0, 0, 0.20), LIGHT))),
    (Z, 0.21, 2.96, Drive(160, 2.0, 0.35, 1.0, 2.0), (
        Solid.cylinder(2.8, 0.062, (0, 0, 0), (0, 0, 0.21), STEEL),)),
    (Y, 0.21, 2.09, Drive(160, 2.0, 0.35, 1.0, 2.0), (
        Solid.cylinder(1.6, 0.068, (0, -0.072, 0), (0, 0.072, 0), ORANGE),
        Solid.cylinder(1.4, 0.052, (0, 0, 0), (0, 0, 0.19), LIGHT))),
    (Z, 0.20, 2.96, Drive(100, 2.3, 0.20, 0.6, 1.0), (
        Solid.cylinder(2.2, 0.052, (0, 0, 0), (0, 0, 0.20), STEEL),)),
    (Y, 0.20, 2.09, Drive(40, 3.1, 0.08, 0.3, 0.5), (
        Solid.cylinder(1.2, 0.055, (0, -0.06, 0), (0, 0.06, 0), ORANGE),
        Solid.cylinder(0.6, 0.042, (0, 0, 0), (0, 0, 0.08), LIGHT))),
    (Z, 0.09, 3.05, Drive(40, 3.1, 0.08, 0.3, 0.5), (
        Solid.cylinder(0.7, 0.042, (0, 0, 0), (0, 0, 0.06), STEEL),
        Solid.cylinder(0.3, 0.030, (0, 0, 0.06), (0, 0, 0.09), DARK))),
)  # fmt: skip


def arm7() -> Model:
    """Return an arm of seven joints with a spherical shoulder, an elbow and a spherical wrist.

    A robot of our own, like light arms on the market: 1.0 m from shoulder to tool (upper arm 0.42 m,
    forearm 0.40 m, hand 0.18 m), 18 kg. At q = 0 it stands straight up; the joints turn about z, y, z, y, z,
    y, z in turn. Its frames are "base", fixed in the world, and "tool".
    """
    rows = [
        Row(
            f"link{k + 1}", f"link{k}" if k else None, f"joint{k + 1}", axis, (0, 0, distance),
            solids, (-limit, limit), drive,
        )
        for k, (axis, distance, limit, drive, solids) in enumerate(_ARM7_TABLE)
    ]  # fmt: skip
    foot = Solid.cylinder(0.0, 0.09, ORIGIN, (0, 0, 0.12), DARK)
    return _build("arm7", rows, [Frame("base", None, ORIGIN, (foot,)), Frame("tool", "link7", (0, 0, 0.09))])


# ------------------------------------------------------------------ legged robots
def _root(body: str, solids: tuple[Solid, ...]) -> Row:
    """Return the row of a floating base."""
    return Row(body, None, "root_joint", X, ORIGIN, solids, joint="free")


_HIP_DRIVE, _KNEE_DRIVE = Drive(24, 30, 0.006, 0.02, 0.2), Drive(36, 20, 0.013, 0.02, 0.2)
_QUADRUPED_LEG = (
    # rows of the front left leg; the hip turns the leg outward, the thigh and the shank swing it
    Row("{}_hip", "trunk", "{}_hip_joint", X, (0, 0.05, 0), (
        Solid.cylinder(0.30, 0.045, (-0.03, 0, 0), (0.03, 0, 0), DARK),
        Solid.cylinder(0.35, 0.045, (0, 0.02, 0), (0, 0.065, 0), DARK)), (-0.8, 0.8), _HIP_DRIVE),
    Row("{}_thigh", "{}_hip", "{}_thigh_joint", Y, (0, 0.085, 0), (
        Solid.cylinder(0.55, 0.045, (0, -0.02, 0), (0, 0.025, 0), ORANGE),
        Solid.capsule(0.45, 0.022, (0, 0, 0), (0, 0, -0.21), ORANGE)), (-1.0, 2.8), _HIP_DRIVE),
    Row("{}_shank", "{}_thigh", "{}_shank_joint", Y, (0, 0, -0.21), (
        Solid.capsule(0.16, 0.013, (0, 0, 0), (0, 0, -0.20), STEEL),
        Solid.sphere(0.06, 0.022, (0, 0, -0.21), DARK)), (-2.7, -0.4), _KNEE_DRIVE),
)  # fmt: skip
_LEGS = {"front_left": 0.19, "front_right": 0.19, "rear_left": -0.19, "rear_right": -0.19}


def quadruped() -> Model:
    """Return a four-legged robot of our own: a floating trunk and three joints a leg, 13 kg.

    Legs are front_left, front_right, rear_left and rear_right; their bodies <leg>_hip (turns about x),
    <leg>_thigh and <leg>_shank (about y), carried by <body>_joint; their feet the frames <leg>_foot, at the
    centre of a ball of 22 mm. At q = 0 the legs are straight down, 0.42 m long; a stance is thighs at 0.8
    and shanks at -1.6, the trunk at a height of 0.315 m.
    """
    trunk = (
        Solid.box(5.0, (0.36, 0.13, 0.11), ORIGIN, LIGHT),
        Solid.box(0.5, (0.06, 0.10, 0.07), (0.20, 0, 0.01), DARK),
    )
    limbs = [_limb(_QUADRUPED_LEG, leg, at=(x, 0.0, 0.0)) for leg, x in _LEGS.items()]
    rows = [_root("trunk", trunk), *(row for limb in limbs for row in limb)]
    return _build("quadruped", rows, [Frame(f"{leg}_foot", f"{leg}_shank", (0, 0, -0.21)) for leg in _LEGS])


_STRONG, _MIDDLE = Drive(200, 12, 0.12, 0.5, 1.0), Drive(100, 12, 0.06, 0.3, 0.6)
_SMALL, _WRIST = Drive(45, 12, 0.02, 0.1, 0.3), Drive(12, 15, 0.005, 0.05, 0.1)
_HUMANOID_LEG = (
    Row("{}_hip_yaw_link", "pelvis", "{}_hip_yaw", Z, (0, 0.09, -0.05), (
        Solid.cylinder(1.2, 0.05, (0, 0, -0.03), (0, 0, 0.05), DARK),), (-0.6, 0.9), _MIDDLE),
    Row("{}_hip_roll_link", "{}_hip_yaw_link", "{}_hip_roll", X, (0, 0, -0.05), (
        Solid.cylinder(1.3, 0.05, (-0.07, 0, 0), (0.03, 0, 0), DARK),), (-0.4, 1.0), _MIDDLE),
    Row("{}_thigh", "{}_hip_roll_link", "{}_hip_pitch", Y, ORIGIN, (
        Solid.capsule(6.0, 0.075, (0, 0.02, -0.06), (0, 0, -0.31), LIGHT),
        Solid.cylinder(0.8, 0.055, (0, -0.05, -0.40), (0, 0.05, -0.40), ORANGE)), (-2.1, 0.6), _STRONG),
    Row("{}_shank", "{}_thigh", "{}_knee", Y, (0, 0, -0.40), (
        Solid.capsule(3.2, 0.052, (0, 0, -0.06), (0, 0, -0.34), LIGHT),), (0.0, 2.5), _STRONG),
    Row("{}_ankle", "{}_shank", "{}_ankle_pitch", Y, (0, 0, -0.40), (
        Solid.cylinder(0.5, 0.030, (0, -0.04, 0), (0, 0.04, 0), ORANGE),), (-0.9, 0.7), _MIDDLE),
    Row("{}_foot", "{}_ankle", "{}_ankle_roll", X, ORIGIN, (
        Solid.box(1.0, (0.24, 0.10, 0.03), (0.04, 0, -0.065), DARK),
        Solid.box(0.3, (0.09, 0.07, 0.04), (-0.01, 0, -0.035), DARK)), (-0.4, 0.4), _SMALL),
)  # fmt: skip
_HUMANOID_ARM = (
    Row("{}_shoulder", "torso", "{}_shoulder_pitch", Y, (0, 0.17, 0.30), (
        Solid.cylinder(0.9, 0.045, (0, -0.02, 0), (0, 0.06, 0), DARK),), (-3.0, 1.0), _SMALL),
    Row("{}_shoulder_roll_link", "{}_shoulder", "{}_shoulder_roll", X, (0, 0.06, 0), (
        Solid.sphere(0.8, 0.052, (0, 0.01, 0), ORANGE),), (-0.2, 2.8), _SMALL),
    Row("{}_upper_arm", "{}_shoulder_roll_link", "{}_shoulder_yaw", Z, (0, 0.01, 0), (
        Solid.capsule(1.7, 0.043, (0, 0, -0.07), (0, 0, -0.23), LIGHT),), (-1.5, 1.5), _SMALL),
    Row("{}_forearm", "{}_upper_arm", "{}_elbow", Y, (0, 0, -0.29), (
        Solid.cylinder(0.4, 0.043, (0, -0.04, 0), (0, 0.04, 0), ORANGE),
        Solid.capsule(0.5, 0.036, (0, 0, -0.03), (0, 0, -0.09), LIGHT)), (-2.4, 0.0), _SMALL),
    Row("{}_wrist_yaw_link", "{}_forearm", "{}_wrist_yaw", Z, (0, 0, -0.13), (
        Solid.cylinder(0.5, 0.034, (0, 0, -0.09), (0, 0, 0.01), STEEL),), (-1.8, 1.8), _WRIST),
    Row("{}_wrist_pitch_link", "{}_wrist_yaw_link", "{}_wrist_pitch", Y, (0, 0, -0.12), (
        Solid.cylinder(0.2, 0.025, (0, -0.03, 0), (0, 0.03, 0), DARK),), (-0.9, 0.9), _WRIST),
    Row("{}_hand", "{}_wrist_pitch_link", "{}_wrist_roll", X, ORIGIN, (
        Solid.box(0.3, (0.08, 0.03, 0.09), (0, 0, -0.065), LIGHT),
        Solid.box(0.1, (0.07, 0.02, 0.07), (0, 0, -0.145), DARK)), (-0.6, 0.6), _WRIST),
)  # fmt: skip
_HUMANOID_TRUNK = (
    Row("waist_yaw_link", "pelvis", "waist_yaw", Z, (0, 0, 0.08), (
        Solid.cylinder(1.2, 0.07, (0, 0, -0.02), (0, 0, 0.04), DARK),), (-1.2, 1.2), _STRONG),
    Row("waist_roll_link", "waist_yaw_link", "waist_roll", X, (0, 0, 0.05), (
        Solid.cylinder(1.2, 0.05, (-0.05, 0, 0), (0.05, 0, 0), DARK),), (-0.5, 0.5), _STRONG),
    Row("torso", "waist_roll_link", "waist_pitch", Y, ORIGIN, (
        Solid.box(5.0, (0.15, 0.20, 0.14), (0, 0, 0.09), LIGHT),
        Solid.box(12.0, (0.20, 0.30, 0.20), (0, 0, 0.26), ORANGE)), (-0.4, 1.0), _STRONG),
    Row("neck", "torso", "neck_yaw", Z, (0, 0, 0.37), (
        Solid.cylinder(0.7, 0.04, (0, 0, -0.02), (0, 0, 0.05), DARK),), (-1.4, 1.4), _SMALL),
    Row("head", "neck", "neck_pitch", Y, (0, 0, 0.05), (
        Solid.capsule(3.3, 0.085, (0.01, 0, 0.08), (0.01, 0, 0.10), LIGHT),
        Solid.box(0.2, (0.04, 0.12, 0.035), (0.085, 0, 0.10), DARK)), (-0.6, 0.8), _SMALL),
)  # fmt: skip


def humanoid() -> Model:
    """Return a humanoid of our own: a floating pelvis and 31 joints, 1.7 m tall, 70 kg.

    Six joints a leg (hip yaw, roll and pitch, knee, ankle pitch and roll), three in the waist, two in the
    neck, seven an arm (shoulder pitch, roll and yaw, elbow, wrist yaw, pitch and roll). Frames are
    left_sole, right_sole, left_palm, right_palm and eyes. At q = 0 it stands upright with hanging arms, the
    soles 0.98 m below the pelvis. Joints of both sides turn about the same axes, so that the mirror image
    of a pose has roll and yaw angles of opposite sign; the limits are mirrored likewise.
    """
    pelvis = (
        Solid.box(5.0, (0.16, 0.20, 0.10), (0, 0, 0.01), ORANGE),
        Solid.box(2.0, (0.12, 0.28, 0.06), (0, 0, -0.01), DARK),
    )
    limbs = [_limb(rows, side) for rows in (_HUMANOID_LEG, _HUMANOID_ARM) for side in ("left", "right")]
    rows = [_root("pelvis", pelvis), *limbs[0], *limbs[1], *_HUMANOID_TRUNK, *limbs[2], *limbs[3]]
    soles = [Frame(f"{side}_sole", f"{side}_foot", (0.03, 0, -0.08)) for side in ("left", "right")]
    palms = [Frame(f"{side}_palm", f"{side}_hand", (0, 0, -0.08)) for side in ("left", "right")]
    return _build("humanoid", rows, [*soles, *palms, Frame("eyes", "head", (0.10, 0, 0.10))])


BUNDLED: dict[str, Callable[[], Model]] = {
    make.__name__: make
    for make in (
        pendulum, double_pendulum, planar_chain, cartpole, gantry, puma560, arm7, quadruped, humanoid,
    )
}  # fmt: skip
"""The bundled models by name, as `jaxdyn.load` knows them."""
