"""Second derivatives through rollouts: reverse over reverse agrees with forward over forward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import long, quickly, relative

import jaxdyn
from jaxdyn.model.random_models import random_chain
from jaxdyn.simulate import rollout
from jaxdyn.simulate.passive import passive_force

MODEL = random_chain(1, seed=1, armature=True).replace(damping=[0.3])


def number(t, model=MODEL, **options):
    """Return a number that depends on three steps, as a function of one that state, springs and friction depend on."""
    model = model.replace(friction=jnp.sin(t)[None], v_s=[0.5], stiffness=(t - 0.7)[None], rest=[0.1])
    run = rollout(model, 0.5 * t[None], jnp.cos(t)[None], jnp.full((3, 1), 0.2) * t, dt=0.1, **options)
    return (run.q[-1] ** 2).sum() + (run.qd**2).sum()


def test_passive_forces_in_a_loop():
    """The derivative by a coefficient that is zero is not zero, in reverse over reverse either."""

    def number(t):
        model = MODEL.replace(friction=(t - 0.7)[None], v_s=[0.5])
        step = lambda qd, _: (qd + 0.3 * passive_force(model, qd, qd), None)
        return (jax.lax.scan(step, jnp.cos(t)[None], None, length=3)[0] ** 2).sum()

    both = quickly(lambda t: (jax.jacfwd(jax.jacfwd(number))(t), jax.grad(jax.grad(number))(t)))
    truth, found = both(jnp.asarray(0.7))
    assert relative(found, truth) < 1e-12


@pytest.mark.parametrize(
    "options",
    [long({}, id="plain"), long({"remat": "steps"}, id="steps"), long({"on_nonfinite": "stop"}, id="guarded")],
)
def test_reverse_over_reverse(options):
    """With passive forces, one of whose coefficients is zero here: its derivative is not."""
    f = lambda t: number(t, **options)
    both = quickly(lambda t: (jax.jacfwd(jax.jacfwd(f))(t), jax.grad(jax.grad(f))(t)))
    truth, found = both(jnp.asarray(0.7))
    assert relative(found, truth) < 1e-10


@pytest.mark.long
def test_hessian():
    f = lambda x: number(x[0] * x[1])
    truth, found = quickly(lambda x: (jax.jacfwd(jax.jacfwd(f))(x), jax.hessian(f)(x)))(jnp.array([0.7, 1.1]))
    assert relative(found, truth) < 1e-10


def test_mixed_derivatives_by_coefficients_that_are_zero():
    """By friction or stiffness and then by the state, or the other way round: the same, also where there is none yet."""
    ball = jaxdyn.ModelBuilder("ball").add_body("ball", joint="spherical", mass=1.0, inertia=(0.1, 0.2, 0.3)).build()
    q, qd = jnp.array([0.5, -0.4, 0.2, 0.6]), jnp.array([0.01, -0.03, 0.02])
    zero, slow = jnp.zeros(3), jnp.full(3, 0.1)

    def force(friction, stiffness, q, qd):
        return passive_force(ball.replace(friction=friction, stiffness=stiffness, v_s=slow), q, qd)

    @jax.jit
    def both(*args):
        one = [jax.jacfwd(jax.jacrev(force, k), x)(*args) for k, x in ((0, 3), (1, 2))]
        two = [jax.jacrev(jax.jacfwd(force, x), k)(*args) for k, x in ((0, 3), (1, 2))]
        return one, two

    for one, two in zip(*both(zero, zero, q, qd), strict=True):
        assert np.abs(one).max() > 0.1
        np.testing.assert_allclose(one, np.swapaxes(two, 1, 2), rtol=1e-10, atol=1e-12)


def test_springs_in_single_precision_beside_double():
    """Slopes of springs on joints that turn keep the type of the state, whatever JAX's flag says."""
    ball = jaxdyn.ModelBuilder("ball").add_body("ball", joint="spherical", mass=1.0, inertia=(0.1, 0.2, 0.3)).build()
    ball = ball.replace(stiffness=np.ones(3))
    q, qd = jnp.array([0.5, -0.4, 0.2, 0.6]), jnp.zeros(3)
    slope = jax.jit(jax.jacfwd(lambda q, model: passive_force(model, q, qd.astype(q.dtype))))
    single = slope(q.astype(jnp.float32), ball.astype(jnp.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, slope(q, ball.astype(jnp.float64)), atol=1e-5)
