"""Many rows of a linear model as few: triangular factors, noise of each joint, systems with parts left out."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn._compiling import jit
from jaxdyn._numerics import safe_reciprocal
from jaxdyn.sysid.objective import Gram, einsum

CROWDED = 0.05
"""Noise that is assumed where there are too few samples to measure it, as a part of the torque's size."""


class Rows(NamedTuple):
    """The torques of samples as a linear model of the parameters."""

    A: jax.Array
    """(samples, nv, n)."""
    b: jax.Array
    """(samples, nv)."""

    def residual(self, x: jax.Array) -> jax.Array:
        """Return b - A x, (samples, nv)."""
        return self.b - einsum("tjn,n->tj", self.A, x)

    def gram(self, weight: jax.Array) -> Gram:
        """Return the normal equations, joint j weighted by weight[j]."""
        A, b = self.A * weight[None, :, None], self.b * weight[None]
        return Gram(einsum("tjm,tjn->mn", A, A), einsum("tjm,tj->m", A, b))

    def factor(self, weight: jax.Array) -> jax.Array:
        """Return the triangular factor (n + 1, n + 1) of [A b], joint j weighted by weight[j]."""
        both = jnp.concatenate([self.A, self.b[..., None]], axis=2) * weight[None, :, None]
        return _triangular(both.reshape(-1, both.shape[-1]))

    def factors(self, weight: jax.Array, count: int) -> jax.Array:
        """Return such factors of consecutive parts, (count, n + 1, n + 1)."""
        both = jnp.concatenate([self.A, self.b[..., None]], axis=2) * weight[None, :, None]
        missing = -len(both) % count
        both = jnp.concatenate([both, jnp.zeros((missing, *both.shape[1:]), both.dtype)])
        return jax.vmap(_triangular)(both.reshape(count, -1, both.shape[-1]))


def _triangular(rows: jax.Array) -> jax.Array:
    """Return the square triangular factor of rows (m, n), with rows of zeros below if m < n."""
    m, n = rows.shape
    rows = jnp.concatenate([rows, jnp.zeros((max(n - m, 0), n), rows.dtype)])
    return jnp.linalg.qr(rows, mode="r")


def together(factors: jax.Array, share: jax.Array) -> jax.Array:
    """Return the factor (n + 1, n + 1) of several (parts, n + 1, n + 1), each counted `share` (parts,) times."""
    weighted = factors * jnp.sqrt(share)[:, None, None]
    return _triangular(weighted.reshape(-1, factors.shape[-1]))


def regular_directions(R: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return the columns' lengths, and of R with columns of length one: which singular values count, they, and V^T."""
    eps = jnp.finfo(R.dtype).eps
    length = jnp.sqrt((R * R).sum(0))
    scale = jnp.where(length > 64 * eps * length.max(initial=0), length, 1)
    _, s, Vt = jnp.linalg.svd(R / scale[None])
    return scale, s > 64 * max(len(s), 1) * eps * s.max(initial=0), s, Vt


def least_squares(factor: jax.Array, nearest: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Solve a linear model given by its factor, as near to a point (n,) as the data leave open.

    Returns:
        x (n,), and the number of directions that the data determine.
    """
    R, c = factor[:-1, :-1], factor[:-1, -1]
    scale, kept, s, Vt = regular_directions(R)
    inverse = jnp.where(kept, safe_reciprocal(s), 0)
    misfit = c - einsum("mn,n->m", R, nearest)
    U = einsum("mn,kn->mk", R / scale[None], Vt) * inverse[None]
    step = einsum("kn,k,mk,m->n", Vt, inverse, U, misfit) / scale
    return nearest + step, kept.sum()


@jit
def nearest_least_squares(factor: jax.Array, gram: Gram, nearest: jax.Array) -> jax.Array:
    """Return the x (n,) of `least_squares`, with derivatives by the data through the normal equations."""
    factor = jax.lax.stop_gradient(factor)
    x = jax.lax.stop_gradient(least_squares(factor, nearest)[0])
    scale, kept, s, Vt = regular_directions(factor[:-1, :-1])
    down = gram.h - einsum("mn,n->m", gram.G, x)
    inverse = jnp.where(kept, safe_reciprocal(s * s), 0)
    return x + einsum("kn,k,km,m->n", Vt, inverse, Vt, (down - jax.lax.stop_gradient(down)) / scale) / scale


@partial(jit, static_argnames="passes")
def noise_of_joints(rows: Rows, nearest: jax.Array, passes: int = 2) -> jax.Array:
    """Return the standard deviation (nv,) of what no parameters explain, by least squares weighted by itself."""
    samples, joints = rows.b.shape
    size = jnp.sqrt((rows.b**2).mean(0))
    size = jnp.where(size > 0, size, jnp.where(size.max() > 0, size.max(), 1))
    noise = size
    for _ in range(passes):
        x, rank = least_squares(rows.factor(1 / noise), nearest)
        spare = samples - rank / joints
        least = jnp.where(spare > samples / 2, jnp.sqrt(jnp.finfo(size.dtype).eps), CROWDED) * size
        noise = jnp.maximum(jnp.sqrt((rows.residual(x) ** 2).sum(0) / jnp.maximum(spare, 1)), least)
    return noise


def correlation_time(residual: jax.Array) -> jax.Array:
    """Return over how many samples the residuals (samples, nv) of each joint are correlated, (nv,), at least 1.

    1 + 2 times the sum of their autocorrelation, up to where it first vanishes: filtered signals have fewer
    independent samples than rows.
    """
    n = len(residual)
    centred = residual - residual.mean(0, keepdims=True)
    spectrum = jnp.fft.rfft(centred, 2 * n, axis=0)
    correlation = jnp.fft.irfft((spectrum * spectrum.conj()).real, 2 * n, axis=0)[:n]
    rho = correlation / jnp.where(correlation[:1] > 0, correlation[:1], 1)
    alive = jnp.cumprod(rho > 0, axis=0)
    return jnp.maximum(2 * (rho * alive).sum(0) - 1, 1).astype(residual.dtype)
