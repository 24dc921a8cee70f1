r"""Symmetric block-tridiagonal matrices with a border: the second derivatives of problems along a chain of knots.

.. math:: A = \begin{pmatrix} D_0 & E_0 & & B_0 \\ E_0^T & D_1 & \ddots & B_1 \\ & \ddots & \ddots & \vdots \\
    B_0^T & B_1^T & \cdots & C \end{pmatrix}

The border belongs to unknowns that all knots share, such as the duration. Cholesky's factor :math:`A = R^T R` has the
same pattern, and is found by one scan over the knots: its cost grows with their number, not with its cube.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

Vector = tuple[jax.Array, jax.Array]
"""What a matrix acts on: (K, n) of the knots, and (m,) of what they share."""


class Banded(NamedTuple):
    """A matrix of K block rows of size n, and a border of width m."""

    diagonal: jax.Array
    """D, (K, n, n)."""
    above: jax.Array
    """E, (K - 1, n, n)."""
    border: jax.Array
    """B, (K, n, m)."""
    corner: jax.Array
    """C, (m, m)."""

    def __matmul__(self, x: Vector) -> Vector:
        """Return the product with a vector."""
        along, shared = x
        y = jnp.einsum("kij,kj->ki", self.diagonal, along) + self.border @ shared
        y = y.at[:-1].add(jnp.einsum("kij,kj->ki", self.above, along[1:]))
        y = y.at[1:].add(jnp.einsum("kji,kj->ki", self.above, along[:-1]))
        return y, self.corner @ shared + jnp.einsum("kim,ki->m", self.border, along)

    def shifted(self, by: Any) -> Banded:
        """Return the matrix with a number added to its diagonal."""
        n, m = self.border.shape[1:]
        one = lambda size: by * jnp.eye(size, dtype=self.diagonal.dtype)
        return self._replace(diagonal=self.diagonal + one(n)[None], corner=self.corner + one(m))

    def restricted(self, free: Any) -> Banded:
        """Return the matrix with rows and columns that are not free (0 instead of 1) replaced by those of the unit."""
        along, shared = free
        held = jax.vmap(jnp.diag)(1 - along)
        return Banded(
            self.diagonal * along[:, :, None] * along[:, None, :] + held,
            self.above * along[:-1, :, None] * along[1:, None, :],
            self.border * along[:, :, None] * shared[None, None],
            self.corner * shared[:, None] * shared[None] + jnp.diag(1 - shared),
        )


class Factor(NamedTuple):
    """Cholesky's factor of a banded matrix, in the same blocks."""

    diagonal: jax.Array
    """Lower triangular: transposes of the blocks on R's diagonal."""
    above: jax.Array
    """(K, n, n); the last is zero."""
    border: jax.Array
    corner: jax.Array

    def solve(self, b: Vector) -> Vector:
        """Return x with A x = b."""

        def forward(carry: Any, row: Any) -> Any:
            L, W, b = row
            y = solve_triangular(L, b - carry, lower=True)
            return W.T @ y, y

        def backward(x_after: Any, row: Any) -> Any:
            L, W, y = row
            x = solve_triangular(L, y - W @ x_after, lower=True, trans=1)
            return x, x

        along, shared = b
        start = jnp.zeros_like(along[0])
        y = jax.lax.scan(forward, start, (self.diagonal, self.above, along))[1]
        s = shared
        if len(s):  # XLA may fail to compile calls of LAPACK on nothing
            c = solve_triangular(self.corner, s - jnp.einsum("kim,ki->m", self.border, y), lower=True)
            s = solve_triangular(self.corner, c, lower=True, trans=1)
        rows = (self.diagonal, self.above, y - self.border @ s)
        return jax.lax.scan(backward, start, rows, reverse=True)[1], s


def factorise(A: Banded) -> Factor:
    """Return Cholesky's factor of a positive definite matrix; of another one it is not finite."""

    def step(carry: Any, row: Any) -> Any:
        from_above, border_from_above = carry
        D, E, B = row
        L = jnp.linalg.cholesky(D - from_above)
        W, V = jnp.split(solve_triangular(L, jnp.concatenate([E, B - border_from_above], 1), lower=True), [len(D)], 1)
        return (W.T @ W, W.T @ V), (L, W, V)

    last = jnp.zeros_like(A.diagonal[:1])
    start = jnp.zeros_like(A.diagonal[0]), jnp.zeros_like(A.border[0])
    L, W, V = jax.lax.scan(step, start, (A.diagonal, jnp.concatenate([A.above, last]), A.border))[1]
    corner = A.corner - jnp.einsum("kim,kij->mj", V, V)
    return Factor(L, W, V, jnp.linalg.cholesky(corner) if len(corner) else corner)
