"""Sweeps over the bodies of a tree: the only code that knows parents, limbs and `lax.scan`.

An algorithm gives a step for one body; the sweep brings each body what its neighbour handed on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

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
    order = np.argsort(np.concatenate([group.bodies.ravel() for group in groups]))
    return jax.tree.map(lambda *parts: _join(parts, order), *results)


def _join(parts: tuple[jax.Array, ...], order: np.ndarray) -> jax.Array:
    """Put (steps, lanes, ...) results of all groups in the order of bodies."""
    flat = [part.reshape((-1, *part.shape[2:])) for part in parts]
    whole = flat[0] if len(flat) == 1 else jnp.concatenate(flat)
    return whole if np.array_equal(order, np.arange(len(order))) else whole[order]


def _uniform(world: Any, bodies: Any) -> tuple[Any, Any]:
    """Give all numbers one floating-point type: a scan's carry must not change its type on the way."""
    dtype = jnp.result_type(*jax.tree.leaves((world, bodies)))
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), (world, bodies))


def _empty_result(step: Callable[..., Any], world: Any, bodies: Any) -> Any:
    """Return the result of a sweep over no bodies: arrays (0, ...) of the right type."""
    world, bodies = _uniform(world, bodies)
    one = jax.tree.map(lambda b: jax.ShapeDtypeStruct(b.shape[1:], b.dtype), bodies)
    shapes = jax.eval_shape(step, world, one)[1]
    return jax.tree.map(lambda s: jnp.zeros((0, *s.shape), s.dtype), shapes)
