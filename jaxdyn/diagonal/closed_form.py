r"""The Coriolis terms of the diagonalised equations as expressions in spatial operators, in matrices (002 section 7).

`coriolis` runs a recursion that holds for joints of every type. The expressions here are those of the paper, for joints
with one column that is fixed in its body: X = V_J x takes no part in the joint's own direction, H X* = 0. The paper
writes Omega_delta, -X* on the left of P and X on its right if the joint turns; with X the same holds if it slides. They
hold with armature too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.diagonal.articulated import (
    Bodies,
    Matrices,
    articulated,
    bodies,
    cross,
    diagonal_blocks,
    matrices,
    require_tree,
)
from jaxdyn.diagonal.filter_rates import body_rates
from jaxdyn.estimation.links import by_joint
from jaxdyn.joints import Continuous, Helical, Prismatic, Revolute
from jaxdyn.model import Model

SINGLE = (Revolute, Continuous, Prismatic, Helical)
"""Joints with one column that is fixed in the body."""


def _require_single_columns(model: Any, instead: str) -> None:
    """Raise a ValueError that names the first joint for which the closed form does not hold."""
    require_tree(model)
    for name, joint in zip(model.joint_names, model.topology.joints, strict=True):
        if type(joint) not in SINGLE:
            raise ValueError(
                f"the closed form is for revolute, continuous, prismatic and helical joints; joint {name!r} is "
                f"{joint.type}. Use {instead}, for joints of every type"
            )


class _Moving(NamedTuple):
    """What the expressions are made of besides the operators: velocities, and block-diagonal matrices of body space."""

    V: jax.Array
    """(6 nbodies,) velocities."""
    V_cross: jax.Array
    """V x, body by body."""
    X: jax.Array
    """V_J x, of the velocities across the joints."""
    lam: jax.Array
    """Rates of the articulated inertias as the parents see them."""


def _moving(model: Model, links: Bodies, s: Matrices, xi: jax.Array) -> _Moving:
    qd = solve_triangular(s.m.T, s.L.T @ xi, lower=True)
    rates = body_rates(model.parents, links, by_joint(model, qd))[1]
    V = s.psi.T @ s.H.T @ xi
    crosses = lambda V: diagonal_blocks(jax.vmap(cross)(V.reshape((-1, 6))))
    return _Moving(V, crosses(V), crosses(s.H.T @ qd), diagonal_blocks(rates.lam))


def coriolis_closed_form(model: Model, q: Any, nu: Any) -> jax.Array:
    r"""Compute the Coriolis term of the diagonalised equations as one operator expression (002 Identity 7.1).

    .. math:: C(q, \nu) = \tfrac12 D^{-1/2} H \psi\,
        [E_\psi \dot\lambda - \dot\lambda E_\psi^* + X^* P - P X - 2 \tilde V^* M]\, \psi^* H^* D^{-1/2} \nu

    The bracket without its last term is skew, and :math:`V^* \tilde V^* M V = 0`: so nu* C = 0 (002 (7.3)-(7.5)).

    Args:
        model: the model, with revolute, continuous, prismatic and helical joints alone.
        q: configuration, (nq,).
        nu: total joint rates, (nv,).

    Returns:
        C, (nv,), without gravity; the same as `coriolis`.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> q, nu = jnp.ones(7), jnp.arange(7.0)
        >>> C = jaxdyn.diagonal.coriolis_closed_form(model, q, nu)
        >>> bool(abs(nu @ C) < 1e-4 * jnp.linalg.norm(nu) * jnp.linalg.norm(C))
        True
    """
    _require_single_columns(model, "coriolis")
    return _coriolis(model.moving, q, nu)


@jit
def _coriolis(model: Model, q: Any, nu: Any) -> jax.Array:
    q, nu = arguments.vectors(model, q=q, nu=nu)
    links = bodies(model, q)
    s = matrices(model, links, articulated(model.parents, links))
    V, V_cross, X, lam = _moving(model, links, s, nu / jnp.diag(s.L))
    bracket = s.E_psi @ lam - lam @ s.E_psi.T + X.T @ s.P - s.P @ X - 2 * V_cross.T @ s.M
    return 0.5 * (s.H @ s.psi @ bracket @ V) / jnp.diag(s.L)


def coriolis_xi_closed_form(model: Model, q: Any, xi: Any) -> jax.Array:
    r"""Compute the Coriolis term of the equations in rates that are not normalised (002 Lemma 7.3, (7.9)).

    .. math:: D \dot\xi + C(q, \xi) = (I - H \psi K)\, \tau, \qquad
        C(q, \xi) = H \psi\, [\dot\lambda H^* \xi + (X^* P - \tilde V^* M)\, V]

    Args:
        model: the model, with revolute, continuous, prismatic and helical joints alone.
        q: configuration, (nq,).
        xi: total joint rates, (nv,), in the units of qd.

    Returns:
        (nv,), without gravity; the same as `coriolis_xi`.
    """
    _require_single_columns(model, "coriolis_xi")
    return _coriolis_xi(model.moving, q, xi)


@jit
def _coriolis_xi(model: Model, q: Any, xi: Any) -> jax.Array:
    q, xi = arguments.vectors(model, q=q, xi=xi)
    links = bodies(model, q)
    s = matrices(model, links, articulated(model.parents, links))
    V, V_cross, X, lam = _moving(model, links, s, xi)
    return s.H @ s.psi @ (lam @ s.H.T @ xi + (X.T @ s.P - V_cross.T @ s.M) @ V)
