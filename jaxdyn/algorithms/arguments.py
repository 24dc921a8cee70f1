"""The arguments of the dynamics functions, checked once, at the door."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp

from jaxdyn import _checks
from jaxdyn._compiling import jit
from jaxdyn.model import Model

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F, static: str | None = None, whole: bool = False) -> F:
    """Compile a function whose first argument is a model, of which it is handed what motion depends on, or all."""
    jitted = jit(function, static_argnames=static)

    @wraps(function)
    def call(model: Model, *args: Any, **kwargs: Any) -> Any:
        require_model(model)
        return jitted(model if whole else model.moving, *args, **kwargs)

    return cast(F, call)


def require_model(model: Any) -> None:
    """Raise a TypeError unless this is a model."""
    if not isinstance(model, Model):
        raise TypeError(f"model must be a jaxdyn.Model; got {type(model).__name__}")


def refuse_mimic(model: Model, what: str) -> None:
    """Raise a ValueError for a model with mimic joints, where bodies are taken one after the other."""
    if names := model.topology.mimic_names:
        raise ValueError(
            f"{what} has no place for what couples branches of the tree; {model.topology.name!r} has the mimic joints "
            f"{', '.join(map(repr, names))}. Load it with mimic=False to make them independent, or lock them"
        )


def vectors(model: Model, **values: Any) -> tuple[jax.Array, ...]:
    """Return q (nq,), also q0 and q1, and the others (nv,) as arrays of one floating-point type."""
    require_model(model)
    model.require_single(concrete=False)
    of_q, of_qd = (model.nq, "coordinate"), (model.nv, "degree of freedom")
    sizes = {name: of_q if name in ("q", "q0", "q1") else of_qd for name in values}
    arrays = [_checks.vector(name, value, *sizes[name], model.dtype) for name, value in values.items()]
    dtype = jnp.result_type(*arrays)
    return tuple(array.astype(dtype) for array in arrays)


def forces(model: Model, f_ext: Any) -> jax.Array | None:
    """Return f_ext (nbodies, 6) as an array, or None."""
    if f_ext is None:
        return None
    array = jnp.asarray(f_ext)
    if array.shape != (model.nbodies, 6):
        raise ValueError(f"f_ext must have shape ({model.nbodies}, 6), one force per body; got {array.shape}")
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(f"f_ext must be real; got {array.dtype}")
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(model.dtype)


def motion(model: Model, base_motion: Any) -> tuple[jax.Array, jax.Array] | None:
    """Return base_motion as two arrays (6,), or None."""
    if base_motion is None:
        return None
    if not isinstance(base_motion, (tuple, list)) or len(base_motion) != 2:
        raise ValueError("base_motion must be a pair (velocity (6,), acceleration (6,))")
    names = ("base_motion[0]", "base_motion[1]")
    v, a = (_checks.vector(n, x, 6, "component", model.dtype) for n, x in zip(names, base_motion, strict=True))
    return v, a
