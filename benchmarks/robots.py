"""The robots that are measured, here and in Pinocchio, and random states of them.

All are bare: no limits, damping, friction, springs, shapes or frames, so that every library computes the same
and carries nothing else along.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pinocchio as pin

import jaxdyn
from jaxdyn import Model, ModelBuilder, ModelWarning
from jaxdyn.model.random_models import random_chain, random_tree

FILES = {
    "arm": "panda_description/urdf/panda.urdf",
    "anymal": "anymal_b_simple_description/robots/anymal.urdf",
    "talos": "talos_data/robots/talos_reduced.urdf",
    "romeo": "romeo_description/urdf/romeo.urdf",
    "tiago_dual": "tiago_description/robots/tiago_dual.urdf",
}
FLOATING = ("anymal", "talos")
FINGERS = ("panda_finger_joint1", "panda_finger_joint2")
ROMEO_ARMATURE = 1e-3
"""Romeo's finger joints move no mass."""

RANDOM: dict[str, Callable[[int], Model]] = {
    "chain": lambda n: random_chain(n),
    "spherical": lambda n: random_chain(n, joints=("spherical",)),
    "floating": lambda n: _at_origin(random_tree(n, joints=("revolute",), floating_base=True, branching=0.0)),
    "tree": lambda n: random_tree(n, joints=("revolute",)),
}
"""Families of random robots: `chain7` is a chain of seven revolute joints."""


@dataclass(frozen=True)
class Robot:
    """One robot in the forms that the libraries read."""

    name: str
    model: Model
    """Bare, float64."""
    pin_model: Any
    """The same for Pinocchio: from the file by Pinocchio's own reader, if there is a file."""
    urdf: str | None
    """Text of a file without its floating base, for readers that add one; None if the format cannot hold it."""

    @property
    def floating(self) -> bool:
        """Whether the first joint is free."""
        return self.model.joint_types[0] == "free"


class States(NamedTuple):
    """A batch of random states in jaxdyn's conventions, float64."""

    q: np.ndarray
    qd: np.ndarray
    qdd: np.ndarray
    tau: np.ndarray

    def first(self, k: int) -> States:
        """Return the first k."""
        return States(*(x[:k] for x in self))


@functools.cache
def load_robot(name: str) -> Robot:
    """Return a robot by name: one of FILES, or a family of RANDOM and a number, such as "chain128"."""
    if name in FILES:
        return _from_file(name)
    match = re.fullmatch(r"([a-z]+)(\d+)", name)
    if not match or match[1] not in RANDOM:
        raise SystemExit(f"no robot {name!r}; there are {', '.join(FILES)} and {', '.join(f'{k}<n>' for k in RANDOM)}")
    model = bare(RANDOM[match[1]](int(match[2])))
    writable = all(kind == "revolute" for kind in model.joint_types)
    return Robot(name, model, to_pinocchio_model(model), _urdf_text(model) if writable else None)


def random_states(model: Model, batch: int, seed: int = 0) -> States:
    """Return random configurations, velocities, accelerations and forces."""
    rng = np.random.default_rng(seed)
    q = rng.uniform(-np.pi, np.pi, (batch, model.nq))
    for name, kind in zip(model.joint_names, model.joint_types, strict=True):
        if kind in ("spherical", "free"):
            start = model.q_slice(name).start
            quaternion = rng.normal(size=(batch, 4))
            q[:, start : start + 4] = quaternion / np.linalg.norm(quaternion, axis=1, keepdims=True)
    return States(q, *rng.normal(size=(3, batch, model.nv)))


def bare(model: Model) -> Model:
    """Return a model with bodies and joints, and nothing that is not needed for its dynamics."""
    builder = ModelBuilder.from_model(model)
    builder.links = [link for link in builder.links if not link.is_frame]
    builder.geometry = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        model = builder.build().astype(np.float64)
    nq, nv = model.nq, model.nv
    return model.replace(
        lower=np.full(nq, -np.inf), upper=np.full(nq, np.inf),
        velocity_limit=np.full(nv, np.inf), effort_limit=np.full(nv, np.inf),
        damping=np.zeros(nv), friction=np.zeros(nv), stiffness=np.zeros(nv),
    )  # fmt: skip


def to_pinocchio_model(model: Model) -> Any:
    """Build a model of revolute, spherical and free joints in Pinocchio, joint by joint."""
    made = pin.Model()
    placements, inertias = (np.asarray(x, np.float64) for x in (model.placement, model.inertia))
    axes = np.asarray(model.axis, np.float64)
    axes = axes / np.linalg.norm(axes, axis=1, keepdims=True)
    for i, (name, kind) in enumerate(zip(model.joint_names, model.joint_types, strict=True)):
        joint = {
            "revolute": lambda: pin.JointModelRevoluteUnaligned(axes[i]),
            "spherical": pin.JointModelSpherical,
            "free": pin.JointModelFreeFlyer,
        }[kind]()
        w, x, y, z = placements[i, :4] / np.linalg.norm(placements[i, :4])
        placement = pin.SE3(pin.Quaternion(w, x, y, z).toRotationMatrix(), placements[i, 4:])
        index = made.addJoint(model.parents[i] + 1, joint, placement, name)  # depth-first, as crba wants it
        made.appendBodyToJoint(index, pin.Inertia.FromDynamicParameters(inertias[i]), pin.SE3.Identity())
    made.armature = np.asarray(model.armature, np.float64)
    return made


def robot_data() -> Path:
    """Return the folder of the robots in the package example-robot-data."""
    files = importlib.metadata.files("example-robot-data") or []
    urdf = next(file for file in files if "/robots/" in str(file) and str(file).endswith(".urdf"))
    path = Path(str(urdf.locate())).resolve()
    return next(parent for parent in path.parents if parent.name == "robots")


def _at_origin(model: Model) -> Model:
    """Return a model whose first joint sits in the world's origin, where MuJoCo wants a free joint."""
    return model.replace(placement=model.placement.at[0].set(np.array([1.0, 0, 0, 0, 0, 0, 0])))


def _from_file(name: str) -> Robot:
    path, floating = robot_data() / FILES[name], name in FLOATING
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        model = jaxdyn.load(path, floating_base=floating, mimic=False)
        if name == "arm":
            model = jaxdyn.lock_joints(model, dict.fromkeys(FINGERS, 0.0))
    model = bare(model)
    pin_model = pin.buildModelFromUrdf(str(path), *([pin.JointModelFreeFlyer()] if floating else []))
    if name == "arm":
        fingers = [pin_model.getJointId(finger) for finger in FINGERS]
        pin_model = pin.buildReducedModel(pin_model, fingers, pin.neutral(pin_model))
    if name == "romeo":
        model = model.replace(armature=np.full(model.nv, ROMEO_ARMATURE))
        pin_model.armature = np.full(pin_model.nv, ROMEO_ARMATURE)
    urdf = path.read_text(encoding="utf-8") if floating else _urdf_text(model)
    return Robot(name, model, pin_model, urdf)


def _urdf_text(model: Model) -> str:
    """Write a model as URDF with wide limits, without which its joints would be written as continuous."""
    wide = np.full(model.nq, 1e3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        return jaxdyn.io.to_urdf(model.replace(lower=-wide, upper=wide))
