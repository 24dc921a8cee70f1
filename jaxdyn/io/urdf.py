"""Load a URDF file.

Links become bodies, joints carry them; fixed joints are merged into their parents and kept as named
frames. What the format leaves open or real files get wrong is reported as a `ModelWarning` and refused
under `strict=True`; what cannot be used is a `ModelError` that names file, line and element.
"""

from __future__ import annotations

import posixpath
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from jaxdyn._checks import ModelWarning, suggestion
from jaxdyn.io.xml import Element, parse_xml, read_bytes
from jaxdyn.model import Model, ModelBuilder
from jaxdyn.spatial import Quaternion, Sym3

JOINT_TYPES = {
    "revolute": "revolute", "continuous": "continuous", "prismatic": "prismatic",
    "fixed": "fixed", "floating": "free", "planar": "planar",
}  # fmt: skip
"""URDF's joint types and ours."""

Colour = tuple[float, ...] | None


def load_urdf(
    path: str | Path,
    *,
    floating_base: bool = False,
    strict: bool = False,
    mimic: bool = True,
    outside_meshes: bool = False,
) -> Model:
    """Load a model from a URDF file; see `jaxdyn.load`.

    Args:
        path: the file.
        floating_base: put a free joint, `root_joint`, between the world and the root link.
        strict: refuse what is otherwise a warning.
        mimic: couple mimic joints to those they follow; False makes them independent.
        outside_meshes: keep meshes whose path leads out of the file's folder.

    Returns:
        The model.
    """
    return parse_urdf(read_bytes(path), source=str(path), floating_base=floating_base, strict=strict, mimic=mimic,
                      outside_meshes=outside_meshes)  # fmt: skip


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused by name
def parse_urdf(
    text: str | bytes,
    *,
    source: str = "<string>",
    floating_base: bool = False,
    strict: bool = False,
    mimic: bool = True,
    outside_meshes: bool = False,
) -> Model:
    """Load a model from the text of a URDF file; arguments as `load_urdf`, `source` names it in messages."""
    robot = parse_xml(text, source)
    _refuse_xacro(robot)
    if robot.tag != "robot":
        robot.fail("a URDF file must have <robot> as its root element")
    _check_numbers(robot)
    builder = ModelBuilder(robot.attributes.get("name", "robot"), source=source)
    links = _named(robot, "link")
    joints = _named(robot, "joint")
    carried = _tree(robot, links, joints)
    materials = _materials(robot)
    outside: list[str] = []

    def add(link: Element, parent: str | None, **joint: Any) -> None:
        name = link.text("name")
        builder.add_body(name, parent, **joint, **_inertial(link), line=link.line)
        for role in ("visual", "collision"):
            for shape in link.all(role):
                _add_shape(builder, name, shape, role, materials, None if outside_meshes else outside)

    root = next(links[name] for name in links if name not in carried)
    add(root, None, joint="free" if floating_base else "fixed", joint_name="root_joint" if floating_base else "")
    for joint in joints.values():
        child = links[joint.one("child").text("link")]
        add(child, joint.one("parent").text("link"), **_joint(builder, joint, joints, mimic))
    if outside:
        warnings.warn(
            f"{source}: {len(outside)} mesh paths lead out of the file's folder and were ignored, the first "
            f"being {outside[0]!r}; outside_meshes=True keeps them",
            ModelWarning,
            stacklevel=3,
        )
    return builder.build(strict=strict)


def _refuse_xacro(robot: Element) -> None:
    todo = [robot]
    while todo:
        element = todo.pop()
        if element.tag.startswith("xacro:"):
            element.fail("this is a xacro file; expand it first, for example with `xacro robot.xacro > robot.urdf`")
        todo += element.children


NUMBERS = {
    "origin": ("xyz", "rpy"), "axis": ("xyz",), "mass": ("value",), "color": ("rgba",), "mesh": ("scale",),
    "inertia": ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"), "limit": ("lower", "upper", "effort", "velocity"),
    "dynamics": ("damping", "friction"), "mimic": ("multiplier", "offset"), "calibration": ("rising", "falling"),
    "safety_controller": ("k_velocity", "k_position", "soft_lower_limit", "soft_upper_limit"),
    "box": ("size",), "sphere": ("radius",), "cylinder": ("radius", "length"), "capsule": ("radius", "length"),
}  # fmt: skip
"""The attributes of URDF's elements that are numbers."""


def _check_numbers(robot: Element) -> None:
    """Refuse numbers that are none, or not finite, also where they are not used."""
    todo = [element for tag in ("link", "joint", "material") for element in robot.all(tag)]
    while todo:
        element = todo.pop()
        todo += element.children
        for attribute in NUMBERS.get(element.tag, ()):
            if attribute in element.attributes:
                element.numbers(attribute, len(element.attributes[attribute].split()))


def _named(robot: Element, tag: str) -> dict[str, Element]:
    """Return the <link>s or <joint>s of a robot by name."""
    found: dict[str, Element] = {}
    for element in robot.all(tag):
        name = element.text("name")
        if name in found:
            element.fail(f"this name was given to another <{tag}> on line {found[name].line}")
        found[name] = element
    return found


def _tree(robot: Element, links: dict[str, Element], joints: dict[str, Element]) -> dict[str, Element]:
    """Check that the joints connect the links to one tree; return the joint that carries each link."""
    if not links:
        robot.fail("has no <link>")
    carried: dict[str, Element] = {}
    for joint in joints.values():
        for end in ("parent", "child"):
            name = joint.one(end).text("link")
            if name not in links:
                joint.fail(f"its {end} link {name!r} does not exist: {suggestion(name, links)}")
        child = joint.one("child").text("link")
        if child in carried:
            joint.fail(f"link {child!r} is carried by {carried[child]} already; a link can have one parent only")
        carried[child] = joint
    roots = [name for name in links if name not in carried]
    if not roots:
        robot.fail("there is no root link: the joints form a loop")
    if len(roots) > 1:
        shown = ", ".join(repr(name) for name in roots[:5])
        robot.fail(f"there must be one root link; {len(roots)} links are the child of no joint: {shown}")
    return carried


def _origin(element: Element) -> dict[str, np.ndarray]:
    """Return xyz and rpy of an element's <origin>."""
    origin = element.maybe("origin")
    if origin is None:
        return {"xyz": np.zeros(3), "rpy": np.zeros(3)}
    zero = (0.0, 0.0, 0.0)
    return {"xyz": origin.numbers("xyz", 3, zero), "rpy": origin.numbers("rpy", 3, zero)}


def _inertial(link: Element) -> dict[str, Any]:
    """Return mass, centre of mass and inertia about it in the axes of the link."""
    inertial = link.maybe("inertial")
    if inertial is None:
        return {}
    moments = inertial.one("inertia")
    mass = inertial.one("mass").number("value")
    if mass < 0:
        link.fail(f"mass must not be negative; got {mass}")
    I = Sym3(*(np.float64(moments.number(name)) for name in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")))
    origin = _origin(inertial)
    R = Quaternion.from_rpy(*origin["rpy"]).to_matrix()
    rotated = R.congruence(I) if np.any(origin["rpy"]) else I
    return {"mass": mass, "com": origin["xyz"], "inertia": rotated.to_array()}


def _joint(builder: ModelBuilder, joint: Element, joints: dict[str, Element], mimic: bool) -> dict[str, Any]:
    """Return the arguments of `add_body` that describe a joint."""
    kind = joint.text("type")
    if kind not in JOINT_TYPES:
        joint.fail(f"unknown joint type {kind!r}: {suggestion(kind, JOINT_TYPES)}")
    arguments: dict[str, Any] = {"joint": JOINT_TYPES[kind], "joint_name": joint.text("name"), **_origin(joint)}
    axis_element = joint.maybe("axis")
    axis = np.array([1.0, 0.0, 0.0]) if axis_element is None else axis_element.numbers("xyz", 3)
    if kind not in ("fixed", "floating"):
        if np.linalg.norm(axis) < 1e-12:
            joint.fail(f"axis must not be zero; got {tuple(axis.tolist())}")
        arguments["axis"] = axis
    if kind in ("revolute", "continuous", "prismatic"):
        arguments |= _limits(builder, joint, kind)
    dynamics = joint.maybe("dynamics")
    if dynamics is not None and kind != "fixed":
        arguments |= {"damping": dynamics.number("damping", 0.0), "friction": dynamics.number("friction", 0.0)}
    return arguments | _mimic(builder, joint, joints, mimic)


def _limits(builder: ModelBuilder, joint: Element, kind: str) -> dict[str, float]:
    limit = joint.maybe("limit")
    if limit is None:
        if kind != "continuous":
            builder.warn(f"{joint}: a {kind} joint should have a <limit>; taken as unlimited", joint.line)
        return {}
    found: dict[str, float] = {}
    for attribute, field in (("effort", "effort_limit"), ("velocity", "velocity_limit")):
        if attribute in limit.attributes:
            found[field] = limit.number(attribute)
        else:
            builder.warn(f"{joint}: <limit> should have the attribute {attribute!r}; taken as unlimited", limit.line)
    lower, upper = limit.number("lower", 0.0), limit.number("upper", 0.0)
    return found if kind == "continuous" else found | {"lower": lower, "upper": upper}


def _mimic(builder: ModelBuilder, joint: Element, joints: dict[str, Element], mimic: bool) -> dict[str, Any]:
    element = joint.maybe("mimic")
    if element is None or not mimic:
        return {}
    leader = element.text("joint")
    ratio, offset = element.number("multiplier", 1.0), element.number("offset", 0.0)
    if leader not in joints:
        joint.fail(f"mimics joint {leader!r}, which does not exist: {suggestion(leader, joints)}")
    fixed = [j for j in (joint, joints[leader]) if j.attributes.get("type") == "fixed"]
    if fixed:
        builder.warn(f"{joint}: <mimic> of {leader!r} was ignored, since {fixed[0]} is fixed", element.line)
        return {}
    return {"follows": leader, "ratio": ratio, "offset": offset}


def _materials(robot: Element) -> dict[str, Colour]:
    """Return the colours of the robot's named materials."""
    return {m.attributes["name"]: _colour(m) for m in robot.all("material") if "name" in m.attributes}


def _colour(material: Element) -> Colour:
    colour = material.maybe("color")
    return None if colour is None else tuple(colour.numbers("rgba", 4).tolist())


def _add_shape(
    builder: ModelBuilder,
    link: str,
    element: Element,
    role: str,
    materials: dict[str, Colour],
    outside: list[str] | None,
) -> None:
    """Add a <visual> or <collision>; mesh paths that lead out of the folder are noted in `outside`."""
    geometry = element.one("geometry")
    material = element.maybe("material")
    colour = None if material is None else _colour(material) or materials.get(material.attributes.get("name", ""))
    common: dict[str, Any] = {**_origin(element), "colour": colour, "role": role, "line": element.line}
    if len(geometry.children) != 1:
        builder.warn(f"<link name={link!r}>: {len(geometry.children)} shapes in one <geometry>", geometry.line)
    for shape in geometry.children:
        if shape.tag == "box":
            builder.add_geometry(link, "box", shape.numbers("size", 3), **common)
        elif shape.tag == "sphere":
            builder.add_geometry(link, "sphere", [shape.number("radius")], **common)
        elif shape.tag in ("cylinder", "capsule"):
            builder.add_geometry(link, shape.tag, [shape.number("radius"), shape.number("length")], **common)
        elif shape.tag == "mesh":
            path, scale = shape.text("filename"), shape.numbers("scale", 3, (1.0, 1.0, 1.0))
            if outside is not None and _leads_out(path):
                outside.append(path)
            else:
                builder.add_geometry(link, "mesh", scale, mesh=path, **common)
        else:
            builder.warn(f"<link name={link!r}>: unknown shape <{shape.tag}> in its <{role}> was left out", shape.line)


def _leads_out(path: str) -> bool:
    """Tell whether a mesh path leaves the model's folder (or the package that `package://` names)."""
    path = path.replace("\\", "/")
    if path.startswith(("package://", "model://")):
        package, _, path = path.partition("://")[2].partition("/")
        path = path.lstrip("/")
        if package in (".", ".."):
            return True
    inside = posixpath.normpath(path)
    # A scheme such as file: or http:, or a drive such as C:, leads anywhere.
    return inside == ".." or inside.startswith(("../", "/")) or ":" in inside.partition("/")[0]
