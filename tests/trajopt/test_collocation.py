"""Collocation: closed-form optima, orders of convergence, limits, rotations, statuses, derivatives of solutions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers.runge_kutta import runge_kutta

import jaxdyn
from jaxdyn.simulate import rollout
from jaxdyn.trajopt import Status, collocation, ilqr, state, torque
from jaxdyn.trajopt.banded import Banded, factorise


@pytest.fixture(scope="module")
def block():
    """A mass of 1 kg on a rail: the double integrator."""
    builder = jaxdyn.ModelBuilder("block")
    builder.add_body("block", joint="prismatic", joint_name="rail", axis=(1, 0, 0), mass=1.0, inertia=(1, 1, 1))
    return builder.build()


def at(q, qd=0.0):
    return jnp.array([q, qd])


# ---------------------------------------------------------------------- closed forms
def test_banded_factor_solves(rng):
    """Against the same matrix, dense."""
    K, n, m = 4, 3, 2
    dense = np.zeros((K * n + m, K * n + m))
    rows = [slice(i * n, (i + 1) * n) for i in range(K)] + [slice(K * n, None)]
    for i, j in np.argwhere(np.tri(K + 1)):
        if i - j < 2 or i == K:
            dense[rows[i], rows[j]] = rng.normal(size=dense[rows[i], rows[j]].shape)
            dense[rows[j], rows[i]] = dense[rows[i], rows[j]].T
    dense = (dense + dense.T) / 2 + 20 * np.eye(len(dense))
    blocks = lambda pairs: jnp.asarray(np.stack([dense[rows[i], rows[j]] for i, j in pairs]))
    A = Banded(
        blocks([(i, i) for i in range(K)]),
        blocks([(i, i + 1) for i in range(K - 1)]),
        blocks([(i, K) for i in range(K)]),
        jnp.asarray(dense[rows[K], rows[K]]),
    )
    b = rng.normal(size=len(dense))
    split = lambda x: (jnp.asarray(x[: K * n].reshape(K, n)), jnp.asarray(x[K * n :]))
    flat = lambda x: np.concatenate([np.ravel(x[0]), x[1]])
    np.testing.assert_allclose(flat(jax.jit(lambda b: factorise(A).solve(b))(split(b))), np.linalg.solve(dense, b))
    np.testing.assert_allclose(flat(A @ split(b)), dense @ b)


def test_minimum_energy(block):
    """From rest to rest, d in T with mass m: force m (6 d / T^2) (1 - 2 t / T), cost 6 (m d)^2 / T^3; in a batch.

    The motion is a cubic, which Hermite-Simpson has exactly.
    """
    m, d, T = np.array([1.0, 2.0, 0.5]), np.array([1.0, -0.3, 4.0]), np.array([2.0, 1.0, 3.0])

    @jax.jit
    @jax.vmap
    def solve(m, d, T):
        model = block.replace(inertia=m * block.inertia)
        end = jnp.stack([d, jnp.zeros_like(d)])
        return collocation(model, torque(), None, at(0.0), x_end=end, steps=6, duration=T, limits=(), tolerance=1e-10)

    found = solve(m, d, T)
    assert (found.status == Status.CONVERGED).all(), found.message
    np.testing.assert_allclose(found.cost, 6 * (m * d) ** 2 / T**3, rtol=1e-8)
    part = np.linspace(0, 1, 7)
    np.testing.assert_allclose(found.xs[..., 0], d[:, None] * (3 * part**2 - 2 * part**3), atol=1e-9)
    np.testing.assert_allclose(
        found.extras["us_knots"][..., 0], (6 * m * d / T**2)[:, None] * (1 - 2 * part), rtol=1e-7, atol=1e-8
    )
    np.testing.assert_allclose(found.t[:, -1], T)


def fastest(block, d, force):
    model = block.replace(effort_limit=force[None])
    end = jnp.stack([d, jnp.zeros_like(d)])
    options = {"steps": 8, "duration": 2.0, "free_duration": (0.1, 10.0), "time_weight": 1.0, "tolerance": 1e-9}
    return collocation(model, None, None, at(0.0), x_end=end, scheme="midpoint", **options)


@pytest.mark.long
def test_minimum_time_and_its_gradient(block):
    """Full force forward, then backward: T = 2 sqrt(d / a), and its derivatives by d and a, in a batch."""
    d, a = np.array([1.0, 2.0]), np.array([1.5, 0.7])
    value = lambda d, a: (lambda found: (found.extras["duration"], found))(fastest(block, d, a))
    (T, found), slopes = jax.jit(jax.vmap(jax.value_and_grad(value, argnums=(0, 1), has_aux=True)))(d, a)
    assert (found.status == Status.CONVERGED).all(), found.message
    np.testing.assert_allclose(T, 2 * np.sqrt(d / a), rtol=1e-7)
    np.testing.assert_allclose(found.cost, T)
    np.testing.assert_allclose(found.us[..., 0], a[:, None] * np.repeat([1, -1], 4), rtol=1e-6)
    assert found.extras["violations"]["effort"].max() <= 1e-9
    np.testing.assert_allclose(slopes[0], 1 / np.sqrt(d * a), rtol=1e-6)
    np.testing.assert_allclose(slopes[1], -np.sqrt(d / a**3), rtol=1e-6)


def test_path_and_terminal_constraints(block):
    """With a limit v on the speed: force falls linearly to zero within t = 3/2 (T - d/v), then none: 4 v^2 / 3 t.

    The end is prescribed by a function of the state with a parameter.
    """
    found = collocation(
        block,
        torque(),
        None,
        at(0.0),
        steps=12,
        duration=2.0,
        inequality=lambda x, u, params: x[1] - params[1],
        terminal_equality=lambda x, params: x - jnp.stack([params[0], 0.0]),
        params=jnp.array([1.0, 0.6]),
        tolerance=1e-9,
    )
    assert found.success, found.message
    np.testing.assert_allclose(found.cost, 0.96, rtol=1e-7)
    assert found.xs[:, 1].max() <= 0.6 + 1e-9
    assert max(found.extras["violations"].values()) <= 1e-9
    assert found.iterations == np.count_nonzero(found.history["penalty"])
    assert found.table().count("\n") == found.iterations + 1


# ---------------------------------------------------------------------- what the schemes solve
SWING = {"x_end": at(2.5), "duration": 1.2, "tolerance": 1e-9, "limits": ()}


def pendulum():
    return jaxdyn.load("pendulum").replace(damping=[0.2])


@pytest.mark.long
def test_midpoint_is_the_implicit_midpoint_rule():
    """The knots are those of a rollout under the forces that were found."""
    found = collocation(pendulum(), torque(), None, at(0.3, 1.0), steps=8, scheme="midpoint", **SWING)
    assert found.success, found.message
    run = rollout(pendulum(), [0.3], [1.0], found.us, dt=0.15, integrator="implicit_midpoint")
    np.testing.assert_allclose(run.q[:, 0], found.xs[:, 0], atol=1e-7)
    np.testing.assert_allclose(run.qd[:, 0], found.xs[:, 1], atol=1e-6)


def simulated_error(steps, scheme):
    """Return how far a fine simulation under the forces of the solution ends from where its motion does."""
    model = pendulum()
    found = collocation(model, torque(), None, at(0.3, 1.0), steps=steps, scheme=scheme, **SWING)
    assert found.success, found.message
    knots, middle, h = found.extras.get("us_knots"), found.extras.get("us_middle"), 1.2 / steps

    def force(t):
        k = jnp.clip((t / h + 1e-9).astype(int), 0, steps - 1)
        s = t / h - k
        if scheme == "midpoint":
            return found.us[k]
        return knots[k] * (1 - s) * (1 - 2 * s) + 4 * middle[k] * s * (1 - s) + knots[k + 1] * s * (2 * s - 1)

    def rate(x):
        tau = force(x[2]) - 0.2 * x[1:2]
        return jnp.concatenate([x[1:2], jaxdyn.forward_dynamics(model, x[:1], x[1:2], tau), jnp.ones(1)])

    end = jax.jit(lambda x: runge_kutta(rate, x, h / 16, 16 * steps)[-1])(jnp.array([0.3, 1.0, 0.0]))
    return np.abs(end[:2] - at(2.5)).max()


@pytest.mark.long
@pytest.mark.parametrize(("scheme", "order"), [("hermite_simpson", 4), ("midpoint", 2)])
def test_order(scheme, order):
    """Twice as many knots, 2^order times more accurate."""
    coarse, fine = simulated_error(8, scheme), simulated_error(16, scheme)
    assert order - 0.4 < np.log2(coarse / fine) < order + 0.4


@pytest.mark.long
def test_rotations():
    """A ball turned from rest to rest: along the geodesic, as the double integrator is moved along its rail.

    The quaternion at the end is the other one of the two that mean the same.
    """
    builder = jaxdyn.ModelBuilder("ball")
    builder.add_body("ball", joint="spherical", joint_name="center", mass=1.0, inertia=(0.5, 0.5, 0.5))
    model, turn, T = builder.build(), jnp.array([0.6, -1.0, 0.9]), 1.5
    start = jaxdyn.integrate(model, jaxdyn.neutral(model), jnp.array([0.2, 0.1, -0.4]))
    end = -jaxdyn.integrate(model, start, turn)
    x = lambda q: jnp.concatenate([q, jnp.zeros(3)])
    found = collocation(model, torque(), None, x(start), x_end=x(end), steps=5, duration=T, tolerance=1e-9)
    assert found.success, found.message
    np.testing.assert_allclose(found.cost, 6 * 0.25 * (turn @ turn) / T**3, rtol=1e-8)
    part = np.linspace(0, 1, 6)
    for q, s in zip(found.xs[:, :4], 3 * part**2 - 2 * part**3, strict=True):
        np.testing.assert_allclose(jaxdyn.difference(model, start, q), s * turn, atol=1e-8)


# ---------------------------------------------------------------------- failures say why
def test_statuses(block):
    """A limit that is active, one that is too low, no number at the start, and a single interval."""
    starts = jnp.array([0.0, 0.0, jnp.nan])
    forces = jnp.array([1.2, 0.5, 1.2])

    @jax.jit
    @jax.vmap
    def solve(start, force):
        model = block.replace(effort_limit=force[None])
        x0 = jnp.stack([start, 0 * start])
        return collocation(model, torque(), None, x0, x_end=at(1.0), steps=6, duration=2.0, scheme="midpoint")

    found = solve(starts, forces)
    assert found.status.tolist() == [Status.CONVERGED, Status.INFEASIBLE, Status.NOT_FINITE]
    for leaf in jax.tree.leaves((found.xs, found.us, found.history, found.t)):
        assert np.isfinite(leaf).all()
    assert found.extras["violations"]["effort"][0] <= 1e-6
    np.testing.assert_allclose(jnp.abs(found.us[0]).max(), 1.2, atol=1e-6)
    assert max(v[1] for v in found.extras["violations"].values()) > 1e-3  # and it is reported
    assert "1 of 3: the constraints are not met" in found.message


@pytest.mark.long
def test_one_interval(block):
    """One cubic is enough for the double integrator."""
    found = collocation(block, torque(), None, at(0.0), x_end=at(1.0), steps=1, duration=2.0, tolerance=1e-9)
    assert found.success
    np.testing.assert_allclose(found.cost, 6 / 2**3, rtol=1e-7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be a positive integer"),
        ({"scheme": "hermit_simpson"}, "did you mean 'hermite_simpson'"),
        ({"method": "sqp"}, "method must be one of gauss_newton"),
        ({"limits": ["torque"]}, "limits has 'torque'"),
        ({"x_end": jnp.zeros(3)}, r"x_end must have shape \(2,\)"),
        ({"xs": jnp.zeros((5, 2))}, r"xs must have shape \(11, 2\)"),
        ({"free_duration": 3.0}, r"free_duration must be \(shortest, longest\)"),
        ({"free_duration": (-1.0, 2.0)}, r"free_duration must be .* 0 < shortest <= longest; got \(-1.0, 2.0\)"),
        ({"free_duration": (5.0, 0.5)}, "0 < shortest <= longest"),
        ({"tolerance": -1.0}, "tolerance must be a positive number"),
        ({"max_iterations": 0}, "max_iterations must be a positive integer"),
        ({"driven": ["rial"]}, "did you mean 'rail'"),
        ({"duration": jnp.ones(2)}, "duration must be one real number"),
        ({"duration": -1.0}, "duration must be positive"),
    ],
)
def test_bad_input(block, change, message):
    given = {"steps": 10, "duration": 1.0, "x_end": at(1.0)} | change
    with pytest.raises(ValueError, match=message):
        collocation(block, torque(), None, at(0.0), **given)


# ---------------------------------------------------------------------- twins
@pytest.mark.long
def test_the_same_as_ilqr():
    """With forces held for a step, both find the optimum of one discrete problem: states, forces and cost."""
    model, x0, dt = pendulum(), at(0.3, 1.0), 0.15
    end = state(at(1.5), weight=20.0)
    found = collocation(model, torque(), end, x0, steps=8, duration=8 * dt, scheme="midpoint", tolerance=1e-9)
    other = ilqr(model, dt * torque(), end, x0, jnp.zeros((8, 1)), dt=dt, integrator="implicit_midpoint")
    assert found.success, found.message
    assert other.success, other.message
    np.testing.assert_allclose(found.cost, other.cost, rtol=1e-7)
    np.testing.assert_allclose(found.xs, other.xs, atol=1e-4)
    np.testing.assert_allclose(found.us, other.us, atol=1e-3)


@pytest.mark.long
def test_methods_agree():
    """Gauss-Newton, Newton and L-BFGS find the same swing, and an optax optimiser descends towards it."""
    swing = {**SWING, "x_end": at(1.0), "steps": 6, "tolerance": 1e-6}
    found = [
        collocation(pendulum(), torque(), None, at(0.3), **swing | {"method": method, "max_iterations": most})
        for method, most in (("gauss_newton", 200), ("newton", 200), ("lbfgs", 5000))
    ]
    assert all(x.success for x in found), [x.message for x in found]
    for other in found[1:]:
        np.testing.assert_allclose(other.cost, found[0].cost, rtol=1e-4)
        np.testing.assert_allclose(other.xs, found[0].xs, atol=1e-3)
    rough = collocation(
        pendulum(), torque(), None, at(0.3), **swing | {"method": optax.adam(1e-2), "max_iterations": 300}
    )
    assert rough.history["violation"][299] < 0.1 * rough.history["violation"][0]


@pytest.mark.long
def test_cartpole_swings_up():
    """One motor for two joints, limits of rail, speed and force, and a free duration."""
    model = jaxdyn.load("cartpole")
    found = collocation(
        model,
        torque(weight=0.01),
        None,
        jnp.zeros(4).at[1].set(jnp.pi),
        x_end=jnp.zeros(4),
        steps=30,
        duration=2.0,
        free_duration=(0.5, 5.0),
        time_weight=1.0,
        driven=["slider"],
    )
    assert found.success, found.message
    assert max(found.extras["violations"].values()) <= 1e-6
    assert 0.5 < found.extras["duration"] < 2.0
    assert np.abs(found.xs[:, 0]).max() <= 2.4 + 1e-6
    assert np.abs(found.extras["us_middle"]).max() <= 20 + 1e-6


@pytest.mark.long
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_of_a_solution(mode):
    """By mass, start, weight, an active limit and duration: against central differences."""
    base, weights = pendulum(), jnp.asarray(np.random.default_rng(0).normal(size=(9, 2)))

    def outcome(theta):
        mass, x0, weight, limit, T = theta
        model = base.replace(inertia=mass * base.inertia, effort_limit=limit)
        cost = torque(weight=weight)
        options = {"steps": 8, "x_end": at(2.5), "tolerance": 1e-11, "method": "newton"}
        found = collocation(model, cost, None, x0, duration=T, **options)
        return jnp.stack([found.cost, (weights * found.xs).sum(), (found.us**3).sum()]), found

    theta = jnp.array(1.0), at(0.3, 1.0), jnp.array(1.3), jnp.array([4.7]), jnp.array(1.2)
    value = jax.jit(outcome)
    found = value(theta)[1]
    assert found.success, found.message
    assert found.extras["us_middle"].max() > 4.7 - 1e-9  # the limit is active
    flat, restore = jax.flatten_util.ravel_pytree(theta)
    step = 1e-5
    ends = [[value(restore(flat + sign * step * e))[0] for e in np.eye(flat.size)] for sign in (1, -1)]
    by_differences = (np.array(ends[0]) - np.array(ends[1])).T / (2 * step)
    by_rule = jax.jit(mode(lambda x: outcome(restore(x))[0]))(flat)
    np.testing.assert_allclose(by_rule, by_differences, rtol=1e-5, atol=1e-5 * np.abs(by_differences).max())


def test_second_derivatives_are_refused(block):
    """The first derivative takes the solution as given: its own would be wrong."""

    def least(d):
        return collocation(block, torque(), None, at(0.0), x_end=at(d), steps=2, duration=1.0).cost

    for mode in (jax.jacfwd, jax.jacrev):
        with pytest.raises(NotImplementedError, match="can be differentiated once"):
            jax.eval_shape(mode(jax.grad(least)), 1.0)
