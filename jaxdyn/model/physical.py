r"""Inertias of bodies that could be built.

The ten inertial parameters of a body are those of a distribution of mass if and only if its pseudo-inertia

.. math:: P = \int \begin{pmatrix} x \\ 1 \end{pmatrix} \begin{pmatrix} x \\ 1 \end{pmatrix}^T dm
    = \begin{pmatrix} \Sigma & h \\ h^T & m \end{pmatrix}, \quad
    \Sigma = \tfrac12 \operatorname{tr}(I)\,1 - I, \quad h = m c

is positive semidefinite (Wensing, Kim and Slotine 2017); of a body with volume it is positive definite. All functions
of arrays take leading batch axes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import safe_reciprocal
from jaxdyn.model.consistency import TRIANGLE_SLACK
from jaxdyn.model.model import Model

# theta[1:] in U, whose last diagonal entry is 1: d1 d2 d3, s12 s23 s13, t1 t2 t3.
_ROW, _COLUMN = np.array([0, 1, 2, 0, 1, 0, 0, 1, 2]), np.array([0, 1, 2, 1, 2, 2, 3, 3, 3])

# Linear maps as arrays of zeros and ones: a single sum, where slices and stacks of entries would be many small loops.
_INTO_FACTOR = np.zeros((10, 4, 4))
"""Entries of U, the one in its corner last, to their places."""
_INTO_FACTOR[np.arange(10), [*_ROW, 3], [*_COLUMN, 3]] = 1
_INTO_PARAMETERS = np.zeros((10, 4, 4))
"""The upper triangle of P to pi."""
_INTO_PARAMETERS[[0, 1, 2, 3], [3, 0, 1, 2], [3, 3, 3, 3]] = 1  # m, h
_INTO_PARAMETERS[[4, 4, 6, 6, 9, 9], [1, 2, 0, 2, 0, 1], [1, 2, 0, 2, 0, 1]] = 1  # Ixx = Pyy + Pzz, ...
_INTO_PARAMETERS[[5, 7, 8], [0, 0, 1], [1, 2, 2]] = -1  # Ixy, Ixz, Iyz


@jax.jit
def pseudo_inertia(pi: Any) -> jax.Array:
    """Return the pseudo-inertia (..., 4, 4) of inertial parameters (..., 10); linear.

    Example:
        >>> import jaxdyn
        >>> from jaxdyn.model import pseudo_inertia
        >>> pseudo_inertia(jaxdyn.load("arm7").inertia).shape
        (7, 4, 4)
    """
    m, x, y, z, xx, xy, yy, xz, yz, zz = _split(parameters("pi", pi))
    half = (xx + yy + zz) / 2
    rows = [[half - xx, -xy, -xz, x], [-xy, half - yy, -yz, y], [-xz, -yz, half - zz, z], [x, y, z, m]]
    return jnp.stack([jnp.stack(row, -1) for row in rows], -2)


@jax.jit
def from_pseudo_inertia(P: Any) -> jax.Array:
    """Return the inertial parameters (..., 10) of pseudo-inertias (..., 4, 4), whose upper triangle is read."""
    P = jnp.asarray(P)
    if P.shape[-2:] != (4, 4):
        raise ValueError(f"P must have shape (..., 4, 4); got {P.shape}")
    return (_like(_INTO_PARAMETERS, P) * P[..., None, :, :]).sum((-2, -1))


def log_cholesky(pi: Any) -> jax.Array:
    r"""Return the logarithmic Cholesky coordinates (..., 10) of physical inertias (..., 10).

    .. math:: P = e^{2\alpha} U U^T, \quad U = \begin{pmatrix} e^{d_1} & s_{12} & s_{13} & t_1 \\
        0 & e^{d_2} & s_{23} & t_2 \\ 0 & 0 & e^{d_3} & t_3 \\ 0 & 0 & 0 & 1 \end{pmatrix}, \quad
        \theta = (\alpha, d_1, d_2, d_3, s_{12}, s_{23}, s_{13}, t_1, t_2, t_3)

    (Rucker and Wensing 2022): the mass is :math:`e^{2\alpha}`, its centre t. Every theta is that of one body:
    what is optimised over theta stays physical.

    Raises:
        ValueError: if a pseudo-inertia is not positive definite (a body without mass, a rotor's spin, a thin rod
            or plate). Traced by jit, grad or vmap nothing can be raised: such a body's coordinates are not all finite.

    Example:
        >>> import jaxdyn
        >>> from jaxdyn.model import from_log_cholesky, log_cholesky
        >>> model = jaxdyn.load("arm7")
        >>> theta = log_cholesky(model.inertia)
        >>> changed = jaxdyn.with_inertial_parameters(model, from_log_cholesky(theta - 0.1))
        >>> round(float(changed.inertia[0, 0] / model.inertia[0, 0]), 4)
        0.8187
    """
    return _checked_log_cholesky("pi", parameters("pi", pi))


@jax.jit
def from_log_cholesky(theta: Any) -> jax.Array:
    """Return the inertial parameters (..., 10) of logarithmic Cholesky coordinates, see `log_cholesky`."""
    theta = parameters("theta", theta)
    U, m = _factor(theta), jnp.exp(2 * theta[..., :1])
    return m * from_pseudo_inertia((U[..., :, None, :] * U[..., None, :, :]).sum(-1))


@partial(jax.jit, static_argnames="inverse")
def log_cholesky_jacobian(theta: Any, *, inverse: bool = False) -> jax.Array:
    r"""Return the derivative (..., 10, 10) of pi with respect to theta, or if asked its inverse.

    .. math:: dP = 2 P\,d\alpha + e^{2\alpha} (dU\,U^T + U\,dU^T), \quad
        U^{-1} dU + 1\,d\alpha = \Phi(e^{-2\alpha}\, U^{-1} dP\, U^{-T})

    where :math:`\Phi` keeps the upper triangle and half of the diagonal.

    Example:
        >>> import jaxdyn
        >>> from jaxdyn.model import log_cholesky, log_cholesky_jacobian
        >>> theta = log_cholesky(jaxdyn.load("arm7").inertia)
        >>> product = log_cholesky_jacobian(theta) @ log_cholesky_jacobian(theta, inverse=True)
        >>> bool(abs(product.trace(axis1=1, axis2=2) - 10).max() < 1e-3)
        True
    """
    theta = parameters("theta", theta)
    return jnp.swapaxes(_theta_by_pi(theta) if inverse else _pi_by_theta(theta), -1, -2)


def entropic_divergence(pi: Any, prior: Any) -> jax.Array:
    r"""Return how far inertias (..., 10) are from prior ones: the Bregman divergence of -log det, shape (...).

    .. math:: \operatorname{tr}(P Q^{-1}) - \log\det(P Q^{-1}) - 4 \ge 0

    (Lee, Wensing and Park 2020), with Q the prior's pseudo-inertia. Zero only if the two are equal; the same in
    whatever frame and units both are given. By log-Cholesky coordinates, a sum of terms none of which is negative.

    Raises:
        ValueError: where `log_cholesky` does; traced, the result is then not finite.

    Example:
        >>> import jaxdyn
        >>> from jaxdyn.model import entropic_divergence
        >>> pi = jaxdyn.load("arm7").inertia
        >>> entropic_divergence(2 * pi, pi).round(4)[0]  # 4 (2 - 1 - log 2)
        Array(1.2274, dtype=float32)
    """
    pi, prior = jnp.broadcast_arrays(parameters("pi", pi), parameters("prior", prior))
    return _divergence(_checked_log_cholesky("pi", pi), _checked_log_cholesky("prior", prior))


def physical_margins(model: Model) -> jax.Array:
    """Return for each body how far its inertia is from the bounds of what is physical, (nbodies,).

    (I1 + I2 - I3) / I3 of the principal moments I1 <= I2 <= I3 about the centre of mass, twice the least eigenvalue of
    Sigma there over the largest moment: a number without a unit, the same in every frame. It is 1 for a ball or a cube,
    0 for a thin plate, a thin rod and a point mass, and negative if no body has this inertia. Without positive mass
    it is -1, or 0 where there is no body at all (ten zeros). Positive means that `log_cholesky` exists, up to rounding.

    Example:
        >>> import jaxdyn
        >>> from jaxdyn.model import physical_margins
        >>> bool((physical_margins(jaxdyn.load("arm7")) > 0).all())
        True
    """
    return _physical_margins(parameters("inertia", model.inertia))


@jax.jit
def _physical_margins(pi: jax.Array) -> jax.Array:
    s = _central_eigenvalues(pi)
    largest = jnp.maximum(jnp.abs(s[..., 0] + s[..., 1]), jnp.abs(s[..., 1] + s[..., 2]))
    bodiless = jnp.where(jnp.any(pi != 0, -1), -1.0, 0.0).astype(pi.dtype)
    return jnp.where(pi[..., 0] > 0, 2 * s[..., 0] * safe_reciprocal(largest), bodiless)


def is_physical(model: Model) -> jax.Array:
    """Tell whether bodies with the model's inertias could be built: a boolean scalar.

    The rules are those by which loaders warn. A body has positive mass, principal moments above zero, and obeys the
    triangle inequality but for the few digits that files print, so that a thin plate passes, and a rod without
    thickness does not. Two things pass that are parts of bodies: none at all (ten zeros), and the spin inertia of a
    rotor whose mass is counted elsewhere. Neither has a `log_cholesky`: for that, `physical_margins` must be positive.

    Example:
        >>> import jaxdyn
        >>> from jaxdyn.model import is_physical
        >>> bool(is_physical(jaxdyn.load("humanoid")))
        True
    """
    return _is_physical(parameters("inertia", model.inertia))


@jax.jit
def _is_physical(pi: jax.Array) -> jax.Array:
    s, eps = _central_eigenvalues(pi), float(jnp.finfo(pi.dtype).eps)
    tiny = max(1e-12, 16 * eps)
    I1, I2, I3 = s[..., 0] + s[..., 1], s[..., 0] + s[..., 2], s[..., 1] + s[..., 2]
    rounding = 8 * eps * jnp.abs(pi[..., 4:]).max(-1)
    triangle = 2 * s[..., 0] + rounding >= -TRIANGLE_SLACK * I3
    solid = (pi[..., 0] > 0) & (tiny * I3 < I1) & triangle
    spin = jnp.all(pi[..., :4] == 0, -1) & (jnp.maximum(jnp.abs(I1), jnp.abs(I2)) <= tiny * I3)
    return jnp.all(solid | spin, -1)


def parameters(name: str, value: Any) -> jax.Array:
    """Return an argument (..., 10) as an array of floating-point numbers."""
    array = jnp.asarray(value)
    if array.shape[-1:] != (10,):
        raise ValueError(f"{name} must have shape (..., 10), ten parameters per body; got {array.shape}")
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(float)


def _like(table: np.ndarray, x: jax.Array) -> jax.Array:
    """Return a table (10, 4, 4) with the type of an array and as many leading axes as its (..., i, j) has."""
    return jnp.asarray(table, x.dtype).reshape((1,) * (x.ndim - 2) + table.shape)


def _split(x: jax.Array) -> list[jax.Array]:
    return [x[..., i] for i in range(x.shape[-1])]


def _checked_log_cholesky(name: str, pi: jax.Array) -> jax.Array:
    """Return coordinates that are finite, or raise; traced, whatever comes."""
    theta = _log_cholesky(pi)
    if isinstance(theta, jax.core.Tracer):
        return theta
    bad = np.argwhere(~np.isfinite(theta).all(-1))
    if not len(bad):
        return theta
    index = tuple(bad[0].tolist())
    body = "" if not index else f"body {index[0]}: " if len(index) == 1 else f"body {index}: "
    P = np.asarray(pseudo_inertia(pi[index]), np.float64)
    if not np.isfinite(P).all():
        raise ValueError(f"{name}: {body}the inertia is not finite")
    least = np.linalg.eigvalsh(P)[0]
    raise ValueError(
        f"{name}: {body}the pseudo-inertia must be positive definite; its least eigenvalue is {least:.4g}. "
        "project_physical returns the nearest inertia that is (of a body without mass, with a margin)"
    )


@jax.jit
def _log_cholesky(pi: jax.Array) -> jax.Array:
    m, x, y, z, xx, xy, yy, xz, yz, zz = _split(pi)
    t1, t2, t3 = x / m, y / m, z / m
    half = (xx + yy + zz) / 2
    # Squares of the diagonal of U, and what is beside it, from the covariance of the mass.
    u33 = (half - zz) / m - t3 * t3
    s13, s23 = (-xz / m - t1 * t3) / jnp.sqrt(u33), (-yz / m - t2 * t3) / jnp.sqrt(u33)
    u22 = (half - yy) / m - t2 * t2 - s23 * s23
    s12 = (-xy / m - t1 * t2 - s13 * s23) / jnp.sqrt(u22)
    u11 = (half - xx) / m - t1 * t1 - s13 * s13 - s12 * s12
    logs = jnp.log(jnp.stack([m, u11, u22, u33], -1)) / 2
    return jnp.concatenate([logs, jnp.stack([s12, s23, s13, t1, t2, t3], -1)], -1)


def _factor(theta: jax.Array) -> jax.Array:
    """Return U (..., 4, 4)."""
    entries = jnp.concatenate([jnp.exp(theta[..., 1:4]), theta[..., 4:], jnp.ones_like(theta[..., :1])], -1)
    return (_like(_INTO_FACTOR, entries[..., None]) * entries[..., None, None]).sum(-3)


def _pi_by_theta(theta: jax.Array) -> jax.Array:
    """Return d pi_j / d theta_i at [..., i, j]."""
    U, m = _factor(theta), jnp.exp(2 * theta[..., :1])
    slope = jnp.ones((*theta.shape[:-1], 9), theta.dtype).at[..., :3].set(jnp.exp(theta[..., 1:4]))
    columns = slope[..., None] * jnp.swapaxes(U[..., _COLUMN], -1, -2)
    X = jnp.zeros((*theta.shape[:-1], 9, 4, 4), theta.dtype).at[..., np.arange(9), _ROW, :].set(columns)  # dU U^T
    rest = m[..., None] * from_pseudo_inertia(X + jnp.swapaxes(X, -1, -2))
    return jnp.concatenate([2 * from_log_cholesky(theta)[..., None, :], rest], -2)


def _theta_by_pi(theta: jax.Array) -> jax.Array:
    """Return d theta_j / d pi_i at [..., i, j]."""
    einsum = partial(jnp.einsum, precision="highest")
    U, eye = _factor(theta), jnp.eye(4, dtype=theta.dtype)
    V = jax.lax.linalg.triangular_solve(U, jnp.broadcast_to(eye, U.shape), left_side=True)
    dP = pseudo_inertia(jnp.eye(10, dtype=theta.dtype))
    W = einsum("...ai,kij,...bj->...kab", V, dP, V) * jnp.exp(-2 * theta[..., 0])[..., None, None, None]
    half = jnp.broadcast_to(jnp.triu(jnp.ones_like(eye)) - eye / 2, W.shape)
    Phi = half * W
    d_alpha = Phi[..., 3, 3]
    dU = einsum("...ai,...kib->...kab", U, Phi - d_alpha[..., None, None] * jnp.broadcast_to(eye, W.shape))
    dd = jnp.diagonal(Phi, axis1=-2, axis2=-1)[..., :3] - d_alpha[..., None]
    return jnp.concatenate([d_alpha[..., None], dd, dU[..., _ROW[3:], _COLUMN[3:]]], -1)


@jax.jit
def _divergence(theta: jax.Array, prior: jax.Array) -> jax.Array:
    B = jax.lax.linalg.triangular_solve(_factor(prior), _factor(theta), left_side=True)
    logs = theta[..., :4] - prior[..., :4]
    x = 2 * logs.at[..., 1:].add(logs[..., :1])  # logarithms of the squared diagonal of B, with the masses
    above = jnp.exp(2 * logs[..., 0]) * (jnp.triu(B, 1) ** 2).sum((-1, -2))
    return (jnp.expm1(x) - x).sum(-1) + above


def _central_eigenvalues(pi: jax.Array) -> jax.Array:
    """Return the eigenvalues (..., 3), ascending, of Sigma about the centre of mass (about the origin without mass)."""
    P = pseudo_inertia(pi)
    about_origin, h = P[..., :3, :3], P[..., :3, 3]
    Sigma = about_origin - h[..., :, None] * (h * safe_reciprocal(pi[..., :1]))[..., None, :]
    return _eigh(Sigma, rounding(jnp.diagonal(about_origin, axis1=-2, axis2=-1)))[0]


@jax.custom_jvp
def _eigh(A: jax.Array, tolerance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return eigenvalues and eigenvectors; to differentiation, those as near as the tolerance (..., 1) do not mix."""
    w, V = jnp.linalg.eigh(A)
    return w, V


@_eigh.defjvp
def _eigh_jvp(primals: Any, tangents: Any) -> Any:
    w, V = _eigh(*primals)
    dA = jnp.swapaxes(V, -1, -2) @ tangents[0] @ V
    gap = w[..., None, :] - w[..., :, None]
    gap = jnp.where(jnp.abs(gap) > primals[1][..., None], gap, 0)
    return (w, V), (jnp.diagonal(dA, axis1=-2, axis2=-1), V @ (safe_reciprocal(gap) * dA))


def rounding(x: jax.Array) -> jax.Array:
    """Return what a few roundings of the largest of x (..., n) come to, (..., 1)."""
    return 8 * jnp.finfo(x.dtype).eps * jnp.abs(x).max(-1, keepdims=True)
