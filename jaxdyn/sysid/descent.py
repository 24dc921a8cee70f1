"""Descent along the gradient through simulations, with any optimiser of optax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxdyn.sysid.levenberg_marquardt import HISTORY, Search
from jaxdyn.sysid.output_error import Point, Problem
from jaxdyn.sysid.solving import RUNNING, Status, finite_or_zero, show


def descend(
    problem: Problem, optimizer: Any, tolerance: Any, target_rms: Any, max_iterations: int, verbose: bool
) -> Search:
    """Return the best point that an optimiser visits, by reverse mode through the simulations.

    It descends on the mean square; what is returned is as from Levenberg and Marquardt's method.
    """
    start, dtype = problem.start, problem.start.theta.dtype
    count = jnp.maximum(problem.count, 1).astype(dtype)
    none = Point(jnp.zeros_like(start.theta), jnp.zeros_like(start.qd0), jnp.zeros_like(start.qd0))

    def loss(x: Point) -> jax.Array:
        point = problem.move(start, x)
        return 2 * problem.cost(point, problem.simulate(point, remat="sqrt")) / count

    def iterate(state: Any, i: jax.Array) -> Any:
        x, memory, best, least, status, done = state
        value, gradient = jax.value_and_grad(loss)(x)
        finite = jnp.isfinite(value) & jnp.stack([jnp.isfinite(leaf).all() for leaf in gradient]).all()
        running = status == RUNNING
        better = running & finite & (value < least)
        best, least = jax.tree.map(lambda new, old: jnp.where(better, new, old), (x, value), (best, least))
        steepness = jnp.sqrt(sum((leaf**2).sum() for leaf in finite_or_zero(gradient)))
        end = (jnp.sqrt(least) <= target_rms) | (steepness <= tolerance * jnp.sqrt(finite_or_zero(least)))
        status = jnp.where(running & end, Status.CONVERGED, status)
        status = jnp.where(running & ~finite, jnp.where(i == 0, Status.NOT_FINITE, Status.STALLED), status)
        update, memory = optimizer.update(finite_or_zero(gradient), memory, x)
        moved = optax.apply_updates(x, update)
        moved = moved._replace(theta=problem.move(start, moved).theta - start.theta)
        length = jnp.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(moved, x, strict=True)))
        row = jnp.stack([jnp.sqrt(finite_or_zero(value)), steepness, jnp.zeros_like(value), length])
        row = jnp.where(running, row, 0)
        if verbose:
            jax.lax.cond(running, lambda: show(HISTORY, i, list(row)), lambda: None)
        return (moved, memory, best, least, status, done + running), row

    begin = none, optimizer.init(none), none, jnp.asarray(jnp.inf, dtype), jnp.asarray(RUNNING), jnp.asarray(0)
    (_, _, best, _, status, iterations), history = jax.lax.scan(iterate, begin, jnp.arange(max_iterations))
    status = jnp.where(status == RUNNING, Status.MAX_ITERATIONS, status)
    point = problem.move(start, best)
    residuals, normal = problem.linearize(point)
    zero = jnp.zeros((), dtype)
    return Search(point, problem.cost(point, residuals), residuals, normal, zero, zero, status, iterations, history)
