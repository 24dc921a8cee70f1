r"""The innovations factor of the mass matrix in logarithmic depth (001 (9)-(12), 000 (36)-(43)).

.. math:: M = m\, m^T, \quad m = (1 + H \phi K) L, \quad L(k) L(k)^T = D(k)

The articulated inertias obey a Riccati recursion whose steps compose (`sections.Riccati`).

**About a guess.** Taken as they are, the steps are ill-conditioned where light bodies carry heavy ones: what a light
stretch does with nothing at its end says little of what it does with a load. So each stretch is looked at as if it
carried a guess X of what it will carry: the recursion is that of P - X, its steps are of the same form with M + X in
place of M, and X is taken off where a stretch hands on. This is exact for every X; the nearer the guess, the less is
left to compose. The first pass takes one X for all bodies, the second takes the result of the first: then rounding
enters body by body, as in the serial recursion. As a by-product bodies without inertia of their own do no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import rows
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.aba import require_regular
from jaxdyn.model import Model
from jaxdyn.model.topology import Topology
from jaxdyn.parallel.bodies import Bodies, Tables, bodies, of_one_type, sums_inward, sums_outward, tables
from jaxdyn.parallel.paths import Paths, Sections
from jaxdyn.parallel.sections import (
    Affine,
    Riccati,
    cholesky,
    levered,
    moved,
    one_like,
    right_solve,
    shifts,
    solve_lower,
    solve_upper,
    symmetric,
    times,
    transposed,
)

PASSES = 2
"""Riccati scans: the first about a rough guess, each further one about the result of the one before."""


def _carried(paths: Paths, b: Bodies, armature: jax.Array, guess: jax.Array) -> jax.Array:
    """Return the articulated inertias that the children of each body hand on to it, (nbodies, 6, 6).

    The guess is of what the child on the same path hands on; what side branches do is known when it is needed.
    """
    phi, none = shifts(b.l), jnp.zeros((), guess.dtype)
    X_k = jnp.where((paths.heavy >= 0)[:, None, None], guess, none)
    X_p = jnp.where((paths.inner >= 0)[:, None, None], rows(X_k, np.maximum(paths.inner, 0)), none)

    def sections(at: np.ndarray, entering: Any) -> Riccati:
        M = rows(b.M, at) + rows(X_k, at)
        M = M if entering is None else M + entering
        S, phi_k = rows(b.S, at), rows(phi, at)
        L = cholesky(transposed(S) @ M @ S + rows(armature, at))
        B, U = right_solve(S, L), right_solve(M @ S, L)
        P = phi_k @ symmetric(M - U @ transposed(U)) @ transposed(phi_k)
        return Riccati(
            A=(one_like(M) - B @ transposed(U)) @ transposed(phi_k),
            C=B @ transposed(B),
            value=symmetric(P) - rows(X_p, at),
        )

    return paths.inward(sections) + X_k


def _rough_guess(b: Bodies) -> jax.Array:
    """Return the inertia of a ball of the bodies' mean mass and size, (nbodies, 6, 6)."""
    mean = b.M.mean(0)
    sizes = jnp.repeat(jnp.stack([jnp.trace(mean[:3, :3]), jnp.trace(mean[3:, 3:])]) / 3, 3, total_repeat_length=6)
    return jnp.broadcast_to(jnp.diag(sizes), b.M.shape)


def _armatures(known: Tables, armature: jax.Array) -> jax.Array:
    """Return the armatures as matrices (nbodies, d, d), with ones where a joint has fewer columns."""
    diagonal = known.spread(armature, nothing=1.0)
    return diagonal[:, :, None] * jnp.eye(diagonal.shape[1], dtype=diagonal.dtype)[None]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class InnovationsFactor:
    r"""The factor m of a mass matrix M = m m*, block upper triangular, by what it is made of.

    Arrays are by body, in world axes, about each body's own origin; d is the largest number of columns of a joint. A
    joint with fewer has zeros in G and S, and ones on the diagonals of D and L.
    """

    P: jax.Array
    """(nbodies, 6, 6) articulated inertias."""
    D: jax.Array
    """(nbodies, d, d) H P H* + armature."""
    G: jax.Array
    """(nbodies, 6, d) gains P H* D^-1."""
    S: jax.Array
    """(nbodies, 6, d) columns of the joints, H*."""
    L: jax.Array
    """(nbodies, d, d) lower Cholesky factors of D, the diagonal blocks of m."""
    l: jax.Array
    """(nbodies, 3) from the parent's origin to the body's."""
    topology: Topology = field(metadata={"static": True})
    """Of the model."""

    @jax.jit
    def __matmul__(self, x: Any) -> jax.Array:
        """Return m x, of x (nv,) or of the columns of x (nv, k)."""
        return self._by_columns(self._product, x)

    def apply(self, x: Any) -> jax.Array:
        """Return m x, as `m @ x` does."""
        return self @ x

    @jax.jit
    def solve(self, b: Any) -> jax.Array:
        """Return m^-1 b, the innovations, of b (nv,) or of the columns of b (nv, k)."""
        return self._by_columns(lambda b: self._known.gather(self.innovations(b)), b)

    @property
    def T(self) -> Transposed:
        """The transpose, with the same methods."""
        return Transposed(self)

    @jax.jit
    def logdet(self) -> jax.Array:
        """Return log det m, half of that of the mass matrix."""
        return jnp.log(jnp.diagonal(self.L, axis1=-2, axis2=-1)).sum()

    @jax.jit
    def as_matrix(self) -> jax.Array:
        """Return m, (nv, nv)."""
        return self @ jnp.eye(self.topology.nv, dtype=self.L.dtype)

    def innovations(self, tau: jax.Array, f: jax.Array | None = None) -> jax.Array:
        """Return m^-1 (tau - H phi f) of torques (nv,) and forces on the bodies (nbodies, 6), as (nbodies, d).

        z+ = z + G e, e = tau - H z (000 (42)-(43)), here of z with f.
        """
        known, psi, x = self._known, self._psi, self._known.spread(tau)
        own = levered(times(self.G, x), self.l)
        z = known.paths.inward(_affine(psi, own if f is None else own + times(psi, f)))
        z = z if f is None else z + f
        return solve_lower(self.L, x - times(transposed(self.S), z))

    def accelerations(self, nu: jax.Array) -> jax.Array:
        """Return m^-* nu of innovations (nbodies, d), as (nv,) (000 (45)-(47))."""
        own = times(self.S, solve_upper(self.L, nu))
        a, _ = self._known.paths.outward(_affine(transposed(self._psi), own), jnp.zeros(6, nu.dtype))
        return self._known.gather(solve_upper(self.L, nu) - times(transposed(self.G), moved(a, self.l)))

    def _product(self, x: jax.Array) -> jax.Array:
        x = times(self.L, self._known.spread(x))
        z = sums_inward(self._known.paths, self.l, times(self.G, x))
        return self._known.gather(x + times(transposed(self.S), z))

    def _transposed_product(self, y: jax.Array) -> jax.Array:
        y = self._known.spread(y)
        V, _ = sums_outward(self._known.paths, self.l, times(self.S, y), jnp.zeros(6, y.dtype))
        return self._known.gather(times(transposed(self.L), y + times(transposed(self.G), V)))

    @property
    def _known(self) -> Tables:
        return tables(self.topology)

    @property
    def _psi(self) -> jax.Array:
        """What takes z across a body, phi (1 - G H)."""
        return shifts(self.l) @ (one_like(self.P) - self.G @ transposed(self.S))

    def _by_columns(self, f: Any, x: Any) -> jax.Array:
        x = jnp.asarray(x)
        if x.ndim not in (1, 2) or len(x) != self.topology.nv:
            raise ValueError(f"x must have shape ({self.topology.nv},) or ({self.topology.nv}, k); got {x.shape}")
        x = x.astype(jnp.result_type(x, self.L))
        if not x.size:
            return x
        return f(x) if x.ndim == 1 else jax.vmap(f, in_axes=1, out_axes=1)(x)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Transposed:
    """The transpose m* of an innovations factor, block lower triangular."""

    T: InnovationsFactor
    """The factor."""

    @jax.jit
    def __matmul__(self, x: Any) -> jax.Array:
        """Return m* x, of x (nv,) or of the columns of x (nv, k)."""
        return self.T._by_columns(self.T._transposed_product, x)

    def apply(self, x: Any) -> jax.Array:
        """Return m* x, as `m.T @ x` does."""
        return self @ x

    @jax.jit
    def solve(self, b: Any) -> jax.Array:
        """Return m^-* b, of b (nv,) or of the columns of b (nv, k)."""
        return self.T._by_columns(lambda b: self.T.accelerations(self.T._known.spread(b)), b)

    @jax.jit
    def logdet(self) -> jax.Array:
        """Return log det m."""
        return self.T.logdet()

    @jax.jit
    def as_matrix(self) -> jax.Array:
        """Return m*, (nv, nv)."""
        return self.T.as_matrix().T


def _affine(A: jax.Array, own: jax.Array) -> Sections:
    """Return the maps x -> A x + own of the bodies."""

    def sections(at: np.ndarray, entering: Any) -> Affine:
        A_k, b = rows(A, at), rows(own, at)
        return Affine(A_k, b if entering is None else b + times(A_k, entering))

    return sections


def factorised(model: Model, b: Bodies) -> InnovationsFactor:
    """Return the innovations factor of bodies at a configuration."""
    known = tables(model.topology)
    armature, carried = _armatures(known, model.armature), _rough_guess(b)
    for _ in range(PASSES):  # the result does not depend on the guess, nor do its derivatives
        carried = _carried(known.paths, b, armature, jax.lax.stop_gradient(carried))
    P = b.M + carried
    U = P @ b.S
    D = symmetric(transposed(b.S) @ U + armature)
    L = cholesky(D)
    G = right_solve(right_solve(U, L), L, transpose=False)
    return InnovationsFactor(P, D, G, b.S, L, b.l, model.topology)


def innovations_factor(model: Model, q: Any) -> InnovationsFactor:
    r"""Compute the innovations factor of the mass matrix in logarithmic depth.

    .. math:: M = m\, m^T, \quad m = (1 + H \phi K) L

    m is block upper triangular in the order of the joints, and so is its inverse :math:`L^{-1} (1 - H \psi K)`;
    products and solutions with both take logarithmic depth too, and the factor may be differentiated.

    Args:
        model: the model, with chains or trees of any joints but mimic joints, which have no such factor. A joint that
            moves no inertia is refused: give it armature, or lock it.
        q: configuration, (nq,).

    Returns:
        The factor m, with `m @ x`, `m.T @ x`, `m.solve(b)`, `m.T.solve(b)`, `m.logdet()`, `m.as_matrix()`, and the
        articulated inertias P, D and gains G of all bodies.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.parallel import innovations_factor
        >>> model = jaxdyn.load("arm7")
        >>> q = jaxdyn.neutral(model)
        >>> m = innovations_factor(model, q)
        >>> m.P.shape, m.D.shape, m.G.shape
        ((7, 6, 6), (7, 1, 1), (7, 6, 1))
        >>> tau = jnp.ones(7)
        >>> x = m.T.solve(m.solve(tau))  # M x = tau
        >>> bool(jnp.allclose(jaxdyn.mass_matrix(model, q) @ x, tau, atol=1e-4))
        True
    """
    arguments.require_model(model)
    arguments.refuse_mimic(model, "the innovations factor")
    require_regular(model)
    return _innovations_factor(model.moving, q)


@jax.jit
def _innovations_factor(model: Model, q: Any) -> InnovationsFactor:
    (q,) = arguments.vectors(model, q=q)
    model, q = of_one_type(model, q)
    if not model.nv:
        zero = lambda *shape: jnp.zeros((0, *shape), q.dtype)
        return InnovationsFactor(zero(6, 6), zero(0, 0), zero(6, 0), zero(6, 0), zero(0, 0), zero(3), model.topology)
    return factorised(model, bodies(model, q))
