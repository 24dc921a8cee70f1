"""Derivatives through time: against central differences, with every choice of memory, and step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import relative

import jaxdyn
from jaxdyn.model.random_models import random_chain
from jaxdyn.simulate import Trajectory, linearize_trajectory, rollout, step
from jaxdyn.simulate.integrators import semi_implicit_euler
from jaxdyn.simulate.loops import divisor_near, loop

DT = 0.02


def central(f, x, direction, eps=1e-5):
    return (f(x + eps * direction) - f(x - eps * direction)) / (2 * eps)


def test_gradients_by_everything(chain):
    """Initial state, inputs, parameters, inertias and coefficients of friction, through a policy and passive forces."""
    rng = np.random.default_rng(0)
    n = 4
    args = {
        "q": jnp.array([0.3, -0.5]),
        "qd": jnp.array([0.2, 0.4]),
        "gain": jnp.array([0.5, 0.1]),
        "inertia": chain.inertia,
        "friction": chain.friction,
        "stiffness": chain.stiffness,
    }

    @jax.jit
    def loss(a):
        model = chain.replace(inertia=a["inertia"], friction=a["friction"], stiffness=a["stiffness"])
        policy = lambda t, q, qd, gain: jnp.sin(3 * t) - gain * qd
        run = rollout(model, a["q"], a["qd"], policy, dt=DT, steps=n, params=a["gain"], remat="steps", hold=2)
        return (run.q**2).sum() + (run.qd[-1] ** 3).sum()

    gradient = jax.jit(jax.grad(loss))(args)
    for name, x in args.items():
        direction = jnp.asarray(rng.normal(size=x.shape))
        slope = central(lambda x: loss(args | {name: x}), x, direction)
        assert abs((gradient[name] * direction).sum() - slope) < 1e-7 * max(1, abs(slope)), name


@pytest.fixture(scope="module")
def swing():
    """Return the gradient of a function of a pendulum's last state by joint forces, with a choice of memory."""
    model = jaxdyn.load("pendulum").replace(damping=[0.3], friction=[0.0], stiffness=[0.0])

    def loss(tau, remat="none", save_every=1):
        run = rollout(model, [0.3], [0.5], tau, dt=1e-4, remat=remat, save_every=save_every)
        return (run.q[-1] ** 2).sum() + (run.qd[-1] ** 3).sum()

    return loss


def test_what_is_kept_changes_memory_and_nothing_else(swing):
    """Whether few or many states are saved, and though the number of steps has no divisor near its root."""
    rng = np.random.default_rng(1)
    tau, direction = (jnp.asarray(x) for x in rng.normal(size=(2, 2 * 5003, 1)))
    programs = {
        (remat, k): jax.jit(jax.value_and_grad(lambda tau: swing(tau, remat, k))).lower(tau).compile()
        for remat, k in (("none", 1), ("steps", 2), ("sqrt", 2), ("sqrt", 5003))
    }
    none, *others = (program(tau)[1] for program in programs.values())
    for other in others:
        assert relative(other, none) < 1e-12
    slope = central(lambda tau: programs["none", 1](tau)[0], tau, direction)
    assert abs((none * direction).sum() - slope) < 1e-7 * abs(slope)
    all_kept, steps, sqrt, few = (p.memory_analysis().temp_size_in_bytes for p in programs.values())
    assert steps < 0.7 * all_kept
    assert max(sqrt, few) < 0.8 * steps


@pytest.mark.parametrize("n", [1, 2, 7, 13, 12, 10_000])
def test_segments(n):
    """Loops in segments are loops, also where the number of steps has no divisor near its root."""
    size = divisor_near(n, n**0.5)
    assert n**0.5 / 2 - 1 <= size <= 2 * n**0.5
    if n < 100:
        step = lambda carry, x: (carry + x, ((carry + x,), {"x": x}))
        xs = jnp.arange(1.0, n + 1)
        whole, cut = (loop(step, jnp.zeros(()), xs, 1, remat) for remat in ("none", "sqrt"))
        jax.tree.map(np.testing.assert_array_equal, whole, cut)


def test_implicit_midpoint_is_differentiated_implicitly(hinges):
    start = jnp.array([0.3, -0.5]), jnp.array([0.2, 0.4])

    def loss(tau):
        q, qd = step(hinges, *start, tau, dt=0.1, integrator="implicit_midpoint")
        return (q**2).sum() + (qd**3).sum()

    both = jax.jit(jax.value_and_grad(loss))
    tau, direction = jnp.array([1.0, -2.0]), jnp.array([0.6, 0.8])
    slope = central(lambda tau: both(tau)[0], tau, direction)
    assert abs((both(tau)[1] * direction).sum() - slope) < 1e-8 * abs(slope)


# ---------------------------------------------------------------------- linearisation
def linearisations(model, q, qd, tau):
    """Return (A, B) of two steps in closed form and by JAX, and the trajectory."""
    trajectory = rollout(model, q, qd, tau, dt=DT)
    twin = lambda *args: semi_implicit_euler(*args)  # another function, of which nothing is known
    found = [linearize_trajectory(model, trajectory, tau, dt=DT, integrator=f) for f in ("semi_implicit_euler", twin)]
    return *found, trajectory


def test_linearisation_with_a_ball_joint():
    """In closed form, by autodiff, and by central differences along `integrate`, into the tangent of the next state."""
    model = random_chain(1, seed=1, joints=("spherical",))
    n, rng = model.nv, np.random.default_rng(6)
    q = jaxdyn.integrate(model, jaxdyn.neutral(model), jnp.asarray(rng.normal(size=n)))
    qd, tau = jnp.asarray(rng.normal(size=n)), jnp.asarray(rng.normal(size=(2, n)))
    model = model.replace(damping=rng.uniform(size=n))
    (A, B), twin, trajectory = linearisations(model, q, qd, tau)
    assert A.shape == (2, 2 * n, 2 * n)
    assert B.shape == (2, 2 * n, n)
    assert relative(A, twin[0]) < 1e-12
    assert relative(B, twin[1]) < 1e-12
    x = np.random.default_rng(0).normal(size=3 * n)
    dq, dqd, dtau = (jnp.asarray(v) for v in np.split(x, 3))
    ends = []
    for eps in (1e-5, -1e-5):
        q = jaxdyn.integrate(model, trajectory.q[1], eps * dq)
        q, qd = step(model, q, trajectory.qd[1] + eps * dqd, tau[1] + eps * dtau, dt=DT)
        ends.append(np.concatenate([jaxdyn.difference(model, trajectory.q[2], q), qd]))
    slope = (ends[0] - ends[1]) / 2e-5
    assert relative(A[1] @ x[: 2 * n] + B[1] @ x[2 * n :], slope) < 1e-8


def test_linearisation_with_passive_forces(chain):
    tau = jnp.ones((2, 2))
    (A, B), twin, _ = linearisations(chain, jnp.array([0.3, -0.5]), jnp.array([0.2, 0.4]), tau)
    assert relative(A, twin[0]) < 1e-12
    assert relative(B, twin[1]) < 1e-12


def test_linearisation_asks_for_matching_inputs(chain):
    states = jnp.zeros((3, 2))
    trajectory = Trajectory(jnp.zeros(3), states, states)
    with pytest.raises(ValueError, match=r"tau must have shape \(2, 2\), one row per step"):
        linearize_trajectory(chain, trajectory, states, dt=DT)
    with pytest.raises(
        ValueError, match=r"trajectory.qd must have shape \(T \+ 1, 2\), one row per state; got \(2, 2\)"
    ):
        linearize_trajectory(chain, trajectory._replace(qd=states[1:]), states[1:], dt=DT)
    with pytest.raises(ValueError, match=r"trajectory.q must have shape .* rows of different lengths"):
        linearize_trajectory(chain, trajectory._replace(q=[[0.0, 0.0], [0.0]]), states[1:], dt=DT)


def test_linearisation_takes_lists(hinges):
    trajectory = rollout(hinges, [0.3, -0.5], [0.2, 0.4], [[1.0, 0.5], [0.0, 0.0]], dt=DT)
    lists = Trajectory(*(x.tolist() for x in trajectory[:3]))
    for a, b in zip(
        linearize_trajectory(hinges, lists, [[1.0, 0.5], [0.0, 0.0]], dt=DT),
        linearize_trajectory(hinges, trajectory, jnp.array([[1.0, 0.5], [0.0, 0.0]]), dt=DT),
        strict=True,
    ):
        assert relative(a, b) < 1e-12
