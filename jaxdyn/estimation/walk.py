"""Sweeps whose steps work on whole vectors and matrices of one body: the page of a paper, line by line.

The sweeps of `recursion` are made for scalars of many states at once. Here a body hands on arrays of any shapes, and a
step sees one body and one state. It is the same walk: one scan, whatever the tree, in time proportional to the bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn.recursion import Walk

Step = Callable[[Any, Any], tuple[Any, Any]]


class _MatrixWalk(Walk):
    """A walk on which bodies hand on arrays of any shapes: the world's are as they should be."""

    def _filled(self, world: Any, bodies: Sequence[Any]) -> Any:
        return world

    def on_one_body(self, step: Step) -> Step:
        """Return a step for what a scan visits at once: one body, or several side by side."""
        return jax.vmap(step) if self.stages[0].ndim > 1 else step


@lru_cache(maxsize=256)
def _walk(parents: tuple[int, ...]) -> _MatrixWalk:
    return _MatrixWalk(parents)


def outward(parents: tuple[int, ...], step: Step, world: Any, bodies: Any) -> Any:
    """Visit every body after its parent.

    Args:
        parents: parent of each body, -1 for the world; numbered depth-first.
        step: (what the parent hands on, the body's data) -> (what the body hands on, its result).
        world: what the world hands on, arrays like those that bodies do.
        bodies: the bodies' data, a pytree of arrays (nbodies, ...).

    Returns:
        The results, arrays (nbodies, ...).

    Example:
        >>> import jax.numpy as jnp
        >>> step = lambda inboard, length: (inboard + length, inboard + length)
        >>> outward((-1, 0, 0), step, jnp.zeros(2), jnp.ones((3, 2))).tolist()
        [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]]
    """
    if not parents:
        return _nothing(step, world, bodies)
    walk = _walk(parents)
    return walk.join(walk.outward(walk.on_one_body(step), world, walk.take(bodies)))


def inward(parents: tuple[int, ...], step: Step, zero: Any, bodies: Any) -> Any:
    """Visit every body after its children.

    Args:
        parents: as in `outward`.
        step: (sum of what the children hand on, the body's data) -> (what the body hands on, its result).
        zero: what a body without children gets, arrays like those that bodies hand on.
        bodies: as in `outward`.

    Returns:
        The results, arrays (nbodies, ...).
    """
    if not parents:
        return _nothing(step, zero, bodies)
    walk = _walk(parents)
    return walk.join(walk.inward(walk.on_one_body(step), zero, walk.take(bodies))[1])


def _nothing(step: Step, start: Any, bodies: Any) -> Any:
    """Return the results of no bodies."""
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), bodies)
    return jax.tree.map(lambda x: jnp.zeros((0, *x.shape), x.dtype), jax.eval_shape(step, start, one)[1])
