"""A function of one state as one operation of JAX, with two ways to run: for one state, and for a batch.

JAX never looks inside. Whether there is a batch shows when the operation is batched (`jax.vmap`) or compiled, and
only then is it traced, in the way that is wanted. Tracing is a good part of the time that compiling takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from jaxdyn.recursion.linear import types_of_results


@dataclass(frozen=True, eq=False)
class Stated:
    """A function of one state that knows how to run on a batch. It has no derivatives."""

    one: Callable[..., Any]
    """The function."""
    many: Callable[..., Any]
    """Of (size of the batch, whether each argument is batched, the arguments with the batch as first axis), the
    results with the batch as first axis."""
    like: Callable[..., Any] | None = None
    """Of the arguments, the results as `jax.ShapeDtypeStruct`; without it, `one` is traced whatever is wanted."""

    def __call__(self, *args: Any) -> Any:
        """Return the function's value."""
        if self.like is None:
            return self._traced(*args)
        leaves, form = jax.tree.flatten(args)
        results, structure = jax.tree.flatten(self.like(*args))
        shapes = tuple((result.shape, result.dtype) for result in results)
        return jax.tree.unflatten(structure, state_p.bind(*map(jnp.asarray, leaves), of=self, form=form, shapes=shapes))

    @cached_property
    def _traced(self) -> Any:
        function = custom_vmap(self.one)

        @function.def_vmap
        def rule(size: int, is_batched: Any, *args: Any) -> Any:
            out = self.many(size, is_batched, *args)
            return out, jax.tree.map(lambda _: True, out)

        return function


# ---------------------------------------------------------------------- what JAX has to know
state_p = Primitive("function_of_state")
state_p.multiple_results = True


def _run(*leaves: Any, of: Stated, form: Any, shapes: Any) -> list[jax.Array]:
    return _typed(of.one(*jax.tree.unflatten(form, leaves)), shapes)


def _typed(out: Any, shapes: Any) -> list[jax.Array]:
    return [x.astype(dtype) for x, (_, dtype) in zip(jax.tree.leaves(out), shapes, strict=True)]


@state_p.def_impl
def _evaluate(*leaves: Any, **params: Any) -> list[jax.Array]:
    return jax.jit(lambda *leaves: _run(*leaves, **params))(*leaves)


@state_p.def_abstract_eval
def _abstract(*avals: Any, of: Stated, form: Any, shapes: Any) -> Any:
    return types_of_results(avals, shapes)


def _batch(leaves: Any, dims: Any, *, of: Stated, form: Any, shapes: Any) -> Any:
    size = next(a.shape[d] for a, d in zip(leaves, dims, strict=True) if d is not None)
    leaves = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(leaves, dims, strict=True)]
    is_batched = jax.tree.unflatten(form, [d is not None for d in dims])
    out = _typed(of.many(size, is_batched, *jax.tree.unflatten(form, leaves)), shapes)
    return out, [0] * len(out)


batching.primitive_batchers[state_p] = _batch
mlir.register_lowering(state_p, mlir.lower_fun(_run, multiple_results=True))
