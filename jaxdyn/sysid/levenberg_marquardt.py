r"""Levenberg and Marquardt's method for output errors, with bounds.

.. math:: (H + \lambda h\, 1)\, x = -g

in units in which coordinates are of size one (`Unknowns.sizes`), so that those on which the data do not depend stay
where they are. h is the largest number on the diagonal of H; lambda goes by Nielsen's rule (1999): it falls while the
quadratic model predicts well, and rises until a step makes progress. The states in which simulations start are
eliminated window by window. A coordinate at its bound that would leave it is held for the step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn._numerics import safe_reciprocal
from jaxdyn.sysid.output_error import Normal, Point, Problem, squared
from jaxdyn.sysid.solving import RUNNING, Status, show

HISTORY = ("rms", "gradient", "damping", "step")
LEAST, FIRST, MOST = 1e-14, 1e-3, 1e12
"""Damping: its bounds, and where it starts."""


class Search(NamedTuple):
    """Where a search is."""

    point: Point
    cost: jax.Array
    residuals: jax.Array
    normal: Normal
    damping: jax.Array
    growth: jax.Array
    status: jax.Array
    iteration: jax.Array
    history: jax.Array
    """(max_iterations, 4), see HISTORY."""


def search(problem: Problem, tolerance: Any, target_rms: Any, max_iterations: int, verbose: bool) -> Search:
    """Return where the search ends. Its first iteration evaluates the start, so that all is compiled once."""
    start, dtype = problem.start, problem.start.theta.dtype
    number = lambda x: jnp.asarray(x, dtype)
    count = jnp.maximum(problem.count, 1).astype(dtype)

    def iterate(at: Search) -> Search:
        first = at.iteration == 0
        step = _step(problem, at)
        step = jax.tree.map(lambda x: jnp.where(first, 0, x), step)
        point = problem.move(at.point, step)
        moved = Point(point.theta - at.point.theta, step.q0, step.qd0)  # bounds may have shortened the step
        residuals, normal = problem.linearize(point)
        cost = problem.cost(point, residuals)
        expected = -_change(at.normal, moved)
        better = jnp.isfinite(cost) & (cost < at.cost)
        better &= jnp.isfinite(jnp.concatenate([x.ravel() for x in normal])).all()
        point, cost, residuals, normal = jax.tree.map(
            lambda new, old: jnp.where(better, new, old),
            (point, cost, residuals, normal),
            (at.point, at.cost, at.residuals, at.normal),
        )
        gain = jnp.where(first, 1, (at.cost - cost) * safe_reciprocal(expected))
        easier = jnp.where(first, 1, jnp.clip(1 - (2 * gain - 1) ** 3, 1 / 3, 2))
        damping = jnp.clip(at.damping * jnp.where(better, easier, at.growth), LEAST, 2 * MOST)
        growth = jnp.where(better, 2, 2 * at.growth)
        steepness = _steepness(problem, point, normal, cost)
        rms = jnp.sqrt(2 * cost / count)
        flat = ~first & (at.growth == 2) & (expected >= 0) & (expected <= tolerance * cost)
        done = flat | (steepness <= tolerance) | (rms <= target_rms)
        status = jnp.where(damping > MOST, Status.STALLED, RUNNING)
        status = jnp.where(done, Status.CONVERGED, status)
        status = jnp.where(jnp.isfinite(cost), status, Status.NOT_FINITE)
        length = jnp.sqrt(sum(map(squared, moved)))
        row = jnp.stack(
            [jnp.where(jnp.isfinite(rms), rms, 0), steepness, damping, jnp.where(jnp.isfinite(length), length, 0)]
        )
        if verbose:
            show(HISTORY, at.iteration, list(row))
        history = at.history.at[at.iteration].set(row)
        return Search(point, cost, residuals, normal, damping, growth, status, at.iteration + 1, history)

    def goes_on(at: Search) -> jax.Array:
        return (at.status == RUNNING) & (at.iteration < max_iterations)

    p, (B, n) = start.theta.size, (len(start.q0), 2 * problem.model.nv * problem.unknowns.initial_state)
    shapes = ((p, p), (B, p, n), (B, n, n), (p,), (B, n))
    begin = Search(
        start,
        number(jnp.inf),
        jnp.zeros_like(problem.windows.weights),
        Normal(*(jnp.zeros(shape, dtype) for shape in shapes)),
        number(FIRST),
        number(2),
        jnp.asarray(RUNNING),
        jnp.asarray(0),
        jnp.zeros((max_iterations, len(HISTORY)), dtype),
    )
    end = jax.lax.while_loop(goes_on, iterate, begin)
    return end._replace(status=jnp.where(end.status == RUNNING, Status.MAX_ITERATIONS, end.status))


def information(normal: Normal) -> jax.Array:
    """Return the matrix of the normal equations of the model's coordinates, starts of windows eliminated."""
    if not normal.g_s.shape[-1]:
        return normal.H_pp
    return normal.H_pp - (normal.H_ps @ jax.vmap(_solve)(normal.H_ss, jnp.swapaxes(normal.H_ps, -1, -2))).sum(0)


def _free(problem: Problem, point: Point, g: jax.Array) -> jax.Array:
    """Return which coordinates may move: all but those at their bounds that would leave them."""
    lower = problem.unknowns.lower_bounds().astype(g.dtype)
    return ~((point.theta <= lower) & (g > 0))


def _step(problem: Problem, at: Search) -> Point:
    """Return the step for the present damping, no longer than coordinates are large."""
    normal, free = at.normal, _free(problem, at.point, at.normal.g_p)
    sizes = problem.unknowns.sizes(problem.model)
    g_p = jnp.where(free, sizes * normal.g_p, 0)
    H_pp = jnp.where(free[:, None] & free[None], sizes[:, None] * normal.H_pp * sizes[None], 0)
    H_pp = H_pp + at.damping * _largest(H_pp) * jnp.eye(len(g_p), dtype=g_p.dtype)
    still = jnp.zeros_like(at.point.qd0)
    if not problem.unknowns.initial_state:
        return _shortened(Point(-_solve(H_pp, g_p), still, still), sizes)
    H_ps = jnp.where(free[None, :, None], sizes[None, :, None] * normal.H_ps, 0)
    H_ss = jax.vmap(lambda H: H + at.damping * jnp.diag(jnp.diagonal(H)))(normal.H_ss)
    right = jnp.concatenate([jnp.swapaxes(H_ps, -1, -2), normal.g_s[..., None]], -1)
    by = jax.vmap(_solve)(H_ss, right)
    H_sp, g_s = by[..., :-1], by[..., -1]
    p = -_solve(H_pp - (H_ps @ H_sp).sum(0), g_p - (H_ps @ g_s[..., None]).sum(0)[:, 0])
    x = -g_s - H_sp @ p
    return _shortened(Point(p, x[:, : problem.model.nv], x[:, problem.model.nv :]), sizes)


def _shortened(step: Point, sizes: jax.Array) -> Point:
    """Return a step whose theta is in units of the sizes as one in its own, none longer than its size."""
    factor = 1 / jnp.maximum(jnp.abs(step.theta).max(initial=0), 1)
    return Point(sizes * step.theta * factor, step.q0 * factor, step.qd0 * factor)


def _largest(H: jax.Array) -> jax.Array:
    """Return the largest number on the diagonal, one if all are zero."""
    largest = jnp.diagonal(H).max(initial=0)
    return jnp.where(largest > 0, largest, 1)


def _solve(H: jax.Array, G: jax.Array) -> jax.Array:
    """Solve H x = G, positive definite, in units in which the diagonal is one."""
    diagonal = jnp.diagonal(H)
    root = jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1))
    L = jnp.linalg.cholesky(H / (root[:, None] * root[None]))
    scale = root.reshape(-1, *[1] * (G.ndim - 1))
    return jax.scipy.linalg.cho_solve((L, True), G / scale) / scale


def _change(normal: Normal, x: Point) -> jax.Array:
    """Return by how much the quadratic model of the cost changes with a step."""
    p, s = x.theta, jnp.concatenate([x.q0, x.qd0], axis=1)
    change = p @ normal.g_p + 0.5 * p @ normal.H_pp @ p
    if not normal.g_s.shape[-1]:
        return change
    of_starts = normal.g_s + normal.H_ps.swapaxes(-1, -2) @ p + 0.5 * (normal.H_ss @ s[..., None])[..., 0]
    return change + (s * of_starts).sum()


def _steepness(problem: Problem, point: Point, normal: Normal, cost: jax.Array) -> jax.Array:
    """Return the largest cosine between the residuals and a column of their Jacobian, zero at an optimum."""
    g = jnp.concatenate([jnp.where(_free(problem, point, normal.g_p), normal.g_p, 0), normal.g_s.ravel()])
    squares = jnp.concatenate([jnp.diagonal(normal.H_pp), jnp.diagonal(normal.H_ss, axis1=-2, axis2=-1).ravel()])
    lengths = jnp.sqrt(squares * 2 * jnp.where(jnp.isfinite(cost), cost, 0))
    return (jnp.abs(g) * safe_reciprocal(lengths)).max(initial=0)
