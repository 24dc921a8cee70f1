"""Forward kinematics: poses of bodies and frames (000 section III)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn import _checks
from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.model import Model
from jaxdyn.model.configuration import joint_transforms
from jaxdyn.recursion import outward
from jaxdyn.spatial import Transform, Vec3


class Poses(NamedTuple):
    """Poses in the world: of all bodies, or of one frame."""

    rotation: jax.Array
    """(nbodies, 3, 3), or (3, 3): `R_w_b`, the body's axes in world coordinates as columns."""
    position: jax.Array
    """(nbodies, 3), or (3,): the body's origin in world coordinates."""


def _across_joint(X_w_p: Transform, X_p_b: Transform) -> tuple[Transform, Transform]:
    """Cross a joint outward: X_w_b = X_w_p X_p_b."""
    X_w_b = X_w_p @ X_p_b
    return X_w_b, X_w_b


def body_poses(model: Model, q: jax.Array) -> Transform:
    """Return the poses of all bodies, as components of shape (nbodies,)."""
    model.require_single(concrete=False)
    q = _checks.vector("q", q, model.nq, "coordinate", model.dtype)
    return outward(model.parents, _across_joint, Transform.identity(), joint_transforms(model, q))


@arguments.compiled
def forward_kinematics(model: Model, q: jax.Array) -> Poses:
    r"""Compute the pose of every body in the world.

    .. math:: X_{w,i} = X_{w,p(i)}\; X_{p(i),i}(q_i)

    Args:
        model: the model.
        q: configuration, (nq,).

    Returns:
        Poses(rotation (nbodies, 3, 3), position (nbodies, 3)), world axes.

    Example:
        >>> import jax, jaxdyn
        >>> model = jaxdyn.load("double_pendulum")
        >>> q = jaxdyn.neutral(model)
        >>> jaxdyn.forward_kinematics(model, q).position.shape
        (2, 3)
        >>> tip = lambda q: jaxdyn.frame_pose(model, q, "tip").position
        >>> jax.jacobian(tip)(q).shape
        (3, 2)
    """
    X_w_b = body_poses(model, q)
    return Poses(X_w_b.R.to_array(), X_w_b.p.to_array())


def frame_pose(model: Model, q: jax.Array, frame: str, point: Any = None) -> Poses:
    """Compute the pose of a body or named frame in the world.

    Args:
        model: the model.
        q: configuration, (nq,).
        frame: name of a body or frame.
        point: a point in that frame, (3,), whose position is wanted instead of the origin's.

    Returns:
        Poses(rotation (3, 3), position (3,)). Asking for another frame does not recompile.
    """
    return _frame_pose(model, q, *frame_number(model, frame, point))


def frame_number(model: Model, frame: str, point: Any) -> tuple[int, int, Any]:
    """Return the body that carries a frame, the frame's number (-1 for the body's own) and a point in it."""
    arguments.require_model(model)
    body, number = model.topology.find_frame(frame)
    offset = np.zeros(3, model.dtype) if point is None else _checks.vector("point", point, 3, "axis", model.dtype)
    return body, number, offset


def frame_in_body(model: Model, number: Any) -> jax.Array:
    """Return the placement (7,) of frame `number` in its body; number -1 is the body's own frame."""
    own = jnp.array([[1.0, 0, 0, 0, 0, 0, 0]], model.dtype)
    return jnp.concatenate([model.frame_placement, own])[number]


@jit
def _frame_pose(model: Model, q: jax.Array, body: int, number: int, point: jax.Array) -> Poses:
    X_w_f = _on_body(body_poses(model, q), body) @ Transform.from_pose(frame_in_body(model, number))
    return Poses(X_w_f.R.to_array(), X_w_f.point(Vec3.from_array(point)).to_array())


@jax.jit
def frame_poses(model: Model, q: jax.Array) -> Poses:
    """Compute the poses of all named frames, in the order of `model.frame_names`.

    Args:
        model: the model.
        q: configuration, (nq,).

    Returns:
        Poses(rotation (nframes, 3, 3), position (nframes, 3)), world axes.
    """
    carriers = np.array(model.topology.frame_parents, np.int32)
    X_w_f = _on_body(body_poses(model, q), carriers) @ Transform.from_pose(model.frame_placement)
    return Poses(X_w_f.R.to_array(), X_w_f.p.to_array())


def _on_body(X_w_b: Transform, body: Any) -> Transform:
    """Return the poses of some bodies by index, -1 being the world."""
    return jax.tree.map(
        lambda x, world: jnp.concatenate([x, jnp.full(1, world, x.dtype)])[body], X_w_b, Transform.identity()
    )
