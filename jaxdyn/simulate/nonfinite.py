"""Steps that fail: where a result is not finite, it is zero, and has no derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from jaxdyn.recursion import Ruled, moving_leaves, with_values


def guarded(function: Callable[..., Any]) -> Callable[..., tuple[Any, jax.Array]]:
    """Return a function's results, zero if any of them is not finite, and whether all are.

    Where they are not, changes are stopped on both sides of the derivative: what goes in, so that in reverse mode the
    zero that comes back from the results does not turn into 0 * inf on its way to the arguments, and what comes out.
    """

    def call(*args: Any) -> tuple[Any, jax.Array]:
        body, like = jax.make_jaxpr(function, return_shape=True)(*args)
        # What the function closes over, as a policy may, becomes an argument, to be differentiated too.
        results, ok = _guard(body.jaxpr)(body.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(like), results), ok > 0

    return call


def _guard(jaxpr: Any) -> Ruled:
    """Return a program's results, zero if one is not finite, and 1 if all are, 0 else."""
    evaluate = lambda constants, leaves: jaxpr_as_fun(ClosedJaxpr(jaxpr, constants))(*leaves)

    def guard(constants: Any, leaves: Any) -> Any:
        results = evaluate(constants, leaves)
        ok = _finite(results)
        return _only(ok, results), ok.astype(jnp.float32)

    def derivative(primals: Any, tangents: Any) -> Any:
        leaves, form = jax.tree.flatten(primals)
        moving, directions = moving_leaves(tangents)
        of_moving = lambda values: evaluate(*jax.tree.unflatten(form, with_values(leaves, moving, values)))
        results, along = jax.linearize(of_moving, [leaves[i] for i in moving])
        ok = _finite(results)
        change = _only(ok, along(_finite_backward(_only(ok, directions))))
        return (_only(ok, results), ok.astype(jnp.float32)), (change, jnp.zeros((), jnp.float32))

    return Ruled(guard, derivative)


def _finite_backward(changes: list[jax.Array]) -> list[jax.Array]:
    """Return the same; on the way back they are zero if one is not finite.

    The steps before a failure may have derivatives so large that the numbers do not hold them.
    """
    same, clean = (lambda _, x: x), (lambda _, x: _only(_finite(x), x))
    return jax.lax.custom_linear_solve(lambda x: x, changes, same, clean) if changes else changes


def _finite(results: Any) -> jax.Array:
    return jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(results)]).all()


def _only(ok: jax.Array, tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.where(ok, x, jnp.zeros_like(x)), tree)
