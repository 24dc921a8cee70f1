"""Forward dynamics: the articulated-body algorithm as filter and smoother (000 VIII; 003 (27)-(28); 004 (12)-(14))."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple
from weakref import WeakSet

import jax
import jax.numpy as jnp

from jaxdyn._checks import ModelError
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.articulation import Articulation, Rows, articulation, tile_of_rows
from jaxdyn.algorithms.crba import mass_matrix_kernel
from jaxdyn.algorithms.dense import Form, forward_dynamics_dense, in_all_forms
from jaxdyn.algorithms.motion import (
    forces_of_motion,
    joint_columns,
    link_inertias,
    moving_links,
    placed_links,
    world_in_motion,
)
from jaxdyn.algorithms.rnea import inverse_dynamics_kernel
from jaxdyn.model import Model
from jaxdyn.model.consistency import massless_joints_of
from jaxdyn.recursion import batched
from jaxdyn.spatial import ArticulatedInertia, Force, Motion


class Gain(NamedTuple):
    """What the filter leaves at a joint column."""

    U: Force
    """P H*, the force that accelerating the column takes."""
    D_inv: Any
    """1 / (H P H* + armature)."""


def _filter(outboard: Any, body: Any) -> Any:
    """Predict across the link, correct across the joint (000 (36)-(43)).

    A joint's columns are crossed one after the other: the same as one step with the block D of them all.
    """
    (P, z), (M, b, H, l, tau, armature) = outboard, body
    P, z = P.plus_rigid(M), z + b
    gains, innovations = [], []
    for h, torque, A in zip(H, tau, armature, strict=True):
        U = P @ h
        D_inv = 1 / (U.dot(h) + A)
        e = torque - z.dot(h)
        P, z = P.downdate(U, D_inv), z + (e * D_inv) * U
        gains.append(Gain(U, D_inv))
        innovations.append(e)
    return (P.shift(l), z.shift(l)), (tuple(gains), tuple(innovations))


def _factor(outboard: ArticulatedInertia, body: Any) -> Any:
    """Find the articulated inertias and gains alone (000 (36)-(41))."""
    M, H, l, armature = body
    P, gains = outboard.plus_rigid(M), []
    for h, A in zip(H, armature, strict=True):
        U = P @ h
        gains.append(Gain(U, 1 / (U.dot(h) + A)))
        P = P.downdate(U, gains[-1].D_inv)
    return P.shift(l), tuple(gains)


def _whiten(outboard: Force, body: Any) -> Any:
    """Find the innovations of given torques, the gains being known (000 (42)-(43))."""
    z, (H, l, gains, tau), innovations = outboard, body, []
    for h, (U, D_inv), torque in zip(H, gains, tau, strict=True):
        e = torque - z.dot(h)
        z = z + (e * D_inv) * U
        innovations.append(e)
    return z.shift(l), tuple(innovations)


def _smooth(inboard: Motion, body: Any) -> Any:
    """Find the link's and the joint's acceleration (000 (45)-(47)); columns in reverse order."""
    H, l, gains, innovations = body
    lam = inboard.shift(l)
    qdd: list[Any] = []
    for h, (U, D_inv), e in zip(reversed(H), reversed(gains), reversed(innovations), strict=True):
        qdd.insert(0, D_inv * (e - U.dot(lam)))
        lam = lam + qdd[0] * h
    return lam, tuple(qdd)


def _armature(joints: Articulation, model: Model) -> list[Rows]:
    """Return the armature of each column; a column that is not there is too heavy to move."""
    return joints.rows(model.armature, nothing=jnp.inf)


def _forward_dynamics(model: Model, q: Any, qd: Any, tau: Any, f_ext: Any, base_motion: Any) -> jax.Array:
    if model.topology.mimic_names:
        rest = tau - inverse_dynamics_kernel(model, q, qd, None, f_ext, base_motion)
        return _solve_dense(mass_matrix_kernel(model, q), rest)
    joints = articulation(model.topology)
    links = joints.links(model, q)
    moved = moving_links(joints, model, links, q, qd, None, world_in_motion(model, base_motion))
    M = link_inertias(joints, model, links, moved)
    b = forces_of_motion(joints, links, M, moved, f_ext)
    H, l = joint_columns(links, moved), [m.l for m in moved]
    bodies = list(zip(M, b, H, l, joints.rows(tau), _armature(joints, model), strict=True))
    _, filtered = joints.walk.inward(_filter, (ArticulatedInertia.zero(), Force.zero()), bodies)
    smoothed = [(H_k, l_k, *filtered_k) for H_k, l_k, filtered_k in zip(H, l, filtered, strict=True)]
    return joints.collect(joints.walk.outward(_smooth, Motion.zero(), smoothed))


def _solve_dense(M: jax.Array, b: jax.Array) -> jax.Array:
    """Return M^-1 b by Cholesky; the batch is the last axis."""
    factor = jax.lax.linalg.cholesky(jnp.moveaxis(M, -1, 0))
    x = jax.scipy.linalg.cho_solve((factor, True), jnp.moveaxis(jnp.broadcast_to(b, M.shape[1:]), -1, 0)[..., None])
    return jnp.moveaxis(x[..., 0], 0, -1)


def _mass_matrix_inverse(model: Model, q: Any) -> jax.Array:
    if model.topology.mimic_names:
        factor = jax.lax.linalg.cholesky(jnp.moveaxis(mass_matrix_kernel(model, q), -1, 0))
        one = jnp.broadcast_to(jnp.eye(model.nv, dtype=factor.dtype), factor.shape)
        return jnp.moveaxis(jax.scipy.linalg.cho_solve((factor, True), one), 0, -1)
    joints = articulation(model.topology)
    links = joints.links(model, q)
    placed = placed_links(joints, links)
    M, H, l = link_inertias(joints, model, links, placed), joint_columns(links, placed), [m.l for m in placed]
    armature = _armature(joints, model)
    _, gains = joints.walk.inward(_factor, ArticulatedInertia.zero(), list(zip(M, H, l, armature, strict=True)))
    # All unit torques at once, as an axis after the batch: the rows of the inverse come out in one piece.
    H, l, gains = jax.tree.map(lambda x: x if type(x) is float else x[..., None], (H, l, gains))
    unit = joints.rows(jnp.eye(model.nv, dtype=q.dtype)[:, None])
    _, e = joints.walk.inward(_whiten, Force.zero(), list(zip(H, l, gains, unit, strict=True)))
    inverse = joints.collect(joints.walk.outward(_smooth, Motion.zero(), list(zip(H, l, gains, e, strict=True))))
    return jnp.moveaxis(inverse, 1, -1)


_forward_dynamics_of_state = in_all_forms(_forward_dynamics, forward_dynamics_dense)
_mass_matrix_inverse_of_state = batched(_mass_matrix_inverse, tile=tile_of_rows(width=lambda model: model.nv))
_regular: WeakSet[Model] = WeakSet()


def require_regular(model: Model) -> None:
    """Raise a ModelError if a joint moves no inertia; a model is looked at once, and not while it is traced."""
    if model in _regular or any(
        isinstance(x, jax.core.Tracer) for x in (model.inertia, model.armature, model.placement)
    ):
        return
    if model.inertia.ndim == 2:
        problems = [message for _, message in massless_joints_of(model)]
        if problems:
            raise ModelError("; ".join(problems))
    _regular.add(model)


def forward_dynamics(
    model: Model, q: Any, qd: Any, tau: Any, *, f_ext: Any = None, base_motion: Any = None, form: Form = "auto"
) -> jax.Array:
    r"""Compute the acceleration that given joint forces cause.

    .. math:: \ddot q = M(q)^{-1} (\tau + J^T f_{ext} - b(q, \dot q))

    The matrix is never formed: the articulated-body algorithm takes time proportional to the number of
    bodies. Springs, damping and friction are not included: add `passive_force`. Models with mimic joints
    are solved with their mass matrix.

    Args:
        model: the model. A joint that moves no inertia is refused: give it armature, or lock it.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        tau: joint forces, (nv,).
        f_ext: force on each body, (nbodies, 6), [moment; force] about the body's origin, in its axes.
        base_motion: as in `inverse_dynamics`.
        form: "sweep" for the articulated-body algorithm, "dense" for the mass
            matrix and its Cholesky factor. "auto" takes matrices for a single
            state of a model with at most 48 degrees of freedom; recursions for batches (`jax.vmap`) and others.

    Returns:
        qdd, (nv,).

    Example:
        >>> import jax, jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("quadruped")
        >>> q, qd = jaxdyn.neutral(model), jnp.zeros(18)
        >>> qdd = jaxdyn.forward_dynamics(model, q, qd, jnp.zeros(18))
        >>> round(float(qdd[5]), 3)  # it falls
        -9.81
    """
    require_regular(model)
    return _forward_dynamics_jitted(model, q, qd, tau, f_ext, base_motion, form)


@partial(jax.jit, static_argnums=6)
def _forward_dynamics_jitted(
    model: Model, q: Any, qd: Any, tau: Any, f_ext: Any, base_motion: Any, form: Form
) -> jax.Array:
    q, qd, tau = arguments.vectors(model, q=q, qd=qd, tau=tau)
    if not model.nv:
        return tau
    f_ext, base_motion = arguments.forces(model, f_ext), arguments.motion(model, base_motion)
    return _forward_dynamics_of_state(form)(model, q, qd, tau, f_ext, base_motion)


def mass_matrix_inverse(model: Model, q: Any) -> jax.Array:
    r"""Compute the inverse of the mass matrix, without the matrix, in time proportional to its size.

    .. math:: M^{-1} = (I - H \psi K)^* D^{-1} (I - H \psi K)

    Args:
        model: the model. A joint that moves no inertia is refused: give it armature, or lock it.
        q: configuration, (nq,).

    Returns:
        The inverse, (nv, nv), symmetric up to rounding.
    """
    require_regular(model)
    return _mass_matrix_inverse_jitted(model, q)


@jax.jit
def _mass_matrix_inverse_jitted(model: Model, q: Any) -> jax.Array:
    (q,) = arguments.vectors(model, q=q)
    if not model.nv:
        return jnp.zeros((0, 0), q.dtype)
    return _mass_matrix_inverse_of_state(model, q)
