"""How a tree is cut for `lax.scan`: limbs of equal length side by side.

A limb is a chain of bodies without branches. Limbs that can be crossed at the same time (those at the same
branching depth) and have the same number of bodies form one group: one scan crosses all of them, its
steps going along the limbs and its lanes across them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np


@dataclass(frozen=True)
class LimbGroup:
    """Limbs of equal length that are crossed together."""

    bodies: np.ndarray
    """(steps, lanes) body indices, base to tip; int32, which JAX takes with and without its 64-bit flag."""
    start: np.ndarray
    """(lanes,) where each limb begins: an index into the tips of all earlier groups, in order, the world being 0."""


@lru_cache(maxsize=256)
def limb_groups(parents: tuple[int, ...]) -> tuple[LimbGroup, ...]:
    """Cut a tree (or forest) into groups of limbs, such that every limb begins at the tip of an earlier one.

    Example:
        >>> [g.bodies.tolist() for g in limb_groups((-1, 0, 1, 0, 3))]  # a body with two limbs
        [[[0]], [[1, 3], [2, 4]]]
    """
    children: dict[int, list[int]] = {i: [] for i in range(-1, len(parents))}
    for body, parent in enumerate(parents):
        children[parent].append(body)

    groups: list[LimbGroup] = []
    tips = {-1: 0}  # tip of a limb already crossed -> its place in the list of tips
    ready = children[-1]
    while ready:
        by_length: dict[int, list[list[int]]] = {}
        for body in ready:
            limb = [body]
            while len(children[limb[-1]]) == 1:
                limb.append(children[limb[-1]][0])
            by_length.setdefault(len(limb), []).append(limb)
        ready = []
        starts = dict(tips)
        for limbs in by_length.values():
            start = np.array([starts[parents[limb[0]]] for limb in limbs], np.int32)
            groups.append(LimbGroup(np.array(limbs, np.int32).T, start))
            for limb in limbs:
                tips[limb[-1]] = len(tips)
                ready += children[limb[-1]]
    return tuple(groups)
