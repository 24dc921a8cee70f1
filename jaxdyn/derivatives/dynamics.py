"""Derivatives of dynamics by automatic differentiation, in the tangent."""

from __future__ import annotations

from typing import Any

import jax

from jaxdyn.algorithms import arguments, forward_dynamics, inverse_dynamics
from jaxdyn.derivatives.motion import by_state
from jaxdyn.model import Model

Matrices = tuple[jax.Array, jax.Array, jax.Array]


@arguments.compiled
def inverse_dynamics_derivatives_autodiff(
    model: Model, q: Any, qd: Any, qdd: Any, *, f_ext: Any = None, base_motion: Any = None
) -> Matrices:
    """Compute `inverse_dynamics_derivatives` by forward mode through `inverse_dynamics`."""
    q, qd, qdd = arguments.vectors(model, q=q, qd=qd, qdd=qdd)
    f = lambda *state: inverse_dynamics(model, *state, f_ext=f_ext, base_motion=base_motion)
    return by_state(f, model, q, qd, qdd)


@arguments.compiled
def forward_dynamics_derivatives_autodiff(
    model: Model, q: Any, qd: Any, tau: Any, *, f_ext: Any = None, base_motion: Any = None
) -> Matrices:
    """Compute `forward_dynamics_derivatives` by forward mode through `forward_dynamics`."""
    q, qd, tau = arguments.vectors(model, q=q, qd=qd, tau=tau)
    f = lambda *state: forward_dynamics(model, *state, f_ext=f_ext, base_motion=base_motion)
    return by_state(f, model, q, qd, tau)
