"""Random torques and velocities whose covariance is the mass matrix or its inverse, by the filter's factor of it."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.estimation.kalman import crossed
from jaxdyn.estimation.links import Links, by_freedom, by_joint, links_in_motion
from jaxdyn.estimation.walk import inward, outward
from jaxdyn.model import Model


def _colour(z: jax.Array, body: Any) -> Any:
    """Make torques of white noise: the filter run backward, tau = (I + H phi K) L eps."""
    link, joint, eps = body
    e = joint.root @ eps  # innovations
    return link.phi @ (z + joint.G @ e), link.H @ z + e


def _colour_inverse(lam: jax.Array, body: Any) -> Any:
    """Make accelerations of white noise: the smoother, (I - H psi K)* L^-* eps."""
    link, joint, eps = body
    lam = link.phi.T @ lam
    a = solve_triangular(joint.root, eps, lower=True, trans=1) - joint.G.T @ lam
    return lam + link.H.T @ a, a


def sample(model: Model, q: Any, key: jax.Array, *, of: Literal["mass_matrix", "inverse"] = "mass_matrix") -> jax.Array:
    r"""Draw joint-space noise whose covariance is the mass matrix, or its inverse.

    .. math:: M = (I + H \phi K)\, D\, (I + H \phi K)^*, \qquad
              M^{-1} = (I - H \psi K)^* D^{-1} (I - H \psi K)

    Each draw takes one sweep with a factor of the matrix, which is never formed. Noise with covariance M is what the
    joints feel of white noise on the bodies; noise with covariance :math:`k T M^{-1}` is the joint velocity of a robot
    in a bath of temperature T. The innovations of the first, over the root of D, are the white noise again.

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused, as in `forward_dynamics`.
        q: configuration, (nq,).
        key: a key of `jax.random`. For many draws, `jax.vmap` over keys.
        of: "mass_matrix" or "inverse".

    Returns:
        (nv,), of mean zero.

    Example:
        >>> import jax, jax.numpy as jnp, jaxdyn
        >>> from jaxdyn import estimation
        >>> model = jaxdyn.load("arm7")
        >>> estimation.sample(model, jnp.zeros(7), jax.random.key(0), of="inverse").shape
        (7,)
    """
    if of not in ("mass_matrix", "inverse"):
        raise ValueError(f'of must be "mass_matrix" or "inverse"; got {of!r}')
    arguments.require_model(model)
    rest = jnp.zeros(model.nv, model.dtype)
    return _sample(links_in_motion(model, q, rest), model.moving, key, of)


@partial(jit, static_argnums=3)
def _sample(links: Links, model: Model, key: jax.Array, of: str) -> jax.Array:
    joints = crossed(model.parents, links, jnp.zeros_like(links.H[:, :, 0]))
    eps = by_joint(model, jax.random.normal(key, (model.nv,), links.M.dtype))
    sweep, step = (inward, _colour) if of == "mass_matrix" else (outward, _colour_inverse)
    return by_freedom(model, sweep(model.parents, step, jnp.zeros(6, links.M.dtype), (links, joints, eps)))
