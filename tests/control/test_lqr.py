"""Linear-quadratic regulators: against scipy, against costs that are paid, and on robots."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from helpers.states import quickly, relative

import jaxdyn
from jaxdyn import control
from jaxdyn.control import Status


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    A, B = 0.6 * rng.normal(size=(6, 4, 4)), rng.normal(size=(6, 4, 2))
    return A, B, np.diag([1.0, 2, 3, 0]), np.array([[2.0, 0.5], [0.5, 1]]), 5 * np.eye(4)


def test_a_finite_horizon_is_a_least_squares_problem(problem):
    """The gains give the controls that the whole problem, written as one of least squares, has; and its cost."""
    A, B, Q, R, Q_final = problem
    T, n, m = B.shape
    x0 = np.array([1.0, -2, 0.5, 1])
    by_x0, by_u = [np.eye(n)], [np.zeros((n, T * m))]
    for i in range(T):
        by_x0.append(A[i] @ by_x0[i])
        by_u.append(A[i] @ by_u[i])
        by_u[-1][:, i * m : (i + 1) * m] += B[i]
    weights = [*[Q] * T, Q_final]
    H = sum(u.T @ W @ u for u, W in zip(by_u, weights, strict=True)) + np.kron(np.eye(T), R)
    g = sum(u.T @ W @ x @ x0 for u, x, W in zip(by_u, by_x0, weights, strict=True))
    u = -np.linalg.solve(H, g)
    cost = sum(x0 @ x.T @ W @ x @ x0 for x, W in zip(by_x0, weights, strict=True)) + g @ u
    found = control.lqr(A, B, Q, R, Q_final)
    x, applied = x0, []
    for i in range(T):
        applied.append(found.gains[i] @ x)
        x = A[i] @ x + B[i] @ applied[-1]
    assert relative(np.concatenate(applied), u) < 1e-10
    assert relative(x0 @ found.cost_to_go[0] @ x0, cost) < 1e-12
    assert int(found.status) == Status.SOLVED


def test_an_infinite_horizon_is_that_of_scipy(problem):
    A, B, _, R, _ = problem
    A, B, Q = 2.0 * A[0], B[0], np.eye(4)
    found = control.lqr_infinite(A, B, Q, R)
    assert np.abs(np.linalg.eigvals(A)).max() > 1
    assert relative(found.cost_to_go, scipy.linalg.solve_discrete_are(A, B, Q, R)) < 1e-9
    assert np.abs(np.linalg.eigvals(A + B @ np.asarray(found.gains))).max() < 1
    assert int(found.status) == Status.SOLVED


def test_what_cannot_be_brought_to_rest_is_reported(problem):
    """A mode that grows and is not driven: no NaN, and a status."""
    A, B = np.diag([2.0, 0.5]), np.array([[0.0], [1]])
    found = control.lqr_infinite(A, B, np.eye(2), np.eye(1))
    assert int(found.status) in (Status.ITERATIONS, Status.NOT_FINITE)
    assert np.isfinite(found.gains).all()
    A, B, Q, R, Q_final = problem
    broken = control.lqr(np.full_like(A, np.nan), B, Q, R, Q_final)
    assert int(broken.status) == Status.NOT_FINITE
    assert np.isfinite(broken.gains).all()


@pytest.fixture(scope="module")
def spinning():
    """A body on a ball joint that swings for 40 steps: states on a manifold, with their feedback."""
    builder = jaxdyn.ModelBuilder("ball")
    model = builder.add_body("ball", joint="spherical", mass=1.0, com=(0.1, 0, -0.3), inertia=(0.1, 0.2, 0.3)).build()
    rng = np.random.default_rng(1)
    tau, q, qd = rng.normal(size=(40, 3)), jaxdyn.neutral(model), jnp.array([1.0, 2, -1])
    run = jaxdyn.rollout(model, q, qd, tau, dt=0.02)
    feedback = control.trajectory_lqr(model, run, tau, dt=0.02, state_weight=10.0, input_weight=0.1)
    off = rng.normal(size=6)

    def paid(size):
        """Return what a run costs that starts off the reference."""
        moved = jaxdyn.integrate(model, q, size * off[:3])
        led = jaxdyn.rollout(
            model, moved, qd + size * off[3:], control.follow, params=feedback, dt=0.02, steps=40, outputs=["tau"]
        )
        x = jax.vmap(feedback.deviation)(jnp.arange(41), led.q, led.qd)
        return 10.0 * (x**2).sum() + 0.1 * ((led.extras["tau"] - tau) ** 2).sum()

    return feedback, off, quickly(jax.vmap(paid))


def test_feedback_on_a_manifold_costs_what_it_says(spinning):
    """To first order a run that starts off by x costs x* S x: exactly so as x becomes small."""
    feedback, off, paid = spinning
    sizes = np.array([1e-2, 1e-3])
    cost = paid(sizes)
    expected = off @ np.asarray(feedback.cost_to_go[0]) @ off
    gaps = np.abs(cost / sizes**2 / expected - 1)
    assert gaps[1] < 1e-2
    assert gaps[1] < 0.2 * gaps[0]  # the gap is of first order


def test_a_pole_is_balanced():
    """The cart alone is driven; the closed loop brings every small deviation down."""
    model = jaxdyn.load("cartpole")
    upright = jnp.array([0.0, jnp.pi])
    balance = control.equilibrium_lqr(model, upright, dt=0.02, actuated=[0])
    assert int(balance.status) == Status.SOLVED
    assert np.abs(balance.gains[0, 1]).max() == 0
    run = jaxdyn.rollout(model, upright + 0.2, jnp.zeros(2), control.follow, params=balance, dt=0.02, steps=500)
    assert np.abs(run.q[-1] - upright).max() < 1e-2
    with pytest.raises(ValueError, match="not at rest in q"):
        control.equilibrium_lqr(model, jnp.array([0.0, 1.0]), dt=0.02, actuated=[0])


def test_what_is_refused(problem):
    A, B, Q, R, Q_final = problem
    with pytest.raises(ValueError, match=r"A must have shape \(T, nx, nx\)"):
        control.lqr(A[0], B, Q, R, Q_final)
    with pytest.raises(ValueError, match=r"R must have shape \(2, 2\), or \(6, 2, 2\)"):
        control.lqr(A, B, Q, np.eye(3), Q_final)
    model, x = jaxdyn.load("double_pendulum"), jnp.zeros(2)
    with pytest.raises(ValueError, match="input_weight must be positive definite"):
        control.equilibrium_lqr(model, x, dt=0.01, input_weight=0.0)
    with pytest.raises(ValueError, match=r"actuated must be different indices from 0 to 1"):
        control.equilibrium_lqr(model, x, dt=0.01, actuated=[2])
    with pytest.raises(ValueError, match=r"state_weight must be a number, \(4,\) or \(4, 4\)"):
        control.equilibrium_lqr(model, x, dt=0.01, state_weight=jnp.ones(3))
