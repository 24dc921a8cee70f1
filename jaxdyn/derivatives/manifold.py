"""Calculus on configurations: derivatives in the tangent, in which quaternions have three directions, not four.

The tangent at q is the space of velocities (nv,); the direction e_d leads along `integrate(model, q, eps * e_d)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.algorithms import arguments
from jaxdyn.model import Model, configuration, difference, integrate
from jaxdyn.model.topology import Topology

Matrices = tuple[jax.Array, jax.Array]


def tangent_jacobian(f: Callable[[jax.Array], Any], model: Model, q: Any, *, reverse: bool = False) -> Any:
    r"""Compute the derivative of a function of a configuration, in the tangent.

    .. math:: \frac{\partial}{\partial \epsilon_d} f(q \oplus \epsilon)

    Args:
        f: a function of q, (nq,), with any arrays as result.
        model: the model.
        q: configuration, (nq,).
        reverse: use reverse mode, for functions with fewer results than velocities.

    Returns:
        Like the result of f, with an axis (nv,) added to every array.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.derivatives import tangent_jacobian
        >>> model = jaxdyn.load("quadruped")
        >>> q = jaxdyn.neutral(model)
        >>> J = tangent_jacobian(lambda q: jaxdyn.center_of_mass(model, q), model, q)
        >>> bool(jnp.allclose(J, jaxdyn.center_of_mass_jacobian(model, q), atol=1e-5))
        True
    """
    (q,) = arguments.vectors(model, q=q)
    along = jax.jacrev if reverse else jax.jacfwd
    return along(lambda dq: f(integrate(model, q, dq)))(jnp.zeros(model.nv, q.dtype))


def tangent_gradient(f: Callable[[jax.Array], jax.Array], model: Model, q: Any) -> jax.Array:
    """Compute the gradient of a scalar function of a configuration in the tangent, (nv,)."""
    return tangent_jacobian(f, model, q, reverse=True)


def tangent_hessian(f: Callable[[jax.Array], Any], model: Model, q: Any) -> Any:
    """Compute the second derivatives of a function of a configuration along `integrate`, (..., nv, nv), symmetric."""
    (q,) = arguments.vectors(model, q=q)
    return jax.hessian(lambda dq: f(integrate(model, q, dq)))(jnp.zeros(model.nv, q.dtype))


@arguments.compiled
def integrate_derivatives(model: Model, q: Any, dq: Any) -> Matrices:
    r"""Compute the derivatives of `integrate` in the tangents of q and of the result.

    .. math:: (q \oplus \epsilon) \oplus dq \approx (q \oplus dq) \oplus A\, \epsilon, \qquad
        q \oplus (dq + \epsilon) \approx (q \oplus dq) \oplus B\, \epsilon

    For a joint with plain coordinates both are the identity; for rotations A is that of exp(-dq), and B the right
    Jacobian of the exponential.

    Args:
        model: the model.
        q: configuration, (nq,).
        dq: velocity times time, (nv,).

    Returns:
        (A, B), each (nv, nv).
    """
    q, dq = arguments.vectors(model, q=q, dq=dq)
    rest = jnp.zeros_like(dq)

    def along(f: Callable[[jax.Array], jax.Array], at: jax.Array) -> jax.Array:
        velocity = lambda v: configuration.tangent(model, *jax.jvp(f, (at,), (v,)))
        return _of_joints(model.topology, velocity, q.dtype)

    return along(lambda x: integrate(model, integrate(model, q, x), dq), rest), along(
        lambda x: integrate(model, q, x), dq
    )


@arguments.compiled
def difference_derivatives(model: Model, q0: Any, q1: Any) -> Matrices:
    r"""Compute the derivatives of `difference` in the tangents of both configurations.

    .. math:: q_1 \ominus (q_0 \oplus \epsilon) \approx (q_1 \ominus q_0) + A\, \epsilon, \qquad
        (q_1 \oplus \epsilon) \ominus q_0 \approx (q_1 \ominus q_0) + B\, \epsilon

    Args:
        model: the model.
        q0: where to start, (nq,).
        q1: where to arrive, (nq,).

    Returns:
        (A, B), each (nv, nv).
    """
    q0, q1 = arguments.vectors(model, q0=q0, q1=q1)
    rest = jnp.zeros(model.nv, q0.dtype)
    along = lambda f: _of_joints(model.topology, lambda v: jax.jvp(f, (rest,), (v,))[1], q0.dtype)
    from_start = along(lambda x: difference(model, integrate(model, q0, x), q1))
    return from_start, along(lambda x: difference(model, q0, integrate(model, q1, x)))


def _of_joints(topology: Topology, f: Callable[[jax.Array], jax.Array], dtype: Any) -> jax.Array:
    """Return the matrix (nv, nv) of a linear map of velocities that mixes only those of one joint.

    The k-th directions of all joints are taken at once.
    """
    nv = topology.nv
    start = np.zeros(nv, np.int32)
    for group in topology.own_groups:
        start[group.qd] = group.qd[:, :1]
    place = np.arange(nv, dtype=np.int32) - start
    width = int(place.max(initial=-1)) + 1
    columns = jax.vmap(f)(jnp.asarray(place[None] == np.arange(width)[:, None], dtype))  # (width, nv)
    same = start[:, None] == start[None]
    return jnp.where(same, columns[place[None], np.arange(nv, dtype=np.int32)[:, None]], 0)
