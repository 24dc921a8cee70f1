"""Batches: how a function of one state runs on many.

The sweeps want the batch as the last axis of every array: each scalar of a formula is then a row over the
batch. `batched` gives a function of arrays with that axis the ordinary interface: it takes one state, and
`jax.vmap` brings the batch to the last axis, cuts a large one into tiles that fit the cache of a CPU, and
flattens nested batches into one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

Kernel = Callable[..., Any]


def batched(kernel: Kernel, *, tile: Callable[..., int] | None = None, single: Kernel | None = None) -> Kernel:
    """Make a kernel on batches a function of one state.

    Args:
        kernel: a function of pytrees of arrays (..., batch); batch is the same number everywhere, or 1. Its
            results have the axis too.
        tile: of the same arguments, the largest batch to run at once on a CPU.
        single: a form of the same function for one state, without the batch axis, if another is faster.

    Returns:
        A function of the same arguments without the batch axis. Derivatives are those of the kernel.
    """

    def one(*args: Any) -> Any:
        return _drop(kernel(*_add(args)))

    @custom_vmap
    def many(*args: Any) -> Any:
        return kernel(*args)

    @many.def_vmap
    def nested(size: int, is_batched: Any, *args: Any) -> Any:
        inner = max((x.shape[-1] for x, b in zip(jax.tree.leaves(args), jax.tree.leaves(is_batched), strict=True)), default=1)

        def flatten(x: Any, b: bool) -> Any:
            if not b:
                x = jnp.broadcast_to(x[None], (size, *x.shape)) if x.shape[-1] > 1 else x
                if x.shape[-1] == 1 and x.ndim and not b and inner >= 1 and x.shape[0] != size:
                    return x
                b = x.shape[-1] > 1
                if not b:
                    return x
            x = jnp.broadcast_to(x, (*x.shape[:-1], inner))
            return jnp.moveaxis(x, 0, -2).reshape((*x.shape[1:-1], size * inner))

        out = many(*jax.tree.map(flatten, args, is_batched))
        out = jax.tree.map(lambda x: jnp.moveaxis(x.reshape((*x.shape[:-1], size, inner)), -2, 0), out)
        return out, jax.tree.map(lambda _: True, out)

    @custom_vmap
    def primal(*args: Any) -> Any:
        return one(*args) if single is None else single(*args)

    @primal.def_vmap
    def rule(size: int, is_batched: Any, *args: Any) -> Any:
        most = size if tile is None or jax.default_backend() != "cpu" else tile(*args)
        out = _in_tiles(many, size, most, is_batched, args)
        return out, jax.tree.map(lambda _: True, out)

    @jax.custom_jvp
    def function(*args: Any) -> Any:
        return primal(*args)

    def derivative(primals: Any, tangents: Any) -> Any:
        leaves, form = jax.tree.flatten(primals)
        directions = jax.tree.leaves(tangents, is_leaf=lambda t: isinstance(t, SymbolicZero))
        moving = [i for i, t in enumerate(directions) if not isinstance(t, SymbolicZero)]

        def along(*values: Any) -> Any:
            whole = list(leaves)
            for i, value in zip(moving, values, strict=True):
                whole[i] = value
            return one(*jax.tree.unflatten(form, whole))

        return jax.jvp(along, [leaves[i] for i in moving], [directions[i] for i in moving])

    function.defjvp(derivative, symbolic_zeros=True)
    return wraps(kernel)(function)


def _add(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x)[..., None], tree)


def _drop(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[..., 0], tree)


def _in_tiles(kernel: Kernel, size: int, most: int, is_batched: Any, args: Any) -> Any:
    """Run a kernel on a batch, whose axis is the first of each batched leaf, in tiles of at most `most`."""
    flags, leaves, form = jax.tree.leaves(is_batched), *jax.tree.flatten(args)
    fixed = [jnp.asarray(x)[..., None] for x, b in zip(leaves, flags, strict=True) if not b]
    moving = [x for x, b in zip(leaves, flags, strict=True) if b]

    def run(moving: Any) -> Any:
        still, rest = iter(fixed), (jnp.moveaxis(x, 0, -1) for x in moving)
        out = kernel(*jax.tree.unflatten(form, [next(rest) if b else next(still) for b in flags]))
        return jax.tree.map(lambda x: jnp.moveaxis(jnp.broadcast_to(x, (*x.shape[:-1], n_of(moving))), -1, 0), out)

    def n_of(moving: Any) -> int:
        return moving[0].shape[0]

    if size <= most:
        return run(moving)
    tiles = -(-size // most)
    width = -(-size // tiles)
    missing = tiles * width - size
    cut = [
        jnp.concatenate([x, jnp.broadcast_to(x[-1:], (missing, *x.shape[1:]))]) if missing else x for x in moving
    ]
    out = jax.lax.map(run, [x.reshape((tiles, width, *x.shape[1:])) for x in cut])
    return jax.tree.map(lambda x: x.reshape((tiles * width, *x.shape[2:]))[:size], out)
