"""Second derivatives of inverse dynamics, contracted with a vector, as dynamic programming asks for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn.algorithms import arguments, inverse_dynamics
from jaxdyn.model import Model, integrate


class SecondDerivatives(NamedTuple):
    """Second derivatives of x . ID, each (nv, nv); those that are missing are zero."""

    q_q: jax.Array
    """Symmetric."""
    q_qd: jax.Array
    """Rows by q, columns by qd."""
    qd_qd: jax.Array
    """Symmetric."""
    q_qdd: jax.Array
    """Rows by q, columns by qdd: the rows are x* dM / dq_d."""


@arguments.compiled
def inverse_dynamics_second_derivatives(
    model: Model, q: Any, qd: Any, qdd: Any, x: Any, *, f_ext: Any = None, base_motion: Any = None
) -> SecondDerivatives:
    r"""Compute the second derivatives of joint forces, contracted with a vector.

    .. math:: \frac{\partial^2}{\partial (q, \dot q, \ddot q)^2}\; x \cdot \mathrm{ID}(q, \dot q, \ddot q)

    Gradients of x . ID come from its closed form, one sweep outward and one inward; this differentiates them along all
    directions. Derivatives by q are along `integrate`, of second order too.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        qdd: acceleration, (nv,).
        x: the vector to contract with, (nv,).
        f_ext: as in `inverse_dynamics`; fixed in the axes of the bodies.
        base_motion: as in `inverse_dynamics`.

    Returns:
        Matrices by name.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.derivatives import inverse_dynamics_second_derivatives, mass_matrix_sensitivity
        >>> model, q = jaxdyn.load("double_pendulum"), jnp.ones(2)
        >>> second = inverse_dynamics_second_derivatives(model, q, q, q, q)
        >>> bool(jnp.allclose(second.q_qdd, mass_matrix_sensitivity(model, q).T @ q, atol=1e-4))
        True
    """
    q, qd, qdd, x = arguments.vectors(model, q=q, qd=qd, qdd=qdd, x=x)

    def value(dq: jax.Array, qd: jax.Array, qdd: jax.Array) -> jax.Array:
        state = integrate(model, q, dq), qd, qdd
        return x @ inverse_dynamics(model, *state, f_ext=f_ext, base_motion=base_motion)

    at = jnp.zeros_like(qd), qd, qdd
    gradient = jax.grad(value, argnums=(0, 1, 2))
    (q_q, q_qd), (_, qd_qd), (qdd_q, _) = jax.jacfwd(gradient, argnums=(0, 1))(*at)
    return SecondDerivatives(q_q, q_qd, qd_qd, qdd_q.T)
