"""Small models, shared by all tests: every model compiles anew."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.model.random_models import random_chain, random_tree


@pytest.fixture(scope="session")
def floating():
    """A floating base with a ball joint, without passive forces."""
    return random_tree(2, seed=3, joints=("spherical",), floating_base=True)


@pytest.fixture(scope="session")
def chain():
    """Two hinges with all passive forces."""
    model = random_chain(2, seed=1, armature=True)
    return model.replace(
        damping=[0.3, 0.2], friction=[0.1, 0.2], v_s=[0.5, 0.5], stiffness=[0.4, 0.6], rest=[0.1, -0.2]
    )


@pytest.fixture(scope="session")
def hinges(chain):
    """The same with damping alone, which compiles faster."""
    return chain.replace(friction=[0.0, 0.0], stiffness=[0.0, 0.0])


@pytest.fixture(scope="session")
def state(floating):
    """A state of the floating robot, and joint forces."""
    rng = np.random.default_rng(5)
    q = jaxdyn.integrate(floating, jaxdyn.neutral(floating), jnp.asarray(0.5 * rng.normal(size=floating.nv)))
    return q, jnp.asarray(rng.normal(size=floating.nv)), jnp.asarray(0.3 * rng.normal(size=floating.nv))
