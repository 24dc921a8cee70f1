"""The bodies of a robot and its articulated inertias as matrices, one body after the other (002 Algorithm 4.1).

All are in world axes about the bodies' own origins. As in `estimation.links`, joints have as many rows as the largest
has, d; those that a joint does not have are zero in H, and one in A and D.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.aba import require_regular
from jaxdyn.algorithms.articulation import articulation
from jaxdyn.algorithms.motion import joint_columns, link_inertias, placed_links
from jaxdyn.estimation.links import absent_rows, block_diagonal, block_rows, by_freedom, by_joint
from jaxdyn.estimation.walk import inward, outward
from jaxdyn.model import Model
from jaxdyn.spatial import ArticulatedInertia, Motion, Vec3
from jaxdyn.spatial.linear import skew


class Bodies(NamedTuple):
    """All bodies with their inboard joints, arrays (nbodies, ...)."""

    phi: jax.Array
    """(nbodies, 6, 6) shift of forces to the parent's origin, phi(p, k)."""
    M: jax.Array
    """(nbodies, 6, 6) inertia."""
    H: jax.Array
    """(nbodies, d, 6) the joint's columns, as rows."""
    N: jax.Array
    """(nbodies, d, d, 6) derivative of the columns (second d) along each of them (first d), seen from the body."""
    A: jax.Array
    """(nbodies, d, d) diagonal: armature."""


class Articulated(NamedTuple):
    """What the filter leaves at each body, arrays (nbodies, ...)."""

    P: jax.Array
    """(nbodies, 6, 6) articulated inertia."""
    P_plus: jax.Array
    """(nbodies, 6, 6) the same beyond the joint, tau_bar P."""
    D: jax.Array
    """(nbodies, d, d) inertia that the joint feels, H P H* + A."""
    L: jax.Array
    """(nbodies, d, d) its lower Cholesky factor."""
    G: jax.Array
    """(nbodies, 6, d) gain P H* D^-1."""
    tau_bar: jax.Array
    """(nbodies, 6, 6) I - G H."""


def require_tree(model: Any) -> None:
    """Raise an error unless the model has inertia at every joint, and no mimic joints."""
    arguments.require_model(model)
    arguments.refuse_mimic(model, "the diagonalised equations of motion")
    require_regular(model)


def bodies(model: Model, q: jax.Array) -> Bodies:
    """Return the bodies of a robot at a configuration."""
    dtype = jnp.result_type(q, *jax.tree.leaves(model))
    absent = absent_rows(model, dtype)
    d = absent.shape[1]
    A = absent + by_joint(model, model.armature.astype(dtype))[:, :, None] * jnp.eye(d, dtype=dtype)[None]
    if not model.nbodies:
        return Bodies(*(jnp.zeros((0, *shape), dtype) for shape in ((6, 6), (6, 6), (d, 6), (d, d, 6), (d, d))))
    joints = articulation(model.topology, canonical=False)
    model, q = jax.tree.map(lambda x: x[..., None], (model, q))  # a batch of one
    links = joints.links(model, q)
    placed = placed_links(joints, links, root_axes=False)
    still = jnp.zeros((model.nv, 1), q.dtype)
    slopes = joints.subspace_slopes(model, q, still, still)
    padded = lambda columns: (*columns, *(Motion.zero(),) * (d - len(columns)))
    stages = []
    for m, M_k, H_k, slope in zip(
        placed, link_inertias(joints, model, links, placed), joint_columns(links, placed), slopes, strict=True
    ):
        N_k = [padded([column.rotate(m.R) for column in along.S]) for along in slope]
        N_k += [padded([])] * (d - len(N_k))
        stages.append((m.l, ArticulatedInertia.from_rigid(M_k), padded(H_k), tuple(N_k)))
    l, M, H, N = jax.tree.map(lambda x: x[:, 0].astype(dtype), joints.by_body(stages))
    columns = lambda motions: jnp.stack([h.to_array() for h in motions], axis=-2)
    slopes_of = jnp.stack([columns(along) for along in N], axis=1)
    return Bodies(shift(l.to_array()), jnp.moveaxis(M.to_array(), -1, 0), columns(H), slopes_of, A)


def articulated(parents: tuple[int, ...], links: Bodies) -> Articulated:
    """Run the filter from the tips to the base (002 (4.8), corrected)."""
    return inward(parents, _filter_step, jnp.zeros((6, 6), links.M.dtype), links)


def _filter_step(outboard: jax.Array, link: Bodies) -> tuple[jax.Array, Articulated]:
    joint = crossed(outboard + link.M, link)
    return link.phi @ joint.P_plus @ link.phi.T, joint


def crossed(P: jax.Array, link: Bodies) -> Articulated:
    """Cross the joint of one body."""
    H = link.H
    D = H @ P @ H.T + link.A
    L = jnp.linalg.cholesky(D)
    G = cho_solve((L, True), H @ P).T
    U = solve_triangular(L, H @ P, lower=True)
    return Articulated(P, P - U.T @ U, D, L, G, jnp.eye(6, dtype=P.dtype) - G @ H)


def velocities(parents: tuple[int, ...], links: Bodies, beta: jax.Array) -> jax.Array:
    """Return the velocities of the bodies, (nbodies, 6), from those of the joints, (nbodies, d): phi* H* qd."""

    def step(inboard: jax.Array, body: Any) -> tuple[jax.Array, jax.Array]:
        link, x = body
        V = link.phi.T @ inboard + link.H.T @ x
        return V, V

    return outward(parents, step, jnp.zeros(6, beta.dtype), (links, beta))


# ---------------------------------------------------------------------- small matrices
def cross3(v: jax.Array) -> jax.Array:
    """Return the matrix of v x, (3, 3)."""
    return skew(Vec3.from_array(v)).to_array().astype(v.dtype)


def cross(V: jax.Array) -> jax.Array:
    """Return the matrix of the motion cross product V x, (6, 6) (002 (5.5))."""
    w, v = cross3(V[:3]), cross3(V[3:])
    return jnp.block([[w, jnp.zeros_like(w)], [v, w]])


def turning(V: jax.Array) -> jax.Array:
    """Return the cross product with the angular part of V alone: Omega of 002 (6.2)."""
    return cross(V.at[3:].set(0))


@jax.vmap
def shift(l: jax.Array) -> jax.Array:
    """Return phi, the shift of forces by l, (6, 6)."""
    one = jnp.eye(3, dtype=l.dtype)
    return jnp.block([[one, cross3(l)], [jnp.zeros_like(one), one]])


# ---------------------------------------------------------------------- stacked operators
def diagonal_blocks(x: jax.Array) -> jax.Array:
    """Return blocks (nbodies, 6, 6) as one matrix of body space."""
    n = len(x)
    return (x[:, :, None] * jnp.eye(n, dtype=x.dtype)[:, None, :, None]).reshape((6 * n, 6 * n))


def joint_blocks(model: Model, x: jax.Array) -> jax.Array:
    """Return rows (nbodies, d, 6) as one matrix (nv, 6 nbodies), such as H."""
    own = by_freedom(model, jnp.eye(model.nbodies, dtype=x.dtype)[:, None].repeat(x.shape[1], axis=1))  # (nv, nbodies)
    return (own[:, :, None] * by_freedom(model, x)[:, None]).reshape((model.nv, 6 * model.nbodies))


def joint_diagonal(model: Model, x: jax.Array) -> jax.Array:
    """Return blocks (nbodies, d, d) as one matrix of joint space."""
    return block_diagonal(model, block_rows(model, x))


def parent_blocks(parents: tuple[int, ...], x: jax.Array) -> jax.Array:
    """Return blocks (nbodies, 6, 6) where body k meets its parent, such as E_phi."""
    n = len(parents)
    is_parent = np.arange(n)[:, None] == np.array(parents, np.int32)[None]
    return jnp.where(is_parent[:, None, :, None], jnp.moveaxis(x, 0, 1)[None], 0).reshape((6 * n, 6 * n))


def inverse_of_unit(E: jax.Array) -> jax.Array:
    """Return (I - E)^-1 of a strictly upper triangular E."""
    one = jnp.eye(len(E), dtype=E.dtype)
    return solve_triangular(one - E, one, lower=False, unit_diagonal=True)


class Matrices(NamedTuple):
    """The operators of 002 section 4 as matrices of joint space (nv) and body space (6 nbodies)."""

    H: jax.Array
    phi: jax.Array
    M: jax.Array
    P: jax.Array
    D: jax.Array
    G: jax.Array
    tau_bar: jax.Array
    psi: jax.Array
    m: jax.Array
    E_phi: jax.Array
    E_psi: jax.Array
    L: jax.Array


def matrices(model: Model, links: Bodies, joints: Articulated) -> Matrices:
    """Return the operators as matrices, from their blocks; those of `operators.spatial_operators`."""
    H, E_phi = joint_blocks(model, links.H), parent_blocks(model.parents, links.phi)
    M, P, tau_bar = (diagonal_blocks(x) for x in (links.M, joints.P, joints.tau_bar))
    D, L = (joint_diagonal(model, x) for x in (joints.D, joints.L))
    G = joint_blocks(model, jnp.swapaxes(joints.G, 1, 2)).T
    E_psi = E_phi @ tau_bar
    phi, psi = inverse_of_unit(E_phi), inverse_of_unit(E_psi)
    m = L + H @ phi @ E_phi @ G @ L  # (I + H phi K) L
    return Matrices(H, phi, M, P, D, G, tau_bar, psi, m, E_phi, E_psi, L)
