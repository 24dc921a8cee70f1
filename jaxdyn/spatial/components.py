"""The base of all spatial types: a pytree of named components with linear arithmetic.

A component may be a Python number, a NumPy array or a JAX array (or, in a compound type, another spatial
value); all scalars in a value have one shape, whose axes are bodies, lanes or batch. Formulas are written
on components, so that XLA sees plain elementwise arithmetic over those axes and fuses it; 3x3 and 6x6
arrays appear only at the doors, `from_array` and `to_array`.

The plain numbers 0.0 and 1.0 are *known*: they stay what they are, and products and sums with them cost
nothing (XLA may not drop a product with zero, since zero times NaN is NaN). So the column (axis, 0) of a
revolute joint, or the identity of the world's frame, is as cheap as a formula written out for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import jax

from jaxdyn._numerics import Scalar, namespace

T = TypeVar("T")


class Components:
    """Componentwise `+`, `-`, unary `-`, multiplication by a scalar from the left, division by one."""

    component_names: ClassVar[tuple[str, ...]]

    # NumPy arrays must not broadcast over our components: `array * vector` is our `__rmul__`.
    __array_ufunc__ = None

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self.component_names)

    def __add__(self, other: Self) -> Self:
        return type(self)(*(plus(a, b) for a, b in zip(self, other, strict=True)))

    def __sub__(self, other: Self) -> Self:
        return type(self)(*(minus(a, b) for a, b in zip(self, other, strict=True)))

    def __neg__(self) -> Self:
        return type(self)(*(negative(a) for a in self))

    def __rmul__(self, scalar: Scalar) -> Self:
        return type(self)(*(times(scalar, a) for a in self))

    def __truediv__(self, scalar: Scalar) -> Self:
        return type(self)(*(a / scalar if isinstance(a, Components) else over(a, scalar) for a in self))


def is_known(x: Any, number: float) -> bool:
    """Tell whether a component is this plain number, known when the program is traced."""
    return type(x) is float and x == number


def times(a: Scalar, b: Scalar) -> Scalar:
    """Return a b; known zeros and ones cost nothing."""
    if is_known(a, 0.0) or is_known(b, 0.0):
        return 0.0
    return b if is_known(a, 1.0) else a if is_known(b, 1.0) else a * b


def plus(a: Scalar, b: Scalar) -> Scalar:
    """Return a + b; known zeros cost nothing."""
    return b if is_known(a, 0.0) else a if is_known(b, 0.0) else a + b


def minus(a: Scalar, b: Scalar) -> Scalar:
    """Return a - b; known zeros cost nothing."""
    return negative(b) if is_known(a, 0.0) else a if is_known(b, 0.0) else a - b


def over(a: Scalar, b: Scalar) -> Scalar:
    """Return a / b; the known zero costs nothing."""
    return 0.0 if is_known(a, 0.0) else a / b


def negative(a: Scalar) -> Scalar:
    """Return -a; the known zero stays positive."""
    return 0.0 if is_known(a, 0.0) else -a


@dataclass_transform(frozen_default=True)
def components(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass and a pytree whose children are its fields."""
    cls = jax.tree_util.register_dataclass(dataclass(frozen=True)(cls))
    cls.component_names = tuple(f.name for f in fields(cls))  # type: ignore[attr-defined, arg-type]
    return cls


def stack(parts: list[Scalar]) -> Any:
    """Stack scalars of one shape (or plain numbers) into an array, along a new last axis."""
    xp = namespace(*parts)
    return xp.stack(xp.broadcast_arrays(*parts), axis=-1)


def unstack(array: Any) -> list[Any]:
    """Split an array along its last axis into scalars."""
    return [array[..., i] for i in range(array.shape[-1])]
