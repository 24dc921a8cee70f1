"""The diagonalised equations of motion, nu' + C(q, nu) = eps, as functions of one state (002 sections 7 and 8).

How they are found, for all joint types: see `momentum`.
"""

from __future__ import annotations

from typing import Any

import jax

from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.aba import require_regular
from jaxdyn.algorithms.articulation import like_vector, tile_of_rows
from jaxdyn.diagonal import two_sweeps
from jaxdyn.diagonal.momentum import accelerations
from jaxdyn.model import Model
from jaxdyn.recursion import batched

WHAT = "the diagonalised equations of motion"


# ---------------------------------------------------------------------- kernels, arrays (..., batch)
def _coriolis(model: Model, q: Any, nu: Any, w: Any) -> jax.Array:
    robot, found = accelerations(model, q, nu, other=w)
    return -robot.joints.collect(found)


def _drift(model: Model, q: Any, nu: Any, f_ext: Any) -> jax.Array:
    robot, found = accelerations(model, q, nu, gravity=True, f_ext=f_ext)
    return robot.joints.collect(found)


def _coriolis_xi(model: Model, q: Any, xi: Any) -> jax.Array:
    robot, found = accelerations(model, q, xi, normalised=False)
    return -robot.joints.collect(robot.apply("L", False, found))


def _forward_dynamics_xi(model: Model, q: Any, xi: Any, tau: Any, f_ext: Any, qd: Any) -> jax.Array:
    if qd is not None:
        return two_sweeps.rates(model, q, qd, tau, f_ext)
    # The filter, which the velocity takes, is there already: what is left are its rates.
    robot, found = accelerations(model, q, xi, normalised=False, gravity=True, tau=tau, f_ext=f_ext)
    return robot.joints.collect(robot.apply("L^-1", True, found))


TILE = tile_of_rows(per_body=40)
_coriolis_of_state, _drift_of_state, _coriolis_xi_of_state, _forward_dynamics_xi_of_state = (
    batched(kernel, tile=TILE, like=lambda model, q, rates, *rest: like_vector(rates, model, q, rest))
    for kernel in (_coriolis, _drift, _coriolis_xi, _forward_dynamics_xi)
)


# ---------------------------------------------------------------------- functions of one state
def prepared(model: Model) -> Model:
    """Check a model at the door, and return what motion depends on."""
    arguments.require_model(model)
    arguments.refuse_mimic(model, WHAT)
    require_regular(model)
    return model.moving


@jit
def _coriolis_jitted(model: Model, q: Any, nu: Any, w: Any) -> jax.Array:
    if w is None:
        q, nu = arguments.vectors(model, q=q, nu=nu)
    else:
        q, nu, w = arguments.vectors(model, q=q, nu=nu, w=w)
    return _coriolis_of_state(model, q, nu, w) if model.nv else nu


def coriolis(model: Model, q: Any, nu: Any) -> jax.Array:
    r"""Compute the Coriolis term of the diagonalised equations of motion, without gravity.

    .. math:: \dot\nu + C(q, \nu) = \epsilon, \qquad \nu^* C(q, \nu) = 0

    For joints of one degree of freedom this is Algorithm 7.1 of 002; for all others its generalisation, in which the
    rate of the filter is taken column by column. Time is proportional to the number of bodies. Twins:
    `coriolis_autodiff`, and for joints of one degree of freedom `coriolis_closed_form`.

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused.
        q: configuration, (nq,).
        nu: total joint rates, (nv,).

    Returns:
        C, (nv,).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> q, nu = jnp.ones(7), jnp.arange(7.0)
        >>> C = jaxdyn.diagonal.coriolis(model, q, nu)
        >>> bool(abs(nu @ C) < 1e-5 * jnp.linalg.norm(nu) * jnp.linalg.norm(C))  # it does no work
        True
    """
    return _coriolis_jitted(prepared(model), q, nu, None)


def coriolis_product(model: Model, q: Any, nu: Any, w: Any) -> jax.Array:
    r"""Compute S(q, nu) w, where S is skew-symmetric, linear in nu, and S(q, nu) nu is the Coriolis term.

    .. math:: S(q, \nu)\, w = m^{-1} C(q, \dot q)\, m^{-*} w - \dot m^* m^{-*} w

    with :math:`\dot q = m^{-*} \nu` and the matrix of `jaxdyn.coriolis_matrix`, whose difference to half the rate of
    the mass matrix is skew. Time is proportional to the number of bodies.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        nu: total joint rates that the matrix is taken at, (nv,).
        w: vector that it is multiplied by, (nv,).

    Returns:
        S w, (nv,); w* S w is zero.
    """
    return _coriolis_jitted(prepared(model), q, nu, w)


@jit
def _coriolis_xi_jitted(model: Model, q: Any, xi: Any) -> jax.Array:
    q, xi = arguments.vectors(model, q=q, xi=xi)
    return _coriolis_xi_of_state(model, q, xi) if model.nv else xi


def coriolis_xi(model: Model, q: Any, xi: Any) -> jax.Array:
    r"""Compute the Coriolis term of the equations of motion in total joint rates that are not normalised.

    .. math:: D \dot\xi + C(q, \xi) = \kappa, \qquad \kappa = (I - H \psi K)\, \tau = L\, \epsilon

    (002 Lemma 7.3). It is simpler than the normalised one, but not orthogonal to the rates.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        xi: total joint rates, (nv,), as of `to_xi`.

    Returns:
        C, (nv,), without gravity.
    """
    return _coriolis_xi_jitted(prepared(model), q, xi)


@jit
def _forward_dynamics_jitted(model: Model, q: Any, nu: Any, eps: Any, f_ext: Any) -> jax.Array:
    q, nu, eps = arguments.vectors(model, q=q, nu=nu, eps=eps)
    return eps + _drift_of_state(model, q, nu, arguments.forces(model, f_ext)) if model.nv else nu


def forward_dynamics(model: Model, q: Any, nu: Any, eps: Any, *, f_ext: Any = None) -> jax.Array:
    r"""Compute the rates of the total joint rates under working moments, the model's gravity, and external forces.

    .. math:: \dot\nu = \epsilon - C(q, \nu) - m^{-1} (g(q) - J^T f_{ext})

    It is the motion of `jaxdyn.forward_dynamics`, in other coordinates (002 (3.1)).

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused.
        q: configuration, (nq,).
        nu: total joint rates, (nv,).
        eps: working moments of the joint forces, (nv,).
        f_ext: force on each body, (nbodies, 6), as in `jaxdyn.forward_dynamics`.

    Returns:
        nu', (nv,).
    """
    return _forward_dynamics_jitted(prepared(model), q, nu, eps, f_ext)


@jit
def _forward_dynamics_xi_jitted(model: Model, q: Any, xi: Any, tau: Any, f_ext: Any, qd: Any) -> jax.Array:
    if qd is None:
        q, xi, tau = arguments.vectors(model, q=q, xi=xi, tau=tau)
    else:
        q, xi, tau, qd = arguments.vectors(model, q=q, xi=xi, tau=tau, qd=qd)
    f_ext = arguments.forces(model, f_ext)
    return _forward_dynamics_xi_of_state(model, q, xi, tau, f_ext, qd) if model.nv else xi


def forward_dynamics_xi(model: Model, q: Any, xi: Any, tau: Any, *, f_ext: Any = None, qd: Any = None) -> jax.Array:
    r"""Compute the rates of total joint rates that are not normalised (002 (8.1)-(8.3)).

    .. math:: \dot\xi = D^{-1} [\tau - H \psi \zeta]

    with all forces of motion inside a sweep inward. What it needs of the velocities comes from an outward sweep, which
    has to know the gains; where the velocity is known already, as in `step_xi`, the filter and its rate take one sweep
    together (Algorithm 8.1).

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused.
        q: configuration, (nq,).
        xi: total joint rates, (nv,).
        tau: joint forces, (nv,).
        f_ext: force on each body, (nbodies, 6).
        qd: the velocity that belongs to xi, (nv,), if it is known.

    Returns:
        xi', (nv,).
    """
    return _forward_dynamics_xi_jitted(prepared(model), q, xi, tau, f_ext, qd)
