r"""The problem of `objective` in coordinates without bounds: log-Cholesky for links, logarithms for joint terms.

A twin of `entropic` by Levenberg and Marquardt's method. In these coordinates F is not convex, but they are a smooth
one-to-one image of the physical parameters, in which it is: whatever is stationary is the one minimum.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn._compiling import jit
from jaxdyn.model import from_log_cholesky, from_pseudo_inertia, log_cholesky_jacobian, pseudo_inertia
from jaxdyn.model.physical import _log_cholesky
from jaxdyn.sysid.objective import (
    History,
    Point,
    Solution,
    System,
    basis,
    einsum,
    first_weight,
    next_weight,
    objective,
    scaled,
    tolerance,
)  # fmt: skip

FIRST, LEAST, MOST = 1e-3, 1e-12, 1e12
"""Damping: at the start, and its bounds."""


class _Coordinates(NamedTuple):
    theta: jax.Array
    """(bodies, 10)."""
    y: jax.Array
    """(joint terms,) log(z / s)."""
    o: jax.Array
    """(offsets,)."""


def _point(system: System, x: _Coordinates) -> Point:
    return Point(pseudo_inertia(from_log_cholesky(x.theta)), system.scale * jnp.exp(x.y), x.o)


def _local(theta: jax.Array, L: jax.Array) -> jax.Array:
    """Return the derivative (bodies, 10, 10) of the local coordinates W by theta."""
    dP = pseudo_inertia(jnp.swapaxes(log_cholesky_jacobian(theta), 1, 2))  # (bodies, theta, 4, 4)
    lower = jnp.broadcast_to(L[:, None], dP.shape)
    half = jax.lax.linalg.triangular_solve(lower, dP, left_side=True, lower=True)
    W = jax.lax.linalg.triangular_solve(lower, jnp.swapaxes(half, 2, 3), left_side=True, lower=True)
    return einsum("kij,btij->bkt", basis(L), W)


def _added(x: _Coordinates, step: jax.Array) -> _Coordinates:
    bodies, terms = x.theta.size, len(x.y)
    theta = x.theta + step[:bodies].reshape(x.theta.shape)
    return _Coordinates(theta, x.y + step[bodies : bodies + terms], x.o + step[bodies + terms :])


@partial(jit, static_argnames="max_iterations")
def solve(system: System, gamma: Any, start: Point, *, max_iterations: int = 1000) -> Solution:
    """Minimise F; arguments as `entropic.solve`."""
    system, gamma, start = jax.lax.stop_gradient((system, jnp.asarray(gamma, system.R.dtype), start))
    return _iterate(system, gamma, start, max_iterations)


def _iterate(system: System, gamma: jax.Array, start: Point, max_iterations: int) -> Solution:
    enough, bodies = tolerance(system, gamma), 10 * len(system.Q)
    blank = jnp.zeros(max_iterations, system.R.dtype)

    def goes_on(state: Any) -> Any:
        _, _, damping, done, k, _ = state
        return ~done & (k < max_iterations) & (damping < MOST)

    def step(state: Any) -> Any:
        x, weight, damping, _, k, history = state
        F = objective(system, weight, _point(system, x))
        s = scaled(system, weight, _point(system, x))
        T = _local(x.theta, s.L)
        by_theta = lambda A: einsum("mbk,bkt->mbt", A[:, :bodies].reshape(len(A), -1, 10), T).reshape(len(A), -1)
        root = jnp.sqrt(s.weight)
        everything = jnp.concatenate([s.M, jnp.diag(root)])
        J = jnp.concatenate([by_theta(everything), everything[:, bodies:]], axis=1)
        H = einsum("mi,mj->ij", J, J)
        T = jnp.linalg.cholesky(H + damping * jnp.diag(jnp.diagonal(H)), upper=True)
        down = einsum("mn,m->n", J, jnp.concatenate([s.residual, -root * s.slope]))
        d = jax.scipy.linalg.cho_solve((T, False), down)
        decrement = (einsum("mn,n->m", J, d) ** 2).sum()
        there = _added(x, d)
        gain = F - objective(system, weight, _point(system, there))
        better = gain >= -1e-3 * enough  # not with NaN
        full = jnp.where(better, 1.0, 0.0).astype(F.dtype)
        history = history.noted(k, History(objective(system, gamma, _point(system, x)), decrement, full, weight))
        good = better & (gain > 0.25 * decrement)
        damping = jnp.clip(damping * jnp.where(good, 0.1, jnp.where(better, 1.0, 8.0)).astype(F.dtype), LEAST, MOST)
        x = jax.tree.map(lambda new, old: jnp.where(better, new, old), there, x)
        done = better & (decrement <= enough) & (weight <= gamma)
        weight = jnp.where(better, next_weight(weight, gamma, decrement), weight)
        return x, weight, damping, done, k + 1, history

    x = _Coordinates(_log_cholesky(from_pseudo_inertia(start.P)), jnp.log(start.z / system.scale), start.o)
    state: Any = (
        x,
        first_weight(system, gamma, start),
        jnp.asarray(FIRST, blank.dtype),
        False,
        0,
        History.blank(blank),
    )
    x, _, _, done, k, history = jax.lax.while_loop(goes_on, step, state)
    return Solution(_point(system, x), done, k, history)
