"""Energy, power, and the passive forces of joints."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn._numerics import safe_reciprocal
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.kinematics import body_poses
from jaxdyn.algorithms.velocities import body_velocities
from jaxdyn.model import Model, difference, integrate
from jaxdyn.spatial import Motion, RigidInertia, Vec3


@arguments.compiled
def kinetic_energy(model: Model, q: Any, qd: Any) -> jax.Array:
    r"""Compute the kinetic energy, that of armatures included.

    .. math:: T = \tfrac12 \sum_k V_k^* M_k V_k + \tfrac12 \sum_i A_i \dot q_i^2

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).

    Returns:
        The energy, a scalar.
    """
    q, qd = arguments.vectors(model, q=q, qd=qd)
    V = Motion.from_array(body_velocities(model, q, qd))
    bodies = (RigidInertia.from_parameters(model.inertia) @ V).dot(V).sum()
    return 0.5 * (bodies + (model.armature * qd * qd).sum())


@partial(arguments.compiled, whole=True)
def potential_energy(model: Model, q: Any) -> jax.Array:
    r"""Compute the potential energy: that of gravity, zero at the world's origin, and that of the joints' springs.

    .. math:: V = -\sum_k m_k\, g \cdot c_k + \tfrac12 \sum_i k_i\, (q \ominus q_{rest})_i^2

    Args:
        model: the model.
        q: configuration, (nq,).

    Returns:
        The energy, a scalar.
    """
    (q,) = arguments.vectors(model, q=q)
    return elastic_energy(model, q) - first_moment(model, q).dot(Vec3.from_array(model.gravity))


def first_moment(model: Model, q: jax.Array) -> Vec3:
    """Return the sum of mass times position of the centre of mass, over all bodies; world axes."""
    X, M = body_poses(model, q), RigidInertia.from_parameters(model.inertia)
    return jax.tree.map(lambda x: x.sum(), X.R @ M.h + M.m * X.p)


def elastic_energy(model: Model, q: jax.Array) -> jax.Array:
    """Return the energy of the joints' springs."""
    stretch = difference(model, model.rest.astype(q.dtype), q)
    return 0.5 * (model.stiffness * stretch * stretch).sum()


@partial(arguments.compiled, whole=True)
def passive_force(model: Model, q: Any, qd: Any) -> jax.Array:
    r"""Compute the forces of the joints' springs, damping and (smooth) Coulomb friction.

    .. math:: -\partial V_{spring} / \partial q - d\, \dot q - f \tanh(\dot q / v_s)

    Args:
        model: the model: leaves `stiffness` and `rest`, `damping`, `friction` and `v_s`.
        q: configuration, (nq,).
        qd: velocity, (nv,).

    Returns:
        The force, (nv,); add it to tau.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("pendulum").replace(damping=[0.5])
        >>> jaxdyn.passive_force(model, jnp.array([0.0]), jnp.array([2.0])).tolist()
        [-1.0]
    """
    q, qd = arguments.vectors(model, q=q, qd=qd)
    spring = jax.grad(lambda dq: elastic_energy(model, integrate(model, q, dq)))(jnp.zeros_like(qd))
    return -spring - model.damping * qd - model.friction * jnp.tanh(qd * safe_reciprocal(model.v_s))


@arguments.compiled
def power(model: Model, q: Any, qd: Any, tau: Any, *, f_ext: Any = None) -> jax.Array:
    r"""Compute the power that joint forces and external forces put into the robot.

    .. math:: \frac{d}{dt} (T + V_{gravity}) = \tau \cdot \dot q + \sum_k f_{ext,k} \cdot V_k

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        tau: joint forces, (nv,); with the passive forces, if there are any.
        f_ext: as in `inverse_dynamics`.

    Returns:
        The power, a scalar.
    """
    q, qd, tau = arguments.vectors(model, q=q, qd=qd, tau=tau)
    f_ext = arguments.forces(model, f_ext)
    joints = (tau * qd).sum()
    return joints if f_ext is None else joints + (f_ext * body_velocities(model, q, qd)).sum()
