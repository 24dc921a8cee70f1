"""How a tree is crossed by scans.

Equal limbs (a chain; the legs of a quadruped on its base) go side by side, as lanes of one scan. Any other
tree is crossed depth-first, body after body: most bodies follow their parent directly; where a second
limb begins at a branch, what the branching body handed on waits in a slot. So there is one scan body to
compile, however branched the tree.

On a GPU what counts is the number of steps that follow one another. There the tree is cut at its branches into
chains, and equal chains go side by side: more scans to compile, fewer steps, and nothing to look up within them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np


@lru_cache(maxsize=256)
def equal_limbs(parents: tuple[int, ...]) -> np.ndarray | None:
    """Return the bodies (steps, lanes) of a forest of equal chains, base to tip; None if it is no such forest.

    Example:
        >>> equal_limbs((-1, 0, -1, 2)).tolist()
        [[0, 2], [1, 3]]
    """
    roots = [body for body, parent in enumerate(parents) if parent < 0]
    steps, rest = divmod(len(parents), len(roots))
    limbs = np.arange(len(parents), dtype=np.int32)[: steps * len(roots)].reshape(-1, steps)
    chains = [[parents[body] for body in limb[1:]] == limb[:-1].tolist() for limb in limbs]
    return limbs.T if rest == 0 and limbs[:, 0].tolist() == roots and all(chains) else None


@lru_cache(maxsize=256)
def limb_groups(parents: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Return the chains between the branches of a forest, those side by side that are equal.

    Each group is a table of bodies (steps, lanes), base to tip, and comes after those from which it grows. Its chains
    have one length, and one number of branches between them and the ground.

    Example:
        >>> [group.tolist() for group in limb_groups((-1, 0, 1, 2, 1, 4))]
        [[[0], [1]], [[2, 4], [3, 5]]]
    """
    fork = {p for p in parents if p >= 0 and parents.count(p) > 1}
    chains: list[tuple[int, list[int]]] = []  # branches below it, bodies
    of_body: dict[int, tuple[int, list[int]]] = {}
    for body, parent in enumerate(parents):
        if parent < 0 or parent in fork:
            of_body[body] = (0 if parent < 0 else of_body[parent][0] + 1, [body])
            chains.append(of_body[body])
        else:
            of_body[body] = of_body[parent]
            of_body[body][1].append(body)
    groups: dict[tuple[int, int], list[list[int]]] = {}
    for level, bodies in sorted(chains, key=lambda chain: chain[0]):
        groups.setdefault((level, len(bodies)), []).append(bodies)
    return tuple(np.array(lanes, np.int32).T for lanes in groups.values())


@dataclass(frozen=True)
class Branches:
    """Where a depth-first walk jumps. Indices are int32, which JAX takes with and without its 64-bit flag."""

    jumps: np.ndarray
    """(nbodies,) the parent is not the body before: begin with what waits in slot `begin`."""
    begin: np.ndarray
    """(nbodies,) slot of the parent, where the walk jumps."""
    waits: np.ndarray
    """(nbodies,) further limbs begin at this body: leave what it hands on in slot `end`."""
    end: np.ndarray
    """(nbodies,) slot of the body, where it waits."""
    opens: np.ndarray
    """(nbodies,) going inward, the body is the first to leave something in slot `begin`."""
    tip: np.ndarray
    """(nbodies,) the body has no children: what the one after it hands on is for others."""
    slots: int
    """Number of slots; the first are the starts. A slot is used again when nothing waits in it any more."""


@lru_cache(maxsize=256)
def branches(parents: tuple[int, ...], starts: int) -> Branches:
    """Find the jumps of a walk through a tree that is numbered depth-first.

    Args:
        parents: parent of each body; -1, -2, ... are the starts 0, 1, ... (the world, floating bases).
        starts: number of starts.
    """
    n = len(parents)
    jumps = np.array([body == 0 or parents[body] != body - 1 for body in range(n)])
    last_use = {parent: body for body, parent in enumerate(parents) if jumps[body] and parent >= 0}
    begin, end = np.zeros((2, n), np.int32)
    slot = {-1 - start: start for start in range(starts)}
    free: list[int] = []
    slots = starts
    for body, parent in enumerate(parents):
        if jumps[body]:
            if parent not in slot:
                raise ValueError(f"bodies must be numbered depth-first; body {body} on {parent} is not")
            begin[body] = slot[parent]
            if last_use.get(parent) == body:
                free.append(slot.pop(parent))
        if body in last_use:
            if not free:
                free, slots = [slots], slots + 1
            slot[body] = end[body] = free.pop()
    waits = np.isin(np.arange(n), list(last_use))
    first = {parent: body for body, parent in enumerate(parents) if jumps[body]}
    opens, tip = np.isin(np.arange(n), list(first.values())), ~np.isin(np.arange(n), parents)
    return Branches(jumps, begin, waits, end, opens, tip, slots)
