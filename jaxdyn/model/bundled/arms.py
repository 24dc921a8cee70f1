"""Robot arms."""

from __future__ import annotations

import math

from jaxdyn.model.bundled.table import DARK, LIGHT, ORANGE, ORIGIN, STEEL, Drive, Frame, Row, Y, Z, build
from jaxdyn.model.model import Model
from jaxdyn.model.shapes import Solid

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
    return build("puma560", rows, frames)


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
    return build("arm7", rows, [Frame("base", None, ORIGIN, (foot,)), Frame("tool", "link7", (0, 0, 0.09))])
