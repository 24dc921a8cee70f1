r"""How the filter of the mass matrix and its factor change along a motion (002 section 6, Table 3).

Rates are taken in axes that move with each body. There its own inertia is constant, and what a child hands on is turned
by the velocity across the child's joint, X = V_J x. With N the rate of the columns H* in their body (only universal
joints have one) each body adds one line to the filter (002 Algorithm 6.1, for all joint types):

    D' = H P' H* + N* P H* + H P N,         G' = (P' H* + P N - G D') D^-1,
    to the parent: phi [tau_bar P' tau_bar* - P+ N G* - G N* P+ - X* P+ - P+ X] phi*.

For joints with one column that is fixed in its body the bracket is tau_bar lam tau_bar*, lam = P' - X* P - P X: this is
002 (6.4)-(6.5). Seen from the world, all turn with the body besides (Table 3, last column).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.kinematics import forward_kinematics
from jaxdyn.diagonal.articulated import (
    Articulated,
    Bodies,
    articulated,
    bodies,
    cross,
    crossed,
    require_tree,
    shift,
    turning,
    velocities,
)
from jaxdyn.diagonal.autodiff import innovations_factor_dense
from jaxdyn.estimation.links import block_rows, by_freedom, by_joint
from jaxdyn.estimation.walk import inward
from jaxdyn.model import Model, integrate

Observer = Literal["world", "body"]


class Rates(NamedTuple):
    """Rates of the articulated quantities. World axes, each body about its own origin.

    The observer turns with the body, or stands in the world; what belongs to joints alone, D and L, both see alike.
    """

    H: jax.Array
    """(nv, 6) of the joints' columns, one row a degree of freedom."""
    M: jax.Array
    """(nbodies, 6, 6) of the bodies' inertias."""
    P: jax.Array
    """(nbodies, 6, 6) of the articulated inertias."""
    lam: jax.Array
    """(nbodies, 6, 6) of the articulated inertias as the parent sees them, about its own point where the body's origin
    is (lambda-dot of 002): the part of the rate that motion inboard of the joint does not enter."""
    D: jax.Array
    """(nv, d) of the inertias that the joints feel, H P H* + A. Row i has the entries of degree of freedom i with those
    of its joint; d is the most that a joint has. `estimation.block_diagonal` makes it a matrix."""
    L: jax.Array
    """(nv, d) of their lower Cholesky factors, likewise."""
    G: jax.Array
    """(nv, 6) of the gains P H* D^-1, one row a degree of freedom."""
    tau_bar: jax.Array
    """(nbodies, 6, 6) of I - G H."""


# ---------------------------------------------------------------------- in axes that move with the bodies
def cholesky_rate(L: jax.Array, D_rate: jax.Array) -> jax.Array:
    """Return the rate of a lower Cholesky factor, from that of the matrix."""
    half = solve_triangular(L, solve_triangular(L, D_rate, lower=True).T, lower=True)
    return L @ (jnp.tril(half) - 0.5 * jnp.diag(jnp.diag(half)))


def _rate_step(outboard: Any, body: Any) -> Any:
    """Cross a joint inward with the articulated inertia and its rate; ' is _o, a ring in the paper."""
    (P, P_o), (link, beta) = outboard, body
    joint = crossed(P + link.M, link)
    H, P, P_plus, G, tau_bar, phi = link.H, joint.P, joint.P_plus, joint.G, joint.tau_bar, link.phi
    N = jnp.einsum("aji,a->ij", link.N, beta)  # (6, d)
    X = cross(H.T @ beta)
    D_o = H @ P_o @ H.T + N.T @ P @ H.T + H @ P @ N
    G_o = cho_solve((joint.L, True), (P_o @ H.T + P @ N - G @ D_o).T).T
    tau_bar_o = -G_o @ H - G @ N.T
    lam = P_o - X.T @ P - P @ X  # 002 (6.4)
    P_plus_o = tau_bar @ P_o @ tau_bar.T - P_plus @ N @ G.T - G @ N.T @ P_plus
    inboard = P_plus_o - X.T @ P_plus - P_plus @ X
    rate = Rates(N.T, jnp.zeros_like(P), P_o, lam, D_o, cholesky_rate(joint.L, D_o), G_o, tau_bar_o)
    return (phi @ P_plus @ phi.T, phi @ inboard @ phi.T), (joint, rate)


def body_rates(parents: tuple[int, ...], links: Bodies, beta: jax.Array) -> tuple[Articulated, Rates]:
    """Return articulated inertias and their rates as bodies see them, by joint velocities (nbodies, d).

    Arrays are (nbodies, ...) with d rows a joint. The rates are linear in the velocities.
    """
    nothing = jnp.zeros((6, 6), links.M.dtype)
    return inward(parents, _rate_step, (nothing, nothing), (links, beta))


@jax.vmap
def world_rate(V: jax.Array, link: Bodies, joint: Articulated, rate: Rates) -> Rates:
    """Return the rates of one body's quantities as the world sees them (002 (6.1), Table 3)."""
    Omega = turning(V)
    turned = lambda X: Omega @ X - X @ Omega
    return rate._replace(
        H=rate.H - link.H @ Omega,
        M=turned(link.M),
        P=rate.P + turned(joint.P),
        G=rate.G + Omega @ joint.G,
        tau_bar=rate.tau_bar + turned(joint.tau_bar),
    )


def _by_freedom(model: Model, rate: Rates) -> Rates:
    """Return rates by degree of freedom where they belong to joints."""
    return rate._replace(
        H=by_freedom(model, rate.H),
        D=block_rows(model, rate.D),
        L=block_rows(model, rate.L),
        G=by_freedom(model, jnp.swapaxes(rate.G, 1, 2)),
    )


def _checked(model: Any, seen_from: str) -> None:
    require_tree(model)
    if seen_from not in ("world", "body"):
        raise ValueError(f'seen_from must be "world" or "body"; got {seen_from!r}')


def rates(model: Model, q: Any, qd: Any, *, seen_from: Observer = "world") -> Rates:
    r"""Compute the rates of the articulated quantities, by one sweep inward (002 Table 3, Algorithm 6.1).

    .. math:: \dot P = \mathring P + \tilde\Omega P - P \tilde\Omega, \qquad
        \mathring P(p) = \sum_k \psi(p, k)\, \dot\lambda(k)\, \psi^*(p, k), \qquad
        \dot\lambda = \mathring P - X^* P - P X

    for joints with one column that is fixed in its body, and by the recursion of this module for all others. Armature
    is constant: it enters through D.

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused, as in `forward_dynamics`.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        seen_from: who observes: "world" (inertial rates), or "body", who turns with each body (local rates, the ring of
            the paper). Components are along the world's axes for both.

    Returns:
        Rates of H, M, P, lambda, D, L, G and tau_bar.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> q, qd = jnp.ones(7), jnp.arange(7.0)
        >>> rate = jaxdyn.diagonal.rates(model, q, qd)
        >>> twin = jaxdyn.diagonal.rates_autodiff(model, q, qd)
        >>> bool(abs(rate.P - twin.P).max() < 1e-3 * abs(twin.P).max())
        True
    """
    _checked(model, seen_from)
    return _rates(model.moving, q, qd, seen_from)


@partial(jit, static_argnums=3)
def _rates(model: Model, q: Any, qd: Any, seen_from: Observer) -> Rates:
    q, qd = arguments.vectors(model, q=q, qd=qd)
    links, beta = bodies(model, q), by_joint(model, qd)
    joints, rate = body_rates(model.parents, links, beta)
    if seen_from == "world":
        rate = world_rate(velocities(model.parents, links, beta), links, joints, rate)
    return _by_freedom(model, rate)


def rates_autodiff(model: Model, q: Any, qd: Any, *, seen_from: Observer = "world") -> Rates:
    """Compute `rates` by forward mode through the filter, along `integrate(model, q, t * qd)`.

    What a body sees are components along axes that turn with it, and coincide with the world's now.
    """
    _checked(model, seen_from)
    return _rates_autodiff(model.moving, q, qd, seen_from)


@partial(jit, static_argnums=3)
def _rates_autodiff(model: Model, q: Any, qd: Any, seen_from: Observer) -> Rates:
    q, qd = arguments.vectors(model, q=q, qd=qd)
    now = forward_kinematics(model, q)

    def at(dq: jax.Array) -> Rates:
        there = integrate(model, q, dq)
        links = bodies(model, there)
        joint = articulated(model.parents, links)
        then = forward_kinematics(model, there)
        turn = then.rotation @ jnp.swapaxes(now.rotation, 1, 2)  # since now
        # Of the parent: how it has turned, and where its point is now that was at the body's origin.
        parents = np.array(model.parents, np.int32)
        of_parent = lambda x, of_world: jnp.concatenate([x, jnp.asarray(of_world, x.dtype)[None]])[parents]
        turn_p = of_parent(turn, np.eye(3))
        arm = now.position - of_parent(now.position, np.zeros(3))
        point = of_parent(then.position, np.zeros(3)) + jnp.einsum("kij,kj->ki", turn_p, arm)
        phi = shift(then.position - point)
        about_point = phi @ joint.P @ jnp.swapaxes(phi, 1, 2)
        Q = six(turn if seen_from == "body" else jnp.zeros_like(turn) + jnp.eye(3, dtype=turn.dtype)[None])
        Q_T = jnp.swapaxes(Q, 1, 2)
        Q_p = six(turn_p)
        return Rates(
            links.H @ Q, Q_T @ links.M @ Q, Q_T @ joint.P @ Q, jnp.swapaxes(Q_p, 1, 2) @ about_point @ Q_p,
            joint.D, joint.L, Q_T @ joint.G, Q_T @ joint.tau_bar @ Q,
        )  # fmt: skip

    return _by_freedom(model, jax.jvp(at, (jnp.zeros_like(qd),), (qd,))[1])


def six(R: jax.Array) -> jax.Array:
    """Return rotations (n, 3, 3) as those of spatial vectors, (n, 6, 6)."""
    zero = jnp.zeros_like(R)
    return jnp.concatenate([jnp.concatenate([R, zero], axis=2), jnp.concatenate([zero, R], axis=2)], axis=1)


# ---------------------------------------------------------------------- the factor of the mass matrix
def _product_step(outboard: Any, body: Any) -> Any:
    """Cross a joint inward with what m nu hands on, and its rate (002 Table 2, differentiated)."""
    (z, z_o), (link, joint, rate, beta, nu) = outboard, body
    e, e_o = joint.L @ nu, rate.L @ nu
    tau_o = e_o + rate.H @ z + link.H @ z_o  # tau = L nu + H z
    z, z_o = z + joint.G @ e, z_o + rate.G @ e + joint.G @ e_o
    X = cross(link.H.T @ beta)
    return (link.phi @ z, link.phi @ (z_o - X.T @ z)), tau_o


def factor_rate_product(model: Model, q: Any, qd: Any, nu: Any) -> jax.Array:
    r"""Compute the rate of the innovations factor times a vector, in two sweeps inward (002 Identity 6.2).

    .. math:: \dot m\, \nu, \qquad M = m\, m^*

    for joints of every type: the recursion for m nu and its rate, in axes that move with the bodies.

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused, as in `forward_dynamics`.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        nu: any vector, (nv,); of the total joint rates, the product is part of the Coriolis term.

    Returns:
        (nv,).
    """
    require_tree(model)
    return _factor_rate_product(model.moving, q, qd, nu)


@jit
def _factor_rate_product(model: Model, q: Any, qd: Any, nu: Any) -> jax.Array:
    q, qd, nu = arguments.vectors(model, q=q, qd=qd, nu=nu)
    return _products(model, q, qd)(nu)


def _products(model: Model, q: jax.Array, qd: jax.Array) -> Any:
    """Return the function that multiplies with the rate of m."""
    links, beta = bodies(model, q), by_joint(model, qd)
    joints, rate = body_rates(model.parents, links, beta)
    nothing = jnp.zeros(6, beta.dtype)

    def times(nu: jax.Array) -> jax.Array:
        parts = (links, joints, rate, beta, by_joint(model, nu))
        return by_freedom(model, inward(model.parents, _product_step, (nothing, nothing), parts))

    return times


def factor_rate_product_autodiff(model: Model, q: Any, qd: Any, nu: Any) -> jax.Array:
    """Compute `factor_rate_product` from `factor_rate_autodiff`."""
    q, qd, nu = arguments.vectors(model, q=q, qd=qd, nu=nu)
    return factor_rate_autodiff(model, q, qd) @ nu


def factor_rate(model: Model, q: Any, qd: Any) -> jax.Array:
    r"""Compute the rate of the innovations factor of the mass matrix (002 Identity 6.1).

    .. math:: \dot m = H \phi\, [-X^* (\phi - I) P + \tfrac12 (I + \bar\tau)\, \dot\lambda]\, H^* D^{-1/2}

    is its form for joints with one column that is fixed in its body, and without armature. Here it is found column by
    column, by `factor_rate_product`, for all.

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused, as in `forward_dynamics`.
        q: configuration, (nq,).
        qd: velocity, (nv,).

    Returns:
        (nv, nv), block upper triangular, as `innovations_factor`.
    """
    require_tree(model)
    return _factor_rate(model.moving, q, qd)


@jit
def _factor_rate(model: Model, q: Any, qd: Any) -> jax.Array:
    q, qd = arguments.vectors(model, q=q, qd=qd)
    return jax.vmap(_products(model, q, qd), in_axes=1, out_axes=1)(jnp.eye(model.nv, dtype=qd.dtype))


def factor_rate_autodiff(model: Model, q: Any, qd: Any) -> jax.Array:
    """Compute `factor_rate` by forward mode through a Cholesky factor: m is that of M, taken from tip to base."""
    require_tree(model)
    return _factor_rate_autodiff(model.moving, q, qd)


@jit
def _factor_rate_autodiff(model: Model, q: Any, qd: Any) -> jax.Array:
    q, qd = arguments.vectors(model, q=q, qd=qd)
    at = lambda dq: innovations_factor_dense(model, integrate(model, q, dq))
    return jax.jvp(at, (jnp.zeros_like(qd),), (qd,))[1]
