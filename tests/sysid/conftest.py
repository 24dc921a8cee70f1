"""A double pendulum with friction and rotors that moves, its torques, and a prior that is wrong: shared, since programs
are compiled for their shapes."""

import jax
import numpy as np
import pytest

import jaxdyn

SAMPLES = 120


@pytest.fixture(scope="session")
def pendulum():
    """The true robot."""
    model = jaxdyn.load("double_pendulum")
    return model.replace(armature=[0.1, 0.05], damping=[0.3, 0.1], friction=[0.2, 0.4])


@pytest.fixture(scope="session")
def wrong(pendulum):
    """What is believed of it."""
    zero = 0 * pendulum.damping
    return pendulum.replace(
        inertia=pendulum.inertia * np.array([[1.3], [0.8]]), armature=zero, damping=zero, friction=zero
    )


@pytest.fixture(scope="session")
def motion():
    rng = np.random.default_rng(0)
    return tuple(scale * rng.normal(size=(SAMPLES, 2)) for scale in (1.0, 2.0, 4.0))


@pytest.fixture(scope="session")
def torque(pendulum, motion):
    """By inverse dynamics and passive forces: not by the regressor."""
    one = lambda q, qd, qdd: jaxdyn.inverse_dynamics(pendulum, q, qd, qdd) - jaxdyn.passive_force(pendulum, q, qd)
    return np.asarray(jax.jit(jax.vmap(one))(*motion)) + np.array([0.5, -0.25])
