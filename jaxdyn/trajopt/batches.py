"""Batches of problems, a few at a time.

Under `jax.vmap` the iterations of all problems would go on until the last one is solved, and what they keep would not
fit the caches of a CPU. In groups, each group stops when its own members are done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from jaxdyn.recursion.target import in_tiles

GROUP = 48 * 2**20
"""Bytes that the problems of a group may keep in memory, unless there are less than SMALLEST."""
SMALLEST = 4


def in_groups(solve: Callable[..., Any], size: int) -> Callable[..., Any]:
    """Return a solver that takes batches of problems in groups, one after the other; on CPUs.

    Args:
        solve: a function of pytrees of arrays. It may close over arrays, batched ones among them.
        size: roughly how many bytes one problem keeps in memory.
    """

    def grouped(*args: Any) -> Any:
        leaves, form = jax.tree.flatten(args)
        traced, like = jax.make_jaxpr(lambda *x: solve(*jax.tree.unflatten(form, x)), return_shape=True)(*leaves)
        count = len(traced.consts)  # what it closes over
        most = max(GROUP // size, SMALLEST)
        function = lambda *x: jax.core.eval_jaxpr(traced.jaxpr, x[:count], *x[count:])
        one = custom_vmap(function)

        @one.def_vmap
        def many(problems: int, is_batched: Any, *leaves: Any) -> Any:
            at_once = jax.vmap(function, [0 if b else None for b in is_batched])
            moving = [x for x, b in zip(leaves, is_batched, strict=True) if b]

            def run(moving: Any) -> Any:
                rest = iter(moving)
                return at_once(*(next(rest) if b else x for x, b in zip(leaves, is_batched, strict=True)))

            out = _by_groups(run, problems, most if in_tiles() else problems, moving)
            return out, [True] * len(out)

        return jax.tree.unflatten(jax.tree.structure(like), one(*traced.consts, *leaves))

    return grouped


def _by_groups(run: Callable[..., Any], size: int, most: int, moving: list[jax.Array]) -> Any:
    """Run a function on a batch in equal groups of `most` at most; the last one is filled up with copies."""
    groups = -(-size // most)
    if groups <= 1:
        return run(moving)
    width = -(-size // groups)
    filled = lambda x: jnp.concatenate([x, jnp.repeat(x[-1:], groups * width - size, axis=0)])
    out = jax.lax.map(run, [filled(x).reshape(groups, width, *x.shape[1:]) for x in moving])
    return jax.tree.map(lambda x: x.reshape(groups * width, *x.shape[2:])[:size], out)
