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
from functools import lru_cache, partial, reduce
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


def once(*xs: Any) -> tuple[jax.Array, ...]:
    """Return the same, as one array that is worked out once, not again in every operation that uses it."""
    return tuple(jax.lax.optimization_barrier(jnp.stack(jnp.broadcast_arrays(*xs))))


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


_HALF_PI = Fraction("1.57079632679489661923132169163975144209858469968755291")


def _parts_of_half_pi(bits: int, parts: int) -> list[float]:
    """Write pi/2 as a sum of numbers with few bits each, so that small multiples of all but the last are exact."""
    rest, numbers = _HALF_PI, []
    for k in range(1, parts + 1):
        step = Fraction(1, 2 ** (bits * k))
        numbers.append(rest // step * step)
        rest -= numbers[-1]
    return [float(x) for x in (*numbers, rest)]


@jax.custom_jvp
def sin_cos(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute (sin x, cos x) by arithmetic that XLA vectorises on a CPU, where it calls its own sine one by one.

    x = r + k pi/2 with |r| <= pi/4, and the series of both in r. As accurate as the machine's own: the
    error is that of changing x in its last place.
    """
    single = x.dtype.itemsize <= 4
    k = jnp.round(x * (2 / math.pi))
    r = x
    for part in _parts_of_half_pi(*((8, 3) if single else (30, 2))):
        r = r - k * part
    r = jnp.clip(r, -1, 1)  # of use where the last place of x is a turn or more
    t, terms = r * r, 5 if single else 9
    sine = r + r * t * _series([Fraction((-1) ** (j + 1), math.factorial(2 * j + 3)) for j in range(terms)], t)
    cosine = 1 + t * _series([Fraction((-1) ** (j + 1), math.factorial(2 * j + 2)) for j in range(terms)], t)
    quadrant = k - 4 * jnp.floor(k / 4)
    odd = (quadrant == 1) | (quadrant == 3)
    s, c = jnp.where(odd, cosine, sine), jnp.where(odd, sine, cosine)
    return jnp.where(quadrant >= 2, -s, s), jnp.where((quadrant == 1) | (quadrant == 2), -c, c)


@sin_cos.defjvp
def _sin_cos_jvp(primals: Any, tangents: Any) -> Any:
    sine, cosine = sin_cos(*primals)
    return (sine, cosine), (cosine * tangents[0], -sine * tangents[0])


def cot_defect(t: Scalar, k: int = 0) -> Scalar:
    r"""Compute :math:`c(t) = (1 - \tfrac{x}{2}\cot\tfrac{x}{2}) / x^2` at :math:`x = \sqrt t`, for 0 <= x < 2 pi.

    Or its k-th derivative: from :math:`t c' = \tfrac18 - \tfrac32 c + \tfrac12 t c^2` each follows from those before
    it, away from zero.
    """
    return _cot_defect_value(k, t) if namespace(t) is np else _cot_defect(k, t)


def _cot_defect_value(k: int, t: Scalar) -> Scalar:
    def closed_form(xp: ModuleType, t: Scalar) -> Scalar:
        half = xp.sqrt(t) / 2
        c = [(1 - half * xp.cos(half) / xp.sin(half)) / t]
        square = lambda j: sum(math.comb(j, i) * c[i] * c[j - i] for i in range(j + 1))
        for j in range(k):
            rest = 0.125 if j == 0 else 0.5 * j * square(j - 1)
            c.append((rest - (1.5 + j) * c[j]) / t + 0.5 * square(j))
        return c[k]

    series = [abs(_bernoulli(2 * n)) / math.factorial(2 * n) * math.perm(n - 1, k) for n in range(k + 1, k + 18)]
    return _guarded(t, 4.0, series, closed_form)


@lru_cache
def _bernoulli(m: int) -> Fraction:
    """Return the m-th number of Bernoulli."""
    return Fraction(1) if m == 0 else -sum(math.comb(m + 1, j) * _bernoulli(j) for j in range(m)) / Fraction(m + 1)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _cot_defect(k: int, t: Scalar) -> Scalar:
    return _cot_defect_value(k, t)


@_cot_defect.defjvp
def _cot_defect_jvp(k: int, primals: tuple[Scalar], tangents: tuple[Scalar]) -> tuple[Scalar, Scalar]:
    (t,), (dt,) = primals, tangents
    return cot_defect(t, k), cot_defect(t, k + 1) * dt


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


def solve_rows(A: jax.Array, b: jax.Array) -> jax.Array:
    """Solve A x = b by Gauss and Jordan, for small positive definite A (n, n, ..., batch) and b (n, ..., batch).

    The steps are a loop, and each works on whole arrays with the batch as the last axis: little to compile.
    """
    n = len(A)
    index = jnp.arange(n, dtype=np.int32)
    b = jnp.broadcast_to(b, (n, *jnp.broadcast_shapes(A.shape[2:], b.shape[1:])))

    def eliminate(system: Any, j: jax.Array) -> Any:
        A, b = system
        here, pivot = index == j, 1 / A[j, j]
        A_j, b_j = pivot[None] * A[j], pivot * b[j]
        column = jnp.where(_spread(here, A.ndim - 1), 0, A[:, j])
        A = jnp.where(_spread(here, A.ndim), A_j[None], A - column[:, None] * A_j[None])
        return (A, jnp.where(_spread(here, b.ndim), b_j[None], b - column * b_j[None])), None

    return jax.lax.scan(eliminate, (A, b), index)[0][1]


def invert_rows(A: jax.Array) -> jax.Array:
    """Return the inverse of small positive definite A (n, n, ..., batch) by Gauss and Jordan, in place.

    Step j solves row j for its coordinate and puts it into the others, so that (x_j, b_j) change sides.
    """
    index = jnp.arange(len(A), dtype=np.int32)

    def exchange(A: jax.Array, j: jax.Array) -> Any:
        here, pivot = index == j, 1 / A[j, j]
        row, column = pivot[None] * A[j], A[:, j]
        row = jnp.where(_spread(here, row.ndim), pivot[None], row)
        column = jnp.where(_spread(here, column.ndim), -1, column)
        kept = jnp.where(_spread(here, A.ndim) | _spread(here, A.ndim - 1)[None], 0, A)
        return kept - column[:, None] * row[None], None

    return jax.lax.scan(exchange, A, index)[0]


def cholesky_rows(D: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the lower Cholesky factor of small positive definite D (n, n, ..., batch), and its inverse.

    As in `solve_rows`, the steps are a loop over whole arrays.
    """
    index = jnp.arange(len(D), dtype=np.int32)
    one = jnp.broadcast_to(jnp.eye(len(D), dtype=D.dtype).reshape(D.shape[:2] + (1,) * (D.ndim - 2)), D.shape)

    def eliminate(rest: Any, k: jax.Array) -> Any:
        D, U = rest
        root = jnp.sqrt(D[k, k])
        l = jnp.where(_spread(index >= k, D.ndim - 1), D[:, k], 0) / root[None]
        row = U[k] / root[None]
        return (D - l[:, None] * l[None], U - l[:, None] * row[None]), (l, row)

    columns, inverse = jax.lax.scan(eliminate, (D, one), index)[1]
    return jnp.moveaxis(columns, 0, 1), inverse


def _spread(x: jax.Array, ndim: int) -> jax.Array:
    """Give x (n,) more axes, of length 1."""
    return x.reshape((len(x),) + (1,) * (ndim - 1))


def wrap_angle(x: Scalar) -> Scalar:
    """Bring an angle to [-pi, pi); its derivative is one."""
    xp = namespace(x)
    y = x - 2 * math.pi * xp.floor((x + math.pi) / (2 * math.pi))
    y = xp.where(y < -math.pi, y + 2 * math.pi, y)  # rounding may have missed the interval by a hair
    return xp.where(y >= math.pi, y - 2 * math.pi, y)
