"""A function with a rule of its own for its derivatives, as one operation of JAX.

It does what `jax.custom_jvp` does, with one difference: the rule is never lost. When JAX takes what is constant out
of the loop that it differentiates in reverse, it replaces a `custom_jvp` by what is inside, for which there may be no
derivative, or a wrong one. It leaves an operation alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir


class Ruled:
    """A function that is differentiated by a rule.

    Args:
        function: a function of pytrees of arrays.
        rule: of (arguments, their changes), the result and its change; changes of what is constant are
            `SymbolicZero`.
    """

    def __init__(self, function: Callable[..., Any], rule: Callable[..., Any]):
        self._function = jax.jit(function)  # which remembers what it has traced
        self._rule = rule

    def __call__(self, *args: Any) -> Any:
        """Return the function's value."""
        leaves, form = jax.tree.flatten(args)
        leaves = [jnp.asarray(x) for x in leaves]
        body, like = jax.make_jaxpr(self._function, return_shape=True)(*jax.tree.unflatten(form, leaves))
        out = ruled_p.bind(*leaves, body=body, rule=partial(self._rule_of_leaves, form), batches=())
        return jax.tree.unflatten(jax.tree.structure(like), out)

    def _rule_of_leaves(self, form: Any, moving: tuple[int, ...], leaves: Any, directions: Any) -> Any:
        """Return the leaves of the result and of its change along some leaves."""
        changes = [SymbolicZero(jax.typeof(x).to_tangent_aval()) for x in leaves]
        for i, direction in zip(moving, directions, strict=True):
            changes[i] = direction
        out, change = self._rule(jax.tree.unflatten(form, leaves), jax.tree.unflatten(form, changes))
        return jax.tree.leaves(out), jax.tree.leaves(change)


# ---------------------------------------------------------------------- what JAX has to know
ruled_p = Primitive("function_with_rule")
ruled_p.multiple_results = True


@ruled_p.def_impl
def _evaluate(*leaves: Any, body: ClosedJaxpr, **_: Any) -> list[Any]:
    return jax.jit(jaxpr_as_fun(body))(*leaves)


@ruled_p.def_abstract_eval
def _abstract(*avals: Any, body: ClosedJaxpr, **_: Any) -> Sequence[Any]:
    return body.out_avals


def _jvp(primals: Any, tangents: Any, *, body: ClosedJaxpr, rule: Callable[..., Any], batches: Any) -> Any:
    moving = tuple(i for i, t in enumerate(tangents) if type(t) is not ad.Zero)
    function = partial(rule, moving)
    for axes in batches:  # the innermost comes first
        function = jax.vmap(function, in_axes=(list(axes), [axes[i] for i in moving]))
    return function(list(primals), [tangents[i] for i in moving])


def _batch(leaves: Any, axes: Any, *, body: ClosedJaxpr, rule: Callable[..., Any], batches: Any) -> Any:
    body = jax.make_jaxpr(jax.vmap(jaxpr_as_fun(body), in_axes=tuple(axes)))(*leaves)
    out = ruled_p.bind(*leaves, body=body, rule=rule, batches=(*batches, tuple(axes)))
    return out, [0] * len(out)


def _lower(context: Any, *leaves: Any, body: ClosedJaxpr, **_: Any) -> Any:
    return mlir.core_call_lowering(context, *leaves, name=ruled_p.name, call_jaxpr=body)


ad.primitive_jvps[ruled_p] = _jvp
batching.primitive_batchers[ruled_p] = _batch
mlir.register_lowering(ruled_p, _lower)
