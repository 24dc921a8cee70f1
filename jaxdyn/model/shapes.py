"""Uniform solids: their principal moments of inertia, and bodies put together from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from jaxdyn.spatial import Quaternion, RigidInertia, Sym3, Vec3, align_z

Moments = tuple[float, float, float]
Colour = tuple[float, ...] | None


def box(mass: float, size: Sequence[float]) -> Moments:
    """Return the principal moments of a box about its centre.

    Args:
        mass: of the box.
        size: its full lengths along x, y and z.

    Returns:
        Ixx, Iyy, Izz.

    Example:
        >>> from jaxdyn.model.shapes import box
        >>> box(12.0, (1.0, 2.0, 3.0))
        (13.0, 10.0, 5.0)
    """
    x, y, z = (length * length for length in size)
    return mass * (y + z) / 12, mass * (x + z) / 12, mass * (x + y) / 12


def cylinder(mass: float, radius: float, length: float) -> Moments:
    """Return the principal moments (Ixx, Iyy, Izz) of a cylinder along z about its centre."""
    across = mass * (3 * radius**2 + length**2) / 12
    return across, across, mass * radius**2 / 2


def sphere(mass: float, radius: float) -> Moments:
    """Return the principal moments (Ixx, Iyy, Izz) of a ball about its centre."""
    moment = 2 * mass * radius**2 / 5
    return moment, moment, moment


def capsule(mass: float, radius: float, length: float) -> Moments:
    """Return the principal moments (Ixx, Iyy, Izz) of a capsule along z about its centre.

    Args:
        mass: of the whole capsule, its two half-balls included.
        radius: of the cylinder and of the half-balls.
        length: of the cylinder alone.
    """
    caps = mass * 4 * radius / (3 * length + 4 * radius)
    across, _, along = cylinder(mass - caps, radius, length)
    ball, _, _ = sphere(caps, radius)
    # A half-ball's centre of mass lies 3/8 radius beyond the end of the cylinder.
    across += ball + caps * (length**2 / 4 + 3 * length * radius / 8)
    return across, across, along + ball


MOMENTS: dict[str, Callable[..., Moments]] = {
    "box": lambda mass, *size: box(mass, size),
    "cylinder": cylinder,
    "capsule": capsule,
    "sphere": sphere,
}
"""Shape -> its moments, called with the mass and the sizes of `Geometry.size`."""


@dataclass(frozen=True)
class Solid:
    """A uniform solid somewhere in a body: it gives the body inertia and is what a viewer shows.

    One without mass is only shown.
    """

    shape: str
    """A key of `MOMENTS`."""
    mass: float
    size: tuple[float, ...]
    """As in `Geometry.size`."""
    centre: tuple[float, ...]
    quaternion: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0)
    """Its orientation in the body, w, x, y, z."""
    colour: Colour = None
    """Red, green, blue, alpha in [0, 1]."""

    @classmethod
    def box(
        cls, mass: float, size: Sequence[float], centre: Sequence[float] = (0, 0, 0), colour: Colour = None
    ) -> Self:
        """Place a box whose sides are along the body's axes."""
        return cls("box", mass, tuple(size), tuple(centre), colour=colour)

    @classmethod
    def sphere(cls, mass: float, radius: float, centre: Sequence[float] = (0, 0, 0), colour: Colour = None) -> Self:
        """Place a ball."""
        return cls("sphere", mass, (radius,), tuple(centre), colour=colour)

    @classmethod
    def cylinder(
        cls, mass: float, radius: float, start: Sequence[float], end: Sequence[float], colour: Colour = None
    ) -> Self:
        """Place a cylinder by the centres of its two faces."""
        return cls("cylinder", mass, *_span(radius, start, end), colour)

    @classmethod
    def capsule(
        cls, mass: float, radius: float, start: Sequence[float], end: Sequence[float], colour: Colour = None
    ) -> Self:
        """Place a capsule by the centres of its two half-balls."""
        return cls("capsule", mass, *_span(radius, start, end), colour)

    @property
    def inertia(self) -> RigidInertia:
        """Its inertia about the body's origin."""
        xx, yy, zz = MOMENTS[self.shape](self.mass, *self.size)
        R = Quaternion(*self.quaternion).to_matrix()
        J = R.congruence(Sym3(xx, 0.0, 0.0, yy, 0.0, zz))
        return RigidInertia.from_com(self.mass, Vec3(*self.centre), J)

    def mirrored(self) -> Self:
        """Return its mirror image in the x-z plane (left becomes right)."""
        (x, y, z), (w, a, b, c) = self.centre, self.quaternion
        return replace(self, centre=(x, -y, z), quaternion=(w, -a, b, -c))


def lump(solids: Iterable[Solid]) -> tuple[float, tuple[float, ...], np.ndarray]:
    """Return what a body of these solids weighs; some of them must have mass.

    Returns:
        Mass, centre of mass (3,), and rotational inertia about the centre of mass (3, 3).
    """
    first, *others = (solid.inertia for solid in solids)
    mass, com, inertia = sum(others, first).central()
    return float(mass), tuple(com.to_array().tolist()), inertia.to_array()


def _span(
    radius: float, start: Sequence[float], end: Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """Return size, centre and orientation of a round solid between two points."""
    length = math.dist(start, end)
    direction = Vec3(*((b - a) / length for a, b in zip(start, end, strict=True)))
    centre = tuple((a + b) / 2 for a, b in zip(start, end, strict=True))
    return (radius, length), centre, tuple(Quaternion.from_matrix(align_z(direction)).to_array().tolist())
