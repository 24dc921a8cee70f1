"""Reaction forces: what each joint carries (003 (8), (43); 004 (7))."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn._compiling import jit
from jaxdyn._numerics import safe_rsqrt
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.aba import forward_dynamics, require_regular
from jaxdyn.algorithms.articulation import articulation, tile_of_rows
from jaxdyn.algorithms.motion import link_inertias, moving_links, world_in_motion
from jaxdyn.model import Model
from jaxdyn.recursion import batched
from jaxdyn.spatial import Force, Motion


class ReactionForces(NamedTuple):
    """The force that each body receives from its parent across the joint between them, `total = actuator + constraint`.

    [moment; force] about the body's origin, which lies at its inboard joint; in the axes that were asked for.
    """

    total: jax.Array
    """(nbodies, 6) all of it; the parent feels the opposite."""
    actuator: jax.Array
    """(nbodies, 6) the part along the joint's own directions: the torque, less what accelerates the armature. For a
    mimic joint it is what the gear transmits."""
    constraint: jax.Array
    """(nbodies, 6) the rest, which bearings and guides carry. It does no work in any motion of the joint."""


def _add_up(outboard: Force, body: Any) -> Any:
    """Add up forces inward (004 (7))."""
    f, l = body
    f = f + outboard
    return f.shift(l), f


def _along(f: Force, columns: tuple[Motion, ...], dtype: Any) -> Force:
    """Return the part of a force in the directions of a joint's columns: P (P* P)^-1 P* f."""
    part, units = Force.zero(), list[Motion]()
    for h in columns:
        for unit in units:
            h = h - _dot(unit, h) * unit
        units.append(safe_rsqrt(jnp.asarray(_dot(h, h), dtype)) * h)
        x = f.dot(units[-1])
        part = part + Force(x * units[-1].ang, x * units[-1].lin)
    return part


def _dot(a: Motion, b: Motion) -> Any:
    return a.ang.dot(b.ang) + a.lin.dot(b.lin)


def _reactions(model: Model, q: Any, qd: Any, qdd: Any, f_ext: Any, axes: str) -> Any:
    """Return the forces across the joints and their parts along them, (nbodies, 6, batch) each."""
    joints = articulation(model.topology, canonical=False)
    links = joints.links(model, q)
    moved = moving_links(joints, model, links, q, qd, qdd, world_in_motion(model), root_axes=False)
    M = link_inertias(joints, model, links, moved)
    f = [M_k @ m.a + m.V.cross_force(M_k @ m.V) for M_k, m in zip(M, moved, strict=True)]
    if f_ext is not None:
        f = [a - b.rotate(m.R) for a, b, m in zip(f, joints.forces(f_ext, links), moved, strict=True)]
    bodies = [(f_k, m.l) for f_k, m in zip(f, moved, strict=True)]
    carried = joints.walk.inward(_add_up, Force.zero(), bodies)[1]
    total = [f_k.rotate(m.R.T) for f_k, m in zip(carried, moved, strict=True)]
    both = [(f_k, _along(f_k, link.S, q.dtype)) for f_k, link in zip(total, links, strict=True)]
    if axes == "world":
        both = [(a.rotate(m.R), b.rotate(m.R)) for (a, b), m in zip(both, moved, strict=True)]
    return tuple(jnp.moveaxis(x.to_array(), -1, 1) for x in joints.by_body(both))


_reactions_of_state = {axes: batched(partial(_reactions, axes=axes), tile=tile_of_rows()) for axes in ("body", "world")}


def reaction_forces(
    model: Model, q: Any, qd: Any, tau: Any, *, f_ext: Any = None, axes: str = "body"
) -> ReactionForces:
    r"""Compute the force that each joint carries while given joint forces move the robot.

    .. math:: f_k = \sum_{children} \phi f + M_k a_k + V_k \times^* M_k V_k - f_{ext,k}
              = \underbrace{P_k (P_k^* P_k)^{-1} (\tau_k - A_k \ddot q_k)}_{actuator} + f_{constraint,k}

    with the acceleration of `forward_dynamics`, and the joint's columns :math:`P_k` as the directions of the actuator.
    The constraint part is what bearings are sized by: :math:`P_k^* f_{constraint,k} = 0`. For a revolute joint it is
    the force and the moment across the axis; for a screw, whose column has both a rotation and a translation, the
    split depends on the unit of length, and only its virtue of doing no work does not. A free joint carries nothing.

    Args:
        model: the model. A joint that moves no inertia is refused, as in `forward_dynamics`.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        tau: joint forces, (nv,); with the passive forces, if there are any.
        f_ext: force on each body, (nbodies, 6), [moment; force] about the body's origin, in its axes.
        axes: "body" for each body's own axes, "world" for the world's.

    Returns:
        ReactionForces(total, actuator, constraint), each (nbodies, 6): the force that the parent exerts on the body.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> q, rest = jnp.zeros(7), jnp.zeros(7)
        >>> held = jaxdyn.gravity_force(model, q)
        >>> force = jaxdyn.reaction_forces(model, q, rest, held, axes="world").total[0, 5]
        >>> bool(jnp.isclose(force, 9.81 * model.inertia[:, 0].sum()))  # the base carries the arm's weight
        True
    """
    arguments.require_model(model)
    if axes not in _reactions_of_state:
        raise ValueError(f'axes must be "body" or "world"; got {axes!r}')
    require_regular(model)
    return _reaction_forces(model.moving, q, qd, tau, f_ext, axes)


@partial(jit, static_argnums=5)
def _reaction_forces(model: Model, q: Any, qd: Any, tau: Any, f_ext: Any, axes: str) -> ReactionForces:
    q, qd, tau = arguments.vectors(model, q=q, qd=qd, tau=tau)
    f_ext = arguments.forces(model, f_ext)
    if not model.nbodies:
        return ReactionForces(*(jnp.zeros((0, 6), q.dtype),) * 3)
    qdd = forward_dynamics(model, q, qd, tau, f_ext=f_ext)
    total, actuator = _reactions_of_state[axes](model, q, qd, qdd, f_ext)
    return ReactionForces(total, actuator, total - actuator)
