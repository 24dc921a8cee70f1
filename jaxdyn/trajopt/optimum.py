r"""Derivatives of solutions, from the conditions that an optimum satisfies.

With y the states, inputs and multipliers, an optimum has :math:`\nabla_y L(y, \theta) = 0`. Along any direction of what
the problem depends on (model, start, costs),

.. math:: \nabla_y^2 L\; dy = -\partial_\theta \nabla_y L\; d\theta,

a linear-quadratic problem with exact second derivatives, solved by one backward and one forward pass. Its matrix is
symmetric, so that JAX transposes the rule for the reverse mode. States are moved in the tangents of the solution's:
:math:`x_i \oplus \xi_i`. Inputs at a bound stay there, and move with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree


class _Point(NamedTuple):
    """Where a Lagrangian is asked for, or a direction from there."""

    xi: jax.Array
    """(T + 1, n) changes of the states."""
    u: jax.Array
    """(T, m) inputs."""
    mu: jax.Array
    """(T + 1, n) multipliers: of the start, and of every step."""


def differentiable(solve: Callable[..., Any]) -> Callable[..., Any]:
    """Give solve(options, problem, us, xs, settings) -> Found the derivatives of an optimum, by the problem."""
    rule = jax.custom_jvp(solve, nondiff_argnums=(0,))

    @rule.defjvp
    def derivative(options: Any, primals: Any, tangents: Any) -> Any:
        problem, us, xs, settings = primals
        found = rule(options, problem, us, xs, settings)
        dx, du, dcost = _moved(problem, tangents[0], found.xs, found.us)
        rest = jax.tree.map(_unchanged, found.rest)
        return found, found._replace(xs=dx, us=du, cost=dcost, rest=rest)

    return rule


def _unchanged(x: jax.Array) -> Any:
    return jnp.zeros_like(x) if jnp.issubdtype(x.dtype, jnp.floating) else np.zeros(x.shape, jax.dtypes.float0)


@jax.custom_jvp
def once(solution: Any) -> Any:
    """Return a solution, which its first derivative depends on, and refuse to be differentiated."""
    return solution


@once.defjvp
def _twice(primals: Any, tangents: Any) -> Any:
    raise NotImplementedError(
        "solutions can be differentiated once; for second derivatives take differences of first ones"
    )


def _moved(problem: Any, change: Any, xs: jax.Array, us: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the changes of states, inputs and cost of an optimum along a change of its problem."""
    xs, us = once((xs, us))
    problem, change = (p._replace(plant=p.plant.differentiable) for p in (problem, change))
    plant, T, n = problem.plant, us.shape[0], problem.plant.ndx
    F, multipliers = _multipliers(problem, xs, us)
    at = _Point(jnp.zeros((T + 1, n), xs.dtype), us, multipliers)
    lagrangian = lambda point, problem: _lagrangian(problem, point, xs)
    slope = lambda point, problem: jax.grad(lagrangian)(point, problem)

    bounded = problem.lower is not None
    free, held = jnp.ones_like(us, bool), jnp.zeros_like(us)
    if bounded:
        at_lower, at_upper = us <= problem.lower, us >= problem.upper
        free = ~(at_lower | at_upper)
        held = jnp.where(at_lower, change.lower, jnp.where(at_upper, change.upper, 0))
        problem, change = (p._replace(lower=None, upper=None) for p in (problem, change))
    only_free = lambda point: point._replace(u=jnp.where(free, point.u, 0))
    product = lambda d: jax.jvp(lambda point: slope(point, problem), (at,), (d,))[1]

    def masked(d: _Point) -> _Point:
        result = product(only_free(d))
        return result._replace(u=jnp.where(free, result.u, d.u))

    with_bounds = jax.tree.map(jnp.zeros_like, at)._replace(u=held)

    by_problem = jax.jvp(lambda problem: slope(at, problem), (problem,), (change,))[1]
    if bounded:
        by_problem = jax.tree.map(jnp.add, by_problem, product(with_bounds))
    right = jax.tree.map(jnp.negative, by_problem)
    H, H_end = hessians(problem, us, multipliers, xs, xs[1:])
    # One vector: JAX transposes nothing of which a part does not change.
    b, point = ravel_pytree(only_free(right))
    flat = lambda of: lambda x: ravel_pytree(of(point(x)))[0]
    solve = flat(lambda b: _solved(F, H, H_end, free, b))
    moved = point(jax.lax.custom_linear_solve(flat(masked), b, lambda _, b: solve(b), symmetric=True))
    cost = jax.jvp(lambda problem: lagrangian(at, problem), (problem,), (change,))[1]
    cost = cost + (slope(at, problem).u * held).sum() if bounded else cost
    along = lambda x, d: jax.jvp(lambda e: plant.integrate(x, e), (jnp.zeros_like(d),), (d,))[1]
    return jax.vmap(along)(xs, moved.xi), moved.u + held, cost


def _stage(problem: Any, xi: Any, u: Any, mu: Any, x: Any, x_after: Any, i: Any) -> jax.Array:
    """Return the running cost of a step, and what its multiplier makes of where it leads."""
    plant = problem.plant
    x = plant.integrate(x, xi)
    return problem.running.value(plant, x, u, i) + mu @ plant.difference(x_after, plant.step(x, u))


def _end(problem: Any, xi: jax.Array, x: jax.Array, u: jax.Array, steps: int) -> jax.Array:
    return problem.terminal.value(problem.plant, problem.plant.integrate(x, xi), jnp.zeros_like(u), steps)


def _lagrangian(problem: Any, point: _Point, xs: jax.Array) -> jax.Array:
    """Return the cost, with every condition times its multiplier."""
    T = point.u.shape[0]
    stage = lambda *args: _stage(problem, *args)
    stages = jax.vmap(stage)(point.xi[:-1], point.u, point.mu[1:], xs[:-1], xs[1:], jnp.arange(T))
    start = point.mu[0] @ problem.plant.difference(xs[0], problem.x0)
    return stages.sum() + _end(problem, point.xi[-1], xs[-1], point.u[0], T) + start - (point.mu * point.xi).sum()


def _multipliers(problem: Any, xs: jax.Array, us: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the derivatives of the steps (T, n, n + m) and the multipliers of a solution (T + 1, n)."""
    plant, T, n = problem.plant, us.shape[0], problem.plant.ndx
    F = jax.vmap(lambda x, u, after: plant.linearize(x, u, after, plant.first_order(x, after)))(xs[:-1], us, xs[1:])
    of_cost = lambda xi, x, u, i: problem.running.value(plant, plant.integrate(x, xi), u, i)
    slopes = jax.vmap(jax.grad(of_cost))(jnp.zeros((T, n), xs.dtype), xs[:-1], us, jnp.arange(T))
    last = jax.grad(lambda xi: _end(problem, xi, xs[-1], us[0], T))(jnp.zeros(n, xs.dtype))

    return F, costates(F, slopes, last)


def costates(F: jax.Array, slopes: jax.Array, last: jax.Array) -> jax.Array:
    """Return the multipliers (T + 1, n) of a motion, from the derivatives of its steps (T, n, n + m) and costs by x."""

    def step(mu: jax.Array, row: Any) -> Any:
        mu = row[0] + row[1][:, : len(mu)].T @ mu
        return mu, mu

    rows = jax.lax.scan(step, last, (slopes, F), reverse=True)[1]
    return jnp.concatenate([rows, last[None]])


def hessians(
    problem: Any, us: jax.Array, mu: jax.Array, xs: jax.Array, after: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the second derivatives of the Lagrangian by states, in their tangents, and inputs of every step.

    Args:
        problem: the problem.
        us: inputs, (T, m).
        mu: multipliers, (T + 1, n); of them, those of the steps enter.
        xs: states, (T + 1, nx).
        after: where the steps lead, (T, nx): on a motion without gaps, the states but for the first.

    Returns:
        (T, n + m, n + m), and at the end (n, n).
    """
    (T, _), n = us.shape, mu.shape[1]

    def hessian(u: Any, mu: Any, x: Any, after: Any, i: Any) -> jax.Array:
        of = lambda z: _stage(problem, z[:n], z[n:], mu, x, after, i)
        return jax.jacfwd(jax.grad(of))(jnp.concatenate([jnp.zeros(n, u.dtype), u]))

    H = jax.vmap(hessian)(us, mu[1:], xs[:-1], after, jnp.arange(T))
    return H, jax.hessian(lambda xi: _end(problem, xi, xs[-1], us[0], T))(jnp.zeros(n, us.dtype))


def _solved(F: jax.Array, H: jax.Array, H_end: jax.Array, free: jax.Array, b: _Point) -> _Point:
    """Return the solution of the equations of a linear-quadratic problem, of which b is the right-hand side."""
    n, m = b.xi.shape[1], b.u.shape[1]
    keep = jnp.concatenate([jnp.ones((free.shape[0], n), bool), free], axis=1)
    one = jnp.diag(jnp.concatenate([jnp.zeros(n), jnp.ones(m)])).astype(H.dtype)[None]
    H = jnp.where(keep[:, :, None] & keep[:, None], H, 0) + jnp.where(keep[:, :, None] & keep[:, None], 0, one)
    F = jnp.where(keep[:, None], F, 0)

    def inward(carry: Any, row: Any) -> Any:
        P, p = carry  # the multiplier of the state after the step is P x + p
        F, H, b_x, b_u, gap = row
        slope = F.T @ (p - P @ gap) - jnp.concatenate([b_x, b_u])
        Q = H + F.T @ P @ F
        gains = -jnp.linalg.solve(Q[n:, n:], jnp.concatenate([Q[n:, :n], slope[n:, None]], axis=1))
        K, k = gains[:, :n], gains[:, n]
        new = Q[:n, :n] + Q[:n, n:] @ K, slope[:n] + Q[:n, n:] @ k
        return new, (K, k, *new)

    _, (K, k, P, p) = jax.lax.scan(inward, (H_end, -b.xi[-1]), (F, H, b.xi[:-1], b.u, b.mu[1:]), reverse=True)

    def outward(x: jax.Array, row: Any) -> Any:
        F, K, k, gap = row
        u = K @ x + k
        return F @ jnp.concatenate([x, u]) - gap, (x, u)

    end, (xi, u) = jax.lax.scan(outward, -b.mu[0], (F, K, k, b.mu[1:]))
    xi = jnp.concatenate([xi, end[None]])
    mu = jnp.concatenate([jnp.einsum("tij,tj->ti", P, xi[:-1]) + p, (H_end @ end - b.xi[-1])[None]])
    return _Point(xi, jnp.where(free, u, b.u), mu)
