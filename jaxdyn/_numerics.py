"""Numerics that stay finite under differentiation, for NumPy and JAX alike.

Every guard that automatic differentiation needs lives here. A guarded expression is written with two
`where`s: one that replaces the argument where the formula breaks down, one that picks the result; a
single `where` would let `0 * inf = NaN` through in the backward pass.

Functions of an angle are written as functions of its *square*, which are entire: no root is taken near
zero, so that values, gradients and Hessians at zero rotation are exact limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial, reduce
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# A scalar component: a number, or an array whose axes are bodies, lanes or batch.
Scalar = Any


def namespace(*xs: Scalar) -> ModuleType:
    """Return `numpy` if every argument is a number or a NumPy array, else `jax.numpy`.

    Models are built in NumPy (float64 whatever JAX's flag says) by the same formulas that run in JAX.
    """
    numpy_only = all(isinstance(x, (int, float, np.ndarray, np.generic)) for x in xs)
    return np if numpy_only else jnp


def rows(x: Any, index: Any) -> Any:
    """Return x[index]; where the index (an array known at tracing time) is a range, as a slice: no gather."""
    if not isinstance(index, np.ndarray) or index.ndim != 1 or not len(index):
        return x[index]
    first, count = int(index[0]), len(index)
    if not np.array_equal(index, np.arange(first, first + count)):
        return x[index]
    return x if count == len(x) else x[first : first + count]


def _series(coefficients: list[Fraction], t: Scalar) -> Scalar:
    """Sum of c_k t^k by Horner's rule."""
    total = t * 0 + float(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * t + float(c)
    return total


def _guarded(
    t: Scalar, limit: float, coefficients: list[Fraction], closed_form: Callable[[ModuleType, Scalar], Scalar]
) -> Scalar:
    """Series for t < limit, closed form beyond."""
    xp = namespace(t)
    small = t < limit
    near, far = xp.where(small, t, 0 * t), xp.where(small, 0 * t + limit, t)
    return xp.where(small, _series(coefficients, near), closed_form(xp, far))


def stumpff(k: int, t: Scalar) -> Scalar:
    r"""Compute the Stumpff function :math:`c_k(t) = \sum_j (-t)^j / (2j + k)!`, for t >= 0.

    With :math:`x = \sqrt t`: c_0 = cos x, c_1 = sin x / x, c_2 = (1 - cos x) / x^2,
    c_3 = (x - sin x) / x^3. Its derivative, :math:`c_k' = (k\,c_{k+2} - c_{k+1}) / 2`, is as smooth.
    """
    return _stumpff_value(k, t) if namespace(t) is np else _stumpff(k, t)


def _stumpff_value(k: int, t: Scalar) -> Scalar:
    def closed_form(xp: ModuleType, t: Scalar) -> Scalar:
        x = xp.sqrt(t)
        c = xp.cos(x) if k % 2 == 0 else xp.sin(x) / x
        for j in range(k % 2, k, 2):
            c = (1 / math.factorial(j) - c) / t
        return c

    series = [Fraction((-1) ** j, math.factorial(2 * j + k)) for j in range(10)]  # the next term is below 1e-17
    return _guarded(t, 1.0, series, closed_form)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _stumpff(k: int, t: Scalar) -> Scalar:
    return _stumpff_value(k, t)


@_stumpff.defjvp
def _stumpff_jvp(k: int, primals: tuple[Scalar], tangents: tuple[Scalar]) -> tuple[Scalar, Scalar]:
    (t,), (dt,) = primals, tangents
    slope = stumpff(k + 1, t) * -0.5 if k == 0 else (k * stumpff(k + 2, t) - stumpff(k + 1, t)) / 2
    return stumpff(k, t), slope * dt


def cot_defect(t: Scalar) -> Scalar:
    r"""Compute :math:`(1 - \tfrac{x}{2}\cot\tfrac{x}{2}) / x^2` at :math:`x = \sqrt t`, for 0 <= x < 2 pi.

    With :math:`c_0 = 1 - t c_2` and :math:`c_1 = 1 - t c_3` it is :math:`(c_2 - c_3) / 4 c_1` at t/4.
    """
    return (stumpff(2, t / 4) - stumpff(3, t / 4)) / (4 * stumpff(1, t / 4))


def arctan_over(k: int, y: Scalar) -> Scalar:
    r"""Compute the k-th derivative of :math:`h(y) = \arctan(\sqrt y) / \sqrt y`, for y >= 0.

    From :math:`2 y h' = 1/(1 + y) - h` each derivative follows from the one before it, away from zero.
    """
    return _arctan_over_value(k, y) if namespace(y) is np else _arctan_over(k, y)


def _arctan_over_value(k: int, y: Scalar) -> Scalar:
    def closed_form(xp: ModuleType, y: Scalar) -> Scalar:
        root = xp.sqrt(y)
        h = xp.arctan(root) / root
        for j in range(k):
            h = ((-1) ** j * math.factorial(j) / (1 + y) ** (j + 1) - (2 * j + 1) * h) / (2 * y)
        return h

    series = [Fraction((-1) ** n * math.perm(n, k), 2 * n + 1) for n in range(k, k + 15)]
    return _guarded(y, 0.06, series, closed_form)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _arctan_over(k: int, y: Scalar) -> Scalar:
    return _arctan_over_value(k, y)


@_arctan_over.defjvp
def _arctan_over_jvp(k: int, primals: tuple[Scalar], tangents: tuple[Scalar]) -> tuple[Scalar, Scalar]:
    (y,), (dy,) = primals, tangents
    return arctan_over(k, y), arctan_over(k + 1, y) * dy


def safe_sqrt(x: Scalar) -> Scalar:
    """Take the square root; at x <= 0 the value and every derivative are zero."""
    xp = namespace(x)
    positive = x > 0
    return xp.where(positive, xp.sqrt(xp.where(positive, x, 0 * x + 1)), 0 * x)


def safe_reciprocal(x: Scalar) -> Scalar:
    """Compute 1 / x; at x == 0 the value and every derivative are zero."""
    xp = namespace(x)
    nonzero = x != 0
    return xp.where(nonzero, 1 / xp.where(nonzero, x, 0 * x + 1), 0 * x)


def reciprocal_size(*xs: Scalar) -> Scalar:
    """Return 1 / max |x|, or 1 where all are zero; a constant for differentiation.

    What does not depend on the length of a vector may be computed from the vector times this number, whose
    square neither overflows nor vanishes.
    """
    xp = namespace(*xs)
    size = reduce(xp.maximum, (xp.abs(x) for x in xs))
    size = xp.where(size > 0, size, 0 * size + 1)
    return 1 / (size if xp is np else jax.lax.stop_gradient(size))


def safe_rsqrt(x: Scalar) -> Scalar:
    """Compute 1 / sqrt(x); at x <= 0 the value and every derivative are zero."""
    return safe_reciprocal(safe_sqrt(x))


def wrap_angle(x: Scalar) -> Scalar:
    """Bring an angle to [-pi, pi); its derivative is one."""
    xp = namespace(x)
    y = x - 2 * math.pi * xp.floor((x + math.pi) / (2 * math.pi))
    y = xp.where(y < -math.pi, y + 2 * math.pi, y)  # rounding may have missed the interval by a hair
    return xp.where(y >= math.pi, y - 2 * math.pi, y)
