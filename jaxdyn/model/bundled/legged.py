"""Robots with legs."""

from __future__ import annotations

from jaxdyn.model.bundled.table import DARK, LIGHT, ORANGE, ORIGIN, STEEL, Drive, Frame, Row, X, Y, Z, build, limb
from jaxdyn.model.model import Model
from jaxdyn.model.shapes import Solid


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
    limbs = [limb(_QUADRUPED_LEG, leg, at=(x, 0.0, 0.0)) for leg, x in _LEGS.items()]
    rows = [_root("trunk", trunk), *(row for limb in limbs for row in limb)]
    return build("quadruped", rows, [Frame(f"{leg}_foot", f"{leg}_shank", (0, 0, -0.21)) for leg in _LEGS])


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
    limbs = [limb(rows, side) for rows in (_HUMANOID_LEG, _HUMANOID_ARM) for side in ("left", "right")]
    rows = [_root("pelvis", pelvis), *limbs[0], *limbs[1], *_HUMANOID_TRUNK, *limbs[2], *limbs[3]]
    soles = [Frame(f"{side}_sole", f"{side}_foot", (0.03, 0, -0.08)) for side in ("left", "right")]
    palms = [Frame(f"{side}_palm", f"{side}_hand", (0, 0, -0.08)) for side in ("left", "right")]
    return build("humanoid", rows, [*soles, *palms, Frame("eyes", "head", (0.10, 0, 0.10))])
