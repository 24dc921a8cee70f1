r"""Differential dynamic programming: motions that are best, by Newton steps in time proportional to their length.

Every iteration replaces dynamics and costs by their expansions along the present motion (Gauss-Newton: second
derivatives of residuals and dynamics are left out; or Newton, with all of them), solves that problem by a backward
pass, and rolls its feedback out with the true dynamics. A start may have gaps between its states,
:math:`f_i = f(x_i, u_i) \ominus x_{i+1}`; a step of length a closes them by that fraction (Mastalli et al. 2020), and
what counts is :math:`J + \nu \sum |f_i|`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._compiling import jit
from jaxdyn.model import Model
from jaxdyn.simulate.integrators import Integrator
from jaxdyn.trajopt import backward
from jaxdyn.trajopt.backward import Policy, Quadratic
from jaxdyn.trajopt.batches import in_groups
from jaxdyn.trajopt.costs import Cost, cost_of
from jaxdyn.trajopt.optimum import costates, differentiable, hessians
from jaxdyn.trajopt.plant import Dynamics, Plant, plant_of
from jaxdyn.trajopt.results import Solution, Status, finite_or_zero, report

COLUMNS = ("cost", "expected", "gap", "step", "regularization")
ENOUGH = 0.1
"""Fraction of the expected decrease that a step must bring."""
HEAVIEST = 1e9
"""Regularisation at which a solver gives up."""
LIGHTEST = 1e-9
FACTOR = 10.0


class Problem(NamedTuple):
    """What a solution depends on; all of it can be differentiated."""

    plant: Plant
    running: Cost
    terminal: Cost
    x0: jax.Array
    lower: jax.Array | None
    """(T, nu) bounds of the inputs."""
    upper: jax.Array | None


class Options(NamedTuple):
    """What of a solver is known when it is compiled."""

    max_iterations: int
    method: str
    backward: str
    step_lengths: int
    batched: bool
    gaps: bool
    verbose: bool


class Found(NamedTuple):
    """What a solver finds, before it is made a `Solution`."""

    xs: jax.Array
    us: jax.Array
    cost: jax.Array
    rest: dict[str, Any]


class _State(NamedTuple):
    """What goes from iteration to iteration."""

    xs: jax.Array
    us: jax.Array
    f: jax.Array
    """(T, n) gaps."""
    cost: jax.Array
    policy: Policy
    regularization: jax.Array
    length: jax.Array
    """Of the step to try next, in halvings: 0 is a full step, and as many as there are step lengths is none at all."""
    penalty: jax.Array
    """nu, of the gaps."""
    status: jax.Array
    """-1 while it goes on."""
    iterations: jax.Array
    tries: jax.Array
    history: jax.Array
    """(max_iterations, columns)."""


def ilqr(
    model: Model | Dynamics,
    running_cost: Cost | Any,
    terminal_cost: Cost | Any,
    x0: Any,
    us: Any,
    *,
    dt: Any = None,
    xs: Any = None,
    limits: Any = None,
    driven: Any = None,
    integrator: str | Integrator = "semi_implicit_euler",
    params: Any = None,
    max_iterations: int = 100,
    tolerance: float | None = None,
    regularization: float = LIGHTEST,
    method: Literal["gauss_newton", "newton"] = "gauss_newton",
    backward: Literal["scan", "associative"] = "scan",
    line_search: Literal["serial", "batched"] = "serial",
    step_lengths: int = 10,
    verbose: bool = False,
) -> Solution:
    r"""Find the inputs of least cost.

    .. math:: \min_{u} \sum_{i=0}^{T-1} l(x_i, u_i) + l_T(x_T), \qquad x_{i+1} = f(x_i, u_i), \quad
        lower \le u_i \le upper

    Works under `jax.jit` and `jax.vmap`: a batch of starts, costs or models is solved at once. Solutions can be
    differentiated, forward and reverse, with respect to the model, x0, weights, targets and parameters of costs,
    `params` and limits: by the conditions that an optimum satisfies (implicit function theorem, with exact second
    derivatives), not through the iterations. That is as exact as the solution: ask for a small tolerance. Starts `us`
    and `xs` have no influence on an optimum, and derivative zero; so have `extras`. Second derivatives are refused.

    Of many small loops, XLA's older code generator makes code that is as fast in little more than half the time.
    Outside of jit it is taken; in a program of your own, say
    `jax.jit(f, compiler_options=jaxdyn.trajopt.SMALL_LOOPS)`.

    Args:
        model: a model, whose state is x = (q, qd) and whose passive forces are included; or a function
            (x, u) -> x after a step, with `params` (x, u, params) -> x.
        running_cost: a `Cost`, such as `dt * (torque() + state(x))`, or a function (x, u) -> number; None for none.
            Steps have no weight dt by themselves.
        terminal_cost: a `Cost`, or a function (x) -> number; None for none.
        x0: initial state, (nx,).
        us: inputs to begin with, (T, nu); T may be 1.
        dt: time step, s; needed with a model.
        xs: states to begin with, (T + 1, nx), if they are not those that us lead to; the first one is replaced by x0.
        limits: (lower, upper), numbers or (nu,), or "effort" for plus and minus the model's `effort_limit`. They are
            kept exactly. None for none.
        driven: names of the joints on which inputs act, in this order; by default all but free ones.
        integrator: as in `jaxdyn.rollout`. Semi-implicit Euler is linearised in closed form, others with forward mode.
        params: parameters of a function, any pytree.
        max_iterations: the most to take.
        tolerance: an expected decrease of the cost, as a fraction of 1 + |cost|, at which it has converged. By default
            1e-9 in float64 and 1e-5 in float32.
        regularization: added to the Hessian by the inputs, as little as is ever taken; it grows where steps fail.
        method: "gauss_newton" leaves out the second derivatives of residuals and dynamics: iterations are quick, and
            there are few where residuals are small at the optimum. "newton" has all of them (differential dynamic
            programming): the last iterations double the digits whatever the residuals, each at several times the cost.
        backward: the backward pass, as a "scan" or as an "associative" one, in logarithmic depth, for devices with
            many cores. Same results; the latter without limits, and with running costs that are positive in u.
        line_search: try step lengths one after the other ("serial", the first is usually good) or roll all out at once
            ("batched").
        step_lengths: how many halvings of a step to try.
        verbose: print a table of progress, also from inside of jit.

    Returns:
        The solution. `status` says whether it is one, `history` has cost, expected decrease, sum of gaps, step length
        and regularisation by iteration, `extras` the feedback "K" (T, nu, ndx) around it, u = us + K (x - xs).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.trajopt import ilqr, state, torque
        >>> model = jaxdyn.load("pendulum")
        >>> up = jnp.array([jnp.pi, 0.0])
        >>> solution = ilqr(
        ...     model, 1e-3 * torque(), 100 * state(up), jnp.zeros(2), jnp.zeros((60, 1)), dt=0.05, limits=(-3.0, 3.0)
        ... )
        >>> solution.message, bool(jnp.abs(solution.us).max() <= 3.0)
        ('converged', True)
    """
    plant = plant_of(model, x0, us, dt=dt, integrator=integrator, driven=driven, params=params)
    running, terminal = (cost_of(f"{n}_cost", c, terminal=n == "terminal") for n, c in
                         (("running", running_cost), ("terminal", terminal_cost)))  # fmt: skip
    steps = np.shape(us)[0]
    _check(plant, running, terminal, steps, xs, limits, max_iterations, step_lengths, method, backward, line_search)
    options = Options(
        int(max_iterations), method, backward, int(step_lengths), line_search == "batched", xs is not None, verbose
    )
    return _ilqr(
        plant, running, terminal, x0, us, xs, _bounds(plant, limits, steps), tolerance, regularization, options
    )


@partial(jit, static_argnames="options")
def _ilqr(
    plant: Plant, running: Cost, terminal: Cost, x0: Any, us: Any, xs: Any, bounds: Any, tolerance: Any,
    regularization: Any, options: Options,
) -> Solution:  # fmt: skip
    leaves = [jnp.asarray(x) for x in jax.tree.leaves((plant, x0, us))]
    dtype = jnp.result_type(*[x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)], jnp.float32)
    x0, us, xs, bounds = jax.tree.map(lambda x: jnp.asarray(x).astype(dtype), (x0, us, xs, bounds))
    x0 = plant.integrate(x0, jnp.zeros(plant.ndx, dtype))  # quaternions of length one
    lower, upper = (None, None) if bounds is None else bounds
    tolerance = (1e-9 if dtype == jnp.float64 else 1e-5) if tolerance is None else tolerance
    settings = jnp.asarray(tolerance, dtype), jnp.asarray(regularization, dtype)
    found = _optimum(options, Problem(plant, running, terminal, x0, lower, upper), us, xs, settings)
    rest = dict(found.rest)
    times = plant.dt * jnp.arange(us.shape[0] + 1).astype(dtype)
    status, iterations, history = (rest.pop(name) for name in ("status", "iterations", "history"))
    columns = dict(zip(COLUMNS, history.T, strict=True))
    return Solution(found.xs, found.us, found.cost, status, iterations, columns, times, rest)


# ---------------------------------------------------------------------- the loop
def _solve(options: Options, problem: Problem, us: jax.Array, xs: jax.Array | None, settings: Any) -> Found:
    """Return the solution by iteration; of a batch of problems, of a few at a time."""
    T, size = us.shape[0], problem.plant.ndx + us.shape[1]
    kept = 4 * T * size**2 * us.dtype.itemsize  # Hessians, slopes, and what is made of them
    return in_groups(partial(_iterated, options), kept)(problem, us, xs, settings)


def _iterated(options: Options, problem: Problem, us: jax.Array, xs: jax.Array | None, settings: Any) -> Found:
    """Return the solution of one problem."""
    start = _start(options, problem, us, xs, settings[1])
    body = partial(_iteration, options, problem, settings)
    last = jax.lax.while_loop(lambda s: s.status < 0, body, start)
    ok = last.status != Status.NOT_FINITE
    rest = {"status": last.status, "iterations": last.iterations, "history": last.history, "K": last.policy.K}
    found = Found(last.xs, last.us, last.cost, finite_or_zero(rest))
    return jax.tree.map(lambda x, z: jnp.where(ok, x, z), found, finite_or_zero(found))


def _start(options: Options, problem: Problem, us: jax.Array, xs: jax.Array | None, regularization: Any) -> _State:
    """Return a state of which the first iteration makes the motion to begin with: there is no feedback yet."""
    (T, m), n, dtype = us.shape, problem.plant.ndx, us.dtype
    zero = lambda *shape: jnp.zeros(shape, dtype)
    rows = jnp.tile(problem.x0[None], (T + 1, 1)) if xs is None else xs.at[0].set(problem.x0)
    nothing = Policy(zero(T, m), zero(T, m, n), zero())
    count = jnp.array(0)
    us = us if problem.lower is None else jnp.clip(us, problem.lower, problem.upper)
    return _State(
        rows, us, zero(T, n), zero() + jnp.inf, nothing,
        regularization, count, zero(), count - 1, count, count, zero(options.max_iterations, len(COLUMNS)),
    )  # fmt: skip


def _iteration(options: Options, problem: Problem, settings: Any, s: _State) -> _State:
    """Try a step, and if it is good, find the next one from the expansion of the problem at its end.

    If steps of all lengths have failed, that of length zero expands the problem once more where it was, for a direction
    under a heavier regularisation: expansions are large, and none is kept from one iteration to the next.
    """
    tolerance, lightest = settings
    first, again, gap = s.tries == 0, s.length >= options.step_lengths, _gap(s.f)
    halvings = jnp.arange(options.step_lengths) if options.batched else s.length[None]
    lengths = jnp.where(again, 0, 0.5 ** halvings.astype(s.us.dtype))
    merit, expected = s.cost + s.penalty * gap, -s.policy.change + s.penalty * gap
    slack = 10 * jnp.finfo(s.us.dtype).eps * jnp.abs(s.cost)
    good = lambda cost, gap, length: (
        jnp.isfinite(cost) & (first | (cost + s.penalty * gap <= merit - ENOUGH * length * expected + slack))
    )
    if options.batched:
        trials = jax.vmap(lambda a: _rollout(options, problem, s, a))(lengths)
        costs = jax.vmap(lambda xs, us, _: _total(problem, xs, us))(*trials)
        goods = good(costs, (1 - lengths) * gap, lengths)
        best = jnp.argmax(goods)
        length, (xs, us, after) = lengths[best], jax.tree.map(lambda x: x[best], trials)
    else:
        length = lengths[0]
        xs, us, after = _rollout(options, problem, s, length)
    cost, lq, exact = _expansion(options, problem, xs, us, after)
    accepted = good(cost, _gap(lq.f), length) & jnp.isfinite(lq.H).all() & jnp.isfinite(lq.F).all() | again
    hard, easy = accepted & (length < 0.2), accepted & (length >= 0.5)
    weight = jnp.where(hard, _heavier(s.regularization), s.regularization)
    weight = jnp.where(easy, jnp.maximum(weight / FACTOR, lightest), weight)
    policy, weight = jax.lax.cond(
        accepted, lambda: _directions(options, problem, us, lq, exact, weight, accepted), lambda: (s.policy, weight)
    )  # a trial that fails needs no other direction, only a shorter step
    choose = lambda new, old: jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, old)
    xs, us, f, cost = choose((xs, us, lq.f, cost), (s.xs, s.us, s.f, s.cost))

    gap = _gap(f)
    needed = jnp.where(gap > 0, 2 * policy.change / jnp.where(gap > 0, gap, 1), 0)
    penalty = jnp.maximum(s.penalty, needed) if options.gaps else s.penalty

    counts = accepted & ~first
    iterations = s.iterations + counts
    row = jnp.stack([cost, -policy.change, gap, length, weight])
    history = s.history.at[jnp.maximum(iterations - 1, 0)].set(
        jnp.where(counts, row, s.history[jnp.maximum(iterations - 1, 0)])
    )
    closed = gap <= jnp.sqrt(jnp.finfo(us.dtype).eps) * (1 + jnp.abs(xs).max()) if options.gaps else True
    small = -policy.change <= tolerance * (1 + jnp.abs(cost))
    done = accepted & ~again & small & closed & (weight <= jnp.maximum(lightest, 1e-3))
    status = jnp.where(iterations >= options.max_iterations, Status.MAX_ITERATIONS, s.status)
    status = jnp.where(weight > HEAVIEST, jnp.where(small & closed, Status.CONVERGED, Status.STALLED), status)
    status = jnp.where(done, Status.CONVERGED, status)
    status = jnp.where(first & ~accepted, Status.NOT_FINITE, status).astype(s.status.dtype)
    report(options.verbose, COLUMNS, iterations - 1, row, counts)
    shorter = jnp.full_like(s.length, options.step_lengths) if options.batched else s.length + 1
    halving = jnp.where(accepted, 0, shorter)
    return _State(xs, us, f, cost, policy, weight, halving, penalty, status, iterations, s.tries + 1, history)


def _rollout(options: Options, problem: Problem, s: _State, length: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the states and inputs of a step of some length, and where the dynamics lead from each of them."""
    plant, bounded = problem.plant, problem.lower is not None
    keep = s.tries == 0

    def step(x: jax.Array, row: Any) -> Any:
        x_was, u_was, k, K, gap, next_was, bounds = row
        u = u_was + length * k + K @ plant.difference(x_was, x)
        u = jnp.clip(u, *bounds) if bounded else u
        after = plant.step(x, u)
        new = after
        if options.gaps:
            new = jnp.where(keep, next_was, plant.integrate(after, (length - 1) * gap))
        return new, (x, u, after)

    bounds = (problem.lower, problem.upper) if bounded else None
    rows = s.xs[:-1], s.us, s.policy.k, s.policy.K, s.f, s.xs[1:], bounds
    end, (xs, us, after) = jax.lax.scan(step, problem.x0, rows)
    return jnp.concatenate([xs, end[None]]), us, after


def _total(problem: Problem, xs: jax.Array, us: jax.Array) -> jax.Array:
    """Return the cost of a motion."""
    value, steps = partial(problem.running.value, problem.plant), jnp.arange(us.shape[0])
    end = problem.terminal.value(problem.plant, xs[-1], jnp.zeros_like(us[0]), us.shape[0])
    return jax.vmap(value)(xs[:-1], us, steps).sum() + end


def _expansion(options: Options, problem: Problem, xs: Any, us: Any, after: Any) -> tuple[jax.Array, Quadratic, Any]:
    """Return the cost of a motion, the linear-quadratic problem around it, and for Newton steps its exact Hessians."""
    plant, T, n = problem.plant, us.shape[0], problem.plant.ndx
    known = jax.vmap(plant.first_order)(xs, jnp.concatenate([after, xs[-1:]]))
    early, late = (jax.tree.map(lambda x: x[part], known) for part in (slice(T), T))
    values, h, H = jax.vmap(partial(problem.running.expansion, plant))(xs[:-1], us, jnp.arange(T), early)
    F = jax.vmap(plant.linearize)(xs[:-1], us, after, early)
    f = jax.vmap(plant.difference)(xs[1:], after) if options.gaps else jnp.zeros((T, n), xs.dtype)
    end, h_end, H_end = problem.terminal.expansion(plant, xs[-1], jnp.zeros_like(us[0]), T, late)
    h_end, H_end = h_end[:n], H_end[:n, :n]
    exact = None
    if options.method == "newton":
        smooth = problem._replace(plant=plant.differentiable)
        exact = hessians(smooth, us, costates(F, h[:, :n], h_end), xs, after)
    return values.sum() + end, Quadratic(F, f, h, H, h_end, H_end), exact


def _directions(
    options: Options, problem: Problem, us: Any, lq: Quadratic, exact: Any, weight: Any, wanted: Any
) -> tuple[Policy, jax.Array]:
    """Return the step to take, and the regularisation under which there is one.

    Newton's, if there is a least cost to go with that regularisation; far from an optimum there may be none, and the
    step is that of Gauss and Newton. If it is not wanted (in a batch it is worked out all the same), any will do.
    """

    def of(weight: jax.Array, lq: Quadratic = lq) -> Policy:
        if problem.lower is not None:
            assert problem.upper is not None
            return backward.within_bounds(lq, weight, problem.lower - us, problem.upper - us)
        return (backward.by_associative_scan if options.backward == "associative" else backward.by_scan)(lq, weight)

    finite = lambda policy: jnp.isfinite(policy.change) & jnp.isfinite(policy.K).all()
    failed = lambda policy, weight: wanted & ~finite(policy) & (weight <= HEAVIEST)
    if exact is not None:
        newton = lq._replace(H=exact[0], H_end=exact[1])
        lq = jax.tree.map(lambda a, b: jnp.where(finite(of(weight, newton)), a, b), newton, lq)
        of = partial(of, lq=lq)
    policy, weight = _again(failed, of, weight)
    return finite_or_zero(policy), weight


def _again(failed: Any, of: Any, weight: jax.Array) -> Any:
    """Return of(weight) and the weight, raised until it does not fail; the function is compiled once."""
    none = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), jax.eval_shape(of, weight))

    def body(state: Any) -> Any:
        _, weight, tries = state
        weight = jnp.where(tries == 0, weight, _heavier(weight))
        return of(weight), weight, tries + 1

    going = lambda state: (state[2] == 0) | failed(*state[:2])
    policy, weight, _ = jax.lax.while_loop(going, body, (none, weight, jnp.array(0)))
    return policy, weight


def _heavier(weight: jax.Array) -> jax.Array:
    return jnp.maximum(weight, 1e-7) * FACTOR


def _gap(f: jax.Array) -> jax.Array:
    return jnp.abs(f).sum()


_optimum = differentiable(_solve)


# ---------------------------------------------------------------------- arguments
def _bounds(plant: Plant, limits: Any, steps: int) -> tuple[jax.Array, jax.Array] | None:
    """Return the bounds of the inputs at every step, (T, nu)."""
    if limits is None:
        return None
    if isinstance(limits, str):
        effort = plant.model.effort_limit[np.array(plant.driven, int)]
        limits = (-effort, effort)
    shape = (steps, plant.nu)
    lower, upper = (jnp.broadcast_to(jnp.asarray(x), shape) for x in limits)
    return lower, upper


def _check(
    plant: Plant, running: Cost, terminal: Cost, steps: int, xs: Any, limits: Any, max_iterations: Any,
    step_lengths: Any, method: Any, backward: Any, line_search: Any,
) -> None:  # fmt: skip
    """Raise an error that names the argument, what came and what was wanted."""
    if steps < 1:
        raise ValueError("us must have one row or more: one per step")
    running.check(plant, terminal=False, steps=steps)
    terminal.check(plant, terminal=True, steps=steps)
    if xs is not None and np.shape(xs) != (steps + 1, plant.nx):
        raise ValueError(f"xs must have shape ({steps + 1}, {plant.nx}), one row more than us; got {np.shape(xs)}")
    for name, value in (("max_iterations", max_iterations), ("step_lengths", step_lengths)):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a positive integer; got {value!r}")
    if method not in ("gauss_newton", "newton"):
        raise ValueError(f'method must be "gauss_newton" or "newton"; got {method!r}')
    if backward not in ("scan", "associative"):
        raise ValueError(f'backward must be "scan" or "associative"; got {backward!r}')
    if line_search not in ("serial", "batched"):
        raise ValueError(f'line_search must be "serial" or "batched"; got {line_search!r}')
    if limits is None:
        return
    if backward == "associative":
        raise ValueError('backward="associative" knows no limits, which couple the steps in time: use "scan"')
    wanted = f'limits must be (lower, upper), each a number or of shape ({plant.nu},), "effort" or None'
    if isinstance(limits, str):
        if limits != "effort":
            raise ValueError(f"{wanted}; got {limits!r}")
        return
    if not isinstance(limits, (tuple, list)) or len(limits) != 2:
        raise ValueError(f"{wanted}; got {limits!r}")
    shapes = [np.shape(x) for x in limits]
    if any(shape not in ((), (plant.nu,)) for shape in shapes):
        raise ValueError(f"{wanted}; got shapes {shapes}")
    if not any(isinstance(x, jax.core.Tracer) for x in limits) and np.any(
        np.asarray(limits[0]) > np.asarray(limits[1])
    ):
        raise ValueError(f"limits: lower must not be above upper; got {limits}")
