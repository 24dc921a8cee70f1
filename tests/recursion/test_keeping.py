"""What a step keeps, XLA works out once; results, derivatives and known numbers are as before."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.recursion import compile_for, kept


def _sums(x, keep):
    (y,) = keep(x * x * x + 1)
    return y + 1, y * y, y - x


def _multiplications(keep):
    return jax.jit(lambda x: _sums(x, keep)).lower(jnp.ones(64)).compile().as_text().count(" multiply(")


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a rule for CPUs")
def test_what_is_kept_is_worked_out_once():
    assert _multiplications(kept) == 3  # x x x, and y y
    assert _multiplications(lambda *x: x) > 3  # again in every kernel that needs it


@pytest.mark.parametrize("transform", [lambda f: f, jax.vmap, jax.jacfwd, jax.jacrev, jax.hessian])
def test_results_and_derivatives_are_the_same(transform):
    x = jnp.linspace(-1, 1, 5)
    of = lambda keep: lambda x: jnp.stack(_sums(x, keep))
    found, expected = (jax.jit(transform(of(keep)))(x) for keep in (kept, lambda *x: x))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_plain_numbers_stay_known():
    a, (b, c) = kept(jnp.ones(3), (0.0, 2))
    assert (b, c) == (0.0, 2)
    assert type(b) is float
    np.testing.assert_array_equal(a, np.ones(3))
    assert kept(1.0) == (1.0,)


def test_programs_for_other_platforms_are_as_without_it():
    with compile_for("cuda"):
        x = jnp.ones(3)
        assert kept(x)[0] is x
