r"""Derivatives of the spatial operators and of the mass matrix by the coordinates (002 section 6 and appendix A).

A derivative along the direction e_d of the tangent is the rate at the velocity e_d. So the sensitivities of appendix A
are those of `rates`, in all directions at once, and there are no others to find: they hold for joints of every type.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.diagonal.articulated import (
    articulated,
    bodies,
    cross,
    cross3,
    diagonal_blocks,
    inverse_of_unit,
    joint_blocks,
    joint_diagonal,
    matrices,
    parent_blocks,
    require_tree,
    velocities,
)
from jaxdyn.diagonal.filter_rates import body_rates, world_rate
from jaxdyn.estimation.links import by_joint
from jaxdyn.model import Model, integrate


class Sensitivities(NamedTuple):
    """Derivatives of the matrices of `operators.spatial_operators`; [..., d] is the one along tangent direction d."""

    H: jax.Array
    """(nv, 6 nbodies, nv), 002 (A.7)."""
    phi: jax.Array
    """(6 nbodies, 6 nbodies, nv), (A.9)."""
    M: jax.Array
    """(6 nbodies, 6 nbodies, nv), (A.10)."""
    P: jax.Array
    """(6 nbodies, 6 nbodies, nv), (A.18)."""
    D: jax.Array
    """(nv, nv, nv), (A.19)."""
    G: jax.Array
    """(6 nbodies, nv, nv), (A.21)."""
    tau_bar: jax.Array
    """(6 nbodies, 6 nbodies, nv), (A.25)."""
    psi: jax.Array
    """(6 nbodies, 6 nbodies, nv), psi (E_psi)_d psi with E_psi's derivative as in (A.25)."""
    m: jax.Array
    """(nv, nv, nv), of the innovations factor, (A.29)."""


def sensitivities(model: Model, q: Any) -> Sensitivities:
    r"""Compute the derivatives of the spatial operators by the coordinates, in closed form (002 (A.7)-(A.29)).

    .. math:: \phi_d = \phi\, (E_\phi)_d\, \phi, \quad \psi_d = \psi\, (E_\psi)_d\, \psi, \quad
        P_d = \lambda_d + H_s^d P - P H_s^d, \quad D_d = H \lambda_d H^*

    and so on: each is the rate of its operator at the velocity e_d, see `rates`. The derivatives are in the tangent,
    along `integrate(model, q, eps * e_d)`. Joints of every type, armature included.

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused, as in `forward_dynamics`.
        q: configuration, (nq,).

    Returns:
        Derivatives of H, phi, M, P, D, G, tau_bar, psi and m, as matrices of joint space and body space.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model, q = jaxdyn.load("double_pendulum"), jnp.ones(2)
        >>> m = jaxdyn.operators.innovations_factor(model, q).as_matrix()
        >>> m_d = jaxdyn.diagonal.sensitivities(model, q).m
        >>> M_d = jnp.einsum("ijd,kj->ikd", m_d, m) + jnp.einsum("ij,kjd->ikd", m, m_d)
        >>> bool(jnp.allclose(M_d, jaxdyn.derivatives.mass_matrix_sensitivity(model, q), atol=1e-5))
        True
    """
    require_tree(model)
    return _sensitivities(model.moving, q)


@jit
def _sensitivities(model: Model, q: Any) -> Sensitivities:
    (q,) = arguments.vectors(model, q=q)
    parents, links = model.parents, bodies(model, q)
    joints = articulated(parents, links)
    s = matrices(model, links, joints)
    K = s.E_phi @ s.G

    def along(e: jax.Array) -> Sensitivities:
        beta = by_joint(model, e)
        V = velocities(parents, links, beta)
        rate = world_rate(V, links, joints, body_rates(parents, links, beta)[1])
        H, M, P, tau_bar = joint_blocks(model, rate.H), *map(diagonal_blocks, (rate.M, rate.P, rate.tau_bar))
        D, L = joint_diagonal(model, rate.D), joint_diagonal(model, rate.L)
        G = joint_blocks(model, jnp.swapaxes(rate.G, 1, 2)).T
        E_phi = parent_blocks(parents, _shift_rates(parents, V))
        phi = s.phi @ E_phi @ s.phi
        psi = s.psi @ (E_phi @ s.tau_bar + s.E_phi @ tau_bar) @ s.psi
        I_HphiK = (H @ s.phi + s.H @ phi) @ K + s.H @ s.phi @ (E_phi @ s.G + s.E_phi @ G)
        m = I_HphiK @ s.L + L + s.H @ s.phi @ K @ L
        return Sensitivities(H, phi, M, P, D, G, tau_bar, psi, m)

    return jax.vmap(along, out_axes=-1)(jnp.eye(model.nv, dtype=links.M.dtype))


def _shift_rates(parents: tuple[int, ...], V: jax.Array) -> jax.Array:
    """Return the rates of phi(p, k), (nbodies, 6, 6): the arm changes as the velocities of the origins differ."""
    world = jnp.concatenate([V[:, 3:], jnp.zeros((1, 3), V.dtype)])
    arm = V[:, 3:] - world[jnp.array(parents, jnp.int32)]
    return jnp.pad(jax.vmap(cross3)(arm), ((0, 0), (0, 3), (3, 0)))


def sensitivities_autodiff(model: Model, q: Any) -> Sensitivities:
    """Compute `sensitivities` by forward mode through the filter."""
    require_tree(model)
    return _sensitivities_autodiff(model.moving, q)


@jit
def _sensitivities_autodiff(model: Model, q: Any) -> Sensitivities:
    (q,) = arguments.vectors(model, q=q)

    def at(dq: jax.Array) -> Sensitivities:
        links = bodies(model, integrate(model, q, dq))
        found = matrices(model, links, articulated(model.parents, links))
        return Sensitivities(*(getattr(found, name) for name in Sensitivities._fields))

    return jax.jacfwd(at)(jnp.zeros(model.nv, q.dtype))


def mass_matrix_sensitivity_operator(model: Model, q: Any) -> jax.Array:
    r"""Compute the derivatives of the mass matrix as an expression in spatial operators (002 Identity 6.3).

    .. math:: M_d = Y_d + Y_d^*, \qquad Y_d = -\left(H (\phi - I) X_d^* - N_d^*\right) \phi M \phi^* H^*

    for joints of every type. X_d = H*_d x stands in the block of the body that coordinate d moves, and nowhere else;
    N_d is the change of that body's columns in the body, zero but for universal joints. The paper's form,
    :math:`Y_d = -H \phi X_d^* \phi M \phi^* H^*`, holds for joints with one column, for which H X* = 0.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).

    Returns:
        (nv, nv, nv), [..., d] = dM / dq_d; the same as `mass_matrix_sensitivity`, which is quicker.
    """
    arguments.require_model(model)
    arguments.refuse_mimic(model, "the diagonalised equations of motion")
    return _mass_matrix_sensitivity(model.moving, q)


@jit
def _mass_matrix_sensitivity(model: Model, q: Any) -> jax.Array:
    (q,) = arguments.vectors(model, q=q)
    links = bodies(model, q)
    H, M = joint_blocks(model, links.H), diagonal_blocks(links.M)
    phi = inverse_of_unit(parent_blocks(model.parents, links.phi))
    F, outboard = phi @ M @ phi.T @ H.T, phi - jnp.eye(len(phi), dtype=phi.dtype)

    def along(e: jax.Array) -> jax.Array:
        beta = by_joint(model, e)
        X = diagonal_blocks(jax.vmap(lambda H, x: cross(H.T @ x))(links.H, beta))
        N_T = joint_blocks(model, jnp.einsum("kaji,ka->kji", links.N, beta))
        Y = -(H @ outboard @ X.T - N_T) @ F
        return Y + Y.T

    return jax.vmap(along, out_axes=-1)(jnp.eye(model.nv, dtype=F.dtype))
