"""The derivative of inverse dynamics along a direction: one sweep outward and one inward.

A change dq of the coordinates displaces the links: each turns, with all that is outboard of it, by its joint's
Z = H* dq. Seen from axes that turn along, a link's inertia and its joint's columns stay what they are. In such axes,
with p for the parent and V_J = H* qd,

    dV = dV_p + V_p x Z + dV_J,      da = da_p + a_p x Z + dV x V_J + V x dV_J + da_J,
    df = M da + dV x* M V + V x* M dV,      dtau = H dF,

and what is outboard of a joint is displaced by Z more than what is inboard: it hands on F, and dF + Z x* F. (A joint
whose columns turn with its own coordinates adds their slopes, see `Slope`.) Automatic differentiation would follow the
displacement of every vector instead. The same in transposed order is in `adjoint`.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn.algorithms.articulation import Links, articulation
from jaxdyn.algorithms.motion import arrive, arrive_at_base, relative_motions, world_in_motion
from jaxdyn.joints import combine
from jaxdyn.model import Model
from jaxdyn.model.configuration import tangent
from jaxdyn.spatial import Force, Motion, Vec3


class Varied(NamedTuple):
    """A link in varied motion, in common axes, about its own origin."""

    f: Force
    """The force that its motion takes."""
    df: Force
    """Its change, seen from the link."""
    H: tuple[Motion, ...]
    """The joint's columns."""
    dH: tuple[Motion, ...]
    """Their change, seen from the link."""
    l: Vec3
    """From the parent's origin to the link's."""


def _vary(inboard: Any, body: Any, *, arrive: Any) -> Any:
    """Cross a joint outward: motion, its change, and the force that both take."""
    (X, V_J, a_J), (changes, S, dS), (M, dM, f_ext, df_ext) = body
    R, (V_p, a_p, dV_p, da_p), l = arrive(inboard, X)
    V_J, a_J, Z, dV_J, da_J = (x.rotate(R) for x in (V_J, a_J, *changes))
    V = V_p + V_J
    a = a_p + V_p.cross(V_J) + a_J
    dV = dV_p + V_p.cross(Z) + dV_J
    da = da_p + a_p.cross(Z) + dV.cross(V_J) + V.cross(dV_J) + da_J
    M = M.rotate(R)
    h = M @ V
    f, df = M @ a + V.cross_force(h), M @ da + dV.cross_force(h) + V.cross_force(M @ dV)
    if dM is not None:
        dM = dM.rotate(R)
        df = df + dM @ a + V.cross_force(dM @ V)
    f = f if f_ext is None else f - f_ext.rotate(R)
    df = df if df_ext is None else df - df_ext.rotate(R)
    H, dH = (tuple(s.rotate(R) for s in columns) for columns in (S, dS))
    return (R, V, a, dV, da), Varied(f, df, H, dH, l)


def _balance(outboard: Any, body: Any) -> Any:
    """Add up forces and their changes inward, and read the change of the joint's torque."""
    (f, df, H, dH, l), dq = body
    F, dF = f + outboard[0], df + outboard[1]
    turned = dF + combine(H, dq).cross_force(F)
    return (F.shift(l), turned.shift(l)), tuple(dF.dot(h) + F.dot(dh) for h, dh in zip(H, dH, strict=True))


def push_forward(changes: Any, model: Model, q: Any, qd: Any, qdd: Any, f_ext: Any, base_motion: Any) -> Any:
    """Return the change of ID, (nv, batch).

    Args:
        changes: of the arguments that follow, None in place of those that do not change.
        model, q, qd, qdd, f_ext, base_motion: arrays with the batch as the last axis, as for the kernel.

    Returns:
        The change; or NotImplemented, if another leaf changes than q, qd, qdd, f_ext, and inertias and armatures of the
        model, or if coordinates off a manifold might move something.
    """
    dmodel, dq, dqd, dqdd, df_ext, dbase = changes
    others = dataclasses.replace(dmodel, inertia=None, armature=None), dbase
    if jax.tree.leaves(others) or not (dq is None or all(g.joint.has_tangent for g in model.topology.groups)):
        return NotImplemented
    joints = articulation(model.topology)
    links = joints.links(model, q)
    dq_rows, dqd_rows, dqdd_rows = (
        joints.rows(x) if x is not None else [(0.0,) * stage.width for stage in joints.stages]
        for x in (None if dq is None else tangent(model, q, jnp.broadcast_arrays(dq, q)[0]), dqd, dqdd)
    )
    slopes = joints.subspace_slopes(model, q, qd, jnp.zeros_like(qd) if qdd is None else qdd)
    rates = joints.subspace_rates(model, q, qd)
    changes = [_joint_changes(*stage) for stage in zip(links, rates, slopes, dq_rows, dqd_rows, dqdd_rows, strict=True)]
    none = [None] * len(links)
    inertias = lambda inertia: joints.inertias(dataclasses.replace(model, inertia=inertia), links)
    dM: Any = none if dmodel.inertia is None else inertias(dmodel.inertia)
    f, df = (none if x is None else joints.forces(x, links) for x in (f_ext, df_ext))
    loads = zip(inertias(model.inertia), dM, f, df, strict=True)
    bodies = list(zip(relative_motions(joints, model, links, q, qd, qdd), changes, loads, strict=True))
    world = (*world_in_motion(model, base_motion), Motion.zero(), Motion.zero())
    step, base_step = (partial(_vary, arrive=how) for how in (arrive, arrive_at_base))
    varied = joints.walk.outward(step, world, bodies, base_step)
    _, found = joints.walk.inward(_balance, (Force.zero(), Force.zero()), list(zip(varied, dq_rows, strict=True)))
    dtau = joints.collect(found)
    if dqdd is not None:
        dtau = dtau + model.armature * dqdd
    if dmodel.armature is not None and qdd is not None:
        dtau = dtau + dmodel.armature * qdd
    return dtau


def _joint_changes(link: Links, rates: Any, slopes: Any, dq: Any, dqd: Any, dqdd: Any) -> Any:
    """Return Z, dV_J and da_J, the joint's columns and their changes, in link axes."""
    along_q = lambda parts: combine(tuple(parts), dq)
    turning = tuple(rate + slope.velocity for rate, slope in zip(rates, slopes, strict=True))
    dV_J = combine(link.S, dqd) + along_q(slope.velocity for slope in slopes)
    da_J = combine(link.S, dqdd) + combine(turning, dqd) + along_q(slope.acceleration for slope in slopes)
    dS = tuple(along_q(slope.S[k] for slope in slopes) for k in range(len(link.S)))
    return (combine(link.S, dq), dV_J, da_J), link.S, dS
