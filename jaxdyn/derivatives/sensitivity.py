"""Derivatives of the mass matrix by automatic differentiation, in the tangent."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn.algorithms import arguments, coriolis_matrix, mass_matrix
from jaxdyn.model import Model, integrate


@arguments.compiled
def mass_matrix_sensitivity_autodiff(model: Model, q: Any) -> jax.Array:
    """Compute `mass_matrix_sensitivity` by forward mode through `mass_matrix`."""
    (q,) = arguments.vectors(model, q=q)
    return jax.jacfwd(lambda dq: mass_matrix(model, integrate(model, q, dq)))(jnp.zeros(model.nv, q.dtype))


@arguments.compiled
def mass_matrix_sensitivity_vp_autodiff(model: Model, q: Any, x: Any, y: Any) -> jax.Array:
    """Compute `mass_matrix_sensitivity_vp` by reverse mode through `mass_matrix`."""
    q, x, y = arguments.vectors(model, q=q, x=x, y=y)
    return jax.grad(lambda dq: x @ mass_matrix(model, integrate(model, q, dq)) @ y)(jnp.zeros_like(x))


@arguments.compiled
def christoffel_symbols_autodiff(model: Model, q: Any) -> jax.Array:
    """Compute `christoffel_symbols` as the derivative of the Coriolis matrix by the velocity."""
    (q,) = arguments.vectors(model, q=q)
    slope = jax.jacfwd(lambda qd: coriolis_matrix(model, q, qd))(jnp.zeros(model.nv, q.dtype))
    return jnp.swapaxes(slope, 1, 2)
