"""From links to a model: check the tree, number it, merge fixed joints, resolve mimic joints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._checks import ModelError, suggestion
from jaxdyn.joints import Fixed
from jaxdyn.model import consistency
from jaxdyn.model.geometry import Geometry, Shapes
from jaxdyn.model.links import PER_COORDINATE, PER_DOF, Link
from jaxdyn.model.model import Model
from jaxdyn.model.topology import Topology
from jaxdyn.spatial import RigidInertia, Transform

Problem = tuple[str, int | None]
"""What is doubtful, and on which line of the source."""


@np.errstate(over="ignore", invalid="ignore")  # what is not finite in the end is refused
def assemble(
    name: str, gravity: np.ndarray, links: Sequence[Link], geometry: Iterable[Geometry]
) -> tuple[Model, list[Problem]]:
    """Return the model that links make, and what is doubtful about its joints.

    Raises:
        ModelError: if the links form no tree, or refer to what does not exist; it knows the line.
    """
    links = depth_first(links)
    tree = _merge_fixed(links)
    followed = _resolve_mimics(tree.moving)
    moving = _with_followers(tree.moving, followed)
    topology = Topology(
        name=name,
        parents=tuple(tree.parents),
        joints=tuple(link.joint for link in moving),
        body_names=tuple(link.name for link in moving),
        joint_names=tuple(link.joint_name for link in moving),
        followed=tuple(leader for leader, _, _ in followed),
        frame_names=tuple(name for name, _, _ in tree.frames),
        frame_parents=tuple(body for _, body, _ in tree.frames),
    )
    width = max((len(link.custom) for link in moving), default=0)
    numbers = {name: _rows([link.numbers[name] for link in moving], 3) for name in ("axis", "axis2")}
    numbers |= {name: _flat([link.numbers[name][: link.joint.nv] for link in moving]) for name in PER_DOF}
    numbers |= {name: _flat([link.numbers[name][: link.joint.nq] for link in moving]) for name in PER_COORDINATE}
    numbers |= {
        "pitch": np.array([float(link.numbers["pitch"]) for link in moving]),
        "ratio": np.array([ratio for _, ratio, _ in followed]),
        "offset": np.array([offset for _, _, offset in followed]),
        "placement": _rows(tree.placements, 7),
        "inertia": _rows(tree.inertias, 10),
        "joint_parameters": _rows([np.pad(link.custom, (0, width - len(link.custom))) for link in moving], width),
        "frame_placement": _rows([pose for _, _, pose in tree.frames], 7),
        "gravity": gravity,
    }
    _check_finite(numbers, moving)
    names = {link.name for link in links}
    for shape in geometry:
        if shape.frame not in names:
            raise ModelError(
                f"geometry hangs on {shape.frame!r}, which does not exist: {suggestion(shape.frame, names)}"
            )
    model = Model(**cast(numbers, jnp.result_type(float)), topology=topology, geometry=Shapes(geometry))
    massless = consistency.massless_joints(topology, numbers)
    return model, [(message, moving[i].line) for i, message in massless]


def cast(numbers: Mapping[str, np.ndarray], dtype: Any) -> dict[str, jax.Array]:
    """Return leaves of a floating-point type; refuse a number that it cannot hold."""
    leaves = {name: jnp.asarray(value, dtype) for name, value in numbers.items()}
    for name, leaf in leaves.items():
        if not np.array_equal(np.isfinite(leaf), np.isfinite(numbers[name])):
            raise ModelError(f"{name} has numbers too large for {np.dtype(dtype).name}")
    return leaves


def depth_first(links: Sequence[Link]) -> list[Link]:
    """Check that links form trees and return them depth-first, children in the order they had."""
    index: dict[str, Link] = {}
    joints: set[str] = set()
    children: dict[str | None, list[Link]] = {}
    for link in links:
        if link.name in index:
            raise _error(f"two bodies or frames are named {link.name!r}; names must be unique", link)
        index[link.name] = link
        children.setdefault(link.parent, []).append(link)
        if not isinstance(link.joint, Fixed):
            if link.joint_name in joints:
                raise _error(f"two joints are named {link.joint_name!r}; names must be unique", link)
            joints.add(link.joint_name)
    for link in links:
        if link.parent is not None and link.parent not in index:
            hint = "the world is parent=None" if link.parent == "world" else suggestion(link.parent, index)
            raise _error(f"body {link.name!r} hangs on {link.parent!r}, which does not exist: {hint}", link)
    order: list[Link] = []
    todo = list(reversed(children.get(None, [])))
    while todo:
        order.append(link := todo.pop())
        todo += reversed(children.get(link.name, []))
    if len(order) < len(links):
        reached = {link.name for link in order}
        lost = next(link for link in links if link.name not in reached)
        loop = _find_loop(lost, index)
        raise _error("bodies carry each other in a loop: " + " -> ".join(repr(n) for n in loop), index[loop[0]])
    return order


def _find_loop(link: Link, index: dict[str, Link]) -> list[str]:
    """Return the names around the loop that a link, which the world does not carry, is in or hangs on."""
    inward = {link.name: 0}  # in order
    parent = str(link.parent)
    while parent not in inward:
        inward[parent] = len(inward)
        parent = str(index[parent].parent)
    loop = list(inward)[inward[parent] :]
    return [loop[0], *reversed(loop)]


@dataclass
class _Tree:
    """The moving bodies with what was merged into them, and the frames on them (name, body, pose)."""

    moving: list[Link] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    placements: list[np.ndarray] = field(default_factory=list)
    inertias: list[np.ndarray] = field(default_factory=list)
    frames: list[tuple[str, int, np.ndarray]] = field(default_factory=list)


def _merge_fixed(links: Iterable[Link]) -> _Tree:
    """Merge what fixed joints carry into the moving body (or the world) that carries them."""
    tree = _Tree()
    carrier: dict[str | None, tuple[int, Transform]] = {None: (-1, Transform.identity())}
    for link in links:
        body, X_body_parent = carrier[link.parent]
        X_body_joint = X_body_parent @ Transform.from_pose(link.placement)
        direct = Transform.identity() == X_body_parent
        pose = link.placement if direct else np.asarray(X_body_joint.to_pose(), np.float64)
        if isinstance(link.joint, Fixed):
            carrier[link.name] = (body, X_body_joint)
            tree.frames.append((link.name, body, pose))
            if body >= 0 and np.any(link.inertia):
                moved = RigidInertia.from_parameters(link.inertia).transform(X_body_joint)
                tree.inertias[body] = tree.inertias[body] + moved.to_parameters()
        else:
            carrier[link.name] = (len(tree.moving), Transform.identity())
            tree.moving.append(link)
            tree.parents.append(body)
            tree.placements.append(pose)
            tree.inertias.append(link.inertia)
    return tree


def _resolve_mimics(moving: Sequence[Link]) -> list[tuple[int, float, float]]:
    """Return for every joint the independent joint it follows (or -1), its ratio and offset."""
    index = {link.joint_name: i for i, link in enumerate(moving)}
    found: dict[int, tuple[int, float, float]] = {}
    for first in range(len(moving)):
        chain = [first]  # from a follower to a joint that is independent, or known already
        while moving[chain[-1]].follows is not None and chain[-1] not in found:
            link = moving[chain[-1]]
            leader = index.get(str(link.follows))
            if leader is None:
                hint = suggestion(str(link.follows), index)
                reason = f"joint {link.joint_name!r} mimics {link.follows!r}, which is not a moving joint: {hint}"
                raise _error(reason, link)
            chain.append(leader)
            if len(chain) > len(moving):
                start = chain.index(leader)
                loop = " -> ".join(moving[i].joint_name for i in chain[start : chain.index(leader, start + 1) + 1])
                raise _error(f"joints mimic each other in a loop: {loop}", link)
        end = chain.pop()
        found.setdefault(end, (-1, 1.0, 0.0))
        for i in reversed(chain):
            at, a, b = found[end] if found[end][0] >= 0 else (end, 1.0, 0.0)
            if moving[at].joint.nq != 1:
                raise _error(
                    f"joint {moving[i].joint_name!r} mimics {moving[at].joint_name!r}, a {moving[at].joint.type} joint "
                    f"with {moving[at].joint.nq} coordinates; only a joint with one can be followed",
                    moving[i],
                )
            ratio, offset = float(moving[i].numbers["ratio"]), float(moving[i].numbers["offset"])
            found[i] = (at, ratio * a, ratio * b + offset)
            end = i
    return [found[i] for i in range(len(moving))]


def _with_followers(moving: Sequence[Link], followed: Sequence[tuple[int, float, float]]) -> list[Link]:
    """Bring armature, damping and friction of mimic joints to the joints they follow."""
    links = list(moving)
    for follower, (leader, ratio, _) in zip(moving, followed, strict=True):
        if leader >= 0 and len(follower.numbers["armature"]):
            numbers = dict(links[leader].numbers)
            for name, factor in (("armature", ratio**2), ("damping", ratio**2), ("friction", abs(ratio))):
                numbers[name] = numbers[name] + factor * follower.numbers[name]
            links[leader] = replace(links[leader], numbers=numbers)
    return links


def _check_finite(numbers: dict[str, np.ndarray], moving: Sequence[Link]) -> None:
    """Refuse what overflowed on the way, naming the body where there is one."""
    for name in ("placement", "inertia", "ratio", "offset"):
        for row, link in zip(numbers[name], moving, strict=True):
            if not np.all(np.isfinite(row)):
                raise _error(f"{name} of body {link.name!r} is not finite: numbers in it are too large", link)
    for name in ("armature", "damping", "friction", "frame_placement"):
        if not np.all(np.isfinite(numbers[name])):
            raise ModelError(f"{name} is not finite: numbers in it are too large")


def _error(reason: str, link: Link) -> ModelError:
    return ModelError(reason, line=link.line)


def _rows(rows: list[np.ndarray], size: int) -> np.ndarray:
    """Stack rows, also if there are none."""
    return np.stack(rows) if rows else np.zeros((0, size))


def _flat(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([*parts, np.zeros(0)])
