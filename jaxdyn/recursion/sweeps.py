"""Sweeps over the bodies of a tree: the only code that knows parents, limbs and `lax.scan`.

An algorithm gives a step for one body; the sweep brings each body what its neighbour handed on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.model.configuration import in_order
from jaxdyn.recursion.limbs import limb_groups

Carry = TypeVar("Carry")
Body = TypeVar("Body")
Result = TypeVar("Result")


def outward(
    parents: tuple[int, ...],
    step: Callable[[Carry, Body], tuple[Carry, Result]],
    world: Carry,
    bodies: Body,
) -> Result:
    """Visit every body after its parent.

    Args:
        parents: the parent of each body, -1 for the world; a body comes after its parent.
        step: (what the parent hands on, the body's data) -> (what the body hands on, its result). It works
            on scalars; it is called on several bodies at once, elementwise.
        world: what the world hands to the root bodies, a pytree of scalars.
        bodies: the bodies' data, a pytree of arrays (nbodies,).

    Returns:
        The bodies' results, a pytree of arrays (nbodies, ...).
    """
    if not parents:
        return _empty_result(step, world, bodies)
    groups = limb_groups(parents)
    world, bodies = _uniform(world, bodies)
    tips = jax.tree.map(lambda w: w[None], world)
    results = []
    for group in groups:
        begin = jax.tree.map(lambda t: t[group.start], tips)
        end, result = jax.lax.scan(step, begin, jax.tree.map(lambda b: b[group.bodies], bodies))
        tips = jax.tree.map(lambda t, e: jnp.concatenate([t, e]), tips, end)
        results.append(result)
    places = np.concatenate([group.bodies.ravel() for group in groups])
    flat = (jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), result) for result in results)
    return jax.tree.map(lambda *parts: in_order(parts, places), *flat)


def _uniform(world: Any, bodies: Any) -> tuple[Any, Any]:
    """Give all numbers one type: a scan's carry must not change its type on the way.

    The world's constants are tied to the bodies' data by a zero, so that under `jax.shard_map` they vary
    over the same mesh axes.
    """
    leaves = jax.tree.leaves((world, bodies))
    dtype = jnp.result_type(*leaves)
    world, bodies = jax.tree.map(lambda x: jnp.asarray(x, dtype), (world, bodies))
    first = (x.reshape(-1)[:1] for x in jax.tree.leaves(bodies) if x.size)
    zero = sum((jnp.where(False, x, 0).sum() for x in first), start=jnp.zeros((), dtype))
    return jax.tree.map(lambda w: w + zero, world), bodies


def _empty_result(step: Callable[..., Any], world: Any, bodies: Any) -> Any:
    """Return the result of a sweep over no bodies: arrays (0, ...) of the right type."""
    world, bodies = _uniform(world, bodies)
    one = jax.tree.map(lambda b: jax.ShapeDtypeStruct(b.shape[1:], b.dtype), bodies)
    shapes = jax.eval_shape(step, world, one)[1]
    return jax.tree.map(lambda s: jnp.zeros((0, *s.shape), s.dtype), shapes)
