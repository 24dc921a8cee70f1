"""Derivatives of frames' motion, of momentum and of energies by automatic differentiation, in the tangent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn.algorithms import (
    arguments,
    centroidal_momentum,
    frame_acceleration,
    frame_velocity,
    kinetic_energy,
    potential_energy,
)
from jaxdyn.model import Model, integrate


def by_state(function: Callable[..., jax.Array], model: Model, q: Any, *rest: Any, jacobian: Any = jax.jacfwd) -> Any:
    """Return the derivatives of a function of q and other vectors, by q along `integrate`."""
    along = lambda dq, *rest: function(integrate(model, q, dq), *rest)
    return jacobian(along, argnums=tuple(range(1 + len(rest))))(jnp.zeros(model.nv, q.dtype), *rest)


def frame_velocity_derivatives_autodiff(
    model: Model, q: Any, qd: Any, frame: str, point: Any = None, *, base_motion: Any = None
) -> tuple[jax.Array, jax.Array]:
    """Compute `frame_velocity_derivatives` by forward mode through `frame_velocity`."""
    q, qd = arguments.vectors(model, q=q, qd=qd)
    of_state = lambda q, qd: frame_velocity(model, q, qd, frame, point, base_motion=base_motion)
    return by_state(of_state, model, q, qd)


def frame_acceleration_derivatives_autodiff(
    model: Model, q: Any, qd: Any, qdd: Any, frame: str, point: Any = None, *, base_motion: Any = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute `frame_acceleration_derivatives` by forward mode through `frame_acceleration`."""
    q, qd, qdd = arguments.vectors(model, q=q, qd=qd, qdd=qdd)
    of_state = lambda q, qd, qdd: frame_acceleration(model, q, qd, qdd, frame, point, base_motion=base_motion)
    return by_state(of_state, model, q, qd, qdd)


def centroidal_momentum_derivatives_autodiff(model: Model, q: Any, qd: Any) -> tuple[jax.Array, jax.Array]:
    """Compute `centroidal_momentum_derivatives` by forward mode through `centroidal_momentum`."""
    q, qd = arguments.vectors(model, q=q, qd=qd)
    return by_state(lambda *state: centroidal_momentum(model, *state), model, q, qd)


def kinetic_energy_derivatives_autodiff(model: Model, q: Any, qd: Any) -> tuple[jax.Array, jax.Array]:
    """Compute `kinetic_energy_derivatives` by reverse mode through `kinetic_energy`."""
    q, qd = arguments.vectors(model, q=q, qd=qd)
    return by_state(lambda *state: kinetic_energy(model, *state), model, q, qd, jacobian=jax.grad)


def potential_energy_derivatives_autodiff(model: Model, q: Any) -> jax.Array:
    """Compute `potential_energy_derivatives` by reverse mode through `potential_energy`."""
    (q,) = arguments.vectors(model, q=q)
    return by_state(lambda q: potential_energy(model, q), model, q, jacobian=jax.grad)[0]
