"""Steps that fail: where a result is not finite, it is zero, and has no derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.recursion import moving_leaves, with_values


def guarded(function: Callable[..., Any]) -> Callable[..., tuple[Any, jax.Array]]:
    """Return a function's results, zero if any of them is not finite, and whether all are.

    Where they are not, changes are stopped on both sides of the derivative: what goes in, so that in reverse mode the
    zero that comes back from the results does not turn into 0 * inf on its way to the arguments, and what comes out.
    """

    def finite(results: Any) -> jax.Array:
        return jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(results)]).all()

    def only(ok: jax.Array, tree: Any) -> Any:
        return jax.tree.map(lambda x: jnp.where(ok, x, jnp.zeros_like(x)), tree)

    @jax.custom_jvp
    def guard(*args: Any) -> tuple[Any, jax.Array]:
        results = function(*args)
        ok = finite(results)
        return only(ok, results), ok

    def derivative(primals: Any, tangents: Any) -> Any:
        leaves, form = jax.tree.flatten(primals)
        moving, directions = moving_leaves(tangents)
        of_moving = lambda values: function(*jax.tree.unflatten(form, with_values(leaves, moving, values)))
        results, along = jax.linearize(of_moving, [leaves[i] for i in moving])
        ok = finite(results)
        change = only(ok, along(only(ok, directions)))
        return (only(ok, results), ok), (change, np.zeros((), jax.dtypes.float0))

    guard.defjvp(derivative, symbolic_zeros=True)
    return guard
