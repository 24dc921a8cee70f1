"""Reduced models: lock joints, take a subtree."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from jaxdyn._checks import ModelError, ModelWarning
from jaxdyn.joints import Fixed, Mimic
from jaxdyn.model import consistency
from jaxdyn.model.builder import ModelBuilder
from jaxdyn.model.links import Link, coordinates
from jaxdyn.model.model import Model
from jaxdyn.spatial import Transform


def lock_joints(model: Model, positions: Mapping[str, Any]) -> Model:
    """Return a model in which some joints are welded at given positions.

    The bodies they carry are merged into their parents: inertias are lumped, the bodies' frames and all
    frames on them stay as named frames. A joint that mimics a locked one is locked where that puts it.

    Args:
        model: the model, with concrete leaves.
        positions: joint name -> q of that joint (a number, or nq numbers).

    Returns:
        The reduced model.

    Example:
        >>> import jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> wrist_fixed = jaxdyn.lock_joints(model, {"joint6": 0.5, "joint7": 0.0})
        >>> wrist_fixed.nv, wrist_fixed.frame_names
        (5, ('base', 'link6', 'link7', 'tool'))
    """
    if not isinstance(positions, Mapping):
        raise ModelError(f"positions must map joint names to q, such as {{'elbow': 0.5}}; got {positions!r}")
    model.require_single()
    t = model.topology
    where: dict[int, tuple[Any, ...]] = {}
    for name, q in positions.items():
        i = t.joint_index(name)
        joint = t.joints[i]
        if isinstance(joint, Mimic):
            raise ModelError(f"joint {name!r} mimics {t.joint_names[t.followed[i]]!r}: lock that one, this one follows")
        what = f"lock_joints: position of {name!r}"
        where[i] = tuple(coordinates(what, q, joint.nq))
        if joint.type in ("spherical", "free") and not np.any(where[i][:4]):
            raise ModelError(f"{what}: the quaternion must not be zero")
    for i, leader in enumerate(t.followed):
        if leader in where:
            where[i] = (float(model.ratio[i]) * where[leader][0] + float(model.offset[i]),)
    builder = ModelBuilder.from_model(model)
    locked = {t.body_names[i]: q for i, q in where.items()}
    builder.links = [_weld(link, locked[link.name]) if link.name in locked else link for link in builder.links]
    return build_in(builder, model)


def subtree(model: Model, body: str) -> Model:
    """Return the part of a model that hangs on one body: that body with its joint, and all it carries.

    The joint sits in the world where it sat in its parent's frame; frames on other bodies are dropped.

    Args:
        model: the model, with concrete leaves.
        body: name of the body.

    Returns:
        The smaller model.

    Example:
        >>> import jaxdyn
        >>> leg = jaxdyn.subtree(jaxdyn.load("quadruped"), "front_left_hip")
        >>> leg.joint_names
        ('front_left_hip_joint', 'front_left_thigh_joint', 'front_left_shank_joint')
    """
    t = model.topology
    root, frame = t.find_frame(body)
    if frame >= 0:
        raise ModelError(
            f"subtree needs a moving body; {body!r} is a frame on "
            + (f"{t.body_names[root]!r}" if root >= 0 else "the world")
        )
    kept = {root}
    for i, parent in enumerate(t.parents):
        if parent in kept:
            kept.add(i)
    for i in kept:
        if t.followed[i] >= 0 and t.followed[i] not in kept:
            raise ModelError(
                f"joint {t.joint_names[i]!r} mimics {t.joint_names[t.followed[i]]!r}, which is not in "
                f"the subtree of {body!r}: lock that joint first (lock_joints)"
            )
    builder = ModelBuilder.from_model(model)
    names = {t.body_names[i] for i in kept}
    builder.links = [
        replace(link, parent=None) if link.name == body else link
        for link in builder.links
        if link.name in names or (link.is_frame and link.parent in names)
    ]
    names |= {link.name for link in builder.links}
    builder.geometry = [shape for shape in builder.geometry if shape.frame in names]
    return build_in(builder, model)


def build_in(builder: ModelBuilder, model: Model) -> Model:
    """Build with the floating-point type of `model`, and report only what was not true of it already."""
    reduced, problems = builder.assemble()
    known = {message for _, message in consistency.massless_joints_of(model)}
    for message, _ in problems:
        if message not in known:
            warnings.warn(message, ModelWarning, stacklevel=3)
    return reduced.astype(model.dtype)


def _weld(link: Link, q: tuple[Any, ...]) -> Link:
    """Return the link with its joint fixed at q."""
    X = Transform.from_pose(link.placement) @ link.joint.mechanism.transform(link.joint_parameters, q)
    return replace(link, joint=Fixed(), follows=None, placement=np.asarray(X.to_pose(), np.float64))
