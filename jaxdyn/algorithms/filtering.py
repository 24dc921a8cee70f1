"""Steps of the filter and the smoother that factor the mass matrix and solve with it (000 VIII).

Inward, the filter adds up articulated inertias and leaves a gain at every column; with the gains known, torques are
whitened inward, and accelerations found outward. A floating base is one step, with whole 6x6 matrices.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn._numerics import invert_rows
from jaxdyn.algorithms.articulation import Articulation, Rows
from jaxdyn.algorithms.motion import Own, joint_columns, own_products, placed_links
from jaxdyn.model import Model
from jaxdyn.spatial import ArticulatedInertia, Force, Motion, RigidInertia, Vec3


class Gain(NamedTuple):
    """What the filter leaves at a joint column, normalised by the root of D = H P H* + armature (000 (41)).

    Normalised, because XLA keeps a quotient that is used more than once, but works out a product again for
    every use.
    """

    G: Force
    """P H* / sqrt(D)."""
    root: Any
    """sqrt(D)."""


def gains_of(P: ArticulatedInertia, H: tuple[Motion, ...], armature: Rows) -> tuple[Gain, ...]:
    """Find the gains of a joint's columns, each after those before it: the Cholesky factor of the block D."""
    return gains_from(tuple(P @ h for h in H), None, H, armature)


def gains_with_link(
    P: ArticulatedInertia, M: RigidInertia, own: tuple[Own, ...], H: tuple[Motion, ...], armature: Rows
) -> tuple[Gain, ...]:
    """Find the gains of P + M, P being what is outboard of the joint's own link, and M that link."""
    return gains_from(*products_with_link(P, M, own, H), H, armature)


def products_with_link(
    P: ArticulatedInertia, M: RigidInertia, own: tuple[Own, ...], H: tuple[Motion, ...]
) -> tuple[tuple[Force, ...], Rows | None]:
    """Return (P + M) H*, and the diagonal of H (P + M) H* if it is known better than from these."""
    products = tuple(P @ h for h in H)
    if not own:  # two products, not P + M: XLA would keep the sum for all its uses, in kernels of its own
        return tuple(U + M @ h for U, h in zip(products, H, strict=True)), None
    D = tuple(U.dot(h) + mine.D for U, h, mine in zip(products, H, own, strict=True))
    added = (Force(mine.moment, (M @ h).lin) for h, mine in zip(H, own, strict=True))
    return tuple(U + f for U, f in zip(products, added, strict=True)), D


def gains_from(
    products: tuple[Force, ...], diagonal: Rows | None, H: tuple[Motion, ...], armature: Rows
) -> tuple[Gain, ...]:
    """Find the gains from P H*, and the diagonal of H P H* if it is known."""
    diagonal = diagonal or tuple(U.dot(h) for U, h in zip(products, H, strict=True))
    gains: list[Gain] = []
    for U, D, h, A in zip(products, diagonal, H, armature, strict=True):
        for G, _ in gains:
            overlap = G.dot(h)
            U, D = U - overlap * G, D - overlap * overlap
        root = jnp.sqrt(D + A)
        gains.append(Gain(U / root, root))
    return tuple(gains)


def corrected(P: ArticulatedInertia, gains: tuple[Gain, ...], l: Vec3) -> ArticulatedInertia:
    """Correct P by the gains and shift it inboard: phi (P - sum G G*) phi* (000 (36)-(40))."""
    P = P.shift(l)
    for G, _ in gains:
        P = P.downdate(G.shift(l))
    return P


def innovations_of(z: Force, H: tuple[Motion, ...], gains: tuple[Gain, ...], tau: Rows) -> tuple[Force, Rows]:
    """Correct z by the innovations, which are normalised too (000 (42)-(43))."""
    innovations = []
    for h, (G, root), torque in zip(H, gains, tau, strict=True):
        innovations.append((torque - z.dot(h)) / root)
        z = z + innovations[-1] * G
    return z, tuple(innovations)


def _factor(outboard: ArticulatedInertia, body: Any) -> Any:
    """Find the articulated inertias and gains alone (000 (36)-(41))."""
    M, H, l, own, armature = body
    gains = gains_with_link(outboard, M, own, H, armature)
    return corrected(outboard.plus_rigid(M), gains, l), gains


def whiten(outboard: Force, body: Any) -> Any:
    """Find the innovations of given torques, the gains being known (000 (42)-(43))."""
    (H, l, gains), tau = body
    z, innovations = innovations_of(outboard, H, gains, tau)
    return z.shift(l), innovations


def smooth(inboard: Motion, body: Any) -> Any:
    """Find the link's and the joint's acceleration (000 (45)-(47)); columns in reverse order."""
    (H, l, gains), innovations = body
    lam = inboard.shift(l)
    qdd: list[Any] = []
    for h, (G, root), nu in zip(reversed(H), reversed(gains), reversed(innovations), strict=True):
        qdd.insert(0, (nu - G.dot(lam)) / root)
        lam = lam + qdd[0] * h
    return lam, tuple(qdd)


# ---------------------------------------------------------------------- floating bases
def base_matrix(P: ArticulatedInertia, M: RigidInertia, armature: Rows) -> jax.Array:
    """Return the inertia that a floating base moves, whose columns are the identity, (6, 6, ...)."""
    matrix = P.to_array() + M.to_array()
    return matrix + _one_like(matrix) * jnp.stack(armature)[:, None]


def _one_like(matrix: jax.Array) -> jax.Array:
    """Return the identity with as many axes."""
    return jnp.eye(6, dtype=matrix.dtype).reshape((6, 6) + (1,) * (matrix.ndim - 2))


def force_on_base(z: Force, tau: Rows) -> jax.Array:
    """Return tau - z, (6, ...)."""
    return jnp.stack(jnp.broadcast_arrays(*(t - f for t, f in zip(tau, (*z.ang, *z.lin), strict=True))))


def times(matrix: jax.Array, x: jax.Array) -> jax.Array:
    """Return a matrix (6, 6, ...) times a vector (6, ...)."""
    return (matrix * x[None]).sum(1)


def _factor_base(outboard: ArticulatedInertia, body: Any) -> Any:
    """Cross the joint of a floating base: all that is needed of it is the inverse of its inertia."""
    M, _, _, _, armature = body
    return ArticulatedInertia.zero(), invert_rows(base_matrix(outboard, M, armature))


def _solve_base_for_torques(inverse: jax.Array, outboard: Force, tau: Rows) -> Any:
    """Cross the joint of a floating base, the inverse of its inertia being known."""
    return Force.zero(), tuple(times(inverse, force_on_base(outboard, tau)))


def _move_base(world: Motion, qdd: Any) -> Any:
    """Hand on the acceleration of a floating base."""
    return Motion(Vec3(*qdd[:3]), Vec3(*qdd[3:])), qdd


# ---------------------------------------------------------------------- sweeps
def factored(joints: Articulation, model: Model, q: jax.Array, armature: list[Rows]) -> list[Any]:
    """Return the factor of the mass matrix by stage: of joints (H, l, gains), of floating bases the inverse inertia."""
    links = joints.links(model, q)
    placed = placed_links(joints, links)
    M, H, l = joints.inertias(model, links), joint_columns(links, placed), [m.l for m in placed]
    own = [own_products(m, link.S, p.R) for m, link, p in zip(M, links, placed, strict=True)]
    M = [m.rotate(p.R) for m, p in zip(M, placed, strict=True)]
    bodies = list(zip(M, H, l, own, armature, strict=True))
    _, gains = joints.walk.inward(_factor, ArticulatedInertia.zero(), bodies, _factor_base)
    return [x[-1] if stage.is_base else x for stage, *x in zip(joints.stages, H, l, gains, strict=True)]


def with_columns(factor: list[Any]) -> list[Any]:
    """Give a factor an axis of columns before the batch: for torques that are matrices."""
    return jax.tree.map(lambda x: x if type(x) is float else x[..., None, :], factor)


def smoothed(joints: Articulation, factor: list[Any], innovations: list[Any]) -> list[Rows]:
    """Sweep outward. What a base has of innovations is its acceleration."""
    stages = zip(joints.stages, factor, innovations, strict=True)
    bodies = [e if stage.is_base else (part, e) for stage, part, e in stages]
    return joints.walk.outward(smooth, Motion.zero(), bodies, _move_base)


def solved(joints: Articulation, factor: list[Any], torques: list[Rows]) -> list[Rows]:
    """Return the accelerations by torques alone, as `factored` gives the factor: a sweep inward, one outward."""
    stages = zip(joints.stages, factor, torques, strict=True)
    bodies = [tau if stage.is_base else (part, tau) for stage, part, tau in stages]
    base_step = partial(_solve_base_for_torques, factor[0])
    return smoothed(joints, factor, joints.walk.inward(whiten, Force.zero(), bodies, base_step)[1])
