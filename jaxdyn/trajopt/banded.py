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
    """Cholesky's factor of a banded matrix, in the same blocks, those on the diagonal inverted."""

    inverse: jax.Array
    """(K, n, n): inverses of the lower triangular L, the transposes of the blocks on R's diagonal."""
    above: jax.Array
    """(K, n, n); the last is zero."""
    border: jax.Array
    corner: jax.Array
    """(m, m): the inverse, too."""

    def solve(self, b: Vector) -> Vector:
        """Return x with A x = b."""

        def forward(carry: Any, row: Any) -> Any:
            inverse, W, b = row
            y = inverse @ (b - carry)
            return W.T @ y, y

        def backward(x_after: Any, row: Any) -> Any:
            inverse, W, y = row
            x = inverse.T @ (y - W @ x_after)
            return x, x

        along, shared = b
        start = jnp.zeros_like(along[0])
        y = jax.lax.scan(forward, start, (self.inverse, self.above, along))[1]
        s = self.corner.T @ (self.corner @ (shared - jnp.einsum("kim,ki->m", self.border, y)))
        rows = (self.inverse, self.above, y - self.border @ s)
        return jax.lax.scan(backward, start, rows, reverse=True)[1], s


def factorise(A: Banded) -> Factor:
    """Return Cholesky's factor of a positive definite matrix; of another one it is not finite."""

    def step(carry: Any, row: Any) -> Any:
        from_above, border_from_above = carry
        D, E, B = row
        inverse = inverse_factor(D - from_above)
        W, V = inverse @ E, inverse @ (B - border_from_above)
        return (W.T @ W, W.T @ V), (inverse, W, V)

    last = jnp.zeros_like(A.diagonal[:1])
    start = jnp.zeros_like(A.diagonal[0]), jnp.zeros_like(A.border[0])
    inverse, W, V = jax.lax.scan(step, start, (A.diagonal, jnp.concatenate([A.above, last]), A.border))[1]
    return Factor(inverse, W, V, inverse_factor(A.corner - jnp.einsum("kim,kij->mj", V, V)))


def inverse_factor(D: jax.Array) -> jax.Array:
    """Return the inverse of Cholesky's factor L, D = L L*, of a positive definite matrix.

    The rows of (D, 1) are eliminated one by one, which leaves (L*, L^-1). Calls of LAPACK would be as good; but in a
    program as large as that of a solution's reverse mode, XLA loses them.
    """
    n = len(D)
    index = jnp.arange(n)

    def eliminate(j: jax.Array, rows: jax.Array) -> jax.Array:
        column = rows[:, j] / jnp.sqrt(rows[j, j])
        row = rows[j] / jnp.sqrt(rows[j, j])
        below = rows - jnp.where(index > j, column, 0)[:, None] * row[None]
        return jnp.where((index == j)[:, None], row[None], below)

    return jax.lax.fori_loop(0, n, eliminate, jnp.concatenate([D, jnp.eye(n, dtype=D.dtype)], axis=1))[:, n:]
