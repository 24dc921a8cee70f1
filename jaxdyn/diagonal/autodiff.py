"""Twins of the diagonalised equations of motion, by automatic differentiation of the mass matrix's factor."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.aba import require_regular
from jaxdyn.algorithms.crba import mass_matrix
from jaxdyn.algorithms.rnea import bias_force, gravity_force
from jaxdyn.diagonal.equations import WHAT
from jaxdyn.model import Model, integrate


def innovations_factor_dense(model: Model, q: Any) -> jax.Array:
    r"""Compute the innovations factor m as a matrix: the Cholesky factor of the mass matrix, from tips to base.

    Joints are taken from the tips to the base, the degrees of freedom of each in their own order. In that order m is
    the lower Cholesky factor of M.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).

    Returns:
        m, (nv, nv), in the model's order; m m* = M.
    """
    arguments.require_model(model)
    arguments.refuse_mimic(model, WHAT)
    order = tips_first(model)
    back = np.argsort(order)
    m = jnp.linalg.cholesky(mass_matrix(model, q)[order][:, order], symmetrize_input=False)
    return m[back][:, back]


def tips_first(model: Model) -> np.ndarray:
    """Return the degrees of freedom with joints from the tips to the base."""
    body = _bodies_of(model)
    return np.argsort(-body, kind="stable").astype(np.int32)


def _bodies_of(model: Model) -> np.ndarray:
    """Return the number of the body that each degree of freedom moves."""
    return np.repeat(np.arange(model.nbodies), [joint.nv for joint in model.topology.joints])


def coriolis_autodiff(model: Model, q: Any, nu: Any) -> jax.Array:
    r"""Compute the Coriolis term of the diagonalised equations by automatic differentiation.

    .. math:: C(q, \nu) = m^{-1} C(q, \dot q) - \dot m^* \dot q, \qquad \dot q = m^{-*} \nu

    with m the Cholesky factor of the mass matrix, its rate by forward mode, and the bias force of inverse dynamics. It
    takes time that grows with the cube of the degrees of freedom, and shares nothing with `coriolis`.

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused.
        q: configuration, (nq,).
        nu: total joint rates, (nv,).

    Returns:
        C, (nv,), without gravity.
    """
    arguments.require_model(model)
    arguments.refuse_mimic(model, WHAT)
    require_regular(model)
    return _coriolis(model.moving, q, nu)


@jit
def _coriolis(model: Model, q: Any, nu: Any) -> jax.Array:
    q, nu = arguments.vectors(model, q=q, nu=nu)
    m = innovations_factor_dense(model, q)
    qd = _solve(model, m, nu, transposed=True)
    return _whitened_bias(model, q, qd, m) - _factor_rate(model, q, qd).T @ qd


def coriolis_xi_autodiff(model: Model, q: Any, xi: Any) -> jax.Array:
    r"""Compute the Coriolis term of the equations in rates that are not normalised, by automatic differentiation.

    .. math:: C(q, \xi) = L\, [C(q, \nu) + \dot L^* \xi], \qquad \nu = L^* \xi

    with L the blocks of m on its diagonal.

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused.
        q: configuration, (nq,).
        xi: total joint rates, (nv,), as of `to_xi`.

    Returns:
        C, (nv,), without gravity.
    """
    arguments.require_model(model)
    arguments.refuse_mimic(model, WHAT)
    require_regular(model)
    return _coriolis_xi(model.moving, q, xi)


@jit
def _coriolis_xi(model: Model, q: Any, xi: Any) -> jax.Array:
    q, xi = arguments.vectors(model, q=q, xi=xi)
    body = _bodies_of(model)
    blocks = (body[:, None] == body[None]).astype(q.dtype)
    m = innovations_factor_dense(model, q)
    L = blocks * m
    qd = _solve(model, m, L.T @ xi, transposed=True)
    m_rate = _factor_rate(model, q, qd)
    return L @ (_whitened_bias(model, q, qd, m) - m_rate.T @ qd + (blocks * m_rate).T @ xi)


def _factor_rate(model: Model, q: jax.Array, qd: jax.Array) -> jax.Array:
    along = lambda t: innovations_factor_dense(model, integrate(model, q, t * qd))
    return jax.jvp(along, (jnp.zeros((), q.dtype),), (jnp.ones((), q.dtype),))[1]


def _whitened_bias(model: Model, q: jax.Array, qd: jax.Array, m: jax.Array) -> jax.Array:
    return _solve(model, m, bias_force(model, q, qd) - gravity_force(model, q))


def _solve(model: Model, m: jax.Array, x: jax.Array, *, transposed: bool = False) -> jax.Array:
    """Return m^-1 x, or m^-* x."""
    order = tips_first(model)
    found = solve_triangular(m[order][:, order], x[order], lower=True, trans=int(transposed))
    return found[np.argsort(order)]
