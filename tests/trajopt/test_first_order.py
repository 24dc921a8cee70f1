"""What steps and costs need to first order, against the functions that give each of it alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import long

import jaxdyn
from jaxdyn.derivatives import inverse_dynamics_derivatives
from jaxdyn.model.random_models import random_tree
from jaxdyn.trajopt.first_order import first_order


@pytest.mark.parametrize("joints", [long(("revolute", "prismatic")), ("spherical", "revolute", "cylindrical")])
def test_equals_the_recursions(joints):
    """On trees whose joints have one column each, and several; for a batch of models, gravity among what differs."""
    model = random_tree(5, seed=3, joints=joints)
    rng, size = np.random.default_rng(0), 3
    spread = lambda x: jnp.asarray(x)[None] * rng.uniform(0.9, 1.1, (size, *np.shape(x)))
    batch = jax.tree.map(lambda x: jnp.broadcast_to(x[None], (size, *x.shape)), model)
    batch = batch.replace(inertia=spread(model.inertia), gravity=spread(model.gravity), armature=0 * batch.armature)
    q = jax.vmap(lambda key: jaxdyn.random_configuration(model, key))(jax.random.split(jax.random.key(0), size))
    qd, qdd = jnp.asarray(rng.normal(size=(2, size, model.nv)))

    def alone(model, q, qd, qdd):
        moving_and_still = jnp.array([1.0, 0.0])[:, None]
        both = jax.vmap(lambda qd, qdd: inverse_dynamics_derivatives(model, q, qd, qdd))(
            moving_and_still * qd[None], moving_and_still * qdd[None]
        )
        (by_q, held), (by_qd, _), (M, _) = both
        return {
            "by_q": by_q, "by_qd": by_qd, "M": M, "gravity": jaxdyn.gravity_force(model, q), "gravity_by_q": held,
        }  # fmt: skip

    found = jax.jit(jax.vmap(first_order))(batch.moving, q, qd, qdd)
    for name, expected in jax.jit(jax.vmap(alone))(batch, q, qd, qdd).items():
        scale = np.abs(expected).max()
        np.testing.assert_allclose(getattr(found, name), expected, rtol=0, atol=1e-12 * scale, err_msg=name)
