r"""The sweeps of the diagonalised equations of motion, nu' + C(q, nu) = eps, for all joint types (002 section 7).

The filter of the mass matrix is differentiated along the motion, as an observer sees it who does not turn: about points
at rest where the bodies' origins are. There nothing turns on the way from body to body, and P' crosses a link as P
does: P' = sum over children of phi (P' - G G'* - G' G*) phi* + M', with the gains G = P H* L^-* and the root L of D.
The momentum outboard of a joint is P V + y, y = sum over children of phi (y + G nu), and its rate, by which there are
neither forces of motion nor accelerations to be found first, is the force at the joint. With y' along with P' inward,
the velocities V, and H*' = V x H*, per column i

    L_ii nu_i' = tau_i - h_i . y' + h_i' . P V_i - L_ii' nu_i,
    y'         = sum over children of phi (y' + G' nu + G nu')

where P is what the columns before i leave of it, and V_i what i and the columns after it make of V+. So nu . C = 0
whatever the joints (for one degree of freedom this is Algorithm 7.1). C is S(q, nu) nu with S skew: the same sweep
gives S(q, nu) w, of any w with velocities W. Where qd is known, filter and rates take one sweep inward.
Gravity accelerates all bodies alike, by g: it adds G* g to nu'.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.algorithms.articulation import Rows
from jaxdyn.algorithms.filtering import Gain, gains_with_link, smooth
from jaxdyn.joints import combine
from jaxdyn.model import Model
from jaxdyn.operators.mechanism import Mechanism
from jaxdyn.operators.steps import BASE_SWEEPS, BODY_BY_BODY, Base, Factor, factor_base_step
from jaxdyn.spatial import ArticulatedInertia, Force, Motion, RigidInertia, Sym3, Vec3
from jaxdyn.spatial.components import minus, plus, times
from jaxdyn.spatial.linear import cross_rows, outer

LONG = 64
"""Steps of a sweep from which on the last one finds the filter once more, and all that it needs of a joint (measured):
fewer rows of long robots cross memory."""


# ---------------------------------------------------------------------- velocities
def _move(inboard: Motion, body: Any) -> Any:
    """Find the rates of a joint from total joint rates (002 Table 1), and its body's velocity."""
    V, qd = smooth(inboard, body)
    return V, (V, qd)


def _move_base(base: Base, world: Motion, nu: Rows) -> Any:
    V, qd = BASE_SWEEPS["m^-1"][1](base, world, nu)
    return V, (V, qd)


def _motions(robot: Mechanism, rows: list[Rows]) -> tuple[list[Motion], list[Rows]]:
    """Return velocities of the bodies, and rates of joints, by stage."""
    gains = [part.gains for part in robot.factor]
    bodies: list[Any] = [((H, l, G), x) for H, l, G, x in zip(robot.H, robot.l, gains, rows, strict=True)]
    base_step = None
    if isinstance(base := gains[0], Base):
        bodies[0], base_step = rows[0], partial(_move_base, base)
    moved = robot.joints.walk.outward(_move, Motion.zero(), bodies, base_step)
    return [V for V, _ in moved], [qd for _, qd in moved]


# ---------------------------------------------------------------------- the rates of the filter
class Turning(NamedTuple):
    """A joint and its body in motion as the sweep of rates sees them, about the body's own origin."""

    H: tuple[Motion, ...]
    dH: tuple[Motion, ...]
    """Rates of the columns."""
    l: Vec3
    dM: RigidInertia
    """Rate of the body's inertia."""
    b: Force
    """What a body needs besides the rate of its momentum, less the force on it."""
    tau: Rows
    qd: Rows
    V: tuple[Motion, ...]
    """By column, the velocity that all columns after it leave."""
    nu: Rows | None
    """What is differentiated, if it is known."""
    xi: Rows


def _turn(outboard: Any, joint: Turning, gains: tuple[Gain, ...], PdH: tuple[Force, ...]) -> Any:
    """Cross a joint inward with the rates of P and y; return the rate of nu of each column, or L* times that of xi."""
    (dP, y), j = outboard, joint
    dP, y = dP.plus_rigid(j.dM), y + j.b
    dG: list[Force] = []
    shifted = []
    roots, handed_on, found = [], y.shift(j.l), []
    for i, (h, dh, Pdh, V, (G, root)) in enumerate(zip(j.H, j.dH, PdH, j.V, gains, strict=True)):
        dPh = dP @ h
        for (before, _), rate in zip(gains, dG, strict=False):
            dPh = dPh - rate.dot(h) * before - before.dot(h) * rate
            Pdh = Pdh - before.dot(dh) * before
        roots.append(plus(dPh.dot(h), times(2 * root, G.dot(dh))) / (2 * root))
        dG.append((dPh + Pdh - roots[-1] * G) / root)
        # As a quotient, so that XLA works it out once.
        nu = root * (root * j.qd[i] + G.dot(V)) / root if j.nu is None else j.nu[i]
        turned = plus(Pdh.dot(V), times(root * j.qd[i], G.dot(dh)))  # H*' P V
        dnu = (minus(j.tau[i], y.dot(h)) + turned - roots[-1] * nu) / root
        found.append(dnu)
        y = y + nu * dG[-1] + dnu * G
        shifted.append((_shifted(G, root, j.l), _shifted(dG[-1], root, j.l)))
        handed_on = handed_on + nu * shifted[-1][1] + dnu * shifted[-1][0]
    dP = dP.shift(j.l)
    for pair in shifted:
        dP = dP.minus_pair(*pair)
    return (dP, handed_on), tuple(_less_xi(j, gains, dG, roots, found))


def _shifted(G: Force, root: Any, l: Vec3) -> Force:
    """Return phi G; as a quotient, so that XLA works it out once."""
    return Force((root * G.shift(l).ang) / root, G.lin)


def _less_xi(j: Turning, gains: tuple[Gain, ...], dG: list[Force], roots: list[Any], found: list[Any]) -> list[Any]:
    """Subtract the rate of L* times xi."""
    for i, (rate, (G, _)) in enumerate(zip(dG, gains, strict=True)):
        found[i] = minus(found[i], times(roots[i], j.xi[i]))
        for h, dh, xi in zip(j.H[i + 1 :], j.dH[i + 1 :], j.xi[i + 1 :], strict=True):
            found[i] = minus(found[i], times(plus(rate.dot(h), G.dot(dh)), xi))
    return found


def _turn_known(outboard: Any, body: Any) -> Any:
    """Cross a joint whose gains are known."""
    return _turn(outboard, *body)


def _filter_and_turn(outboard: Any, body: Any) -> Any:
    """Cross a joint with the filter and its rate at once."""
    (P, *rates), (M, own, noise, joint) = outboard, body
    gains = gains_with_link(P, M, own, joint.H, noise)
    P = P.plus_rigid(M)
    rates, found = _turn(rates, joint, gains, tuple(P @ dh for dh in joint.dH))
    handed_on = P.shift(joint.l)
    for G, root in gains:
        handed_on = handed_on.downdate(_shifted(G, root, joint.l))
    return (handed_on, *rates), (Factor(P, handed_on, gains), found)


class TurningBase(NamedTuple):
    """The same of a floating base, whose columns are fixed in it."""

    V: Motion
    b: Force
    tau: Rows
    W: Motion
    rest: Rows | None


def _turn_base(base: Base, P: ArticulatedInertia, outboard: Any, body: TurningBase) -> Any:
    """Cross the joint of a floating base, which hands nothing on; P is what is outboard of it."""
    dP, y = outboard
    z = y + body.b + dP @ body.W + P @ body.V.cross(body.W)
    found = BASE_SWEEPS["m^-1"][0](base, z, body.tau)[1]
    if body.rest is not None:
        dP = dP - P.moved(body.V)  # as the base sees it
        half = base.L_inverse_H
        rate = (half[:, :, None] * dP.to_array()[None]).sum(1)
        rate = (rate[:, None] * half[None]).sum(2)  # L^-1 D' L^-*
        lower = np.tril(np.ones((6, 6))) - 0.5 * np.eye(6)
        rate = jnp.asarray(lower, rate.dtype).reshape((6, 6) + (1,) * (rate.ndim - 2)) * rate  # L^-1 L'
        moved = jnp.stack(BODY_BY_BODY["L"][1](None, Factor(dP, dP, base), body.rest))
        found = tuple(a + (rate[:, i] * moved).sum(0) for i, a in enumerate(found))
    return (ArticulatedInertia.zero(), Force.zero()), found


def _turn_known_base(factor: Any, M: RigidInertia, outboard: Any, body: TurningBase) -> Any:
    return _turn_base(factor.gains, factor.P - ArticulatedInertia.from_rigid(M), outboard, body)


def _filter_and_turn_at_once(outboard: Any, body: Any) -> Any:
    """Do the same, with all that is needed of the joint worked out here."""
    *link, parts = body
    return _filter_and_turn(outboard, (*link, _turning(*parts)))


def _filter_and_turn_base(outboard: Any, body: Any) -> Any:
    (P, *rates), (M, H, l, noise, turning) = outboard, body
    nothing, factor = factor_base_step(P, (M, H, l, noise, ()))
    rates, found = _turn_base(factor.gains, P, rates, turning)
    return (nothing, *rates), (factor, found)


def _inertia_rate(M: RigidInertia, V: Motion) -> RigidInertia:
    """Return V x* M - M V x: the rate of a rigid body's inertia about a point at rest."""
    X = cross_rows(V.ang, M.J.full)
    Y = outer(M.h, V.lin)
    J = (X + X.T).upper + Sym3.scalar(2 * M.h.dot(V.lin)) - (Y + Y.T).upper
    return RigidInertia(0.0, M.m * V.lin + V.ang.cross(M.h), J)


def _turning(
    H: Any, dH: Any, l: Vec3, M: RigidInertia, b: Force, tau: Rows, V: Motion, W: Motion, w: Rows, nu: Any, xi: Rows
) -> Turning:
    """Bring together what the sweep of rates needs of a joint."""
    dH = tuple(V.cross(h) + dh for h, dh in zip(H, dH, strict=True))
    after = [W - combine(H, w)]
    for h, x in zip(H[:0:-1], w[:0:-1], strict=True):
        after.insert(0, after[0] + x * h)
    return Turning(H, dH, l, _inertia_rate(M, V), b, tau, w, tuple(after), nu, xi)


def accelerations(
    model: Model,
    q: jax.Array,
    rates: Any,
    *,
    normalised: bool = True,
    gravity: bool = False,
    world_axes: bool = False,
    other: Any = None,
    tau: Any = None,
    f_ext: Any = None,
    qd: Any = None,
) -> tuple[Mechanism, list[Rows]]:
    """Return the rates of nu, or L* times those of xi, under joint forces, by stage.

    Args:
        model: the model, leaves (..., batch).
        q: configuration, (nq, batch).
        rates: nu, or xi, (nv, batch); nu is not needed where qd is known.
        normalised: they are nu.
        gravity: with gravity.
        world_axes: let the robot that is returned have the world's axes.
        other: w, (nv, batch), if S(q, nu) w is wanted.
        tau: joint forces, (nv, batch).
        f_ext: forces on bodies, (nbodies, 6, batch), with gravity.
        qd: velocity, (nv, batch), if it is known.
    """
    robot = Mechanism(model, q, root_axes=not (gravity or world_axes), qd=qd)
    joints, known = robot.joints, qd is not None
    nothing = [(0.0,) * stage.width for stage in joints.stages]
    nu: list[Any] = [None] * len(nothing)
    if known:
        V, beta = robot.V, joints.rows(qd)
    else:
        nu = joints.rows(rates) if normalised else robot.apply("L", True, joints.rows(rates))
        V, beta = _motions(robot, nu)
        qd = joints.collect(beta)
    W, w = V, beta
    if other is not None:
        nu = joints.rows(other)
        W, w = _motions(robot, nu)
    dH = robot.column_rates(q, qd)
    torques = nothing if tau is None else joints.rows(tau)
    xi = nothing if normalised else joints.rows(rates)
    b = [Force.zero()] * len(V) if other is None else [_pair(*parts) for parts in zip(robot.M, V, W, strict=True)]
    if (has_base := joints.stages[0].is_base) and len(joints.stages[0].flat) == 1:
        # The observer goes along with the base, however fast that is.
        u = [stage.everywhere(jax.tree.map(lambda x: x[0], V[0].lin)) for stage in joints.stages]
        V = [Motion(v.ang, v.lin - s) for v, s in zip(V, u, strict=True)]
        b = [f + Force(s.cross((M @ x).lin), Vec3.zero()) for f, s, M, x in zip(b, u, robot.M, W, strict=True)]
    if f_ext is not None:
        b = [f - load for f, load in zip(b, robot.forces(f_ext), strict=True)]
    parts = zip(joints.stages, robot.H, dH, robot.l, robot.M, b, torques, V, W, w, nu, xi, strict=True)
    at_once = len(joints.stages[-1].bodies) > LONG
    turning: list[Any] = [None if stage.is_base else part if at_once else _turning(*part) for stage, *part in parts]
    if has_base:
        force = b[0] + V[0].cross_force(robot.M[0] @ W[0])
        # xi of a base is its velocity
        turning[0] = TurningBase(V[0], force, torques[0], W[0], w[0] if normalised else None)
    start = ArticulatedInertia.zero(), Force.zero()
    if known or at_once:
        data: list[Any] = list(zip(robot.M, robot.own, robot.noise, turning, strict=True))
        if has_base:
            data[0] = robot.M[0], robot.H[0], robot.l[0], robot.noise[0], turning[0]
        step = _filter_and_turn_at_once if at_once else _filter_and_turn
        both = joints.walk.inward(step, (start[0], *start), data, _filter_and_turn_base)[1]
        if known:
            robot.use([factor for factor, _ in both])
        found = [x for _, x in both]
    else:
        data = [
            x if stage.is_base else (x, part.gains, tuple(part.P @ dh for dh in x.dH))
            for stage, x, part in zip(joints.stages, turning, robot.factor, strict=True)
        ]
        base_step = partial(_turn_known_base, robot.factor[0], robot.M[0]) if has_base else None
        found = joints.walk.inward(_turn_known, start, data, base_step)[1]
    if gravity:
        found = [tuple(map(plus, x, fall)) for x, fall in zip(found, robot.falling, strict=True)]
    return robot, found


def _pair(M: RigidInertia, V: Motion, W: Motion) -> Force:
    """Return the force that is left of one body's motion if V is not W, in the form that leaves S skew."""
    return 0.5 * (W.cross_force(M @ V) - V.cross_force(M @ W) + M @ V.cross(W))
