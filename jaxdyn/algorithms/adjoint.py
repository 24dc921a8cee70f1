"""The adjoint of inverse dynamics: gradients of x . ID(q, qd, qdd) from one sweep outward and one inward.

Let W be the velocities that the links have at the joint velocities x. By virtual power

    x . tau = sum_k W_k . f_k,      f = M a + V x* M V - f_ext.

A change of the coordinate d turns everything outboard of it like a rigid body, by J_d. Seen from axes that turn along,
forces change by M xi + B psi (see `slopes`), and W by chi = W_p x J_d. So the gradient asks for sums over what
is outboard of a joint:

    F = sum f,      P = sum M W,      Q = sum B* W,      B* W = V x* M W - W x* M V - M (V x W)
    by q_d: chi . F + xi . P + psi . Q,      by qd_d: eta . P + J_d . Q,      by qdd_d: J_d . P.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn.algorithms.articulation import articulation, joint_motions
from jaxdyn.algorithms.motion import arrive, arrive_at_base, relative_motions, world_in_motion
from jaxdyn.joints import combine
from jaxdyn.model import Model
from jaxdyn.model.configuration import coordinate_gradient
from jaxdyn.recursion import Packed, summed_as, unpacked
from jaxdyn.spatial import Force, Motion, RigidInertia, Vec3
from jaxdyn.spatial.linear import outer


class Felt(NamedTuple):
    """What the links feel of motion and virtual motion; it adds up inward."""

    F: Force
    P: Force
    Q: Force

    def plus(self, other: Felt) -> Felt:
        """Return the sum."""
        return Felt(*(a + b for a, b in zip(self, other, strict=True)))

    def shift(self, l: Vec3) -> Felt:
        """Return the same about a point that lies l before."""
        return Felt(*(f.shift(l) for f in self))


class Virtual(NamedTuple):
    """A link in motion and in virtual motion, in common axes, about its own origin."""

    felt: Felt
    inboard: tuple[Motion, Motion, Motion]
    """Velocity, acceleration and virtual velocity of the parent."""
    columns: Any
    """The joint's columns, with their rates and slopes."""
    l: Vec3
    """From the parent's origin to the link's."""
    by_force: Motion | None
    """Virtual velocity, in link axes, if wanted."""
    by_inertia: tuple[Motion, Motion, Motion] | None
    """Virtual velocity, velocity and acceleration in link axes, if the derivative by the inertia is wanted."""


def _cross(inboard: Any, body: Any, *, arrive: Any, wanted: tuple[bool, bool]) -> Any:
    """Cross a joint outward: motion, virtual motion, and what the link feels of both."""
    (X, V_J, a_J), W_J, columns, M_own, f_ext = body
    R, (V_p, a_p, W_p), l = arrive(inboard, X)
    V_J, a_J, W_J = (x.rotate(R) for x in (V_J, a_J, W_J))
    V, a, W = V_p + V_J, a_p + V_p.cross(V_J) + a_J, W_p + W_J
    M = M_own.rotate(R)
    h, P = M @ V, M @ W
    F = M @ a + V.cross_force(h)
    F = F if f_ext is None else F - f_ext.rotate(R)
    Q = V.cross_force(P) - W.cross_force(h) - M @ V.cross(W)
    by_force = W.rotate(R.T) if wanted[0] else None
    by_inertia = (W.rotate(R.T), V.rotate(R.T), a.rotate(R.T)) if wanted[1] else None
    turned = jax.tree.map(lambda x: x.rotate(R), columns, is_leaf=lambda x: isinstance(x, Motion))
    return (R, V, a, W), Virtual(Felt(F, P, Q), (V_p, a_p, W_p), turned, l, by_force, by_inertia)


def _by_inertia(X: Motion, Y: Motion) -> RigidInertia:
    """Return the derivative of X . M Y by the ten numbers of M."""
    outer_product = outer(X.ang, Y.ang)
    both = (outer_product + outer_product.T).upper
    diagonal = outer_product.upper
    J = dataclasses.replace(both, xx=diagonal.xx, yy=diagonal.yy, zz=diagonal.zz)
    return RigidInertia(X.lin.dot(Y.lin), Y.lin.cross(X.ang) - Y.ang.cross(X.lin), J)


def _of_force(W: Motion, V: Motion, a: Motion) -> RigidInertia:
    """Return the derivative of W . (M a + V x* M V) by the ten numbers of M."""
    return _by_inertia(W, a) - _by_inertia(V.cross(W), V)


def _gather(outboard: Felt, body: Any) -> Any:
    """Add up inward, and read the derivatives by the joint's q, qd and qdd."""
    link, qd, x = body
    (H, rates, slopes), (V_p, a_p, W_p) = link.columns, link.inboard
    felt = link.felt.plus(outboard)
    F, P, Q = felt
    V = V_p + combine(H, qd)
    found = []
    for J, rate, slope in zip(H, rates, slopes, strict=True):
        psi = V_p.cross(J) + slope.velocity
        xi = a_p.cross(J) - psi.cross(V_p) + V.cross(slope.velocity) + slope.acceleration
        eta = (V + V_p).cross(J) + rate + slope.velocity
        chi = W_p.cross(J) + combine(slope.S, x)
        found.append((F.dot(chi) + P.dot(xi) + Q.dot(psi), P.dot(eta) + Q.dot(J), P.dot(J)))
    return felt.shift(link.l), tuple(found)


def pull_back(wanted: Any, x: jax.Array, model: Model, q: Any, qd: Any, qdd: Any, f_ext: Any, base_motion: Any) -> Any:
    """Return the gradient of x . ID, arrays with the batch as the last axis.

    Args:
        wanted: the arguments that follow x, with booleans in place of arrays: by what to differentiate.
        x: (nv, batch).

    Returns:
        The arguments with gradients in place of leaves that are wanted, and anything in place of the others; or
        NotImplemented, if another leaf is wanted than q, qd, qdd, f_ext, and inertias and armatures of the model, or if
        coordinates off a manifold might move something.
    """
    others = dataclasses.replace(wanted[0], inertia=False, armature=False), wanted[5]
    if any(jax.tree.leaves(others)) or (wanted[1] and not all(g.joint.has_tangent for g in model.topology.groups)):
        return NotImplemented
    joints = articulation(model.topology)
    links = joints.links(model, q)
    motions = relative_motions(joints, model, links, q, qd, qdd)
    inertias = joints.packed_inertias(model, links)
    slopes = joints.subspace_slopes(model, q, qd, jnp.zeros_like(qd) if qdd is None else qdd)
    columns = list(zip([link.S for link in links], joints.subspace_rates(model, q, qd), slopes, strict=True))
    forces = [None] * len(links) if f_ext is None else joints.forces(f_ext, links)
    velocities, virtual = joints.rows(qd), joints.rows(x)
    bodies = list(zip(motions, joint_motions(links, virtual), columns, inertias, forces, strict=True))
    world = (*world_in_motion(model, base_motion), Motion.zero())
    parts = wanted[4] is True, wanted[0].inertia
    cross = partial(_cross, arrive=arrive, wanted=parts)
    moved = joints.walk.outward(cross, world, bodies, partial(_cross, arrive=arrive_at_base, wanted=parts))
    nothing = Felt(Force.zero(), Force.zero(), Force.zero())
    _, found = joints.walk.inward(_gather, nothing, list(zip(moved, velocities, virtual, strict=True)))
    tangent, by_qd, Mx = (joints.collect([tuple(c[i] for c in stage) for stage in found]) for i in range(3))
    by_inertia: Any = None
    by_force: Any = None
    if parts[1]:
        in_link_axes = lambda inertia: joints.packed_inertias(dataclasses.replace(model, inertia=inertia), links)
        by_inertia = _transposed(in_link_axes, model.inertia, [_of_force(*link.by_inertia) for link in moved])
    if parts[0]:
        by_force = _transposed(lambda f: joints.forces(f, links), f_ext, [-link.by_force for link in moved])
    by_armature = jnp.zeros_like(x) if qdd is None else x * qdd
    by_model = dataclasses.replace(model, inertia=by_inertia, armature=by_armature)
    by_qdd = None if qdd is None else Mx + model.armature * x
    by_q = coordinate_gradient(model, q, tangent) if wanted[1] else None
    return by_model, by_q, by_qd, by_qdd, by_force, base_motion


def _transposed(linear: Any, at: jax.Array, y: Sequence[Any]) -> Any:
    """Return the transposed product of a linear function with y, which may have other types than its result.

    Where the result is one for the whole batch, y is summed first; where the result is packed, y is not.
    """
    out, pull = jax.vjp(linear, at)

    def like(result: Any, value: Any) -> Any:
        leaves, form = jax.tree.flatten(unpacked(result))
        values = zip(leaves, jax.tree.leaves(value), strict=True)
        cast = [summed_as(leaf, v.astype(leaf.dtype)) for leaf, v in values]
        if isinstance(result, Packed):
            return Packed(jnp.stack(cast, axis=-2), result.form)
        return jax.tree.unflatten(form, cast)

    return pull(list(map(like, out, y)))[0]
