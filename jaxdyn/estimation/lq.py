"""Linear-quadratic optimal control over the stages of a chain or a tree (003 section IV). Knows nothing of robots."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from jaxdyn.estimation.walk import inward, outward


class Problem(NamedTuple):
    r"""What is to be controlled, at what cost: stages k with n states and m controls (003 (32)-(33)).

    .. math:: x_k = A_k x_{p(k)} + B_k u_k, \qquad
              \min \sum_k \tfrac12 x_k^* M_k x_k + h_k^* x_k + \tfrac12 u_k^* W_k u_k - t_k^* u_k

    p(k) is the stage before k. In the paper stages are a chain, p(k) = k - 1, and W is zero.
    """

    A: jax.Array
    """(stages, n, n) from the state before to the state."""
    B: jax.Array
    """(stages, n, m) from the control to the state."""
    M: jax.Array
    """(stages, n, n) weight of the state, symmetric, not negative."""
    h: jax.Array
    """(stages, n) linear cost of the state."""
    W: jax.Array
    """(stages, m, m) weight of the control, symmetric, not negative."""
    t: jax.Array
    """(stages, m) linear gain of the control."""


class Solution(NamedTuple):
    """The optimal motion and the feedback that gives it."""

    x: jax.Array
    """(stages, n) states."""
    u: jax.Array
    """(stages, m) controls."""
    lam: jax.Array
    """(stages, n) costates, -(S x + r) (003 (38))."""
    S: jax.Array
    """(stages, n, n) and"""
    r: jax.Array
    """(stages, n): what a state costs from here on is x* S x / 2 + r* x, and a constant."""
    R: jax.Array
    """(stages, m, m) what a control costs from here on, B* S B + W."""
    K: jax.Array
    """(stages, m, n) feedback gain: u = -K x_before + R^-1 (t - B* r)."""


class _Stage(NamedTuple):
    """What the way back leaves at a stage."""

    S: jax.Array
    r: jax.Array
    R: jax.Array
    K: jax.Array
    ahead: jax.Array
    """R^-1 (t - B* r), what the control is without feedback."""


def _riccati(later: Any, stage: Problem) -> Any:
    """Go one stage back: cost of a state from here on, and the best control (003 (39)-(42))."""
    A, B, M, h, W, t = stage
    S, r = later[0] + M, later[1] + h
    R = B.T @ S @ B + W
    solve = lambda y: cho_solve((jnp.linalg.cholesky(R), True), y)
    K = solve(B.T @ S @ A)
    closed = A - B @ K
    before = closed.T @ S @ closed + K.T @ W @ K, closed.T @ r + K.T @ t  # (42), (41)
    return before, _Stage(S, r, R, K, solve(t - B.T @ r))


def _advance(x: jax.Array, stage: Any) -> Any:
    """Go one stage on, with the best control (003 (33), (38)-(39))."""
    problem, found = stage
    u = found.ahead - found.K @ x
    x = problem.A @ x + problem.B @ u
    return x, (x, u, -(found.S @ x + found.r))


def solve(parents: tuple[int, ...], problem: Problem, x_0: jax.Array) -> Solution:
    """Find the controls of least cost: a Riccati sweep back from the last stages, then one forward.

    Args:
        parents: the stage before each, -1 for the start; for a chain (-1, 0, 1, ...), numbered depth-first.
        problem: the stages. B* S B + W has to be positive definite at every stage.
        x_0: the state at the start, (n,).

    Returns:
        States, controls, costates and gains.

    Example: a cart is pushed for ten steps, its distance from zero and the pushes cost something.

        >>> import jax.numpy as jnp
        >>> from jaxdyn.estimation import lq
        >>> n = 10
        >>> every = lambda x: jnp.broadcast_to(jnp.asarray(x), (n, *jnp.shape(x)))
        >>> A, B = every([[1.0, 0.1], [0.0, 1.0]]), every([[0.0], [0.1]])
        >>> cart = lq.Problem(A, B, every([[1.0, 0.0], [0.0, 0.0]]), every([0.0, 0.0]), every([[0.01]]), every([0.0]))
        >>> found = lq.solve(tuple(range(-1, n - 1)), cart, jnp.array([1.0, 0.0]))
        >>> found.x.shape, bool(found.u[0, 0] < 0)  # it is pushed back
        ((10, 2), True)
    """
    S, r = jnp.zeros_like(problem.M, shape=problem.M.shape[1:]), jnp.zeros_like(problem.h, shape=problem.h.shape[1:])
    found = inward(parents, _riccati, (S, r), problem)
    x, u, lam = outward(parents, _advance, x_0, (problem, found))
    return Solution(x, u, lam, found.S, found.r, found.R, found.K)


def index(parents: tuple[int, ...], problem: Problem, x_0: jax.Array, u: jax.Array) -> jax.Array:
    """Return the cost of given controls (stages, m), a scalar (003 (32))."""

    def cost(x: jax.Array, stage: Any) -> Any:
        (A, B, M, h, W, t), u = stage
        x = A @ x + B @ u
        return x, 0.5 * x @ M @ x + h @ x + 0.5 * u @ W @ u - t @ u

    return outward(parents, cost, x_0, (problem, u)).sum()
