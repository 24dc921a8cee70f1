"""Write a model as MJCF, so that MuJoCo simulates it and `load_mjcf` gives it back.

Each moving body becomes an MJCF body with its joint. MuJoCo refuses moving bodies without mass, so that such
a body shares the MJCF body of the one body it carries: at q = 0 the joints of both act in that body's frame,
where axes and anchors of all joints but ball joints may point anywhere.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import numpy as np

from jaxdyn._checks import ModelError, ModelWarning
from jaxdyn.joints import JOINT_TYPES
from jaxdyn.model import Geometry, Model, ModelBuilder
from jaxdyn.model.links import Link
from jaxdyn.spatial import Mat3, Quaternion, RigidInertia, Transform, Vec3

TINY = 1e-15
"""MuJoCo's mjMINVAL: a moving body must have more mass and inertia than that."""
ROUNDING = 1e-9
"""A flat body's inertia may break the triangle inequality by that fraction: MuJoCo's check has no slack."""
IDENTITY = np.array([1.0, 0, 0, 0, 0, 0, 0])
DEFAULT_V_S = 0.05
PER_DOF = {"armature": "armature", "damping": "damping", "friction": "frictionloss", "stiffness": "stiffness"}


class Part(NamedTuple):
    """One MuJoCo joint: the whole of one of ours, or one of its degrees of freedom."""

    link: Link
    type: str
    name: str
    axis: np.ndarray | None
    dofs: slice


def to_mjcf(model: Model, path: str | os.PathLike[str] | None = None) -> str:
    """Write a model as MJCF.

    Loading the text gives a model with the same q, qd and dynamics. Its moving bodies are named `body/joint`
    and the old names are frames in their places; writing that model again changes nothing. Universal,
    cylindrical and translation joints become two or three joints named `joint/1`, `joint/2`, ... . Meshes,
    velocity limits and v_s are left out, with a `ModelWarning` that names them.

    Args:
        model: the model, with concrete leaves.
        path: where to write it, if anywhere.

    Returns:
        The text of the file.

    Raises:
        ModelError: naming the joint or body that MuJoCo has no room for.
    """
    text = _Writer(model).text()
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


class _Writer:
    """The tree of elements as it grows, and what had to be left out."""

    def __init__(self, model: Model):
        builder = ModelBuilder.from_model(model)
        self.name, self.gravity = builder.name, builder.gravity
        self.bodies = _by_parent(link for link in builder.links if not link.is_frame)
        self.frames = _by_parent(link for link in builder.links if link.is_frame)
        self.shapes: dict[str, list[Geometry]] = {}
        for shape in builder.geometry:
            self.shapes.setdefault(shape.frame, []).append(shape)
        self.left_out: dict[str, list[str]] = {}
        self.joint_names: set[str] = set()

    def text(self) -> str:
        root = Element("mujoco", model=self.name)
        SubElement(root, "compiler", angle="radian", autolimits="true", inertiafromgeom="false")
        SubElement(root, "option", gravity=_text(self.gravity))
        self._write_children(SubElement(root, "worldbody"), None, Transform.identity())
        ElementTree.indent(root)
        for what, names in self.left_out.items():
            listed = ", ".join(repr(name) for name in dict.fromkeys(names))
            warnings.warn(f"to_mjcf({self.name!r}) leaves out {what} {listed}", ModelWarning, stacklevel=4)
        return ElementTree.tostring(root, encoding="unicode") + "\n"

    def _leave_out(self, what: str, name: str) -> None:
        self.left_out.setdefault(what, []).append(name)

    def _write_children(self, element: Element, name: str | None, X_body_element: Transform, own: str = "") -> None:
        """Write the frames (but not `own`) and bodies on a body (None: the world) into its MJCF element."""
        X_element_body = X_body_element.inverse()
        for frame in self.frames.get(name, []):
            if frame.name == own:
                continue
            if frame.name == "world":
                if name is not None or not np.array_equal(frame.placement, IDENTITY):
                    raise ModelError("a frame named 'world' must be the world: MuJoCo reserves the name")
                self._write_shapes(element, frame.name, X_element_body, moving=False)
                continue
            X = X_element_body @ Transform.from_pose(frame.placement)
            child = SubElement(element, "body", name=frame.name, **_pose(X))
            self._write_shapes(child, frame.name, Transform.identity(), moving=name is not None)
        for link in self.bodies.get(name, []):
            self._write_body(element, X_element_body, link)

    def _write_body(self, element: Element, X_element_parent: Transform, first: Link) -> None:
        chain = self._chain(first)
        last = chain[-1]
        own = self._own_frame(last)
        X_last = Transform.identity() if own is None else Transform.from_pose(own.placement)
        # Where the MJCF body's frame is at q = 0 in the frame of each body of the chain, from its end.
        X = X_last
        joints: list[tuple[Part, Transform]] = []
        for link in reversed(chain):
            joints = [(part, X) for part in self._parts(link)] + joints
            X = Transform.from_pose(link.placement) @ X
        _check_combination(first, [part for part, _ in joints])
        X = X_element_parent @ X
        if joints[0][0].type == "free":  # its spring is relaxed where the file puts the body
            X = Transform.from_pose(last.numbers["rest"])
        name = last.name if own is None else own.name
        if name == "world":
            raise ModelError("a body named 'world' cannot be written: MuJoCo reserves the name")
        body = SubElement(element, "body", name=name, **_pose(X))
        self._write_inertia(body, last, X_last)
        for part, X_link_body in joints:
            self._write_joint(body, part, X_link_body)
        X_body_last = X_last.inverse()
        self._write_shapes(body, last.name, X_body_last, moving=True)
        if own is not None:
            self._write_shapes(body, own.name, Transform.identity(), moving=True)
        self._write_children(body, last.name, X_last, name)

    def _chain(self, first: Link) -> list[Link]:
        """Return a body and, while there is no mass, the one body that each carries."""
        chain = [first]
        while not np.any(chain[-1].inertia):
            name = chain[-1].name
            children, frames = self.bodies.get(name, []), self.frames.get(name, [])
            if len(children) != 1 or frames:
                raise ModelError(
                    f"body {name!r} has no mass and carries {len(children)} bodies and {len(frames)} frames: "
                    "MuJoCo wants mass on it, or one body and no frames; give it mass or lock its joint"
                )
            for _ in self.shapes.get(name, []):
                self._leave_out("shapes of bodies without mass:", name)
            chain.append(children[0])
        return chain

    def _own_frame(self, link: Link) -> Link | None:
        """Return the frame of the MJCF body that `load_mjcf` made this body `frame/joint` of, if it did."""
        for frame in self.frames.get(link.name, []):
            shifted = np.any(frame.placement[4:]) and link.joint.type == "free"
            turned = not np.array_equal(frame.placement[:4], IDENTITY[:4])
            if link.name.startswith(f"{frame.name}/{link.joint_name}") and not turned and not shifted:
                return frame
        return None

    def _parts(self, link: Link) -> list[Part]:
        """Return the MuJoCo joints that one of ours becomes."""
        axis, axis2 = link.numbers["axis"], link.numbers["axis2"]
        kinds: dict[str, list[tuple[str, Any]]] = {
            "revolute": [("hinge", axis)],
            "continuous": [("hinge", axis)],
            "prismatic": [("slide", axis)],
            "spherical": [("ball", None)],
            "free": [("free", None)],
            "universal": [("hinge", axis), ("hinge", axis2)],
            "cylindrical": [("hinge", axis), ("slide", axis)],
            "translation": [("slide", e) for e in np.eye(3)],
        }
        kind = link.joint.type
        if kind not in kinds or JOINT_TYPES[kind] is not type(link.joint):
            raise ModelError(
                f"joint {link.joint_name!r}: MJCF has no {kind} joints; jaxdyn.save keeps every type of joint"
            )
        split = len(kinds[kind]) > 1
        parts = [
            Part(link, type_, f"{link.joint_name}/{k + 1}" if split else link.joint_name, a,
                 slice(k, k + 1) if split else slice(None))
            for k, (type_, a) in enumerate(kinds[kind])
        ]  # fmt: skip
        for part in parts:
            if part.name in self.joint_names:
                raise ModelError(
                    f"joint {link.joint_name!r}: one of its parts and another joint would both be named {part.name!r}"
                )
            self.joint_names.add(part.name)
        return parts

    def _write_joint(self, body: Element, part: Part, X_link_body: Transform) -> None:
        link = part.link
        numbers = {name: x[part.dofs] for name, x in link.numbers.items() if x.ndim == 1}
        what = f"joint {link.joint_name!r}"
        joint = SubElement(body, "joint", name=part.name, type=part.type)
        if part.type != "free":
            joint.set("pos", _text(X_link_body.inverse().p))
        if part.axis is not None:
            joint.set("axis", _text(X_link_body.R.T @ Vec3.from_array(part.axis)))
        elif part.type == "ball" and np.abs(X_link_body.R.to_array() - np.eye(3)).max() > 1e-12:
            raise ModelError(
                f"{what} of body {link.name!r}, which has no mass: MuJoCo wants the body that "
                "it carries to have the same axes; give it mass"
            )
        for field, attribute in PER_DOF.items():
            if np.any(numbers[field] != numbers[field][0]):
                raise ModelError(f"{what}: MuJoCo knows one {field} per joint; got {numbers[field].tolist()}")
            if numbers[field][0]:
                joint.set(attribute, _text(numbers[field][:1]))
        rest = numbers["rest"]
        if part.type == "ball" and numbers["stiffness"][0] and np.any(rest[1:]):
            raise ModelError(
                f"{what}: the springs of MuJoCo's ball joints are relaxed at the neutral "
                f"rotation; got rest {rest.tolist()}"
            )
        if part.axis is not None and rest[0]:
            joint.set("springref", _text(rest))
        self._write_limits(joint, part, numbers)

    def _write_limits(self, joint: Element, part: Part, numbers: dict[str, np.ndarray]) -> None:
        """Write the limits that MuJoCo knows: ranges that are not empty, of hinges and slides."""
        link, scalar = part.link, part.axis is not None
        lower, upper, effort = (numbers[name] for name in ("lower", "upper", "effort_limit"))
        if np.any(np.isfinite([lower, upper])):
            if scalar and lower[0] < upper[0]:
                joint.set("range", _text([lower[0], upper[0]]))
            else:
                self._leave_out("position limits of joints", link.joint_name)
        if np.any(np.isfinite(effort)):
            if scalar and effort[0] > 0:
                joint.set("actuatorfrcrange", _text([-effort[0], effort[0]]))
            else:
                self._leave_out("effort limits of joints", link.joint_name)
        if np.any(np.isfinite(numbers["velocity_limit"])):
            self._leave_out("velocity limits of joints", link.joint_name)
        if np.any(np.abs(numbers["v_s"] - DEFAULT_V_S) > 1e-7) and np.any(numbers["friction"]):
            self._leave_out("v_s of joints", link.joint_name)

    def _write_inertia(self, body: Element, link: Link, X_link_body: Transform) -> None:
        """Write the inertia in principal axes, which MuJoCo takes as they are."""
        M = RigidInertia.from_parameters(link.inertia).transform(X_link_body.inverse())
        if M.m < TINY:
            raise ModelError(f"body {link.name!r} has rotational inertia but no mass; MuJoCo refuses that")
        mass, com, central = M.central()
        moments, axes = np.linalg.eigh(central.to_array())
        shown = ", ".join(f"{x:.4g}" for x in moments)
        if moments[0] < TINY:
            raise ModelError(
                f"body {link.name!r}: its inertia is not positive definite (principal moments "
                f"{shown}); MuJoCo refuses that"
            )
        if moments[2] > (moments[0] + moments[1]) * (1 + ROUNDING):
            raise ModelError(
                f"body {link.name!r}: its inertia breaks the triangle inequality (principal "
                f"moments {shown}); MuJoCo refuses that"
            )
        moments[2] = min(moments[2], moments[0] + moments[1])
        axes = axes * np.sign(np.linalg.det(axes))
        pose = _pose(Transform(Mat3.from_array(axes), com))
        SubElement(body, "inertial", mass=_text([mass]), diaginertia=_text(moments), **pose)

    def _write_shapes(self, element: Element, frame: str, X_element_frame: Transform, moving: bool) -> None:
        for shape in self.shapes.get(frame, []):
            if shape.shape == "mesh":
                self._leave_out("meshes", shape.mesh or frame)
            elif (shape.shape == "plane" and moving) or (shape.shape != "plane" and min(shape.size) <= 0):
                self._leave_out("planes on moving bodies and empty shapes: those of", frame)
            else:
                X = X_element_frame @ Transform.from_pose(np.array(shape.placement))
                size = _text(_half_size(shape))
                geom = SubElement(element, "geom", type=shape.shape, size=size, mass="0", **_pose(X))
                if shape.colour is not None:
                    geom.set("rgba", _text(shape.colour))
                if shape.role == "visual":
                    geom.set("contype", "0")
                    geom.set("conaffinity", "0")


def _by_parent(links: Iterable[Link]) -> dict[str | None, list[Link]]:
    children: dict[str | None, list[Link]] = {}
    for link in links:
        children.setdefault(link.parent, []).append(link)
    return children


def _check_combination(first: Link, parts: list[Part]) -> None:
    """Check what MuJoCo demands of the joints of one body."""
    types, name = [part.type for part in parts], parts[0].link.joint_name
    names = ", ".join(repr(part.name) for part in parts)
    if "free" in types:
        if first.parent is not None:
            raise ModelError(f"joint {name!r}: MuJoCo wants free joints on the world; this one is on {first.parent!r}")
        if len(types) > 1:
            raise ModelError(
                f"joints {names} move one body with mass; MuJoCo wants a free joint alone; give "
                "the bodies between them mass"
            )
        if not np.array_equal(first.placement, IDENTITY):
            raise ModelError(
                f"joint {name!r}: a free joint must sit in the world's origin, as MuJoCo's do; "
                f"got placement {first.placement.tolist()}"
            )
    dofs = sum({"ball": 3, "free": 6}.get(type_, 1) for type_ in types)
    after_ball = types[types.index("ball") + 1 :] if "ball" in types else []
    if dofs > 6 or "ball" in after_ball or "hinge" in after_ball:
        raise ModelError(
            f"joints {names} move one body with mass; MuJoCo wants at most six degrees of "
            "freedom, and no rotation after a ball joint; give the bodies between them mass"
        )


def _half_size(shape: Geometry) -> Any:
    """Return MuJoCo's sizes of a shape: half the lengths of boxes, planes, cylinders and capsules."""
    size = np.array(shape.size)
    if shape.shape == "box":
        return size / 2
    if shape.shape == "plane":
        return [*(size / 2), 1.0]  # and the spacing of the drawn grid
    return size / (1, 2) if shape.shape in ("cylinder", "capsule") else size


def _pose(X: Transform) -> dict[str, Any]:
    """Return the attributes of a pose; of q and -q the one whose first component is positive."""
    quaternion = Quaternion.from_matrix(X.R).to_array()
    leading = quaternion[np.abs(quaternion) > 1e-9][0]
    return {"pos": _text(X.p), "quat": _text(np.sign(leading) * quaternion)}


def _text(numbers: Iterable[float]) -> str:
    """Return numbers with all their digits; zero has no sign."""
    return " ".join(repr(float(x) + 0.0) for x in numbers)
