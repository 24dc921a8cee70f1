"""`ModelBuilder`: the one door through which every model comes, and where everything is validated.

Loaders, bundled models and users add bodies in any order; `build` checks the tree, numbers it depth-first
with children in the order they were added, merges fixed joints into the body that carries them (keeping
them as named frames) and returns a `Model`. All of it happens in NumPy, in float64.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jaxdyn import _checks
from jaxdyn._checks import ModelError, ModelWarning, suggestion
from jaxdyn.joints import JOINT_TYPES, Fixed, Joint, Mimic
from jaxdyn.model import consistency
from jaxdyn.model.geometry import SHAPES, Geometry, Shapes
from jaxdyn.model.model import Model
from jaxdyn.model.topology import Topology
from jaxdyn.spatial import Quaternion, RigidInertia, Sym3, Transform, Vec3

PER_JOINT = ("axis", "axis2", "pitch", "ratio", "offset")
PER_DOF = ("armature", "damping", "friction", "v_s", "stiffness", "velocity_limit", "effort_limit")
PER_COORDINATE = ("rest", "lower", "upper")


@dataclass(frozen=True)
class Link:
    """A body as it was added, with the joint that carries it. All numbers are float64 NumPy arrays."""

    name: str
    parent: str | None
    joint: Joint
    joint_name: str
    follows: str | None
    placement: np.ndarray
    inertia: np.ndarray
    custom: np.ndarray
    numbers: dict[str, np.ndarray]
    """The fields of PER_JOINT, PER_DOF and PER_COORDINATE."""
    line: int | None
    is_frame: bool = False
    """Added by `add_frame`: nothing but a name and a pose."""


class ModelBuilder:
    """Build a model body by body.

    Example:
        >>> import jaxdyn
        >>> builder = jaxdyn.ModelBuilder("two links")
        >>> _ = builder.add_body(
        ...     "upper", joint="revolute", axis=(0, 1, 0), mass=1.0, com=(0, 0, -0.5), inertia=(0.09, 0.09, 0.01)
        ... )
        >>> _ = builder.add_body(
        ...     "lower",
        ...     "upper",
        ...     joint="revolute",
        ...     axis=(0, 1, 0),
        ...     xyz=(0, 0, -1),
        ...     mass=1.0,
        ...     com=(0, 0, -0.5),
        ...     inertia=(0.09, 0.09, 0.01),
        ... )
        >>> _ = builder.add_frame("tip", "lower", xyz=(0, 0, -1))
        >>> builder.build()
        Model('two links': 2 bodies, nq=2, nv=2, 1 frames, float32)
    """

    def __init__(self, name: str = "robot", *, gravity: ArrayLike = (0.0, 0.0, -9.81), source: str | None = None):
        """Start an empty model; `source` is the file that error messages name."""
        self.name, self.source = str(name), source
        self.gravity = _checks.numbers("gravity", gravity, (3,))
        self.links: list[Link] = []
        self.geometry: list[Geometry] = []
        self._problems: list[tuple[str, int | None]] = []

    # ------------------------------------------------------------------ adding
    def add_body(
        self,
        name: str = "",
        parent: str | None = None,
        joint: Joint | str = "revolute",
        *,
        joint_name: str = "",
        xyz: ArrayLike = (0.0, 0.0, 0.0),
        rpy: ArrayLike | None = None,
        quaternion: ArrayLike | None = None,
        axis: ArrayLike = (0.0, 0.0, 1.0),
        axis2: ArrayLike = (1.0, 0.0, 0.0),
        pitch: float = 0.0,
        follows: str | None = None,
        ratio: float = 1.0,
        offset: float = 0.0,
        parameters: ArrayLike = (),
        mass: float = 0.0,
        com: ArrayLike = (0.0, 0.0, 0.0),
        inertia: Any = (0.0, 0.0, 0.0),
        armature: Any = 0.0,
        damping: Any = 0.0,
        friction: Any = 0.0,
        v_s: Any = 0.05,
        stiffness: Any = 0.0,
        rest: Any = None,
        lower: Any = -np.inf,
        upper: Any = np.inf,
        velocity_limit: Any = np.inf,
        effort_limit: Any = np.inf,
        line: int | None = None,
    ) -> Self:
        """Add a body and the joint that carries it.

        Args:
            name: its name; an empty one becomes `body_3`.
            parent: the body that carries it (may be added later), None for the world.
            joint: a joint type by name ("revolute", ...) or an instance of `jaxdyn.joints.Joint`.
            joint_name: name of the joint; an empty one becomes `joint_3`.
            xyz: where the joint sits in the parent's frame.
            rpy: its orientation there as roll, pitch, yaw, or
            quaternion: as w, x, y, z.
            axis: the joint's axis, in the joint's frame.
            axis2: second axis of a universal joint, in the body's frame.
            pitch: displacement per angle of a helical joint, m/rad.
            follows: name of a joint that this one mimics: q = ratio * q_followed + offset.
            ratio: see `follows`.
            offset: see `follows`.
            parameters: the numbers that a user's own joint type names in `custom_parameters`.
            mass: of the body.
            com: its centre of mass, in the body's frame.
            inertia: rotational inertia about the centre of mass in the axes of the body's frame: (3, 3),
                or the three principal ones.
            armature: reflected rotor inertia; a number, or one per degree of freedom, as are the next.
            damping: viscous friction coefficient.
            friction: Coulomb friction.
            v_s: speed at which Coulomb friction sets in.
            stiffness: of the joint's spring.
            rest: where that spring is relaxed, one number per coordinate; neutral if not given.
            lower: lower position limit, a number or one per coordinate.
            upper: upper position limit.
            velocity_limit: largest speed.
            effort_limit: largest force or torque.
            line: where in the source file, for messages.

        Returns:
            The builder.
        """
        name = name or self._unused("body", {link.name for link in self.links})
        what = f"body {name!r}"
        try:
            joint = _joint_type(joint, what)
            joint_name = joint_name or self._unused("joint", {link.joint_name for link in self.links})
            what_joint = f"joint {joint_name!r}"
            if follows is not None:
                if joint.nq != 1:
                    raise ModelError(
                        f"{what_joint}: only a joint with one coordinate can follow another; "
                        f"a {joint.type} joint has {joint.nq}"
                    )
                joint = Mimic(joint)
            own = joint.inner if isinstance(joint, Mimic) else joint
            numbers = {
                "axis": _unit(f"{what_joint}: axis", axis),
                "axis2": _unit(f"{what_joint}: axis2", axis2),
                "pitch": _checks.numbers(f"{what_joint}: pitch", pitch, ()),
                "ratio": _checks.numbers(f"{what_joint}: ratio", ratio, ()),
                "offset": _checks.numbers(f"{what_joint}: offset", offset, ()),
                "rest": _coordinates(f"{what_joint}: rest", joint.neutral() if rest is None else rest, joint.nq),
                "lower": _limit(f"{what_joint}: lower limit", lower, joint.nq),
                "upper": _limit(f"{what_joint}: upper limit", upper, joint.nq),
            }
            if np.any(numbers["lower"] > numbers["upper"]):
                raise ModelError(f"{what_joint}: lower limit must not lie above upper limit; got {lower} and {upper}")
            for field, value in (("armature", armature), ("damping", damping), ("friction", friction),
                                 ("stiffness", stiffness)):  # fmt: skip
                numbers[field] = _not_negative(f"{what_joint}: {field}", value, joint.nv)
            for field, value in (("velocity_limit", velocity_limit), ("effort_limit", effort_limit)):
                numbers[field] = _limit(f"{what_joint}: {field.replace('_', ' ')}", value, joint.nv)
                if np.any(numbers[field] < 0):
                    raise ModelError(f"{what_joint}: {field.replace('_', ' ')} must not be negative; got {value}")
            numbers["v_s"] = _coordinates(f"{what_joint}: v_s", v_s, joint.nv)
            if np.any(numbers["v_s"] <= 0):
                raise ModelError(f"{what_joint}: v_s must be positive; got {v_s}")
            if own.type == "universal" and np.linalg.norm(np.cross(numbers["axis"], numbers["axis2"])) < 1e-6:
                raise ModelError(
                    f"{what_joint}: the two axes of a universal joint must not be parallel; "
                    f"got {_plain(axis)} and {_plain(axis2)}"
                )
            link = Link(
                name=name,
                parent=parent,
                joint=joint,
                joint_name=joint_name,
                follows=follows,
                placement=_placement(what_joint, xyz, rpy, quaternion),
                inertia=self._inertia(what, mass, com, inertia, line),
                custom=_checks.numbers(f"{what_joint}: parameters", parameters, (len(own.custom_parameters),)),
                numbers=numbers,
                line=line,
            )
        except ModelError as error:
            raise self._error(error.reason, line) from None
        self.links.append(link)
        return self

    def add_frame(
        self,
        name: str,
        parent: str | None = None,
        *,
        xyz: ArrayLike = (0.0, 0.0, 0.0),
        rpy: ArrayLike | None = None,
        quaternion: ArrayLike | None = None,
        line: int | None = None,
    ) -> Self:
        """Add a named frame to a body (or to another frame, or to the world)."""
        self.add_body(name, parent, Fixed(), joint_name=f"{name}_fixed" if name else "", xyz=xyz, rpy=rpy,
                      quaternion=quaternion, line=line)  # fmt: skip
        self.links[-1] = replace(self.links[-1], is_frame=True)
        return self

    def add_geometry(
        self,
        frame: str,
        shape: str,
        size: ArrayLike,
        *,
        xyz: ArrayLike = (0.0, 0.0, 0.0),
        rpy: ArrayLike | None = None,
        quaternion: ArrayLike | None = None,
        colour: ArrayLike | None = None,
        mesh: str | None = None,
        role: str = "visual",
        line: int | None = None,
    ) -> Self:
        """Add a shape for viewers to a body or frame; see `Geometry` for shapes and sizes."""
        what = f"geometry of {frame!r}"
        try:
            if shape not in SHAPES:
                raise ModelError(f"{what}: unknown shape {shape!r}: {suggestion(shape, SHAPES)}")
            if role not in ("visual", "collision"):
                raise ModelError(f"{what}: role must be 'visual' or 'collision'; got {role!r}")
            sizes = _checks.numbers(f"{what}: size of a {shape}", size, (SHAPES[shape],))
            pose = _placement(what, xyz, rpy, quaternion)
            rgba = None if colour is None else _plain(_checks.numbers(f"{what}: colour", colour, (4,)))
        except ModelError as error:
            raise self._error(error.reason, line) from None
        self.geometry.append(Geometry(frame, shape, _plain(sizes), _plain(pose), rgba, mesh, role))
        return self

    def warn(self, message: str, line: int | None = None) -> None:
        """Note something that `build` will report as a ModelWarning, or refuse under `strict=True`."""
        self._problems.append((message, line))

    @classmethod
    def from_model(cls, model: Model) -> Self:
        """Return a builder that would build `model` again; for editing."""
        t = model.topology
        builder = cls(t.name, gravity=np.asarray(model.gravity))
        arrays = {name: np.asarray(getattr(model, name), np.float64) for name in PER_JOINT + PER_DOF + PER_COORDINATE}
        placement, inertia, custom, frames = (
            np.asarray(x, np.float64)
            for x in (model.placement, model.inertia, model.joint_parameters, model.frame_placement)
        )
        bodies = (*t.body_names, None)  # [-1] is the world

        def add_frames(on_world: bool) -> None:
            for name, parent, pose in zip(t.frame_names, t.frame_parents, frames, strict=True):
                if (parent < 0) == on_world:
                    builder.add_frame(name, bodies[parent], xyz=pose[4:], quaternion=pose[:4])

        add_frames(on_world=True)
        for i, joint in enumerate(t.joints):
            q, qd = model.q_slice(t.joint_names[i]), model.qd_slice(t.joint_names[i])
            own = joint.inner if isinstance(joint, Mimic) else joint
            numbers = {n: arrays[n][i] for n in PER_JOINT}
            numbers |= {n: arrays[n][qd] for n in PER_DOF} | {n: arrays[n][q] for n in PER_COORDINATE}
            builder.links.append(
                Link(
                    name=t.body_names[i],
                    parent=bodies[t.parents[i]],
                    joint=joint,
                    joint_name=t.joint_names[i],
                    follows=None if t.followed[i] < 0 else t.joint_names[t.followed[i]],
                    placement=_unit_pose(placement[i]),
                    inertia=inertia[i],
                    custom=custom[i, : len(own.custom_parameters)],
                    numbers=numbers,
                    line=None,
                )
            )
        add_frames(on_world=False)
        builder.geometry = list(model.geometry)
        return builder

    # ------------------------------------------------------------------ building
    def build(self, *, strict: bool = False) -> Model:
        """Check everything and return the model.

        Args:
            strict: refuse what is otherwise reported as a `ModelWarning`: inertias that no real body can
                have, joints that move no inertia, and what a loader had to repair.

        Returns:
            The model, in JAX's default floating-point type.
        """
        model, problems = self.assemble()
        if strict and problems:
            reasons = "; ".join(message for message, _ in problems)
            raise self._error(f"refused because strict=True: {reasons}", problems[0][1])
        for message, line in problems:
            warnings.warn(str(self._error(message, line)), ModelWarning, stacklevel=2)
        return model

    def assemble(self) -> tuple[Model, list[tuple[str, int | None]]]:
        """Return the model and its problems, each with its line in the source, without reporting them."""
        links = [self.links[i] for i in self._depth_first()]

        # Fixed links are merged: carrier[name] = (moving body or -1, pose in it).
        moving: list[Link] = []
        parents: list[int] = []
        placements: list[np.ndarray] = []
        inertias: list[np.ndarray] = []
        frames: list[tuple[str, int, np.ndarray]] = []
        carrier: dict[str | None, tuple[int, Transform]] = {None: (-1, Transform.identity())}
        for link in links:
            body, X_body_parent = carrier[link.parent]
            X_body_joint = X_body_parent @ Transform.from_pose(link.placement)
            pose = (
                _pose(X_body_joint) if link.parent is not None and not _is_identity(X_body_parent) else link.placement
            )
            if not isinstance(link.joint, Fixed):
                carrier[link.name] = (len(moving), Transform.identity())
                moving.append(link)
                parents.append(body)
                placements.append(pose)
                inertias.append(link.inertia)
                continue
            carrier[link.name] = (body, X_body_joint)
            frames.append((link.name, body, pose))
            if body >= 0 and np.any(link.inertia):
                shifted = RigidInertia.from_parameters(link.inertia).transform(X_body_joint)
                inertias[body] = inertias[body] + shifted.to_parameters()

        index = {link.joint_name: i for i, link in enumerate(moving)}
        followed, ratio, offset = self._resolve_mimics(moving, index)
        topology = Topology(
            name=self.name,
            parents=tuple(parents),
            joints=tuple(link.joint for link in moving),
            body_names=tuple(link.name for link in moving),
            joint_names=tuple(link.joint_name for link in moving),
            followed=followed,
            frame_names=tuple(name for name, _, _ in frames),
            frame_parents=tuple(body for _, body, _ in frames),
        )
        custom = max((len(link.custom) for link in moving), default=0)
        numbers = {name: _rows([link.numbers[name] for link in moving], size)
                   for name, size in (("axis", 3), ("axis2", 3), ("pitch", None))}  # fmt: skip
        numbers |= {name: np.concatenate([link.numbers[name] for link in moving] or [np.zeros(0)])
                    for name in PER_DOF + PER_COORDINATE}  # fmt: skip
        numbers |= {
            "ratio": ratio,
            "offset": offset,
            "placement": _rows(placements, 7),
            "inertia": _rows(inertias, 10),
            "joint_parameters": _rows([np.pad(x.custom, (0, custom - len(x.custom))) for x in moving], custom),
            "frame_placement": _rows([pose for _, _, pose in frames], 7),
            "gravity": self.gravity,
        }
        self._check_geometry(carrier)
        problems = self._problems + [
            (message, moving[i].line) for i, message in consistency.massless_joints(topology, numbers)
        ]
        leaves = {name: jnp.asarray(value, jnp.result_type(float)) for name, value in numbers.items()}
        return Model(**leaves, topology=topology, geometry=Shapes(self.geometry)), problems

    def _depth_first(self) -> list[int]:
        """Check that the links form trees and return their order, depth-first, children as added."""
        index: dict[str, int] = {}
        joints: dict[str, int] = {}
        for i, link in enumerate(self.links):
            if link.name in index:
                raise self._error(f"two bodies or frames are named {link.name!r}; names must be unique", link.line)
            if link.joint_name in joints and not link.is_frame:
                raise self._error(f"two joints are named {link.joint_name!r}; names must be unique", link.line)
            index[link.name] = i
            if not link.is_frame:
                joints[link.joint_name] = i
        children: dict[str | None, list[int]] = {}
        for i, link in enumerate(self.links):
            if link.parent is not None and link.parent not in index:
                raise self._error(
                    f"body {link.name!r} hangs on {link.parent!r}, which does not exist: "
                    f"{suggestion(link.parent, index)}",
                    link.line,
                )
            children.setdefault(link.parent, []).append(i)
        order: list[int] = []
        todo = list(reversed(children.get(None, [])))
        while todo:
            order.append(i := todo.pop())
            todo += reversed(children.get(self.links[i].name, []))
        if len(order) < len(self.links):
            loop = self._find_loop(next(i for i in range(len(self.links)) if i not in set(order)), index)
            raise self._error(
                "bodies carry each other in a loop: " + " -> ".join(repr(n) for n in loop),
                self.links[index[loop[0]]].line,
            )
        return order

    def _find_loop(self, start: int, index: dict[str, int]) -> list[str]:
        seen: list[str] = []
        name = self.links[start].name
        while name not in seen:
            seen.append(name)
            parent = self.links[index[name]].parent
            assert parent is not None  # or it would have been reached from the world
            name = parent
        return [*reversed(seen[seen.index(name) :]), seen[-1]] if len(seen) > 1 else [name, name]

    def _resolve_mimics(
        self, moving: list[Link], index: dict[str, int]
    ) -> tuple[tuple[int, ...], np.ndarray, np.ndarray]:
        """Return for every joint the independent joint it follows (or -1), ratio and offset."""
        followed = [-1] * len(moving)
        ratio, offset = (np.array([link.numbers[n] for link in moving]) for n in ("ratio", "offset"))
        for i, link in enumerate(moving):
            if link.follows is None:
                continue
            a, b, at, seen = 1.0, 0.0, link, [link.joint_name]
            while at.follows is not None:
                a, b = a * float(at.numbers["ratio"]), b + a * float(at.numbers["offset"])
                if at.follows not in index:
                    raise self._error(
                        f"joint {at.joint_name!r} mimics {at.follows!r}, which is not a moving joint: "
                        f"{suggestion(at.follows, index)}",
                        link.line,
                    )
                at = moving[index[at.follows]]
                if at.joint_name in seen:
                    raise self._error(
                        f"joints mimic each other in a loop: {' -> '.join([*seen, at.joint_name])}", link.line
                    )
                seen.append(at.joint_name)
            if at.joint.nq != 1:
                raise self._error(
                    f"joint {link.joint_name!r} mimics {at.joint_name!r}, a {at.joint.type} joint with "
                    f"{at.joint.nq} coordinates; only a joint with one can be followed",
                    link.line,
                )
            followed[i], ratio[i], offset[i] = index[at.joint_name], a, b
        return tuple(followed), ratio, offset

    def _inertia(self, what: str, mass: Any, com: Any, inertia: Any, line: int | None) -> np.ndarray:
        """Return the ten parameters about the body's origin; note an inertia that no real body can have."""
        m = float(_checks.numbers(f"{what}: mass", mass, ()))
        if m < 0:
            raise ModelError(f"{what}: mass must not be negative; got {m}")
        c = Vec3.from_array(_checks.numbers(f"{what}: com", com, (3,)))
        shape = np.shape(inertia)
        if shape == (3, 3):
            I = _checks.numbers(f"{what}: inertia", inertia, (3, 3))
            if not np.allclose(I, I.T, rtol=1e-9, atol=1e-12 * np.abs(I).max()):
                raise ModelError(f"{what}: inertia must be symmetric; got {_plain(I)}")
        else:
            I = np.diag(_checks.numbers(f"{what}: inertia (3 x 3, or 3 principal moments)", inertia, (3,)))
        self._problems += [(f"{what}: {problem}", line) for problem in consistency.inertia_problems(m, I)]
        return RigidInertia.from_com(m, c, Sym3.from_array(I)).to_parameters()

    def _check_geometry(self, carrier: dict[str | None, Any]) -> None:
        for geometry in self.geometry:
            if geometry.frame not in carrier:
                raise self._error(
                    f"geometry hangs on {geometry.frame!r}, which does not exist: "
                    f"{suggestion(geometry.frame, [n for n in carrier if n])}",
                    None,
                )

    def _error(self, reason: str, line: int | None) -> ModelError:
        return ModelError(reason, source=self.source, line=line)

    def _unused(self, kind: str, taken: set[str]) -> str:
        number = sum(not link.is_frame for link in self.links)
        while f"{kind}_{number}" in taken:
            number += 1
        return f"{kind}_{number}"


def _joint_type(joint: Joint | str, what: str) -> Joint:
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


def _unit(what: str, axis: Any) -> np.ndarray:
    vector = _checks.numbers(what, axis, (3,))
    length = np.linalg.norm(vector)
    if length < 1e-12:
        raise ModelError(f"{what} must not be zero; got {_plain(vector)}")
    return vector if abs(length - 1) < 1e-15 else vector / length


def _placement(what: str, xyz: Any, rpy: Any, quaternion: Any) -> np.ndarray:
    """Return quaternion and position, (7,)."""
    if rpy is not None and quaternion is not None:
        raise ModelError(f"{what}: give rpy or quaternion, not both")
    position = _checks.numbers(f"{what}: xyz", xyz, (3,))
    if quaternion is not None:
        q = _checks.numbers(f"{what}: quaternion (w, x, y, z)", quaternion, (4,))
        if np.linalg.norm(q) < 1e-12:
            raise ModelError(f"{what}: quaternion must not be zero; got {_plain(q)}")
    elif rpy is not None:
        q = Quaternion.from_rpy(*_checks.numbers(f"{what}: rpy", rpy, (3,))).to_array()
    else:
        q = np.array([1.0, 0.0, 0.0, 0.0])
    return _unit_pose(np.concatenate([q, position]))


def _unit_pose(pose: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(pose[:4])
    return pose if abs(length - 1) < 1e-15 else np.concatenate([pose[:4] / length, pose[4:]])


def _pose(X: Transform) -> np.ndarray:
    return np.asarray(X.to_pose(), np.float64)


def _is_identity(X: Transform) -> bool:
    return Transform.identity() == X


def _coordinates(what: str, value: Any, count: int) -> np.ndarray:
    """Return one number per coordinate, from as many or from a single one."""
    shape = np.shape(value)
    return np.broadcast_to(_checks.numbers(what, value, (count,) if shape else ()), (count,)).copy()


def _not_negative(what: str, value: Any, count: int) -> np.ndarray:
    array = _coordinates(what, value, count)
    if np.any(array < 0):
        raise ModelError(f"{what} must not be negative; got {_plain(array)}")
    return array


def _limit(what: str, value: Any, count: int) -> np.ndarray:
    """As `_coordinates`, but infinite values mean that there is no limit."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise ModelError(f"{what} must be a number or {count} numbers; got {value!r}") from None
    finite = np.where(np.isinf(array), 0.0, array)
    _coordinates(what, finite, count)
    return np.broadcast_to(array, (count,)).copy()


def _rows(rows: list[np.ndarray], size: int | None) -> np.ndarray:
    """Stack rows, also if there are none."""
    if rows:
        return np.stack(rows)
    return np.zeros(0 if size is None else (0, size))


def _plain(array: Any) -> tuple[Any, ...]:
    return tuple(np.asarray(array, np.float64).tolist())
