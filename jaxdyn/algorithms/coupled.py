r"""Solutions with the mass matrix of a robot some of whose joints follow others (mimic joints), on the tree's factor.

The tree has a column for every velocity and one more for every mimic joint, which moves as fast as the joint that it
follows: y = G qd, and M = G* M_tree G. A leader with its followers is a *group*; B picks the p columns of all groups,
y_B = J v with v of the leaders. Columns of a group may move nothing by themselves, so each is given an armature alpha,
as large as what the whole group carries, and loses it again in the end. With X = (M_tree + alpha)^-1 B and W = B* X,

.. math:: M^{-1} b = y - X\, [W^{-1} - Z (J^* Z - J^* \alpha J)^{-1} Z^*]\, B^* y, \qquad
    y = (M_{tree} + \alpha)^{-1} b, \quad Z = W^{-1} J

where J* Z - J* alpha J is what the leaders feel: two sweeps, and products with matrices of p columns.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import invert_rows
from jaxdyn.algorithms.articulation import Articulation, articulation, like_vector, tile_of_rows
from jaxdyn.algorithms.crba import composite_forces
from jaxdyn.algorithms.filtering import factored, solved, with_columns
from jaxdyn.model import Model
from jaxdyn.recursion import Known, tiled


class Coupled(NamedTuple):
    """The factor of a mass matrix with couplings; arrays (..., batch)."""

    tree: list[Known]
    """Of the tree, by stage."""
    X: jax.Array
    """(nv, p, batch) accelerations by unit torques on the columns of groups."""
    Q: jax.Array
    """(p, p, batch) torques that keep the groups together, by the accelerations that they would have."""


def _groups(joints: Articulation) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns of all groups, (p,), and which of the leaders each belongs to, J (p, groups)."""
    leaders = np.unique(joints.followed)
    columns = np.concatenate([leaders, joints.topology.nv + np.arange(len(joints.followed))]).astype(np.int32)
    of = np.concatenate([leaders, joints.followed])
    return columns, of[:, None] == leaders[None]


def _factored(model: Model, q: jax.Array) -> Coupled:
    joints = articulation(model.topology)
    columns, members = _groups(joints)
    J, p = jnp.asarray(members, q.dtype)[:, :, None], len(columns)
    H, F, *_ = composite_forces(joints, model, q)
    carried = [tuple(f.dot(h) for f, h in zip(*both, strict=True)) for both in zip(F, H, strict=True)]
    armature = jnp.pad(model.armature, ((0, len(joints.followed)), (0, 0))) + jnp.zeros_like(q[:1])
    alpha = (J * (joints.columns(carried) + armature)[columns][:, None]).sum(0)  # (groups, batch)
    armature = armature.at[columns].add((J * alpha[None]).sum(1))
    tree = factored(joints, model, q, joints.tree_rows(armature, nothing=jnp.inf))
    unit = jnp.zeros((len(armature), p, 1), q.dtype).at[columns, np.arange(p)].set(1)
    X = joints.columns(solved(joints, with_columns(tree), joints.tree_rows(unit)))
    W_inverse = invert_rows(X[columns])
    Z = _product(W_inverse, J)
    one = jnp.eye(len(alpha), dtype=q.dtype)[:, :, None]
    felt = _product(jnp.swapaxes(J, 0, 1), Z) - one * (J.sum(0) * alpha)[None]
    Q = W_inverse - _product(_product(Z, invert_rows(felt)), jnp.swapaxes(Z, 0, 1))
    return Coupled([Known.of(part) for part in tree], X[: model.nv], Q)


def _product(A: jax.Array, B: jax.Array) -> jax.Array:
    """Return A B of matrices (rows, columns, batch)."""
    return (A[:, :, None] * B[None]).sum(1)


def _solved(model: Model, b: jax.Array, factor: Coupled) -> jax.Array:
    joints = articulation(model.topology)
    columns, _ = _groups(joints)
    torques = jnp.pad(b, ((0, len(joints.followed)), (0, 0)))
    y = joints.columns(solved(joints, [part.tree() for part in factor.tree], joints.tree_rows(torques)))
    held = (factor.Q * y[columns][None]).sum(1)
    return y[: model.nv] - (factor.X * held[None]).sum(1)


factor_of_state = tiled(_factored, tile=tile_of_rows())
"""(model, q) -> the factor, `Coupled`, of one state."""
solve_of_state = tiled(_solved, tile=tile_of_rows(), like=lambda model, b, factor: like_vector(b, factor))
"""(model, b, factor) -> the solution x of M x = b, (nv,)."""
