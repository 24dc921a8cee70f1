"""A body as it is added to a model, with the joint that carries it: its numbers, checked one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxdyn import _checks
from jaxdyn._checks import ModelError, suggestion
from jaxdyn.joints import JOINT_TYPES, Joint, JointParameters
from jaxdyn.model.model import Model
from jaxdyn.spatial import Quaternion, RigidInertia, Sym3, Vec3

PER_JOINT = ("axis", "axis2", "pitch", "ratio", "offset")
PER_DOF = ("armature", "damping", "friction", "v_s", "stiffness", "velocity_limit", "effort_limit")
PER_COORDINATE = ("rest", "lower", "upper")


@dataclass(frozen=True)
class Link:
    """A body and its joint. All numbers are float64 NumPy arrays."""

    name: str
    parent: str | None
    joint: Joint
    joint_name: str
    follows: str | None
    """Name of the joint that a mimic joint follows."""
    placement: np.ndarray
    """(7,) pose of the joint in the parent."""
    inertia: np.ndarray
    """(10,) about the body's origin."""
    custom: np.ndarray
    """The numbers that `Joint.custom_parameters` names."""
    numbers: dict[str, np.ndarray]
    """The fields of PER_JOINT, PER_DOF and PER_COORDINATE; of a mimic joint those of the joint it gears."""
    line: int | None
    """Where in the source file."""
    is_frame: bool = False
    """Nothing but a name and a pose."""

    @property
    def joint_parameters(self) -> JointParameters:
        """What the joint's mechanism reads."""
        axis, axis2 = (Vec3.from_array(self.numbers[name]).normalized() for name in ("axis", "axis2"))
        return JointParameters(axis, axis2, self.numbers["pitch"], custom=tuple(self.custom))


def joint_of(joint: Joint | str, what: str) -> Joint:
    """Return a joint given by itself or by the name of its type."""
    if isinstance(joint, str):
        if joint not in JOINT_TYPES or joint == "mimic":
            known = [name for name in JOINT_TYPES if name != "mimic"]
            raise ModelError(f"{what}: unknown joint type {joint!r}: {suggestion(joint, known)}")
        return JOINT_TYPES[joint]()
    if not isinstance(joint, Joint):
        raise ModelError(
            f"{what}: joint must be a name such as 'revolute' or an instance of jaxdyn.joints.Joint; got {joint!r}"
        )
    return joint


def unit(what: str, axis: Any) -> np.ndarray:
    """Return a vector that is not zero, normalised."""
    vector = _checks.numbers(what, axis, (3,))
    length = np.linalg.norm(vector)
    if length < 1e-12:
        raise ModelError(f"{what} must not be zero; got {plain(vector)}")
    return vector if abs(length - 1) < 1e-15 else vector / length


def placement(what: str, xyz: Any, rpy: Any, quaternion: Any) -> np.ndarray:
    """Return quaternion and position, (7,)."""
    if rpy is not None and quaternion is not None:
        raise ModelError(f"{what}: give rpy or quaternion, not both")
    position = _checks.numbers(f"{what}: xyz", xyz, (3,))
    if quaternion is not None:
        q = _checks.numbers(f"{what}: quaternion (w, x, y, z)", quaternion, (4,))
        if np.linalg.norm(q) < 1e-12:
            raise ModelError(f"{what}: quaternion must not be zero; got {plain(q)}")
    elif rpy is not None:
        q = Quaternion.from_rpy(*_checks.numbers(f"{what}: rpy", rpy, (3,))).to_array()
    else:
        q = np.array([1.0, 0.0, 0.0, 0.0])
    return unit_pose(np.concatenate([q, position]))


def unit_pose(pose: np.ndarray) -> np.ndarray:
    """Return a pose, (7,), with its quaternion normalised."""
    length = np.linalg.norm(pose[:4])
    return pose if abs(length - 1) < 1e-15 else np.concatenate([pose[:4] / length, pose[4:]])


def inertia_about_origin(what: str, mass: Any, com: Any, inertia: Any) -> tuple[np.ndarray, float, np.ndarray]:
    """Return the ten parameters about the origin, the mass, and the inertia (3, 3) about the centre of mass."""
    m = float(_checks.numbers(f"{what}: mass", mass, ()))
    if m < 0:
        raise ModelError(f"{what}: mass must not be negative; got {m}")
    c = Vec3.from_array(_checks.numbers(f"{what}: com", com, (3,)))
    if len(np.ravel(np.asarray(inertia, object))) == 3:
        I = np.diag(_checks.numbers(f"{what}: inertia", inertia, (3,)))
    else:
        I = _checks.numbers(f"{what}: inertia (or its three principal moments)", inertia, (3, 3))
    if not np.allclose(I, I.T, rtol=1e-9, atol=1e-12 * np.abs(I).max()):
        raise ModelError(f"{what}: inertia must be symmetric; got {plain(I)}")
    return RigidInertia.from_com(m, c, Sym3.from_array(I)).to_parameters(), m, I


def coordinates(what: str, value: Any, count: int) -> np.ndarray:
    """Return one number per coordinate, from as many or from a single one."""
    single = isinstance(value, (int, float)) or getattr(value, "ndim", 1) == 0
    return np.broadcast_to(_checks.numbers(what, value, () if single else (count,)), (count,)).copy()


def not_negative(what: str, value: Any, count: int) -> np.ndarray:
    """As `coordinates`, with no number below zero."""
    array = coordinates(what, value, count)
    if np.any(array < 0):
        raise ModelError(f"{what} must not be negative; got {plain(array)}")
    return array


def limit(what: str, value: Any, count: int) -> np.ndarray:
    """As `coordinates`, but infinite values mean that there is no limit."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise ModelError(f"{what} must be a number or {count} numbers; got {value!r}") from None
    finite = np.where(np.isinf(array), 0.0, array)
    coordinates(what, finite, count)
    return np.broadcast_to(array, (count,)).copy()


def plain(array: Any) -> tuple[Any, ...]:
    """Return numbers as a tuple."""
    return tuple(np.asarray(array, np.float64).tolist())


def links_of(model: Model) -> list[Link]:
    """Return the bodies of a model as links."""
    t = model.topology
    arrays = {name: np.asarray(getattr(model, name), np.float64) for name in PER_JOINT + PER_DOF + PER_COORDINATE}
    poses, inertias, custom = (
        np.asarray(x, np.float64) for x in (model.placement, model.inertia, model.joint_parameters)
    )
    bodies = (*t.body_names, None)  # [-1] is the world
    links = []
    for i, (joint, joint_name, leader) in enumerate(zip(t.joints, t.joint_names, t.followed, strict=True)):
        numbers = {name: arrays[name][i] for name in PER_JOINT}
        numbers |= {name: arrays[name][model.qd_slice(joint_name)] for name in PER_DOF}
        numbers |= {name: arrays[name][model.q_slice(joint_name)] for name in PER_COORDINATE}
        links.append(
            Link(
                name=t.body_names[i],
                parent=bodies[t.parents[i]],
                joint=joint,
                joint_name=joint_name,
                follows=None if leader < 0 else t.joint_names[leader],
                placement=unit_pose(poses[i]),
                inertia=inertias[i],
                custom=custom[i, : len(joint.mechanism.custom_parameters)],
                numbers=numbers,
                line=None,
            )
        )
    return links
