"""MJX: MuJoCo on JAX, the parts of `mjx.forward` that smooth dynamics needs and no others."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from mujoco import mjx
from mujoco.mjx._src.smooth import solve_m

from benchmarks.contenders.base import PEER_OPTIONS, Job, Unsupported, inputs, jax_job
from benchmarks.contenders.mujoco_conventions import MujocoConventions
from benchmarks.robots import Robot, States

LARGEST = 64
"""Bodies up to which it is tried: every body is unrolled, and compiling takes minutes beyond."""


class Mjx:
    """Model and data as arguments, as in MJX's own examples."""

    def __init__(self, robot: Robot):
        if robot.model.nbodies > LARGEST:
            raise Unsupported(f"not tried beyond {LARGEST} bodies: it compiles for minutes")
        self.conventions = MujocoConventions(robot)

    def job(self, quantity: str, states: States, dtype: Any) -> Job:
        """Make a quantity ready to run."""
        mj_model = self.conventions.mj_model
        arguments = [mjx.put_model(mj_model), mjx.make_data(mj_model)]
        ours = lambda result: self.conventions.ours(quantity, states, result)
        theirs = inputs(quantity, self.conventions.theirs(states))
        return jax_job(
            FUNCTIONS[quantity], arguments, theirs, dtype, ours, method="vmap of its smooth parts", options=PEER_OPTIONS
        )


def _forward_dynamics(m: Any, d: Any, q: jax.Array, qd: jax.Array, tau: jax.Array) -> jax.Array:
    d = mjx.factor_m(m, _composite(m, d.replace(qpos=q, qvel=qd)))
    d = mjx.rne(m, mjx.com_vel(m, d))
    return solve_m(m, d, tau - d.qfrc_bias)


def _inverse_dynamics(m: Any, d: Any, q: jax.Array, qd: jax.Array, qdd: jax.Array) -> jax.Array:
    d = mjx.com_pos(m, mjx.kinematics(m, d.replace(qpos=q, qvel=qd, qacc=qdd)))
    return mjx.rne(m, mjx.com_vel(m, d), flg_acc=True).qfrc_bias


def _mass_matrix(m: Any, d: Any, q: jax.Array) -> jax.Array:
    return mjx.full_m(m, _composite(m, d.replace(qpos=q)))


def _mass_matrix_inverse(m: Any, d: Any, q: jax.Array) -> jax.Array:
    d = mjx.factor_m(m, _composite(m, d.replace(qpos=q)))
    return jax.vmap(lambda e: solve_m(m, d, e))(jnp.eye(m.nv))


def _composite(m: Any, d: Any) -> Any:
    return mjx.crb(m, mjx.com_pos(m, mjx.kinematics(m, d)))


FUNCTIONS = {
    "FD": _forward_dynamics,
    "ID": _inverse_dynamics,
    "CRBA": _mass_matrix,
    "Minv": _mass_matrix_inverse,
}
CONTENDER = Mjx
