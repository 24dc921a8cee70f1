r"""Adaptive control: a robot whose inertial parameters are not known follows a motion all the same (Slotine, Li 1987).

Parameters enter dynamics linearly, :math:`M a + C(q, \dot q)\,v + g = Y(q, \dot q, v, a)\,\pi`: the law of
`passivity_based` with estimates for parameters leaves :math:`M \dot s + C s = -G s + Y (\hat\pi - \pi)`, and whatever
:math:`\hat\pi` does, its rate can be chosen such that this last term does no harm:

.. math:: V = \tfrac12 s^T M s + d(\pi, \hat\pi), \qquad \dot V = -s^T G s

for :math:`\dot{\hat\pi} = -\Gamma Y^T s` with d the quadratic form of :math:`\Gamma^{-1}`; and for pseudo-inertias with
:math:`\dot{\hat P} = -\gamma \hat P L \hat P`, L such that :math:`\mathrm{tr}\,L P(\pi) = s^T Y \pi`, with d the
entropic divergence, in which every estimate stays that of a body that could be built (Lee, Kwon, Park 2018).
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.scipy.linalg import expm, solve_triangular

from jaxdyn._checks import number
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.regressor import joint_torque_regressor
from jaxdyn.control.gains import joint_gains, limited
from jaxdyn.control.joint_space import Limit, sliding
from jaxdyn.model import Model, from_pseudo_inertia, pseudo_inertia
from jaxdyn.model.configuration import bracket

Metric = Literal["natural", "euclidean"]


def slotine_li_regressor(model: Model, q: Any, qd: Any, v: Any, a: Any) -> jax.Array:
    r"""Compute the matrix that takes inertial parameters to the joint forces of a motion with two velocities.

    .. math:: M(q)\,a + C(q, \dot q)\,v + g(q) = Y(q, \dot q, v, a)\,\pi + \mathrm{armature} \cdot a

    The Coriolis term is bilinear, and symmetric but for :math:`C(q, u)\,v - C(q, v)\,u = M [u, v]`, which is zero for
    joints with plain coordinates. So two regressors of inverse dynamics, at half the sum and half the difference of the
    velocities, make this one.

    Args:
        model: the model; its inertias do not enter.
        q: configuration, (nq,).
        qd: velocity in the Coriolis matrix, (nv,).
        v: velocity beside it, (nv,).
        a: acceleration, (nv,).

    Returns:
        Y, (nv, 10 * nbodies).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.derivatives import joint_torque_regressor
        >>> model, x = jaxdyn.load("arm7"), jnp.ones(7)
        >>> Y = jaxdyn.control.slotine_li_regressor(model, x, x, x, x)
        >>> bool(jnp.allclose(Y, joint_torque_regressor(model, x, x, x), atol=1e-4))
        True
    """
    q, qd, v, a = arguments.vectors(model, q=q, qd=qd, v=v, a=a)
    model = model.moving
    weightless = model.replace(gravity=jnp.zeros_like(model.gravity))
    whole = joint_torque_regressor(model, q, (qd + v) / 2, a + bracket(model, q, qd, v) / 2)
    return whole - joint_torque_regressor(weightless, q, (qd - v) / 2, jnp.zeros_like(a))


def adaptive_control(
    model: Model,
    q: Any,
    qd: Any,
    q_des: Any,
    qd_des: Any = None,
    qdd_des: Any = None,
    *,
    estimate: Any,
    convergence: Any,
    gain: Any,
    adaptation: Any,
    metric: Metric = "natural",
    limit: Limit = None,
) -> tuple[jax.Array, jax.Array]:
    r"""Compute joint forces from estimated inertial parameters, and the rate at which the estimates are to change.

    .. math:: \tau = Y(q, \dot q, v_r, \dot v_r)\,\hat\pi + \mathrm{armature} \cdot \dot v_r - G s

    with v_r and s of `passivity_based`. The error dies out though the estimates need not become right: they do in so
    far as the motion shows them.

    Args:
        model: the model: its geometry, armature and gravity. Its inertias do not enter.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        q_des: desired configuration, (nq,).
        qd_des: desired velocity, (nv,); at rest if not given.
        qdd_des: desired acceleration, (nv,); zero if not given.
        estimate: estimated inertial parameters, (nbodies, 10), as `jaxdyn.inertial_parameters` has them.
        convergence: Lambda, 1/s, as in `passivity_based`.
        gain: G, as in `passivity_based`.
        adaptation: how fast estimates change: with the natural metric gamma, one number, or one per body (nbodies,);
            with the Euclidean one Gamma, a number, (nbodies,), or one per parameter, (nbodies, 10).
        metric: "natural", in which estimates that are physical stay so, or "euclidean".
        limit: as in `gravity_compensation`.

    Returns:
        (tau (nv,), rate of the estimates (nbodies, 10)). `adapt` takes a step with the rate.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn import control
        >>> model = jaxdyn.load("double_pendulum")
        >>> guess = 1.5 * jaxdyn.inertial_parameters(model)
        >>> def policy(t, q, qd, estimate, params):
        ...     tau, rate = control.adaptive_control(
        ...         model, q, qd, jnp.ones(2), estimate=estimate, convergence=5.0, gain=2.0, adaptation=1.0
        ...     )
        ...     return tau, control.adapt(estimate, rate, dt=1e-3)
        >>> x = jnp.zeros(2)
        >>> run = control.stateful_rollout(model, x, x, policy, guess, dt=1e-3, steps=10)
        >>> run.extras["state"].shape
        (11, 2, 10)
    """
    arguments.require_model(model)
    (G,) = joint_gains(model, gain=gain)
    pi = _estimate(model, estimate)
    v_r, a_r, s = sliding(model, q, qd, q_des, qd_des, qdd_des, convergence)
    Y = slotine_li_regressor(model, q, s + v_r, v_r, a_r)
    tau = Y @ pi.ravel() + model.armature * a_r - G * s
    slope = (s @ Y).reshape(pi.shape)
    speed = _speed(model, adaptation, metric)
    return limited(model, tau, limit), -speed * (slope if metric == "euclidean" else _natural(pi, slope))


def adapt(estimate: Any, rate: Any, *, dt: Any, metric: Metric = "natural") -> jax.Array:
    r"""Advance estimates of inertial parameters by one time step.

    With the natural metric along a geodesic, :math:`P' = C \exp(h\,C^{-1} \dot P C^{-T})\,C^T` for :math:`P = C C^T`:
    what is physical stays so, however long the step; the exponent is cut off at one. A body whose pseudo-inertia is
    not positive definite (one without mass, or a guess that is not physical) takes a plain step.

    Args:
        estimate: inertial parameters, (nbodies, 10).
        rate: their rate, (nbodies, 10).
        dt: h, s.
        metric: "natural" or "euclidean".

    Returns:
        The new estimates, (nbodies, 10).
    """
    _known(metric)
    pi, rate = jnp.asarray(estimate), jnp.asarray(rate)
    if pi.shape != rate.shape or pi.shape[-1:] != (10,):
        raise ValueError(f"estimate and rate must have one shape (nbodies, 10); got {pi.shape} and {rate.shape}")
    h = number("dt", dt, pi.dtype)
    plain = pi + h * rate
    if metric == "euclidean":
        return plain
    P, slope = pseudo_inertia(pi), pseudo_inertia(rate)
    sound = jnp.isfinite(jnp.linalg.cholesky(jax.lax.stop_gradient(P))).all((-2, -1), keepdims=True)
    C = jnp.linalg.cholesky(jnp.where(sound, P, jnp.eye(4, dtype=P.dtype)))
    by_left = jnp.vectorize(lambda C, x: solve_triangular(C, x, lower=True), signature="(n,n),(n,m)->(n,m)")
    inner = by_left(C, jnp.swapaxes(by_left(C, slope), -1, -2))
    inner = h * (inner + jnp.swapaxes(inner, -1, -2)) / 2
    inner = inner / jnp.maximum(jnp.abs(inner).max((-2, -1), keepdims=True), 1)
    moved = C @ expm(inner) @ jnp.swapaxes(C, -1, -2)
    return jnp.where(sound[..., 0], from_pseudo_inertia(moved), plain)


# ---------------------------------------------------------------------- details
def _natural(pi: jax.Array, slope: jax.Array) -> jax.Array:
    """Return the rate of pi that belongs to P L P, L such that tr L P(x) = slope . x."""
    P = pseudo_inertia(pi)
    (L,) = jax.vjp(from_pseudo_inertia, P)[1](slope)
    L = (L + jnp.swapaxes(L, -1, -2)) / 2
    return from_pseudo_inertia(P @ L @ P)


def _estimate(model: Model, estimate: Any) -> jax.Array:
    pi = jnp.asarray(estimate)
    if pi.shape != (model.nbodies, 10):
        raise ValueError(f"estimate must have shape ({model.nbodies}, 10), ten parameters per body; got {pi.shape}")
    return pi if jnp.issubdtype(pi.dtype, jnp.floating) else pi.astype(model.dtype)


def _speed(model: Model, adaptation: Any, metric: Metric) -> jax.Array:
    """Return the speed of adaptation, to be multiplied with (nbodies, 10)."""
    _known(metric)
    speed, n = jnp.asarray(adaptation, model.dtype), model.nbodies
    shapes = [(), (n,)] if metric == "natural" else [(), (n,), (n, 10)]
    if speed.shape not in shapes:
        raise ValueError(f"adaptation must have one of the shapes {shapes} in the {metric} metric; got {speed.shape}")
    return jnp.broadcast_to(speed.reshape((n, 1)) if speed.shape == (n,) else speed, (n, 10))


def _known(metric: str) -> None:
    if metric not in ("natural", "euclidean"):
        raise ValueError(f'metric must be "natural" or "euclidean"; got {metric!r}')
