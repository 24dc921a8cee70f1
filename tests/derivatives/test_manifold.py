"""Calculus in the tangent of configurations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import quickly, random_state, relative

import jaxdyn
from jaxdyn import derivatives
from jaxdyn.model.random_models import MOVING_JOINTS, random_chain

STEP = 1e-6


@pytest.fixture(scope="module")
def model():
    return random_chain(len(MOVING_JOINTS), joints=MOVING_JOINTS)


@pytest.fixture(scope="module")
def state(model):
    """A configuration, a step, and where it leads."""
    s = random_state(model)
    dq = 0.7 * s["qd"]
    return s["q"], dq, np.asarray(jaxdyn.integrate(model, s["q"], dq))


def slopes(f, nv):
    """Return central differences of a function of a vector at zero, (..., nv)."""
    many = quickly(jax.vmap(f))
    return np.moveaxis(many(STEP * np.eye(nv)) - many(-STEP * np.eye(nv)), 0, -1) / (2 * STEP)


def test_derivatives_of_integrate_and_difference_are_those_of_small_steps(model, state):
    q, dq, end = state
    plus = lambda q, x: jaxdyn.integrate(model, q, x)
    minus = lambda q0, q1: jaxdyn.difference(model, q0, q1)
    of_steps = slopes(
        lambda x: jnp.stack(
            [
                minus(end, plus(plus(q, x), dq)),
                minus(end, plus(q, dq + x)),
                minus(plus(q, x), end),
                minus(q, plus(end, x)),
            ]
        ),
        model.nv,
    )
    found = *derivatives.integrate_derivatives(model, q, dq), *derivatives.difference_derivatives(model, q, end)
    for matrix, wanted in zip(found, of_steps, strict=True):
        assert relative(matrix, wanted) < 1e-8


def test_difference_undoes_integrate(model, state):
    """(q + dq) - q = dq, differentiated by dq and by q."""
    q, dq, end = state
    by_q, by_dq = derivatives.integrate_derivatives(model, q, dq)
    by_q0, by_q1 = derivatives.difference_derivatives(model, q, end)
    assert relative(by_q1 @ by_dq, np.eye(model.nv)) < 1e-13
    assert relative(by_q0 + by_q1 @ by_q, np.zeros((model.nv, model.nv)), scale=1.0) < 1e-12


def ball():
    builder = jaxdyn.ModelBuilder("ball")
    return builder.add_body("ball", joint="spherical", mass=1.0, inertia=(1, 1, 1)).build()


def test_rotations():
    """By q it is the rotation of -dq; by dq the right Jacobian of the exponential, here of half a turn."""
    q, dq = np.array([0.5, 0.5, -0.5, 0.5]), np.array([0.0, 0.0, np.pi])
    by_q, by_dq = derivatives.integrate_derivatives(ball(), q, dq)
    np.testing.assert_allclose(by_q, np.diag([-1.0, -1.0, 1.0]), atol=1e-15)
    right = [[0, 2 / np.pi, 0], [-2 / np.pi, 0, 0], [0, 0, 1]]
    np.testing.assert_allclose(by_dq, right, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_at_half_a_turn_derivatives_are_the_limit(dtype):
    model, axis = ball().astype(dtype), np.array([0.6, 0.0, 0.8])
    at = lambda angle: jnp.asarray([np.cos(angle / 2), *(np.sin(angle / 2) * axis)], dtype)
    start = jnp.asarray([1.0, 0, 0, 0], dtype)
    here, before = (derivatives.difference_derivatives(model, start, at(x)) for x in (np.pi, np.pi - 1e-3))
    for a, b in zip(here, before, strict=True):
        assert np.all(np.isfinite(a))
        assert relative(a, b) < 3e-3


def test_jacobian_gradient_and_hessian_in_the_tangent():
    """Those of the centre of mass: its Jacobian; its height times weight has the gravity force as gradient."""
    model = random_chain(3, joints=("spherical", "planar", "revolute"))
    q = random_state(model)["q"]
    energy = lambda q: jaxdyn.potential_energy(model.replace(stiffness=np.zeros(model.nv)), q)

    @quickly
    def everything(q):
        jacobian = derivatives.tangent_jacobian(lambda q: jaxdyn.center_of_mass(model, q), model, q)
        gradient = derivatives.tangent_gradient(energy, model, q)
        wanted = jaxdyn.center_of_mass_jacobian(model, q), jaxdyn.gravity_force(model, q)
        return (jacobian, gradient), wanted, derivatives.tangent_hessian(energy, model, q)

    found, wanted, hessian = everything(q)
    for a, b in zip(found, wanted, strict=True):
        assert relative(a, b) < 1e-12
    assert relative(hessian, hessian.T) < 1e-13
    slope = slopes(lambda x: jax.grad(lambda x: energy(jaxdyn.integrate(model, q, x)))(x), model.nv)
    assert relative(hessian, slope) < 1e-7
