"""The physical inertia nearest to any other, with derivatives of every order."""

from __future__ import annotations

import itertools
import string
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.model.physical import from_pseudo_inertia, parameters, pseudo_inertia, rounding


def project_physical(pi: Any, *, margin: Any = None) -> jax.Array:
    r"""Return the nearest physical inertias (..., 10): those whose pseudo-inertia has no eigenvalue below `margin`.

    .. math:: \min_X \|X - P\|_F, \quad X \succeq \mu 1: \qquad X = P + (\mu 1 - P)_+

    where the positive part clips eigenvalues at zero. What is physical is returned as it is. Distances mix kg, kg m
    and kg m^2, so the nearest depends on the frame and the units, other than `entropic_divergence`. Derivatives are
    those of a function of a matrix (Daleckii and Krein), finite at repeated eigenvalues, also the second and higher.

    Args:
        pi: inertial parameters, (..., 10).
        margin: the least eigenvalue :math:`\mu` >= 0, kg and kg m^2; an array (...) for one each. None is 32 roundings
            of the largest sum of a row's sizes, a constant to differentiation, so that the result has a
            `log_cholesky`. In float32 that is 4e-6 of the mass in kg: large for thin bodies.

    Returns:
        Inertial parameters, (..., 10); of ten zeros, with no margin given, ten zeros.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxdyn.model import project_physical
        >>> no_body = jnp.array([1.0, 0, 0, 0, 0.1, 0, 0.1, 0, 0, 0.4])  # 0.1 + 0.1 < 0.4
        >>> [round(float(I), 3) for I in project_physical(no_body, margin=0.01)[jnp.array([4, 6, 9])]]
        [0.21, 0.21, 0.4]
    """
    if margin is not None and not isinstance(margin, jax.core.Tracer) and np.any(np.asarray(margin) < 0):
        raise ValueError(f"margin, the least eigenvalue of a pseudo-inertia, must not be negative; got {margin}")
    return _project_physical(parameters("pi", pi), margin)


@jax.jit
def _project_physical(pi: jax.Array, margin: Any) -> jax.Array:
    P = pseudo_inertia(pi)
    if margin is None:
        margin = 32 * jnp.finfo(P.dtype).eps * jax.lax.stop_gradient(jnp.abs(P).sum(-1).max(-1))
    mu = jnp.broadcast_to(jnp.asarray(margin, pi.dtype), pi.shape[:-1])[..., None]
    unit = from_pseudo_inertia(jnp.eye(4, dtype=pi.dtype))
    x = mu * jnp.broadcast_to(unit, pi.shape) - pi
    return pi + jax.vmap(partial(_positive_part, 0))(x.reshape(-1, 10)).reshape(pi.shape)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _positive_part(n: int, x: jax.Array) -> jax.Array:
    r"""Return the n-th derivative, (10,) * (n + 1), of the positive part of S, both given as parameters (10,).

    .. math:: D^n f(S)[E_1 \dots E_n] = V \Big( \sum_\sigma \sum_{bc\dots} f[\lambda_a, \lambda_b, \dots, \lambda_z]\,
        \hat E_{\sigma 1, ab}\, \hat E_{\sigma 2, bc} \cdots \Big) V^T, \quad \hat E = V^T E V

    with divided differences of :math:`f(x) = \max(x, 0)`: a function of S alone, so that none of its derivatives
    passes through the eigenvectors. Eigenvalues that are zero up to rounding are taken as zero.
    """
    einsum = partial(jnp.einsum, precision="highest")
    w, V = jnp.linalg.eigh(pseudo_inertia(x))
    w = jnp.where(jnp.abs(w) > rounding(w), w, 0)
    weights = _divided_differences(jnp.sort(jnp.stack(jnp.meshgrid(*[w] * (n + 1), indexing="ij")), axis=0))
    if n == 0:
        return from_pseudo_inertia(einsum("ia,a,ja->ij", V, weights, V))
    E = einsum("ia,kij,jb->kab", V, pseudo_inertia(jnp.eye(10, dtype=x.dtype)), V)
    nodes, axes = string.ascii_lowercase[: n + 1], string.ascii_uppercase[:n]
    factors = [k + a + b for k, (a, b) in zip(axes, itertools.pairwise(nodes), strict=True)]  # "Aab", "Bbc"
    term = einsum(f"{','.join([nodes, *factors])}->{axes}{nodes[0]}{nodes[-1]}", weights, *[E] * n)
    total = sum(term.transpose(*order, n, n + 1) for order in itertools.permutations(range(n)))
    return from_pseudo_inertia(einsum("ia,...ab,jb->...ij", V, total, V))


@_positive_part.defjvp
def _positive_part_jvp(n: int, primals: Any, tangents: Any) -> Any:
    slope = jnp.tensordot(tangents[0], _positive_part(n + 1, *primals), 1, precision="highest")
    return _positive_part(n, *primals), slope


def _divided_differences(x: Sequence[jax.Array] | jax.Array) -> jax.Array:
    """Return the divided difference f[x_0, ..., x_n] of max(x, 0), for x_0 <= ... <= x_n."""
    if len(x) == 1:
        return jnp.maximum(x[0], 0)
    low, high = x[0], x[-1]
    one_sided = jnp.where((low > 0) & (len(x) == 2), 1.0, 0.0).astype(low.dtype)
    kink = (low <= 0) & (high > 0)
    rise = _divided_differences(x[1:]) - _divided_differences(x[:-1])
    return jnp.where(kink, rise / jnp.where(kink, high - low, 1), one_sided)
