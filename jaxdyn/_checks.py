"""Errors that name the argument, what came and what was wanted."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class ModelError(ValueError):
    """A model or a model file that cannot be used; the message says where and why.

    Attributes:
        reason: what is wrong, without the place.
        source: the file, if there is one.
        line: the line in that file, if the parser knows it.
    """

    def __init__(self, reason: str, *, source: str | None = None, line: int | None = None):
        self.reason, self.source, self.line = reason, source, line
        place = "" if source is None else f"{source}: " if line is None else f"{source}:{line}: "
        super().__init__(place + reason)


class ModelWarning(UserWarning):
    """Something in a model that loads but that its owner should know of."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a clause that lists close matches of `name`, or all known names if they are few."""
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=3) or (known if len(known) <= 12 else [])
    if not close:
        return f"there are {len(known)} to choose from" if known else "there are none"
    return "did you mean " + " or ".join(repr(k) for k in close) + "?"


def vector(name: str, value: Any, size: int, what: str, dtype: Any) -> jax.Array:
    """Return `value` as a floating-point array of shape (size,), or raise a ValueError naming `name`.

    Arrays keep their floating-point type; lists, tuples and integers take `dtype`.
    """
    try:
        array = jnp.asarray(value, dtype) if isinstance(value, (list, tuple)) else jnp.asarray(value)
    except (TypeError, ValueError):
        got = "a list of things that make no array" if isinstance(value, (list, tuple)) else _brief(value)
        raise ValueError(f"{name} must have shape ({size},), one number per {what}; got {got}") from None
    if array.shape != (size,):
        hint = "; use jax.vmap for a batch" if array.ndim > 1 and array.shape[-1] == size else ""
        raise ValueError(f"{name} must have shape ({size},), one number per {what}; got {array.shape}{hint}")
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(f"{name} must be real; got {array.dtype}")
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(dtype)


def number(name: str, value: Any, dtype: Any) -> jax.Array:
    """Return one real number as an array of a floating-point type, or raise a ValueError naming `name`."""
    array = jnp.asarray(0.0 if value is None else value)
    if value is None or array.ndim or jnp.issubdtype(array.dtype, jnp.complexfloating):
        got = "None" if value is None else f"shape {array.shape}, {array.dtype}"
        raise ValueError(f"{name} must be one real number; got {got}")
    return array.astype(dtype)


def numbers(what: str, value: Any, shape: Sequence[int]) -> np.ndarray:
    """Return `value` as a finite float64 NumPy array of the given shape, or raise a ModelError."""
    if isinstance(value, jax.core.Tracer):
        raise ModelError(
            f"{what} must be a concrete number, not a traced one: build models outside of jit and grad, "
            "and differentiate with respect to the leaves of the finished model"
        )
    try:
        raw = np.asarray(value)
        array = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError):
        raise ModelError(f"{what} must be {_count(shape)}; got {_brief(value)}") from None
    if array.shape != tuple(shape) or raw.dtype.kind not in "fiuVO":  # V: JAX's own types; no text, no complex
        raise ModelError(f"{what} must be {_count(shape)}; got {_brief(value)}")
    if not np.all(np.isfinite(array)):
        raise ModelError(f"{what} must be finite; got {_brief(value)}")
    return array


def _count(shape: Sequence[int]) -> str:
    return "one number" if not shape else f"{' x '.join(map(str, shape))} numbers"


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
