r"""The backward pass: linear feedback that is best for a linear-quadratic problem.

.. math:: \min \sum_i \tfrac{1}{2} z_i^T H_i z_i + h_i^T z_i, \qquad
    x_{i+1} = F_i z_i + f_i, \qquad z_i = (x_i, u_i)

Linear terms and constants are carried along as one more state that is always 1: with y = (x, 1), the cost to go is
:math:`V_i(x) = y^T P_i\, y / 2`, and everything is a product of matrices. Three ways: a scan from the last step to the
first; the same in logarithmic depth, by an associative scan (Sarkka and Garcia-Fernandez 2023); and a scan that keeps
inputs within bounds (Tassa, Mansard and Todorov 2014).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.scipy.linalg import cho_solve


class Quadratic(NamedTuple):
    """A linear-quadratic problem, of T steps, n states and m inputs."""

    F: jax.Array
    """(T, n, n + m) derivatives of the steps."""
    f: jax.Array
    """(T, n) what is missing to the next state: gaps."""
    h: jax.Array
    """(T, n + m) gradients of the running cost."""
    H: jax.Array
    """(T, n + m, n + m) its Hessians."""
    h_end: jax.Array
    """(n,) gradient of the terminal cost."""
    H_end: jax.Array
    """(n, n) its Hessian."""


class Policy(NamedTuple):
    """u = k + K x."""

    k: jax.Array
    """(T, m)."""
    K: jax.Array
    """(T, m, n)."""
    change: jax.Array
    """() change of the cost from x_0 = 0, u = 0 that the policy brings about."""


@custom_vmap
def by_scan(lq: Quadratic, regularization: Any) -> Policy:
    """Return the best policy, by a scan over time."""
    G, L = _stacked(lq, regularization)
    n = lq.f.shape[1]

    def step(P: jax.Array, x: Any) -> Any:
        factor, W, V = _eliminated(x[1] + x[0].T @ (P @ x[0]), n)
        return _symmetric(V), (factor, W)

    P, (factors, W) = jax.lax.scan(step, _end(lq), (G, L), reverse=True)
    return _policy(factors, W, 0.5 * P[n, n])


@by_scan.def_vmap
def _by_scan_together(size: int, is_batched: Any, lq: Quadratic, regularization: Any) -> Any:
    """Return the policies of a batch of problems.

    LAPACK takes one matrix at a time; here it is arithmetic on those of all problems. They are large, so that
    nothing is copied but what a step needs.
    """
    filled = lambda x, b: x if b else jnp.broadcast_to(x, (size, *jnp.shape(x)))
    lq, regularization = jax.tree.map(filled, (lq, regularization), tuple(is_batched))
    n, m, dtype = lq.f.shape[2], lq.F.shape[3] - lq.f.shape[2], lq.f.dtype
    added = regularization[:, None, None] * jnp.diag(jnp.repeat(jnp.array([0, 1], dtype), np.array([n, m])))[None]

    def step(after: Any, i: jax.Array) -> Any:
        """Go from the cost to go x' P x / 2 + p' x + c to that of the step before."""
        P, p, c = after
        P = (P + P.swapaxes(1, 2)) / 2
        F, f, h, H = (jax.lax.dynamic_index_in_dim(x, i, 1, keepdims=False) for x in (lq.F, lq.f, lq.h, lq.H))
        Pf = (P @ f[:, :, None])[:, :, 0]
        Q, q = H + added + F.swapaxes(1, 2) @ P @ F, h + ((p + Pf)[:, None] @ F)[:, 0]
        W, U = jax.vmap(_halfway)(Q[:, n:, n:], jnp.concatenate([Q[:, n:, :n], q[:, n:, None]], axis=2))
        W, w = W[:, :, :n], W[:, :, n]
        c = c + (f * (p + Pf / 2)).sum(1) - (w * w).sum(1) / 2
        return (Q[:, :n, :n] - W.swapaxes(1, 2) @ W, q[:, :n] - (W * w[:, :, None]).sum(1), c), -U

    start = lq.H_end, lq.h_end, jnp.zeros(size, dtype)
    (_, _, change), U = jax.lax.scan(step, start, jnp.arange(lq.F.shape[1]), reverse=True)
    U = jnp.moveaxis(U, 1, 0)
    policy = Policy(U[..., n], U[..., :n], change)
    return policy, jax.tree.map(lambda _: True, policy)


def by_associative_scan(lq: Quadratic, regularization: Any) -> Policy:
    """Return the best policy, in logarithmic depth. Hessians by the inputs must be positive themselves."""
    T, n = lq.f.shape
    m = lq.F.shape[2] - n
    S, R = lq.H[:, :n, n:], lq.H[:, n:, n:] + regularization * jnp.eye(m, dtype=lq.f.dtype)[None]
    A, B = lq.F[:, :, :n], lq.F[:, :, n:]
    # Inputs that are best without regard to the future are left out: u = -R^-1 (S' x + r) + v.
    right = jnp.concatenate([S.transpose(0, 2, 1), lq.h[:, n:, None], B.transpose(0, 2, 1)], axis=2)
    solved = jax.vmap(lambda R, b: cho_solve((jax.lax.linalg.cholesky(R), True), b))(R, right)
    by_x, by_one, by_B = solved[:, :, :n], solved[:, :, n], solved[:, :, n + 1 :]
    product = partial(jnp.einsum, "tij,tj->ti")
    zero = lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])])
    elements = (
        zero(A - B @ by_x),
        zero(lq.f - product(B, by_one)),
        zero(B @ by_B),
        jnp.concatenate([product(S, by_one) - lq.h[:, :n], -lq.h_end[None]]),
        jnp.concatenate([lq.H[:, :n, :n] - S @ by_x, lq.H_end[None]]),
    )
    _, _, _, eta, J = jax.lax.associative_scan(jax.vmap(_after), elements, reverse=True)
    corner = jnp.zeros((T + 1, 1, 1), lq.f.dtype)
    P = jnp.concatenate(
        [jnp.concatenate([J, -eta[:, :, None]], axis=2), jnp.concatenate([-eta[:, None], corner], axis=2)], axis=1
    )
    G, L = _stacked(lq, regularization)
    factors, W, V = jax.vmap(lambda P, G, L: _eliminated(L + G.T @ P @ G, n))(P[1:], G, L)
    return _policy(factors, W, 0.5 * V[:, n, n].sum())


def within_bounds(lq: Quadratic, regularization: Any, lower: jax.Array, upper: jax.Array) -> Policy:
    """Return the best policy whose k stays within bounds, (T, m); inputs at a bound have no feedback."""
    G, L = _stacked(lq, regularization)
    n = lq.f.shape[1]

    def step(carry: Any, x: Any) -> Any:
        P, warm = carry
        G, L, low, high = x
        H = L + G.T @ (P @ G)
        H_ux, H_uu = H[n + 1 :, : n + 1], H[n + 1 :, n + 1 :]
        k, free = box_minimum(H_uu, H_ux[:, n], low, high, warm)
        K = -_solve_free(H_uu, H_ux[:, :n], free)
        U = jnp.concatenate([K, k[:, None]], axis=1)
        cross = H_ux.T @ U
        P = H[: n + 1, : n + 1] + cross + cross.T + U.T @ (H_uu @ U)
        return (_symmetric(P), k), (k, K)

    (P, _), (k, K) = jax.lax.scan(step, (_end(lq), jnp.zeros_like(lower[0])), (G, L, lower, upper), reverse=True)
    return Policy(k, K, 0.5 * P[n, n])


def box_minimum(
    H: jax.Array, g: jax.Array, lower: jax.Array, upper: jax.Array, start: jax.Array, iterations: int = 20
) -> tuple[jax.Array, jax.Array]:
    """Return the minimum of x' H x / 2 + g' x within bounds, and which components are free there.

    Projected Newton steps: components at a bound that want to leave the box are held, the others are solved for; of
    several step lengths, all tried at once, the longest that is good enough is taken.
    """
    lengths = 0.5 ** jnp.arange(8).astype(H.dtype)
    value = lambda x: 0.5 * x @ (H @ x) + g @ x

    def free_at(x: jax.Array) -> jax.Array:
        slope = g + H @ x
        return ~(((x <= lower) & (slope > 0)) | ((x >= upper) & (slope < 0)))

    def step(state: Any) -> Any:
        i, x, _ = state
        free, slope = free_at(x), g + H @ x
        direction = -_solve_free(H, slope[:, None], free)[:, 0]
        tried = jnp.clip(x[None] + lengths[:, None] * direction[None], lower[None], upper[None])
        enough = jax.vmap(value)(tried) <= value(x) + 0.1 * (tried - x[None]) @ slope
        new = jnp.where(enough.any(), tried[jnp.argmax(enough)], x)
        moving = jnp.abs(new - x).max() > 1e2 * jnp.finfo(H.dtype).eps * (1 + jnp.abs(x).max())
        return i + 1, new, moving

    going = lambda state: (state[0] < iterations) & state[2]
    _, x, _ = jax.lax.while_loop(going, step, (0, jnp.clip(start, lower, upper), jnp.array(True)))
    return x, free_at(x)


# ---------------------------------------------------------------------- details
def _stacked(lq: Quadratic, regularization: Any) -> tuple[jax.Array, jax.Array]:
    """Return steps (T, n + 1, n + 1 + m) and costs (T, n + 1 + m, n + 1 + m) by (x, 1, u)."""
    (T, n), dtype = lq.f.shape, lq.f.dtype
    m = lq.F.shape[2] - n
    last = jnp.zeros((T, 1, n + 1 + m), dtype).at[:, 0, n].set(1)
    G = jnp.concatenate([jnp.concatenate([lq.F[:, :, :n], lq.f[:, :, None], lq.F[:, :, n:]], axis=2), last], axis=1)
    H = lq.H.at[:, n:, n:].add(regularization * jnp.eye(m, dtype=dtype)[None])
    h = jnp.insert(lq.h, n, 0, axis=1)
    rows = jnp.concatenate([H[:, :, :n], lq.h[:, :, None], H[:, :, n:]], axis=2)
    return G, jnp.concatenate([rows[:, :n], h[:, None], rows[:, n:]], axis=1)


def _end(lq: Quadratic) -> jax.Array:
    """Return P after the last step."""
    h = lq.h_end[:, None]
    return jnp.block([[lq.H_end, h], [h.T, jnp.zeros((1, 1), h.dtype)]])


def _eliminated(H: jax.Array, n: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Minimise over u: return the factor C of H_uu, W = C^-1 H_ux, and what is left, H_xx - W' W."""
    factor = jax.lax.linalg.cholesky(H[n + 1 :, n + 1 :], symmetrize_input=False)
    W = jax.lax.linalg.triangular_solve(factor, H[n + 1 :, : n + 1], left_side=True, lower=True)
    return factor, W, H[: n + 1, : n + 1] - W.T @ W


def _halfway(A: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return W = L^-1 b and A^-1 b, of a positive definite A = L L*; of another one W is not finite.

    Gauss and Jordan: step j solves row j for its coordinate, and puts it into the others.
    """
    n, index = len(A), jnp.arange(len(A), dtype=np.int32)

    def eliminate(rows: jax.Array, j: jax.Array) -> Any:
        row, here = rows[j], index == j
        column = jnp.where(here, -1, rows[:, j])
        rest = jnp.where(here[:, None], 0, rows) - column[:, None] * (row / row[j])[None]
        return rest, row[n:] / jnp.sqrt(row[j])

    rows, W = jax.lax.scan(eliminate, jnp.concatenate([A, b], axis=1), index)
    return W, rows[:, n:]


def _symmetric(P: jax.Array) -> jax.Array:
    """Return the symmetric part: what rounding makes of the other would grow from step to step."""
    return (P + P.T) / 2


def _policy(factors: jax.Array, W: jax.Array, change: jax.Array) -> Policy:
    U = -jax.lax.linalg.triangular_solve(factors, W, left_side=True, lower=True, transpose_a=True)
    return Policy(U[:, :, -1], U[:, :, :-1], change)


def _solve_free(H: jax.Array, right: jax.Array, free: jax.Array) -> jax.Array:
    """Return the solution of H x = right among the free components; the others are zero."""
    both = free[:, None] & free[None]
    masked = jnp.where(both, H, jnp.eye(H.shape[0], dtype=H.dtype))
    factor = jax.lax.linalg.cholesky(masked, symmetrize_input=False)
    return cho_solve((factor, True), jnp.where(free[:, None], right, 0))


def _after(late: Any, early: Any) -> Any:
    """Return what two stretches of time are together: by `reverse=True`, the later one comes first."""
    (A1, b1, C1, eta1, J1), (A2, b2, C2, eta2, J2) = early, late
    n = b1.shape[0]
    one = jnp.eye(n, dtype=b1.dtype)
    left = jnp.linalg.solve((one + C1 @ J2).T, A2.T).T  # A2 (1 + C1 J2)^-1
    right = jnp.linalg.solve((one + C1 @ J2), A1).T  # A1' (1 + J2 C1)^-1
    return (
        left @ A1,
        left @ (b1 + C1 @ eta2) + b2,
        left @ C1 @ A2.T + C2,
        right @ (eta2 - J2 @ b1) + eta1,
        right @ J2 @ A1 + J1,
    )
