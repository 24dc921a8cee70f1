r"""Algorithm 8.1 of 002 for all joint types: rates of total joint rates by a sweep inward, velocities by one outward.

The filter and its rate cross each joint together. P' is the rate that an observer fixed in the body sees, to whom
neither the body's inertia nor, but for universal joints, the joint's columns change:

    U = P H*,  W = P' H* + P H*',  D = H U + A,  G = U L^-*,  G' = W L^-* - G L*' L^-*,  L L* = D
    P+ = P - G G*,  P+' = P' - G G'* - G' G*  +  V_J x* P+ - P+ V_J x

where the last two terms are for the observer in the parent, who sees the body move by V_J = H* qd. To him the shift phi
to his origin is fixed. With the momentum y that the joints outboard have left, and its rate in inertial axes, (8.1) is

    L nu' = tau - H y' + H' P V - L' nu,    y' = sum over children of phi (y' + (G nu)'),    xi' = L^-* (nu' - L*' xi)

column by column: for one degree of freedom D xi' = tau - H psi zeta. There are no forces of motion to be found first.

In double precision all is about one point, the origin of the tree's first body, so that nothing is to be shifted, and
columns and velocities are rows of one array each. In single precision, and along long robots, light links would be
differences of large numbers: there every quantity is about its own body's origin.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import once, solve_rows
from jaxdyn.algorithms.articulation import Articulation, Rows, articulation
from jaxdyn.algorithms.filtering import base_matrix, force_on_base, gains_from, products_with_link
from jaxdyn.algorithms.motion import Own, own_products
from jaxdyn.joints import combine
from jaxdyn.model import Model
from jaxdyn.recursion import kept
from jaxdyn.spatial import ArticulatedInertia, Force, Mat3, Moments, Motion, MotionRows, RigidInertia, Vec3
from jaxdyn.spatial.components import minus, plus, times

LONG = 64
"""Steps of a sweep beyond which all quantities are about their own bodies' origins."""


class Link(NamedTuple):
    """A link in motion; a floating base in its own axes."""

    H: tuple[Motion | MotionRows, ...] | Mat3
    """The joint's columns; of a floating base, the rotation from its own axes."""
    dH: tuple[Motion, ...]
    """Their rates, as the body sees them."""
    M: RigidInertia | Moments
    """Inertia; its mass, which is the model's, is no part of a sweep's results."""
    own: tuple[Own, ...]
    """What it makes of the columns, in single precision."""
    l: Vec3
    """What the parent's quantities are shifted by; known zeros about one point."""
    V: Motion | MotionRows
    """Velocity."""
    load: Force
    """Force on it."""


# ---------------------------------------------------------------------- outward: motion
def _move(inboard: Any, body: Any, about_root: bool) -> Any:
    """Cross a joint outward."""
    (R, p, V), (X, inner, S, dS, M, qd, load) = inboard, body
    l = R @ X.p
    R = R @ X.R
    own = () if about_root else own_products(M, S, R)
    H, dH = (tuple(s.rotate(R) for s in columns) for columns in (S, dS))
    M, load = M.rotate(R), load.rotate(R)
    if about_root:
        p, l = p + inner * l, Vec3.zero()
        H, dH = tuple(MotionRows.of(h.shift(-p), p.x) for h in H), tuple(dh.shift(-p) for dh in dH)
        M, load = M.shift(p), load.shift(p)
    V = V.shift(l)
    for h, rate in zip(H, qd, strict=True):
        V = V + rate * h
    return (R, p, V), Link(H, dH, replace(M, m=0.0), own, l, V, load)


def _move_base(world: Any, body: Any, own_axes: bool, about_root: bool) -> Any:
    """Cross the joint of a floating base; its origin is the point that all is about. It stays in its own axes."""
    X, _, _, _, M, qd, load = body
    R = Mat3.identity() if own_axes else X.R
    V = Motion(Vec3(*qd[:3]), Vec3(*qd[3:]))
    W = V.rotate(R)
    end = MotionRows.of(W, qd[0]) if about_root else W
    return (R, Vec3.zero(), end), Link(R, (), M, (), Vec3.zero(), V, load)


def _moved(joints: Articulation, model: Model, q: jax.Array, qd: jax.Array, f_ext: Any) -> tuple[list[Link], Any]:
    """Return all links in motion; and gravity, and the velocity with which the observer goes along with a base."""
    links = joints.links(model, q)
    about_root = q.dtype.itemsize >= 8 and len(joints.walk.stages[-1]) <= LONG
    is_root = np.array(joints.topology.parents) < 0
    is_one_base = joints.stages[0].is_base and is_root.sum() == 1  # then axes are the base's: only gravity is turned
    loads = [Force.zero()] * len(links) if f_ext is None else joints.forces(f_ext, links)
    inertias = joints.inertias(model, links)
    if joints.stages[0].is_base:  # its numbers are worked out once, not again in each kernel
        leaves, form = jax.tree.flatten(inertias[0])
        inertias[0] = jax.tree.unflatten(form, once(*leaves))
    rates = joints.subspace_rates(model, q, qd)
    bodies = []
    for stage, link, dS, M, *rest in zip(joints.stages, links, rates, inertias, joints.rows(qd), loads, strict=True):
        roots = is_root[stage.bodies]
        inner = 1.0 if not roots.any() else jnp.asarray(~roots[..., None], q.dtype)
        bodies.append((link.X, inner, link.S, dS, Moments.of(M) if about_root and not stage.is_base else M, *rest))
    start = Mat3.identity(), Vec3.zero(), MotionRows.zero(q.dtype) if about_root else Motion.zero()
    step = partial(_move, about_root=about_root)
    base_step = partial(_move_base, own_axes=is_one_base, about_root=about_root)
    moved = joints.walk.outward(step, start, bodies, base_step)
    moved = [m._replace(M=replace(m.M, m=M.m)) for m, M in zip(moved, inertias, strict=True)]
    g, u = Vec3(*model.gravity), Vec3.zero()
    if is_one_base:
        R, u = jax.tree.map(lambda x: x[0], (links[0].X.R, moved[0].V.lin))
        g = R.T @ g
    return moved, (g, u)


# ---------------------------------------------------------------------- inward: the filter and its rate
def _filter_and_rate(outboard: Any, body: Any, g: Vec3, u: Vec3) -> Any:
    """Cross a joint inward; return its gains, and the rates of its xi."""
    (P, dP, y), (link, tau, A, qd) = outboard, body
    in_rows = isinstance(link.V, MotionRows)  # then not looked up anew in each kernel; what to keep was measured
    H, W = kept(link.H, link.V) if in_rows else (link.H, link.V)
    H, W = tuple(Motion(h.ang, h.lin) for h in H), Motion(W.ang, W.lin)
    M = link.M.inertia if isinstance(link.M, Moments) else link.M
    g, u = (_as_rows(x, qd[0]) for x in (g, u))
    V = Motion(W.ang, W.lin - u)  # the observer goes along with a floating base
    products, D = products_with_link(P, M, link.own, H)
    dU = tuple(dP @ h for h in H)
    if not in_rows:
        products, dU = kept(products, dU)
    gains = gains_from(products, D, H, A)
    P = P.plus_rigid(M)
    slopes, dG = _rates_of_gains(P, dU, H, link.dH, gains)
    for G, _ in gains:
        P = P.downdate(G)
    if not in_rows:
        (P,) = kept(P)
    y = y + Force(u.cross((M @ V).lin), Vec3.zero()) - link.load
    nu: list[Any] = []
    nu_rates: list[Any] = []
    for i, (h, dh, (G, root)) in enumerate(zip(H, link.dH, gains, strict=True)):
        moved, dh = W - combine(H[:i], qd[:i]), V.cross(h) + dh  # moved: by this column and those after it
        turned = (P @ moved).dot(dh)  # H*' P V, of the P that the columns before leave
        for F, _ in gains[i:]:
            turned = plus(turned, F.dot(moved) * F.dot(dh))
        # These two as quotients, so that XLA works them out once.
        nu.append((root * G.dot(moved) + A[i] * qd[i]) / root)
        nu_rates.append(root * ((minus(tau[i], y.dot(h)) + turned) / root - slopes[i] * nu[i]) / root)
        y = y + nu[i] * (dG[i] + V.cross_force(G)) + nu_rates[i] * G
    for (G, _), dg in zip(gains, dG, strict=True):
        dP = dP.minus_pair(G, dg)
    dP = dP + P.moved(combine(H, qd))
    xi_rates = _xi_rates(H, link.dH, gains, dG, slopes, nu, nu_rates, g)
    return (P.shift(link.l), dP.shift(link.l), y.shift(link.l)), (gains, xi_rates)


def _as_rows(v: Vec3, row: jax.Array) -> Vec3:
    """Give what is the same for all lanes their axis."""
    return jax.tree.map(lambda x: x if type(x) is float else x.reshape((1,) * (row.ndim - x.ndim) + x.shape), v)


def _rates_of_gains(P: Any, dU: Any, H: Any, dH: Any, gains: Any) -> tuple[list[Any], list[Force]]:
    """Return L'/L of each column, and the rate of its gain, as the body sees it; dU is P' H*."""
    slopes: list[Any] = []
    dG: list[Force] = []
    for h, dh, W, (G, root) in zip(H, dH, dU, gains, strict=True):
        W = W + P @ dh
        for (before, _), rate in zip(gains, dG, strict=False):
            W = W - before.dot(h) * rate - plus(rate.dot(h), before.dot(dh)) * before
        slopes.append(plus(W.dot(h), times(root, G.dot(dh))) / (2 * root * root))
        dG.append((W - (slopes[-1] * root) * G) / root)
    return slopes, dG


def _xi_rates(H: Any, dH: Any, gains: Any, dG: Any, slopes: Any, nu: Any, nu_rates: Any, g: Vec3) -> Rows:
    """Return L^-* (nu' - L*' xi), gravity included: it accelerates all bodies alike."""
    xi: Rows = ()
    rates: Rows = ()
    for i in reversed(range(len(H))):
        (G, root), after = gains[i], H[i + 1 :]
        along = minus(nu[i], G.dot(combine(after, xi)))  # L xi
        rate = nu_rates[i] + G.lin.dot(g) - slopes[i] * along
        for h, dh, x in zip(after, dH[i + 1 :], xi, strict=True):
            rate = rate - plus(dG[i].dot(h), G.dot(dh)) * x
        rates = (minus(rate, G.dot(combine(after, rates))) / root, *rates)
        xi = (along / root, *xi)
    return rates


def _filter_and_rate_base(outboard: Any, body: Any, g: Vec3, u: Vec3) -> Any:
    """Cross the joint of a floating base, which hands nothing on: D xi' = tau - z + (D - A) g, in its own axes."""
    (P, dP, y), (link, tau, A, qd) = outboard, body
    R, M, W = link.H, link.M, link.V
    g, u = (_as_rows(x, qd[0]) for x in (g, u))
    to_base = R.T
    g, u = to_base @ g, to_base @ u
    V = Motion(W.ang, W.lin - u)
    P, y = P.rotate(to_base), (y + dP @ W.rotate(R)).rotate(to_base)
    z = y + Force(u.cross((M @ V).lin), Vec3.zero()) - link.load + V.cross_force(P @ W + M @ W)
    z = z + Force(Vec3.zero(), Vec3(*(a * x for a, x in zip(A[3:], g, strict=True))))
    rates = solve_rows(base_matrix(P, M, A), force_on_base(z, tau))
    falling = (*rates[:3], *map(plus, rates[3:], g))
    return (ArticulatedInertia.zero(), ArticulatedInertia.zero(), Force.zero()), (R, falling)


def _swept(model: Model, q: Any, qd: Any, tau: Any, f_ext: Any) -> Any:
    """Sweep inward; return the links, their gains, and the rates of xi, by stage."""
    joints = articulation(model.topology)
    moved, (g, u) = _moved(joints, model, q, qd, f_ext)
    armature = joints.rows(model.armature, nothing=1.0)  # a column that is not there moves nothing
    bodies = list(zip(moved, joints.rows(tau), armature, joints.rows(qd), strict=True))
    start = ArticulatedInertia.zero(), ArticulatedInertia.zero(), Force.zero()
    step, base_step = (partial(f, g=g, u=u) for f in (_filter_and_rate, _filter_and_rate_base))
    found = joints.walk.inward(step, start, bodies, base_step)[1]
    return joints, moved, [gains for gains, _ in found], [rates for _, rates in found]


# ---------------------------------------------------------------------- outward: velocities
def _velocity(inboard: Any, body: Any) -> Any:
    """Cross a joint outward: V = tau_bar* V+ + H* xi (002 Table 1)."""
    H, l, gains, xi = body
    V = V_plus = inboard.shift(l)
    qd: Rows = ()
    for h, (G, root), x in zip(reversed(H), reversed(gains), reversed(xi), strict=True):
        qd = ((root * x - G.dot(V)) / root, *qd)
        V = V + (qd[0] - x) * h
    for h, rate in zip(H, qd, strict=True):
        V_plus = V_plus + rate * h
    return V_plus, qd


def _velocity_of_base(world: Any, body: Any) -> Any:
    """Cross the joint of a floating base, whose xi is its velocity."""
    R, _, _, xi = body
    V = Motion(Vec3(*xi[:3]), Vec3(*xi[3:])).rotate(R)
    return MotionRows.of(V, xi[0]) if isinstance(world, MotionRows) else V, xi


# ---------------------------------------------------------------------- kernels, arrays (..., batch)
def rates(model: Model, q: Any, qd: Any, tau: Any, f_ext: Any) -> jax.Array:
    """Return xi'."""
    joints, _, _, rates = _swept(model, q, qd, tau, f_ext)
    return joints.collect(rates)


def after(model: Model, q: Any, xi: Any, qd: Any, tau: Any, f_ext: Any, h: Any) -> jax.Array:
    """Return xi after a time h, and the velocity that it is at q."""
    joints, moved, gains, rates = _swept(model, q, qd, tau, f_ext)
    rows = []
    for stage, *both in zip(joints.stages, joints.rows(xi), rates, strict=True):
        dt = stage.everywhere(h)
        rows.append(tuple(x + dt * rate for x, rate in zip(*both, strict=True)))
    bodies = [(link.H, link.l, *rest) for link, *rest in zip(moved, gains, rows, strict=True)]
    start = MotionRows.zero(q.dtype) if isinstance(moved[-1].V, MotionRows) else Motion.zero()
    velocity = joints.walk.outward(_velocity, start, bodies, _velocity_of_base)
    return jnp.stack([joints.collect(rows), joints.collect(velocity)])
