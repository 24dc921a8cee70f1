r"""The motion that a robot is to follow, and how far it is from it, on the manifold of configurations.

The error :math:`e = q_d \ominus q` is a vector in the tangent at q, the velocity that would bring the robot to its
goal in unit time. Its rate is that of two motions, :math:`\dot e = E\,(v - \dot q)`: E is the slope of the difference,
and v the desired velocity as it is felt at q. For joints with plain coordinates E = 1 and v is the desired velocity
itself; for rotations and floating bases v is turned (and shifted) from the desired body's axes into the actual body's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn._checks import vector
from jaxdyn.algorithms import arguments
from jaxdyn.derivatives import difference_derivatives
from jaxdyn.joints import Joint
from jaxdyn.model import Model, difference, integrate
from jaxdyn.model.configuration import tangent


class Tracking(NamedTuple):
    r"""A desired motion as a robot feels it where it is."""

    error: jax.Array
    r"""(nv,) :math:`e = q_d \ominus q`."""
    velocity: jax.Array
    """(nv,) v, the desired velocity in the tangent at q."""
    acceleration: jax.Array
    """(nv,) its rate."""
    slope: jax.Array | None
    r"""(nv, nv) E, such that :math:`\dot e = E\,(v - \dot q)`; None if it is the identity."""
    slope_rate: jax.Array | None
    """(nv, nv) the rate of E; None if it is zero."""

    def rate(self, qd: jax.Array) -> jax.Array:
        """Return the rate of the error, E (v - qd)."""
        lag = self.velocity - qd
        return lag if self.slope is None else self.slope @ lag

    def pull(self, force: jax.Array) -> jax.Array:
        """Return E* f: the joint forces that do the work of a force f on the error, with the sign of a pull."""
        return force if self.slope is None else self.slope.T @ force

    def by_slope(self, x: jax.Array) -> jax.Array:
        """Return E^-1 x."""
        return x if self.slope is None else jnp.linalg.solve(self.slope, x)

    def turning(self, x: jax.Array) -> jax.Array:
        """Return the rate of E times x."""
        return jnp.zeros_like(x) if self.slope_rate is None else self.slope_rate @ x


def tracking(model: Model, q: Any, qd: Any, q_des: Any, qd_des: Any = None, qdd_des: Any = None) -> Tracking:
    r"""Compare a state with a desired motion.

    .. math:: e = q_d \ominus q, \qquad \dot e = E\,(v - \dot q)

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        q_des: desired configuration, (nq,).
        qd_des: desired velocity, (nv,), in the tangent at q_des; at rest if not given.
        qdd_des: desired acceleration, (nv,); zero if not given.

    Returns:
        The error, and the desired velocity and acceleration in the tangent at q.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("quadruped")  # on a floating base
        >>> q, qd = jaxdyn.neutral(model), jnp.zeros(model.nv)
        >>> q_des = jaxdyn.integrate(model, q, jnp.full(model.nv, 0.1))
        >>> bool(jnp.allclose(jaxdyn.control.tracking(model, q, qd, q_des).error, 0.1, atol=1e-5))
        True
    """
    q, qd, q_des, v, a = states(model, q, qd, q_des, qd_des, qdd_des)
    if all(type(group.joint).integrate is Joint.integrate for group in model.topology.own_groups):
        return Tracking(difference(model, q, q_des), v, a, None, None)
    return _on_manifold(model, q, qd, q_des, v, a)


@arguments.compiled
def _on_manifold(model: Model, q: Any, qd: Any, q_des: Any, v: Any, a: Any) -> Tracking:
    def at(t: jax.Array) -> tuple[jax.Array, jax.Array]:
        from_q, from_goal = difference_derivatives(model, integrate(model, q, t * qd), integrate(model, q_des, t * v))
        return -from_q, from_goal @ (v + t * a)

    (E, w), (E_rate, w_rate) = jax.jvp(at, (jnp.zeros((), q.dtype),), (jnp.ones((), q.dtype),))
    velocity = jnp.linalg.solve(E, w)
    error = difference(model, q, q_des)
    return Tracking(error, velocity, jnp.linalg.solve(E, w_rate - E_rate @ velocity), E, E_rate)


def states(model: Model, q: Any, qd: Any, q_des: Any, qd_des: Any, qdd_des: Any) -> tuple[jax.Array, ...]:
    """Return a state and a desired motion as arrays of one floating-point type, checked."""
    arguments.require_model(model)
    q_des = vector("q_des", q_des, model.nq, "coordinate", model.dtype)
    rest = jnp.zeros(model.nv, q_des.dtype)
    q, qd, qd_des, qdd_des = arguments.vectors(
        model, q=q, qd=qd, qd_des=rest if qd_des is None else qd_des, qdd_des=rest if qdd_des is None else qdd_des
    )
    dtype = jnp.result_type(q, q_des)
    q, qd, q_des, qd_des, qdd_des = (x.astype(dtype) for x in (q, qd, q_des, qd_des, qdd_des))
    return q, qd, q_des, qd_des, qdd_des


def desired_motion(
    model: Model, path: Callable[[jax.Array], jax.Array], t: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    r"""Compute configuration, velocity and acceleration of a path that is given as a function of time.

    Args:
        model: the model.
        path: a function t -> q, (nq,), written in `jax.numpy`.
        t: time, s.

    Returns:
        (q, qd, qdd), with qd and qdd (nv,) in the tangent: quasi-velocities for rotations and floating bases.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("double_pendulum")
        >>> swing = lambda t: jnp.array([1.0, 0.5]) * jnp.sin(2.0 * t)
        >>> q, qd, qdd = jaxdyn.control.desired_motion(model, swing, 0.0)
        >>> qd.tolist()
        [2.0, 1.0]
    """
    arguments.require_model(model)
    t = jnp.asarray(t, model.dtype)
    along = lambda f: lambda t: jax.jvp(f, (t,), (jnp.ones_like(t),))
    whole = lambda t: vector("what the path returns", path(t), model.nq, "coordinate", model.dtype)
    velocity = lambda t: tangent(model, *along(whole)(t))
    return whole(t), *along(velocity)(t)
