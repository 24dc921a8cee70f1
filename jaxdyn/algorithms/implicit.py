"""Derivatives of solutions of M x = b: from the equation that they solve, never through the factor of M.

An acceleration solves ID(q, qd, x) = tau. Along any direction of state, input or model, with x held in d ID,

    M dx = dtau - d ID(q, qd, x),

one more solution with the factor that is there. The rule asks itself for x, so that it also serves
derivatives of any order; JAX transposes it for the reverse mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from jaxdyn.algorithms.rnea import inverse_dynamics_of_state
from jaxdyn.model import Model
from jaxdyn.recursion import Ruled, moving_leaves, with_values

Function = Callable[..., Any]
_inverse_dynamics: Any = inverse_dynamics_of_state("sweep")


def mass_product(model: Model, q: jax.Array, x: jax.Array) -> jax.Array:
    """Return M(q) x of one state, the derivative of inverse dynamics along x, in time proportional to the bodies."""
    still = jnp.zeros_like(x)
    args = model, q, still, still, None, None
    like = jnp.zeros(x.shape, jnp.result_type(q, x, model.inertia, model.placement, model.armature))
    return _inverse_dynamics.along(args, (*unchanged(args[:3]), x, None, None), like)


_mass_products: Function = jax.vmap(mass_product, (None, None, 1), 1)


def solution(model: Model, q: jax.Array, b: jax.Array, solve: Function) -> jax.Array:
    """Return solve(b), the solution x of M(q) x = b, with the derivatives that the equation gives it."""
    product = lambda x: mass_product(model, q, x)
    return jax.lax.custom_linear_solve(product, b, lambda _, b: solve(b), symmetric=True)


def acceleration(primal: Function, with_factor: Function, solve: Function) -> Function:
    """Give forward dynamics of one state its derivatives.

    Args:
        primal: (model, q, qd, tau, f_ext, base_motion) -> qdd.
        with_factor: the same arguments -> (qdd, a factor of the mass matrix).
        solve: (model, b, factor) -> the solution x of M x = b.

    Returns:
        The function `primal`, differentiable.
    """

    def rule(primals: Any, tangents: Any) -> Any:
        qdd, factor = factored(*primals)
        model, q, qd, _, f_ext, base_motion = primals
        dtau = tangents[3]
        at, along = (model, q, qd, qdd, f_ext, base_motion), (*tangents[:3], unchanged(qdd), *tangents[4:])
        change = -_inverse_dynamics.along(at, along, jnp.zeros_like(qdd))
        change = change if isinstance(dtau, SymbolicZero) else change + dtau
        dqdd = solution(model, q, change, lambda b: solve(model, b, factor))
        return qdd, factor, dqdd

    def of_function(primals: Any, tangents: Any) -> Any:
        qdd, _, dqdd = rule(primals, tangents)
        return qdd, dqdd

    def of_factored(primals: Any, tangents: Any) -> Any:
        """Declare the factor constant: it is a means, not a result."""
        qdd, factor, dqdd = rule(primals, tangents)
        return (qdd, factor), (dqdd, jax.tree.map(jnp.zeros_like, factor))

    factored = Ruled(with_factor, of_factored)
    return Ruled(primal, of_function)


def inverse(primal: Function) -> Function:
    """Give the inverse X of the mass matrix, primal(model, q), its derivatives: dX = -X (dM X)."""

    def rule(primals: Any, tangents: Any) -> Any:
        X: Any = function(*primals)
        leaves, form = jax.tree.flatten(primals)
        moving, directions = moving_leaves(tangents)
        whole = lambda values: jax.tree.unflatten(form, with_values(leaves, moving, values))
        products = lambda values: _mass_products(*whole(values), X)
        return X, -X @ jax.jvp(products, ([leaves[i] for i in moving],), (directions,))[1]

    function = Ruled(primal, rule)
    return function


def unchanged(tree: Any) -> Any:
    """Return the change of something constant."""
    return jax.tree.map(lambda x: SymbolicZero(jax.typeof(x)), tree)
