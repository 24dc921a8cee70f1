"""Write a model as URDF."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import numpy as np

from jaxdyn._checks import ModelError, ModelWarning
from jaxdyn.joints import Mimic
from jaxdyn.model import Geometry, Model
from jaxdyn.spatial import Quaternion, RigidInertia

TYPES = {name: name for name in ("revolute", "continuous", "prismatic", "planar")} | {"free": "floating"}
"""Our joint types and URDF's."""
UNLIMITED = 1e12
"""Written for a missing limit where the format demands one."""

IDENTITY = np.array([1.0, 0, 0, 0, 0, 0, 0])


def to_urdf(model: Model, path: str | Path | None = None) -> str:
    """Write a model as URDF.

    Loading the text gives the model back: the same bodies, joints, frames, inertias, limits, damping and
    friction. The format has no place for armature, springs and gravity, nor for limits that are not there
    (a revolute joint without limits becomes continuous, other missing limits 1e12): what is lost is named
    in a `ModelWarning`. A floating base is written as a floating joint on a root link.

    Args:
        model: the model, with concrete leaves.
        path: where to write it, if anywhere.

    Returns:
        The text of the file.

    Raises:
        ModelError: if a joint's type does not exist in URDF.
    """
    model.require_single()
    robot = Element("robot", name=model.name)
    t = model.topology
    joint_names = set(t.joint_names)
    poses = np.asarray(model.frame_placement, np.float64)
    placements = np.asarray(model.placement, np.float64)
    root = _root_name(model, poses)
    names = (*t.body_names, root)  # [-1] is the world

    shapes: dict[str, list[Geometry]] = {}
    for shape in model.geometry:
        shapes.setdefault(shape.frame, []).append(shape)
    _link(robot, root, None, shapes)
    for i, name in enumerate(t.body_names):
        _link(robot, name, np.asarray(model.inertia[i], np.float64), shapes)
        _joint(robot, model, i, names[t.parents[i]], placements[i])
    for name, parent, pose in zip(t.frame_names, t.frame_parents, poses, strict=True):
        if name != root:
            _link(robot, name, None, shapes)
            joint_name = f"{name}_fixed"
            while joint_name in joint_names:
                joint_name += "_"
            joint_names.add(joint_name)
            joint = SubElement(robot, "joint", name=joint_name, type="fixed")
            _connect(joint, names[parent], name, pose)
    _warn_of_losses(model)
    ElementTree.indent(robot)
    text = '<?xml version="1.0"?>\n' + ElementTree.tostring(robot, encoding="unicode") + "\n"
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _root_name(model: Model, poses: np.ndarray) -> str:
    """Return the name of the link that stands for the world: a frame in its origin, or a new one."""
    t = model.topology
    for name, parent, pose in zip(t.frame_names, t.frame_parents, poses, strict=True):
        if parent < 0 and np.array_equal(pose, IDENTITY):
            return name
    name = "world"
    while name in t.body_names or name in t.frame_names:
        name += "_"
    return name


def _text(numbers: Any) -> str:
    """Return numbers with all their digits."""
    return " ".join(repr(float(x)) for x in np.atleast_1d(np.asarray(numbers, np.float64)))


def _origin(parent: Element, pose: np.ndarray) -> None:
    if not np.array_equal(pose, IDENTITY):
        rpy = Quaternion.from_array(pose[:4]).to_rpy()
        SubElement(parent, "origin", xyz=_text(pose[4:]), rpy=_text(rpy))


def _connect(joint: Element, parent: str, child: str, pose: np.ndarray) -> None:
    _origin(joint, pose)
    SubElement(joint, "parent", link=parent)
    SubElement(joint, "child", link=child)


def _link(robot: Element, name: str, inertia: np.ndarray | None, shapes: dict[str, list[Geometry]]) -> None:
    link = SubElement(robot, "link", name=name)
    if inertia is not None and np.any(inertia):
        M = RigidInertia.from_parameters(inertia)
        mass, com, central = M.central() if M.m > 0 else (M.m, M.h, M.J)
        inertial = SubElement(link, "inertial")
        _origin(inertial, np.array([1.0, 0, 0, 0, *com]))
        SubElement(inertial, "mass", value=_text([mass]))
        names = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
        SubElement(inertial, "inertia", {n: _text([x]) for n, x in zip(names, central, strict=True)})
    for shape in shapes.get(name, []):
        _shape(link, shape)


def _joint(robot: Element, model: Model, i: int, parent: str, pose: np.ndarray) -> None:
    t = model.topology
    name, joint = t.joint_names[i], t.joints[i]
    kind = joint.mechanism.type
    if kind not in TYPES:
        raise ModelError(f"joint {name!r}: URDF has no {kind} joints; jaxdyn.save keeps every type")
    q, qd = model.q_slice(name), model.qd_slice(name)
    lower, upper = (np.asarray(x, np.float64)[q] for x in (model.lower, model.upper))
    if kind == "revolute" and joint.nq and np.all(np.isinf(lower) & np.isinf(upper)):
        kind = "continuous"
    element = SubElement(robot, "joint", name=name, type=TYPES[kind])
    _connect(element, parent, t.body_names[i], pose)
    if kind != "free":
        SubElement(element, "axis", xyz=_text(np.asarray(model.axis[i], np.float64)))
    if kind in ("revolute", "continuous", "prismatic"):
        limits = {"effort": np.asarray(model.effort_limit)[qd], "velocity": np.asarray(model.velocity_limit)[qd]}
        if kind != "continuous":
            limits |= {"lower": lower, "upper": upper}
        missing = {"lower": -np.inf}
        finite = {n: np.clip(x[0] if len(x) else missing.get(n, np.inf), -UNLIMITED, UNLIMITED)
                  for n, x in limits.items()}  # fmt: skip
        SubElement(element, "limit", {n: _text([x]) for n, x in finite.items()})
    damping, friction = (np.asarray(x, np.float64)[qd] for x in (model.damping, model.friction))
    if np.any(damping) or np.any(friction):
        SubElement(element, "dynamics", damping=_text(damping[:1]), friction=_text(friction[:1]))
    if isinstance(joint, Mimic):
        SubElement(element, "mimic", joint=t.joint_names[t.followed[i]], multiplier=_text([model.ratio[i]]),
                   offset=_text([model.offset[i]]))  # fmt: skip


def _shape(link: Element, shape: Geometry) -> None:
    if shape.shape not in ("box", "sphere", "cylinder", "capsule", "mesh"):
        return
    element = SubElement(link, shape.role)
    _origin(element, np.array(shape.placement))
    geometry = SubElement(element, "geometry")
    if shape.shape == "box":
        SubElement(geometry, "box", size=_text(shape.size))
    elif shape.shape == "sphere":
        SubElement(geometry, "sphere", radius=_text(shape.size))
    elif shape.shape == "mesh":
        SubElement(geometry, "mesh", filename=shape.mesh or "", scale=_text(shape.size))
    else:
        SubElement(geometry, shape.shape, radius=_text(shape.size[:1]), length=_text(shape.size[1:]))
    if shape.colour is not None:
        name = "rgba_" + "_".join(f"{c:g}" for c in shape.colour)
        SubElement(SubElement(element, "material", name=name), "color", rgba=_text(shape.colour))


def _warn_of_losses(model: Model) -> None:
    """Name what the format cannot hold."""
    lost = [name for name in ("armature", "stiffness") if np.any(np.asarray(getattr(model, name)))]
    if not np.allclose(np.asarray(model.gravity), (0, 0, -9.81), rtol=1e-6, atol=0):
        lost.append("gravity")
    if np.any(np.asarray(model.v_s) != np.asarray(0.05, model.dtype)):
        lost.append("v_s")
    changed = [name for i, name in enumerate(model.joint_names) if _loses_limits(model, i)]
    if changed:
        lost.append(f"the limits, or their absence, of joints {', '.join(changed)}")
    uneven = [name for name in model.joint_names if _is_uneven(model, name)]
    if uneven:
        lost.append(f"different damping or friction per degree of freedom of {', '.join(uneven)}")
    left_out = sorted({shape.shape for shape in model.geometry if shape.shape in ("ellipsoid", "plane")})
    if left_out:
        lost.append(f"shapes: {', '.join(left_out)}")
    if lost:
        warnings.warn(f"to_urdf({model.name!r}): the format cannot hold {'; '.join(lost)}", ModelWarning, stacklevel=3)


def _loses_limits(model: Model, i: int) -> bool:
    """Tell whether a joint has limits where URDF has none, or none where URDF wants some."""
    name, kind = model.joint_names[i], model.joint_types[i]
    q, qd = model.q_slice(name), model.qd_slice(name)
    position = np.isfinite(np.concatenate([np.asarray(x)[q] for x in (model.lower, model.upper)]))
    other = np.isfinite(np.concatenate([np.asarray(x)[qd] for x in (model.effort_limit, model.velocity_limit)]))
    if kind in ("revolute", "prismatic"):
        return not (np.all(position) and np.all(other))
    if kind == "continuous":
        return bool(np.any(position)) or not np.all(other)
    return bool(np.any(position) or np.any(other))


def _is_uneven(model: Model, joint_name: str) -> bool:
    parts = (np.asarray(x)[model.qd_slice(joint_name)] for x in (model.damping, model.friction))
    return any(np.any(x != x[0]) for x in parts if x.size)
