"""Centre of mass and centroidal momentum: about the centre of mass, world axes, [angular; linear]."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn._numerics import safe_reciprocal
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.articulation import array_like, articulation, tile_of_rows
from jaxdyn.algorithms.crba import composite_columns
from jaxdyn.algorithms.energy import first_moment
from jaxdyn.algorithms.kinematics import body_poses
from jaxdyn.algorithms.velocities import body_accelerations, body_velocities
from jaxdyn.model import Model
from jaxdyn.recursion import batched
from jaxdyn.spatial import Force, Motion, RigidInertia, Transform, Vec3


@arguments.compiled
def center_of_mass(model: Model, q: Any) -> jax.Array:
    r"""Compute the centre of mass of all moving bodies, :math:`\sum m_k c_k / \sum m_k`.

    Args:
        model: the model.
        q: configuration, (nq,).

    Returns:
        (3,), world axes; zero if nothing has mass.
    """
    (q,) = arguments.vectors(model, q=q)
    return _center(model, q).to_array()


def _center(model: Model, q: jax.Array) -> Vec3:
    return safe_reciprocal(model.inertia[:, 0].sum()) * first_moment(model, q)


@arguments.compiled
def center_of_mass_jacobian(model: Model, q: Any) -> jax.Array:
    """Compute the Jacobian of the centre of mass, (3, nv): its velocity is this times qd."""
    (q,) = arguments.vectors(model, q=q)
    return safe_reciprocal(model.inertia[:, 0].sum()) * centroidal_momentum_matrix(model, q)[3:]


@arguments.compiled
def centroidal_momentum(model: Model, q: Any, qd: Any) -> jax.Array:
    r"""Compute the momentum of all bodies about their common centre of mass.

    .. math:: h_G = \sum_k X_{G,k}\, M_k V_k

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).

    Returns:
        (6,), world axes, [angular; linear].
    """
    q, qd = arguments.vectors(model, q=q, qd=qd)
    V = Motion.from_array(body_velocities(model, q, qd))
    return _about_center(model, q, RigidInertia.from_parameters(model.inertia) @ V)


@arguments.compiled
def centroidal_momentum_bias(model: Model, q: Any, qd: Any) -> jax.Array:
    r"""Compute :math:`\dot A_G \dot q`, the rate of the centroidal momentum at zero joint acceleration, (6,)."""
    q, qd = arguments.vectors(model, q=q, qd=qd)
    M = RigidInertia.from_parameters(model.inertia)
    V = Motion.from_array(body_velocities(model, q, qd))
    a = Motion.from_array(body_accelerations(model, q, qd, jnp.zeros_like(qd)))
    return _about_center(model, q, M @ a + V.cross_force(M @ V))


def _about_center(model: Model, q: jax.Array, f: Force) -> jax.Array:
    """Return the sum of forces or momenta of bodies, given in body axes, about the centre of mass."""
    X, c = body_poses(model, q), _center(model, q)
    p = jax.tree.map(lambda x, o: x - o, X.p, c)
    return Transform(X.R, p).force(f).to_array().sum(0)


def _centroidal_matrix(model: Model, q: jax.Array) -> jax.Array:
    """Return the columns' momenta about the centre of mass, (6, nv, batch)."""
    joints = articulation(model.topology)
    _, F, c = composite_columns(joints, model, q, root_axes=False)
    about = F.shift(jax.tree.map(lambda x: -x[None], c))
    return joints.fold(jnp.stack([*about.ang, *about.lin]), 1)


_centroidal_matrix_of_state = batched(
    _centroidal_matrix, tile=tile_of_rows(), like=lambda model, q: array_like((6, model.nv), model, q)
)


@arguments.compiled
def centroidal_momentum_matrix(model: Model, q: Any) -> jax.Array:
    r"""Compute the centroidal momentum matrix A_G, with :math:`h_G = A_G(q)\, \dot q`.

    Args:
        model: the model.
        q: configuration, (nq,).

    Returns:
        (6, nv), world axes about the centre of mass, [angular; linear].
    """
    (q,) = arguments.vectors(model, q=q)
    if not model.nv:
        return jnp.zeros((6, 0), q.dtype)
    return _centroidal_matrix_of_state(model, q)
