r"""Dynamics by automatic differentiation alone: Lagrange's equations in quasi-velocities, from poses and energies.

A twin of the recursive algorithms that shares with them no more than `forward_kinematics`, `integrate` and
`difference`: it knows no velocities of bodies, no motion subspaces and no joint types. With :math:`\beta` the velocity
`qd`, :math:`p = \partial T / \partial \beta` its momentum, and derivatives by q along `integrate`,

.. math:: \tau = \dot p - \partial T / \partial q + \Gamma + \partial V / \partial q
    = M \dot\beta + \dot M \beta - \tfrac12\, \mathrm{col}\{\beta^* M_q \beta\} + \Gamma + \partial V / \partial q.

Velocities of spherical, planar and free joints are not derivatives of coordinates: directions of motion do not commute
there, and :math:`\Gamma_a = p \cdot [e_a, \beta]` (Hamel's equations) is what that adds.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn.algorithms import arguments, forward_kinematics
from jaxdyn.model import Model, difference, integrate
from jaxdyn.spatial import RigidInertia


@arguments.compiled
def kinetic_energy(model: Model, q: Any, qd: Any) -> jax.Array:
    r"""Compute the kinetic energy from the rates of poses: a particle at r in the body moves by (dR/dt) r + dp/dt.

    .. math:: T = \tfrac12 \sum_k \Big(\mathrm{tr}\, \dot R \Sigma \dot R^* + 2\, \dot p \cdot \dot R h
        + m\, \dot p \cdot \dot p\Big)_k + \tfrac12 \sum_i A_i \dot q_i^2, \quad
        \Sigma = \int r r^* dm = \tfrac12\, \mathrm{tr}(J)\, 1 - J

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).

    Returns:
        The energy, a scalar.

    Example:
        >>> import jaxdyn
        >>> from jaxdyn.derivatives import lagrangian
        >>> model = jaxdyn.load("pendulum")
        >>> T, wanted = (f(model, [0.3], [2.0]) for f in (lagrangian.kinetic_energy, jaxdyn.kinetic_energy))
        >>> bool(abs(T - wanted) < 1e-5)
        True
    """
    q, qd = arguments.vectors(model, q=q, qd=qd)
    return _energy_of_bodies(model, q, qd) + 0.5 * model.armature @ (qd * qd)


def _rate(model: Model, q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return q with quaternions of unit length, and its rate of change E(q) v along `integrate`, both (nq,)."""
    return jax.jvp(lambda x: integrate(model, q, x), (jnp.zeros_like(v),), (v,))


def _energy_of_bodies(model: Model, q: jax.Array, qd: jax.Array) -> jax.Array:
    """Return the kinetic energy without that of armatures."""
    q, q_rate = _rate(model, q, qd)
    dR, dp = jax.jvp(lambda q: forward_kinematics(model, q), (q,), (q_rate,))[1]
    m, h, J = _moments(model)
    second = 0.5 * jnp.trace(J, axis1=1, axis2=2)[:, None, None] * jnp.eye(3)[None] - J
    turning, mixed = jnp.einsum("bij,bjk,bik->", dR, second, dR), jnp.einsum("bi,bij,bj->", dp, dR, h)
    return 0.5 * turning + mixed + 0.5 * m @ (dp * dp).sum(1)


def _potential_energy(model: Model, q: jax.Array) -> jax.Array:
    """Return the potential energy of gravity alone, - sum m g . c."""
    R, p = forward_kinematics(model, q)
    m, h, _ = _moments(model)
    return -(m @ p + jnp.einsum("bij,bj->i", R, h)) @ model.gravity


def _moments(model: Model) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return masses (nbodies,), first moments (nbodies, 3) and inertias about the origins (nbodies, 3, 3)."""
    M = RigidInertia.from_parameters(model.inertia)
    return M.m, M.h.to_array(), M.J.full.to_array()


@arguments.compiled
def mass_matrix(model: Model, q: Any) -> jax.Array:
    r"""Compute the mass matrix as the Hessian of the kinetic energy, (nv, nv).

    .. math:: M = \partial^2 T / \partial \dot q^2
    """
    (q,) = arguments.vectors(model, q=q)
    return jax.hessian(lambda qd: kinetic_energy(model, q, qd))(jnp.zeros(model.nv, q.dtype))


@arguments.compiled
def gravity_force(model: Model, q: Any) -> jax.Array:
    r"""Compute the slope of the potential energy of gravity along `integrate`, (nv,)."""
    (q,) = arguments.vectors(model, q=q)
    return jax.grad(lambda x: _potential_energy(model, integrate(model, q, x)))(jnp.zeros(model.nv, q.dtype))


@arguments.compiled
def bracket(model: Model, q: Any, a: Any, b: Any) -> jax.Array:
    r"""Compute the Lie bracket of two directions: by how much moving along a, then b, differs from b, then a.

    .. math:: E [a, b] = (\partial_q E b)\, E a - (\partial_q E a)\, E b, \quad
        E(q)\, a = \tfrac{d}{d\epsilon}\, q \oplus \epsilon a

    Zero for joints whose velocity is the derivative of q; the cross product for a spherical joint, that of motions for
    a free joint.

    Args:
        model: the model.
        q: configuration, (nq,).
        a: direction, (nv,).
        b: direction, (nv,).

    Returns:
        [a, b], (nv,).

    Example:
        >>> import jaxdyn
        >>> from jaxdyn.derivatives import lagrangian
        >>> builder = jaxdyn.ModelBuilder("top")
        >>> _ = builder.add_body("body", joint="spherical", mass=1.0, inertia=(0.1, 0.1, 0.1))
        >>> lagrangian.bracket(builder.build(), [1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]).tolist()
        [0.0, 0.0, 1.0]
    """
    q, a, b = arguments.vectors(model, q=q, a=a, b=b)
    q = integrate(model, q, jnp.zeros_like(a))  # with unit quaternions
    E = lambda q, v: _rate(model, q, v)[1]
    along = lambda a, b: jax.jvp(lambda q: E(q, b), (q,), (E(q, a),))[1]
    return jax.jvp(lambda end: difference(model, q, end), (q,), (along(a, b) - along(b, a),))[1]


@arguments.compiled
def bias_force(model: Model, q: Any, qd: Any) -> jax.Array:
    r"""Compute the joint forces at zero acceleration by Lagrange's equations.

    .. math:: b = \dot M \dot q - \tfrac12\, \mathrm{col}\{\dot q^* M_q \dot q\} + \Gamma + \partial V / \partial q

    Armatures add to M and not to b: a rotor's momentum stays with its joint, also where directions do not commute.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).

    Returns:
        The bias force, (nv,).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.derivatives import lagrangian
        >>> model, state = jaxdyn.load("double_pendulum"), ([0.1, 0.2], [0.3, 0.4])
        >>> bool(jnp.allclose(lagrangian.bias_force(model, *state), jaxdyn.bias_force(model, *state), rtol=1e-4))
        True
    """
    q, qd = arguments.vectors(model, q=q, qd=qd)
    rest = jnp.zeros_like(qd)
    T = lambda x, qd: _energy_of_bodies(model, integrate(model, q, x), qd)
    (T_q, p), (_, p_rate) = jax.jvp(lambda x: jax.grad(T, (0, 1))(x, qd), (rest,), (qd,))
    gamma = jax.grad(lambda a: p @ bracket(model, q, a, qd))(rest)
    return p_rate - T_q + gamma + gravity_force(model, q)


@arguments.compiled
def inverse_dynamics(model: Model, q: Any, qd: Any, qdd: Any) -> jax.Array:
    r"""Compute the joint forces of a motion, (nv,).

    .. math:: \tau = M \ddot q + b
    """
    q, qd, qdd = arguments.vectors(model, q=q, qd=qd, qdd=qdd)
    return mass_matrix(model, q) @ qdd + bias_force(model, q, qd)


@arguments.compiled
def forward_dynamics(model: Model, q: Any, qd: Any, tau: Any) -> jax.Array:
    r"""Compute the acceleration, (nv,), by a Cholesky factor of the mass matrix.

    .. math:: \ddot q = M^{-1} (\tau - b)
    """
    q, qd, tau = arguments.vectors(model, q=q, qd=qd, tau=tau)
    return jax.scipy.linalg.solve(mass_matrix(model, q), tau - bias_force(model, q, qd), assume_a="pos")
