"""Diagonalising coordinates: total joint rates nu and working moments eps (002 sections 3 and 5).

With the innovations factor m of the mass matrix, M = m m*, the kinetic energy is nu* nu / 2 and the power nu* eps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.kinematics import forward_kinematics
from jaxdyn.model import Model
from jaxdyn.operators import innovations_factor, spatial_operators


class RateSplit(NamedTuple):
    """Total joint rates xi by where they come from (002 (5.3))."""

    relative: jax.Array
    """The rate across the joint, qd."""
    induced: jax.Array
    """What the motion of the body inboard of the joint induces, G* V+."""

    @property
    def total(self) -> jax.Array:
        """Their sum, xi."""
        return self.relative + self.induced


class MomentSplit(NamedTuple):
    """Joint forces by what they do (002 (5.4))."""

    working: jax.Array
    """The part that does work on the total joint rates, L eps."""
    compensating: jax.Array
    """The part that holds against the joints further out, H z."""

    @property
    def total(self) -> jax.Array:
        """Their sum, tau."""
        return self.working + self.compensating


def to_nu(model: Model, q: Any, qd: Any) -> jax.Array:
    r"""Compute total joint rates from velocities, by one sweep outward (002 Table 1).

    .. math:: \nu = m^* \dot q, \qquad \nu(k) = L^* (\dot q(k) + G^* V^+(k))

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        qd: velocity, (nv,).

    Returns:
        nu, (nv,); the kinetic energy is nu* nu / 2.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> q, qd = jnp.ones(7), jnp.arange(7.0)
        >>> nu = jaxdyn.diagonal.to_nu(model, q, qd)
        >>> bool(jnp.isclose(nu @ nu / 2, jaxdyn.kinetic_energy(model, q, qd)))
        True
    """
    m = innovations_factor(model, q)
    q, qd = arguments.vectors(model, q=q, qd=qd)
    return m.T @ qd


def from_nu(model: Model, q: Any, nu: Any) -> jax.Array:
    r"""Compute velocities from total joint rates, by one sweep outward: :math:`\dot q = m^{-*} \nu`.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        nu: total joint rates, (nv,).

    Returns:
        qd, (nv,).
    """
    m = innovations_factor(model, q)
    q, nu = arguments.vectors(model, q=q, nu=nu)
    return m.T.solve(nu)


def to_eps(model: Model, q: Any, tau: Any) -> jax.Array:
    r"""Compute working moments from joint forces, by one sweep inward (002 Table 2).

    .. math:: \epsilon = m^{-1} \tau = L^{-1} (I - H \psi K)\, \tau

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        tau: joint forces, (nv,).

    Returns:
        eps, (nv,); the power is nu* eps.
    """
    m = innovations_factor(model, q)
    q, tau = arguments.vectors(model, q=q, tau=tau)
    return m.solve(tau)


def from_eps(model: Model, q: Any, eps: Any) -> jax.Array:
    r"""Compute joint forces from working moments, by one sweep inward: :math:`\tau = m\, \epsilon`.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        eps: working moments, (nv,).

    Returns:
        tau, (nv,).
    """
    m = innovations_factor(model, q)
    q, eps = arguments.vectors(model, q=q, eps=eps)
    return m @ eps


def to_xi(model: Model, q: Any, qd: Any) -> jax.Array:
    r"""Compute total joint rates that are not normalised (002 Lemma 7.3), by one sweep outward.

    .. math:: \xi = (I + H \phi K)^* \dot q = L^{-*} \nu, \qquad \xi(k) = \dot q(k) + G^* V^+(k)

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        qd: velocity, (nv,).

    Returns:
        xi, (nv,), in the units of qd; the kinetic energy is xi* D xi / 2.
    """
    s = spatial_operators(model, q)
    q, qd = arguments.vectors(model, q=q, qd=qd)
    return (s.L.T.inv() @ s.m.T) @ qd


def from_xi(model: Model, q: Any, xi: Any) -> jax.Array:
    r"""Compute velocities from total joint rates xi, by one sweep outward: :math:`\dot q = (I - H \psi K)^* \xi`.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        xi: total joint rates, (nv,).

    Returns:
        qd, (nv,).
    """
    s = spatial_operators(model, q)
    q, xi = arguments.vectors(model, q=q, xi=xi)
    return (s.m.T.inv() @ s.L.T) @ xi


def rate_split(model: Model, q: Any, qd: Any) -> RateSplit:
    r"""Compute total joint rates by where they come from (002 (5.3)).

    .. math:: \xi(k) = D^{-1/2} \nu(k) = \dot q(k) + G^*(k)\, V^+(k)

    The first part is the rate across the joint, the second what the body inboard of it would make of the joint's
    rate if nothing but inertia held the joint.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        qd: velocity, (nv,).

    Returns:
        relative and induced rates, (nv,) each; their sum is `to_xi`.
    """
    s = spatial_operators(model, q)
    q, qd = arguments.vectors(model, q=q, qd=qd)
    return RateSplit(qd, (s.K.T @ s.phi.T @ s.H.T) @ qd)


def moment_split(model: Model, q: Any, tau: Any) -> MomentSplit:
    r"""Compute joint forces by what they do (002 (5.4)).

    .. math:: \tau(k) = L\, \epsilon(k) + H(k)\, z(k)

    The first part does work on the joint's total rate; the second balances what the joints outboard of it exert.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        tau: joint forces, (nv,).

    Returns:
        working and compensating forces, (nv,) each; their sum is tau.
    """
    s = spatial_operators(model, q)
    q, tau = arguments.vectors(model, q=q, tau=tau)
    eps = s.m.solve(tau)
    return MomentSplit(s.L @ eps, (s.H @ s.phi @ s.K @ s.L) @ eps)


def gravity_eps(model: Model, q: Any) -> jax.Array:
    r"""Compute the working moments that hold a robot against gravity, by one psi sweep.

    .. math:: m^{-1} g(q) = L^{-1} H \psi M \gamma, \qquad \gamma(k) = (0, -g)

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).

    Returns:
        `to_eps(model, q, gravity_force(model, q))`, (nv,).
    """
    s = spatial_operators(model, q)
    zero = jnp.zeros_like(model.gravity)
    gamma = jnp.tile(jnp.concatenate([zero, -model.gravity]), model.nbodies)
    return (s.L.inv() @ s.H @ s.psi @ s.M) @ gamma


def external_eps(model: Model, q: Any, f_ext: Any) -> jax.Array:
    r"""Compute the working moments of external forces, by one psi sweep: :math:`L^{-1} H \psi f_{ext}`.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        f_ext: force on each body, (nbodies, 6), [moment; force] about the body's origin, in its axes.

    Returns:
        (nv,); they add to those of the joints' forces.
    """
    s = spatial_operators(model, q)
    f = arguments.forces(model, f_ext)
    if f is None:
        raise ValueError(f"f_ext must have shape ({model.nbodies}, 6), one force per body; got None")
    R = forward_kinematics(model, q).rotation
    in_world = jnp.einsum("kij,kaj->kai", R, f.reshape((-1, 2, 3)))
    return (s.L.inv() @ s.H @ s.psi) @ in_world.ravel()
