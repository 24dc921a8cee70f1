r"""The maps that bodies are, and how they compose.

Axes are the world's, and every quantity is about its own body's origin; l is the vector from the parent's origin.

.. math:: \text{sums:}\quad x \mapsto \phi(l)\, x + b \qquad
          \text{affine:}\quad x \mapsto A x + b \qquad
          \text{Riccati:}\quad P \mapsto J + A^T P (1 + C P)^{-1} A
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn.spatial import Force, Motion, Vec3


class Pose(NamedTuple):
    """Follow a pose by another: X -> X X_k."""

    R: jax.Array
    """(..., 3, 3)"""
    p: jax.Array
    """(..., 3)"""

    @property
    def value(self) -> Pose:
        """The pose itself."""
        return self

    def then(self, other: Pose) -> Pose:
        """Compose."""
        return Pose(self.R @ other.R, self.p + times(self.R, other.p))

    def identity(self) -> Pose:
        """Return the pose of a frame in itself."""
        return Pose(one_like(self.R), jnp.zeros_like(self.p))


class MotionSum(NamedTuple):
    """Carry a motion outward, and add to it: V -> phi*(l) V + b."""

    l: jax.Array
    """(..., 3)"""
    value: jax.Array
    """(..., 6) b."""

    def then(self, other: MotionSum) -> MotionSum:
        """Compose."""
        return MotionSum(self.l + other.l, moved(self.value, other.l) + other.value)

    def identity(self) -> MotionSum:
        """Return the map that changes nothing."""
        return MotionSum(jnp.zeros_like(self.l), jnp.zeros_like(self.value))


class ForceSum(NamedTuple):
    """Carry a force inward, and add to it: f -> phi(l) f + b."""

    l: jax.Array
    """(..., 3)"""
    value: jax.Array
    """(..., 6) b."""

    def then(self, other: ForceSum) -> ForceSum:
        """Compose."""
        return ForceSum(self.l + other.l, levered(self.value, other.l) + other.value)

    def identity(self) -> ForceSum:
        """Return the map that changes nothing."""
        return ForceSum(jnp.zeros_like(self.l), jnp.zeros_like(self.value))


class Affine(NamedTuple):
    """Map a vector: x -> A x + b."""

    A: jax.Array
    """(..., 6, 6)"""
    value: jax.Array
    """(..., 6) b."""

    def then(self, other: Affine) -> Affine:
        """Compose."""
        return Affine(other.A @ self.A, times(other.A, self.value) + other.value)

    def identity(self) -> Affine:
        """Return the map that changes nothing."""
        return Affine(one_like(self.A), jnp.zeros_like(self.value))


class Riccati(NamedTuple):
    r"""Map the inertia that hangs at the outboard end of a stretch to the one felt at its inboard end.

    .. math:: P \mapsto J + A^T P (1 + C P)^{-1} A

    The stretch is a body with two handles: A takes the acceleration of the inboard one to the outboard one, C is how
    much the outboard one gives way to a force while the inboard one is held, J what is felt at the inboard one while
    the outboard one is free.
    """

    A: jax.Array
    """(..., 6, 6)"""
    C: jax.Array
    """(..., 6, 6) symmetric."""
    value: jax.Array
    """(..., 6, 6) J, symmetric."""

    def then(self, other: Riccati) -> Riccati:
        """Join the outboard handle of the other to the inboard one of this."""
        (A_2, C_2, J_2), (A_1, C_1, J_1) = self, other  # 2 nearer to the tip
        # W = (1 + C1 J2)^-1 times A1 and C1 A2*
        both = jnp.concatenate([A_1, C_1 @ transposed(A_2)], axis=-1)
        W_A, W_C = jnp.split(solve(one_like(J_2) + C_1 @ J_2, both), 2, axis=-1)
        return Riccati(A_2 @ W_A, symmetric(C_2 + A_2 @ W_C), symmetric(J_1 + transposed(A_1) @ (J_2 @ W_A)))

    def identity(self) -> Riccati:
        """Return the map that changes nothing."""
        return Riccati(one_like(self.A), jnp.zeros_like(self.C), jnp.zeros_like(self.value))


def times(A: jax.Array, x: jax.Array) -> jax.Array:
    """Return the matrices A (..., n, m) times the vectors x (..., m)."""
    return (A * x[..., None, :]).sum(-1)


def transposed(A: jax.Array) -> jax.Array:
    """Return the transposes of matrices (..., n, m)."""
    return jnp.swapaxes(A, -1, -2)


def symmetric(A: jax.Array) -> jax.Array:
    """Return the symmetric parts of matrices that are symmetric up to rounding."""
    return (A + transposed(A)) / 2


def one_like(A: jax.Array) -> jax.Array:
    """Return identities of the shape of A (..., n, n)."""
    return jnp.broadcast_to(jnp.eye(A.shape[-1], dtype=A.dtype), A.shape)


def moved(V: jax.Array, l: jax.Array) -> jax.Array:
    """Return phi* V: motions (..., 6) about points further by l (..., 3)."""
    return Motion.from_array(V).shift(Vec3.from_array(l)).to_array()


def levered(f: jax.Array, l: jax.Array) -> jax.Array:
    """Return phi f: forces (..., 6) about points that lie l (..., 3) before."""
    return Force.from_array(f).shift(Vec3.from_array(l)).to_array()


def shifts(l: jax.Array) -> jax.Array:
    """Return the matrices phi(l) (..., 6, 6), [[1, l~], [0, 1]]."""
    forces = jnp.broadcast_to(jnp.eye(6, dtype=l.dtype), (*l.shape[:-1], 6, 6))
    return transposed(levered(forces, jnp.broadcast_to(l[..., None, :], (*l.shape[:-1], 6, 3))))


def solve(A: jax.Array, b: jax.Array) -> jax.Array:
    """Solve A x = b for small matrices A (..., n, n) and b (..., n, k).

    By LU factors. Only the order of rows that the pivots stand for is worked out here: on a CPU the library does that
    by a loop over all matrices.
    """
    lu, pivots, _ = jax.lax.linalg.lu(jax.lax.stop_gradient(A))
    E = _order(pivots).astype(A.dtype)  # E A = L U
    lower = partial(jax.lax.linalg.triangular_solve, lu, left_side=True, lower=True, unit_diagonal=True)
    upper = partial(jax.lax.linalg.triangular_solve, lu, left_side=True, lower=False)
    return jax.lax.custom_linear_solve(
        lambda x: A @ x,
        b,
        lambda _, b: upper(lower(E @ b)),
        lambda _, b: transposed(E) @ lower(upper(b, transpose_a=True), transpose_a=True),
    )


def _order(pivots: jax.Array) -> jax.Array:
    """Return the permutations (..., n, n) that exchange row i with row pivots[..., i], one i after the other."""
    n = pivots.shape[-1]
    rows: list[Any] = [jnp.full(pivots.shape[:-1], i, pivots.dtype) for i in range(n)]
    for i in range(n):
        for k in range(i + 1, n):
            here = pivots[..., i] == k
            rows[i], rows[k] = jnp.where(here, rows[k], rows[i]), jnp.where(here, rows[i], rows[k])
    return jnp.stack(rows, axis=-1)[..., None] == jnp.arange(n).reshape((1,) * pivots.ndim + (n,))


def cholesky(D: jax.Array) -> jax.Array:
    """Return the lower Cholesky factors of small matrices (..., d, d)."""
    return jnp.sqrt(D) if D.shape[-1] == 1 else jax.lax.linalg.cholesky(D, symmetrize_input=False)


def solve_lower(L: jax.Array, b: jax.Array) -> jax.Array:
    """Solve L x = b for lower triangular L (..., d, d) and vectors b (..., d)."""
    return right_solve(b[..., None, :], L)[..., 0, :]


def solve_upper(L: jax.Array, b: jax.Array) -> jax.Array:
    """Solve L* x = b for lower triangular L (..., d, d) and vectors b (..., d)."""
    return right_solve(b[..., None, :], L, transpose=False)[..., 0, :]


def right_solve(B: jax.Array, L: jax.Array, *, transpose: bool = True) -> jax.Array:
    """Return B L^-* of B (..., n, d) and lower triangular L (..., d, d); without `transpose`, B L^-1."""
    if L.shape[-1] == 1:
        return B / L
    return jax.lax.linalg.triangular_solve(L, B, left_side=False, lower=True, transpose_a=transpose)
