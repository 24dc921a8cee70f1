"""What a page draws: the shapes of a model's geometry, or capsules along its links where there are none."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxdyn._checks import ModelWarning
from jaxdyn.model import Geometry, Model
from jaxdyn.spatial import Quaternion, Transform, Vec3, align_z
from jaxdyn.viz.meshes import Part, find_mesh, read_mesh

Numbers = tuple[float, ...]

PALETTE = ("#4f7cac", "#e9a15b", "#5fa8a0", "#d9775f", "#8d83bd", "#86a873", "#c9899f", "#7d93a8")
"""Colours of bodies that have none of their own."""
DARK = (0.24, 0.26, 0.29, 1.0)
IDENTITY = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
LISTED = 6
"""How many mesh files a warning names."""


class Shape(NamedTuple):
    """A shape on a body, as the page gets it."""

    body: int
    """Index of the body, -1 for the world."""
    kind: str
    """As `Geometry.shape`."""
    size: Numbers
    """As `Geometry.size`."""
    pose: Numbers
    """Pose in the body: quaternion w, x, y, z, then position."""
    colour: Numbers
    """Red, green, blue, alpha in [0, 1]."""
    collision: bool = False
    """Whether it is shown only on demand, beside the body's visual shapes."""
    mesh: int = -1
    """Number of the mesh, for kind "mesh"."""


class Scene(NamedTuple):
    """All shapes, and the triangles that those of kind "mesh" refer to."""

    shapes: list[Shape]
    meshes: list[Part]


def scene_of(model: Model, meshes: bool = True, folders: Sequence[Path] = ()) -> Scene:
    """Return what to draw.

    A body shows its visual shapes; without any, its collision shapes. A body whose meshes cannot be had, or every
    body of a model without shapes, is drawn as capsules from joint to joint.

    Args:
        model: the model.
        meshes: read mesh files; False draws the other shapes only.
        folders: where mesh files are looked for.
    """
    library = _Library(folders, meshes)
    drawn: dict[int, dict[str, list[Shape]]] = {}
    lost = set()
    for geometry in model.geometry:
        body, frame = model.topology.find_frame(geometry.frame)
        X_b_f = Transform.from_pose(np.asarray(model.frame_placement[frame] if frame >= 0 else IDENTITY, np.float64))
        pose = _numbers((X_b_f @ Transform.from_pose(np.array(geometry.placement))).to_pose())
        shapes = list(library.shapes(geometry, body, pose))
        drawn.setdefault(body, {}).setdefault(geometry.role, []).extend(shapes)
        if not shapes:
            lost.add(body)
    library.warn()
    found = [shape for body, roles in drawn.items() for shape in _chosen(roles, library.parts)]
    shown = {shape.body for shape in found}
    bare = lost - shown if shown - {-1} else range(-1, model.nbodies)
    return _without_unused(found + capsules(model, bare), library.parts)


def capsules(model: Model, bodies: Iterable[int]) -> list[Shape]:
    """Return capsules from each body's joint to the joints it carries, and a mark at its own joint.

    A last body reaches as far beyond its centre of mass as that is from the joint, or to its farthest frame.
    The world, -1, reaches to the joints of the trees that stand on it.
    """
    bodies = sorted(bodies)
    ends = {i: _ends(model, i) for i in bodies}
    lengths = [math.dist(end, (0, 0, 0)) for all_ends in ends.values() for end in all_ends]
    lengths = [length for length in lengths if length > 1e-6] or [_girth(model)]
    usual = float(np.median(lengths))
    shapes = []
    for i in bodies:
        colour, radius = body_colour(i) if i >= 0 else DARK, 0.08 * usual
        for end in ends[i]:
            length = math.dist(end, (0, 0, 0))
            if length < 1e-6:
                continue
            radius = min(max(0.09 * length, 0.07 * usual), 0.12 * usual)
            pose = (*_along(end), *(x / 2 for x in end))
            shapes.append(Shape(i, "capsule", (radius, length), pose, colour))
        if i >= 0:
            shapes.append(_mark(model, i, radius, colour))
    return shapes


def body_colour(body: int) -> Numbers:
    """Return the colour of a body that has none of its own."""
    code = PALETTE[body % len(PALETTE)]
    return (*(int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)), 1.0)


class _Library:
    """Mesh files, each read once, and what went wrong with them."""

    def __init__(self, folders: Sequence[Path], wanted: bool):
        self.folders, self.wanted = folders, wanted
        self.parts: list[Part] = []
        self._known: dict[tuple[str, Numbers], range] = {}
        self._missing: dict[str, str] = {}
        self._broken: dict[str, str] = {}
        self._unreadable: dict[str, str] = {}
        self._import_error = ""

    def shapes(self, geometry: Geometry, body: int, pose: Numbers) -> Iterable[Shape]:
        """Yield a geometry as shapes: one, or as many as a mesh has colours, or none if the mesh is not to be had."""
        colour = geometry.colour or body_colour(body)
        collision = geometry.role == "collision"
        if geometry.shape != "mesh":
            yield Shape(body, geometry.shape, geometry.size, pose, colour, collision)
            return
        for number in self._read(geometry):
            own = geometry.colour or self.parts[number].colour or colour
            yield Shape(body, "mesh", (), pose, own, collision, number)

    def _read(self, geometry: Geometry) -> range:
        """Return the numbers of a mesh's parts."""
        name = geometry.mesh or ""
        key = (name, geometry.size)
        if key not in self._known and self.wanted:
            start = len(self.parts)
            path = find_mesh(name, self.folders)
            if path is None:
                self._missing[name] = geometry.frame
            else:
                try:
                    self.parts += read_mesh(path, geometry.size)
                except ImportError as error:
                    self._unreadable[name], self._import_error = geometry.frame, str(error)
                except ValueError as error:
                    self._broken[f"{name}: {error}"] = geometry.frame
            self._known[key] = range(start, len(self.parts))
        return self._known.get(key, range(0))

    def warn(self) -> None:
        """Say what could not be drawn as it is meant."""
        instead = "these bodies are drawn by their other shapes or as capsules"
        if self._missing:
            places = ", ".join(repr(str(folder)) for folder in self.folders)
            _warn(f"mesh files not found in {places} (see mesh_folders): {_listed(self._missing)}; {instead}")
        if self._unreadable:
            _warn(
                f"reading meshes needs the extra `mesh`: pip install 'jaxdyn[mesh]' ({self._import_error}); left out: "
                f"{_listed(self._unreadable)}; {instead}"
            )
        if self._broken:
            _warn(f"mesh files that cannot be read: {_listed(self._broken)}; {instead}")


def _warn(message: str) -> None:
    warnings.warn(message, ModelWarning, stacklevel=5)  # the caller of export_html


def _listed(files: dict[str, str]) -> str:
    names = [f"{name} (of {frame!r})" for name, frame in files.items()]
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")


def _chosen(roles: dict[str, list[Shape]], parts: Sequence[Part]) -> list[Shape]:
    """Return a body's visual shapes, with its collision shapes shown where the visual ones are a detail or missing.

    In MJCF files a body's main shapes often collide, and only its eyes and markers do not.
    """
    visual, collision = roles.get("visual", []), roles.get("collision", [])
    size = lambda shapes: max((_radius(shape, parts) for shape in shapes), default=0.0)
    if size(visual) < size(collision) / 2 or not visual:
        return visual + [shape._replace(collision=False) for shape in collision]
    return visual + [shape for shape in collision if shape.kind != "mesh"]


def _radius(shape: Shape, parts: Sequence[Part]) -> float:
    """Return the radius of a ball about a shape's centre that holds it."""
    if shape.kind == "mesh":
        return float(np.ptp(parts[shape.mesh].vertices, axis=0).max()) / 2
    if shape.kind == "cylinder":
        return math.hypot(shape.size[0], shape.size[1] / 2)
    if shape.kind == "capsule":
        return shape.size[0] + shape.size[1] / 2
    return math.hypot(*shape.size) / 2 if shape.kind in ("box", "plane") else max(shape.size)


def _without_unused(shapes: list[Shape], parts: Sequence[Part]) -> Scene:
    """Return the scene with only those meshes that a shape refers to."""
    used = sorted({shape.mesh for shape in shapes if shape.mesh >= 0})
    renumbered = [shape._replace(mesh=used.index(shape.mesh)) if shape.mesh >= 0 else shape for shape in shapes]
    return Scene(renumbered, [parts[i] for i in used])


def _ends(model: Model, body: int) -> list[Numbers]:
    """Return where a body's capsules end, in its own frame."""
    children = [i for i, parent in enumerate(model.parents) if parent == body and model.joint_types[i] != "free"]
    if children or body < 0:
        return [_numbers(model.placement[i, 4:]) for i in children]
    frames = [i for i, carrier in enumerate(model.topology.frame_parents) if carrier == body]
    points = [_numbers(model.frame_placement[i, 4:]) for i in frames]
    mass, *moment = _numbers(model.inertia[body, :4])
    if mass > 0:
        points.append(tuple(2 * x / mass for x in moment))  # as far beyond the centre of mass
    return [max(points, key=lambda p: math.dist(p, (0, 0, 0)))] if points else []


def _girth(model: Model) -> float:
    """Return a length to go by where no two joints are apart: the largest radius of gyration."""
    inertia = np.asarray(model.inertia, np.float64)
    heavy = inertia[inertia[:, 0] > 0]
    turning = heavy[:, [4, 6, 9]].sum(1) / heavy[:, 0] if len(heavy) else np.ones(1)
    return 5 * float(np.sqrt(max(turning.max(), 0.0))) or 1.0


def _mark(model: Model, body: int, radius: float, colour: Numbers) -> Shape:
    """Return a mark at a body's joint: a drum about a hinge, a block along a slide, else a ball."""
    kind = model.topology.joints[body].mechanism.type
    along = _along(_numbers(model.axis[body]))
    if kind in ("revolute", "continuous", "helical", "cylindrical"):
        return Shape(body, "cylinder", (1.5 * radius, 3.2 * radius), (*along, 0.0, 0.0, 0.0), DARK)
    if kind == "prismatic":
        return Shape(body, "box", (2.6 * radius, 2.6 * radius, 5 * radius), (*along, 0.0, 0.0, 0.0), DARK)
    return Shape(body, "sphere", (1.7 * radius,), IDENTITY, DARK if kind != "free" else colour)


def _along(direction: Numbers) -> Numbers:
    """Return the quaternion that turns z into a direction."""
    return _numbers(Quaternion.from_matrix(align_z(Vec3(*direction).normalized())).to_array())


def _numbers(array: Any) -> Numbers:
    return tuple(np.asarray(array, np.float64).tolist())
