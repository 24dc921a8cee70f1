"""Inverse dynamics: the recursive Newton-Euler algorithm (004 (3)-(8); 000 section III)."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.adjoint import pull_back
from jaxdyn.algorithms.articulation import articulation, like_vector, tile_of_rows
from jaxdyn.algorithms.dense import Form, in_all_forms, inverse_dynamics_dense
from jaxdyn.algorithms.motion import joint_columns, link_inertias, loaded_links, placed_links
from jaxdyn.algorithms.variation import push_forward
from jaxdyn.model import Model
from jaxdyn.recursion import batched
from jaxdyn.spatial import Force, Motion, Vec3


def balance(outboard: Force, body: Any) -> Any:
    """Add up forces inward, and read the joint's torque: T(k) = H f(k) (000 (17)-(18); 004 (7)-(8))."""
    f, H, l = body
    f = f + outboard
    return f.shift(l), tuple(f.dot(h) for h in H)


def inverse_dynamics_kernel(model: Model, q: Any, qd: Any, qdd: Any, f_ext: Any, base_motion: Any) -> jax.Array:
    """Return the joint forces, (nv, batch); without qdd, at zero acceleration."""
    joints = articulation(model.topology)
    links = joints.links(model, q)
    loaded = loaded_links(joints, model, links, q, qd, qdd, f_ext, base_motion, at_once=True)
    bodies = [(link.f, link.H, link.l) for link in loaded]
    tau = joints.collect(joints.walk.inward(balance, Force.zero(), bodies)[1])
    return tau if qdd is None else tau + model.armature * qdd


def _gravity_force(model: Model, q: Any, f_ext: Any) -> jax.Array:
    joints = articulation(model.topology)
    links = joints.links(model, q)
    placed = placed_links(joints, links, root_axes=False)
    M, up = link_inertias(joints, model, links, placed), Vec3(*(-g for g in model.gravity))
    f = [M_k @ Motion(Vec3.zero(), stage.everywhere(up)) for M_k, stage in zip(M, joints.stages, strict=True)]
    if f_ext is not None:
        f = [a - b.rotate(m.R) for a, b, m in zip(f, joints.forces(f_ext, links), placed, strict=True)]
    bodies = list(zip(f, joint_columns(links, placed), [m.l for m in placed], strict=True))
    return joints.collect(joints.walk.inward(balance, Force.zero(), bodies)[1])


inverse_dynamics_of_state = in_all_forms(
    inverse_dynamics_kernel,
    inverse_dynamics_dense,
    make=partial(batched, pull_back=pull_back, push_forward=push_forward),
    like=lambda model, q, qd, *rest: like_vector(qd, model, q, rest),
)
_gravity_force_of_state = batched(
    _gravity_force, tile=tile_of_rows(), like=lambda model, q, f_ext: like_vector(model.armature, model, q, f_ext)
)


@partial(arguments.compiled, static="form")
def inverse_dynamics(
    model: Model, q: Any, qd: Any, qdd: Any, *, f_ext: Any = None, base_motion: Any = None, form: Form = "auto"
) -> jax.Array:
    r"""Compute the joint forces that make the robot move with the given acceleration.

    .. math:: \tau = M(q)\,\ddot q + b(q, \dot q) - J^T f_{ext}

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        qdd: acceleration, (nv,).
        f_ext: force on each body, (nbodies, 6), [moment; force] about the body's origin, in its axes.
        base_motion: (velocity, acceleration) of the frame on which the robot stands, each (6,), if it moves:
            twist [angular; linear] in its own axes and the rate of its components, like qd and qdd of a free
            joint. At this instant its axes are the world's (gravity is given in them).
        form: "sweep" for recursions over the bodies, "dense" for matrices. "auto" takes matrices for a single
            state of a model with at most 48 degrees of freedom; recursions otherwise.

    Returns:
        tau, (nv,).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> q = qd = qdd = jnp.zeros(7)
        >>> jaxdyn.inverse_dynamics(model, q, qd, qdd).shape
        (7,)
    """
    q, qd, qdd = arguments.vectors(model, q=q, qd=qd, qdd=qdd)
    of_state = inverse_dynamics_of_state(form)
    if not model.nv:
        return qdd
    return of_state(model, q, qd, qdd, arguments.forces(model, f_ext), arguments.motion(model, base_motion))


@partial(arguments.compiled, static="form")
def bias_force(
    model: Model, q: Any, qd: Any, *, f_ext: Any = None, base_motion: Any = None, form: Form = "auto"
) -> jax.Array:
    r"""Compute the joint forces at zero acceleration: Coriolis, centrifugal, gravity and external ones.

    .. math:: b(q, \dot q) = \mathrm{ID}(q, \dot q, 0)

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        f_ext: as in `inverse_dynamics`.
        base_motion: as in `inverse_dynamics`.
        form: as in `inverse_dynamics`.

    Returns:
        The bias force, (nv,).
    """
    q, qd = arguments.vectors(model, q=q, qd=qd)
    of_state = inverse_dynamics_of_state(form)
    if not model.nv:
        return qd
    return of_state(model, q, qd, None, arguments.forces(model, f_ext), arguments.motion(model, base_motion))


@arguments.compiled
def gravity_force(model: Model, q: Any, *, f_ext: Any = None) -> jax.Array:
    r"""Compute the joint forces that hold the robot at rest against gravity.

    .. math:: g(q) = \mathrm{ID}(q, 0, 0) = \partial V / \partial q

    (the derivative is along the tangent; V without the joints' springs).

    Args:
        model: the model.
        q: configuration, (nq,).
        f_ext: as in `inverse_dynamics`.

    Returns:
        The force, (nv,).
    """
    (q,) = arguments.vectors(model, q=q)
    if not model.nv:
        return q
    return _gravity_force_of_state(model, q, arguments.forces(model, f_ext))
