"""Joint accelerations by their causes (000 (69)-(72))."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn._compiling import jit
from jaxdyn.estimation.kalman import crossed, smoothed
from jaxdyn.estimation.links import Links, by_freedom, links_in_motion, upward, with_torques
from jaxdyn.model import Model


class AccelerationComponents(NamedTuple):
    """Accelerations of the joints by cause; their sum is `forward_dynamics`."""

    moments: jax.Array
    """(nv,) due to the torques at the joints, M^-1 tau (a^1 of 000 (70))."""
    bias_forces: jax.Array
    """(nv,) due to the forces on the bodies: gravity, external and gyroscopic ones (a^2)."""
    bias_accelerations: jax.Array
    """(nv,) due to the accelerations across the joints that velocity makes: Coriolis and centrifugal (a^3)."""


def acceleration_components(model: Model, q: Any, qd: Any, tau: Any, *, f_ext: Any = None) -> AccelerationComponents:
    r"""Split the joints' accelerations into those due to torques, to bias forces and to bias accelerations.

    .. math:: \ddot q = a^1 + a^2 + a^3

    Filter and smoother are linear in the torques, in the bias forces b and in the bias accelerations n. Each part is
    a sweep of both with the other two at zero; inertias and gains, which are common, are found once. Gravity counts
    as a force on the bodies, as in the paper.

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused, as in `forward_dynamics`.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        tau: joint forces, (nv,).
        f_ext: force on each body, (nbodies, 6), [moment; force] about the body's origin, in its axes.

    Returns:
        Three parts, each (nv,).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn import estimation
        >>> model = jaxdyn.load("arm7")
        >>> q, rest = jnp.zeros(7), jnp.zeros(7)
        >>> parts = estimation.acceleration_components(model, q, rest, jnp.ones(7))
        >>> float(abs(parts.bias_accelerations).max())  # nothing moves yet
        0.0
    """
    return _acceleration_components(links_in_motion(model, q, qd, f_ext), model.moving, tau)


@jit
def _acceleration_components(links: Links, model: Model, tau: Any) -> AccelerationComponents:
    links, tau = with_torques(model, links, tau)
    up = upward(model, tau.dtype)
    b, n = links.b + links.M @ up, links.n

    def due_to(tau: jax.Array, b: jax.Array, n: jax.Array) -> jax.Array:
        part = links._replace(b=b, n=n)
        joints = crossed(model.parents, part, tau)
        return by_freedom(model, smoothed(model.parents, part, joints, 0 * up)[0])

    alone = lambda x, cause: jnp.stack([x if k == cause else jnp.zeros_like(x) for k in range(3)])
    return AccelerationComponents(*jax.vmap(due_to)(alone(tau, 0), alone(b, 1), alone(n, 2)))
