"""Optimal control by iteration: against Riccati's equation, the conditions of an optimum, and differences of solutions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

import jaxdyn
from jaxdyn.trajopt import Status, batches, configuration, cost, frame_position, ilqr, residual, state, torque, velocity

pendulum = pytest.fixture(scope="module")(lambda: jaxdyn.load("double_pendulum").astype(jnp.float64))
GOAL = jnp.array([1.0, 0.5, 0, 0])


@pytest.fixture(scope="module")
def reach(pendulum):
    """A solver of one small problem, as a function of what it depends on."""

    def solve(x0, us, target, weight, model=pendulum, **options):
        running = 0.01 * (torque(weight=weight) + state(jnp.zeros(4), weight=0.1))
        options = {"dt": 0.05, "tolerance": 1e-16} | options
        return ilqr(model, running, 10 * state(target), x0, us, **options)

    return solve


@pytest.fixture(scope="module")
def solution(reach):
    return reach(jnp.array([0.1, 0.2, 0, 0]), jnp.zeros((15, 2)), GOAL, 1.0)


def test_linear_dynamics_take_one_step():
    """A linear-quadratic problem is solved by the first iteration: the discrete Riccati equation's cost."""
    A, B = jnp.array([[1.0, 0.1], [-0.2, 0.9]]), jnp.array([[0.0], [0.5]])
    dynamics = lambda x, u, p: p[0] @ x + p[1] @ u
    x0 = jnp.array([1.0, -2.0])
    P = scipy.linalg.solve_discrete_are(A, B, np.eye(2), 0.1 * np.eye(1))
    end = lambda x: 0.5 * x @ jnp.asarray(P) @ x
    found = ilqr(dynamics, state(jnp.zeros(2)) + 0.1 * torque(), end, x0, jnp.zeros((20, 1)), params=(A, B))
    assert found.status == Status.CONVERGED
    assert int(found.iterations) <= 2
    np.testing.assert_allclose(found.cost, 0.5 * x0 @ P @ x0, rtol=1e-8)


def test_optimum(reach, solution, pendulum):
    """The gradient by all inputs, through the rollout, vanishes; states are those of the rollout; cost is theirs."""
    assert solution.status == Status.CONVERGED
    x0 = solution.xs[0]

    def total(us):
        run = jaxdyn.rollout(pendulum, x0[:2], x0[2:], us, dt=0.05)
        xs = jnp.concatenate([run.q, run.qd], axis=1)
        running = 0.5 * (us**2).sum() + 0.05 * (xs[:-1] ** 2).sum()
        return 0.01 * running + 5 * ((xs[-1] - GOAL) ** 2).sum(), xs

    gradient, xs = jax.jit(jax.grad(total, has_aux=True))(solution.us)
    start = jax.jit(jax.grad(lambda us: total(us)[0]))(jnp.zeros_like(solution.us))
    assert jnp.abs(gradient).max() < 1e-8 * jnp.abs(start).max()
    np.testing.assert_allclose(xs, solution.xs, atol=1e-12)
    np.testing.assert_allclose(total(solution.us)[0], solution.cost, rtol=1e-12)
    history = np.asarray(solution.history["cost"])[: int(solution.iterations)]
    assert (np.diff(history) <= 1e-12).all()
    assert "converged" in solution.table()
    assert solution.trajectory(pendulum).q.shape == (16, 2)


@pytest.mark.parametrize(
    "options", [{"line_search": "batched"}, pytest.param({"backward": "associative"}, marks=pytest.mark.long)]
)
def test_other_forms_find_the_same(reach, solution, options):
    other = reach(solution.xs[0], jnp.zeros((15, 2)), GOAL, 1.0, **options)
    assert other.status == Status.CONVERGED
    np.testing.assert_allclose(other.us, solution.us, atol=1e-7)
    assert int(other.iterations) == int(solution.iterations)


def swung(method, **options):
    """A pendulum that is asked to be where it cannot stay: residuals are large at the optimum."""
    step = lambda x, u: x + 0.1 * jnp.stack([x[1], u[0] - 3 * jnp.sin(x[0])])
    running = residual(lambda x, u: jnp.stack([jnp.sin(2 * x[0]) - 2, 0.3 * u[0]]))
    options = {"tolerance": 1e-14, "method": method} | options
    return ilqr(step, running, 5 * state(jnp.array([2.0, 1.0])), jnp.array([0.3, 0.0]), jnp.zeros((12, 1)), **options)


def test_newton_steps_double_the_digits():
    """Both methods find one optimum; of Newton's, what is left to gain falls with its square at the end."""
    slow, fast = (swung(method) for method in ("gauss_newton", "newton"))
    assert fast.status == slow.status == Status.CONVERGED
    np.testing.assert_allclose(fast.us, slow.us, atol=1e-6)
    left = lambda found: np.asarray(found.history["expected"])[: int(found.iterations)]
    near = left(fast) < 1e-2
    assert near[:-1].any()
    assert (left(fast)[1:] < left(fast)[:-1] ** 2)[near[:-1]].all()
    assert not (left(slow)[1:] < left(slow)[:-1] ** 2)[left(slow)[:-1] < 1e-2].any()


@pytest.mark.long
def test_newton_steps_with_limits_and_a_robot(reach, solution):
    """On the arm, the same optimum as by Gauss and Newton; limits are kept exactly."""
    other = reach(solution.xs[0], jnp.zeros((15, 2)), GOAL, 1.0, method="newton")
    assert other.status == Status.CONVERGED
    np.testing.assert_allclose(other.us, solution.us, atol=1e-7)
    top = 0.8 * float(swung("newton").us.max())
    one, two = (swung(method, limits=(-9.0, top)) for method in ("gauss_newton", "newton"))
    assert two.status == Status.CONVERGED
    assert 1 <= int((two.us == top).sum()) < two.us.size
    assert float(two.us.max()) == top
    np.testing.assert_allclose(two.us, one.us, atol=1e-6)


def test_starts_with_gaps(reach, solution):
    """From states that no inputs lead to: the gaps close, and the optimum is the same."""
    xs = jnp.linspace(0, 1, 16)[:, None] * GOAL[None]
    other = reach(solution.xs[0], jnp.zeros((15, 2)), GOAL, 1.0, xs=xs)
    assert other.status == Status.CONVERGED
    np.testing.assert_allclose(other.xs, solution.xs, atol=1e-7)
    gaps = np.asarray(other.history["gap"])
    assert gaps[int(other.iterations) - 1] < 1e-12


@pytest.fixture(scope="module")
def bounded(reach):
    return jax.jit(lambda top: reach(jnp.array([0.1, 0.2, 0, 0]), jnp.zeros((15, 2)), GOAL, 1.0, limits=(-9.0, top)))


def test_limits_are_kept_exactly(bounded, solution):
    """An active limit is kept to the last bit, and the rest satisfies the conditions of a bounded optimum."""
    top = 0.8 * float(solution.us.max())
    found = bounded(top)
    assert found.status == Status.CONVERGED
    assert float(found.us.max()) == top
    assert 2 <= int((found.us == top).sum()) < found.us.size
    assert found.cost > solution.cost
    loose = bounded(1e3)
    np.testing.assert_allclose(loose.us, solution.us, atol=1e-7)


def check_gradients(outputs, p):
    """Forward and reverse mode against differences of solutions, extrapolated, along one random direction."""
    rng = np.random.default_rng(0)
    d = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), p)
    along = lambda e: outputs(jax.tree.map(lambda x, y: x + e * y, p, d))
    h = 1e-3
    moved = jax.jit(jax.vmap(along))(h * jnp.array([1.0, -1.0, 0.5, -0.5]))
    one, half = (moved[0] - moved[1]) / (2 * h), (moved[2] - moved[3]) / h
    w = jnp.asarray(rng.normal(size=one.shape))

    @jax.jit
    def both(p):
        pull = jax.vjp(outputs, p)[1]
        return jax.jvp(outputs, (p,), (d,))[1], pull(w)[0]

    forward, reverse = both(p)
    np.testing.assert_allclose(forward, (4 * half - one) / 3, atol=1e-6 * float(jnp.abs(one).max()), rtol=0)
    dot = sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(reverse), jax.tree.leaves(d), strict=True))
    np.testing.assert_allclose(dot, w @ forward, rtol=1e-9)


def everything(found):
    return jnp.concatenate([found.xs.ravel(), found.us.ravel(), found.cost[None]])


@pytest.mark.parametrize("top", [None, 1.2])
def test_gradients_through_the_solution(top):
    """By start, parameters of the dynamics, target, weight and an active limit."""
    step = lambda x, u, p: x + 0.1 * jnp.stack([x[1], u[0] - p[0] * jnp.sin(x[0]) - p[1] * x[1]])

    def outputs(p):
        limits = None if top is None else (-3.0, p["top"])
        running, end = 0.1 * torque(weight=p["weight"]), 10 * state(p["target"])
        options = {"tolerance": 1e-24, "max_iterations": 200, "limits": limits, "params": p["dynamics"]}
        return everything(ilqr(step, running, end, p["x0"], jnp.zeros((12, 1)), **options))

    p = {"x0": [0.1, 0.3], "dynamics": [2.0, 0.3], "target": [1.0, 0.2], "weight": 1.0, "top": top or 0.0}
    p = {name: jnp.asarray(x) for name, x in p.items()}
    if top is not None:
        us = outputs(p)[26:38]
        assert 2 <= int((us == top).sum()) < 12
    check_gradients(outputs, p)
    for name, x in p.items():  # one alone, on which not every condition depends
        alone = jax.grad(lambda x, name=name: outputs(p | {name: x}).sum())
        assert jax.eval_shape(alone, x).shape == x.shape


def test_gradient_by_the_target_alone():
    step = lambda x, u: x + 0.1 * jnp.stack([x[1], u[0] - jnp.sin(x[0])])
    options = {"tolerance": 1e-24, "max_iterations": 200}
    force = lambda goal: ilqr(step, torque(), 10 * state(goal), jnp.zeros(2), jnp.zeros((5, 1)), **options).us.sum()
    goal = jnp.array([1.0, 0.2])
    np.testing.assert_allclose(jax.jit(jax.grad(force))(goal), jax.jit(jax.jacfwd(force))(goal), rtol=1e-9)


@pytest.mark.long
def test_gradients_by_the_robot(reach, pendulum):
    """By start, target, weight and the inertias of the links."""

    def outputs(p):
        model = pendulum.replace(inertia=pendulum.inertia * p["scale"][:, None])
        options = {"tolerance": 1e-24, "max_iterations": 200}
        return everything(reach(p["x0"], jnp.zeros((15, 2)), p["target"], p["weight"], model=model, **options))

    x0 = jnp.array([0.1, 0.2, 0, 0])
    check_gradients(outputs, {"x0": x0, "target": GOAL, "weight": jnp.array(1.0), "scale": jnp.ones(2)})


@pytest.mark.long
def test_gradients_with_active_limits(bounded, solution):
    top = 0.8 * float(solution.us.max())
    slope = jax.jit(jax.jacfwd(lambda t: (lambda s: (s.us, s.cost))(bounded(t))))(top)
    a, b = bounded(top + 1e-4), bounded(top - 1e-4)
    np.testing.assert_allclose(slope[0], (a.us - b.us) / 2e-4, atol=1e-5)
    np.testing.assert_allclose(slope[1], (a.cost - b.cost) / 2e-4, rtol=1e-5)


def test_batches(reach, solution):
    """Problems that are solved at once are solved as one by one, also beside one that fails."""
    x0 = jnp.stack([solution.xs[0], jnp.array([0.3, -0.2, 0.1, 0.0]), jnp.full(4, jnp.nan)])
    found = jax.jit(jax.vmap(lambda x: reach(x, jnp.zeros((15, 2)), GOAL, 1.0)))(x0)
    assert found.status.tolist() == [0, 0, 3]
    np.testing.assert_allclose(found.us[0], solution.us, atol=1e-8)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(found))
    assert "1 of 3" in found.message


def test_costs_that_know_of_what_is_batched():
    """Functions may close over what `jax.vmap` runs through; a second derivative is refused."""
    step = lambda x, u: x + 0.1 * u

    def least(x0, w):
        return ilqr(step, lambda x, u: w * (u @ u), lambda x: x @ x, x0, jnp.zeros((3, 1))).cost

    one = jax.vmap(lambda w: least(jnp.ones(1), w))(jnp.array([1.0, 2.0]))
    two = jax.vmap(jax.jit(least), (0, None))(jnp.ones((2, 1)), jnp.array(2.0))
    np.testing.assert_allclose(one[1], two, rtol=1e-12)

    def by_params(p):
        return ilqr(
            lambda x, u, p: x + p * u, torque(), state(jnp.zeros(1)), jnp.ones(1), jnp.zeros((3, 1)), params=p
        ).cost

    with pytest.raises(NotImplementedError, match="can be differentiated once"):
        jax.hessian(by_params)(0.7)


def test_failures_have_a_status(reach, solution):
    nan = reach(jnp.full(4, jnp.nan), jnp.zeros((15, 2)), GOAL, 1.0)
    assert nan.status == Status.NOT_FINITE
    assert not nan.success
    assert "not finite" in nan.message
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(nan))
    few = reach(solution.xs[0], jnp.zeros((15, 2)), GOAL, 1.0, max_iterations=1)
    assert few.status == Status.MAX_ITERATIONS
    blown = ilqr(lambda x, u: x**3 * 1e9 + u, torque(), state(jnp.zeros(1)), jnp.ones(1) * 9, jnp.zeros((50, 1)))
    assert blown.status == Status.NOT_FINITE
    assert bool(jnp.isfinite(blown.xs).all())


def test_one_step_and_targets_out_of_reach(pendulum):
    """T = 1; and a target that no arm reaches is approached, with the cost of what is left."""
    far = frame_position("tip", jnp.array([9.0, 0, 0]))
    for T in (1, 20):
        found = ilqr(pendulum, 1e-3 * (torque() + velocity()), far, jnp.zeros(4), jnp.zeros((T, 2)), dt=0.05)
        assert found.status in (Status.CONVERGED, Status.MAX_ITERATIONS, Status.STALLED)
        assert bool(jnp.isfinite(found.xs).all())
        assert found.cost > 1


def test_floating_base():
    """A robot in free fall turns its legs: they arrive, quaternions stay of length one, and `rollout` says the same."""
    model = jaxdyn.load("quadruped").astype(jnp.float64)
    q = jaxdyn.neutral(model)
    goal = q.at[7:].add(0.3)
    weight = jnp.concatenate([jnp.zeros(6), jnp.ones(12)])
    found = ilqr(
        model, 1e-4 * torque(), 100 * configuration(goal, weight=weight) + velocity(weight=weight),
        jnp.concatenate([q, jnp.zeros(18)]), jnp.zeros((10, 12)), dt=0.02,
    )  # fmt: skip
    assert found.status == Status.CONVERGED
    np.testing.assert_allclose(jnp.linalg.norm(found.xs[:, :4], axis=1), 1, atol=1e-12)
    assert jnp.abs(found.xs[-1, 7:19] - goal[7:]).max() < 0.05
    tau = jnp.concatenate([jnp.zeros((10, 6)), found.us], axis=1)
    run = jaxdyn.rollout(model, q, jnp.zeros(18), tau, dt=0.02)
    np.testing.assert_allclose(jnp.concatenate([run.q, run.qd], axis=1), found.xs, atol=1e-10)


def test_functions_of_ones_own():
    """Plain functions as dynamics and costs, and the same as a residual: one optimum, by scipy too."""
    step = lambda x, u: x + 0.1 * jnp.stack([x[1], u[0] - jnp.sin(x[0])])
    x0 = jnp.array([1.0, 0.0])
    end = lambda x: 5 * (x**2).sum()
    running = lambda x, u: 0.05 * (u**2).sum()
    one = ilqr(step, running, end, x0, jnp.zeros((10, 1)), tolerance=1e-14)
    two = ilqr(
        step, residual(lambda x, u: 0.1**0.5 * u), 10 * state(jnp.zeros(2)), x0, jnp.zeros((10, 1)), tolerance=1e-14
    )
    three = ilqr(step, cost(running), end, x0, jnp.zeros((10, 1)), tolerance=1e-14)

    def total(us):
        x, value = x0, 0.0
        for u in us:
            value, x = value + running(x, u[None]), step(x, u[None])
        return value + end(x)

    best = scipy.optimize.minimize(jax.jit(jax.value_and_grad(total)), np.zeros(10), jac=True, tol=1e-12)
    for found in (one, two, three):
        np.testing.assert_allclose(found.cost, best.fun, rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"us": jnp.zeros((5, 3))}, r"us must have shape \(T, 2\)"),
        ({"x0": jnp.zeros(3)}, r"x0 must have shape \(4,\)"),
        ({"dt": None}, "dt must be given"),
        ({"limits": (1.0, -1.0)}, "lower must not be above upper"),
        ({"limits": "force"}, "limits must be"),
        ({"xs": jnp.zeros((5, 4))}, r"xs must have shape \(6, 4\)"),
        ({"backward": "fast"}, "backward must be"),
        ({"method": "fast"}, 'method must be "gauss_newton" or "newton"'),
        ({"backward": "associative", "limits": (-1.0, 1.0)}, "knows no limits"),
        ({"driven": ["elbow"]}, "elbow"),
        ({"max_iterations": 0}, "max_iterations must be a positive integer"),
        ({"us": jnp.zeros((0, 2))}, "one row or more"),
    ],
)
def test_bad_arguments_are_named(pendulum, change, words):
    given = {"x0": jnp.zeros(4), "us": jnp.zeros((5, 2)), "dt": 0.1} | change
    with pytest.raises(ValueError, match=words):
        ilqr(pendulum, torque(), state(jnp.zeros(4)), given.pop("x0"), given.pop("us"), **given)


def test_wrong_kinds_are_named(pendulum):
    with pytest.raises(TypeError, match="running_cost"):
        ilqr(pendulum, 3.0, None, jnp.zeros(4), jnp.zeros((5, 2)), dt=0.1)
    with pytest.raises(TypeError, match="model must be"):
        ilqr(3.0, None, None, jnp.zeros(4), jnp.zeros((5, 2)))


def test_progress_is_printed(capfd):
    step = lambda x, u: x + u
    jax.block_until_ready(ilqr(step, torque(), state(jnp.ones(1)), jnp.zeros(1), jnp.zeros((3, 1)), verbose=True))
    jax.effects_barrier()
    out = capfd.readouterr().out
    assert "expected" in out
    assert len(out.splitlines()) >= 2


def test_batches_are_solved_in_groups(monkeypatch):
    """A batch that is cut into groups, the last one not full, has the solutions of its members."""
    step = lambda x, u: x + 0.1 * jnp.stack([x[1], u[0] - jnp.sin(x[0])])

    def solve(x0):
        return ilqr(step, torque(weight=1e-2), 10 * state(jnp.zeros(2)), x0, jnp.zeros((8, 1)))

    x0 = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (7, 2)))
    monkeypatch.setattr(batches, "GROUP", 1)
    monkeypatch.setattr(batches, "SMALLEST", 3)
    found = jax.vmap(solve)(x0)
    assert found.status.tolist() == [0] * 7
    for i in (0, 3, 6):
        alone = solve(x0[i])
        np.testing.assert_allclose(found.us[i], alone.us, atol=1e-9)
        assert found.iterations[i] == alone.iterations
