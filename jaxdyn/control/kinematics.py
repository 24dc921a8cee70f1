r"""Inverse kinematics: configurations in which frames are where they are wanted, within the joints' limits.

Levenberg and Marquardt's method on the manifold of configurations,

.. math:: (J^T J + \mu |r|^2)\, \delta q = -J^T r, \qquad q' = q \oplus \delta q

Damping in proportion to the squared error keeps steps short where the error is large or the pose singular, and
vanishes fast enough for quadratic convergence even there (Yamashita, Fukushima 2001; Sugihara 2011). Joints at a limit
that the step would leave are taken out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve

from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.control.goals import Goal, residual, slope, weights
from jaxdyn.control.status import Status
from jaxdyn.joints import Joint
from jaxdyn.model import Model, integrate, neutral

Goals = tuple[Goal, ...]


class Solution(NamedTuple):
    """What inverse kinematics found."""

    q: jax.Array
    """(nq,) the configuration; differentiable by the goals' numbers and the model's."""
    status: jax.Array
    """A `Status`: SOLVED, NEAREST, ITERATIONS or NOT_FINITE."""
    error: jax.Array
    """The largest component of what the goals are missed by, m or rad; postures do not count."""
    iterations: jax.Array
    """Number of steps tried."""
    history: dict[str, jax.Array] = {}
    """If asked for: error, cost and damping of every step of the start that did best, (iterations,) each, and zeros."""

    @property
    def solved(self) -> jax.Array:
        """Whether the goals are reached."""
        return self.status == Status.SOLVED


def inverse_kinematics(
    model: Model,
    goals: Goal | Sequence[Goal],
    q: Any,
    *,
    tolerance: Any = None,
    iterations: int = 100,
    limits: bool = True,
    history: bool = False,
    verbose: bool = False,
) -> Solution:
    """Find a configuration in which frames are where they are wanted.

    If goals are out of reach, or contradict each other, the weighted sum of squares of what they are missed by is made
    as small as it gets nearby, and the status says NEAREST. Use `jax.vmap` for many targets; several starts can be
    given at once.

    The solution is differentiable with respect to the goals' targets and the model, in forward and reverse mode: by the
    equation that it solves, not through the iterations. Where it is one of many (a redundant arm), the derivative is
    that of the nearest one; joints at their limits stay there.

    Args:
        model: the model.
        goals: one or several of `position_goal`, `pose_goal`, `orientation_goal`, `axis_goal`, `posture_goal`.
        q: where to start, (nq,); or several starts, (starts, nq), all of which are tried until one is solved.
        tolerance: largest component of the error that is taken for zero, m or rad; 1e-8 if not given (1e-5 in
            float32).
        iterations: largest number of steps.
        limits: keep to the model's `lower` and `upper`, as far as joints have plain coordinates.
        history: return the course of the search too.
        verbose: print it as a table, also from inside of `jit`.

    Returns:
        The solution, of the start that did best.

    Example:
        >>> import jax, jax.numpy as jnp, jaxdyn
        >>> from jaxdyn import control
        >>> model = jaxdyn.load("arm7")
        >>> target = jaxdyn.frame_pose(model, jnp.full(7, 0.4), "tool")
        >>> found = control.inverse_kinematics(model, control.pose_goal("tool", target), jnp.zeros(7))
        >>> control.Status(int(found.status)).name
        'SOLVED'
        >>> reach = lambda p: control.inverse_kinematics(model, control.position_goal("tool", p), found.q)
        >>> jax.vmap(reach)(target.position + jnp.zeros((5, 3))).q.shape
        (5, 7)
        >>> jax.jacobian(lambda p: reach(p).q)(target.position).shape
        (7, 3)
    """
    arguments.require_model(model)
    model.require_single(concrete=False)
    chosen = _goals(model, goals)
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 0:
        raise ValueError(f"iterations must be a non-negative integer; got {iterations!r}")
    starts = jnp.asarray(q)
    starts = starts if jnp.issubdtype(starts.dtype, jnp.floating) else starts.astype(model.dtype)
    if starts.ndim not in (1, 2) or starts.shape[-1] != model.nq or not starts.size:
        raise ValueError(f"q must have shape ({model.nq},), or (starts, {model.nq}); got {starts.shape}")
    if tolerance is None:
        tolerance = 1e-8 if starts.dtype == np.float64 else 1e-5
    elif not isinstance(tolerance, jax.core.Tracer) and not (np.ndim(tolerance) == 0 and tolerance > 0):
        raise ValueError(f"tolerance must be a positive number; got {tolerance!r}")
    options = _Options(iterations, bool(limits), bool(history), bool(verbose))
    return _solved(model, chosen, starts.reshape((-1, model.nq)), tolerance, options)


# ---------------------------------------------------------------------- the search
class _Search(NamedTuple):
    """Where a search stands."""

    q: jax.Array
    """The best configuration so far."""
    r: jax.Array
    """Its weighted residual."""
    J: jax.Array
    """The residual's slope."""
    cost: jax.Array
    """The residual squared; infinite at the beginning."""
    error: jax.Array
    trial: jax.Array
    """The configuration to be looked at next."""
    mu: jax.Array
    """Damping, in units of the cost."""
    predicted: jax.Array
    """By how much the trial should lower the cost."""
    running: jax.Array
    stalled: jax.Array
    """Whether the cost has hardly changed since the last mark."""
    mark: jax.Array
    """The cost some steps ago."""
    steps: jax.Array
    course: jax.Array
    """(iterations, 3) error, cost and damping of every step, or none of them."""


class _Options(NamedTuple):
    iterations: int
    limits: bool
    history: bool
    verbose: bool

    @property
    def rows(self) -> int:
        """Of how many steps the course is kept."""
        return self.iterations if self.history or self.verbose else 0


HISTORY = ("error", "cost", "damping")


def _table(steps: Any, course: Any) -> None:
    """Print the course of a search."""
    print(f"{'step':>4}" + "".join(f"{name:>12}" for name in HISTORY))
    for k, row in enumerate(np.asarray(course)[: int(steps)]):
        print(f"{k:4d}" + "".join(f"{x:12.3e}" for x in row))


@partial(jit, static_argnames="options")
def _solved(model: Model, goals: Goals, starts: Any, tolerance: Any, options: _Options) -> Solution:
    still = jax.lax.stop_gradient
    found = _best(model, goals, starts, tolerance, options)(still(model), still(goals), still(starts), still(tolerance))
    free = ~_held(model, options.limits, found.q, found.J.T @ found.r)
    q = _root(model, goals, found.q, free)
    sound = jnp.isfinite(found.error)
    status = jnp.where(found.running, Status.ITERATIONS, Status.NEAREST)
    status = jnp.where(found.error <= tolerance, Status.SOLVED, jnp.where(sound, status, Status.NOT_FINITE))
    if options.verbose:
        jax.debug.callback(_table, found.steps, found.course)
    history = dict(zip(HISTORY, found.course.T, strict=True)) if options.history else {}
    return Solution(q, status, found.error, found.steps, history)


def _begin(model: Model, goals: Goals, start: jax.Array, options: _Options) -> _Search:
    """Return a search that has not looked at anything yet."""
    start = jnp.where(jnp.isfinite(start).all(), start, neutral(model).astype(start.dtype))
    q = _within(model, options.limits, integrate(model, start, jnp.zeros(model.nv, start.dtype)))
    r, J, _ = jax.eval_shape(partial(_linearized, model, goals), q)
    unknown = jnp.full((), jnp.inf, q.dtype)
    return _Search(
        q=q,
        r=jnp.zeros(r.shape, r.dtype),
        J=jnp.zeros(J.shape, J.dtype),
        cost=unknown,
        error=unknown,
        trial=q,
        mu=jnp.full((), 4.0, q.dtype),
        predicted=jnp.ones((), q.dtype),
        running=jnp.array(True),
        stalled=jnp.array(False),
        mark=unknown,
        steps=jnp.zeros((), jnp.int32),
        course=jnp.zeros((options.rows, len(HISTORY)), q.dtype),
    )


def _step(model: Model, goals: Goals, at: _Search, tolerance: Any, options: _Options) -> _Search:
    """Look at the trial, take it if it is better, and find the next one."""
    eps = jnp.finfo(at.q.dtype).eps
    r, J, error = _linearized(model, goals, at.trial)
    gain = at.cost - r @ r
    kept = gain / jnp.maximum(at.predicted, jnp.finfo(eps.dtype).tiny)  # of what was promised
    there = at._replace(q=at.trial, r=r, J=J, cost=r @ r, error=error)
    mu = at.mu * jnp.where(kept > 0.75, 1 / 4, jnp.where(kept > 0.25, 1, 4))
    flat = jnp.abs(gain) < eps**0.9 * at.cost
    at = _choose(gain > 0, there, at)._replace(mu=mu)
    gradient = at.J.T @ at.r
    free = ~_held(model, options.limits, at.q, gradient)
    J, gradient = jnp.where(free, at.J, 0), jnp.where(free, gradient, 0)
    damping = mu * jnp.where(jnp.isfinite(at.cost), at.cost, 1) + jnp.finfo(eps.dtype).tiny ** 0.25
    dq = -_solve(J.T @ J + jnp.diag(jnp.where(free, damping, 1)), gradient)
    dq = dq / jnp.maximum(jnp.abs(dq).max(initial=0.0), 1)
    # Where no joint helps at first order, as from a straight arm to a point along it, the search starts a bit aside.
    stuck = jnp.abs(dq).max(initial=0.0) < eps ** (2 / 3)
    aside = stuck & (at.steps == 0)
    side = 0.05 * jnp.cos(2.0 * jnp.arange(model.nv, dtype=dq.dtype))
    trial = _within(model, options.limits, integrate(model, at.q, jnp.where(aside, side, dq)))
    keeps_on = any(goal.kind == "posture" for goal in goals) | (at.error > tolerance)
    running = jnp.isfinite(at.cost) & keeps_on & ~flat & (~stuck | aside) & (model.nv > 0)
    if options.rows:
        row = jnp.stack([at.error, at.cost, mu])
        at = at._replace(course=at.course.at[at.steps].set(jnp.where(jnp.isfinite(row), row, 0), mode="drop"))
    time_to_look = at.steps % PATIENCE == PATIENCE - 1
    return at._replace(
        trial=trial,
        cost=jnp.where(aside & running, jnp.inf, at.cost),
        predicted=dq @ (damping * dq - gradient),
        running=running,
        stalled=time_to_look & (at.cost > at.mark / 2),
        mark=jnp.where(time_to_look, at.cost, at.mark),
        steps=at.steps + 1,
    )


def _best(model: Model, goals: Goals, starts: Any, tolerance: Any, options: _Options) -> Any:
    """Return the function that searches from all starts at once; of many problems, one start after the other."""

    @jax.custom_batching.custom_vmap
    def search(model: Model, goals: Goals, starts: Any, tolerance: Any) -> _Search:
        def more(each: _Search) -> jax.Array:
            return _runs(each, options).any() & ~_reached(each, tolerance).any()

        def on(each: _Search) -> _Search:
            step = lambda at: _choose(_runs(at, options), _step(model, goals, at, tolerance, options), at)
            return jax.vmap(step)(each)

        each = jax.lax.while_loop(more, on, jax.vmap(lambda q: _begin(model, goals, q, options))(starts))
        best = jnp.argmin(jnp.where(_reached(each, tolerance), -1, each.cost))
        return jax.tree.map(lambda x: x[best], each)

    @search.def_vmap
    def queue(size: int, is_batched: Any, *args: Any) -> tuple[_Search, Any]:
        found = _queue(size, is_batched, args, options)
        return found, jax.tree.map(lambda _: True, found)

    return search


def _runs(at: _Search, options: _Options) -> jax.Array:
    return at.running & (at.steps < options.iterations)


def _reached(at: _Search, tolerance: Any) -> jax.Array:
    return ~at.running & (at.error <= tolerance)


class _Lanes(NamedTuple):
    """Problems that are being worked on, side by side."""

    problem: jax.Array
    start: jax.Array
    """Number of the start; after the last, the best of them is pursued to its end."""
    at: _Search
    best: _Search
    """Of the starts so far."""
    steps: jax.Array


def _queue(size: int, is_batched: Any, args: Any, options: _Options) -> _Search:
    """Return the solutions of many problems, worked on in a few lanes: what is done makes place for the next.

    So problems do not wait for the slowest of them, as they would in a loop over all at once. A search that makes
    little progress is put aside as long as there are other starts.
    """
    flags, (leaves, form) = jax.tree.leaves(is_batched), jax.tree.flatten(args)
    each = [x if b else x[None] for x, b in zip(leaves, flags, strict=True)]
    starts = args[2].shape[-2]
    none = jnp.zeros((), jnp.int32)

    def of_problem(i: jax.Array) -> Any:
        i = jnp.minimum(i, size - 1)
        return jax.tree.unflatten(form, [x[i if b else 0] for x, b in zip(each, flags, strict=True)])

    def begin(problem: jax.Array, start: jax.Array) -> _Search:
        model, goals, q, _ = of_problem(problem)
        return _begin(model, goals, q[jnp.minimum(start, starts - 1)], options)

    def work(lane: _Lanes) -> tuple[_Lanes, jax.Array, jax.Array]:
        """Take one step, and return whether the search, and whether the whole problem, is done with."""
        model, goals, _, tolerance = of_problem(lane.problem)
        at = _step(model, goals, lane.at, tolerance, options)
        best = _choose(_reached(at, tolerance) | (at.cost <= lane.best.cost), at, lane.best)
        ended, last = ~_runs(at, options), lane.start >= starts - (starts == 1)
        done = ended & (_reached(at, tolerance) | last | ~jnp.isfinite(at.cost))
        return lane._replace(at=at, best=best, steps=lane.steps + 1), ended | (at.stalled & ~last), done

    def on(carry: Any) -> Any:
        lanes, found, waiting = carry
        lanes, ended, done = jax.vmap(work)(lanes)
        done = done & (lanes.problem < size)
        place = jnp.where(done, lanes.problem, size)
        ends = lanes.best._replace(steps=lanes.steps)
        found = jax.tree.map(lambda rows, x: rows.at[place].set(x, mode="drop"), found, ends)
        problem = jnp.where(done, waiting + jnp.cumsum(done) - 1, lanes.problem)
        start = jnp.where(done, 0, lanes.start + ended)
        fresh = jax.vmap(begin)(problem, start)
        fresh = jax.vmap(_choose)(start == starts, lanes.best, fresh)
        at = jax.vmap(_choose)(ended | done, fresh, lanes.at)
        best = jax.vmap(_choose)(done, fresh, lanes.best)
        return _Lanes(problem, start, at, best, jnp.where(done, 0, lanes.steps)), found, waiting + done.sum()

    problem = jnp.arange(min(size, LANES))
    first = jax.vmap(begin, in_axes=(0, None))(problem, none)
    found = jax.tree.map(lambda x: jnp.zeros((size, *x.shape[1:]), x.dtype), first)
    lanes = _Lanes(problem, 0 * problem, first, first, 0 * first.steps)
    carry = lanes, found, jnp.array(len(problem))
    return jax.lax.while_loop(lambda carry: (carry[0].problem < size).any(), on, carry)[1]


LANES = 64
"""Problems of a batch that are worked on at a time: enough to fill vector registers, few enough for the caches."""
PATIENCE = 8
"""Steps in which a search is to halve its cost, lest another start is tried first."""


def _choose(first: jax.Array, a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(first, x, y), a, b)


def _solve(H: jax.Array, b: jax.Array) -> jax.Array:
    return cho_solve(cho_factor(H), b)


def _linearized(model: Model, goals: Goals, q: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the weighted residual, its slope, and the largest component of the residual without weights."""
    r = [residual(model, goal, q) for goal in goals]
    w = [weights(model, goal, x) for goal, x in zip(goals, r, strict=True)]
    J = [y[:, None] * slope(model, goal, q, x) for goal, x, y in zip(goals, r, w, strict=True)]
    counted = [
        jnp.where(y > 0, jnp.abs(x), 0) for goal, x, y in zip(goals, r, w, strict=True) if goal.kind != "posture"
    ]
    error = jnp.concatenate([jnp.zeros(1, q.dtype), *counted]).max()
    return jnp.concatenate([x * y for x, y in zip(r, w, strict=True)]), jnp.concatenate(J), error


# ---------------------------------------------------------------------- limits
def _bounded(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Return where coordinates that have limits are in q, and in qd."""
    plain = [g for g in model.topology.own_groups if type(g.joint).integrate is Joint.integrate]
    none = np.zeros(0, np.int32)
    return np.concatenate([none, *(g.q.ravel() for g in plain)]), np.concatenate([none, *(g.qd.ravel() for g in plain)])


def _within(model: Model, limits: bool, q: jax.Array) -> jax.Array:
    if not limits:
        return q
    at_q, _ = _bounded(model)
    return q.at[at_q].set(jnp.clip(q[at_q], model.lower[at_q], model.upper[at_q]).astype(q.dtype))


def _held(model: Model, limits: bool, q: jax.Array, gradient: jax.Array) -> jax.Array:
    """Return which degrees of freedom are at a limit that a step against the gradient would leave, (nv,)."""
    held = jnp.zeros(model.nv, bool)
    if not limits:
        return held
    at_q, at_qd = _bounded(model)
    x, outward = q[at_q], -gradient[at_qd]
    low, high = (x <= model.lower[at_q]) & (outward < 0), (x >= model.upper[at_q]) & (outward > 0)
    return held.at[at_qd].set(low | high)


# ---------------------------------------------------------------------- the solution as a function of the goals
@jax.custom_jvp
def _root(model: Model, goals: Goals, q: jax.Array, free: jax.Array) -> jax.Array:
    """Return q, which makes the weighted squares stationary; as a function of model and goals."""
    return q


@_root.defjvp
def _root_jvp(primals: Any, tangents: Any) -> Any:
    model, goals, q, free = primals
    q = _root(model, goals, q, free)
    rest = jnp.zeros(model.nv, q.dtype)

    def gradient(model: Model, goals: Goals, dq: jax.Array) -> jax.Array:
        def cost(dq: jax.Array) -> jax.Array:
            r = [residual(model, goal, integrate(model, q, dq)) for goal in goals]
            missed = [weights(model, goal, x) * x for goal, x in zip(goals, r, strict=True)]
            return jnp.sum(jnp.concatenate(missed) ** 2) / 2

        return jnp.where(free, jax.grad(cost)(dq), 0)

    H = jax.jacfwd(lambda dq: gradient(model, goals, dq))(rest)
    H = jnp.where(free[:, None] & free[None], (H + H.T) / 2, 0)
    _, change = jax.jvp(lambda model, goals: gradient(model, goals, rest), (model, goals), tangents[:2])
    dq = -_least_solution(H, change)
    return q, jax.jvp(lambda dq: integrate(model, q, dq), (rest,), (dq,))[1]


def _least_solution(H: jax.Array, b: jax.Array) -> jax.Array:
    """Return the shortest x with H x = b, for positive semidefinite H, by iterated damping."""
    scale = jnp.trace(H) / max(len(H), 1)
    damping = jnp.finfo(H.dtype).eps ** (1 / 3) * jnp.where(scale > 0, scale, 1)
    factor = cho_factor(H + damping * jnp.eye(len(H), dtype=H.dtype))
    x = jnp.zeros_like(b)
    for _ in range(4):
        x = cho_solve(factor, b + damping * x)
    return x


# ---------------------------------------------------------------------- arguments
def _goals(model: Model, goals: Any) -> Goals:
    chosen = (goals,) if isinstance(goals, Goal) else tuple(goals)
    if not chosen or not all(isinstance(goal, Goal) for goal in chosen):
        raise TypeError(f"goals must be one or several goals, such as position_goal(...); got {goals!r}")
    for goal in chosen:
        if goal.kind != "posture":
            model.topology.find_frame(goal.frame)
    return chosen
