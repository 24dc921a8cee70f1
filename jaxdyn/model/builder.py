"""`ModelBuilder`: the one door through which every model comes.

Loaders, bundled models and users add bodies in any order; what they add is checked at once, and what they
make together when it is built. All of it happens in NumPy, in float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from jaxdyn import _checks
from jaxdyn._checks import ModelError, ModelWarning, suggestion
from jaxdyn.joints import Fixed, Joint, Mimic
from jaxdyn.model import consistency
from jaxdyn.model.assembly import Problem, assemble
from jaxdyn.model.geometry import SHAPES, Geometry
from jaxdyn.model.links import (
    Link,
    check_name,
    inertia_about_origin,
    joint_numbers,
    joint_of,
    links_of,
    placement,
    plain,
)
from jaxdyn.model.model import Model


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
        with self._place(None):
            self.gravity = _checks.numbers("gravity", gravity, (3,))
        self.links: list[Link] = []
        self.geometry: list[Geometry] = []
        self._problems: list[Problem] = []

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
            follows: name of a joint that this one mimics: q = ratio * q_followed + offset. Its limits are not
                kept; its armature, damping and friction act on the joint it follows.
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
        with self._place(line):
            mechanism = joint_of(joint, what)
            if not joint_name and not isinstance(mechanism, Fixed):
                joint_name = self._unused("joint", {link.joint_name for link in self.links})
            for kind, label in (("body", name), ("joint", joint_name)):
                check_name(kind, label)
            pi, m, I = inertia_about_origin(what, mass, com, inertia)
            what_joint = f"joint {joint_name!r}"
            numbers = joint_numbers(
                what_joint, mechanism, axis=axis, axis2=axis2, pitch=pitch, ratio=ratio, offset=offset,
                armature=armature, damping=damping, friction=friction, v_s=v_s, stiffness=stiffness, rest=rest,
                lower=lower, upper=upper, velocity_limit=velocity_limit, effort_limit=effort_limit,
            )  # fmt: skip
            if follows is not None:
                _check_follower(what_joint, mechanism, numbers)
            link = Link(
                name=name,
                parent=parent,
                joint=mechanism if follows is None else Mimic(mechanism),
                joint_name=joint_name,
                follows=follows,
                placement=placement(what_joint, xyz, rpy, quaternion),
                inertia=pi,
                custom=_checks.numbers(f"{what_joint}: parameters", parameters, (len(mechanism.custom_parameters),)),
                numbers=numbers,
                line=line,
            )
        self._problems += [(f"{what}: {problem}", line) for problem in consistency.inertia_problems(m, I)]
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
        self.add_body(name, parent, Fixed(), xyz=xyz, rpy=rpy, quaternion=quaternion, line=line)
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
        with self._place(line):
            if shape not in SHAPES:
                raise ModelError(f"{what}: unknown shape {shape!r}: {suggestion(shape, SHAPES)}")
            if role not in ("visual", "collision"):
                raise ModelError(f"{what}: role must be 'visual' or 'collision'; got {role!r}")
            sizes = _checks.numbers(f"{what}: size of a {shape}", size, (SHAPES[shape],))
            if shape != "mesh" and np.any(sizes < 0):
                raise ModelError(f"{what}: size of a {shape} must not be negative; got {plain(sizes)}")
            pose = placement(what, xyz, rpy, quaternion)
            rgba = None if colour is None else plain(_checks.numbers(f"{what}: colour", colour, (4,)))
        self.geometry.append(Geometry(frame, shape, plain(sizes), plain(pose), rgba, mesh, role))
        return self

    def warn(self, message: str, line: int | None = None) -> None:
        """Note something that `build` will report as a ModelWarning, or refuse under `strict=True`."""
        self._problems.append((message, line))

    @classmethod
    def from_model(cls, model: Model) -> Self:
        """Return a builder that would build `model` again; for editing."""
        t = model.topology
        builder = cls(t.name, gravity=np.asarray(model.gravity))
        frames = np.asarray(model.frame_placement, np.float64)
        bodies = (*t.body_names, None)  # [-1] is the world

        def add_frames(on_world: bool) -> None:
            for name, parent, pose in zip(t.frame_names, t.frame_parents, frames, strict=True):
                if (parent < 0) == on_world:
                    builder.add_frame(name, bodies[parent], xyz=pose[4:], quaternion=pose[:4])

        add_frames(on_world=True)
        builder.links += links_of(model)
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
            raise ModelError(f"refused because strict=True: {reasons}", source=self.source, line=problems[0][1])
        for message, line in problems:
            warnings.warn(str(ModelError(message, source=self.source, line=line)), ModelWarning, stacklevel=2)
        return model

    def assemble(self) -> tuple[Model, list[Problem]]:
        """Return the model and all that is doubtful about it, without reporting it."""
        with self._place(None):
            model, problems = assemble(self.name, self.gravity, self.links, self.geometry)
        return model, self._problems + problems

    @contextmanager
    def _place(self, line: int | None) -> Iterator[None]:
        """Add the source, and the line if it is not known, to errors from within."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused by name
                yield
        except ModelError as error:
            raise ModelError(error.reason, source=self.source, line=error.line or line) from None

    def _unused(self, kind: str, taken: set[str]) -> str:
        number = sum(not link.is_frame for link in self.links)
        while f"{kind}_{number}" in taken:
            number += 1
        return f"{kind}_{number}"


def _check_follower(what: str, joint: Joint, numbers: dict[str, np.ndarray]) -> None:
    if joint.nq != 1:
        raise ModelError(
            f"{what}: only a joint with one coordinate can follow another; a {joint.type} joint has {joint.nq}"
        )
    if np.any(numbers["stiffness"]):
        raise ModelError(f"{what}: a mimic joint has no spring of its own; give it to the joint it follows")
