"""Trajectories to first order: how each state depends on the one before it."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._checks import number
from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.derivatives import forward_dynamics_derivatives, integrate_derivatives
from jaxdyn.model import Model, integrate
from jaxdyn.model.configuration import tangent
from jaxdyn.simulate import integrators
from jaxdyn.simulate.integrators import Integrator
from jaxdyn.simulate.rollouts import Trajectory, inputs_of, system_of
from jaxdyn.simulate.system import JointLimits, System

Matrices = tuple[jax.Array, jax.Array]


def linearize_trajectory(
    model: Model,
    trajectory: Trajectory,
    tau: Any,
    *,
    dt: Any,
    integrator: str | Integrator = "semi_implicit_euler",
    f_ext: Any = None,
    limits: JointLimits | None = None,
    params: Any = None,
) -> Matrices:
    r"""Compute the state Jacobians of every step of a trajectory, in the tangent.

    .. math:: x_{i+1} \approx A_i\, x_i + B_i\, \tau_i, \qquad x = (\delta q, \delta \dot q)

    where :math:`\delta q_i` leads along `integrate(model, q_i, .)`. All steps are taken at once, as a batch; those of
    semi-implicit Euler by the derivatives of forward dynamics in closed form.

    Args:
        model: the model.
        trajectory: states, as `rollout` returns them with `save_every=1`.
        tau: joint forces of the steps, (T, nv), such as `extras["tau"]`. They count as inputs, also if a policy made
            them.
        dt: time step, s.
        integrator: as in `rollout`; also `f_ext`, `limits` and `params`.
        f_ext: see `rollout`.
        limits: see `rollout`.
        params: see `rollout`.

    Returns:
        (A, B), of shapes (T, 2 nv, 2 nv) and (T, 2 nv, nv).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.simulate import linearize_trajectory, rollout
        >>> model = jaxdyn.load("double_pendulum")
        >>> tau = jnp.zeros((5, 2))
        >>> trajectory = rollout(model, jnp.ones(2), jnp.zeros(2), tau, dt=0.01)
        >>> A, B = linearize_trajectory(model, trajectory, tau, dt=0.01)
        >>> A.shape, B.shape
        ((5, 4, 4), (5, 4, 2))
    """
    system, nv = system_of(model, f_ext, limits, params), model.nv
    sizes = {"t": "(T + 1,)", "q": f"(T + 1, {model.nq})", "qd": f"(T + 1, {nv})"}
    t, q, qd = (
        inputs_of(f"trajectory.{n}", getattr(trajectory, n), f"{w}, one row per state") for n, w in sizes.items()
    )
    states = len(q) if np.ndim(q) else 0
    for name, value, shape in (("t", t, (states,)), ("q", q, (states, model.nq)), ("qd", qd, (states, nv))):
        if np.shape(value) != shape or not states:
            raise ValueError(
                f"trajectory.{name} must have shape {sizes[name]}, one row per state; got {np.shape(value)}"
            )
    rows, tau = states - 1, inputs_of("tau", tau, f"({states - 1}, {nv}), one row per step of the trajectory")
    if np.shape(tau) != (rows, nv):
        raise ValueError(f"tau must have shape ({rows}, {nv}), one row per step of the trajectory; got {np.shape(tau)}")
    return _linearized(system, Trajectory(t, q, qd), tau, dt, integrators.find(integrator))


@partial(jit, static_argnames="integrator")
def _linearized(system: System, trajectory: Trajectory, tau: Any, dt: Any, integrator: Integrator) -> Matrices:
    def at(t: jax.Array, q: jax.Array, qd: jax.Array, tau: jax.Array) -> Matrices:
        q, qd, tau = arguments.vectors(system.model, q=q, qd=qd, tau=tau)
        h = number("dt", dt, q.dtype)
        if integrator is integrators.semi_implicit_euler and system.f_ext_of_state is None:
            return _of_semi_implicit_euler(system, t, q, qd, tau, h)
        return _by_autodiff(system, t, q, qd, tau, h, integrator)

    return jax.vmap(at)(trajectory.t[:-1], trajectory.q[:-1], trajectory.qd[:-1], jnp.asarray(tau))


def _by_autodiff(system: System, t: Any, q: Any, qd: Any, tau: Any, dt: Any, integrator: Integrator) -> Matrices:
    """Return the Jacobians of one step by forward mode."""
    model, nv = system.model, system.model.nv

    def after(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        dq, dqd, dtau = jnp.split(x, (nv, 2 * nv))
        return integrator(system, t, integrate(model, q, dq), qd + dqd, tau + dtau, dt)[:2]

    x = jnp.zeros(3 * nv, q.dtype)
    by_x = jax.jacfwd(after)(x)
    AB = jnp.concatenate([tangent(model, after(x)[0][:, None], by_x[0]), by_x[1]])
    return AB[:, : 2 * nv], AB[:, 2 * nv :]


def _of_semi_implicit_euler(system: System, t: Any, q: Any, qd: Any, tau: Any, dt: Any) -> Matrices:
    """Return the Jacobians of one step in closed form, but for those of the passive forces."""
    model, one = system.model, jnp.eye(system.model.nv, dtype=q.dtype)
    damped = dataclasses.replace(model, armature=model.armature + dt * model.damping)
    passive = lambda dq, qd: system.joint_forces(integrate(model, q, dq), qd)
    F_q, F_v = jax.jacfwd(passive, argnums=(0, 1))(jnp.zeros_like(qd), qd)
    force = tau + passive(jnp.zeros_like(qd), qd)
    a_q, a_v, a_tau = forward_dynamics_derivatives(damped, q, qd, force, f_ext=system.f_ext)
    qd_after = qd + dt * system.acceleration(t, q, qd, tau, damped_for=dt)
    by_q, by_dq = integrate_derivatives(model, q, dt * qd_after)
    by_velocity = jnp.concatenate([dt * (a_q + a_tau @ F_q), one + dt * (a_v + a_tau @ F_v), dt * a_tau], axis=1)
    by_configuration = dt * by_dq @ by_velocity
    by_configuration = by_configuration.at[:, : model.nv].add(by_q)
    AB = jnp.concatenate([by_configuration, by_velocity])
    return AB[:, : 2 * model.nv], AB[:, 2 * model.nv :]
