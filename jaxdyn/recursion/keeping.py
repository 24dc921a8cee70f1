"""What is worked out once: a word to XLA's compiler, of which results do not depend.

On a CPU, XLA makes a kernel for every component that a step hands on. What several of them need it works out again in
each, unless it is dear (a root, a quotient); `jax.lax.optimization_barrier` is gone by the time at which it decides.
What a function that is not to be merged with others returns is there once.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn.recursion.target import in_tiles

try:
    from jax.experimental.xla_metadata import set_xla_metadata
except ImportError:  # then steps only take longer
    set_xla_metadata = None  # type: ignore[assignment]


def kept(*trees: Any) -> Any:
    """Return the same pytrees, their arrays worked out once, not again in every operation that uses them.

    Of use in the step of a sweep, on a CPU, for what is large and has several uses. Plain numbers stay as they are.
    """
    leaves, form = jax.tree.flatten(trees)
    arrays = [i for i, x in enumerate(leaves) if not isinstance(x, (int, float))]
    if not arrays or set_xla_metadata is None or not in_tiles():
        return trees
    apart = jax.jit(jax.lax.optimization_barrier)([jnp.asarray(leaves[i]) for i in arrays])
    for i, x in zip(arrays, set_xla_metadata(apart, inlineable="false"), strict=True):
        leaves[i] = x
    return jax.tree.unflatten(form, leaves)
