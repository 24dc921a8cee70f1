"""Sweeps over a tree in logarithmic depth: paths, and associative scans along them.

A chain is one path. Any other tree is cut into *heavy paths*: a body goes on in that child which carries most bodies;
every other child begins a path of its own. From a body to its root there are then at most log2(N) changes of path.
Paths that are equally many changes away from their roots form a *round*: they lie side by side, and one
`jax.lax.associative_scan` crosses all of them. So a chain of N bodies takes about 2 log2(N) steps one after the other,
and no tree takes more than log2(N) times as many.

What a body does to what it is handed is a map, of some family that is closed under composition (`Section`): outward
from the parent's value to the body's, inward from the sum of the children's to what the body hands on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import rows


class Section(Protocol):
    """The map of a stretch of a path; a pytree of arrays whose first axes are those of a round."""

    def then(self, other: Any) -> Any:
        """Return the map that applies this one first, then the other."""

    @property
    def value(self) -> Any:
        """What the map makes of nothing: zero, or the identity."""

    def identity(self) -> Any:
        """Return the map that changes nothing, of the same shape."""


Sections = Callable[[np.ndarray, Any], Any]
"""Of (bodies, what enters besides, or None): their sections, each after adding what enters to what it is handed."""


class Round(NamedTuple):
    """Paths side by side. Tables are (steps, lanes), or (steps,) if there is one lane."""

    bodies: np.ndarray
    """The bodies of each path, base to tip; where a path has ended, its last body again."""
    is_real: np.ndarray
    """Whether there is a body."""
    start: np.ndarray
    """(lanes,) place, in the round before, of the body from which a path branches off."""
    branches: np.ndarray
    """(bodies that branch, most side branches) lanes of the next round; the number of its lanes where there is none."""
    branch: np.ndarray
    """Row of `branches` of each body; the number of rows where there is none."""


class Paths(NamedTuple):
    """The heavy paths of a tree."""

    rounds: tuple[Round, ...]
    order: np.ndarray
    """(nbodies,) place of each body in all rounds, one after the other."""
    heavy: np.ndarray
    """(nbodies,) the child in which a path goes on, -1 at its tip."""
    inner: np.ndarray
    """(nbodies,) the parent whose path a body continues, -1 at its head."""

    def outward(self, sections: Sections, start: Any) -> tuple[Any, Any]:
        """Visit every body after its parent.

        Args:
            sections: the maps from a parent's value to the body's.
            start: the world's value.

        Returns:
            The values of the bodies' parents, and of the bodies, leaves (nbodies, ...).
        """
        parents, values, flat = [], [], None
        for r in self.rounds:
            lanes = r.bodies.shape[1:]
            if flat is None:
                entering = jax.tree.map(lambda x: jnp.broadcast_to(x, (1, *lanes, *x.shape)), start)
            else:
                entering = jax.tree.map(lambda x: x[r.start].reshape((1, *lanes, *x.shape[1:])), flat)
            first = sections(r.bodies[:1], entering)
            rest = sections(r.bodies[1:], None) if len(r.bodies) > 1 else None
            both = first if rest is None else jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first, rest)
            value = jax.lax.associative_scan(_in_order, both).value
            before = jax.tree.map(lambda e, x: jnp.concatenate([e, x[:-1]]), entering, value)
            parents.append(before)
            values.append(value)
            flat = jax.tree.map(lambda x: x.reshape((r.bodies.size, *x.shape[r.bodies.ndim :])), value)
        return self._by_body(parents), self._by_body(values)

    def inward(self, sections: Sections) -> Any:
        """Visit every body after its children.

        Args:
            sections: the maps from the sum of what a body's children hand on to what the body hands on.

        Returns:
            The sums of what the bodies' children hand on, leaves (nbodies, ...).
        """
        sums: list[Any] = []
        heads = None
        for r in reversed(self.rounds):
            side = None if heads is None else _side_sums(r, heads)
            own = _where(r.is_real, sections(r.bodies, side))
            handed = jax.lax.associative_scan(_in_order, own, reverse=True).value
            outboard = jax.tree.map(lambda x: jnp.concatenate([x[1:], jnp.zeros_like(x[:1])]), handed)
            sums.insert(0, outboard if side is None else jax.tree.map(jnp.add, outboard, side))
            lanes = r.bodies[0].size
            heads = jax.tree.map(lambda x: x[0].reshape((lanes, *x.shape[r.bodies.ndim :])), handed)
        return self._by_body(sums)

    def _by_body(self, rounds: list[Any]) -> Any:
        def leaf(*parts: Any) -> Any:
            flat = [
                x.reshape((r.bodies.size, *x.shape[r.bodies.ndim :])) for x, r in zip(parts, self.rounds, strict=True)
            ]
            return rows(flat[0] if len(flat) == 1 else jnp.concatenate(flat), self.order)

        return jax.tree.map(leaf, *rounds)


def _in_order(first: Any, second: Any) -> Any:
    return first.then(second)


def _where(is_real: np.ndarray, section: Any) -> Any:
    """Put identities where a path has ended."""
    if is_real.all():
        return section
    chosen = lambda x, one: jnp.where(is_real.reshape((*is_real.shape, *(1,) * (x.ndim - is_real.ndim))), x, one)
    return jax.tree.map(chosen, section, section.identity())


def _side_sums(r: Round, heads: Any) -> Any:
    """Add up what side branches hand to the bodies of a round; no scatter, which a CPU does one by one."""

    def leaf(x: jax.Array) -> jax.Array:
        nothing = jnp.zeros_like(x[:1])
        sums = jnp.concatenate([x, nothing])[r.branches].sum(1)
        return jnp.concatenate([sums, nothing])[r.branch]

    return jax.tree.map(leaf, heads)


@lru_cache(maxsize=256)
def heavy_paths(parents: tuple[int, ...]) -> Paths:
    """Cut a tree, or a forest, into heavy paths.

    Args:
        parents: parent of each body, before the body; -1 for the world.

    Example:
        >>> heavy_paths((-1, 0, 1, 0)).rounds[0].bodies.tolist()  # 0 - 1 - 2, and 3 on 0
        [0, 1, 2]
    """
    n = len(parents)
    size = np.ones(n, int)
    for body in reversed(range(n)):
        if parents[body] >= 0:
            size[parents[body]] += size[body]
    heavy = np.full(n, -1, np.int32)
    for body, parent in enumerate(parents):
        if parent >= 0 and (heavy[parent] < 0 or size[body] > size[heavy[parent]]):
            heavy[parent] = body
    on = np.array([parent >= 0 and heavy[parent] == body for body, parent in enumerate(parents)], bool)
    levels: list[list[list[int]]] = []
    level_of: dict[int, int] = {}
    for head in np.flatnonzero(~on).tolist():
        path = [head]
        while heavy[path[-1]] >= 0:
            path.append(int(heavy[path[-1]]))
        level = 0 if parents[head] < 0 else level_of[parents[head]] + 1
        level_of |= dict.fromkeys(path, level)
        levels += [[]] * (level == len(levels))
        levels[level] = [*levels[level], path]
    rounds: list[Round] = []
    within, order = np.zeros((2, n), np.int32)
    for level, paths in enumerate(levels):
        heads = [path[0] for path in levels[level + 1]] if level + 1 < len(levels) else []
        r = _round(paths, heads, parents, within)
        here = np.flatnonzero(r.is_real.ravel())
        within[r.bodies[r.is_real]] = here
        order[r.bodies[r.is_real]] = here + sum(before.bodies.size for before in rounds)
        rounds.append(r)
    return Paths(tuple(rounds), order, heavy, np.where(on, parents, -1).astype(np.int32))


def _round(paths: list[list[int]], heads: list[int], parents: tuple[int, ...], place: np.ndarray) -> Round:
    """Lay paths side by side; `heads` begin those of the next round, `place` is that of bodies in the round before."""
    steps = max(map(len, paths))
    bodies = np.array([path + path[-1:] * (steps - len(path)) for path in paths], np.int32).T
    is_real = np.array([[k < len(path) for path in paths] for k in range(steps)])
    start = np.array([place[parents[path[0]]] for path in paths], np.int32)
    side: dict[int, list[int]] = {}
    for lane, head in enumerate(heads):
        side.setdefault(parents[head], []).append(lane)
    most = max(map(len, side.values()), default=0)
    branches = np.array([lanes + [len(heads)] * (most - len(lanes)) for lanes in side.values()], np.int32)
    row = {body: k for k, body in enumerate(side)}
    branch = np.array([[row.get(body, len(side)) for body in step] for step in bodies.tolist()], np.int32)
    tables = (bodies, is_real, branch)
    if len(paths) == 1:  # XLA copies arrays with axes of length 1
        bodies, is_real, branch = (table[:, 0] for table in tables)
    return Round(bodies, is_real, start, branches.reshape(len(side), most), branch)
