"""Forward dynamics as optimal control (003): which accelerations of the joints make Gibbs' function least."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from jaxdyn._compiling import jit
from jaxdyn.estimation import lq
from jaxdyn.estimation.links import Links, absent_rows, block_rows, by_freedom, links_in_motion, with_torques
from jaxdyn.model import Model


class OptimalControl(NamedTuple):
    """The optimal motion of a mechanism. World axes, each body about its own origin."""

    qdd: jax.Array
    """(nv,) controls: the accelerations of the joints."""
    a: jax.Array
    """(nbodies, 6) states: the accelerations that qdd gives the bodies, [angular; linear], without those that are there
    at qdd = 0 (a_n of 003 (14))."""
    f: jax.Array
    """(nbodies, 6) the force that each body receives from its parent, [moment; force]: minus the costate."""
    constraint: jax.Array
    """(nbodies, 6) the part of f that the joint's bearings carry, by Armstrong's variant (003 (31)). The joint's own
    directions do not feel it: H f = 0."""
    S: jax.Array
    """(nbodies, 6, 6) weight of a state from here on, the articulated-body inertia (Psi_n)."""
    r: jax.Array
    """(nbodies, 6) its linear cost from here on, the bias force of the articulated body (psi_n)."""
    R: jax.Array
    """(nv, d) weight of the controls from here on, D of `Filtered`, in the same form."""
    K: jax.Array
    """(nv, 6) feedback gains, by which a joint's acceleration follows from that of the parent body about its origin."""
    J: jax.Array
    """The index at its least, a scalar: Gibbs' function less the power of the torques in the accelerations, up to what
    does not depend on qdd."""


def mechanism(model: Model, q: Any, qd: Any, tau: Any, *, f_ext: Any = None) -> lq.Problem:
    r"""Write the dynamics of a mechanism as a linear-quadratic problem (003 section V).

    .. math:: a_k = \phi^*(p, k)\, a_p + H^*(k)\, \ddot q_k, \qquad
              \min \sum_k \tfrac12 a_k^* M_k a_k - f_{net,k}^* a_k + \tfrac12 \ddot q_k^* A_k \ddot q_k
              - \tau_k^* \ddot q_k

    States are accelerations of the bodies, controls those of the joints, and the index is Gibbs' function.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        tau: joint forces, (nv,).
        f_ext: as in `optimal_control`.

    Returns:
        The problem, with `model.parents` as parents and zero as the state at the start. Controls are (nbodies, d), d
        the most degrees of freedom that a joint has; those that a joint does not have are best at zero.
    """
    return _mechanism(links_in_motion(model, q, qd, f_ext), model.moving, tau)


@jit
def _mechanism(links: Links, model: Model, tau: Any) -> lq.Problem:
    links, tau = with_torques(model, links, tau)
    f_net = -(links.b + jnp.einsum("kij,kj->ki", links.M, links.a))  # 003 (18)
    A, B = jnp.swapaxes(links.phi, 1, 2), jnp.swapaxes(links.H, 1, 2)
    return lq.Problem(A, B, links.M, -f_net, links.R, tau)


def _constraint_force(stage: lq.Problem, found: lq.Solution, absent: jax.Array) -> jax.Array:
    r"""Return what a joint's bearings carry, from the state alone (003 (31)).

    .. math:: Q f_\square = Q \Phi Q^* a + Q \phi, \quad Q \Phi Q^* = \Psi - \Psi P \Psi_{PP}^{-1} P^* \Psi,
              \quad Q \phi = Q Q^* [\psi + \Psi P \Psi_{PP}^{-1} (I f_c - \psi_P)]

    Q has the directions that the joint forbids. It is not needed itself: :math:`Q Q^* = 1 - P (P^* P)^{-1} P^*`.
    Of the torque, what accelerates the armature does not come across the joint.
    """
    P, Psi, psi = stage.B, found.S, found.r
    solve = lambda matrix, y: cho_solve((jnp.linalg.cholesky(matrix), True), y)
    I_f_c = stage.t - (stage.W - absent) @ found.u
    Phi = Psi - Psi @ P @ solve(found.R, P.T @ Psi)  # (29)
    phi = psi + Psi @ P @ solve(found.R, I_f_c - P.T @ psi)  # (31), corrected
    along = lambda y: P @ solve(P.T @ P + absent, P.T @ y)
    force = Phi @ found.x + phi
    return force - along(force)


def optimal_control(model: Model, q: Any, qd: Any, tau: Any, *, f_ext: Any = None) -> OptimalControl:
    r"""Find the accelerations of the joints by optimal control, as those that make Gibbs' function least.

    .. math:: \ddot q = \arg\min_u G(q, \dot q, u) - \tau^* u - \sum_k f_{ext,k}^* a_k(u)

    The problem of `mechanism` is solved by `lq.solve`, which knows nothing of robots: a Riccati sweep inward, whose
    solution is the articulated-body inertia, and a feedback sweep outward. The result is `forward_dynamics`. The
    costates are the forces between the bodies; their constraint part is found by Armstrong's variant.

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused, as in `forward_dynamics`.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        tau: joint forces, (nv,).
        f_ext: force on each body, (nbodies, 6), [moment; force] about the body's origin, in its axes.

    Returns:
        Controls, states, forces and gains, in world axes.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn import estimation
        >>> model = jaxdyn.load("arm7")
        >>> q = qd = tau = jnp.zeros(7)
        >>> found = estimation.optimal_control(model, q, qd, tau)
        >>> bool(jnp.allclose(found.qdd, jaxdyn.forward_dynamics(model, q, qd, tau), atol=1e-3))
        True
    """
    return _optimal_control(mechanism(model, q, qd, tau, f_ext=f_ext), model.moving)


@jit
def _optimal_control(problem: lq.Problem, model: Model) -> OptimalControl:
    start = jnp.zeros_like(problem.h, shape=(6,))
    found = lq.solve(model.parents, problem, start)
    constraint = jax.vmap(_constraint_force)(problem, found, absent_rows(model, problem.h.dtype))
    return OptimalControl(
        qdd=by_freedom(model, found.u),
        a=found.x,
        f=-found.lam,
        constraint=constraint,
        S=found.S,
        r=found.r,
        R=block_rows(model, found.R),
        K=by_freedom(model, found.K),
        J=lq.index(model.parents, problem, start, found.u),
    )
