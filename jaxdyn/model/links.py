"""A body as it is added to a model, with the joint that carries it: its numbers, checked one by one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from jaxdyn import _checks
from jaxdyn._checks import ModelError, suggestion
from jaxdyn.joints import JOINT_TYPES, Joint, JointParameters, Mimic
from jaxdyn.model import consistency
from jaxdyn.model.model import Model
from jaxdyn.model.topology import joint_parameters
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
        return joint_parameters(self.numbers | {"joint_parameters": self.custom}, ..., self.joint)


def check_name(kind: str, name: str) -> None:
    """Refuse names that files and tables cannot hold."""
    if not isinstance(name, str) or name != name.strip() or not name.isprintable():
        raise ModelError(f"a {kind}'s name must be printable text without blanks at its ends; got {name!r}")


def joint_of(joint: Joint | str, what: str) -> Joint:
    """Return a joint given by itself or by the name of its type."""
    if isinstance(joint, str):
        if joint not in JOINT_TYPES or joint == "mimic":
            known = [name for name in JOINT_TYPES if name != "mimic"]
            raise ModelError(f"{what}: unknown joint type {joint!r}: {suggestion(joint, known)}")
        return JOINT_TYPES[joint]()
    if not isinstance(joint, Joint) or isinstance(joint, Mimic):
        raise ModelError(
            f"{what}: joint must be a name such as 'revolute' or an instance of jaxdyn.joints.Joint "
            f"(for a mimic joint, that of the joint it gears, with `follows`); got {joint!r}"
        )
    unseen = sorted(set(vars(joint)) - {f.name for f in fields(joint)})
    if unseen:
        raise ModelError(
            f"{what}: joints are compared by their fields, and {unseen[0]!r} of {type(joint).__name__} is none: "
            "make the class a dataclass(frozen=True), or name the number in custom_parameters"
        )
    if not 0 <= joint.nv <= joint.nq:
        raise ModelError(f"{what}: joint type {joint.type!r} must have 0 <= nv <= nq; got {joint.nv} and {joint.nq}")
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
    return pose if length == 0 or abs(length - 1) < 1e-15 else np.concatenate([pose[:4] / length, pose[4:]])


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


def joint_numbers(what: str, joint: Joint, **given: Any) -> dict[str, np.ndarray]:
    """Check the numbers of a joint and return them by name."""
    numbers = {name: unit(f"{what}: {name}", given[name]) for name in ("axis", "axis2")}
    numbers |= {name: _checks.numbers(f"{what}: {name}", given[name], ()) for name in ("pitch", "ratio", "offset")}
    for name in ("armature", "damping", "friction", "stiffness"):
        numbers[name] = not_negative(f"{what}: {name}", given[name], joint.nv)
    for name in ("velocity_limit", "effort_limit"):
        numbers[name] = limit(f"{what}: {name.replace('_', ' ')}", given[name], joint.nv)
        if np.any(numbers[name] < 0):
            raise ModelError(f"{what}: {name.replace('_', ' ')} must not be negative; got {given[name]}")
    for name in ("lower", "upper"):
        numbers[name] = limit(f"{what}: {name} limit", given[name], joint.nq)
    crossed = (numbers["lower"] > numbers["upper"]) | (numbers["lower"] == np.inf) | (numbers["upper"] == -np.inf)
    if np.any(crossed):
        raise ModelError(
            f"{what}: lower limit must not lie above upper limit; got {given['lower']} and {given['upper']}"
        )
    rest = joint.neutral() if given["rest"] is None else given["rest"]
    numbers["rest"] = coordinates(f"{what}: rest", rest, joint.nq)
    numbers["v_s"] = coordinates(f"{what}: v_s", given["v_s"], joint.nv)
    if np.any(numbers["v_s"] <= 0):
        raise ModelError(f"{what}: v_s must be positive; got {given['v_s']}")
    if joint.type == "universal" and np.linalg.norm(np.cross(numbers["axis"], numbers["axis2"])) < 1e-6:
        raise ModelError(
            f"{what}: the two axes of a universal joint must not be parallel; "
            f"got {plain(given['axis'])} and {plain(given['axis2'])}"
        )
    return numbers


def plain(array: Any) -> tuple[Any, ...]:
    """Return numbers as a tuple."""
    return tuple(np.asarray(array, np.float64).tolist())


def problems_of(model: Model) -> list[str]:
    """Check a finished model as if its bodies were added again; return what is doubtful.

    Raises:
        ModelError: if a number in it could not have come through the builder.
    """
    found = []
    for link in links_of(model):
        what = f"body {link.name!r}"
        check_name("body", link.name)
        check_name("joint", link.joint_name)
        joint_numbers(f"joint {link.joint_name!r}", link.joint, **link.numbers)
        placement(f"joint {link.joint_name!r}", link.placement[4:], None, link.placement[:4])
        M = RigidInertia.from_parameters(link.inertia)
        if M.m < 0:
            raise ModelError(f"{what}: mass must not be negative; got {float(M.m)}")
        central = M.central()[2] if M.m > 0 else M.J
        found += [f"{what}: {p}" for p in consistency.inertia_problems(float(M.m), central.to_array())]
    return found + [message for _, message in consistency.massless_joints_of(model)]


def links_of(model: Model) -> list[Link]:
    """Return the bodies of one model, with concrete leaves, as links."""
    model.require_single()
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
