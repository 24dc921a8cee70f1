r"""The Coriolis matrix and its product with a vector (001 section 6).

With V and W the velocities of the links that belong to v and w, and J' the rate of the links' Jacobians,

.. math:: C(q, v)\, w = \sum_k J_k^T (M_k J'_k w + \tfrac12 [V \times^* M W + W \times^* M V - M (V \times W)])

C(q, qd) qd is the bias without gravity, and M' - 2C is skew, for quasi-velocities too. For joints of one
degree of freedom it is the matrix of Christoffel symbols.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.articulation import articulation, like_vector, matrix_like, tile_of_rows
from jaxdyn.algorithms.motion import joint_columns, link_inertias, moving_links, world_in_motion
from jaxdyn.algorithms.rnea import balance
from jaxdyn.model import Model
from jaxdyn.recursion import batched
from jaxdyn.spatial import Force, Motion


def _carry_along(inboard: Any, link: Any) -> Any:
    """Cross a joint outward with a second velocity W, and its acceleration a = J' w at the first one, V."""
    (W, a), (V, W_J, dW_J, l) = inboard, link
    W = W.shift(l) + W_J
    a = a.shift(l) + V.cross(W_J) + dW_J
    return (W, a), (W, a)


def _coriolis_product(model: Model, q: Any, v: Any, w: Any) -> jax.Array:
    """Return C(q, v) w; w (nv, batch), or (nv, batch, m) for m vectors at once."""
    joints = articulation(model.topology)
    links = joints.links(model, q)
    moved = moving_links(joints, model, links, q, v, None, world_in_motion(model, gravity=False))
    M, H, l = link_inertias(joints, model, links, moved), joint_columns(links, moved), [m.l for m in moved]
    rates = joints.subspace_rates(model, q, v)
    dH = [tuple(x.rotate(m.R) for x in columns) for columns, m in zip(rates, moved, strict=True)]
    V = [m.V for m in moved]
    if w.ndim == 3:
        M, H, dH, l, V = jax.tree.map(lambda x: x if type(x) is float else x[..., None], (M, H, dH, l, V))
    rows = joints.rows(w)
    W_J, dW_J = ([_combined(columns, x) for columns, x in zip(stages, rows, strict=True)] for stages in (H, dH))
    carried = joints.walk.outward(_carry_along, (Motion.zero(), Motion.zero()), list(zip(V, W_J, dW_J, l, strict=True)))
    f = [
        M_k @ a + 0.5 * (V_k.cross_force(M_k @ W) + W.cross_force(M_k @ V_k) - M_k @ V_k.cross(W))
        for M_k, V_k, (W, a) in zip(M, V, carried, strict=True)
    ]
    return joints.collect(joints.walk.inward(balance, Force.zero(), list(zip(f, H, l, strict=True)))[1])


def _combined(columns: tuple[Motion, ...], x: Any) -> Motion:
    total = Motion.zero()
    for column, value in zip(columns, x, strict=True):
        total = total + value * column
    return total


def _coriolis_matrix(model: Model, q: Any, v: Any) -> jax.Array:
    unit = jnp.eye(model.nv, dtype=q.dtype)[:, None]
    return jnp.moveaxis(_coriolis_product(model, q, v, unit), 1, -1)


_coriolis_product_of_state = batched(
    _coriolis_product, tile=tile_of_rows(), like=lambda model, q, v, w: like_vector(w, model, q, v)
)
_coriolis_matrix_of_state = batched(_coriolis_matrix, tile=tile_of_rows(width=lambda model: model.nv), like=matrix_like)


@arguments.compiled
def coriolis_product(model: Model, q: Any, v: Any, w: Any) -> jax.Array:
    """Compute C(q, v) w, in time proportional to the number of bodies.

    With w = v it is the bias force without gravity. With the actual velocity as v and a desired one as w it
    is what passivity-based controllers need.

    Args:
        model: the model.
        q: configuration, (nq,).
        v: velocity that the matrix is taken at, (nv,).
        w: velocity that it is multiplied by, (nv,).

    Returns:
        C(q, v) w, (nv,).
    """
    q, v, w = arguments.vectors(model, q=q, v=v, w=w)
    return _coriolis_product_of_state(model, q, v, w) if model.nv else w


@arguments.compiled
def coriolis_matrix(model: Model, q: Any, qd: Any) -> jax.Array:
    r"""Compute the Coriolis matrix: C qd = bias - gravity, and M' - 2C is skew-symmetric.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).

    Returns:
        C, (nv, nv).
    """
    q, qd = arguments.vectors(model, q=q, qd=qd)
    return _coriolis_matrix_of_state(model, q, qd) if model.nv else jnp.zeros((0, 0), q.dtype)
