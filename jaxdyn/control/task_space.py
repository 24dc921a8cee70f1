r"""Control of frames: operational space, with what is left of the joints' freedom, and forces on the surroundings.

Accelerations are commanded, and turned into joint forces by the inertia that the frame shows,
:math:`\Lambda = (J M^{-1} J^T)^{-1}`, found by the recursion of Omega in time proportional to the number of bodies
(001 section 5). In its dynamically consistent inverse, :math:`\bar J = M^{-1} J^T \Lambda`,

.. math:: \ddot q = \bar J\,(a - \dot J \dot q) + (1 - \bar J J)\,\ddot q_0, \qquad
    \tau = \mathrm{ID}(q, \dot q, \ddot q)

which is :math:`J^T (\Lambda a + \mu + p) + (1 - J^T \bar J^T)\,\mathrm{ID}(q, \dot q, \ddot q_0)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._checks import vector
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.kinematics import frame_number, frame_pose
from jaxdyn.algorithms.rnea import inverse_dynamics
from jaxdyn.control.gains import gains, limited, pose, rotation_matrix
from jaxdyn.control.joint_space import Limit
from jaxdyn.model import Model
from jaxdyn.operators import OperationalSpace, operational_space_dynamics
from jaxdyn.spatial import Mat3, Quaternion


def frame_error(model: Model, q: Any, frame: str, target: Any, point: Any = None) -> jax.Array:
    r"""Compute how far a frame is from a pose: the turn and the way that are missing.

    .. math:: e = [\log(R_d R^T);\ p_d - p]

    Args:
        model: the model.
        q: configuration, (nq,).
        frame: name of a body or frame.
        target: (rotation (3, 3), position (3,)) in the world.
        point: a point in that frame, (3,), whose position is meant; its origin if not given.

    Returns:
        e, (6,), world axes: rotation vector, of length at most pi, and way.
    """
    R, p = frame_pose(model, q, frame, point)
    R_d, p_d = pose(target, p.dtype)
    return jnp.concatenate([rotation_vector(R_d @ R.T), p_d - p])


def operational_space_control(
    model: Model,
    q: Any,
    qd: Any,
    frame: str | Sequence[str],
    target: Any,
    *,
    stiffness: Any,
    damping: Any,
    velocity: Any = None,
    acceleration: Any = None,
    rows: Any = None,
    point: Any = None,
    null_acceleration: Any = None,
    regularization: Any = None,
    limit: Limit = None,
) -> jax.Array:
    r"""Compute joint forces that make a frame follow a pose, and the rest of the robot something else.

    .. math:: \ddot x = \ddot x_d + D\,(\dot x_d - \dot x) + K e

    Positions then obey :math:`\ddot e + D \dot e + K e = 0` exactly. Orientations (with one number K for the three)
    come to rest at the target from everywhere but half a turn away: for :math:`\delta = \omega_d - \omega`,
    :math:`V = \tfrac12 |\delta|^2 + \tfrac12 K |e|^2` obeys :math:`\dot V = -\delta^T D \delta`. The joints' freedom
    that the frame leaves takes from the acceleration :math:`\ddot q_0` what does not move the frame.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        frame: name of a body or frame, or several.
        target: its pose, (rotation (3, 3), position (3,)) in the world; for several frames one for each.
        stiffness: K, 1/s^2, not negative: a number, or one per row.
        damping: D, 1/s, likewise.
        velocity: desired velocity [angular; linear], (6,), or (6 frames,), world axes; at rest if not given.
        acceleration: its rate, likewise.
        rows: which of the 6 directions (of several frames: 6 each) are the task, such as (3, 4, 5), the position of
            one frame; all if not given.
        point: a point in the frame, (3,), or in each, (frames, 3); their origins if not given.
        null_acceleration: qdd_0, (nv,), such as k * difference(model, q, rest) - d * qd; zero if not given.
        regularization: 1/kg, as `damping` in `jaxdyn.operators.operational_space_inertia`: near singular poses a
            number such as 1e-2 bounds the forces, at the cost of the exactness above. None if not given: directions in
            which the frame cannot move drop out.
        limit: as in `gravity_compensation`.

    Returns:
        tau, (nv,).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model, q, qd = jaxdyn.load("arm7"), jnp.full(7, 0.5), jnp.zeros(7)
        >>> target = jaxdyn.frame_pose(model, jnp.full(7, 0.6), "tool")
        >>> tau = jaxdyn.control.operational_space_control(model, q, qd, "tool", target, stiffness=100.0, damping=20.0)
        >>> tau.shape
        (7,)
    """
    motion = _motion(model, q, qd, frame, target, velocity, acceleration, rows, point, regularization)
    a = motion.command(stiffness, damping)
    return limited(model, _resolved(model, motion, a, null_acceleration), limit)


def hybrid_control(
    model: Model,
    q: Any,
    qd: Any,
    frame: str,
    target: Any,
    force: Any,
    *,
    selection: Any,
    stiffness: Any,
    damping: Any,
    axes: Any = None,
    measured: Any = None,
    force_gain: Any = 0.0,
    velocity: Any = None,
    acceleration: Any = None,
    point: Any = None,
    null_acceleration: Any = None,
    regularization: Any = None,
    limit: Limit = None,
) -> jax.Array:
    r"""Compute joint forces with which a frame presses in some directions and moves in the others.

    With selection matrices :math:`S_f + S_m = 1` and the measured force f on the surroundings,

    .. math:: a = S_m (\ddot x_d + D\,(\dot x_d - \dot x) + K e) + S_f (G\,(f_d - f) - D \dot x), \qquad
        F = \Lambda a + \mu + p + f

    so that :math:`\ddot x = a`: directions of motion notice nothing of the force, and against a wall of stiffness k
    the force obeys :math:`\ddot f + D \dot f + k G\,(f - f_d) = 0`. Without a measurement f is taken for
    :math:`S_f f_d`: the frame then presses with the force wanted once it is at rest.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        frame: name of a body or frame.
        target: its pose, (rotation (3, 3), position (3,)) in the world.
        force: f_d, [moment; force] that the frame is to exert on its surroundings, (6,), world axes, about the point.
        selection: which of the 6 directions, along `axes`, are controlled by force: (6,) of zeros and ones; or the
            matrix S_f itself, (6, 6), world axes.
        stiffness: K, 1/s^2, not negative: a number, or one per direction along the world's axes, (6,).
        damping: D, 1/s, likewise.
        axes: the axes of the selection in the world, (3, 3), such as a surface's; the world's if not given.
        measured: f, (6,), as `force`; None if there is no sensor.
        force_gain: G, 1/kg and 1/(kg m^2), likewise; only of use with a measurement.
        velocity: desired velocity, (6,), world axes; at rest if not given.
        acceleration: its rate, likewise.
        point: a point in the frame, (3,); its origin if not given.
        null_acceleration: as in `operational_space_control`.
        regularization: as in `operational_space_control`.
        limit: as in `gravity_compensation`.

    Returns:
        tau, (nv,).
    """
    motion = _motion(model, q, qd, frame, target, velocity, acceleration, None, point, regularization)
    dtype = motion.error.dtype
    (D, G) = (gains(n, x, 6, "direction", dtype) for n, x in (("damping", damping), ("force_gain", force_gain)))
    S_m, S_f = selection_matrices(selection, axes, dtype=dtype)
    wanted = vector("force", force, 6, "direction", dtype)
    f = S_f @ wanted if measured is None else vector("measured", measured, 6, "direction", dtype)
    a = S_m @ motion.command(stiffness, damping) + S_f @ (G * (wanted - f) - D * motion.velocity)
    tau = _resolved(model, motion, a, null_acceleration) + motion.task.jacobian_T(f)
    return limited(model, tau, limit)


def selection_matrices(selection: Any, axes: Any = None, *, dtype: Any = None) -> tuple[jax.Array, jax.Array]:
    r"""Compute the projectors onto the directions of motion and of force, :math:`S_m + S_f = 1`.

    Args:
        selection: (6,) of zeros and ones, ones where force is controlled, [moments; forces]; or S_f, (6, 6), which
            must be an orthogonal projector.
        axes: the directions that `selection` speaks of, (3, 3) in the world, as columns; the world's if not given.
        dtype: floating-point type; JAX's default if not given.

    Returns:
        (S_m, S_f), each (6, 6), world axes.

    Example:
        >>> import jaxdyn
        >>> S_m, S_f = jaxdyn.control.selection_matrices((0, 0, 0, 0, 0, 1))  # press along z, move in all else
        >>> S_f.diagonal().tolist()
        [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    """
    S = jnp.asarray(selection, jnp.result_type(float) if dtype is None else dtype)
    known = None if isinstance(S, jax.core.Tracer) else np.asarray(S, np.float64)
    if S.shape == (6,):
        if known is not None and not np.isin(known, (0, 1)).all():
            raise ValueError(f"selection must be of zeros and ones; got {known.tolist()}")
        S = jnp.diag(S)
    elif S.shape != (6, 6):
        raise ValueError(f"selection must have shape (6,), one number per direction, or (6, 6); got {S.shape}")
    elif known is not None and not (
        np.allclose(known, known.T, atol=1e-5) and np.allclose(known @ known, known, atol=1e-5)
    ):
        raise ValueError("selection must be an orthogonal projector, S = S* = S S")
    if axes is not None:
        R = rotation_matrix("axes", axes, S.dtype)
        R = jnp.kron(jnp.eye(2, dtype=S.dtype), R)
        S = R @ S @ R.T
    return jnp.eye(6, dtype=S.dtype) - S, S


def frame_force(model: Model, q: Any, frame: str, force: Any, point: Any = None) -> jax.Array:
    """Return a force on a frame as `f_ext`, the forces on all bodies that dynamics and rollouts take.

    Args:
        model: the model.
        q: configuration, (nq,).
        frame: name of a body or frame.
        force: [moment; force] on the frame, (6,), world axes, about the point.
        point: a point in that frame, (3,); its origin if not given.

    Returns:
        f_ext, (nbodies, 6): in the axes of the body that carries the frame, about its origin; zero for the others.
    """
    body, _, _ = frame_number(model, frame, point)
    if body < 0:
        raise ValueError(f"frame {frame!r} is fixed to the world: no body takes a force on it")
    R, p = frame_pose(model, q, model.body_names[body])
    f = vector("force", force, 6, "direction", p.dtype)
    arm = frame_pose(model, q, frame, point).position - p
    moment = f[:3] + jnp.cross(arm, f[3:])
    return jnp.zeros((model.nbodies, 6), p.dtype).at[body].set(jnp.concatenate([R.T @ moment, R.T @ f[3:]]))


# ---------------------------------------------------------------------- details
class _Motion(NamedTuple):
    """Frames on their way, in the directions of the task."""

    q: jax.Array
    qd: jax.Array
    task: OperationalSpace
    error: jax.Array
    velocity: jax.Array
    lag: jax.Array
    """Desired velocity less the actual one."""
    acceleration: jax.Array

    def command(self, stiffness: Any, damping: Any) -> jax.Array:
        """Return the acceleration that brings the error down."""
        size, dtype = len(self.error), self.error.dtype
        K, D = (gains(n, x, size, "row", dtype) for n, x in (("stiffness", stiffness), ("damping", damping)))
        return self.acceleration + D * self.lag + K * self.error


def _motion(
    model: Model,
    q: Any,
    qd: Any,
    frame: str | Sequence[str],
    target: Any,
    velocity: Any,
    acceleration: Any,
    rows: Any,
    point: Any,
    regularization: Any,
) -> _Motion:
    q, qd = arguments.vectors(model, q=q, qd=qd)
    names, targets = ([frame], [target]) if isinstance(frame, str) else (list(frame), list(target))
    if len(targets) != len(names):
        raise ValueError(f"target must have a pose for each of {len(names)} frames; got {len(targets)}")
    points = [point] if isinstance(frame, str) or point is None else list(point)
    points = points * len(names) if len(points) < len(names) else points
    errors = [frame_error(model, q, *each) for each in zip(names, targets, points, strict=True)]
    size = 6 * len(names)
    whole = lambda name, x: jnp.zeros(size, q.dtype) if x is None else vector(name, x, size, "direction", q.dtype)
    velocity, acceleration = whole("velocity", velocity), whole("acceleration", acceleration)
    task = operational_space_dynamics(model, q, qd, frame, point, rows=rows, damping=regularization)
    picked = np.array(task.rows)
    actual = task.jacobian(qd)
    lag = velocity[picked] - actual
    error = jnp.concatenate(errors)[picked]
    return _Motion(q, qd, task, error, actual, lag, acceleration[picked])


def _resolved(model: Model, motion: _Motion, a: jax.Array, null_acceleration: Any) -> jax.Array:
    """Return the joint forces under which the task has the acceleration a."""
    q, qd, task = motion.q, motion.qd, motion.task
    free = jnp.zeros_like(qd) if null_acceleration is None else null_acceleration
    free = vector("null_acceleration", free, model.nv, "degree of freedom", qd.dtype)
    qdd = free + task.consistent_inverse(a - task.bias_acceleration - task.jacobian(free))
    return inverse_dynamics(model, q, qd, qdd)


def rotation_vector(R: jax.Array) -> jax.Array:
    """Return the rotation vector of a rotation matrix, (3,), of length at most pi."""
    return Quaternion.from_matrix(Mat3.from_array(R)).log().to_array()
