r"""Optimisation along a chain of knots, with constraints: an augmented Lagrangian, and the derivative of its solution.

.. math:: \min_{z, s}\ \sum_i w_i\, \phi(y_i) \quad \text{with} \quad c_i = 0 \ \text{or} \ c_i \le 0

where every (y, w, c) is a function of one knot or of two neighbours, and of unknowns s that all share. For multipliers
:math:`\lambda` and a penalty :math:`\rho` the function

.. math:: \sum_i w_i \phi(y_i) + \tfrac{1}{2 \rho} \left( |\hat\lambda|^2 - |\lambda|^2 \right), \qquad
    \hat\lambda = \lambda + \rho\, c \quad (\text{inequalities: its positive part})

is minimised by Gauss-Newton or Newton steps, whose matrix is banded (`trajopt.banded`), with a line search that tries
all lengths at once; the multipliers then become :math:`\hat\lambda`, and the penalty grows where constraints have
not improved (Birgin and Martinez, Practical Augmented Lagrangian Methods, 2014).

Where the solution satisfies its conditions of first order, it is a differentiable function of all that the problem
depends on. Its derivative is that of these conditions with the active constraints held.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.custom_derivatives import SymbolicZero
from jax.flatten_util import ravel_pytree

from jaxdyn.recursion.ruled import Ruled
from jaxdyn.trajopt.banded import Vector, factorise
from jaxdyn.trajopt.chain import (
    Problem,
    assembled,
    augmented,
    congruent,
    estimates_of,
    evaluate,
    gather,
    gauss_newton_blocks,
    gradient_of,
    joined,
    moved_by,
    newton_blocks,
    of_penalty,
    slopes_of,
)
from jaxdyn.trajopt.optimum import once
from jaxdyn.trajopt.results import Status, finite_or_zero, report

LENGTHS = 2.0 ** -np.arange(12.0)
"""Lengths of a step that the line search compares."""


class Options(NamedTuple):
    """How to solve."""

    method: Any
    """"gauss_newton", "newton", "lbfgs", or an optax optimiser."""
    max_iterations: int
    tolerance: float
    penalty: float
    max_penalty: float
    verbose: bool


class History(NamedTuple):
    """What each iteration began with, (max_iterations,); later rows are zero."""

    cost: jax.Array
    violation: jax.Array
    """Largest error of a constraint."""
    gradient: jax.Array
    """Largest component of the Lagrangian's gradient, relative to 1 and the largest multiplier."""
    penalty: jax.Array
    step: jax.Array
    """Length of the step that was taken; 0: none."""
    regularisation: jax.Array


class Solved(NamedTuple):
    """Where the solver ended."""

    z: Any
    s: jax.Array
    multipliers: tuple[jax.Array, ...]
    """By term, (places of all parts, nc)."""
    status: jax.Array
    iterations: jax.Array
    history: History


RUNNING = -1
"""The status while there is none of `Status`."""


# ---------------------------------------------------------------------- the solver
class _State(NamedTuple):
    z: Any
    s: jax.Array
    multipliers: tuple[jax.Array, ...]
    penalty: jax.Array
    aim: jax.Array
    """Gradient at which multipliers are renewed."""
    violation: jax.Array
    """Of the constraints when multipliers were renewed last."""
    regularisation: jax.Array
    stalls: jax.Array
    status: jax.Array
    iterations: jax.Array
    history: History
    memory: Any
    """Of an optax optimiser: its state, and the change since the start."""


def solve(problem: Problem, theta: Any, z: Any, s: jax.Array, options: Options) -> Solved:
    """Solve from given knots; derivatives by theta are those of the solution.

    Args:
        problem: the problem.
        theta: what it depends on, any arrays: handed to its functions.
        z: first guess of the knots: arrays with a first axis of K.
        s: of what they share, (m,).
        options: how.

    Returns:
        The solution, its status among it. Derivatives of one that has not converged are zero, but for what is given.
    """
    ruled = Ruled(
        lambda theta, start: _iterated(problem, theta, start[0], start[1], options),
        lambda at, changes: _solution_and_change(problem, ruled, at, changes),
    )
    out: Solved = ruled(theta, (z, s))
    return out._replace(history=jax.lax.stop_gradient(out.history))


def _iterated(problem: Problem, theta: Any, z: Any, s: jax.Array, options: Options) -> Solved:
    dtype, rows = s.dtype, options.max_iterations
    z = problem.place(theta, z)
    values = jax.eval_shape(lambda z, s: evaluate(problem, theta, z, s)[1], z, s)
    number = lambda x: jnp.asarray(x, dtype)
    optimizer = _optimizer(options.method)
    none = tuple(jnp.zeros(x.shape, x.dtype) for x in problem.free)
    state = _State(
        z=z,
        s=s,
        multipliers=tuple(jnp.zeros(c.shape, dtype) for c in values),
        penalty=number(options.penalty),
        aim=number(0.1),
        violation=number(jnp.inf),
        regularisation=number(_SHIFT[0]),
        stalls=jnp.zeros((), int),
        status=jnp.asarray(RUNNING),
        iterations=jnp.zeros((), int),
        history=History(*(jnp.zeros(rows, dtype) for _ in History._fields)),
        memory=None if optimizer is None else (optimizer.init(none), none),
    )
    step = _newton_step if optimizer is None else _optax_step
    state = jax.lax.while_loop(
        lambda state: (state.status == RUNNING) & (state.iterations < rows),
        lambda state: step(problem, theta, (z, s), options, optimizer, state),
        state,
    )
    status = jnp.where(state.status == RUNNING, Status.MAX_ITERATIONS, state.status)
    z, s = finite_or_zero((state.z, state.s))
    return Solved(z, s, state.multipliers, status, state.iterations, state.history)


def _optimizer(method: Any) -> Any:
    """Return the optax optimiser, None for steps of our own."""
    if isinstance(method, str) and method != "lbfgs":
        return None
    return optax.lbfgs(memory_size=20) if isinstance(method, str) else optax.with_extra_args_support(method)


_SHIFT = (1e-6, 1e-9, 1e9)
"""What is added to the matrix's diagonal: at first, at least, at most."""


def _renewed(problem: Problem, options: Options, state: _State, cost: Any, gradient: Vector, values: Any) -> Any:
    """Judge the point: return the state with new multipliers if it is time for them, whether it was, and a row."""
    estimates = estimates_of(problem, values, state.multipliers, state.penalty)
    largest = lambda parts: jnp.stack([jnp.abs(x).max(initial=0) for x in parts]).max()
    changes = [new - old for new, old in zip(estimates, state.multipliers, strict=True)]
    violation = largest(changes) / state.penalty
    slope = largest(gradient) / (1 + largest(estimates))
    finite = jnp.isfinite(cost) & jnp.isfinite(slope) & jnp.isfinite(violation)
    stuck = state.regularisation >= _SHIFT[2]
    converged = (slope <= options.tolerance) & (violation <= options.tolerance)
    renew = (slope <= state.aim) | stuck
    improved = violation <= state.violation / 4
    hopeless = renew & ~improved & (state.penalty >= options.max_penalty) & (violation > options.tolerance)
    stalled = state.stalls + stuck > 3
    status = jnp.select(
        [~finite, converged, hopeless, stalled],
        [Status.NOT_FINITE, Status.CONVERGED, Status.INFEASIBLE, Status.STALLED],
        RUNNING,
    )
    raised = jnp.where(improved, state.penalty, jnp.minimum(10 * state.penalty, options.max_penalty))
    pick = lambda new, old: jax.tree.map(lambda a, b: jnp.where(renew | converged, a, b), new, old)
    row = {"cost": cost, "violation": violation, "gradient": slope, "penalty": state.penalty}
    state = state._replace(
        multipliers=pick(estimates, state.multipliers),
        penalty=pick(raised, state.penalty),
        aim=pick(jnp.maximum(state.aim / 10, options.tolerance), state.aim),
        violation=pick(jnp.minimum(violation, state.violation), state.violation),
        regularisation=jnp.where(stuck, _SHIFT[0], state.regularisation),
        stalls=state.stalls + stuck,
        status=status,
    )
    return state, renew, row


def _recorded(state: _State, row: dict[str, Any], verbose: bool) -> _State:
    """Return the state one iteration later, with a row in its history."""
    row = finite_or_zero({**row, "regularisation": state.regularisation})
    report(verbose, History._fields, state.iterations, [row[name] for name in History._fields])
    write = {name: getattr(state.history, name).at[state.iterations].set(row[name]) for name in History._fields}
    return state._replace(history=History(**write), iterations=state.iterations + 1)


def _newton_step(problem: Problem, theta: Any, _: Any, options: Options, __: Any, state: _State) -> _State:
    """Return the state after one step by the banded matrix."""
    z, s = state.z, state.s
    slopes = slopes_of(problem, theta, z, s)
    values = tuple(x.at.c for x in slopes)
    cost = jnp.stack([(x.at.weight * x.phi).sum() for x in slopes]).sum()
    multiplied = lambda state: estimates_of(problem, values, state.multipliers, state.penalty)
    state, _, row = _renewed(problem, options, state, cost, gradient_of(problem, slopes, multiplied(state)), values)
    estimates = multiplied(state)
    gradient = gradient_of(problem, slopes, estimates)
    active = [~t.inequality | (m > 0) for t, m in zip(problem.terms, estimates, strict=True)]
    direct = lambda blocks: jax.tree.map(
        jnp.negative, factorise(assembled(problem, blocks).shifted(state.regularisation)).solve(gradient)
    )
    step = lambda: direct(gauss_newton_blocks(slopes, active, state.penalty))
    if options.method == "newton":
        exact = direct(newton_blocks(problem, theta, z, s, slopes, estimates, active, state.penalty))
        usable = jnp.isfinite(exact[0]).all() & jnp.isfinite(exact[1]).all() & (_dot(exact, gradient) < 0)
        step_by = jax.lax.cond(usable, lambda: exact, step)
    else:
        step_by = step()

    def merit(length: jax.Array) -> jax.Array:
        moved = moved_by(problem, theta, z, s, jax.tree.map(lambda x: length * x, step_by))
        return augmented(problem, *evaluate(problem, theta, *moved)[:2], state.multipliers, state.penalty)

    here = augmented(problem, cost, values, state.multipliers, state.penalty)
    lengths = jnp.asarray(LENGTHS, s.dtype)
    merits = jax.vmap(merit)(lengths)
    noise = 10 * jnp.finfo(s.dtype).eps * (1 + jnp.abs(here))
    good = merits <= here + 1e-4 * lengths * _dot(step_by, gradient) + noise
    length = jnp.where(good.any(), lengths[jnp.argmax(good)], 0)
    taken = (length > 0) & (state.status == RUNNING)
    safe = jax.tree.map(lambda x: jnp.where(taken, length * x, 0), step_by)
    shift = state.regularisation * jnp.where(length > 0.4, 0.1, jnp.where(length > 0.1, 1, 10))
    z, s = moved_by(problem, theta, z, s, safe)
    keep = lambda new, old: jnp.where(taken, new, old)
    state = _recorded(state, {**row, "step": jnp.where(taken, length, 0)}, options.verbose)
    return state._replace(
        z=jax.tree.map(keep, z, state.z),
        s=keep(s, state.s),
        regularisation=jnp.clip(shift, _SHIFT[1], _SHIFT[2]),
    )


def _dot(a: Vector, b: Vector) -> jax.Array:
    return jnp.vdot(a[0], b[0]) + jnp.vdot(a[1], b[1])


def _optax_step(problem: Problem, theta: Any, start: Any, options: Options, optimizer: Any, state: _State) -> _State:
    """Return the state after one step of an optax optimiser."""
    memory, w = state.memory

    def merit(w: Vector) -> Any:
        cost, values, _ = evaluate(problem, theta, *moved_by(problem, theta, start[0], start[1], w))
        return augmented(problem, cost, values, multipliers, penalty), (cost, values)

    multipliers, penalty = state.multipliers, state.penalty
    (value, (cost, values)), gradient = jax.value_and_grad(merit, has_aux=True)(w)
    state, renewed, row = _renewed(problem, options, state, cost, gradient, values)
    update, after = optimizer.update(gradient, memory, w, value=value, grad=gradient, value_fn=lambda w: merit(w)[0])
    moved = jax.tree.map(lambda w, x: w + jnp.nan_to_num(x), w, update)
    stay = renewed | (state.status != RUNNING)
    pick = lambda a, b: jax.tree.map(lambda a, b: jnp.where(stay, a, b), a, b)
    w = pick(w, moved)
    z, s = moved_by(problem, theta, start[0], start[1], w)
    z, s = pick((state.z, state.s), (z, s))
    state = _recorded(state, {**row, "step": jnp.where(stay, 0.0, 1.0)}, options.verbose)
    return state._replace(z=z, s=s, memory=(pick(optimizer.init(w), after), w))


# ---------------------------------------------------------------------- the derivative of the solution
_REFINEMENTS = 20


def _solution_and_change(problem: Problem, ruled: Ruled, at: Any, changes: Any) -> tuple[Solved, Solved]:
    r"""Return the solution and its change along a change of theta, by the theorem of the implicit function.

    With L the Lagrangian, and c the active constraints,

    .. math:: \begin{pmatrix} L_{zz} & c_z^T \\ c_z & 0 \end{pmatrix} \begin{pmatrix} dz \\ d\lambda \end{pmatrix}
        = - \begin{pmatrix} dL_z \\ dc \end{pmatrix} .
    """
    out: Solved = ruled(*at)
    theta, dtheta = at[0], _filled(at[0], changes[0])
    z, s, multipliers = once((out.z, out.s, out.multipliers))
    still = tuple(jnp.zeros(x.shape, x.dtype) for x in problem.free)
    converged = out.status == Status.CONVERGED
    active = tuple(
        jnp.where(t.inequality, m > 0, True).astype(s.dtype) for t, m in zip(problem.terms, multipliers, strict=True)
    )

    def conditions(theta: Any) -> Any:
        """Return the gradient of the Lagrangian, and the active constraints."""
        placed = problem.place(theta, z)

        def lagrangian(w: Vector) -> Any:
            cost, values, _ = evaluate(problem, theta, *moved_by(problem, theta, placed, s, w))
            return cost + sum((c * m).sum() for c, m in zip(values, multipliers, strict=True)), values

        slope, values = jax.grad(lagrangian, has_aux=True)(still)
        return slope, tuple(on * c for on, c in zip(active, values, strict=True))

    right = jax.tree.map(lambda x: jnp.where(converged, -x, 0), jax.jvp(conditions, (theta,), (dtheta,))[1])
    slopes = slopes_of(problem, theta, z, s)
    second = partial(newton_blocks, problem, theta, z, s, slopes, multipliers, active)
    matrix = assembled(problem, second(0.0))

    def by_constraints(w: Vector) -> tuple[jax.Array, ...]:
        w = (jnp.asarray(problem.free[0]) * w[0], jnp.asarray(problem.free[1]) * w[1])
        rows = [
            joined(
                [jnp.einsum("icw,iw->ic", J, gather(p.span, w)) for p, J in zip(t.parts, x.rows(x.by_p.c), strict=True)]
            )
            for t, x in zip(problem.terms, slopes, strict=True)
        ]
        return tuple(on * row for on, row in zip(active, rows, strict=True))

    transposed = lambda m: jax.linear_transpose(by_constraints, still)(m)[0]

    def times(x: Any) -> Any:
        w, m = x
        inactive = tuple((1 - on) * x for on, x in zip(active, m, strict=True))  # their multipliers stay zero
        return jax.tree.map(jnp.add, matrix @ w, transposed(m)), jax.tree.map(jnp.add, by_constraints(w), inactive)

    penalty = 1e2 * (1 + jnp.abs(matrix.diagonal).max())
    slack = [congruent(x, of_penalty(x, on, penalty)) for x, on in zip(slopes, active, strict=True)]
    raised = jax.tree.map(jnp.add, matrix, assembled(problem, slack))
    factor = factorise(raised.shifted(_SHIFT[1]))

    def nearly(right: Any) -> Any:
        """Solve with -1 / penalty in place of the zero block."""
        b, d = right
        w = factor.solve(jax.tree.map(lambda b, x: b + penalty * x, b, transposed(d)))
        error = jax.tree.map(lambda x, y: x - y, by_constraints(w), d)
        m = tuple(on * penalty * e + (1 - on) * d for on, e, d in zip(active, error, d, strict=True))
        return w, m

    def solve_linear(right: Any) -> Any:
        def refine(_: Any, x: Any) -> Any:
            error = jax.tree.map(jnp.subtract, right, times(x))
            return jax.tree.map(jnp.add, x, nearly(error))

        x = jax.lax.fori_loop(0, _REFINEMENTS, refine, jax.tree.map(jnp.zeros_like, right))
        well = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(x)]).all()
        return jax.tree.map(lambda x: jnp.where(well, x, 0), x)

    b, restore = ravel_pytree(right)
    flat = lambda f: lambda x: ravel_pytree(f(restore(x)))[0]
    x = jax.lax.custom_linear_solve(flat(times), b, lambda _, b: flat(solve_linear)(b), symmetric=True)
    w, m = restore(x)
    place = lambda theta, w: moved_by(problem, theta, problem.place(theta, z), s, w)
    dz, ds = jax.jvp(place, (theta, still), (dtheta, w))[1]
    nothing = jax.tree.map(_no_change, out)
    return out, nothing._replace(z=dz, s=ds, multipliers=m)


def _filled(values: Any, changes: Any) -> Any:
    """Return changes with zeros where there are none."""
    return jax.tree.map(
        lambda x, dx: _no_change(x) if isinstance(dx, SymbolicZero) else dx,
        values,
        changes,
    )


def _no_change(x: jax.Array) -> Any:
    floating = jnp.issubdtype(jnp.result_type(x), jnp.floating)
    return jnp.zeros_like(x) if floating else np.zeros(jnp.shape(x), jax.dtypes.float0)
