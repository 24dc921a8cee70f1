r"""Decoupled control: feedback of total joint rates nu, and of a frame's pose (002 section 8).

In the diagonalised equations nu' + C(q, nu) = eps the Coriolis term does no work, nu* C = 0. So with the kinetic energy
nu* nu / 2 as Lyapunov function every working moment eps can be chosen by itself. All is gathered in joint forces by
tau = m eps, to which the forces that hold the robot against gravity are added.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp

from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.kinematics import frame_pose
from jaxdyn.algorithms.rnea import gravity_force
from jaxdyn.control.gains import gains, limited, pose
from jaxdyn.diagonal.coordinates import from_eps, to_nu
from jaxdyn.model import Model
from jaxdyn.operators import spatial_operators


def rate_feedback(
    model: Model,
    q: Any,
    qd: Any,
    *,
    gain: Any,
    compensate_gravity: bool = True,
    limit: Any | Literal["effort"] | None = None,
) -> jax.Array:
    r"""Compute joint forces that bring a robot to rest (002 Control 8.1).

    .. math:: \epsilon = -c\,\nu, \qquad \tau = m\,\epsilon + g(q)

    Without friction or other forces the kinetic energy T then decays at the rate :math:`\dot T = -\nu^* c\,\nu`, with
    one number c for all joints exactly as :math:`T(t) = T(0)\,e^{-2ct}`, whatever the robot and wherever it moves.
    Where it comes to rest is left open.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        gain: c, 1/s, not negative: a number, or one for each total joint rate, (nv,).
        compensate_gravity: hold the robot against gravity too.
        limit: largest force in each joint: a number, (nv,), or "effort" for `model.effort_limit`. Forces beyond it
            are cut off; none by default. Where they are, the decay above is not what happens.

    Returns:
        tau, (nv,).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model, q, qd = jaxdyn.load("arm7"), jnp.ones(7), jnp.ones(7)
        >>> tau = jaxdyn.control.rate_feedback(model, q, qd, gain=2.0)
        >>> power = qd @ (tau - jaxdyn.gravity_force(model, q))
        >>> bool(jnp.isclose(power, -2 * 2.0 * jaxdyn.kinetic_energy(model, q, qd)))
        True
    """
    arguments.require_model(model)
    c = gains("gain", gain, model.nv, "total joint rate", model.dtype)
    eps = -c * to_nu(model, q, qd)
    return _joint_forces(model, q, eps, compensate_gravity, limit)


def pose_feedback(
    model: Model,
    q: Any,
    qd: Any,
    frame: str,
    target: Any,
    *,
    damping: Any,
    stiffness: Any,
    point: Any = None,
    compensate_gravity: bool = True,
    limit: Any | Literal["effort"] | None = None,
) -> jax.Array:
    r"""Compute joint forces that bring a frame to a pose, and the robot to rest (002 Control 8.2, corrected).

    .. math:: \epsilon = -c_1 \nu + L^{-1} H \psi B\,(c_2 e), \qquad e = \hat Y - Y(q)

    with Y of `pose_vector`; that is :math:`\tau = -m c_1 m^* \dot q + J_Y^T c_2 e + g(q)`. Then
    :math:`W = (\nu^* \nu + e^* c_2\,e) / 2` never grows, :math:`\dot W = -\nu^* c_1 \nu`, and the robot comes to rest
    where :math:`J_Y^T c_2 e = 0`. That is the target, or a pose from which the error is stationary: one turned by half
    a revolution, or a singular one. As printed, (8.6) has the opposite sign, which drives the frame away, and no
    :math:`L^{-1}`, without which W may grow.

    A redundant arm reaches the target in whatever posture its motion ends.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        frame: name of a body or frame.
        target: the pose to reach, (rotation (3, 3), position (3,)) in the world, as `jaxdyn.frame_pose` returns it.
        damping: c_1, 1/s, not negative: a number, or one for each total joint rate, (nv,).
        stiffness: c_2, not negative: a number, or one for each component of e, (12,): N/m for the first three, Nm for
            the others. Zeros take components out, such as the orientation.
        point: a point in the frame, (3,), which is to reach the position; its origin if not given.
        compensate_gravity: hold the robot against gravity too.
        limit: as in `rate_feedback`.

    Returns:
        tau, (nv,).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> target = jaxdyn.frame_pose(model, jnp.full(7, 0.5), "tool")
        >>> policy = lambda q, qd: jaxdyn.control.pose_feedback(
        ...     model, q, qd, "tool", target, damping=4.0, stiffness=50.0, limit="effort"
        ... )
        >>> policy(jnp.zeros(7), jnp.zeros(7)).shape
        (7,)
    """
    arguments.require_model(model)
    c_1 = gains("damping", damping, model.nv, "total joint rate", model.dtype)
    c_2 = gains("stiffness", stiffness, 12, "component of the error", model.dtype)
    force = _wrench(frame_pose(model, q, frame, point).rotation, c_2 * pose_error(model, q, frame, target, point))
    s = spatial_operators(model, q)
    B = s.B(frame, points=None if point is None else [point])
    eps = -c_1 * to_nu(model, q, qd) + (s.L.inv() @ s.H @ s.psi @ B) @ force  # 002 (8.6), corrected
    return _joint_forces(model, q, eps, compensate_gravity, limit)


def pose_vector(model: Model, q: Any, frame: str, point: Any = None) -> jax.Array:
    r"""Compute the pose of a frame as a vector: its position and its three axes (002 (8.5)).

    .. math:: Y = \mathrm{col}\{y_0, y_1, y_2, y_3\}

    Args:
        model: the model.
        q: configuration, (nq,).
        frame: name of a body or frame.
        point: a point in that frame, (3,), whose position is meant; its origin if not given.

    Returns:
        Y, (12,), world axes: the position, then the frame's axes x, y and z.
    """
    return _as_vector(*frame_pose(model, q, frame, point))


def pose_error(model: Model, q: Any, frame: str, target: Any, point: Any = None) -> jax.Array:
    r"""Compute what a frame's pose vector lacks to that of a target, :math:`e = \hat Y - Y(q)`.

    Args:
        model: the model.
        q: configuration, (nq,).
        frame: name of a body or frame.
        target: (rotation (3, 3), position (3,)) in the world.
        point: a point in that frame, (3,), whose position is meant; its origin if not given.

    Returns:
        e, (12,). The part of the axes has the length sqrt(8) sin(angle / 2), angle being that between the orientations.
    """
    Y = pose_vector(model, q, frame, point)
    return _as_vector(*pose(target, Y.dtype)) - Y


# ---------------------------------------------------------------------- details
def _as_vector(rotation: jax.Array, position: jax.Array) -> jax.Array:
    return jnp.concatenate([position, rotation.T.ravel()])


def _wrench(rotation: jax.Array, e: jax.Array) -> jax.Array:
    """Return the force [moment; force] on a frame that does the work of e on the changes of its pose vector."""
    moment = jnp.sum(jnp.cross(rotation.T, e[3:].reshape((3, 3))), axis=0)
    return jnp.concatenate([moment, e[:3]])


def _joint_forces(model: Model, q: Any, eps: jax.Array, compensate_gravity: bool, limit: Any) -> jax.Array:
    tau = from_eps(model, q, eps)
    if compensate_gravity:
        tau = tau + gravity_force(model, q)
    return limited(model, tau, limit)
