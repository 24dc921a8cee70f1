"""Gibbs' function, the energy of acceleration (003 section V)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.velocities import body_accelerations, body_velocities
from jaxdyn.model import Model
from jaxdyn.spatial import Motion, RigidInertia


@arguments.compiled
def gibbs_function(model: Model, q: Any, qd: Any, qdd: Any, *, f_ext: Any = None) -> jax.Array:
    r"""Compute Gibbs' function, which the acceleration under given joint forces makes least.

    .. math:: G(\ddot q) = \sum_k \tfrac12 a_k^* M_k a_k + (V_k \times^* M_k V_k - f_{ext,k})^* a_k
              + \tfrac12 \sum_i A_i \ddot q_i^2

    with :math:`a_k(\ddot q)` the spatial acceleration of body k relative to free fall. For a cloud of particles it is
    :math:`\sum \tfrac12 m\, |\ddot r - g|^2 - f \cdot \ddot r`, up to a constant. Its gradient with respect to qdd is
    `inverse_dynamics`, its Hessian `mass_matrix`; :math:`G - \tau \cdot \ddot q` is least at `forward_dynamics`.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        qdd: acceleration, (nv,).
        f_ext: force on each body, (nbodies, 6), [moment; force] about the body's origin, in its axes.

    Returns:
        A scalar, in N m / s^2.

    Example:
        >>> import jax, jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("double_pendulum")
        >>> q, qd, qdd = jnp.array([[0.3, 0.4], [1.0, 2.0], [3.0, 4.0]])
        >>> tau = jax.grad(jaxdyn.gibbs_function, argnums=3)(model, q, qd, qdd)
        >>> bool(jnp.allclose(tau, jaxdyn.inverse_dynamics(model, q, qd, qdd), rtol=1e-4))
        True
    """
    q, qd, qdd = arguments.vectors(model, q=q, qd=qd, qdd=qdd)
    f_ext = arguments.forces(model, f_ext)
    upward = jnp.concatenate([jnp.zeros_like(model.gravity), -model.gravity])
    V = Motion.from_array(body_velocities(model, q, qd))
    a = Motion.from_array(body_accelerations(model, q, qd, qdd, base_motion=(jnp.zeros_like(upward), upward)))
    M = RigidInertia.from_parameters(model.inertia)
    bodies = (0.5 * (M @ a) + V.cross_force(M @ V)).dot(a).sum()
    rotors = 0.5 * (model.armature * qdd * qdd).sum()
    return bodies + rotors - (0 if f_ext is None else (f_ext * a.to_array()).sum())
