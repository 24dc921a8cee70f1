"""Derivatives of dynamics by automatic differentiation, in the tangent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn.algorithms import arguments, forward_dynamics, inverse_dynamics
from jaxdyn.model import Model, integrate

Matrices = tuple[jax.Array, jax.Array, jax.Array]


def _by_state(function: Callable[..., jax.Array], model: Model, q: Any, qd: Any, last: Any) -> Matrices:
    """Return the derivatives of a function of (q, qd, last), by q along `integrate`."""
    along = lambda dq, qd, last: function(integrate(model, q, dq), qd, last)
    return jax.jacfwd(along, argnums=(0, 1, 2))(jnp.zeros_like(qd), qd, last)


@arguments.compiled
def inverse_dynamics_derivatives_autodiff(
    model: Model, q: Any, qd: Any, qdd: Any, *, f_ext: Any = None, base_motion: Any = None
) -> Matrices:
    """Compute `inverse_dynamics_derivatives` by forward mode through `inverse_dynamics`."""
    q, qd, qdd = arguments.vectors(model, q=q, qd=qd, qdd=qdd)
    f = lambda *state: inverse_dynamics(model, *state, f_ext=f_ext, base_motion=base_motion)
    return _by_state(f, model, q, qd, qdd)


@arguments.compiled
def forward_dynamics_derivatives_autodiff(
    model: Model, q: Any, qd: Any, tau: Any, *, f_ext: Any = None, base_motion: Any = None
) -> Matrices:
    """Compute `forward_dynamics_derivatives` by forward mode through `forward_dynamics`."""
    q, qd, tau = arguments.vectors(model, q=q, qd=qd, tau=tau)
    f = lambda *state: forward_dynamics(model, *state, f_ext=f_ext, base_motion=base_motion)
    return _by_state(f, model, q, qd, tau)
