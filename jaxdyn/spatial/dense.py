"""Dense matrices of linear maps: the readable form of what the component types compute.

The component form is the only source of every formula. Its matrix is found by applying it to a basis, so
that the two can never disagree: `matrix_of(V.cross, Motion, 6)` is the textbook's 6x6 matrix of V x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def matrix_of(f: Callable[[Any], Any], domain: Any, size: int) -> jax.Array:
    """Return the matrix of a linear map between types that have `from_array` and `to_array`.

    Args:
        f: a linear map, for example `V.cross` or `lambda x: X.motion(x)`.
        domain: the type of its argument, for example `Motion`.
        size: the number of components of that type (3 for Vec3, 6 for Motion and Force).

    Returns:
        The matrix, of shape (rows, size).

    Example:
        >>> from jaxdyn.spatial import Vec3, matrix_of
        >>> matrix_of(Vec3(1.0, 2.0, 3.0).cross, Vec3, 3).tolist()
        [[0.0, -3.0, 2.0], [3.0, 0.0, -1.0], [-2.0, 1.0, 0.0]]
    """
    basis = jnp.eye(size)
    return jax.vmap(lambda e: f(domain.from_array(e)).to_array(), out_axes=1)(basis)
