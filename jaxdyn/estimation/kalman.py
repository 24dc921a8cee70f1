"""Forward dynamics as a Kalman filter and its smoother (000 sections VIII to XI).

The force across a joint is a state that evolves from body to body, inward; a joint's torque measures it; the forces
that accelerate the bodies are noise, whose covariance is inertia. The best estimate of all forces given all torques is
then the solution of the equations of motion.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from jaxdyn._compiling import jit
from jaxdyn.estimation.links import Links, block_rows, by_freedom, links_in_motion, upward, with_torques
from jaxdyn.estimation.walk import inward, outward
from jaxdyn.model import Model


class Filtered(NamedTuple):
    """What the filter knows, given the torques outboard. World axes, each body about its own origin."""

    z_minus: jax.Array
    """(nbodies, 6) predicted force across each joint, [moment; force], given the torques outboard of it (000 (54))."""
    z_plus: jax.Array
    """(nbodies, 6) updated force, given the joint's own torque too (000 (59))."""
    P_minus: jax.Array
    """(nbodies, 6, 6) covariance of the predicted force: the articulated-body inertia."""
    P_plus: jax.Array
    """(nbodies, 6, 6) covariance of the updated force: the inertia that is felt through the joint."""
    D: jax.Array
    """(nv, d) covariance of the innovations, the inertia that each joint moves if all joints inboard are locked.
    Row i has the entries of degree of freedom i with those of its joint; d is the most that a joint has.
    `block_diagonal` makes it a matrix."""
    G: jax.Array
    """(nv, 6) Kalman gains: the force that a unit of innovation adds to the estimate, one row a degree of freedom."""
    e_minus: jax.Array
    """(nv,) innovations: the torque less the predicted one, (I - H psi K) tau for a robot at rest without gravity."""
    e_plus: jax.Array
    """(nv,) residuals, D^-1 e: the joint's acceleration if the body that carries it does not accelerate."""


class Smoothed(NamedTuple):
    """What the smoother knows, given all torques. World axes, each body about its own origin."""

    qdd: jax.Array
    """(nv,) accelerations of the joints."""
    lam_minus: jax.Array
    """(nbodies, 6) costates: accelerations of the bodies, [angular; linear]. They are spatial accelerations, rates of
    the bodies' own components, here in world axes, and contain gravity as one upward."""
    lam_plus: jax.Array
    """(nbodies, 6) the same of the parent body, at the point where the body's origin is."""
    x: jax.Array
    """(nbodies, 6) smoothed forces: the force that each body receives from its parent, [moment; force]."""
    Delta_minus: jax.Array
    """(nbodies, 6, 6) covariance of the costates, the diagonal blocks of phi* H* M^-1 H phi: the acceleration of the
    body by a force on it (inverse of the operational-space inertia at its origin)."""
    Delta_plus: jax.Array
    """(nbodies, 6, 6) the same of the parent body, at the point where the body's origin is."""
    S: jax.Array
    """(nbodies, 6, 6) covariance of the smoothed forces."""
    filtered: Filtered
    """What the filter found on the way."""


class Crossing(NamedTuple):
    """One link and joint after the filter crossed them, with d rows a joint."""

    z_minus: jax.Array
    z_plus: jax.Array
    P_minus: jax.Array
    P_plus: jax.Array
    root: jax.Array
    """(d, d) lower Cholesky factor of D."""
    G: jax.Array
    """(6, d) gain."""
    e_minus: jax.Array
    e_plus: jax.Array


def _predict(outboard: Any, link: Links) -> tuple[jax.Array, jax.Array]:
    """Cross a link inward: its bias force adds to the estimate, its inertia to the covariance (000 (36)-(37))."""
    z, P = outboard
    return z + link.b, P + link.M


def _update(z: jax.Array, P: jax.Array, link: Links, tau: jax.Array, joseph: bool) -> Crossing:
    """Cross a joint inward: correct the estimate by what the torque says (000 (38)-(43))."""
    H, R, n = link.H, link.R, link.n
    root = jnp.linalg.cholesky(H @ P @ H.T + R)  # (38), and (57) with noise
    G = cho_solve((root, True), H @ P).T  # (39)
    e = tau - H @ z  # (40)
    U = jax.scipy.linalg.solve_triangular(root, H @ P, lower=True)
    P_plus = _joseph(P, G, H, R) if joseph else P - U.T @ U  # (43)
    z_plus = z + G @ e + P_plus @ n  # (41)
    return Crossing(z, z_plus, P, P_plus, root, G, e, cho_solve((root, True), e))  # (42)


def _joseph(P: jax.Array, G: jax.Array, H: jax.Array, R: jax.Array) -> jax.Array:
    """Update the covariance as a sum of squares, positive whatever the gain is (000 (51), with noise)."""
    L = jnp.eye(6, dtype=P.dtype) - G @ H
    return L @ P @ L.T + G @ R @ G.T


def _filter_step(outboard: Any, body: Any, joseph: bool) -> Any:
    link, tau = body
    z, P = _predict(outboard, link)
    joint = _update(z, P, link, tau, joseph)
    return (link.phi @ joint.z_plus, link.phi @ joint.P_plus @ link.phi.T), joint


def _smooth_step(inboard: Any, body: Any) -> Any:
    """Cross a joint and a link outward: costates and their covariances (000 (44)-(47), (67)-(68))."""
    (lam, Delta), (link, joint) = inboard, body
    H, G = link.H, joint.G
    lam_plus = link.phi.T @ lam  # (45)
    a = joint.e_plus - G.T @ (lam_plus + link.n)  # (46)
    lam_minus = lam_plus + link.n + H.T @ a  # (47)
    L = jnp.eye(6, dtype=G.dtype) - G @ H
    Delta_plus = link.phi.T @ Delta @ link.phi  # (67)
    Delta_minus = L.T @ Delta_plus @ L + H.T @ cho_solve((joint.root, True), H)  # (68), corrected
    return (lam_minus, Delta_minus), (a, lam_minus, lam_plus, Delta_minus, Delta_plus)


def crossed(parents: tuple[int, ...], links: Links, tau: jax.Array, joseph: bool = False) -> Crossing:
    """Run the filter from the tips to the base, by torques (nbodies, d)."""
    nothing = jnp.zeros(6, tau.dtype), jnp.zeros((6, 6), tau.dtype)  # (35)
    return inward(parents, partial(_filter_step, joseph=joseph), nothing, (links, tau))


def smoothed(parents: tuple[int, ...], links: Links, joints: Crossing, base: jax.Array) -> Any:
    """Run the smoother from the base to the tips; return accelerations by joint, costates and covariances."""
    start = base, jnp.zeros((6, 6), base.dtype)  # (44), (80): how the base accelerates is certain
    return outward(parents, _smooth_step, start, (links, joints))


def filter(model: Model, q: Any, qd: Any, tau: Any, *, f_ext: Any = None, joseph: bool = False) -> Filtered:
    r"""Estimate the forces across the joints from the torques outboard of them, by a Kalman filter.

    .. math:: x(p) = \sum_k \phi(p, k)\, x(k) + w(p), \quad w \sim (b, M), \qquad \tau(k) = H(k)\, x(k) + v(k),
              \quad v \sim (0, A)

    Bodies are visited from the tips to the base. Armature A is the noise of the measurements. With gains
    :math:`G = P H^* D^{-1}` and :math:`D = H P H^* + A` the covariances are the articulated-body inertias, and
    :math:`\tau - H z` the innovations: 000 (35)-(43) and section IX, for trees and joints of every type.

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused, as in `forward_dynamics`.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        tau: joint forces, (nv,): the measurements.
        f_ext: force on each body, (nbodies, 6), [moment; force] about the body's origin, in its axes.
        joseph: update covariances as a sum of squares, (I - G H) P (I - G H)* + G A G* (000 (51)).

    Returns:
        Estimates, covariances, gains, innovations and residuals, in world axes.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn import estimation
        >>> model = jaxdyn.load("arm7")
        >>> q = qd = tau = jnp.zeros(7)
        >>> found = estimation.filter(model, q, qd, tau)
        >>> found.P_minus.shape, found.G.shape
        ((7, 6, 6), (7, 6))
    """
    return _filter(links_in_motion(model, q, qd, f_ext), model.moving, tau, joseph)


@partial(jit, static_argnums=3)
def _filter(links: Links, model: Model, tau: Any, joseph: bool) -> Filtered:
    return _result(model, crossed(model.parents, *with_torques(model, links, tau), joseph))


def _result(model: Model, joints: Crossing) -> Filtered:
    """Return what the filter found, joint quantities by degree of freedom."""
    D = block_rows(model, joints.root @ jnp.swapaxes(joints.root, 1, 2))
    G = by_freedom(model, jnp.swapaxes(joints.G, 1, 2))
    e_minus, e_plus = (by_freedom(model, e) for e in (joints.e_minus, joints.e_plus))
    return Filtered(joints.z_minus, joints.z_plus, joints.P_minus, joints.P_plus, D, G, e_minus, e_plus)


def smooth(model: Model, q: Any, qd: Any, tau: Any, *, f_ext: Any = None, joseph: bool = False) -> Smoothed:
    r"""Estimate forces and accelerations from all torques, by the filter and a Bryson-Frazier smoother.

    .. math:: \ddot q(k) = e^+(k) - G^*(k) [\lambda^+(k) + n(k)], \qquad x(k) = z(k) + P(k) \lambda(k),
              \qquad S(k) = P(k) - P(k) \Delta(k) P(k)

    The costates are the accelerations of the bodies, the smoothed estimates are the forces across the joints, and
    the accelerations of the joints are those of `forward_dynamics`: 000 (44)-(47) and (61)-(68).

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused, as in `forward_dynamics`.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        tau: joint forces, (nv,).
        f_ext: as in `filter`.
        joseph: as in `filter`.

    Returns:
        Accelerations, forces and covariances, in world axes.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn import estimation
        >>> model = jaxdyn.load("quadruped")
        >>> q, rest = jaxdyn.neutral(model), jnp.zeros(18)
        >>> found = estimation.smooth(model, q, rest, rest)
        >>> round(float(found.qdd[5]), 3)  # it falls
        -9.81
    """
    return _smooth(links_in_motion(model, q, qd, f_ext), model.moving, tau, joseph)


@partial(jit, static_argnums=3)
def _smooth(links: Links, model: Model, tau: Any, joseph: bool) -> Smoothed:
    links, tau = with_torques(model, links, tau)
    joints, base = crossed(model.parents, links, tau, joseph), upward(model, links.M.dtype)
    a, lam_minus, lam_plus, Delta_minus, Delta_plus = smoothed(model.parents, links, joints, base)
    P = joints.P_minus
    x = joints.z_minus + jnp.einsum("kij,kj->ki", P, lam_minus)  # (61)
    S = P - P @ Delta_minus @ P  # (65)
    costates = (lam_minus, lam_plus, x, Delta_minus, Delta_plus, S)
    return Smoothed(by_freedom(model, a), *costates, _result(model, joints))
