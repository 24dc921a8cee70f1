"""Second derivatives through loops: reverse over reverse agrees with forward over forward.

JAX rewrites a loop that it differentiates in reverse; the rules of our functions have to outlive that.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import geared, long, quickly, relative

import jaxdyn
from jaxdyn.recursion import Ruled, batched

PENDULUM, ARM, GEARED = jaxdyn.load("pendulum"), jaxdyn.load("double_pendulum"), geared()
FORWARD = lambda f: jax.jacfwd(jax.jacfwd(f))
REVERSE = lambda f: jax.grad(jax.grad(f))


def rollout(model, rate, wrap=lambda step: step):
    """Return a number that depends on three steps of a loop, as a function of a number that the state depends on."""

    def step(state, _):
        q, qd = state
        return (q + 0.1 * qd, qd + 0.1 * rate(model, q, qd)), None

    def number(t):
        start = t * jnp.linspace(0.5, 0.9, model.nq), jnp.sin(t) * jnp.linspace(1.3, 0.4, model.nv)
        (q, qd), _ = jax.lax.scan(wrap(step), start, None, length=3)
        return jnp.sin(q).sum() + (qd**2).sum()

    return number


def assert_same_second_derivatives(f, at=0.7, reverse=REVERSE):
    truth, found = quickly(lambda t: (FORWARD(f)(t), reverse(f)(t)))(at)
    assert relative(found, truth) < 1e-10


accelerated = lambda model, q, qd: jaxdyn.forward_dynamics(model, q, qd, jnp.cos(q))
swept = lambda model, q, qd: jaxdyn.forward_dynamics(model, q, qd, jnp.cos(q), form="sweep")


@pytest.mark.parametrize(
    ("model", "rate"),
    [
        long(ARM, accelerated, id="forward_dynamics"),
        pytest.param(PENDULUM, swept, id="forward_dynamics by sweeps"),
        long(PENDULUM, lambda m, q, qd: jaxdyn.inverse_dynamics(m, q, qd, jnp.cos(q)), id="inverse_dynamics"),
        long(ARM, lambda m, q, qd: jaxdyn.mass_matrix(m, q) @ qd, id="mass_matrix"),
        long(ARM, lambda m, q, qd: jaxdyn.mass_matrix_inverse(m, q) @ qd, id="mass_matrix_inverse"),
        long(GEARED, lambda m, q, qd: jaxdyn.mass_matrix_inverse(m, q) @ qd, id="inverse with mimic joints"),
        long(ARM, jaxdyn.diagonal.coriolis, id="diagonal.coriolis"),
    ],
)
def test_reverse_over_reverse(model, rate):
    assert_same_second_derivatives(rollout(model, rate))


@pytest.mark.long
def test_hessian_of_a_loop():
    assert_same_second_derivatives(rollout(PENDULUM, accelerated), reverse=jax.hessian)


@pytest.mark.long
def test_batches_of_loops_and_loops_of_batches():
    t = np.array([0.3, 0.7, 1.1])
    number = rollout(PENDULUM, accelerated)
    batch = rollout(PENDULUM, lambda m, q, qd: jax.vmap(lambda s: accelerated(m, s * q, qd))(jnp.arange(1.0, 4)).sum(0))
    truth, found = quickly(lambda t: (jax.vmap(FORWARD(number))(t), jax.vmap(REVERSE(number))(t)))(t)
    assert relative(found, truth) < 1e-10
    assert_same_second_derivatives(batch)


@pytest.mark.long
def test_steps_that_are_not_remembered():
    assert_same_second_derivatives(rollout(PENDULUM, accelerated, wrap=jax.checkpoint))


def test_third_derivatives_of_a_kernel():
    """Of x -> sin(x) c in a loop that does not remember its steps; the kernel runs for one state and for a batch."""
    kernel = batched(lambda x, c: {"y": jnp.sin(x) * c}, tile=lambda *args: 2)

    def number(f, t):
        step = jax.checkpoint(lambda x, _: (f(x, 1.5 + x)["y"], x))
        return sum(x.sum() for x in jax.lax.scan(step, t * jnp.arange(1.0, 4), None, length=3))

    plain = lambda t: number(lambda x, c: {"y": jnp.sin(x) * c}, t)
    truth = quickly(jax.jacfwd(FORWARD(plain)))(0.7)
    for f in (kernel, jax.vmap(kernel)):
        assert relative(quickly(jax.grad(REVERSE(lambda t, f=f: number(f, t))))(0.7), truth) < 1e-12


def test_a_rule_outlives_the_loop():
    """It is the rule that counts, not what the function does: here the two differ, so that it shows."""
    rule = lambda x, dx: (cube(*x), 3 * cube(*x) / x[0] * dx[0])
    cube = Ruled(lambda x: jax.lax.stop_gradient(x) ** 3, rule)
    loop = lambda f: lambda x: jax.lax.scan(lambda x, _: (f(x), None), x, None, length=2)[0]  # x^9
    for f in (cube, jax.jit(cube), lambda x: jax.vmap(cube)(x[None])[0]):
        assert_same_second_derivatives(loop(f), at=1.1)
        np.testing.assert_allclose(quickly(REVERSE(loop(f)))(1.1), 72 * 1.1**7, rtol=1e-12)
