"""Batches: how a function of one state runs on many.

The sweeps want the batch as the last axis of every array: each scalar of a formula is then a row over the
batch. `batched` gives a function of arrays with that axis the ordinary interface: it takes one state, and
`jax.vmap` brings the batch to the last axis, cuts a large one into tiles that fit the cache of a CPU, and
flattens nested batches into one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

from jaxdyn.recursion.linear import Derivative, with_values
from jaxdyn.recursion.ruled import Ruled
from jaxdyn.recursion.stated import Stated
from jaxdyn.recursion.target import in_tiles

Kernel = Callable[..., Any]


def batched(
    kernel: Kernel,
    *,
    tile: Callable[..., int],
    single: Kernel | None = None,
    single_if: Callable[..., bool] = lambda *args: True,
    last: Kernel | None = None,
    pull_back: Kernel | None = None,
    push_forward: Kernel | None = None,
    like: Kernel | None = None,
    factor: int | None = None,
) -> Any:
    """Make a kernel on batches a function of one state, to be batched and differentiated.

    Args:
        kernel: a function of pytrees of arrays (..., batch); the batch axis has one length everywhere, or 1.
            Its results have the axis too.
        tile: of the arguments of the function, the batch that fits a CPU's cache. Larger batches are cut
            into tiles of about that size, on CPUs only.
        single: another form of the same function, for one state, without the batch axis; takes the
            kernel's place where there is no batch and `single_if` of the arguments is true.
        last: what remains to be done for one state, a function of the kernel's result (without the batch
            axis) and of the arguments. It runs after the tiles, with the batch as the first axis: of use
            where a large result, such as a matrix, is made of a small one.
        pull_back: the kernel's transposed derivative in closed form, if there is one: of (wanted, cotangent,
            *arguments) the cotangents of the arguments, or NotImplemented; `wanted` is like the arguments, with
            booleans in place of arrays, and where it is false the result does not count.
        push_forward: the kernel's derivative in closed form, if there is one: of (changes, *arguments) the change of
            the result, or NotImplemented; `changes` is like the arguments, with None in place of what does not change.
        like: of the arguments, shapes and types of the results for one state, as `jax.ShapeDtypeStruct`. Given it,
            the function is traced only in the way in which it is used: for one state or for a batch.
        factor: number of an argument, an array, in which the kernel is linear. Where it is zero for the whole batch,
            derivatives by the others cost nothing.

    Returns:
        A function of the same arguments without the batch axis, for use under `jit`, `vmap`, `grad`, ...
        Its derivatives, forward and reverse, of any order, are those of the kernel; they run on batches and
        in tiles as it does, and keep nothing of it in memory but the arguments.
    """
    primal = tiled(kernel, tile=tile, single=single, single_if=single_if, last=last, like=like)
    if last is not None:
        return update_wrapper(_followed(primal, batched(kernel, tile=tile), last), kernel)

    def along(primals: Any, tangents: Any, like: Any) -> Any:
        """Return the derivative along what moves; the rest is constant."""
        leaves: list[Any]
        form: Any
        leaves, form = jax.tree.flatten(primals)
        results, form_of_results = jax.tree.flatten(like)
        moving, directions = moving_leaves(tangents)
        if not moving:
            return jax.tree.map(jnp.zeros_like, like)
        still = None if factor is None else len(jax.tree.leaves(primals[:factor]))

        def transposed(leaves: Any, cotangents: Any) -> Any:
            """Return the cotangents of what moves in closed form, or None."""
            wanted = jax.tree.unflatten(form, [i in moving for i in range(len(leaves))])
            cotangent = jax.tree.unflatten(form_of_results, cotangents)
            found = pull_back(wanted, cotangent, *jax.tree.unflatten(form, leaves)) if pull_back else NotImplemented
            return None if found is NotImplemented else [form.flatten_up_to(found)[i] for i in moving]

        def pushed(leaves: Any, x: Any) -> Any:
            """Return the change of the result in closed form, or None."""
            if push_forward is None:
                return None
            changes = jax.tree.unflatten(form, with_values([None] * len(leaves), moving, x))
            found = push_forward(changes, *jax.tree.unflatten(form, leaves))
            if found is NotImplemented:
                return None
            return [y.astype(r.dtype) for y, r in zip(jax.tree.leaves(found), results, strict=True)]

        L = Derivative(
            kernel=lambda leaves: jax.tree.leaves(kernel(*jax.tree.unflatten(form, leaves))),
            of_one=lambda kernel, tile, **options: tiled(kernel, tile=tile, **options),
            tile=lambda leaves: tile(*jax.tree.unflatten(form, leaves)),
            moving=moving,
            shapes=tuple((x.shape, x.dtype) for x in results),
            count=len(leaves),
            pull_back=transposed,
            push_forward=pushed,
            factor=None if still is None or still in moving else still,
        )
        return jax.tree.unflatten(form_of_results, L(leaves, directions))

    return update_wrapper(Batched(primal, along), kernel)


class Batched:
    """A function of one state, to be batched and differentiated."""

    def __init__(self, primal: Kernel, along: Kernel):
        self.along = along
        """Of (arguments, their changes, an array or pytree like the result), the change of the result.

        Changes may be `SymbolicZero`. The function itself is neither evaluated nor traced.
        """
        self._function = Ruled(primal, self._derivative)

    def __call__(self, *args: Any) -> Any:
        """Return the function's value."""
        return self._function(*args)

    def _derivative(self, primals: Any, tangents: Any) -> Any:
        out = self(*primals)
        return out, self.along(primals, tangents, out)


def _followed(primal: Kernel, first: Kernel, last: Kernel) -> Kernel:
    """Give a kernel that is followed by something the derivatives of both."""

    def derivative(primals: Any, tangents: Any) -> Any:
        leaves, form = jax.tree.flatten(primals)
        moving, directions = moving_leaves(tangents)
        whole = lambda values: jax.tree.unflatten(form, with_values(leaves, moving, values))
        both = lambda values: last(first(*whole(values)), *whole(values))
        return jax.jvp(both, ([leaves[i] for i in moving],), (directions,))

    return Ruled(primal, derivative)


def moving_leaves(tangents: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Return the numbers of the leaves that change, and their changes; the others are symbolic zeros."""
    changes = jax.tree.leaves(tangents, is_leaf=lambda t: isinstance(t, SymbolicZero))
    moving = tuple(i for i, change in enumerate(changes) if not isinstance(change, SymbolicZero))
    return moving, [changes[i] for i in moving]


def tiled(
    kernel: Kernel,
    *,
    tile: Callable[..., int],
    single: Kernel | None = None,
    single_if: Callable[..., bool] = lambda *args: True,
    last: Kernel | None = None,
    like: Kernel | None = None,
    summed: Sequence[bool] | None = None,
    zero_from: int | None = None,
) -> Stated:
    """Make a kernel on batches a function of one state, as `batched` does, that has no derivatives.

    Args:
        kernel, tile, single, single_if, last, like: as in `batched`.
        summed: for each leaf of the result, whether it is a sum over the batch, (..., 1): then so it is over all tiles.
            Such a function is not to be batched twice.
        zero_from: number of the argument from which on what fills up the last tile is zero, not a copy.
    """

    def one(*args: Any) -> Any:
        out = _on_one(kernel)(*args)
        return out if last is None else last(out, *args)

    @custom_vmap
    def many(*args: Any) -> Any:
        return kernel(*args)

    @many.def_vmap
    def nested(size: int, is_batched: Any, *args: Any) -> Any:
        """Flatten a second batch into the last axis, as much of it as still makes a tile."""
        inner = max(x.shape[-1] for x in jax.tree.leaves(args))
        if not size:
            out = _empty(kernel, args, jax.tree.leaves(is_batched))
            return out, jax.tree.map(lambda _: True, out)

        def flat(*args: Any) -> Any:
            """Run on arguments with both batches last."""
            width = max(x.shape[-1] for x in jax.tree.leaves(args))

            def flattened(x: jax.Array) -> jax.Array:
                both = (inner, width) if max(x.shape[-2:]) > 1 else (1, 1)
                return jnp.broadcast_to(x, (*x.shape[:-2], *both)).reshape((*x.shape[:-2], both[0] * both[1]))

            out = many(*jax.tree.map(flattened, args))
            return jax.tree.map(lambda x: _to_batch(x, inner * width).reshape((*x.shape[:-1], inner, width)), out)

        most = max(tile(*args) // inner, 1) if in_tiles() else size
        out = _in_tiles(flat, size, most, is_batched, args, least=1)
        return out, jax.tree.map(lambda _: True, out)

    def of_one(*args: Any) -> Any:
        return single(*args) if single is not None and single_if(*args) else one(*args)

    def of_many(size: int, is_batched: Any, *args: Any) -> Any:
        if not size:
            none = _empty(one, args, jax.tree.leaves(is_batched))
            return none if summed is None else [x.sum(0) if s else x for x, s in zip(none, summed, strict=True)]
        most = tile(*args) if in_tiles() else size
        run = many if summed is None else kernel
        out = _in_tiles(
            run, size, most, is_batched, args, least=1 if last is None else 2, summed=summed, zero_from=zero_from
        )
        if last is not None:
            out = jax.vmap(last, in_axes=(0, *jax.tree.map(lambda b: 0 if b else None, is_batched)))(out, *args)
        return out

    return Stated(of_one, of_many, like)


def _even(width: int) -> int:
    """Return a width of tiles that vectors of a CPU divide, if that adds little."""
    return width if width < 64 else -(-width // 8) * 8


def _filled_up(x: jax.Array, size: int, nothing: bool = False) -> jax.Array:
    """Return x with rows added: copies of the last one, or zeros."""
    missing, last = size - len(x), x[-1:]
    return (
        jnp.concatenate([x, jnp.repeat(jnp.zeros_like(last) if nothing else last, missing, axis=0)]) if missing else x
    )


def _empty(function: Kernel, args: Any, flags: list[bool]) -> Any:
    """Return the results of a function for an empty batch, the first axis of the batched leaves."""
    leaves, form = jax.tree.flatten(args)
    one = [jax.ShapeDtypeStruct(x.shape[b:], x.dtype) for x, b in zip(leaves, flags, strict=True)]
    shapes = jax.eval_shape(function, *jax.tree.unflatten(form, one))
    return jax.tree.map(lambda x: jnp.zeros((0, *x.shape), x.dtype), shapes)


def _on_one(kernel: Kernel) -> Kernel:
    """Return a kernel as a function of one state, a batch of one."""
    return lambda *args: jax.tree.map(
        lambda x: x[..., 0], kernel(*jax.tree.map(lambda x: jnp.asarray(x)[..., None], args))
    )


def _to_batch(x: jax.Array, size: int) -> jax.Array:
    """Return an array whose last axis has the length of the batch, or 1, with that of the batch."""
    return jnp.broadcast_to(x, (*x.shape[:-1], size))


def _in_tiles(
    kernel: Kernel,
    size: int,
    most: int,
    is_batched: Any,
    args: Any,
    least: int,
    summed: Sequence[bool] | None = None,
    zero_from: int | None = None,
) -> Any:
    """Run a kernel on a batch, the first axis of each batched leaf, in equal tiles of about `most` at most.

    With at least two tiles their loop keeps XLA from fusing what comes after into the kernel.
    """
    flags, (leaves, form) = jax.tree.leaves(is_batched), jax.tree.flatten(args)
    fixed = [jnp.asarray(x)[..., None] for x, b in zip(leaves, flags, strict=True) if not b]

    def run(moving: list[jax.Array]) -> Any:
        still, rest = iter(fixed), (jnp.moveaxis(x, 0, -1) for x in moving)
        out = kernel(*jax.tree.unflatten(form, [next(rest) if b else next(still) for b in flags]))
        width = moving[0].shape[0]
        return mapped(lambda x: x[..., 0], lambda x: jnp.moveaxis(_to_batch(x, width), -1, 0), out)

    def mapped(of_sums: Kernel, of_rest: Kernel, out: Any) -> Any:
        results, form = jax.tree.flatten(out)
        is_sum = summed or [False] * len(results)
        return jax.tree.unflatten(form, [(of_sums if s else of_rest)(x) for x, s in zip(results, is_sum, strict=True)])

    moving = [x for x, b in zip(leaves, flags, strict=True) if b]
    tiles = max(-(-size // most), min(least, size))
    if tiles <= 1:
        return run(moving)
    width = _even(-(-size // tiles))
    tiles = max(-(-size // width), min(least, size))
    if summed is None:  # the last tile begins early enough to be full: what it shares with the one before is the same
        starts = np.minimum(width * np.arange(tiles), size - width)
        out = jax.lax.map(lambda start: run([jax.lax.dynamic_slice_in_dim(x, start, width) for x in moving]), starts)
        return jax.tree.map(partial(_joined, size=size), out)
    zero = [zero_from is not None and i >= zero_from for i, b in enumerate(flags) if b]
    moving = [_filled_up(x, tiles * width, nothing) for x, nothing in zip(moving, zero, strict=True)]
    out = jax.lax.map(run, [x.reshape((tiles, width, *x.shape[1:])) for x in moving])
    return mapped(lambda x: x.sum(0), lambda x: x.reshape((tiles * width, *x.shape[2:]))[:size], out)


def _joined(tiles: jax.Array, size: int) -> jax.Array:
    """Return the rows of tiles (tiles, width, ...), of which the last begins where it ends with the batch."""
    count, width, *rest = tiles.shape
    if count * width == size:
        return tiles.reshape((size, *rest))
    before = (count - 1) * width
    return jnp.concatenate([tiles[:-1].reshape((before, *rest)), tiles[-1, before - size :]])
