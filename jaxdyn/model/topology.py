"""The static part of a model: who carries whom, by which joint, under which name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from jaxdyn._checks import suggestion
from jaxdyn._numerics import rows
from jaxdyn.joints import LEAVES, Joint, JointParameters, Mimic
from jaxdyn.spatial import Vec3


class JointGroup(NamedTuple):
    """All joints of one type: where they are, and which coordinates they read.

    Indices are int32, which JAX takes with and without its 64-bit flag.
    """

    joint: Joint
    bodies: np.ndarray
    """(k,) indices of the bodies they carry."""
    q: np.ndarray
    """(k, reads) indices into q, those that `Joint.transform` reads."""
    qd: np.ndarray
    """(k, columns) indices into qd, one for each column of `Joint.subspace`."""


def joint_parameters(leaves: Mapping[str, Any], bodies: Any, joint: Joint) -> JointParameters:
    """Return the parameters of joints of one type, their axes normalised.

    Args:
        leaves: a model's leaves by name, in NumPy or JAX.
        bodies: index of the bodies that the joints carry.
        joint: their type.
    """
    read = {name: rows(leaves[name], bodies) for name in joint.leaves}
    custom = read.pop("joint_parameters", ())
    for name in ("axis", "axis2"):
        if name in read:
            read[name] = Vec3.from_array(read[name]).normalized()
    numbers = tuple(custom[..., i] for i in range(len(joint.mechanism.custom_parameters)))
    return JointParameters(**read, custom=numbers)


@dataclass(frozen=True, eq=False)
class Topology:
    """Bodies, joints and frames by number and name; hashed once, equal by value.

    Bodies are numbered base to tip, depth-first, so that `parents[i] < i`; the world is -1. Joint i
    carries body i.
    """

    name: str
    parents: tuple[int, ...]
    joints: tuple[Joint, ...]
    body_names: tuple[str, ...]
    joint_names: tuple[str, ...]
    followed: tuple[int, ...]
    """For a mimic joint the index of the joint it follows, else -1."""
    frame_names: tuple[str, ...]
    """Named frames other than the bodies' own."""
    frame_parents: tuple[int, ...]
    """The body that carries each frame, -1 for the world."""

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f.name) for f in fields(self))

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is cached: hashes of text differ from process to process."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __eq__(self, other: Any) -> bool:
        return self is other or (type(other) is Topology and self._key == other._key)

    @property
    def nbodies(self) -> int:
        return len(self.parents)

    @cached_property
    def nq(self) -> int:
        return sum(joint.nq for joint in self.joints)

    @cached_property
    def nv(self) -> int:
        return sum(joint.nv for joint in self.joints)

    @cached_property
    def q_start(self) -> tuple[int, ...]:
        """First coordinate that each joint reads: its own, or that of the joint it follows."""
        return self._starts([joint.nq for joint in self.joints])

    @cached_property
    def qd_start(self) -> tuple[int, ...]:
        """First velocity of each joint, or of the joint it follows."""
        return self._starts([joint.nv for joint in self.joints])

    def _starts(self, counts: list[int]) -> tuple[int, ...]:
        own = np.concatenate([[0], np.cumsum(counts)]).astype(int)
        return tuple(int(own[i if r < 0 else r]) for i, r in enumerate(self.followed))

    @cached_property
    def groups(self) -> tuple[JointGroup, ...]:
        """The joints by type, in order of first appearance."""
        members: dict[Joint, list[int]] = {}
        for i, joint in enumerate(self.joints):
            members.setdefault(joint, []).append(i)
        return tuple(self._group(joint, np.array(bodies, np.int32)) for joint, bodies in members.items())

    def _group(self, joint: Joint, bodies: np.ndarray) -> JointGroup:
        reads = joint.nq if joint.reads is None else joint.reads
        columns = joint.nv if joint.reads is None else joint.reads
        q = np.array(self.q_start, np.int32)[bodies][:, None] + np.arange(reads, dtype=np.int32)[None]
        qd = np.array(self.qd_start, np.int32)[bodies][:, None] + np.arange(columns, dtype=np.int32)[None]
        return JointGroup(joint, bodies, q, qd)

    @cached_property
    def own_groups(self) -> tuple[JointGroup, ...]:
        """The joints by type without those that have no coordinates of their own."""
        return tuple(group for group in self.groups if group.joint.nq)

    @cached_property
    def joint_leaves(self) -> tuple[str, ...]:
        """The leaves of a model that its joints read."""
        return tuple(name for name in LEAVES if any(name in group.joint.leaves for group in self.groups))

    @cached_property
    def mimic_names(self) -> tuple[str, ...]:
        """Names of the mimic joints."""
        return tuple(n for n, joint in zip(self.joint_names, self.joints, strict=True) if isinstance(joint, Mimic))

    @cached_property
    def _joint_index(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.joint_names)}

    @cached_property
    def _frame_index(self) -> Mapping[str, tuple[int, int]]:
        """Name to (body, frame): frame is -1 for a body's own frame."""
        bodies = {name: (i, -1) for i, name in enumerate(self.body_names)}
        return bodies | {name: (self.frame_parents[i], i) for i, name in enumerate(self.frame_names)}

    def joint_index(self, name: str) -> int:
        """Return the index of a joint, or raise a KeyError-like ValueError with near matches."""
        try:
            return self._joint_index[name]
        except (KeyError, TypeError):
            raise ValueError(f"no joint named {name!r}: {suggestion(name, self.joint_names)}") from None

    def find_frame(self, name: str) -> tuple[int, int]:
        """Return (body, frame) of a body's or frame's name; frame is -1 for a body's own frame."""
        try:
            return self._frame_index[name]
        except (KeyError, TypeError):
            raise ValueError(f"no body or frame named {name!r}: {suggestion(name, self._frame_index)}") from None
