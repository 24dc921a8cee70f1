"""Sweeps over the bodies of a tree: the only code that knows parents, limbs and `lax.scan`.

An algorithm gives a step for one body; a sweep brings each body what its neighbours handed on. Steps work
on scalars: they are called on several bodies (lanes) and a whole batch at once, elementwise. A component
that is a plain number is the same for all bodies, and is a plain number inside the step too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.recursion.limbs import branches, equal_limbs, limb_groups
from jaxdyn.recursion.target import side_by_side
from jaxdyn.spatial import MotionRows

Body = TypeVar("Body")
Step = Callable[[Any, Any], tuple[Any, Any]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Packed:
    """Many components in one array, such as the numbers of a model: one leaf, for which XLA compiles one kernel."""

    array: jax.Array
    """(..., components, batch)."""
    form: Any = field(metadata={"static": True})
    """Structure of the pytree of the components."""

    def unpack(self) -> Any:
        """Return the pytree."""
        return jax.tree.unflatten(self.form, [self.array[..., i, :] for i in range(self.array.shape[-2])])


def unpacked(tree: Any) -> Any:
    """Return a pytree with components in place of packed ones."""
    is_packed = lambda x: isinstance(x, Packed)
    return jax.tree.map(lambda x: x.unpack() if is_packed(x) else x, tree, is_leaf=is_packed)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Known:
    """A pytree whose plain numbers are no leaves: what is known of it stays known when JAX takes it apart."""

    arrays: list[jax.Array]
    form: Any = field(metadata={"static": True})
    """Structure of the pytree."""
    numbers: tuple[float | None, ...] = field(metadata={"static": True})
    """Its leaves, None in place of arrays."""

    @classmethod
    def of(cls, tree: Any) -> Known:
        """Take a pytree apart."""
        leaves, form = jax.tree.flatten(tree)
        return cls(_arrays(leaves), form, tuple(x if _is_plain(x) else None for x in leaves))

    def tree(self) -> Any:
        """Return the pytree."""
        rest = iter(self.arrays)
        return jax.tree.unflatten(self.form, [next(rest) if x is None else x for x in self.numbers])


class Walk:
    """A way through a tree. Data of bodies is kept in stages: the bases, if there are any, and all others.

    Bases are root bodies whose joint is unlike the others' (a floating base). They need no scan. The others are one
    stage, crossed by one scan; or, side by side, a stage for each group of equal chains between branches (see `limbs`).
    Leaves of a stage's data have the axes of its table in `stages` first, then one common shape (of a batch).
    """

    def __init__(self, parents: tuple[int, ...], bases: tuple[int, ...] = (), *, side_by_side: bool = False):
        limbs = np.array([body for body in range(len(parents)) if body not in bases], np.int32)
        place = {-1: -1} | {base: -2 - k for k, base in enumerate(bases)} | {int(b): k for k, b in enumerate(limbs)}
        self._parents = tuple(place[parents[body]] for body in limbs)
        self._starts = 1 + len(bases)
        equal = equal_limbs(self._parents) if len(limbs) else None
        self._groups: list[np.ndarray] = []
        """Lanes (steps, lanes) or (steps,) of each scan; none, if the tree is crossed depth-first."""
        if equal is not None:
            self._groups = [_without_lanes_of_one(equal)]
        elif side_by_side and len(limbs):
            self._groups = [_without_lanes_of_one(group) for group in limb_groups(self._parents)]
        self.stages: list[np.ndarray] = []
        """Table of the bodies of each stage: (lanes,) for bases; (steps, lanes) or (bodies,) for the others."""
        if bases:
            self.stages.append(np.array(bases, np.int32))
        if len(limbs):
            self.stages += [limbs[group] for group in self._groups] or [limbs]
        self._order = np.concatenate([np.zeros(0, np.int32), *(stage.ravel() for stage in self.stages)])
        # What is handed on at the ends of scans is kept in rows: those of the starts, then those of the tips.
        row = {-1 - start: start for start in range(self._starts)}
        for tip in (tip for group in self._groups for tip in np.atleast_1d(group[-1]).tolist()):
            row[tip] = len(row)
        rows_of = lambda bodies: np.array([row[body] for body in bodies], np.int32)
        self._tips = [rows_of(np.atleast_1d(group[-1]).tolist()) for group in self._groups]
        self._begins = [rows_of(self._parents[body] for body in np.atleast_1d(group[0])) for group in self._groups]

    def take(self, bodies: Body) -> list[Body]:
        """Bring leaves (nbodies, ...) into stages; plain numbers stay as they are."""
        return [jax.tree.map(lambda x: x if _is_plain(x) else _rows(x, stage), bodies) for stage in self.stages]

    def join(self, stages: Sequence[Any]) -> Any:
        """Bring stages back to leaves (nbodies, ...)."""
        order = np.argsort(self._order).astype(np.int32)

        def leaf(*parts: Any) -> Any:
            flat = [p.reshape((t.size, *p.shape[t.ndim :])) for p, t in zip(parts, self.stages, strict=True)]
            return _rows(flat[0] if len(flat) == 1 else jnp.concatenate(flat), order)

        return jax.tree.map(leaf, *stages)

    def outward(self, step: Step, world: Any, bodies: Sequence[Any], base_step: Step | None = None) -> list[Any]:
        """Visit every body after its parent.

        Args:
            step: (what the parent hands on, the body's data) -> (what the body hands on, its result).
            world: what the world hands to the root bodies.
            bodies: the bodies' data in stages.
            base_step: the step for bases, if theirs is another.

        Returns:
            The bodies' results in stages.
        """
        results: list[Any] = []
        starts = jax.tree.map(lambda w: w[None], self._filled(world, bodies))
        if self._starts > 1:
            one = jax.tree.map(lambda w: w if _is_plain(w) else w[None], world)
            end, result = (base_step or step)(one, bodies[0])
            starts = jax.tree.map(lambda s, e: jnp.concatenate([s, _like(e, s, self._starts - 1)]), starts, end)
            results.append(result)
        if self._groups:
            results += self._lanes_outward(step, starts, bodies[-len(self._groups) :])
        elif self._parents:
            results.append(self._branched_outward(step, starts, bodies[-1]))
        return results

    def _lanes_outward(self, step: Step, rows: Any, stages: Sequence[Any]) -> list[Any]:
        results = []
        for group, begin, bodies in zip(self._groups, self._begins, stages, strict=True):
            cross, known = _on_known(step, bodies)
            same = lambda x: jnp.broadcast_to(x[begin[0]], (*group.shape[1:], *x.shape[1:]))
            each = lambda x: jnp.stack([x[row] for row in begin])
            # all limbs on one body is the usual case
            end, result = jax.lax.scan(cross, jax.tree.map(same if np.all(begin == begin[0]) else each, rows), known)
            results.append(result.tree())
            if len(results) < len(self._groups):
                rows = jax.tree.map(lambda x, e: jnp.concatenate([x, e if group.ndim > 1 else e[None]]), rows, end)
        return results

    def _branched_outward(self, step: Step, starts: Any, bodies: Any) -> Any:
        way = branches(self._parents, self._starts)
        cross, known = _on_known(step, bodies)

        def visit(carry: Any, body: Any) -> Any:
            (before, slots), (data, jumps, begin, waits, end) = carry, body
            inboard = jax.lax.cond(jumps, lambda: jax.tree.map(lambda s: s[begin], slots), lambda: before)
            here, result = cross(inboard, data)
            kept = lambda: jax.tree.map(lambda s, x: s.at[end].set(x), slots, here)
            return (here, jax.lax.cond(waits, kept, lambda: slots)), result

        slots = jax.tree.map(lambda s: jnp.concatenate([s, _zeros(s, way.slots - self._starts)]), starts)
        before = jax.tree.map(lambda s: s[0], starts)
        tables = (way.jumps, way.begin, way.waits, way.end)
        return jax.lax.scan(visit, (before, slots), (known, *tables))[1].tree()

    def inward(
        self, step: Step, zero: Any, bodies: Sequence[Any], base_step: Step | None = None
    ) -> tuple[Any, list[Any]]:
        """Visit every body after its children.

        Args:
            step: (sum of what the children hand on, the body's data) -> (what the body hands on, its result).
            zero: what a body without children gets.
            bodies: the bodies' data in stages.
            base_step: the step for bases, if theirs is another.

        Returns:
            The sum of what the root bodies hand to the world, and the bodies' results in stages.
        """
        results: list[Any] = []
        zero = self._filled(zero, bodies)
        arrived = jax.tree.map(lambda z: jnp.broadcast_to(z, (self._starts, *z.shape)), zero)
        if self._groups:
            arrived, results = self._lanes_inward(step, zero, bodies[-len(self._groups) :])
        elif self._parents:
            arrived, result = self._branched_inward(step, zero, bodies[-1])
            results.append(result)
        total = jax.tree.map(lambda a: a[0], arrived)
        if self._starts > 1:
            end, result = (base_step or step)(jax.tree.map(lambda a: a[1:], arrived), bodies[0])
            total = jax.tree.map(lambda t, e: t + jnp.broadcast_to(e, (self._starts - 1, *t.shape)).sum(0), total, end)
            results.insert(0, result)
        return total, results

    def _lanes_inward(self, step: Step, zero: Any, stages: Sequence[Any]) -> Any:
        results: list[Any] = []
        arrived: dict[int, list[Any]] = {}
        total = lambda row: jax.tree.map(lambda z, *parts: sum(parts, start=z), zero, *arrived.get(row, []))
        stacked = lambda rows: jax.tree.map(lambda *x: jnp.stack(x), *map(total, rows))
        for group, begin, tips, bodies in reversed(
            list(zip(self._groups, self._begins, self._tips, stages, strict=True))
        ):
            cross, known = _on_known(step, bodies)
            if group.ndim == 1:
                end = total(tips[0])
            elif any(row in arrived for row in tips):
                end = stacked(tips)
            else:
                end = jax.tree.map(lambda z: _zeros(z[None], len(tips)), zero)
            end, result = jax.lax.scan(cross, end, known, reverse=True)
            results.insert(0, result.tree())
            if group.ndim > 1 and np.all(begin == begin[0]):
                arrived.setdefault(begin[0], []).append(_summed(end))
                continue
            for lane, row in enumerate(begin):
                one = end if group.ndim == 1 else jax.tree.map(lambda e: e[lane], end)
                arrived.setdefault(row, []).append(one)
        return stacked(range(self._starts)), results

    def _branched_inward(self, step: Step, zero: Any, bodies: Any) -> Any:
        way = branches(self._parents, self._starts)
        cross, known = _on_known(step, bodies)

        def visit(carry: Any, body: Any) -> Any:
            (after, slots), (data, jumps, begin, waits, end, opens, tip) = carry, body
            # Both choices change what they are given, or leave it: where one makes it anew, XLA copies it in the other.
            others = lambda x, s: jnp.where(tip, 0, x + s[end])
            outboard = jax.lax.cond(waits | tip, lambda: jax.tree.map(others, after, slots), lambda: after)
            here, result = cross(outboard, data)
            added = partial(_added, begin=begin, opens=opens)
            return (here, jax.lax.cond(jumps, lambda: jax.tree.map(added, slots, here), lambda: slots)), result

        slots = jax.tree.map(lambda z: _zeros(z[None], way.slots), zero)
        tables = (way.jumps, way.begin, way.waits, way.end, way.opens, way.tip)
        (_, slots), result = jax.lax.scan(visit, (zero, slots), (known, *tables), reverse=True)
        return jax.tree.map(lambda s: s[: self._starts], slots), result.tree()

    def _filled(self, world: Any, bodies: Sequence[Any]) -> Any:
        """Give numbers the type and common shape of the bodies' data, as a scan's carry needs them.

        They are also tied to the data by a zero (once for each way in which data may be spread over the
        axes of `jax.shard_map`), so that there they vary over the same mesh axes.
        """
        shapes, spread = [], {}
        for table, data in zip(self.stages, bodies, strict=True):
            for x in _components(data):
                shapes.append(x.shape[table.ndim :])
                spread[str(getattr(jax.typeof(x), "manual_axis_type", None)), x.dtype] = x
        values = _components(world)
        shape = np.broadcast_shapes(*shapes, *(x.shape for x in values))
        dtype = jnp.result_type(*spread.values(), *values)
        zero = sum(
            (jnp.where(False, x[(0,) * x.ndim], 0).astype(dtype) for x in spread.values()), start=jnp.zeros((), dtype)
        )

        def filled(w: Any) -> Any:
            if isinstance(w, MotionRows):
                return MotionRows(jnp.broadcast_to(w.array + zero, (*shape[:-1], 6, *shape[-1:])))
            return jnp.broadcast_to(jnp.asarray(w, dtype) + zero, shape)

        return jax.tree.map(filled, world, is_leaf=lambda x: isinstance(x, MotionRows))


@lru_cache(maxsize=256)
def _plain_walk(parents: tuple[int, ...], side_by_side: bool) -> Walk:
    return Walk(parents, side_by_side=side_by_side)


def outward(parents: tuple[int, ...], step: Step, world: Any, bodies: Any) -> Any:
    """Visit every body after its parent, as `Walk.outward` does, with data and results (nbodies, ...)."""
    if not parents:
        one = jax.tree.map(lambda b: jax.ShapeDtypeStruct(b.shape[1:], b.dtype), bodies)
        return jax.tree.map(lambda s: jnp.zeros((0, *s.shape), s.dtype), jax.eval_shape(step, world, one)[1])
    walk = _plain_walk(parents, side_by_side())
    arrays = lambda result, table: jax.tree.map(lambda x: jnp.full(table.shape, x) if _is_plain(x) else x, result)
    return walk.join(list(map(arrays, walk.outward(step, world, walk.take(bodies)), walk.stages)))


def _without_lanes_of_one(table: np.ndarray) -> np.ndarray:
    """Return a table of bodies (steps, lanes), as (steps,) if there is one lane: XLA copies axes of length 1."""
    return table[:, 0] if table.shape[1] == 1 else table


def _is_plain(x: Any) -> bool:
    return isinstance(x, (int, float))


def _rows(x: jax.Array, index: np.ndarray) -> jax.Array:
    """Return x[index]; where that is all of x in order, only its shape changes."""
    if np.array_equal(index.ravel(), np.arange(len(x))):
        return x.reshape((*index.shape, *x.shape[1:]))
    return x[index]


def _summed(tree: Any) -> Any:
    """Return the sums over the first axis of arrays, all those of one shape at once: that is one kernel.

    They are written out, because XLA leaves a sum along an axis to another library, which takes longer. The sums keep
    that axis: XLA then sees that those which are stacked again are one part of one array.
    """
    leaves, form = jax.tree.flatten(tree)
    sums: dict[int, jax.Array] = {}
    for shape in dict.fromkeys(x.shape for x in leaves):
        alike = [k for k, x in enumerate(leaves) if x.shape == shape]
        stacked = jax.lax.optimization_barrier(jnp.stack([leaves[k] for k in alike]))
        total = sum((stacked[:, i : i + 1] for i in range(1, shape[0])), start=stacked[:, :1])
        sums |= {k: total[i, 0] for i, k in enumerate(alike)}
    return jax.tree.unflatten(form, [sums[k] for k in range(len(leaves))])


def _added(slots: jax.Array, x: jax.Array, begin: jax.Array, opens: jax.Array) -> jax.Array:
    """Return slots with x added to that of number `begin`, or in place of what it held before, if x opens it."""
    if len(slots) > 4:
        return slots.at[begin].set(x + jnp.where(opens, 0, slots[begin]))
    # One kernel over a few slots takes less time than two for one of them, although the other choice then copies.
    here = np.arange(len(slots), dtype=np.int32) == begin
    return jnp.where(here.reshape((-1,) + (1,) * x.ndim), x[None] + jnp.where(opens, 0, slots), slots)


def _zeros(like: jax.Array, n: int) -> jax.Array:
    """Return n rows of zeros; `like` has the axis of rows, and lends type and mesh axes."""
    return jnp.broadcast_to(jnp.zeros_like(like[:1]), (n, *like.shape[1:]))


def _like(x: Any, like: jax.Array, n: int) -> jax.Array:
    """Return x as n rows of the type and shape of those of `like`."""
    return jnp.broadcast_to(jnp.asarray(x, like.dtype), (n, *like.shape[1:]))


def _on_known(step: Step, bodies: Any) -> tuple[Step, Known]:
    """Return the step as one on `Known` data and results, which are those of the bodies without plain numbers."""

    def cross(carry: Any, body: Known) -> Any:
        end, result = step(carry, unpacked(body.tree()))
        end = jax.tree.map(lambda new, old: jnp.broadcast_to(jnp.asarray(new, old.dtype), old.shape), end, carry)
        return end, Known.of(result)

    return cross, Known.of(bodies)


def _components(tree: Any) -> list[jax.Array]:
    """Return the arrays of components, also of those that are kept in rows of one array."""
    apart = lambda x: (x.ang, x.lin) if isinstance(x, MotionRows) else x
    return _arrays(jax.tree.map(apart, unpacked(tree), is_leaf=lambda x: isinstance(x, MotionRows)))


def _arrays(tree: Any) -> list[jax.Array]:
    return [x for x in jax.tree.leaves(tree) if not _is_plain(x)]
