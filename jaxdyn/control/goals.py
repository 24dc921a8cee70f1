"""What inverse kinematics is to reach: places, poses and directions of frames, and a posture to keep near to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._checks import vector
from jaxdyn.algorithms.jacobian import jacobian
from jaxdyn.algorithms.kinematics import frame_pose
from jaxdyn.control.gains import pose, rotation_matrix
from jaxdyn.control.task_space import rotation_vector
from jaxdyn.derivatives import difference_derivatives
from jaxdyn.model import Model, difference
from jaxdyn.spatial import Vec3

Kind = Literal["position", "orientation", "pose", "axis", "posture"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Goal:
    """One thing to reach. Numbers are leaves: a batch of goals is a goal whose leaves have one more axis."""

    kind: Kind = field(metadata={"static": True})
    frame: str = field(metadata={"static": True})
    target: Any
    weight: Any
    """By which the residual is multiplied: a number, or one for each of its components."""
    detail: Any = None
    """The point or axis in the frame that is meant."""


def position_goal(frame: str, target: Any, *, point: Any = None, weight: Any = 1.0) -> Goal:
    """Ask for the position of a frame.

    Args:
        frame: name of a body or frame.
        target: position in the world, (3,).
        point: a point in that frame, (3,), which is to be there; its origin if not given.
        weight: 1/m, against other goals: a number, or one per axis, (3,). Zeros leave a direction free.
    """
    return Goal("position", _name(frame), _three("target", target), _weight(weight, 3), _three("point", point))


def orientation_goal(frame: str, target: Any, *, weight: Any = 1.0) -> Goal:
    """Ask for the orientation of a frame.

    Args:
        frame: name of a body or frame.
        target: rotation matrix, (3, 3): the frame's axes in the world, as columns.
        weight: 1/rad, one number.
    """
    return Goal(
        "orientation", _name(frame), rotation_matrix("target", target, jnp.result_type(float)), _weight(weight, None)
    )


def pose_goal(frame: str, target: Any, *, point: Any = None, weight: Any = 1.0, rotation_weight: Any = 1.0) -> Goal:
    """Ask for position and orientation of a frame.

    Args:
        frame: name of a body or frame.
        target: (rotation (3, 3), position (3,)) in the world, as `jaxdyn.frame_pose` returns it.
        point: a point in that frame, (3,), which is to be there; its origin if not given.
        weight: 1/m, one number.
        rotation_weight: 1/rad, one number.
    """
    weights = _weight(rotation_weight, None), _weight(weight, None)
    return Goal("pose", _name(frame), pose(target, jnp.result_type(float)), weights, _three("point", point))


def axis_goal(frame: str, axis: Any, direction: Any, *, weight: Any = 1.0) -> Goal:
    """Ask for the direction of an axis of a frame: a camera that looks along it, a glass that stays upright.

    Args:
        frame: name of a body or frame.
        axis: in that frame, (3,); need not have unit length.
        direction: in the world, (3,), likewise.
        weight: 1/rad, one number.
    """
    axis, direction = _three("axis", axis), _three("direction", direction)
    for name, x in (("axis", axis), ("direction", direction)):
        if not isinstance(x, jax.core.Tracer) and not np.linalg.norm(x) > 0:
            raise ValueError(f"{name} must not be zero")
    return Goal("axis", _name(frame), direction, _weight(weight, None), axis)


def posture_goal(target: Any, *, weight: Any = 1e-3) -> Goal:
    """Ask for a configuration, where other goals leave it free: with a small weight.

    Args:
        target: configuration, (nq,).
        weight: a number, or one per degree of freedom, (nv,). The other goals are missed by about its square.
    """
    return Goal("posture", "", jnp.asarray(target), jnp.asarray(weight))


def residual(model: Model, goal: Goal, q: jax.Array) -> jax.Array:
    """Return what a configuration misses a goal by, in m and rad."""
    if goal.kind == "posture":
        return difference(model, vector("a posture goal's target", goal.target, model.nq, "coordinate", q.dtype), q)
    R, p = frame_pose(model, q, goal.frame, goal.detail if goal.kind in ("position", "pose") else None)
    target = jax.tree.map(lambda x: x.astype(q.dtype), goal.target)
    if goal.kind == "position":
        return p - target
    if goal.kind == "orientation":
        return -rotation_vector(target @ R.T)
    if goal.kind == "axis":
        return R @ _unit(goal.detail.astype(q.dtype)) - _unit(target)
    return jnp.concatenate([-rotation_vector(target[0] @ R.T), p - target[1]])


def slope(model: Model, goal: Goal, q: jax.Array, r: jax.Array) -> jax.Array:
    """Return the derivative of a residual in the tangent, (len(r), nv).

    Of rotation vectors r, that of small ones; J* r is the gradient of r* r / 2 for large ones too.
    """
    if goal.kind == "posture":
        return difference_derivatives(model, goal.target, q)[1]
    J = jacobian(model, q, goal.frame, goal.detail if goal.kind in ("position", "pose") else None)
    if goal.kind == "axis":
        return jnp.cross(J[:3], (r + _unit(goal.target.astype(q.dtype)))[:, None], axis=0)
    return {"position": J[3:], "orientation": J[:3], "pose": J}[goal.kind]


def weights(model: Model, goal: Goal, r: jax.Array) -> jax.Array:
    """Return the weights of a residual's components."""
    if goal.kind == "pose":
        return jnp.repeat(jnp.stack(goal.weight), 3).astype(r.dtype)
    if goal.kind == "posture" and goal.weight.shape not in ((), (model.nv,)):
        raise ValueError(f"a posture goal's weight must be a number or ({model.nv},); got {goal.weight.shape}")
    return jnp.broadcast_to(goal.weight.astype(r.dtype), r.shape)


# ---------------------------------------------------------------------- details
def _unit(x: jax.Array) -> jax.Array:
    return Vec3.from_array(x).normalized().to_array()


def _name(frame: Any) -> str:
    if not isinstance(frame, str):
        raise TypeError(f"frame must be the name of a body or frame; got {frame!r}")
    return frame


def _three(name: str, x: Any) -> jax.Array:
    return vector(name, np.zeros(3) if x is None else x, 3, "axis", jnp.result_type(float))


def _weight(value: Any, size: int | None) -> jax.Array:
    x = jnp.asarray(value, jnp.result_type(float))
    if x.shape not in ((), (size,)):
        raise ValueError(f"weight must be one number{'' if size is None else f', or ({size},)'}; got {x.shape}")
    if not isinstance(x, jax.core.Tracer) and not np.all(np.asarray(x) >= 0):
        raise ValueError(f"weight must not be negative; got {value}")
    return x
