r"""Newton's method for the convex problem of `objective`, and its path over the weight of the prior.

Each step solves

.. math:: \min_d |M d - r|^2 + |\Gamma^{1/2} (d + g)|^2

and goes along d as far as F falls: on a line F is a parabola and logarithms of the eigenvalues of the step. The weight
of the prior begins large, where the minimum is near, and is followed down to gamma.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn._compiling import jit
from jaxdyn.sysid.objective import (
    Gram,
    History,
    Point,
    Scaled,
    Solution,
    System,
    einsum,
    first_weight,
    moved,
    next_weight,
    objective,
    scaled,
    split,
    times_scale,
    tolerance,
)  # fmt: skip

LONGEST = 4.0
"""No step is longer than so many Newton steps."""
BISECTIONS = 26


def newton_step(s: Scaled, *, accurate: bool = True) -> tuple[jax.Array, jax.Array]:
    """Return the Newton step d (n,), and the triangular factor T (n, n) of the second derivative, T^T T.

    By an orthogonal factorisation, which keeps its digits where only a light prior says anything; or by the normal
    equations, several times faster, good for weights of at least `least_gamma`.
    """
    solve_ = jax.scipy.linalg.solve_triangular
    if accurate:
        root = jnp.sqrt(s.weight)
        Q, T = jnp.linalg.qr(jnp.concatenate([s.M, jnp.diag(root)]))
        return solve_(T, einsum("mn,m->n", Q, jnp.concatenate([s.residual, -root * s.slope]))), T
    T = jnp.linalg.cholesky(einsum("mi,mj->ij", s.M, s.M) + jnp.diag(s.weight), upper=True)
    return solve_(T, solve_(T, einsum("mn,m->n", s.M, s.residual) - s.weight * s.slope, trans=1)), T


def _length(at: Point, s: Scaled, d: jax.Array) -> jax.Array:
    """Return t > 0 that minimises F along d, within what is physical."""
    W, u, _ = split(at, d)
    w = jnp.concatenate([jnp.linalg.eigvalsh(W).ravel(), u])  # the barrier is -log(1 + t w), each
    heavy = jnp.concatenate([jnp.repeat(s.weight[: 10 * len(at.P) : 10], 4), s.weight[10 * len(at.P) :][: len(u)]])
    Md = einsum("mn,n->m", s.M, d)
    trace = einsum("bii->b", W)
    linear = -(s.residual * Md).sum() + (s.weight * s.slope * d).sum()
    linear = linear + (s.weight[: 10 * len(at.P) : 10] * trace).sum() + (heavy[4 * len(at.P) :] * u).sum()
    falling = lambda t: linear + t * (Md * Md).sum() - (heavy * w / (1 + t * w)).sum() < 0
    low, high = jnp.zeros((), d.dtype), jnp.minimum(LONGEST, 0.99 / jnp.maximum((-w).max(initial=0), 1e-12))

    def halve(_: int, ends: Any) -> Any:
        low, high = ends
        middle = (low + high) / 2
        return jnp.where(falling(middle), middle, low), jnp.where(falling(middle), high, middle)

    low, high = jax.lax.fori_loop(0, BISECTIONS, halve, (low, high))
    return (low + high) / 2


def iterate(
    system: System, gamma: Any, start: Point, *, max_iterations: int, near: Any = False, accurate: bool = False
) -> Solution:
    """Minimise F from a point; not to be differentiated, see `solve`.

    The weight of the prior begins large and falls to gamma, unless the start is known to be near the minimum.
    """
    gamma = jnp.asarray(gamma, system.R.dtype)
    enough = tolerance(system, gamma)
    blank = jnp.zeros(max_iterations, system.R.dtype)

    def goes_on(state: Any) -> Any:
        _, _, done, k, _ = state
        return ~done & (k < max_iterations)

    def step(state: Any) -> Any:
        at, weight, _, k, history = state
        s = scaled(system, weight, at)
        d, T = newton_step(s, accurate=accurate)
        d = jnp.where(jnp.isfinite(d).all(), d, 0)
        decrement = (einsum("mn,n->m", T, d) ** 2).sum()
        t = _length(at, s, d)
        history = history.noted(k, History(objective(system, gamma, at), decrement, t, weight))
        done = (decrement <= enough) & (weight <= gamma)
        return moved(at, s.L, t * d), next_weight(weight, gamma, decrement), done, k + 1, history

    first = jnp.where(near, gamma, first_weight(system, gamma, start))
    state: Any = start, first, False, 0, History.blank(blank)
    at, _, done, k, history = jax.lax.while_loop(goes_on, step, state)
    return Solution(at, done, k, history)


@partial(jit, static_argnames=("max_iterations", "accurate"))
def solve(system: System, gamma: Any, start: Point, *, max_iterations: int = 200, accurate: bool = True) -> Solution:
    """Minimise F; not to be differentiated, see `implicit`."""
    system, gamma, start = jax.lax.stop_gradient((system, gamma, start))
    return iterate(system, gamma, start, max_iterations=max_iterations, accurate=accurate)


@jit
def implicit(system: System, gram: Gram, gamma: Any, at: Point) -> jax.Array:
    """Return the parameters (n,) of a minimum with its derivatives by data, prior and gamma.

    By the implicit function theorem: a change of data moves the minimum as one Newton step would.
    """
    at, fixed = jax.lax.stop_gradient((at, system))
    x = at.vector()
    s = scaled(fixed._replace(Q=system.Q, scale=system.scale), jnp.asarray(gamma, x.dtype), at)
    _, T = newton_step(jax.lax.stop_gradient(s))
    S = times_scale(jnp.eye(len(x), dtype=x.dtype), jax.lax.stop_gradient(s.L), at.z)
    down = einsum("nk,n->k", S, gram.h - einsum("mn,n->m", gram.G, x)) - s.weight * s.slope
    solve_ = partial(jax.scipy.linalg.solve_triangular, T)
    change = einsum("nk,k->n", S, solve_(solve_(down - jax.lax.stop_gradient(down), trans=1)))
    return x + change


@partial(jit, static_argnames="max_iterations")
def path(system: System, gammas: jax.Array, start: Point, *, max_iterations: int = 40) -> tuple[jax.Array, jax.Array]:
    """Return the minima (len(gammas), n) over a descending series of gamma, each from the last, and which converged."""

    def next_one(at: Point, one: Any) -> Any:
        gamma, near = one
        found = iterate(system, gamma, at, max_iterations=max_iterations, near=near)
        return found.point, (found.point.vector(), found.converged)

    return jax.lax.scan(next_one, start, (gammas, jnp.arange(len(gammas)) > 0))[1]
