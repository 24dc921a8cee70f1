"""Robots written as tables.

A robot is a table of rows, one per body, and a table of frames. A body's inertia is that of the solids it
is made of, which are also what a viewer shows, so that every body is one that could be built. At the
neutral configuration all frames of our own robots are parallel to the world's: x forward, y left, z up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from jaxdyn.model.builder import ModelBuilder
from jaxdyn.model.model import Model
from jaxdyn.model.shapes import Solid, lump

Triple = tuple[float, float, float]

X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
ORIGIN = (0.0, 0.0, 0.0)
FREE = (-math.inf, math.inf)

LIGHT, STEEL, DARK = (0.90, 0.90, 0.88, 1.0), (0.55, 0.58, 0.62, 1.0), (0.18, 0.19, 0.21, 1.0)
ORANGE, BLUE = (0.93, 0.49, 0.13, 1.0), (0.20, 0.42, 0.70, 1.0)


class Drive(NamedTuple):
    """What moves a joint, and what hinders it; the names are those of `ModelBuilder.add_body`."""

    effort_limit: float = math.inf
    velocity_limit: float = math.inf
    armature: float = 0.0
    damping: float = 0.0
    friction: float = 0.0


UNDRIVEN = Drive()


@dataclass(frozen=True)
class Row:
    """A body, the joint that carries it, and the solids it is made of.

    Names and parents of a limb's rows hold `{}`, which `limb` fills in.
    """

    body: str
    parent: str | None
    joint_name: str
    axis: Triple
    xyz: Triple
    solids: tuple[Solid, ...]
    limits: tuple[float, float] = FREE
    drive: Drive = UNDRIVEN
    joint: str = "revolute"
    other: dict[str, Any] = field(default_factory=dict)
    """Further arguments of `add_body`; if `mass` is one, the solids are only shown."""

    def mirrored(self) -> Self:
        """Return the row of the other side: mirrored in the x-z plane, axes as they are, limits to match."""
        x, y, z = self.xyz
        lower, upper = self.limits
        return replace(
            self,
            xyz=(x, -y, z),
            solids=tuple(solid.mirrored() for solid in self.solids),
            # Turns about y are the same on both sides, those about x and z opposite.
            limits=(lower, upper) if self.axis == Y else (-upper, -lower),
        )


class Frame(NamedTuple):
    """A named frame on a body (None: the world) and the shapes that it shows."""

    name: str
    parent: str | None
    xyz: Triple = ORIGIN
    solids: tuple[Solid, ...] = ()


def limb(rows: Iterable[Row], prefix: str, at: Triple = ORIGIN) -> list[Row]:
    """Name the rows of a limb by its prefix and move its root by `at`; a right limb is mirrored."""
    root, *others = rows
    (x, y, z), (dx, dy, dz) = root.xyz, at
    limb = []
    for row in (replace(root, xyz=(x + dx, y + dy, z + dz)), *others):
        body, parent, joint_name = (str(n).format(prefix) for n in (row.body, row.parent, row.joint_name))
        named = replace(row, body=body, parent=parent, joint_name=joint_name)
        limb.append(named.mirrored() if "right" in prefix else named)
    return limb


def build(name: str, rows: Iterable[Row], frames: Sequence[Frame]) -> Model:
    """Return the model of a table; frames on the world come first."""
    builder = ModelBuilder(name)
    for frame in (frame for frame in frames if frame.parent is None):
        _add_frame(builder, frame)
    for row in rows:
        body = dict(row.other)
        if "mass" not in body:
            body["mass"], body["com"], body["inertia"] = lump(row.solids)
        builder.add_body(
            row.body, row.parent, row.joint, joint_name=row.joint_name, axis=row.axis, xyz=row.xyz,
            lower=row.limits[0], upper=row.limits[1], **row.drive._asdict(), **body,
        )  # fmt: skip
        _show(builder, row.body, row.solids)
    for frame in (frame for frame in frames if frame.parent is not None):
        _add_frame(builder, frame)
    return builder.build(strict=True)


def _add_frame(builder: ModelBuilder, frame: Frame) -> None:
    builder.add_frame(frame.name, frame.parent, xyz=frame.xyz)
    _show(builder, frame.name, frame.solids)


def _show(builder: ModelBuilder, frame: str, solids: Iterable[Solid]) -> None:
    for s in solids:
        builder.add_geometry(frame, s.shape, s.size, xyz=s.centre, quaternion=s.quaternion, colour=s.colour)
