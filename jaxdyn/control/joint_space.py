r"""Control of joints: springs and dampers, with gravity, or with all of the robot's dynamics, taken off their hands.

All laws hold for every joint type and for floating bases: errors are differences on the manifold (`reference`), and
the Coriolis matrix is the one for which :math:`\dot M - 2C` is skew in quasi-velocities too (001 section 6). A floating
base counts as driven here; the forces it would take are the first six of the result.

Passive forces of the model (springs, damping, friction) are not compensated: where they are known well enough,
subtract `jaxdyn.passive_force(model, q, qd)`.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp

from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.coriolis import coriolis_product
from jaxdyn.algorithms.rnea import gravity_force, inverse_dynamics
from jaxdyn.control.gains import joint_gains, limited
from jaxdyn.control.reference import Tracking, states, tracking
from jaxdyn.model import Model

Limit = Any | Literal["effort"] | None


def gravity_compensation(model: Model, q: Any, qd: Any, *, damping: Any = 0.0, limit: Limit = None) -> jax.Array:
    r"""Compute joint forces that hold a robot wherever it is, and let it be led by hand.

    .. math:: \tau = g(q) - D \dot q

    Its kinetic energy changes by :math:`-\dot q^T D \dot q`, and by what hands put in: the robot is passive.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        damping: D, N m s/rad, not negative: a number, or one per degree of freedom, (nv,).
        limit: largest force in each joint: a number, (nv,), or "effort" for `model.effort_limit`. Forces beyond it
            are cut off; none by default.

    Returns:
        tau, (nv,).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model, q = jaxdyn.load("arm7"), jnp.ones(7)
        >>> tau = jaxdyn.control.gravity_compensation(model, q, jnp.zeros(7))
        >>> bool(jnp.allclose(jaxdyn.forward_dynamics(model, q, jnp.zeros(7), tau), 0, atol=1e-3))
        True
    """
    q, qd = arguments.vectors(model, q=q, qd=qd)
    (D,) = joint_gains(model, damping=damping)
    return limited(model, gravity_force(model, q) - D * qd, limit)


def pd(
    model: Model,
    q: Any,
    qd: Any,
    q_des: Any,
    qd_des: Any = None,
    *,
    stiffness: Any,
    damping: Any,
    compensate_gravity: bool = True,
    limit: Limit = None,
) -> jax.Array:
    r"""Compute joint forces of springs and dampers towards a configuration; gravity is held unless told otherwise.

    .. math:: \tau = E^T K e + D\,(v - \dot q) + g(q)

    For a goal at rest :math:`V = \tfrac12 \dot q^T M \dot q + \tfrac12 e^T K e` never grows:
    :math:`\dot V = -\dot q^T D \dot q`.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        q_des: desired configuration, (nq,).
        qd_des: desired velocity, (nv,); at rest if not given.
        stiffness: K, N m/rad, not negative: a number, or one per degree of freedom, (nv,).
        damping: D, N m s/rad, likewise.
        compensate_gravity: hold the robot against gravity too.
        limit: as in `gravity_compensation`.

    Returns:
        tau, (nv,).
    """
    K, D = joint_gains(model, stiffness=stiffness, damping=damping)
    goal, qd = _goal(model, q, qd, q_des, qd_des, None)
    tau = goal.pull(K * goal.error) + D * (goal.velocity - qd)
    return limited(model, tau + gravity_force(model, q) if compensate_gravity else tau, limit)


def pd_plus(
    model: Model,
    q: Any,
    qd: Any,
    q_des: Any,
    qd_des: Any = None,
    qdd_des: Any = None,
    *,
    stiffness: Any,
    damping: Any,
    limit: Limit = None,
) -> jax.Array:
    r"""Compute joint forces that make a robot follow a motion as if led by springs and dampers (Paden, Panja 1988).

    .. math:: \tau = M(q)\,a + C(q, \dot q)\,v + g(q) + E^T K e + D s, \qquad s = v - \dot q

    The actual velocity stands in the Coriolis matrix, the desired one beside it (001 section 6). Then
    :math:`V = \tfrac12 s^T M s + \tfrac12 e^T K e` never grows, :math:`\dot V = -s^T D s`: what is fed back is passive.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        q_des: desired configuration, (nq,).
        qd_des: desired velocity, (nv,); at rest if not given.
        qdd_des: desired acceleration, (nv,); zero if not given.
        stiffness: K, N m/rad, not negative: a number, or one per degree of freedom, (nv,).
        damping: D, N m s/rad, likewise.
        limit: as in `gravity_compensation`.

    Returns:
        tau, (nv,).
    """
    K, D = joint_gains(model, stiffness=stiffness, damping=damping)
    goal, qd = _goal(model, q, qd, q_des, qd_des, qdd_des)
    tau = _forces(model, q, qd, goal.velocity, goal.acceleration)
    return limited(model, tau + goal.pull(K * goal.error) + D * (goal.velocity - qd), limit)


def computed_torque(
    model: Model,
    q: Any,
    qd: Any,
    q_des: Any,
    qd_des: Any = None,
    qdd_des: Any = None,
    *,
    stiffness: Any,
    damping: Any,
    limit: Limit = None,
) -> jax.Array:
    r"""Compute joint forces under which the error of every joint obeys a linear equation of its own.

    .. math:: \ddot e + D \dot e + K e = 0, \qquad \tau = \mathrm{ID}(q, \dot q, \ddot q^*)

    exactly, also on rotations, as long as no rotation is off by half a turn.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        q_des: desired configuration, (nq,).
        qd_des: desired velocity, (nv,); at rest if not given.
        qdd_des: desired acceleration, (nv,); zero if not given.
        stiffness: K, 1/s^2, not negative: a number, or one per degree of freedom, (nv,).
        damping: D, 1/s, likewise; critical for D = 2 sqrt(K).
        limit: as in `gravity_compensation`.

    Returns:
        tau, (nv,).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("double_pendulum").replace(damping=jnp.zeros(2))
        >>> goal = jnp.array([1.0, -0.5])
        >>> policy = lambda t, q, qd, _: jaxdyn.control.computed_torque(
        ...     model, q, qd, goal, stiffness=25.0, damping=10.0
        ... )
        >>> run = jaxdyn.rollout(model, jnp.zeros(2), jnp.zeros(2), policy, dt=1e-3, steps=2000)
        >>> bool(jnp.allclose(run.q[-1], goal, atol=1e-2))
        True
    """
    K, D = joint_gains(model, stiffness=stiffness, damping=damping)
    goal, qd = _goal(model, q, qd, q_des, qd_des, qdd_des)
    back = goal.turning(goal.velocity - qd) + D * goal.rate(qd) + K * goal.error
    return limited(model, inverse_dynamics(model, q, qd, goal.acceleration + goal.by_slope(back)), limit)


def passivity_based(
    model: Model,
    q: Any,
    qd: Any,
    q_des: Any,
    qd_des: Any = None,
    qdd_des: Any = None,
    *,
    convergence: Any,
    gain: Any,
    limit: Limit = None,
) -> jax.Array:
    r"""Compute joint forces that bring a robot onto a surface on which its error dies out (Slotine, Li 1987).

    .. math:: v_r = v + E^{-1} \Lambda e, \qquad s = \dot q - v_r, \qquad
        \tau = M(q)\,\dot v_r + C(q, \dot q)\,v_r + g(q) - G s

    Then :math:`M \dot s + C s = -G s`, whence :math:`V = \tfrac12 s^T M s` decays, :math:`\dot V = -s^T G s`, and a
    force from outside can put in no more than its work on s. On the surface s = 0 the error obeys
    :math:`\dot e = -\Lambda e`. No inverse of M is involved: parameters that are wrong do harm in proportion.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        q_des: desired configuration, (nq,).
        qd_des: desired velocity, (nv,); at rest if not given.
        qdd_des: desired acceleration, (nv,); zero if not given.
        convergence: Lambda, 1/s, not negative: a number, or one per degree of freedom, (nv,).
        gain: G, N m s/rad, likewise.
        limit: as in `gravity_compensation`.

    Returns:
        tau, (nv,).
    """
    (G,) = joint_gains(model, gain=gain)
    v_r, a_r, s = sliding(model, q, qd, q_des, qd_des, qdd_des, convergence)
    return limited(model, _forces(model, q, s + v_r, v_r, a_r) - G * s, limit)


def sliding(
    model: Model, q: Any, qd: Any, q_des: Any, qd_des: Any, qdd_des: Any, convergence: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    r"""Compute the reference velocity of `passivity_based`, its rate, and how far the velocity is from it.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        q_des: desired configuration, (nq,).
        qd_des: desired velocity, (nv,), or None.
        qdd_des: desired acceleration, (nv,), or None.
        convergence: Lambda, 1/s: a number, or (nv,).

    Returns:
        :math:`v_r, \dot v_r, s = \dot q - v_r`, each (nv,).
    """
    (L,) = joint_gains(model, convergence=convergence)
    goal, qd = _goal(model, q, qd, q_des, qd_des, qdd_des)
    towards = goal.by_slope(L * goal.error)
    v_r = goal.velocity + towards
    a_r = goal.acceleration + goal.by_slope(L * goal.rate(qd) - goal.turning(towards))
    return v_r, a_r, qd - v_r


# ---------------------------------------------------------------------- details
def _goal(model: Model, q: Any, qd: Any, q_des: Any, qd_des: Any, qdd_des: Any) -> tuple[Tracking, jax.Array]:
    q, qd, *desired = states(model, q, qd, q_des, qd_des, qdd_des)
    return tracking(model, q, qd, *desired), qd


def _forces(model: Model, q: Any, qd: jax.Array, v: jax.Array, a: jax.Array) -> jax.Array:
    """Return M a + C(q, qd) v + g."""
    return inverse_dynamics(model, q, jnp.zeros_like(a), a) + coriolis_product(model, q, qd, v)
