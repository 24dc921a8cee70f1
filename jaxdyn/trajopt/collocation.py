r"""Direct transcription by inverse dynamics: unknowns are motions, and joint forces follow from them.

At a node the forces are :math:`\tau = ID(q, \dot q, \ddot q) - \tau_{passive}`: limits on them, and zeros where no
motor is, are constraints like others, and forward dynamics is never asked for. What remains is that q moves with the
velocity :math:`\dot q`, which holds for all models alike. Two schemes:

- Hermite-Simpson, order 4: unknowns are q, v and a at the knots. Between them v is the cubic that has these values and
  slopes, and q, in the tangent of the left knot, the cubic :math:`\theta` that has its own. In the middle, the rate of
  :math:`\theta` is v: that is the constraint; and the acceleration there is the slope of v.
- Implicit midpoint, order 2: unknowns are q and v at the knots; in the middle :math:`\ddot q = (v_1 - v_0) / h`, and
  :math:`q_1 = q_0 \oplus \tfrac h2 (v_0 + v_1)` is the constraint: `integrator="implicit_midpoint"` of a rollout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn import _checks
from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments, inverse_dynamics
from jaxdyn.joints import Joint
from jaxdyn.model import Model, difference, integrate
from jaxdyn.model.configuration import tangent
from jaxdyn.trajopt import chain, constrained
from jaxdyn.trajopt.chain import Local, Part, Problem, Term
from jaxdyn.trajopt.costs import Cost, cost_of
from jaxdyn.trajopt.plant import Plant, _driven, plant_of
from jaxdyn.trajopt.results import Solution, finite_or_zero

Scheme = Literal["hermite_simpson", "midpoint"]
SCHEMES = ("hermite_simpson", "midpoint")
METHODS = ("gauss_newton", "newton", "lbfgs")
LIMITS = ("position", "velocity", "effort")
OfState = Callable[..., Any]
"""A function (x, u), or (x, u, params) if there are parameters; at the end (x), or (x, params)."""


class _Theta(NamedTuple):
    """What the problem depends on: leaves with respect to which solutions can be differentiated."""

    plant: Plant
    running: Cost
    terminal: Cost
    x0: jax.Array
    x_end: jax.Array | None
    duration: jax.Array
    range: Any
    """Logarithms of the shortest and the longest duration, None if it is given."""
    time_weight: Any
    params: Any


class _Options(NamedTuple):
    """What is known when the program is compiled."""

    scheme: Scheme
    steps: int
    limits: tuple[str, ...]
    path: tuple[OfState | None, OfState | None]
    """Equalities and inequalities along the path."""
    end: tuple[OfState | None, OfState | None]
    """And at its end."""
    solver: constrained.Options


class _Node(NamedTuple):
    """A moment of the motion."""

    q: jax.Array
    v: jax.Array
    a: jax.Array


def collocation(
    model: Model,
    running_cost: Any,
    terminal_cost: Any,
    x0: Any,
    *,
    steps: int,
    duration: Any,
    x_end: Any = None,
    free_duration: tuple[Any, Any] | None = None,
    time_weight: Any = 0.0,
    xs: Any = None,
    driven: Sequence[str] | None = None,
    limits: Sequence[str] = LIMITS,
    equality: OfState | None = None,
    inequality: OfState | None = None,
    terminal_equality: OfState | None = None,
    terminal_inequality: OfState | None = None,
    params: Any = None,
    scheme: Scheme = "hermite_simpson",
    method: Any = "gauss_newton",
    max_iterations: int = 200,
    tolerance: float | None = None,
    penalty: float = 10.0,
    max_penalty: float | None = None,
    verbose: bool = False,
) -> Solution:
    r"""Find the best motion between two states, with limits and constraints, by direct transcription.

    .. math:: \min \int_0^T l(x, u)\, dt + \alpha T + l_T(x(T)) \quad \text{with} \quad
        M \ddot q + b = B u + \tau_{passive}, \quad c(x, u) = 0, \quad d(x, u) \le 0

    All knots are found at once, so that the first guess need not be a motion. Derivatives of the solution, forward and
    reverse, are by the theorem of the implicit function: with respect to the model's leaves, x0, x_end, duration,
    weights and targets of the costs, and params. Second derivatives are refused. `jax.vmap` solves batches of problems.

    Args:
        model: the model.
        running_cost: l, a `Cost` such as `torque()`, or a function (x, u) -> number; None for none. In distinction to
            `ilqr` it is integrated over time.
        terminal_cost: l_T, a `Cost` or a function (x) -> number; None for none.
        x0: initial state (q, qd), (nq + nv,).
        steps: T, number of intervals.
        duration: time that the motion takes, s; a first guess of it if it is free.
        x_end: final state, (nq + nv,); None if it is free. A part of it can be prescribed with `terminal_equality`.
        free_duration: (shortest, longest) if the duration is to be found.
        time_weight: alpha: cost of time, 1/s.
        xs: first guess of the states, (T + 1, nq + nv). By default a straight way from x0 to x_end.
        driven: names of the joints that have motors; by default all but free ones.
        limits: which limits of the model hold: some of "position" and "velocity", at the knots, and "effort", at all
            nodes.
        equality: function (x, u) -> (m,) that is zero along the path, at all nodes; with `params`, (x, u, params).
        inequality: function (x, u) -> (m,) that is nowhere positive.
        terminal_equality: function (x) -> (m,) that is zero at the end; with `params`, (x, params).
        terminal_inequality: function (x) -> (m,) that is not positive there.
        params: parameters of these functions, any pytree.
        scheme: "hermite_simpson", of order 4, with nodes at the knots and in the middle between them; or "midpoint",
            of order 2, with nodes in the middle alone, where forces are constant over an interval.
        method: steps by banded matrices, "gauss_newton", or "newton", with second derivatives of the dynamics too:
            fewer steps, each of which costs more. "lbfgs" or any optax optimiser: gradients alone, many cheap steps.
        max_iterations: most steps to take.
        tolerance: largest error of constraints, in their own units, and of the gradient, relative to the largest
            multiplier. By default 1e-6, in single precision 1e-3.
        penalty: of errors of constraints, at first.
        max_penalty: at which constraints that do not improve are taken to contradict each other. By default 1e8, in
            single precision 1e5.
        verbose: print a line for each step.

    Returns:
        The solution: xs (T + 1, nq + nv) at the knots, us (T, nu) the mean joint forces of the intervals. Its `extras`:
        "duration"; "violations", the largest error of every kind of constraint, by name; "us_knots" (T + 1, nu) and
        "us_middle" (T, nu), forces at the nodes (Hermite-Simpson). Where the status is not `Status.CONVERGED`,
        derivatives are zero.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.trajopt import collocation, torque
        >>> model = jaxdyn.load("pendulum")
        >>> down, up = jnp.array([0.0, 0.0]), jnp.array([jnp.pi, 0.0])
        >>> found = collocation(model, torque(), None, down, x_end=up, steps=20, duration=2.0)
        >>> found.message, found.xs.shape, found.us.shape
        ('converged', (21, 2), (20, 1))
    """
    arguments.require_model(model)
    options, theta, xs = _checked(
        model,
        (running_cost, terminal_cost, x0, x_end, xs, params),
        (duration, free_duration, time_weight),
        (steps, driven, limits, scheme),
        ((equality, inequality), (terminal_equality, terminal_inequality)),
        (method, max_iterations, tolerance, penalty, max_penalty, verbose),
    )
    return _solved(theta, xs, options)


@partial(jit, static_argnames="options")
def _solved(theta: _Theta, xs: Any, options: _Options) -> Solution:
    problem = _problem(theta, options)
    z, s = _guess(theta, xs, options)
    found = constrained.solve(problem, theta, z, s, options.solver)
    cost, values, ((*at_knots, us), *_) = chain.evaluate(problem, theta, found.z, found.s)
    duration = _duration(theta, found.s)
    extras: dict[str, Any] = {"duration": duration, "violations": chain.violations(problem, values)}
    if options.scheme == "hermite_simpson":
        (knots,) = at_knots
        extras |= {"us_knots": knots, "us_middle": us}
        us = (knots[:-1] + 4 * us + knots[1:]) / 6
    t = duration * jnp.linspace(0, 1, options.steps + 1, dtype=duration.dtype)
    us, cost, t, extras = finite_or_zero((us, cost, t, extras))
    return Solution(
        xs=jnp.concatenate(found.z[:2], 1),
        us=us,
        cost=cost,
        status=found.status,
        iterations=found.iterations,
        history=found.history._asdict(),
        t=t,
        extras=extras,
    )


# ---------------------------------------------------------------------- the motion
def _duration(theta: _Theta, s: jax.Array) -> jax.Array:
    return theta.duration if theta.range is None else jnp.exp(s[0])


def _inputs(plant: Plant, at: _Node) -> tuple[jax.Array, jax.Array]:
    """Return the forces of the motors, (nu,), and those that joints without motors would need."""
    assert plant.system is not None
    model = plant.model.moving
    tau = inverse_dynamics(model, at.q, at.v, at.a) - plant.system.joint_forces(at.q, at.v)
    driven = np.asarray(plant.driven, int)
    return tau[driven], tau[np.setdiff1d(np.arange(model.nv), driven)]


def _middle(plant: Plant, scheme: Scheme, zs: Any, h: Any) -> tuple[_Node, jax.Array]:
    """Return the middle of an interval, and the defect of its configurations, (nv,)."""
    left, right = zs
    return _midpoint(plant, left, right, h) if scheme == "midpoint" else _hermite_simpson(plant, left, right, h)


def _midpoint(plant: Plant, left: Any, right: Any, h: Any) -> tuple[_Node, jax.Array]:
    (q0, v0), (q1, v1) = left, right
    theta, v = difference(plant.model, q0, q1), (v0 + v1) / 2
    return _Node(integrate(plant.model, q0, theta / 2), v, (v1 - v0) / h), theta / h - v


def _hermite_simpson(plant: Plant, left: Any, right: Any, h: Any) -> tuple[_Node, jax.Array]:
    (q0, v0, a0), (q1, v1, a1) = left, right
    model, rest = plant.model, jnp.zeros_like(v0)
    v, a = (v0 + v1) / 2 + h / 8 * (a0 - a1), 3 / (2 * h) * (v1 - v0) - (a0 + a1) / 4
    arriving = lambda dq: difference(model, q0, integrate(model, q1, dq))
    theta, rate = jax.jvp(arriving, (rest,), (v1,))
    slope = 3 / (2 * h) * theta - (v0 + rate) / 4
    q, q_rate = jax.jvp(lambda dq: integrate(model, q0, dq), (theta / 2 + h / 8 * (v0 - rate),), (slope,))
    return _Node(q, v, a), tangent(model, q, q_rate) - v


# ---------------------------------------------------------------------- the problem
class _Moment(NamedTuple):
    """A node, and how much it counts in the integral of the cost."""

    at: _Node
    weight: jax.Array


def _problem(theta: _Theta, options: _Options) -> Problem:
    """Return the transcription: what holds where forces act, at the knots, between them, and at the end."""
    plant, steps, simpson = theta.plant, options.steps, options.scheme == "hermite_simpson"
    nv, dtype = plant.model.nv, theta.x0.dtype
    step = lambda theta, s: _duration(theta, s) / steps

    def at_knot(theta: _Theta, k: Any, zs: Any, s: Any) -> _Moment:
        return _Moment(_Node(*zs[0]), step(theta, s) / 6 * jnp.where((k == 0) | (k == steps), 1, 2))

    def between(theta: _Theta, k: Any, zs: Any, s: Any) -> _Moment:
        h = step(theta, s)
        return _Moment(_middle(theta.plant, options.scheme, zs, h)[0], h * (4 / 6 if simpson else 1))

    def forces(theta: _Theta, k: Any, moment: _Moment) -> tuple[Local, _Rows]:
        """Return what is wanted where forces act."""
        at, plant = moment.at, theta.plant
        u, unmoved = _inputs(plant, at)
        rows: _Rows = [("without_motor", unmoved, False)]
        if "effort" in options.limits:
            bound = plant.model.effort_limit[np.asarray(plant.driven, int)]
            rows += [("effort", _beyond(u, -bound, bound), True)]
        rows += _constrained(("equality", "inequality"), options.path, jnp.concatenate([at.q, at.v]), u, theta=theta)
        y = _of_cost(theta.running, plant, at.q, at.v, u, jnp.minimum(k, steps - 1))
        return Local(y, moment.weight, _stacked(rows, dtype), u), rows

    def limits(theta: _Theta, k: Any, z: Any) -> tuple[Local, _Rows]:
        """Return the limits of states."""
        model, rows = theta.plant.model, []
        if "position" in options.limits:
            at_q = _plain_coordinates(model)
            rows += [("position", _beyond(z[0][at_q], model.lower[at_q], model.upper[at_q]), True)]
        if "velocity" in options.limits:
            rows += [("velocity", _beyond(z[1], -model.velocity_limit, model.velocity_limit), True)]
        return _without_cost(rows, dtype), rows

    def motion(theta: _Theta, k: Any, defect: jax.Array) -> tuple[Local, _Rows]:
        """Return that configurations move with the velocities."""
        rows: _Rows = [("motion", defect, False)]
        return _without_cost(rows, dtype), rows

    def end(theta: _Theta, k: Any, point: Any) -> tuple[Local, _Rows]:
        """Return what is wanted at the end."""
        (q, v), s = point
        rows = _constrained(
            ("terminal_equality", "terminal_inequality"), options.end, jnp.concatenate([q, v]), theta=theta
        )
        if theta.range is not None:
            rows += [("duration", _beyond(s, *(x[None] for x in theta.range)), True)]
        y = _of_cost(theta.terminal, theta.plant, q, v, jnp.zeros(plant.nu, dtype), 0)
        y = jnp.concatenate([_duration(theta, s)[None], y])
        return Local(y, jnp.ones((), dtype), _stacked(rows, dtype)), rows

    def term(parts: Any, local: Any, cost: Any = _nothing) -> Term:
        """Return a term, the names of its constraints asked of itself."""
        sizes: list[Any] = []

        def look(k: Any) -> jax.Array:
            z, s = _guess(theta, None, options)
            knot = jax.tree.map(lambda x: x[0], z)
            point = parts[0].point(theta, k, (knot, knot) if parts[0].span == "pairs" else (knot,), s)
            found, rows = local(theta, k, point)
            sizes.extend((name, c.size, kind) for name, c, kind in rows)
            return found.c

        jax.eval_shape(look, jnp.zeros((), int))
        return Term(tuple(parts), lambda *args: local(*args)[0], cost, tuple(sizes))

    def retract(theta: _Theta, z: Any, w: jax.Array) -> Any:
        parts = jnp.split(w, w.size // nv)
        return integrate(theta.plant.model, z[0], parts[0]), *(x + dx for x, dx in zip(z[1:], parts[1:], strict=True))

    def place(theta: _Theta, z: Any) -> Any:
        model = theta.plant.model
        q, v = z[0].at[0].set(theta.x0[: model.nq]), z[1].at[0].set(theta.x0[model.nq :])
        if theta.x_end is not None:
            near = jax.lax.stop_gradient(q[-1])  # of angles that mean the same, the one that is near
            arrived = integrate(model, near, difference(model, near, theta.x_end[: model.nq]))
            q, v = q.at[-1].set(arrived), v.at[-1].set(theta.x_end[model.nq :])
        return (q, v, *z[2:])

    free = np.ones((steps + 1, nv * (3 if simpson else 2)), dtype)
    free[0, : 2 * nv] = 0
    if theta.x_end is not None:
        free[-1, : 2 * nv] = 0
    middle = Part("pairs", between)
    gap = lambda theta, k, zs, s: _middle(theta.plant, options.scheme, zs, step(theta, s))[1]
    running = lambda theta, k, y: _cost(theta.running, theta.plant, y, jnp.minimum(k, steps - 1))
    terminal = lambda theta, k, y: theta.time_weight * y[0] + _cost(theta.terminal, theta.plant, y[1:], 0)
    return Problem(
        (
            term([Part("each", at_knot), middle] if simpson else [middle], forces, running),
            term([Part("each", lambda theta, k, zs, s: zs[0][:2])], limits),
            term([Part("pairs", gap)], motion),
            term([Part("last", lambda theta, k, zs, s: (zs[0][:2], s))], end, terminal),
        ),
        retract,
        place,
        (free, np.full(1, theta.range is not None, dtype)),
    )


_Rows = list[tuple[str, jax.Array, bool]]
"""Constraints: (name, values, whether c <= 0 rather than c = 0)."""


def _stacked(rows: _Rows, dtype: Any) -> jax.Array:
    return jnp.concatenate([jnp.zeros(0, dtype), *(c for _, c, _ in rows)])


def _without_cost(rows: _Rows, dtype: Any) -> Local:
    return Local(jnp.zeros(0, dtype), jnp.zeros((), dtype), _stacked(rows, dtype))


def _constrained(names: Any, functions: Any, *args: Any, theta: _Theta) -> _Rows:
    """Return what the user's equalities and inequalities say."""
    given = args if theta.params is None else (*args, theta.params)
    found = zip(names, functions, (False, True), strict=True)
    return [(name, jnp.atleast_1d(jnp.asarray(f(*given))), kind) for name, f, kind in found if f is not None]


def _nothing(theta: _Theta, k: Any, y: jax.Array) -> jax.Array:
    return jnp.zeros((), y.dtype)


def _of_cost(cost: Cost, plant: Plant, q: jax.Array, v: jax.Array, u: jax.Array, i: Any) -> jax.Array:
    """Return what a cost is a convex function of: its residuals, and for other functions state and input."""
    x = jnp.concatenate([q, v])
    r = cost.residuals(plant, x, u, i)
    return r if cost.is_least_squares else jnp.concatenate([r, x, u])


def _cost(cost: Cost, plant: Plant, y: jax.Array, i: Any) -> jax.Array:
    """Return the cost as a function of that."""
    if cost.is_least_squares:
        return y @ y / 2
    r, x, u = jnp.split(y, [y.size - plant.nx - plant.nu, y.size - plant.nu])
    scalars = Cost(tuple(term for term in cost.terms if term.kind.is_scalar))
    return r @ r / 2 + scalars.value(plant, x, u, i)


def _beyond(x: jax.Array, lower: jax.Array, upper: jax.Array) -> jax.Array:
    """Return how far x is past its limits, (2 m,); of limits that are infinite, -1."""
    there = jnp.isfinite(jnp.concatenate([lower, upper]))
    ends = jnp.where(there, jnp.concatenate([lower, upper]), 0)
    past = jnp.concatenate([jnp.ones_like(x), -jnp.ones_like(x)]) * (ends - jnp.concatenate([x, x]))
    return jnp.where(there, past, -1)


def _plain_coordinates(model: Model) -> np.ndarray:
    """Return the indices in q of joints with plain coordinates, which may have limits."""
    joints = [g for g in model.topology.own_groups if type(g.joint).integrate is Joint.integrate]
    return np.concatenate([np.zeros(0, np.int32), *(g.q.ravel() for g in joints)])


def _guess(theta: _Theta, xs: Any, options: _Options) -> tuple[Any, jax.Array]:
    """Return the first guess: a straight way, or what was given."""
    model, steps, x0 = theta.plant.model, options.steps, theta.x0
    q0, v0 = x0[: model.nq], x0[model.nq :]
    if xs is not None:
        q, v = xs[:, : model.nq], xs[:, model.nq :]
    elif theta.x_end is None:
        q, v = (jnp.broadcast_to(x, (steps + 1, x.size)) for x in (q0, v0))
    else:
        way = difference(model, q0, theta.x_end[: model.nq])
        q = jax.vmap(lambda part: integrate(model, q0, part * way))(jnp.linspace(0, 1, steps + 1, dtype=x0.dtype))
        v = jnp.broadcast_to(way / theta.duration, (steps + 1, model.nv))
    s = jnp.log(theta.duration)[None]
    if options.scheme == "midpoint":
        return (q, v), s
    slopes = (v[1:] - v[:-1]) * (steps / theta.duration)
    return (q, v, (jnp.concatenate([slopes[:1], slopes]) + jnp.concatenate([slopes, slopes[-1:]])) / 2), s


# ---------------------------------------------------------------------- arguments
def _checked(model: Model, given: Any, times: Any, form: Any, functions: Any, solver: Any) -> Any:
    """Return options, what the problem depends on, and the first guess, all checked."""
    running_cost, terminal_cost, x0, x_end, xs, params = given
    duration, free_duration, time_weight = times
    steps, driven, limits, scheme = form
    if not isinstance(steps, (int, np.integer)) or isinstance(steps, bool) or steps < 1:
        raise ValueError(f"steps must be a positive integer, the number of intervals; got {steps!r}")
    if scheme not in SCHEMES:
        raise ValueError(f"scheme {scheme!r} is not known: {_checks.suggestion(scheme, SCHEMES)}")
    limits = (limits,) if isinstance(limits, str) else tuple(limits)
    for name in limits:
        if name not in LIMITS:
            raise ValueError(f"limits has {name!r}, which is not known: {_checks.suggestion(name, LIMITS)}")
    names = ("equality", "inequality", "terminal_equality", "terminal_inequality")
    for name, f in zip(names, (*functions[0], *functions[1]), strict=True):
        if f is not None and not callable(f):
            raise TypeError(f"{name} must be a function or None; got {type(f).__name__}")
    nu, nx = len(_driven(model, driven)), model.nq + model.nv
    dtype = jnp.result_type(*(jnp.asarray(x) for x in (x0, x_end, xs) if x is not None), model.dtype)
    duration = _checks.number("duration", duration, dtype)
    if not isinstance(duration, jax.core.Tracer) and duration <= 0:
        raise ValueError(f"duration must be positive, s; got {float(duration)}")
    plant = plant_of(model, x0, np.zeros((steps, nu)), dt=duration / steps, driven=driven)
    x0 = _checks.vector("x0", x0, nx, "number of q and qd", dtype).astype(dtype)
    if x_end is not None:
        x_end = _checks.vector("x_end", x_end, nx, "number of q and qd", dtype).astype(dtype)
    if xs is not None:
        if np.shape(xs) != (steps + 1, nx):
            raise ValueError(f"xs must have shape ({steps + 1}, {nx}), one state per knot; got {np.shape(xs)}")
        xs = jnp.asarray(xs, dtype)
    running, terminal = (
        cost_of("running_cost", running_cost, terminal=False),
        cost_of("terminal_cost", terminal_cost, terminal=True),
    )
    running.check(plant, terminal=False, steps=int(steps))
    terminal.check(plant, terminal=True, steps=int(steps))
    if free_duration is not None:
        if not isinstance(free_duration, (tuple, list)) or len(free_duration) != 2:
            raise ValueError(f"free_duration must be (shortest, longest), s; got {free_duration!r}")
        ends = [_checks.number("free_duration", x, dtype) for x in free_duration]
        if not any(isinstance(x, jax.core.Tracer) for x in ends) and not 0 < ends[0] <= ends[1] < np.inf:
            raise ValueError(
                f"free_duration must be (shortest, longest), s, 0 < shortest <= longest; got {free_duration!r}"
            )
        free_duration = tuple(jnp.log(x) for x in ends)
    theta = _Theta(
        plant,
        running,
        terminal,
        x0,
        x_end,
        duration,
        free_duration,
        _checks.number("time_weight", time_weight, dtype),
        params,
    )
    solver = _solver_options(jnp.finfo(dtype).bits == 64, *solver)
    return _Options(scheme, int(steps), limits, functions[0], functions[1], solver), theta, xs


def _solver_options(
    double: bool, method: Any, max_iterations: Any, tolerance: Any, penalty: Any, max_penalty: Any, verbose: bool
) -> constrained.Options:
    known = method in METHODS if isinstance(method, str) else hasattr(method, "update")
    if not known:
        raise ValueError(f"method must be one of {', '.join(METHODS)} or an optax optimiser; got {method!r}")
    if not isinstance(max_iterations, (int, np.integer)) or max_iterations < 1:
        raise ValueError(f"max_iterations must be a positive integer; got {max_iterations!r}")
    tolerance = (1e-6 if double else 1e-3) if tolerance is None else float(tolerance)
    max_penalty = (1e8 if double else 1e5) if max_penalty is None else float(max_penalty)
    for name, value in (("tolerance", tolerance), ("penalty", penalty), ("max_penalty", max_penalty)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a positive number; got {value!r}")
    return constrained.Options(method, int(max_iterations), tolerance, float(penalty), max_penalty, bool(verbose))
