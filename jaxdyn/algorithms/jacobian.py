"""Jacobians of frames (001 (1))."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.articulation import array_like, articulation, tile_of_rows
from jaxdyn.algorithms.kinematics import frame_number
from jaxdyn.algorithms.motion import Placed, joint_columns, placed_links
from jaxdyn.algorithms.velocities import point_in_body
from jaxdyn.model import Model
from jaxdyn.recursion import batched
from jaxdyn.spatial import Mat3, Vec3


def _jacobian(model: Model, q: Any, body: Any, r: Any) -> jax.Array:
    joints = articulation(model.topology, canonical=False)
    links = joints.links(model, q)
    placed = placed_links(joints, links, root_axes=False)
    H = joint_columns(links, placed)
    about_one_point = [tuple(h.shift(-m.p) for h in hs) for hs, m in zip(H, placed, strict=True)]
    columns = joints.spatial_columns(about_one_point, q.dtype)
    world = Placed(Mat3.identity(), Vec3.zero(), Vec3.zero())
    one = lambda x, w: jnp.concatenate([x, jnp.full_like(x[:1], w)])[body[0]]
    m = jax.tree.map(one, joints.by_body(placed), world)
    J = columns.shift(jax.tree.map(lambda x: x[None], m.p + m.R @ Vec3(*r)))
    moves = jnp.asarray(joints.inboard)[body[0]]
    return joints.fold(jnp.where(moves[None, :, None], jnp.stack(jnp.broadcast_arrays(*J.ang, *J.lin)), 0), 1)


_jacobian_of_state = batched(
    _jacobian, tile=tile_of_rows(), like=lambda model, q, *at: array_like((6, model.nv), model, q, at)
)


def jacobian(model: Model, q: Any, frame: str, point: Any = None) -> jax.Array:
    r"""Compute the Jacobian of a body or named frame at a point of it.

    .. math:: V_{frame} = J(q)\, \dot q

    Args:
        model: the model.
        q: configuration, (nq,).
        frame: name of a body or frame. Asking for another one does not recompile.
        point: a point in that frame, (3,); its origin if not given.

    Returns:
        J, (6, nv), [angular; linear velocity of the point], world axes.

    Example:
        >>> import jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> jaxdyn.jacobian(model, jaxdyn.neutral(model), "tool").shape
        (6, 7)
    """
    return _jacobian_jitted(model, q, *frame_number(model, frame, point))


@jit
def _jacobian_jitted(model: Model, q: Any, body: int, number: int, point: Any) -> jax.Array:
    (q,) = arguments.vectors(model, q=q)
    if not model.nv:
        return jnp.zeros((6, 0), q.dtype)
    return _jacobian_of_state(model, q, body, point_in_body(model, number, point))
