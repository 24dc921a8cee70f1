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
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
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

    def lift(self, leaf: int, change: Any) -> Any:
        """Return the change of a leaf as an argument of `along`."""
        return change


@dataclass(frozen=True, eq=False)
class Derivative(Linear):
    """The derivative of a kernel by some of its leaves, at one state."""

    kernel: Kernel
    """A function of a list of leaves (..., batch), whose result is a list of such arrays."""
    of_one: Callable[[Kernel, Callable[..., int]], Kernel]
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
    transposed: bool = False

    def on_batches(self, *args: Any) -> list[Any]:
        """Return L x, or L* x if transposed, of arrays (..., batch)."""
        leaves, x = args[: self.count], args[self.count :]
        size = max(a.shape[-1] for a in args)
        wide = lambda a: jnp.broadcast_to(a, (*a.shape[:-1], size))
        at = lambda *values: [wide(a) for a in self.kernel(with_values(leaves, self.moving, values))]
        values, x_wide = [wide(leaves[i]) for i in self.moving], [wide(a) for a in x]
        if self.transposed:
            product = self.pull_back(with_values(leaves, self.moving, values), x_wide)
            if product is None:
                return list(jax.vjp(at, *values)[1](x_wide))
            return [jnp.broadcast_to(y.astype(v.dtype), v.shape) for y, v in zip(product, values, strict=True)]
        return jax.jvp(at, values, x_wide)[1]

    def _of_one(self) -> Any:
        half = lambda *args: max(self.tile(args[: self.count]) // 2, 1)
        return self.of_one(self.on_batches, half)

    def run(self, *args: Any) -> list[Any]:
        return self._of_one().one(*args)

    def run_many(self, size: int, is_batched: Sequence[bool], *args: Any) -> list[Any]:
        """Return the results of a batch, the first axis of batched arguments; it is traced as such only."""
        return self._of_one().many(size, is_batched, *args)

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
    """The same map for a batch, the first axis of x, of y, and of those leaves that are batched."""

    one: Linear
    batched: tuple[bool, ...]
    """Whether each leaf is."""
    size: int

    @property
    def count(self) -> int:  # type: ignore[override]
        return len(self.batched)

    def run(self, *args: Any) -> list[Any]:
        flags = [*self.batched, *[True] * (len(args) - len(self.batched))]
        if isinstance(self.one, Derivative):
            return self.one.run_many(self.size, flags, *args)
        return jax.vmap(self.one.run, in_axes=[0 if b else None for b in flags])(*args)

    def shapes_of(self, leaves: Sequence[Shape]) -> Sequence[Shape]:
        of_one = [(s[b:], dtype) for (s, dtype), b in zip(leaves, self.batched, strict=True)]
        return [((self.size, *shape), dtype) for shape, dtype in self.one.shapes_of(of_one)]

    def transpose(self) -> Linear:
        return replace(self, one=self.one.transpose())

    def along(self, moving: tuple[int, ...], shapes: Sequence[Shape]) -> Linear:
        inner = self.one.along(moving, [(shape[1:], dtype) for shape, dtype in shapes])
        return Batch(inner, self.batched + (True,) * (inner.count - self.count), self.size)

    def lift(self, leaf: int, change: Any) -> Any:
        if self.batched[leaf]:
            return jax.vmap(lambda x: self.one.lift(leaf, x))(change)
        lifted = self.one.lift(leaf, change)
        return jnp.broadcast_to(lifted, (self.size, *lifted.shape))


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
        changes.append(by_moving(primals, [of.lift(i, by_leaves[i]) for i in moving]))
    return out, [sum(parts[1:], start=parts[0]) for parts in zip(*changes, strict=True)]


def _transpose(cotangents: Any, *args: Any, of: Linear) -> Any:
    leaves, x = args[: of.count], args[of.count :]
    pulled = of.transpose()(leaves, [ad.instantiate_zeros(c) for c in cotangents])
    return [None] * of.count + [c if ad.is_undefined_primal(a) else None for a, c in zip(x, pulled, strict=True)]


def _batch(args: Any, dims: Any, *, of: Linear) -> Any:
    size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    args = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(args, dims, strict=True)]
    leaves, x, batched = args[: of.count], args[of.count :], tuple(d is not None for d in dims)
    x = [a if b else jnp.broadcast_to(a, (size, *a.shape)) for a, b in zip(x, batched[of.count :], strict=True)]
    out = Batch(of, batched[: of.count], size)(leaves, x)
    return out, [0] * len(out)


ad.primitive_jvps[linear_p] = _jvp
ad.primitive_transposes[linear_p] = _transpose
batching.primitive_batchers[linear_p] = _batch
mlir.register_lowering(linear_p, mlir.lower_fun(lambda *args, of: of.run(*args), multiple_results=True))
