"""Brax, its generalised-coordinates pipeline without constraints and actuators.

It has no inverse dynamics with accelerations (M qdd + bias stands for it), and its own pipeline multiplies by
an inverse of M; here M is solved by Cholesky, which is faster.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from brax import kinematics
from brax.generalized import dynamics, mass
from brax.generalized.base import State
from brax.io import mjcf

from benchmarks.contenders.base import PEER_OPTIONS, Job, Unsupported, inputs, jax_job
from benchmarks.contenders.mujoco_conventions import MujocoConventions
from benchmarks.robots import Robot, States

LARGEST = 64
"""Bodies up to which it is tried: every level of the tree is unrolled, and compiling takes minutes beyond."""


class Brax:
    """The system as an argument."""

    def __init__(self, robot: Robot):
        if robot.model.nbodies > LARGEST:
            raise Unsupported(f"not tried beyond {LARGEST} bodies: it compiles for minutes")
        if "spherical" in robot.model.joint_types:
            raise Unsupported("has no ball joints")
        self.conventions = MujocoConventions(robot)

    def job(self, quantity: str, states: States, dtype: Any) -> Job:
        """Make a quantity ready to run."""
        system = mjcf.load_model(self.conventions.mj_model)
        ours = lambda result: self.conventions.ours(quantity, states, result)
        theirs = inputs(quantity, self.conventions.theirs(states))
        return jax_job(
            FUNCTIONS[quantity], [system], theirs, dtype, ours, method="vmap of its smooth parts", options=PEER_OPTIONS
        )


def _state(system: Any, q: jax.Array, qd: jax.Array) -> Any:
    x, xd = kinematics.forward(system, q, qd)
    return dynamics.transform_com(system, State.init(q, qd, x, xd))


def _forward_dynamics(system: Any, q: jax.Array, qd: jax.Array, tau: jax.Array) -> jax.Array:
    state = _state(system, q, qd)
    M, bias = mass.matrix(system, state), dynamics.inverse(system, state)
    return jax.scipy.linalg.solve(M, tau - bias, assume_a="pos")


def _inverse_dynamics(system: Any, q: jax.Array, qd: jax.Array, qdd: jax.Array) -> jax.Array:
    state = _state(system, q, qd)
    return mass.matrix(system, state) @ qdd + dynamics.inverse(system, state)


def _mass_matrix(system: Any, q: jax.Array) -> jax.Array:
    return mass.matrix(system, _state(system, q, jnp.zeros(system.qd_size())))


def _mass_matrix_inverse(system: Any, q: jax.Array) -> jax.Array:
    return jax.scipy.linalg.solve(_mass_matrix(system, q), jnp.eye(system.qd_size()), assume_a="pos")


FUNCTIONS = {
    "FD": _forward_dynamics,
    "ID": _inverse_dynamics,
    "CRBA": _mass_matrix,
    "Minv": _mass_matrix_inverse,
}
CONTENDER = Brax
