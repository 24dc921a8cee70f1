"""Configurations in time: `moved` is `integrate`, and its derivatives are those of `integrate`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import relative

import jaxdyn
from jaxdyn.model.random_models import random_chain
from jaxdyn.simulate.configurations import moved, normalised

JOINTS = ("planar", "spherical", "revolute", "free")


@pytest.fixture(scope="module")
def model():
    builder = jaxdyn.ModelBuilder("all ways to turn")
    for joint in JOINTS:
        builder.add_body(joint, joint=joint, mass=1.0, inertia=(0.1, 0.2, 0.3))
    return builder.build()


@pytest.fixture(scope="module")
def states(model):
    """Configurations off the manifold, and steps from nothing to two radians."""
    rng = np.random.default_rng(3)
    q, dq, q_rate, dq_rate = (rng.normal(size=(6, n)) for n in (model.nq, model.nv, model.nq, model.nv))
    return tuple(map(jnp.asarray, (q, np.array([[0, 1e-9, 1e-4, 1e-2, 0.5, 1]]).T * dq, q_rate, dq_rate)))


def test_values_and_derivatives(model, states):
    """Of first and second order, forward and reverse."""
    q, dq, *rates = states

    def all_of(move):
        many = jax.vmap(lambda q, dq: move(model, q, dq))
        forward = lambda *at: jax.jvp(many, at, tuple(rates))[1]
        reverse = lambda *at: jax.vjp(many, *at)[1](rates[0])
        return many(q, dq), forward(q, dq), reverse(q, dq), jax.jvp(reverse, (q, dq), tuple(rates))[1]

    for found, truth in zip(*jax.jit(lambda: (all_of(moved), all_of(jaxdyn.integrate)))(), strict=True):
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(truth), strict=True):
            assert relative(a, b) < 1e-12


def test_what_a_batch_shares(model, states):
    """One step for many configurations, along one direction, and its gradient."""
    q, dq, _, dq_rate = states
    of = lambda move, dq: jax.vmap(lambda q: move(model, q, dq))(q)

    def both(move):
        along = jax.jvp(lambda dq: of(move, dq), (dq[-1],), (dq_rate[0],))[1]
        return along, jax.grad(lambda dq: (of(move, dq) ** 3).sum())(dq[-1])

    for found, truth in zip(*jax.jit(lambda: (both(moved), both(jaxdyn.integrate)))(), strict=True):
        assert relative(found, truth) < 1e-12


def test_quaternions_of_length_one(model, states):
    q = states[0]
    still = jax.vmap(lambda q: jaxdyn.integrate(model, q, jnp.zeros(model.nv)))
    np.testing.assert_allclose(jax.vmap(lambda q: normalised(model, q))(q), still(q), atol=1e-15)


def test_plain_coordinates_are_added():
    chain = random_chain(2, seed=1)
    q, dq = jnp.array([0.1, 0.2]), jnp.array([1.0, -1.0])
    np.testing.assert_array_equal(moved(chain, q, dq), q + dq)
    assert normalised(chain, q) is q
