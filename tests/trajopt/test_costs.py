"""Costs: every named residual has the slopes of its values; costs add, scale, vary in time and refuse what does not fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import trajopt
from jaxdyn.model.random_models import random_tree
from jaxdyn.trajopt.costs import Kind, Knot

NV, NU = 8, 2
FRAME = random_tree(3, seed=0, floating_base=True, joints=("revolute",)).body_names[-1]


@pytest.fixture(scope="module")
def robot():
    """A robot on a floating base, with two joints that are past their limits."""
    end = jnp.concatenate([jnp.full(7, jnp.inf), jnp.full(2, 0.1)])
    return random_tree(3, seed=0, floating_base=True, joints=("revolute",)).replace(lower=-end, upper=end)


@pytest.fixture(scope="module")
def at(robot):
    """A random state of a robot on a floating base, and its plant."""
    rng = np.random.default_rng(0)
    x = jnp.concatenate([jaxdyn.random_configuration(robot, jax.random.key(1)), jnp.asarray(rng.normal(size=NV))])
    u = jnp.asarray(rng.normal(size=NU))
    return trajopt.plant_of(robot, x, u[None], dt=0.01), x, u


COSTS = {
    "frame_position": lambda x: trajopt.frame_position(FRAME, jnp.ones(3), point=(0.1, 0.2, 0.3)),
    "frame_pose": lambda x: trajopt.frame_pose(FRAME, (jnp.eye(3), jnp.zeros(3))),
    "frame_velocity": lambda x: trajopt.frame_velocity(FRAME),
    "state": lambda x: trajopt.state(x.at[:7].set(jnp.array([0.8, 0, 0.6, 0, 1, 1, 1.0]))),
    "configuration": lambda x: trajopt.configuration(x[:9].at[:4].set(jnp.array([0, 0.6, 0.8, 0]))),
    "velocity": lambda x: trajopt.velocity(jnp.ones(NV)),
    "torque": lambda x: trajopt.torque(jnp.ones(NU)),
    "torque_minus_gravity": lambda x: trajopt.torque_minus_gravity(),
    "center_of_mass": lambda x: trajopt.center_of_mass(jnp.ones(3)),
    "centroidal_momentum": lambda x: trajopt.centroidal_momentum(),
    "joint_limits": lambda x: trajopt.joint_limits(margin=0.3),
}


@pytest.fixture(scope="module")
def slopes(at):
    """Slopes of every named residual: in closed form, from what is shared, and by forward mode."""
    plant, x, u = at
    terms = {name: make(x).terms[0] for name, make in COSTS.items()}

    def all_slopes(plant, x, u):
        known = plant.first_order(x, plant.integrate(x, jnp.full(2 * NV, 0.01)))
        forms = {}
        for name, term in terms.items():
            kind, target = term.kind, term.target
            forms[name] = (
                kind.slopes(Knot(plant, x, u), target),
                kind.slopes(Knot(plant, x, u, known), target),
                Kind.slopes(kind, Knot(plant, x, u), target),
                kind.residual(Knot(plant, x, u), target) - kind.residual(Knot(plant, x, u, known), target),
            )
        return forms

    return jax.jit(all_slopes)(plant, x, u)


@pytest.mark.parametrize("name", COSTS)
def test_slopes_are_those_of_the_values(slopes, name):
    """Against forward mode through the residual, along `integrate`."""
    own, shared, witness, difference = slopes[name]
    scale = jnp.abs(witness).max()
    assert jnp.abs(own - witness).max() < 1e-11 * scale
    assert jnp.abs(shared - witness).max() < 1e-11 * scale
    assert jnp.abs(difference).max() < 1e-11


def test_costs_add_and_scale(at):
    plant, x, u = at
    a, b = trajopt.torque(weight=jnp.arange(2.0)), trajopt.velocity()
    value = lambda cost: cost.value(plant, x, u, 0)
    assert jnp.allclose(value(2 * a + np.float64(3) * b), (jnp.arange(2.0) * u * u).sum() + 1.5 * (x[9:] ** 2).sum())
    assert jnp.allclose(value(sum([a, b])), value(a) + value(b))
    r = (a + b).residuals(plant, x, u, 0)
    assert jnp.allclose(0.5 * r @ r, value(a + b))


def test_expansion_of_own_functions():
    """A residual of one's own and the same as a number agree to first order, and to second if they are quadratic."""
    plant = trajopt.plant_of(lambda x, u: x, jnp.zeros(2), jnp.zeros((1, 2)))
    x, u, A = jnp.array([1.0, 2.0]), jnp.array([3.0, -1.0]), jnp.array([[1.0, 2.0], [0.5, -1.0]])
    r = lambda x, u, A: A @ x + u - 1
    square = lambda x, u, A: 0.5 * (r(x, u, A) ** 2).sum()
    one, two = trajopt.residual(r, params=A), trajopt.cost(square, params=A)
    for a, b in zip(one.expansion(plant, x, u, 0), two.expansion(plant, x, u, 0), strict=True):
        assert jnp.allclose(a, b, atol=1e-13)


def test_targets_that_vary(at):
    plant, x, u = at
    cost = trajopt.torque(jnp.stack([u, 0 * u]), weight=jnp.ones(2), varying=True)
    assert cost.value(plant, x, u, 0) == 0
    assert jnp.allclose(cost.value(plant, x, u, 1), 0.5 * u @ u)
    with pytest.raises(ValueError, match="3 rows"):
        cost.check(plant, terminal=False, steps=3)


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (trajopt.frame_position("nowhere", jnp.zeros(3)), "nowhere"),
        (trajopt.frame_position(FRAME, jnp.zeros(2)), r"frame_position: target must have shape \(3,\); got \(2,\)"),
        (trajopt.state(jnp.zeros(16)), r"state: target must have shape \(17,\)"),
        (trajopt.torque(weight=jnp.ones(NV)), r"torque: weight .* \(2,\)"),
        (trajopt.frame_pose(FRAME, jnp.zeros(3)), "rotation"),
    ],
)
def test_what_does_not_fit_is_named(at, cost, words):
    with pytest.raises((ValueError, KeyError), match=words):
        cost.check(at[0], terminal=False, steps=1)


def test_terminal_costs_have_no_inputs(at):
    with pytest.raises(ValueError, match="terminal_cost has a term Torque"):
        trajopt.torque().check(at[0], terminal=True, steps=1)
