"""Exciting trajectories: better than random ones, at rest at both ends, within limits at all times."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.sysid.base import base_parameters, base_regressor
from jaxdyn.sysid.excitation import _at_rest, _limits_of, _scaled, _series, excitation, motion_of, spectral
from jaxdyn.sysid.solving import Status

LIMITS = {
    "position": (np.array([-1.0, -0.5]), np.array([2.0, 0.8])),
    "velocity": 2.0,
    "acceleration": np.array([6.0, 9.0]),
}
EFFORT = np.array([25.0, 8.0])


@pytest.fixture(scope="module")
def robot():
    return jaxdyn.load("double_pendulum")


@pytest.fixture(scope="module")
def motion(robot):
    return excitation(robot, duration=4.0, effort=EFFORT, max_iterations=40, **LIMITS)


@pytest.fixture(scope="module")
def fine(robot, motion):
    """The motion and its joint forces on a grid that is no multiple of its samples."""
    q, qd, qdd = motion.at(np.linspace(0, 4, 1777))
    forces = lambda q, qd, qdd: jaxdyn.inverse_dynamics(robot, q, qd, qdd) - jaxdyn.passive_force(robot, q, qd)
    return tuple(np.asarray(x) for x in (q, qd, qdd, jax.vmap(forces)(q, qd, qdd)))


def condition(robot, q, qd, qdd):
    W = jax.vmap(lambda *x: base_regressor(robot, base_parameters(robot), *x))(q, qd, qdd)
    return np.linalg.cond(np.asarray(W).reshape(-1, W.shape[-1]))


def test_it_begins_and_ends_at_rest(motion):
    for rows in (motion.qd, motion.qdd):
        np.testing.assert_allclose(rows[np.array([0, -1])], 0, atol=1e-12)
    np.testing.assert_allclose(motion.q[0], motion.q[-1], atol=1e-12)


def test_it_keeps_to_all_limits_at_all_times(motion, fine):
    q, qd, qdd, tau = fine
    assert motion.status in (Status.CONVERGED, Status.MAX_ITERATIONS)
    assert (q >= LIMITS["position"][0]).all()
    assert (q <= LIMITS["position"][1]).all()
    assert (np.abs(qd) <= 2.0).all()
    assert (np.abs(qdd) <= LIMITS["acceleration"]).all()
    assert (np.abs(tau) <= EFFORT).all()
    assert np.abs(qd).max() > 0.7 * 2.0  # and makes use of them


def test_velocities_and_accelerations_are_derivatives(motion):
    h = 1e-5
    before, now, after = (motion.at(jnp.array([1.234 + e])) for e in (-h, 0, h))
    np.testing.assert_allclose((after[0] - before[0]) / (2 * h), now[1], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose((after[1] - before[1]) / (2 * h), now[2], rtol=1e-6, atol=1e-9)


def test_it_is_better_than_random_series(robot, motion, fine):
    """Than the best of many within the same limits of position, velocity and acceleration."""
    np.testing.assert_allclose(
        motion.condition, condition(robot, motion.q[:-1], motion.qd[:-1], motion.qdd[:-1]), rtol=1e-8
    )
    assert motion.condition < motion.start_condition
    limits = _limits_of(robot, *LIMITS.values(), np.inf)
    series = _scaled(_series(5, 120, _at_rest(5)), jnp.asarray(4.0))
    base = base_parameters(robot)

    @jax.jit
    @jax.vmap
    def random(key):
        q, qd, qdd = motion_of(series, jax.random.normal(key, (9, 2)), limits, 0.99)
        return jax.vmap(lambda *x: base_regressor(robot, base, *x))(q, qd, qdd)

    W = np.asarray(random(jax.random.split(jax.random.key(7), 64)))
    assert motion.condition < np.linalg.cond(W.reshape(64, -1, W.shape[-1])).min()


def test_limits_that_gravity_alone_breaks_are_infeasible(robot):
    """The same compiled search, with joints that must stay up and motors that cannot hold them."""
    up = {**LIMITS, "position": (np.array([1.4, -0.1]), np.array([1.7, 0.1]))}
    found = excitation(robot, duration=4.0, effort=np.array([1.0, 0.1]), max_iterations=40, **up)
    assert found.status == Status.INFEASIBLE
    assert found.message == "the limits cannot be met"
    assert all(np.isfinite(x).all() for x in (found.q, found.qd, found.qdd, found.tau, found.condition))


@pytest.mark.parametrize("criterion", ["condition", "log_det"])
def test_the_gradient_is_that_of_central_differences_also_at_repeated_singular_values(criterion, rng):
    gradient = jax.jit(jax.grad(lambda W: spectral(criterion, W)))
    value = jax.jit(lambda W: spectral(criterion, W))
    Q = np.linalg.qr(rng.normal(size=(12, 4)))[0]
    for s in ([4.0, 3, 2, 1], [2.0, 2, 2, 2], [3.0, 3, 1, 1]):
        W, E = jnp.asarray(Q * np.array(s)), rng.normal(size=(12, 4))
        along = (value(W + 1e-5 * E) - value(W - 1e-5 * E)) / 2e-5
        np.testing.assert_allclose((gradient(W) * E).sum(), along, rtol=1e-6, atol=1e-8)
    for W in (jnp.zeros((12, 4)), jnp.asarray(Q * np.array([1.0, 1, 0, 0]))):
        assert np.isfinite(value(W))
        assert np.isfinite(gradient(W)).all()


def test_the_smooth_condition_number_bounds_the_true_one(rng):
    W = rng.normal(size=(30, 6)) * np.array([1, 2, 5, 10, 20, 100.0])
    smooth, true = np.exp(float(spectral("condition", jnp.asarray(W)))), np.linalg.cond(W)
    assert true <= smooth <= true * 6 ** (2 / 8)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"harmonics": 1}, "harmonics must be an integer of at least 2"),
        ({"duration": -1.0}, "duration must be a positive number"),
        ({"samples": 20}, "samples must be an integer above"),
        ({"criterion": "trace"}, 'criterion must be "condition" or "log_det"'),
        ({"position": (1.0, -1.0)}, "leave no room"),
        ({"position": 1.0}, r"position must be a pair"),
        ({"velocity": 0.0}, "velocity must be positive"),
        ({"effort": [1.0, np.nan]}, r"effort must be a number, or have shape \(2,\)"),
        ({"noise": 0.0}, "noise must be positive"),
        ({"learning_rate": np.nan}, "learning_rate must be positive"),
    ],
)
def test_bad_arguments_are_named(robot, options, says):
    with pytest.raises(ValueError, match=says):
        excitation(robot, **options)


def test_floating_bases_are_refused():
    with pytest.raises(ValueError, match="joint 'root_joint' is free"):
        excitation(jaxdyn.load("quadruped"))
