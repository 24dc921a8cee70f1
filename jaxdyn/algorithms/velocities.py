"""Velocities and accelerations of bodies and frames (004 (3)-(4))."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.articulation import array_like, articulation, tile_of_rows
from jaxdyn.algorithms.kinematics import frame_in_body, frame_number
from jaxdyn.algorithms.motion import Moving, moving_links, world_in_motion
from jaxdyn.model import Model
from jaxdyn.recursion import batched
from jaxdyn.spatial import Mat3, Motion, Transform, Vec3

_AT_REST = Moving(Mat3.identity(), Motion.zero(), Motion.zero(), Vec3.zero())


def _moving_bodies(model: Model, q: Any, qd: Any, qdd: Any, base_motion: Any) -> Moving:
    """Return all bodies in motion, without gravity; components (nbodies, batch)."""
    if not model.nbodies:
        return jax.tree.map(lambda x: jnp.zeros((0, 1), q.dtype), _AT_REST)
    joints = articulation(model.topology, canonical=False)
    links = joints.links(model, q)
    moved = moving_links(
        joints, model, links, q, qd, qdd, world_in_motion(model, base_motion, gravity=False), root_axes=False
    )
    return joints.by_body(moved)


def _classical(m: Moving) -> Motion:
    """Return the derivative of world components: the acceleration of the link's material point at its origin."""
    return Motion(m.a.ang, m.a.lin + m.V.ang.cross(m.V.lin))


def _body_velocities(model: Model, q: Any, qd: Any, base_motion: Any) -> Any:
    m = _moving_bodies(model, q, qd, None, base_motion)
    return _array(m.V.rotate(m.R.T)), _array(m.V)


def _body_accelerations(model: Model, q: Any, qd: Any, qdd: Any, base_motion: Any) -> Any:
    m = _moving_bodies(model, q, qd, qdd, base_motion)
    return _array(m.a.rotate(m.R.T)), _array(_classical(m))


def _array(x: Any) -> jax.Array:
    """Return a spatial vector as an array (nbodies, 6, batch)."""
    return jnp.moveaxis(x.to_array(), -1, 1)


def _frame_velocity(model: Model, q: Any, qd: Any, base_motion: Any, body: Any, r: Any) -> Any:
    m, r = _on_frame(_moving_bodies(model, q, qd, None, base_motion), body, r, base_motion)
    return m.V.shift(r).to_array().T


def _frame_acceleration(model: Model, q: Any, qd: Any, qdd: Any, base_motion: Any, body: Any, r: Any) -> Any:
    m, r = _on_frame(_moving_bodies(model, q, qd, qdd, base_motion), body, r, base_motion)
    a = _classical(m)
    return Motion(a.ang, a.lin + a.ang.cross(r) + m.V.ang.cross(m.V.ang.cross(r))).to_array().T


def _on_frame(bodies: Moving, body: Any, r: Any, base_motion: Any) -> tuple[Moving, Vec3]:
    """Return one body (-1: the world), and the vector from its origin to its point r, in world axes."""
    V, a = (Motion.zero(),) * 2 if base_motion is None else (Motion.from_array(x.T) for x in base_motion)
    world = Moving(Mat3.identity(), V, a, Vec3.zero())
    m = jax.tree.map(
        lambda x, w: jnp.concatenate([x, jnp.broadcast_to(w, (1, *x.shape[1:])).astype(x.dtype)])[body[..., 0]],
        bodies,
        world,
    )
    return m, m.R @ Vec3(*r)


_body_velocities_of_state, _body_accelerations_of_state = (
    batched(kernel, tile=tile_of_rows(), like=lambda model, *rest: (array_like((model.nbodies, 6), model, *rest),) * 2)
    for kernel in (_body_velocities, _body_accelerations)
)
_frame_velocity_of_state = batched(_frame_velocity, tile=tile_of_rows())
_frame_acceleration_of_state = batched(_frame_acceleration, tile=tile_of_rows())


def body_velocities(model: Model, q: Any, qd: Any, *, axes: str = "body", base_motion: Any = None) -> jax.Array:
    """Compute the velocity of every body about its own origin.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        axes: "body" for the body's own axes, "world" for the world's.
        base_motion: as in `inverse_dynamics`.

    Returns:
        (nbodies, 6), [angular; linear].
    """
    return _in_axes(_body_velocities_jitted(model, q, qd, base_motion), axes)


def body_accelerations(
    model: Model, q: Any, qd: Any, qdd: Any, *, axes: str = "body", base_motion: Any = None
) -> jax.Array:
    """Compute the time derivative of `body_velocities` in the same axes, without gravity.

    In body axes it is the spatial acceleration in link coordinates; in world axes the linear part is the
    acceleration of the body's origin.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        qdd: acceleration, (nv,).
        axes: "body" or "world".
        base_motion: as in `inverse_dynamics`.

    Returns:
        (nbodies, 6), [angular; linear].
    """
    return _in_axes(_body_accelerations_jitted(model, q, qd, qdd, base_motion), axes)


def frame_velocity(
    model: Model, q: Any, qd: Any, frame: str, point: Any = None, *, base_motion: Any = None
) -> jax.Array:
    """Compute the velocity of a body or named frame at a point of it.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        frame: name of a body or frame. Asking for another one does not recompile.
        point: a point in that frame, (3,); its origin if not given.
        base_motion: as in `inverse_dynamics`.

    Returns:
        (6,), world axes, [angular; linear velocity of the point]; equal to `jacobian(...) @ qd`.
    """
    return _frame_velocity_jitted(model, q, qd, base_motion, *frame_number(model, frame, point))


def frame_acceleration(
    model: Model, q: Any, qd: Any, qdd: Any, frame: str, point: Any = None, *, base_motion: Any = None
) -> jax.Array:
    r"""Compute the time derivative of `frame_velocity`, without gravity.

    .. math:: J \ddot q + \dot J \dot q

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        qdd: acceleration, (nv,).
        frame: name of a body or frame. Asking for another one does not recompile.
        point: a point in that frame, (3,); its origin if not given.
        base_motion: as in `inverse_dynamics`.

    Returns:
        (6,), world axes, [angular; linear acceleration of the point].
    """
    return _frame_acceleration_jitted(model, q, qd, qdd, base_motion, *frame_number(model, frame, point))


def jacobian_bias(model: Model, q: Any, qd: Any, frame: str, point: Any = None) -> jax.Array:
    r"""Compute :math:`\dot J \dot q`, the acceleration of a frame at zero joint acceleration, (6,).

    Arguments as in `frame_velocity`.
    """
    return _frame_acceleration_jitted(model, q, qd, None, None, *frame_number(model, frame, point))


def point_in_body(model: Model, number: Any, point: Any) -> jax.Array:
    """Return in body coordinates a point given in frame `number`, (3,)."""
    return Transform.from_pose(frame_in_body(model, number)).point(Vec3.from_array(point)).to_array()


def _in_axes(both: tuple[jax.Array, jax.Array], axes: str) -> jax.Array:
    if axes not in ("body", "world"):
        raise ValueError(f'axes must be "body" or "world"; got {axes!r}')
    return both[axes == "world"]


@arguments.compiled
def _body_velocities_jitted(model: Model, q: Any, qd: Any, base_motion: Any) -> Any:
    q, qd = arguments.vectors(model, q=q, qd=qd)
    if not model.nbodies:
        return (jnp.zeros((0, 6), q.dtype),) * 2
    return _body_velocities_of_state(model, q, qd, arguments.motion(model, base_motion))


@arguments.compiled
def _body_accelerations_jitted(model: Model, q: Any, qd: Any, qdd: Any, base_motion: Any) -> Any:
    q, qd, qdd = arguments.vectors(model, q=q, qd=qd, qdd=qdd)
    if not model.nbodies:
        return (jnp.zeros((0, 6), q.dtype),) * 2
    return _body_accelerations_of_state(model, q, qd, qdd, arguments.motion(model, base_motion))


@jit
def _frame_velocity_jitted(model: Model, q: Any, qd: Any, base_motion: Any, body: int, number: int, point: Any) -> Any:
    q, qd = arguments.vectors(model, q=q, qd=qd)
    r = point_in_body(model, number, point)
    return _frame_velocity_of_state(model, q, qd, arguments.motion(model, base_motion), body, r)


@jit
def _frame_acceleration_jitted(
    model: Model, q: Any, qd: Any, qdd: Any, base_motion: Any, body: int, number: int, point: Any
) -> Any:
    q, qd, qdd = arguments.vectors(model, q=q, qd=qd, qdd=jnp.zeros_like(jnp.asarray(qd)) if qdd is None else qdd)
    r = point_in_body(model, number, point)
    return _frame_acceleration_of_state(model, q, qd, qdd, arguments.motion(model, base_motion), body, r)
