"""The mass matrix by composite bodies (004 section 3.2, (9)-(10); 000 (33)), and what else composite bodies give."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn._numerics import safe_reciprocal
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.articulation import Articulation, articulation, matrix_like, tile_of_rows
from jaxdyn.algorithms.dense import Form, in_all_forms, mass_matrix_dense
from jaxdyn.algorithms.motion import Placed, joint_columns, link_inertias, placed_links
from jaxdyn.model import Model
from jaxdyn.spatial import Force, Motion, RigidInertia, Sym3, Vec3


def _composite(outboard: RigidInertia, body: Any) -> Any:
    """Add up inertias inward: r(k) = M(k) + sum phi r phi*; and take the forces r(k) H*(k) (000 (33))."""
    M, H, l = body
    r = M + outboard
    return r.shift(l), tuple(r @ h for h in H)


class Columns(NamedTuple):
    """The columns of all joints of a tree about one point, as in `Placed`."""

    H: Motion
    """Motion of each column, components (columns, batch)."""
    F: Force
    """Force that accelerating each column takes: r(k) H*(k)."""
    c: Vec3
    """Centre of mass, components (batch,); of use in world axes only."""


class Composite(NamedTuple):
    """What composite bodies give, by stage, about the bodies' own origins."""

    H: list[tuple[Motion, ...]]
    """The joints' columns."""
    F: list[tuple[Force, ...]]
    """The forces that accelerating each column takes: r(k) H*(k)."""
    M: list[RigidInertia]
    """The bodies' own inertias."""
    placed: list[Placed]


def composite_forces(joints: Articulation, model: Model, q: jax.Array, *, root_axes: bool = True) -> Composite:
    """Return the joints' columns and the forces of composite bodies on them, by stage."""
    links = joints.links(model, q)
    placed = placed_links(joints, links, root_axes=root_axes)
    H, M = joint_columns(links, placed), link_inertias(joints, model, links, placed)
    nothing = RigidInertia(0.0, Vec3.zero(), Sym3.zero())
    bodies = list(zip(M, H, [m.l for m in placed], strict=True))
    return Composite(H, joints.walk.inward(_composite, nothing, bodies)[1], M, placed)


def composite_columns(joints: Articulation, model: Model, q: jax.Array, *, root_axes: bool) -> Columns:
    """Return the joints' columns and the forces of composite bodies on them."""
    H, F, M, placed = composite_forces(joints, model, q, root_axes=root_axes)
    h = [tuple(x.shift(-m.p) for x in columns) for columns, m in zip(H, placed, strict=True)]
    f = [tuple(x.shift(m.p) for x in columns) for columns, m in zip(F, placed, strict=True)]
    moments = [jax.tree.map(_total, M_k.h + M_k.m * m.p) for M_k, m in zip(M, placed, strict=True)]
    c = safe_reciprocal(model.inertia[:, 0].sum(0)) * sum(moments[1:], start=moments[0])
    return Columns(joints.spatial_columns(h, q.dtype), joints.spatial_columns(f, q.dtype), c)


def _total(x: jax.Array) -> jax.Array:
    return x.reshape((-1, x.shape[-1])).sum(0)


def _columns(model: Model, q: jax.Array) -> jax.Array:
    """Return motions and forces of the columns, (2, 6, columns, batch)."""
    H, F, _ = composite_columns(articulation(model.topology), model, q, root_axes=True)
    rows = jnp.stack(jnp.broadcast_arrays(*jax.tree.leaves((H, F))))
    return rows.reshape((2, 6, *rows.shape[1:]))


def _matrix(columns: jax.Array, model: Model, q: jax.Array) -> jax.Array:
    """Return the mass matrix of one state: M_ij = H_j F_i for j inboard of i (000 (33); 004 (10)).

    It is written once, with the batch as first axis: turning over (nv, nv, batch) takes longer than all the rest.
    """
    joints = articulation(model.topology)
    H, F = columns
    inboard = joints.inboard[joints.column_body]
    product = sum(
        jnp.where(inboard, f[:, None], h[:, None]) * jnp.where(inboard, h[None], f[None])
        for f, h in zip(F, H, strict=True)
    )
    M = jnp.where(inboard | inboard.T, product, 0)
    return joints.fold(joints.fold(M, 0), 1) + jnp.diag(model.armature.astype(M.dtype))


_mass_matrix_of_state = in_all_forms(
    _columns, mass_matrix_dense, last=_matrix, tile=tile_of_rows(per_body=60, memory=4_000_000), like=matrix_like
)


@partial(arguments.compiled, static="form")
def mass_matrix(model: Model, q: Any, *, form: Form = "auto") -> jax.Array:
    r"""Compute the mass matrix, armature included.

    .. math:: M(q) = H \phi M \phi^* H^* + A, \qquad T = \tfrac12 \dot q^T M \dot q

    Args:
        model: the model.
        q: configuration, (nq,).
        form: "sweep" for recursions over the bodies, "dense" for matrices. "auto" takes matrices for a single
            state of a model with at most 48 degrees of freedom; recursions otherwise.

    Returns:
        M, (nv, nv), symmetric.

    Example:
        >>> import jaxdyn
        >>> model = jaxdyn.load("quadruped")
        >>> jaxdyn.mass_matrix(model, jaxdyn.neutral(model)).shape
        (18, 18)
    """
    (q,) = arguments.vectors(model, q=q)
    of_state = _mass_matrix_of_state(form)
    return of_state(model, q) if model.nv else jnp.zeros((0, 0), q.dtype)
