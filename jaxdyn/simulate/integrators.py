r"""Integrators: one step on the manifold of configurations.

Every integrator is a function (system, t, q, qd, tau, dt) -> (q, qd, qdd) with tau held, and qdd the mean acceleration
over the step, :math:`\dot q' = \dot q + h \ddot q`. Configurations move along `integrate` alone: quaternions keep unit
length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn._checks import suggestion
from jaxdyn.diagonal import from_nu, to_nu
from jaxdyn.diagonal import step as energy_keeping_step
from jaxdyn.joints import Free
from jaxdyn.model import Model
from jaxdyn.model.configuration import bracket
from jaxdyn.simulate.configurations import moved
from jaxdyn.simulate.system import System
from jaxdyn.spatial import Quaternion, Vec3

Step = tuple[jax.Array, jax.Array, jax.Array]
Integrator = Callable[[System, Any, jax.Array, jax.Array, jax.Array, Any], Step]


def semi_implicit_euler(system: System, t: Any, q: jax.Array, qd: jax.Array, tau: jax.Array, dt: Any) -> Step:
    r"""Advance the velocity, then the configuration with the new velocity; damping is implicit (first order).

    .. math:: (M + h D)\, \ddot q = \tau + \tau_{passive} - b, \qquad \dot q' = \dot q + h\, \ddot q,
        \qquad q' = q \oplus h\, \dot q'
    """
    qdd = system.acceleration(t, q, qd, tau, damped_for=dt)
    qd = qd + dt * qdd
    return moved(system.model, q, dt * qd), qd, qdd


def mujoco_euler(system: System, t: Any, q: jax.Array, qd: jax.Array, tau: jax.Array, dt: Any) -> Step:
    r"""Advance as `semi_implicit_euler`, but floating bases as MuJoCo does: in R^3 x SO(3), not in SE(3).

    The base's linear velocity is advanced in the axes in which its position is given, and its position along it:

    .. math:: v_w' = R v + h R (\dot v + \omega \times v), \qquad p' = p + h v_w', \qquad v' = R'^T v_w'
    """
    new_q, new_qd, qdd = semi_implicit_euler(system, t, q, qd, tau, dt)
    for group in system.model.topology.own_groups:
        if type(group.joint) is not Free:
            continue
        for at_q, at_qd in zip(group.q, group.qd, strict=True):
            rotation, position, angular, linear = at_q[:4], at_q[4:], at_qd[:3], at_qd[3:]
            w, v, a = (Vec3(*x) for x in (qd[angular], qd[linear], qdd[linear]))
            v_world = Quaternion(*q[rotation]).to_matrix() @ (v + dt * (a + w.cross(v)))
            v = Quaternion(*new_q[rotation]).to_matrix().T @ v_world
            new_q = new_q.at[position].set(q[position] + dt * jnp.stack([*v_world]))
            new_qd = new_qd.at[linear].set(jnp.stack([*v]))
    return new_q, new_qd, _per(new_qd - qd, dt)


def _rate(model: Model, q: jax.Array, theta: jax.Array, v: jax.Array) -> jax.Array:
    r"""Return the rate of theta at which q ⊕ theta moves with velocity v, to third order in theta.

    .. math:: \dot\theta = v + \tfrac12 [\theta, v] + \tfrac1{12} [\theta, [\theta, v]] + O(\theta^4)
    """
    once = bracket(model, q, theta, v)
    return v + once / 2 + bracket(model, q, theta, once) / 12


def _runge_kutta(nodes: Sequence[float], weights: Sequence[float]) -> Integrator:
    """Return the Runge-Kutta-Munthe-Kaas method each of whose stages starts from the one before it."""

    def integrator(system: System, t: Any, q: jax.Array, qd: jax.Array, tau: jax.Array, dt: Any) -> Step:
        model = system.model

        def visit(carry: Any, stage: Any) -> Any:
            (slope, mean), (c, b) = carry, stage
            theta, v = c * dt * slope[0], qd + c * dt * slope[1]
            qdd = system.acceleration(t + c * dt, moved(model, q, theta), v, tau)
            slope = _rate(model, q, theta, v), qdd
            return (slope, jax.tree.map(lambda m, s: m + b * s, mean, slope)), None

        none = (0 * qd, 0 * qd)
        table = tuple(jnp.asarray(x, qd.dtype) for x in (nodes, weights))
        (_, (velocity, qdd)), _ = jax.lax.scan(visit, (none, none), table)
        return moved(model, q, dt * velocity), qd + dt * qdd, qdd

    return integrator


def midpoint(system: System, t: Any, q: jax.Array, qd: jax.Array, tau: jax.Array, dt: Any) -> Step:
    """Advance with velocity and acceleration in the middle of the step, found by half a step (second order)."""
    return _runge_kutta((0, 1 / 2), (0, 1))(system, t, q, qd, tau, dt)


def rk4(system: System, t: Any, q: jax.Array, qd: jax.Array, tau: jax.Array, dt: Any) -> Step:
    """Advance by the classical Runge-Kutta method in the form of Munthe-Kaas (1998), fourth order."""
    return _runge_kutta((0, 1 / 2, 1 / 2, 1), (1 / 6, 1 / 3, 1 / 3, 1 / 6))(system, t, q, qd, tau, dt)


def implicit_midpoint(
    system: System, t: Any, q: jax.Array, qd: jax.Array, tau: jax.Array, dt: Any, *, iterations: int = 4
) -> Step:
    r"""Advance with the acceleration in the middle of the step, which it defines itself (second order, reversible).

    .. math:: v = \dot q + \tfrac h2 \ddot q, \quad \ddot q = \ddot q(q \oplus \tfrac h2 v, v), \quad q' = q \oplus h v

    Newton's method with a fixed number of iterations solves for the acceleration; derivatives are those of the
    solution of the equation, not of the iterations.
    """

    def residual(qdd: jax.Array) -> jax.Array:
        v = qd + dt / 2 * qdd
        return qdd - system.acceleration(t + dt / 2, moved(system.model, q, dt / 2 * v), v, tau)

    def newton(f: Any, x: jax.Array) -> jax.Array:
        along = jax.vmap(lambda v, x: jax.jvp(f, (x,), (v,)), (0, None), (None, 1))  # (f, its Jacobian)

        def iteration(_: Any, x: jax.Array) -> jax.Array:
            value, J = along(jnp.eye(x.size, dtype=x.dtype), x)
            return x - jnp.linalg.solve(J, value)

        return jax.lax.fori_loop(0, iterations, iteration, x)

    def solve(linear: Any, y: jax.Array) -> jax.Array:
        return jnp.linalg.solve(jax.jacfwd(linear)(y), y)

    qdd = jax.lax.custom_root(residual, 0 * qd, newton, solve)
    return moved(system.model, q, dt * (qd + dt / 2 * qdd)), qd + dt * qdd, qdd


def diagonal(system: System, t: Any, q: jax.Array, qd: jax.Array, tau: jax.Array, dt: Any) -> Step:
    r"""Advance in total joint rates by rotations of them, which do no work (second order, reversible, 002).

    The energy changes by the work of the forces at the velocity in the middle of the step, to rounding: see
    `jaxdyn.diagonal.step`. Not for models with mimic joints.
    """
    model = system.model
    after = energy_keeping_step(
        model,
        q,
        to_nu(model, q, qd),
        dt=dt,
        tau=lambda q, qd: tau + system.joint_forces(q, qd),
        f_ext=None if system.has_no_forces else lambda q, qd: system.forces(t + dt / 2, q, qd),
    )
    v = from_nu(model, after.q, after.nu)
    return after.q, v, _per(v - qd, dt)


def _per(change: jax.Array, dt: jax.Array) -> jax.Array:
    """Return a change by the time it took; no time, no rate."""
    return change / jnp.where(dt == 0, 1, dt)


INTEGRATORS: dict[str, Integrator] = {
    "semi_implicit_euler": semi_implicit_euler,
    "mujoco_euler": mujoco_euler,
    "midpoint": midpoint,
    "rk4": rk4,
    "implicit_midpoint": implicit_midpoint,
    "diagonal": diagonal,
}
"""The integrators that `step` and `rollout` know by name."""


def find(integrator: str | Integrator) -> Integrator:
    """Return an integrator by its name, or as it is."""
    if callable(integrator):
        return integrator
    if integrator not in INTEGRATORS:
        raise ValueError(f"integrator {integrator!r} is not known: {suggestion(integrator, INTEGRATORS)}")
    return INTEGRATORS[integrator]
