"""Second derivatives through rollouts: reverse over reverse agrees with forward over forward."""

import jax
import jax.numpy as jnp
import pytest
from helpers.states import long, quickly, relative

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
