r"""The convex problem of identification, and its scale at a point.

.. math:: F(x) = \tfrac12 |R x - c|^2 + \gamma \sum_i \left[\operatorname{tr}(P_i Q_i^{-1})
    - \log\det(P_i Q_i^{-1}) - 4\right] + \mu \sum_k \left[z_k / s_k - \log(z_k / s_k) - 1\right]

The data, whitened by the noise of each joint, are in R and c; :math:`P_i` are the bodies' pseudo-inertias, linear in
their ten parameters, and :math:`Q_i` those of the prior (Lee, Wensing and Park 2020). z are the parameters of joints
that cannot be negative (rotor inertia, friction), held near their scale s by a weight :math:`\mu \le 1` that data
easily overrule; offsets are free. F is in nats: :math:`\gamma` is the number of observations that the prior is worth.

F is convex, and infinite where a link is not physical. In coordinates in which the second derivative of the
divergences is one, :math:`dP = L W L^T` with :math:`P = L L^T` and :math:`dz = z u`, a Newton step is a linear
least-squares problem.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.model import from_pseudo_inertia

JOINT_WEIGHT = 1.0
"""The largest weight of what holds rotor inertias and friction: one observation each."""
DIGITS = 1e3
"""The prior weighs at least so many roundings of the data."""
NEAR, SMALLER = 0.1, 0.1
"""A minimum is followed to smaller weights of the prior: from how near, by which factor."""


def _symmetric_basis() -> np.ndarray:
    """Return an orthonormal basis of the symmetric matrices, (10, 4, 4)."""
    E = np.zeros((10, 4, 4))
    for k, (i, j) in enumerate(zip(*np.triu_indices(4), strict=True)):
        E[k, i, j] = E[k, j, i] = 1 if i == j else np.sqrt(0.5)
    return E


BASIS = _symmetric_basis()
einsum = partial(jnp.einsum, precision="highest")


class System(NamedTuple):
    """Data and prior. Columns: ten for each body, then those of `scale`, then offsets."""

    R: jax.Array
    """(rows, n) whitened regressor, or the triangular factor of one."""
    c: jax.Array
    """(rows,) whitened torques, or their share of the factor."""
    Q: jax.Array
    """(bodies, 4, 4) pseudo-inertias of the prior, positive definite."""
    scale: jax.Array
    """(joint terms,) s, positive."""


class Gram(NamedTuple):
    """The data once more, as normal equations: what derivatives go through."""

    G: jax.Array
    """(n, n) R^T R."""
    h: jax.Array
    """(n,) R^T c."""


class Point(NamedTuple):
    """A physical set of parameters."""

    P: jax.Array
    """(bodies, 4, 4) pseudo-inertias."""
    z: jax.Array
    """(joint terms,) rotor inertias and friction, positive."""
    o: jax.Array
    """(offsets,)."""

    def vector(self) -> jax.Array:
        """Return the parameters, (n,)."""
        return jnp.concatenate([from_pseudo_inertia(self.P).ravel(), self.z, self.o])


def start_of(system: System, P: jax.Array | None = None) -> Point:
    """Return a point to begin at: the prior, or other pseudo-inertias."""
    offsets = system.R.shape[1] - 10 * len(system.Q) - len(system.scale)
    return Point(system.Q if P is None else P, system.scale, jnp.zeros(offsets, system.R.dtype))


class Scaled(NamedTuple):
    """The problem in local coordinates d = (W of all bodies, u, change of offsets): F is close to quadratic in them."""

    L: jax.Array
    """(bodies, 4, 4), P = L L^T."""
    M: jax.Array
    """(rows, n) derivative of R x by d."""
    residual: jax.Array
    """(rows,) c - R x."""
    weight: jax.Array
    """(n,) the second derivative of the divergences: gamma, mu, 0."""
    slope: jax.Array
    """(n,) the derivative of the divergences over their weight."""


def weights(system: System, gamma: jax.Array) -> jax.Array:
    """Return what multiplies each local coordinate's divergence, (n,)."""
    bodies, terms = 10 * len(system.Q), len(system.scale)
    mu = jnp.minimum(gamma, JOINT_WEIGHT)
    parts = [gamma * jnp.ones(bodies), mu * jnp.ones(terms), jnp.zeros(system.R.shape[1] - bodies - terms)]
    return jnp.concatenate(parts).astype(system.R.dtype)


def scaled(system: System, gamma: jax.Array, at: Point) -> Scaled:
    """Return the problem at a point."""
    L = jnp.linalg.cholesky(at.P)
    slope_of_P = einsum("bji,bjk,bkl->bil", L, inverse(system.Q), L) - jnp.eye(4, dtype=L.dtype)[None]
    slope = [einsum("kij,bij->bk", basis(L), slope_of_P).ravel(), at.z / system.scale - 1, 0 * at.o]
    residual = system.c - einsum("mn,n->m", system.R, at.vector())
    return Scaled(L, times_scale(system.R, L, at.z), residual, weights(system, gamma), jnp.concatenate(slope))


def times_scale(R: jax.Array, L: jax.Array, z: jax.Array) -> jax.Array:
    """Return R S, where S takes local coordinates to parameters; R (rows, n)."""
    bodies = len(L)
    S = from_pseudo_inertia(einsum("bij,kjl,bml->bkim", L, basis(L), L))  # (bodies, local, parameter)
    of_bodies = einsum("mbp,bkp->mbk", R[:, : 10 * bodies].reshape(-1, bodies, 10), S).reshape(-1, 10 * bodies)
    of_joints, rest = jnp.split(R[:, 10 * bodies :], [len(z)], axis=1)
    return jnp.concatenate([of_bodies, of_joints * z[None], rest], axis=1)


def basis(like: jax.Array) -> jax.Array:
    """Return BASIS in the floating-point type of another array."""
    return jnp.asarray(BASIS, like.dtype)


def split(at: Point, d: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return local coordinates (n,) as W (bodies, 4, 4), u, and the change of offsets."""
    bodies, terms = len(at.P), len(at.z)
    W = einsum("bk,kij->bij", d[: 10 * bodies].reshape(bodies, 10), basis(at.P))
    return W, d[10 * bodies : 10 * bodies + terms], d[10 * bodies + terms :]


def moved(at: Point, L: jax.Array, d: jax.Array) -> Point:
    """Return the point at local coordinates d."""
    W, u, o = split(at, d)
    step = einsum("bij,bjk,blk->bil", L, W, L)
    return Point(at.P + (step + jnp.swapaxes(step, 1, 2)) / 2, at.z * (1 + u), at.o + o)


def objective(system: System, gamma: jax.Array, at: Point) -> jax.Array:
    """Return F."""
    r = system.c - einsum("mn,n->m", system.R, at.vector())
    of_bodies, of_joints = divergences(system, at)
    return 0.5 * (r * r).sum() + gamma * of_bodies.sum() + jnp.minimum(gamma, JOINT_WEIGHT) * of_joints.sum()


def divergences(system: System, at: Point) -> tuple[jax.Array, jax.Array]:
    """Return how far each body (bodies,) and each joint term is from the prior; not negative."""
    K = jax.lax.linalg.triangular_solve(
        jnp.linalg.cholesky(system.Q), jnp.linalg.cholesky(at.P), left_side=True, lower=True
    )
    x = 2 * jnp.log(jnp.diagonal(K, axis1=1, axis2=2))
    below = (jnp.tril(K, -1) ** 2).sum((1, 2))
    y = jnp.log(at.z / system.scale)
    return (jnp.expm1(x) - x).sum(1) + below, jnp.expm1(y) - y


def inverse(Q: jax.Array) -> jax.Array:
    """Return the inverses of positive definite matrices (bodies, 4, 4)."""
    L = jnp.linalg.cholesky(Q)
    Linv = jax.lax.linalg.triangular_solve(
        L, jnp.broadcast_to(jnp.eye(4, dtype=Q.dtype), Q.shape), left_side=True, lower=True
    )
    return einsum("bki,bkj->bij", Linv, Linv)


class History(NamedTuple):
    """One row per iteration; those after the last repeat it."""

    objective: jax.Array
    """(iterations,) F before the step, nats."""
    decrement: jax.Array
    """(iterations,) twice the gain in F that the step promises, for the weight of the prior at the time."""
    step: jax.Array
    """(iterations,) its length, 1 for a full Newton step, 0 for one that was rejected."""
    weight: jax.Array
    """(iterations,) the weight of the prior, falling to gamma."""

    @classmethod
    def blank(cls, zeros: jax.Array) -> History:
        """Return a history in which nothing has happened."""
        return cls(zeros, zeros, zeros, zeros)

    def noted(self, k: jax.Array, row: History) -> History:
        """Return the history with another row."""
        later = jnp.arange(len(self.step)) >= k
        return History(*(jnp.where(later, x, rows) for rows, x in zip(self, row, strict=True)))


class Solution(NamedTuple):
    """What an iteration came to."""

    point: Point
    """The last point."""
    converged: jax.Array
    """Whether the last step's predicted gain was within the tolerance."""
    iterations: jax.Array
    """How many steps were taken."""
    history: History
    """How it went."""


def tolerance(system: System, gamma: jax.Array) -> jax.Array:
    """Return the decrement at which to stop: a small part of what the prior weighs, or rounding."""
    eps = jnp.finfo(system.R.dtype).eps
    return 1e-10 * jnp.minimum(gamma, 1) + (32 * eps) ** 2 * (system.c * system.c).sum()


def first_weight(system: System, gamma: jax.Array, start: Point) -> jax.Array:
    """Return a weight of the prior at which to begin: gamma, or more if the data are far from explained."""
    r = system.c - einsum("mn,n->m", system.R, start.vector())
    return jnp.maximum(gamma, (r * r).sum() / system.R.shape[1])


def next_weight(weight: jax.Array, gamma: jax.Array, decrement: jax.Array) -> jax.Array:
    """Return the weight for the next step: smaller, down to gamma, once the minimum for the last one is near."""
    return jnp.where(decrement < NEAR * weight, jnp.maximum(gamma, SMALLER * weight), weight)


def least_gamma(system: System, gamma: Any) -> jax.Array:
    """Return gamma, not so small beside the data that a step would be rounding."""
    M = times_scale(system.R, jnp.linalg.cholesky(system.Q), system.scale)
    return jnp.maximum(jnp.asarray(gamma, M.dtype), DIGITS * jnp.finfo(M.dtype).eps * (M * M).sum())
