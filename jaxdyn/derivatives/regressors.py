"""Regressors by automatic differentiation with respect to the inertial parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn.algorithms import arguments, body_velocities, forward_kinematics, inverse_dynamics, kinetic_energy
from jaxdyn.model import Model, with_inertial_parameters
from jaxdyn.spatial import Mat3, Motion, RigidInertia, Vec3


def _by_parameters(function: Callable[[Model], jax.Array], model: Model) -> jax.Array:
    """Return the derivative of a function of a model by its inertial parameters, (..., 10 * nbodies)."""
    slope = jax.jacfwd(lambda pi: function(with_inertial_parameters(model, pi)))(model.inertia)
    return slope.reshape((*slope.shape[:-2], 10 * model.nbodies))


@arguments.compiled
def joint_torque_regressor_autodiff(model: Model, q: Any, qd: Any, qdd: Any, *, base_motion: Any = None) -> jax.Array:
    """Compute `joint_torque_regressor` as the derivative of inverse dynamics by the inertial parameters."""
    return _by_parameters(lambda model: inverse_dynamics(model, q, qd, qdd, base_motion=base_motion), model)


@arguments.compiled
def kinetic_energy_regressor_autodiff(model: Model, q: Any, qd: Any) -> jax.Array:
    """Compute `kinetic_energy_regressor` as the derivative of the kinetic energy by the inertial parameters."""
    return _by_parameters(lambda model: kinetic_energy(model, q, qd), model)


@arguments.compiled
def potential_energy_regressor_autodiff(model: Model, q: Any) -> jax.Array:
    """Compute `potential_energy_regressor` as the derivative of the potential energy by the inertial parameters."""

    def energy(model: Model) -> jax.Array:
        R, p = forward_kinematics(model, q)
        moments = model.inertia[:, :1] * p + jnp.einsum("nij,nj->ni", R, model.inertia[:, 1:4])
        return -(moments @ model.gravity).sum()

    return _by_parameters(energy, model)


@arguments.compiled
def momentum_regressor_autodiff(model: Model, q: Any, qd: Any) -> jax.Array:
    """Compute `momentum_regressor` as the derivative of the momentum by the inertial parameters."""

    def momentum(model: Model) -> jax.Array:
        poses, V = forward_kinematics(model, q), Motion.from_array(body_velocities(model, q, qd))
        of_bodies = RigidInertia.from_parameters(model.inertia) @ V
        R, p = Mat3.from_array(poses.rotation), Vec3.from_array(poses.position)
        return of_bodies.rotate(R).shift(p).to_array().sum(0)

    return _by_parameters(momentum, model)
