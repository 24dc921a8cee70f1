"""The guarded functions against closed forms, limits and differences."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn import _numerics

X = np.array([1e-4, 0.1, 0.5, 0.999, 1.0, 1.001, 2.0, 3.0])
STUMPFF = [partial(_numerics.stumpff, k) for k in range(4)]
FUNCTIONS = [*STUMPFF, _numerics.cot_defect, partial(_numerics.arctan_over, 0)]
CLOSED = [
    np.cos,
    lambda x: np.sin(x) / x,
    lambda x: 2 * np.sin(x / 2) ** 2 / x**2,
    lambda x: (x - np.sin(x)) / x**3,
    lambda x: (1 - x / 2 / np.tan(x / 2)) / x**2,
    lambda x: np.arctan(x) / x,
]
AT_ZERO = [  # value, first and second derivative in t = x^2
    (1, -1 / 2, 1 / 12),
    (1, -1 / 6, 1 / 60),
    (1 / 2, -1 / 24, 1 / 360),
    (1 / 6, -1 / 120, 1 / 2520),
    (1 / 12, 1 / 720, 1 / 15120),
    (1, -1 / 3, 2 / 5),
]
NAMES = ["cos", "sinc", "versine", "sinc_defect", "cot_defect", "arctan"]
HAND_OVER = [1.0, 1.0, 1.0, 1.0, 4.0, 0.06]


@pytest.mark.parametrize(("f", "closed"), list(zip(FUNCTIONS, CLOSED, strict=True)), ids=NAMES)
def test_value(f, closed):
    # The references themselves cancel near zero: x = 1e-4 costs them eight digits.
    np.testing.assert_allclose(f(X**2)[1:], closed(X)[1:], rtol=2e-14)
    np.testing.assert_allclose(f(X**2)[:1], closed(X)[:1], rtol=1e-7)
    np.testing.assert_allclose(f(jnp.array(X**2)), f(X**2), rtol=1e-14)


@pytest.mark.parametrize(("f", "limits"), list(zip(FUNCTIONS, AT_ZERO, strict=True)), ids=NAMES)
def test_derivatives_at_zero_are_the_limits(f, limits):
    got = [g(0.0) for g in (f, jax.grad(f), jax.grad(jax.grad(f)))]
    np.testing.assert_allclose(got, limits, rtol=1e-14)


@pytest.mark.parametrize(("f", "closed"), list(zip(FUNCTIONS, CLOSED, strict=True)), ids=NAMES)
def test_derivative_is_that_of_the_closed_form(f, closed):
    h = 1e-5
    t = X[1:] ** 2
    difference = (closed(np.sqrt(t + h)) - closed(np.sqrt(t - h))) / (2 * h)
    np.testing.assert_allclose(jax.vmap(jax.grad(f))(jnp.array(t)), difference, atol=1e-8)


@pytest.mark.parametrize(("f", "t"), list(zip(FUNCTIONS, HAND_OVER, strict=True)), ids=NAMES)
def test_series_and_closed_form_meet(f, t):
    """Value, gradient and curvature are continuous where the series hands over."""
    for g, tolerance in ((f, 1e-15), (jax.grad(f), 1e-14), (jax.grad(jax.grad(f)), 1e-13)):
        assert abs(g(math.nextafter(t, 0.0)) - g(t)) <= tolerance


def test_guarded_roots_and_quotients():
    for f in (_numerics.safe_sqrt, _numerics.safe_reciprocal, _numerics.safe_rsqrt):
        for g in (f, jax.grad(f), jax.grad(jax.grad(f))):
            assert g(0.0) == 0.0
    assert _numerics.safe_sqrt(4.0) == 2.0
    assert _numerics.safe_rsqrt(4.0) == 0.5
    assert _numerics.safe_reciprocal(4.0) == 0.25


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 1e-4)])
def test_wrap_angle(dtype, tolerance):
    odd = np.arange(-9, 10, 2) * np.pi
    near = [np.nextafter(odd.astype(dtype), dtype(s)) for s in (-100, 100)]
    angles = np.concatenate([odd, *near, [3.2, -3.2, 100.0, 0.0]]).astype(dtype)
    wrapped = _numerics.wrap_angle(jnp.array(angles))
    assert wrapped.dtype == dtype
    assert jnp.all((wrapped >= dtype(-np.pi)) & (wrapped <= dtype(np.pi)))
    np.testing.assert_allclose(np.exp(1j * np.asarray(wrapped)), np.exp(1j * angles), atol=tolerance)
    assert jax.grad(_numerics.wrap_angle)(3.2) == 1.0


# ---------------------------------------------------------------------- sine and cosine
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sine_and_cosine_are_those_of_higher_precision(dtype, rng):
    """To a unit in the last place of one, from nothing to a thousand million turns (float32: to a thousand)."""
    sizes = np.geomspace(1e-20, 6e9 if dtype is np.float64 else 6e3, 400)
    x = np.concatenate([rng.uniform(-1, 1, (30, 400)) * sizes, np.arange(-200, 200)[None] * np.pi / 4]).astype(dtype)
    sine, cosine = jax.jit(_numerics.sin_cos)(x)
    assert sine.dtype == cosine.dtype == dtype
    exact = x.astype(np.longdouble)
    np.testing.assert_allclose(np.asarray(sine, np.longdouble), np.sin(exact), rtol=0, atol=np.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(cosine, np.longdouble), np.cos(exact), rtol=0, atol=np.finfo(dtype).eps)


def test_sine_and_cosine_stay_on_the_circle_where_a_last_place_is_a_turn():
    for dtype in (np.float32, np.float64):
        sine, cosine = _numerics.sin_cos(jnp.array([1e12, -1e18, 1e25], dtype))
        assert np.all(np.abs(sine) <= 1)
        assert np.all(np.abs(cosine) <= 1)


def test_derivatives_of_sine_and_cosine():
    x = jnp.array([-4.0, 0.0, 0.3, np.pi / 2, np.pi, 100.0])
    one, two = jax.jvp(_numerics.sin_cos, (x,), (jnp.ones(6),))[1]
    np.testing.assert_allclose(one, np.cos(x), atol=1e-15)
    np.testing.assert_allclose(two, -np.sin(x), atol=1e-15)
    curvature = jax.vmap(jax.grad(jax.grad(lambda x: _numerics.sin_cos(x)[0])))(x)
    np.testing.assert_allclose(curvature, -np.sin(x), atol=1e-15)


def test_inverses_of_small_matrices_in_place(rng):
    X = rng.normal(size=(5, 6, 6))
    A = X @ X.swapaxes(1, 2) + np.eye(6)
    found = np.moveaxis(np.asarray(jax.jit(_numerics.invert_rows)(jnp.moveaxis(jnp.asarray(A), 0, -1))), -1, 0)
    assert np.abs(A @ found - np.eye(6)).max() < 1e-12
