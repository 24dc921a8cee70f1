"""How a solver ended."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """How a solver ended; inside of compiled functions an integer. Zero is success."""

    SOLVED = 0
    """What was asked for was found, to the tolerance."""
    NEAREST = 1
    """Nothing near does better, but it is not what was asked for: a target out of reach, or a local minimum."""
    ITERATIONS = 2
    """The iterations were used up; what was reached is returned."""
    NOT_FINITE = 3
    """The input has numbers that are not finite, or grows beyond all bounds."""
