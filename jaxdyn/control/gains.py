"""What controllers are told besides the state: gains, limits, poses; checked."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._checks import vector
from jaxdyn.algorithms.arguments import require_model
from jaxdyn.model import Model


def gains(name: str, value: Any, size: int, what: str, dtype: Any) -> jax.Array:
    """Return a number, or a vector (size,), none of which is negative."""
    wanted = f"{name} must be a number, or have shape ({size},), one number per {what}"
    try:
        array = jnp.asarray(value, dtype)
    except (TypeError, ValueError):
        raise ValueError(f"{wanted}; got {value!r}") from None
    if array.shape not in ((), (size,)):
        raise ValueError(f"{wanted}; got {array.shape}")
    if not isinstance(array, jax.core.Tracer) and not np.all(np.asarray(array) >= 0):
        raise ValueError(f"{name} must not be negative; got {value}")
    return array


def joint_gains(model: Model, **values: Any) -> tuple[jax.Array, ...]:
    """Return gains by name, each a number or one per degree of freedom."""
    require_model(model)
    return tuple(gains(name, x, model.nv, "degree of freedom", model.dtype) for name, x in values.items())


def limited(model: Model, tau: jax.Array, limit: Any) -> jax.Array:
    """Return joint forces cut off at a limit: a number, (nv,), "effort" for the model's own, or None."""
    if limit is None:
        return tau
    if isinstance(limit, str):
        if limit != "effort":
            raise ValueError(f'limit must be a number, (nv,), "effort" or None; got {limit!r}')
        bound = model.effort_limit
    else:
        (bound,) = joint_gains(model, limit=limit)
    return jnp.clip(tau, -bound, bound).astype(tau.dtype)


def pose(target: Any, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Return a target's rotation and position; a rotation that is known must be one."""
    try:
        rotation, position = target
    except (TypeError, ValueError):
        raise ValueError(f"target must be a pair (rotation (3, 3), position (3,)); got {target!r}") from None
    return rotation_matrix("target: the rotation", rotation, dtype), vector(
        "target: the position", position, 3, "axis", dtype
    )


def rotation_matrix(name: str, value: Any, dtype: Any) -> jax.Array:
    """Return a rotation matrix (3, 3), checked to be one where it is known."""
    R = jnp.asarray(value, dtype)
    if R.shape != (3, 3):
        raise ValueError(f"{name} must have shape (3, 3); got {R.shape}")
    if not isinstance(R, jax.core.Tracer):
        known = np.asarray(R, np.float64)
        if not (np.allclose(known @ known.T, np.eye(3), atol=1e-4) and np.linalg.det(known) > 0):
            raise ValueError(f"{name} must be orthogonal with determinant 1; got {known.tolist()}")
    return R
