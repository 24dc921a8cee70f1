"""Shapes for viewers: static data that the dynamics never reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Numbers = tuple[float, ...]

SHAPES: dict[str, int] = {"box": 3, "sphere": 1, "cylinder": 2, "capsule": 2, "ellipsoid": 3, "plane": 2, "mesh": 3}
"""Known shapes and how many sizes each has; see `Geometry.size`."""


@dataclass(frozen=True)
class Geometry:
    """A shape fixed to a body or named frame."""

    frame: str
    """Body or frame that carries the shape."""
    shape: str
    """"box", "sphere", "cylinder", "capsule", "ellipsoid", "plane" or "mesh"."""
    size: Numbers
    """Full lengths (x, y, z) of a box; radius; (radius, length) of a cylinder or capsule (along z, caps not
    counted); semi-axes of an ellipsoid; full lengths (x, y) of a plane, 0 for unlimited; scale of a mesh."""
    placement: Numbers = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    """Pose in that frame: quaternion w, x, y, z, then position."""
    colour: Numbers | None = None
    """Red, green, blue, alpha in [0, 1], or None if the file gives none."""
    mesh: str | None = None
    """Path of the mesh file as the model names it, for shape "mesh"."""
    role: str = "visual"
    """"visual" or "collision"."""


class Shapes(tuple[Geometry, ...]):
    """A tuple of shapes whose hash is computed once: jit looks at it at every call."""

    _hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = tuple.__hash__(self)
        return self._hash

    def __eq__(self, other: Any) -> bool:
        return self is other or tuple.__eq__(self, other)

    def __reduce__(self) -> tuple[Any, ...]:
        return Shapes, (tuple(self),)  # without the hash, which differs from process to process

    def __ne__(self, other: Any) -> bool:
        return not self == other
