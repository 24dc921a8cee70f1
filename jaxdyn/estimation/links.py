"""The links and joints of a robot as the papers write them: matrices in world axes, each body about its own origin.

Joints have different numbers of degrees of freedom. All have as many rows here as the largest, d; those that a joint
does not have are zero in H and in the torques, and one in the noise: they measure nothing, and their gain is zero.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.aba import require_regular
from jaxdyn.algorithms.articulation import articulation
from jaxdyn.algorithms.motion import joint_columns, link_inertias, moving_links, relative_motions, world_in_motion
from jaxdyn.model import Model
from jaxdyn.model.topology import Topology
from jaxdyn.spatial import ArticulatedInertia, Force, Motion, matrix_of


class Links(NamedTuple):
    """All links with their inboard joints, arrays (nbodies, ...), in world axes, about the links' own origins."""

    phi: jax.Array
    """(nbodies, 6, 6) shift of forces to the parent's origin, phi(p, k) of 000 (2)."""
    M: jax.Array
    """(nbodies, 6, 6) inertia, 000 (1)."""
    H: jax.Array
    """(nbodies, d, 6) from the force across the joint to what the joint feels of it; its transpose has the columns."""
    R: jax.Array
    """(nbodies, d, d) diagonal: armature, the covariance of measurement noise."""
    b: jax.Array
    """(nbodies, 6) bias force V x* M V - f_ext, 000 (7) without gravity."""
    n: jax.Array
    """(nbodies, 6) bias acceleration across the joint, 000 (15)."""
    a: jax.Array
    """(nbodies, 6) acceleration at no acceleration of the joints: all n inboard, and gravity, as one upward."""


def links_in_motion(model: Model, q: Any, qd: Any, f_ext: Any = None) -> Links:
    """Return the links of a robot in motion, after a look at the model and the arguments.

    It is compiled by itself: filter, smoother, samples and optimal control of one robot begin with the same program.
    """
    _require_tree(model)
    return _links_in_motion(model.moving, q, qd, f_ext)


def _require_tree(model: Any) -> None:
    """Raise an error unless the model has inertia at every joint, and no mimic joints."""
    arguments.require_model(model)
    arguments.refuse_mimic(model, "estimation")
    require_regular(model)


@jit
def _links_in_motion(model: Model, q: Any, qd: Any, f_ext: Any) -> Links:
    q, qd = arguments.vectors(model, q=q, qd=qd)
    f_ext = arguments.forces(model, f_ext)
    dtype = jnp.result_type(q, qd, *jax.tree.leaves((model, f_ext)))
    R = absent_rows(model, dtype) + by_joint(model, model.armature.astype(dtype))[:, :, None] * _one(model, dtype)
    if not model.nbodies:
        return Links(*(jnp.zeros((0, *shape), dtype) for shape in ((6, 6), (6, 6), (1, 6), (1, 1), *[(6,)] * 3)))
    joints = articulation(model.topology, canonical=False)
    model, q, qd, f_ext = jax.tree.map(lambda x: x[..., None], (model, q, qd, f_ext))  # a batch of one
    links = joints.links(model, q)
    relative = relative_motions(joints, model, links, q, qd, None)
    moved = moving_links(joints, model, links, q, qd, None, world_in_motion(model), root_axes=False)
    inertias = link_inertias(joints, model, links, moved)
    forces = [None] * len(links) if f_ext is None else joints.forces(f_ext, links)
    stages = []
    for m, M_k, H_k, f_k, (_, V_J, a_J) in zip(
        moved, inertias, joint_columns(links, moved), forces, relative, strict=True
    ):
        n = m.V.cross(V_J.rotate(m.R)) + a_J.rotate(m.R)  # 000 (15), for joints of every type
        b = m.V.cross_force(M_k @ m.V)  # 000 (7)
        b = b if f_k is None else b - f_k.rotate(m.R)
        missing = (Motion.zero(),) * (R.shape[1] - len(H_k))
        stages.append((m.l, ArticulatedInertia.from_rigid(M_k), H_k + missing, b, n, m.a))
    l, M, H, b, n, a = jax.tree.map(lambda x: x[:, 0].astype(dtype), joints.by_body(stages))
    phi = jax.vmap(lambda l: matrix_of(lambda f: f.shift(l), Force, 6))(l)
    M, H = jnp.moveaxis(M.to_array(), -1, 0), jnp.stack([h.to_array() for h in H], axis=1)
    return Links(phi.astype(dtype), M, H, R, b.to_array(), n.to_array(), a.to_array())


@lru_cache(maxsize=256)
def _places(topology: Topology) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the body and the row of each degree of freedom, and the number of rows, at least one."""
    body, row = np.zeros((2, topology.nv), np.int32)
    for group in topology.groups:
        body[group.qd] = group.bodies[:, None]
        row[group.qd] = np.arange(group.qd.shape[1])
    return body, row, max((joint.nv for joint in topology.joints), default=1)


def _one(model: Model, dtype: Any) -> jax.Array:
    return jnp.eye(_places(model.topology)[2], dtype=dtype)[None]


def absent_rows(model: Model, dtype: Any) -> jax.Array:
    """Return diagonal matrices, (nbodies, d, d): one where a joint has no such row."""
    return (1 - by_joint(model, jnp.ones(model.nv, dtype)))[:, :, None] * _one(model, dtype)


def upward(model: Model, dtype: Any) -> jax.Array:
    """Return the acceleration of the base that acts like gravity, (6,)."""
    return jnp.concatenate([jnp.zeros(3, dtype), -model.gravity.astype(dtype)])


def with_torques(model: Model, links: Links, tau: Any) -> tuple[Links, jax.Array]:
    """Return links and torques of one floating-point type, the latter by joint, (nbodies, d)."""
    (tau,) = arguments.vectors(model, tau=tau)
    dtype = jnp.result_type(links.M, tau)
    return jax.tree.map(lambda x: x.astype(dtype), links), by_joint(model, tau.astype(dtype))


def by_joint(model: Model, x: jax.Array) -> jax.Array:
    """Return x (nv,) by joint, (nbodies, d), with zeros in the rows that a joint does not have."""
    body, row, d = _places(model.topology)
    return jnp.zeros((model.nbodies, d), x.dtype).at[body, row].set(x)


def by_freedom(model: Model, x: jax.Array) -> jax.Array:
    """Return an array (nbodies, d, ...) by degree of freedom, (nv, ...)."""
    body, row, _ = _places(model.topology)
    return x[body, row]


def block_rows(model: Model, x: jax.Array) -> jax.Array:
    """Return blocks (nbodies, d, d) by degree of freedom, (nv, d): zero where there is no other one."""
    body, row, d = _places(model.topology)
    freedoms = np.bincount(body, minlength=model.nbodies)[body]
    return jnp.where(np.arange(d)[None] < freedoms[:, None], x[body, row], 0)


def block_diagonal(model: Model, rows: jax.Array) -> jax.Array:
    """Return a block-diagonal matrix, (nv, nv), from its rows within the blocks.

    Args:
        model: the model.
        rows: (nv, d), such as `Filtered.D` or `OptimalControl.R`: row i has the entries of degree of freedom i with
            those of its joint, in their order, then zeros.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.estimation import block_diagonal, filter
        >>> model = jaxdyn.load("double_pendulum")
        >>> still = jnp.zeros(2)
        >>> block_diagonal(model, filter(model, still, still, still).D).shape
        (2, 2)
    """
    body, row, _ = _places(model.topology)
    first = np.arange(model.nv) - row
    same = body[:, None] == body[None]
    column = np.where(same, np.arange(model.nv)[None] - first[:, None], 0).astype(np.int32)
    return jnp.where(same, jnp.take_along_axis(jnp.asarray(rows), column, axis=1), 0)
