"""Masks and parts of models: what is named is trained, the rest stays, and inertias stay physical."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers.states import quickly

import jaxdyn
from jaxdyn.model import (
    from_log_cholesky,
    is_physical,
    log_cholesky,
    merge,
    partition,
    trainable,
)


@pytest.fixture(scope="module")
def arm():
    return jaxdyn.load("arm7")


def quadratic(model):
    """A loss that pulls every leaf, those that are infinite excepted."""
    return sum((jnp.where(jnp.isfinite(x), x, 0) ** 2).sum() for x in jax.tree.leaves(model))


def test_masks_train_what_they_name(arm):
    mask = trainable(arm, "inertia", "damping")
    assert jax.tree.structure(mask) == jax.tree.structure(arm)
    assert [name for name, leaf in vars(mask).items() if leaf is True] == ["inertia", "damping"]
    still = {True: optax.adam(1e-3), False: optax.set_to_zero()}
    freeze = jax.tree.map(lambda named: not named, mask)
    masked = optax.chain(optax.masked(optax.adam(1e-3), mask), optax.masked(optax.set_to_zero(), freeze))
    step = lambda tx: lambda m: optax.apply_updates(m, tx.update(jax.grad(quadratic)(m), tx.init(m), m)[0])
    for tx in (optax.multi_transform(still, mask), masked):
        new = quickly(step(tx))(arm)
        changed = {name for name in vars(mask) if name not in ("topology", "geometry")
                   and not np.array_equal(getattr(new, name), getattr(arm, name))}  # fmt: skip
        assert changed == {"inertia", "damping"}
    with pytest.raises(ValueError, match="no leaf 'inertias' to train: did you mean 'inertia'"):
        trainable(arm, "inertias")
    with pytest.raises(ValueError, match="no leaf 'topology'"):
        trainable(arm, "topology")


def test_a_model_is_its_two_parts(arm):
    trained, frozen = partition(arm, trainable(arm, "inertia", "gravity"))
    assert trained.placement is None
    assert frozen.inertia is None
    assert len(jax.tree.leaves(trained)) == 2
    whole = merge(trained, frozen)
    assert jax.tree.structure(whole) == jax.tree.structure(arm)
    assert all(a is b for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(arm), strict=True))
    half = arm.moving  # has leaves that are None
    assert jax.tree.structure(trainable(half, "inertia")) == jax.tree.structure(half)
    assert jax.tree.structure(merge(*partition(half, trainable(half, "inertia")))) == jax.tree.structure(half)
    with pytest.raises(ValueError, match="gravity is in both parts"):
        merge(trained, partition(arm, trainable(arm, "inertia"))[1])
    with pytest.raises(ValueError, match="parts of two models"):
        merge(trained, jaxdyn.load("pendulum"))


def test_the_trained_part_trains(arm):
    q, qd = jaxdyn.random_configuration(arm, jax.random.key(0)), jnp.ones(7)
    trained, frozen = partition(arm, trainable(arm, "damping", "friction"))
    wanted = jnp.linspace(-1, 1, 7)
    tx = optax.adam(0.05)

    @jax.jit
    def step(trained, state):
        loss = lambda part: ((jaxdyn.passive_force(merge(part, frozen), q, qd) - wanted) ** 2).sum()
        value, gradient = jax.value_and_grad(loss)(trained)
        updates, state = tx.update(gradient, state)
        return optax.apply_updates(trained, updates), state, value

    state, losses = tx.init(trained), []
    for _ in range(30):
        trained, state, value = step(trained, state)
        losses.append(float(value))
    assert losses[-1] < 0.5 * losses[0]
    assert trained.inertia is None


def test_inertias_trained_by_their_coordinates_fit_and_stay_physical(arm):
    """From a wrong guess, by forces of the true robot; the same steps in pi itself leave what is physical."""
    rng = np.random.default_rng(24)
    q, qd, qdd = (jnp.asarray(rng.normal(size=(16, 7))) for _ in range(3))
    forces = jax.vmap(jaxdyn.inverse_dynamics, (None, 0, 0, 0))
    measured = forces(arm, q, qd, qdd)
    guess = log_cholesky(arm.inertia) + 0.3 * rng.normal(size=(7, 10))

    def train(x, by_coordinates):
        tx = optax.adam(0.02)
        decode = lambda x: jnp.where(by_coordinates, from_log_cholesky(x), x)
        loss = lambda x: jnp.mean((forces(jaxdyn.with_inertial_parameters(arm, decode(x)), q, qd, qdd) - measured) ** 2)

        def step(carry, _):
            x, state = carry
            value, gradient = jax.value_and_grad(loss)(x)
            updates, state = tx.update(gradient, state)
            x = optax.apply_updates(x, updates)
            return (x, state), (value, is_physical(arm.replace(inertia=decode(x))))

        return jax.lax.scan(step, (x, tx.init(x)), length=60)[1]

    starts = jnp.stack([guess, from_log_cholesky(guess)])
    losses, physical = quickly(jax.vmap(train))(starts, np.array([True, False]))
    assert losses[0, -1] < 0.02 * losses[0, 0]
    assert physical[0].all()
    assert not physical[1].all()
