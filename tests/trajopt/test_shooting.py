"""Shooting: optima against normal equations, policies, bounds, failures, derivatives of solutions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxdyn
from jaxdyn.trajopt import Status, shooting

T, DT, EFFORT = 10, 0.1, 1e-2


@pytest.fixture(scope="module")
def block():
    """A mass of 1 kg on a rail."""
    builder = jaxdyn.ModelBuilder("block")
    builder.add_body("block", joint="prismatic", joint_name="rail", axis=(1, 0, 0), mass=1.0, inertia=(1, 1, 1))
    return builder.build()


def miss(run, tau, goal):
    return (run.q[-1, 0] - goal) ** 2 + run.qd[-1, 0] ** 2 + EFFORT * (tau**2).sum()


def by_normal_equations(q0, goal, mass=1.0):
    """Semi-implicit Euler: qd_T = sum h u / m, q_T = q0 + sum (T - i) h^2 u / m; linear least squares."""
    rows = np.stack([DT**2 * (T - np.arange(T)), np.full(T, DT)]) / mass
    return np.linalg.solve(rows.T @ rows + EFFORT * np.eye(T), rows.T @ np.array([goal - q0, 0.0]))


def test_least_squares_problems(block):
    """A batch of starts and goals, by L-BFGS, against the normal equations; one that is no number says so."""
    q, goal = np.array([0.0, 0.5, 1.0]), np.array([1.0, -2.0, np.nan])
    solve = lambda q, goal: shooting(
        block, miss, q[None], jnp.zeros(1), jnp.zeros((T, 1)), dt=DT, data=goal, tolerance=1e-9
    )
    found = jax.jit(jax.vmap(solve))(q, goal)
    assert found.status.tolist() == [Status.CONVERGED, Status.CONVERGED, Status.NOT_FINITE]
    for leaf in jax.tree.leaves(found):
        assert np.isfinite(leaf).all()
    for i in range(2):
        np.testing.assert_allclose(found.us[i, :, 0], by_normal_equations(q[i], goal[i]), atol=1e-7)
        np.testing.assert_array_equal(found.us[i], found.extras["params"][i])
    assert found.xs.shape == (3, T + 1, 2)
    assert found.t.shape == (3, T + 1)


def test_solutions_within_bounds_have_no_derivatives(block):
    """They are refused, also where no bound is active."""
    policy, loss = lambda t, q, qd, gain: -gain * q, lambda run, gain: (run.q**2).mean()
    options = {"params": jnp.ones(()), "dt": DT, "steps": T, "project": lambda gain: jnp.clip(gain, 0.0, 8.0)}
    gain = lambda start: shooting(block, loss, start, 0 * start, policy, **options).extras["params"]
    with pytest.raises(NotImplementedError, match="leave out `project`"):
        jax.eval_shape(jax.grad(lambda start: gain(start).sum()), jnp.array([1.0]))


def test_policy_of_several_starts_within_bounds(block):
    """Gains of a linear policy for three starts, by Adam, projected: none is better in a search over all."""

    def spread(run, gains):
        return (run.q**2).mean() + 1e-3 * (run.extras["tau"] ** 2).mean()

    policy = lambda t, q, qd, gains: -gains[0] * q - gains[1] * qd
    starts = jnp.array([[1.0], [-0.5], [2.0]])
    found = shooting(
        block,
        spread,
        starts,
        0 * starts,
        policy,
        params=jnp.array([1.0, 1.0]),
        dt=DT,
        steps=T,
        optimizer=optax.adam(0.3),
        project=lambda gains: jnp.clip(gains, 0.0, 8.0),
        max_iterations=150,
        tolerance=1e-5,
        remat="steps",
    )
    assert found.xs.shape == (3, T + 1, 2)
    assert found.iterations == np.count_nonzero(found.history["cost"])
    gains = np.asarray(found.extras["params"])
    assert gains[0] == 8.0
    assert 0 < gains[1] < 8

    def simulated(kp, kd):
        """The same in NumPy, for arrays of gains."""
        q, qd = np.asarray(starts)[:, 0][:, None, None] + 0 * kp, 0 * kp
        qs, taus = [q], []
        for _ in range(T):
            taus.append(-kp * q - kd * qd)
            qd = qd + DT * taus[-1]
            q = q + DT * qd
            qs.append(q)
        return (np.mean(np.square(qs), 0) + 1e-3 * np.mean(np.square(taus), 0)).mean(0)

    grid = simulated(*np.meshgrid(np.linspace(0, 8, 41), np.linspace(0, 8, 161), indexing="ij"))
    np.testing.assert_allclose(found.cost, simulated(*np.reshape(gains, (2, 1, 1)))[0, 0], rtol=1e-10)
    assert found.cost <= grid.min() + 1e-9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tau": jnp.zeros(3)}, r"tau must have shape \(T, 1\)"),
        ({"q": jnp.zeros(2)}, "q and qd must have shapes"),
        ({"tau": lambda t, q, qd, p: p}, "params must be given with a policy"),
        ({"tau": lambda t, q, qd, p: p, "params": jnp.zeros(1)}, "steps must be given"),
        ({"params": 1.0}, "params are those of a policy"),
        ({"max_iterations": 0}, "max_iterations must be a positive integer"),
    ],
)
def test_bad_input(block, change, message):
    given = {"q": jnp.zeros(1), "qd": jnp.zeros(1), "tau": jnp.zeros((T, 1)), "dt": DT} | change
    q, qd, tau = (given.pop(name) for name in ("q", "qd", "tau"))
    with pytest.raises(ValueError, match=message):
        shooting(block, lambda run, p: run.q.sum(), q, qd, tau, **given)


@pytest.mark.long
def test_derivatives_of_a_solution(block):
    """By goal, start and mass, both modes, against central differences of the normal equations."""

    def forces(theta):
        goal, q, mass = theta
        model = block.replace(inertia=mass * block.inertia)
        found = shooting(model, miss, q[None], jnp.zeros(1), jnp.zeros((T, 1)), dt=DT, data=goal, tolerance=1e-10)
        return found.us[:, 0]

    theta, step = np.array([1.0, 0.2, 1.5]), 1e-6
    ends = [[by_normal_equations(x[1], x[0], x[2]) for x in theta + s * step * np.eye(3)] for s in (1, -1)]
    expected = (np.array(ends[0]) - np.array(ends[1])).T / (2 * step)
    for mode in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jax.jit(mode(forces))(jnp.asarray(theta)), expected, rtol=1e-6, atol=1e-7)


def test_second_derivatives_are_refused(block):
    """The first derivative takes the solution as given: its own would be wrong."""
    solve = lambda goal: shooting(block, miss, jnp.zeros(1), jnp.zeros(1), jnp.zeros((T, 1)), dt=DT, data=goal)
    for of in (lambda goal: solve(goal).cost, lambda goal: solve(goal).us.sum()):
        with pytest.raises(NotImplementedError, match="can be differentiated once"):
            jax.eval_shape(jax.hessian(of), jnp.array(1.0))
