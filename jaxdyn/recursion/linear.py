"""The derivative of a kernel as one linear operation of JAX, with two ways to run: forward and transposed.

Let L be the derivative of a kernel at its arguments. For JAX the product L x is a primitive: it never looks
inside, transposes it into L* y, batches both, and differentiates them by asking for the derivative of the kernel
that works them out. So derivatives of any order, forward and reverse, run on batches and in tiles as the kernel
does, keep nothing in memory but arguments, and are traced only in the way in which they are used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

Kernel = Callable[..., Any]
Shape = tuple[tuple[int, ...], Any]


class Linear(ABC):
    """A linear map of some arrays x to some arrays y, which depends on other arrays, the leaves."""

    count: int
    """Number of leaves."""

    def __call__(self, leaves: Sequence[Any], x: Sequence[Any]) -> list[Any]:
        """Return y."""
        return linear_p.bind(*leaves, *x, of=self)

    @abstractmethod
    def run(self, *args: Any) -> list[Any]:
        """Work out y from the leaves and x."""

    @abstractmethod
    def shapes_of(self, leaves: Sequence[Shape]) -> Sequence[Shape]:
        """Return shapes and types of y, from those of the leaves."""

    @abstractmethod
    def transpose(self) -> Linear:
        """Return the map from y to x."""

    @abstractmethod
    def along(self, moving: tuple[int, ...], shapes: Sequence[Shape]) -> Linear:
        """Return the derivative of y, of the given shapes, by some leaves; its leaves are all arguments of this map."""


@dataclass(frozen=True, eq=False)
class Derivative(Linear):
    """The derivative of a kernel by some of its leaves, at one state."""

    kernel: Kernel
    """A function of a list of leaves (..., batch), whose result is a list of such arrays."""
    of_one: Callable[..., Any]
    """Makes a kernel, given the tile for its arguments, a function of one state (see `batching.tiled`)."""
    tile: Callable[[Sequence[Any]], int]
    """Of the leaves, the tile of the kernel itself."""
    moving: tuple[int, ...]
    """Numbers of the leaves by which to differentiate."""
    shapes: tuple[Shape, ...]
    """Shape and type of the kernel's results for one state."""
    count: int
    pull_back: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any] | None] = lambda leaves, x: None
    """Of the leaves and x, the transposed product L* x in closed form, or None."""
    push_forward: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any] | None] = lambda leaves, x: None
    """Of the leaves and x, the product L x in closed form, or None."""
    factor: int | None = None
    """Number of a leaf that does not move, and in which the kernel is linear: where it is zero, so is L."""
    transposed: bool = False

    def on_batches(self, *args: Any, summed: Sequence[bool] | None = None, counts: Any = None) -> list[Any]:
        """Return L x, or L* x if transposed, of arrays (..., batch).

        Where one leaf serves the whole batch, so may its change. Results that are `summed` are so over those states of
        the batch that count.
        """
        leaves, x = args[: self.count], args[self.count :]
        size = max(a.shape[-1] for a in args)
        wide = lambda a: jnp.broadcast_to(a, (*a.shape[:-1], size))
        at = lambda *values: [wide(a) for a in self.kernel(with_values(leaves, self.moving, values))]
        moving = [leaves[i] for i in self.moving]
        if self.transposed:
            shared = [False] * len(moving) if summed is None else summed
            values = [v if one else wide(v) for v, one in zip(moving, shared, strict=True)]
            cotangents = [wide(a) if counts is None else jnp.where(counts, wide(a), 0) for a in x]
            product = self.pull_back(with_values(leaves, self.moving, values), cotangents)
            product = jax.vjp(at, *values)[1](cotangents) if product is None else product
            out = [summed_as(v, y.astype(v.dtype)) for y, v in zip(product, values, strict=True)]
        else:
            product = self.push_forward(leaves, x)
            out = self._by_autodiff(at, moving, x) if product is None else [wide(a) for a in product]
        if summed is None:
            return out
        total = lambda y: y if y.shape[-1] == 1 else jnp.where(counts, y, 0).sum(-1, keepdims=True)
        return [total(y) if one else y for y, one in zip(out, summed, strict=True)]

    @staticmethod
    def _by_autodiff(at: Kernel, moving: Sequence[Any], x: Sequence[Any]) -> list[Any]:
        """Return L x; where one leaf serves the whole batch, so may its change."""
        widths = [max(v.shape[-1], a.shape[-1]) for v, a in zip(moving, x, strict=True)]
        fit = lambda arrays: [jnp.broadcast_to(a, (*a.shape[:-1], n)) for a, n in zip(arrays, widths, strict=True)]
        return jax.jvp(at, fit(moving), fit(x))[1]

    def _unless_zero(self, *args: Any, **sums: Any) -> list[Any]:
        """Return the same, which costs nothing where it is known to be zero. Its derivatives may be others."""
        if self.factor is None:
            return self.on_batches(*args, **sums)
        body, like = jax.make_jaxpr(partial(self.on_batches, **sums), return_shape=True)(*args)
        product, nothing = jaxpr_as_fun(body), lambda *_: [jnp.zeros(y.shape, y.dtype) for y in like]
        return jax.lax.cond((args[self.factor] != 0).any(), product, nothing, *args)

    def _smaller(self, *args: Any) -> int:
        """Return the tile: derivatives have about twice as many rows as the kernel (measured)."""
        return max(self.tile(args[: self.count]) * 4 // 7, 1)

    def run(self, *args: Any) -> list[Any]:
        return self.of_one(self._unless_zero, self._smaller).one(*args)

    def run_many(
        self, size: int, is_batched: Sequence[bool], *args: Any, summed: Sequence[bool] | None = None
    ) -> list[Any]:
        """Return the results of a batch, the first axis of batched arguments; it is traced as such only.

        Results that are `summed` are so over the batch, and have no such axis.
        """
        if summed is None:
            return self.of_one(self._unless_zero, self._smaller).many(size, is_batched, *args)
        kernel = lambda *args: self._unless_zero(*args[:-1], summed=summed, counts=args[-1])
        of_one = self.of_one(kernel, self._smaller, summed=summed, zero_from=len(args))
        return of_one.many(size, [*is_batched, True], *args, jnp.ones(size, bool))

    def shapes_of(self, leaves: Sequence[Shape]) -> Sequence[Shape]:
        return [leaves[i] for i in self.moving] if self.transposed else self.shapes

    def transpose(self) -> Linear:
        return replace(self, transposed=not self.transposed)

    def along(self, moving: tuple[int, ...], shapes: Sequence[Shape]) -> Linear:
        count = self.count + (len(self.shapes) if self.transposed else len(self.moving))
        kernel, tile = lambda args: self.on_batches(*args), lambda args: self.tile(args[: self.count])
        return Derivative(kernel, self.of_one, tile, moving, tuple(shapes), count)


@dataclass(frozen=True, eq=False)
class Batch(Linear):
    """The same map for a batch, the first axis of the arrays that are not shared by all of it."""

    one: Linear
    batched: tuple[bool, ...]
    """Whether each leaf is."""
    size: int
    shared_x: tuple[bool, ...]
    """Whether one x serves the whole batch."""
    shared_y: tuple[bool, ...]
    """Whether y is summed over the batch."""

    @property
    def count(self) -> int:  # type: ignore[override]
        return len(self.batched)

    def run(self, *args: Any, within: bool = False) -> list[Any]:
        """Work out y; `within` another batch, sums are taken one by one."""
        flags = [*self.batched, *(not shared for shared in self.shared_x)]
        if isinstance(self.one, Derivative) and not within and any(self.shared_y):
            return self.one.run_many(self.size, flags, *args, summed=self.shared_y)
        if isinstance(self.one, Derivative):
            out = self.one.run_many(self.size, flags, *args)
        else:
            assert isinstance(self.one, Batch)
            out = jax.vmap(partial(self.one.run, within=True), in_axes=[0 if b else None for b in flags])(*args)
        return [y.sum(0) if shared else y for y, shared in zip(out, self.shared_y, strict=True)]

    def shapes_of(self, leaves: Sequence[Shape]) -> Sequence[Shape]:
        of_one = [(s[b:], dtype) for (s, dtype), b in zip(leaves, self.batched, strict=True)]
        shapes = zip(self.one.shapes_of(of_one), self.shared_y, strict=True)
        return [(shape if shared else (self.size, *shape), dtype) for (shape, dtype), shared in shapes]

    def transpose(self) -> Linear:
        return replace(self, one=self.one.transpose(), shared_x=self.shared_y, shared_y=self.shared_x)

    def along(self, moving: tuple[int, ...], shapes: Sequence[Shape]) -> Linear:
        both = zip(shapes, self.shared_y, strict=True)
        inner = self.one.along(moving, [(s if shared else s[1:], dtype) for (s, dtype), shared in both])
        flags = *self.batched, *(not shared for shared in self.shared_x)
        return Batch(inner, flags, self.size, tuple(not self.batched[i] for i in moving), self.shared_y)


def summed_as(like: jax.Array, x: jax.Array) -> jax.Array:
    """Return x (..., batch) in the shape of another array, (..., batch) or, of the sum over the batch, (..., 1)."""
    if like.shape[-1] == 1 < x.shape[-1]:
        return x.sum(-1, keepdims=True)
    return jnp.broadcast_to(x, like.shape)


def with_values(leaves: Sequence[Any], moving: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """Return the leaves with other values of the moving ones."""
    whole = list(leaves)
    for i, value in zip(moving, values, strict=True):
        whole[i] = value
    return whole


def types_of_results(arguments: Sequence[Any], shapes: Sequence[Shape]) -> list[Any]:
    """Return abstract arrays of the given shapes and types, which vary over the mesh axes of the arguments."""

    def results(*args: Any) -> list[Any]:
        nothing = sum(jnp.where(False, a, 0).sum() for a in args if jnp.issubdtype(a.dtype, jnp.floating))
        return [jnp.broadcast_to(jnp.asarray(nothing, dtype), shape) for shape, dtype in shapes]

    return jax.make_jaxpr(results)(*arguments).out_avals


# ---------------------------------------------------------------------- what JAX has to know
linear_p = Primitive("derivative_of_kernel")
linear_p.multiple_results = True


@linear_p.def_impl
def _evaluate(*args: Any, of: Linear) -> list[Any]:
    return jax.jit(of.run)(*args)


@linear_p.def_abstract_eval
def _abstract(*avals: Any, of: Linear) -> list[Any]:
    return types_of_results(avals, of.shapes_of([(a.shape, a.dtype) for a in avals[: of.count]]))


def _jvp(primals: Any, tangents: Any, *, of: Linear) -> Any:
    out = linear_p.bind(*primals, of=of)
    leaves, (by_leaves, by_x) = primals[: of.count], (tangents[: of.count], tangents[of.count :])
    changes = []
    if not all(type(t) is ad.Zero for t in by_x):
        changes.append(of(leaves, [ad.instantiate_zeros(t) for t in by_x]))  # the map is linear
    moving = tuple(i for i, t in enumerate(by_leaves) if type(t) is not ad.Zero)
    if moving:
        by_moving = of.along(moving, [(a.shape, a.dtype) for a in out])
        changes.append(by_moving(primals, [by_leaves[i] for i in moving]))
    return out, [sum(parts[1:], start=parts[0]) for parts in zip(*changes, strict=True)]


def _transpose(cotangents: Any, *args: Any, of: Linear) -> Any:
    leaves, x = args[: of.count], args[of.count :]
    pulled = of.transpose()(leaves, [ad.instantiate_zeros(c) for c in cotangents])
    return [None] * of.count + [c if ad.is_undefined_primal(a) else None for a, c in zip(x, pulled, strict=True)]


def _batch(args: Any, dims: Any, *, of: Linear) -> Any:
    size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    args = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(args, dims, strict=True)]
    leaves, x, batched = args[: of.count], args[of.count :], tuple(d is not None for d in dims)
    shared_x = tuple(not b for b in batched[of.count :])
    shapes = of.shapes_of([(jnp.shape(a)[b:], jnp.result_type(a)) for a, b in zip(leaves, batched, strict=False)])
    out = Batch(of, batched[: of.count], size, shared_x, (False,) * len(shapes))(leaves, x)
    return out, [0] * len(out)


ad.primitive_jvps[linear_p] = _jvp
ad.primitive_transposes[linear_p] = _transpose
batching.primitive_batchers[linear_p] = _batch
mlir.register_lowering(linear_p, mlir.lower_fun(lambda *args, of: of.run(*args), multiple_results=True))
