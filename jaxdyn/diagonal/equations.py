r"""The diagonalised equations of motion, nu' + C(q, nu) = eps, for all joint types (002 section 7).

The filter of the mass matrix is differentiated along the motion, in axes that move with each body. There a body's own
inertia is constant, and crossing its joint turns everything by the velocity across it. With the articulated inertia
P, its rate P', the gains G = P H* L^-*, the root L of D, the velocities V, and per column i

    C_i = h_i . y / L_ii - L_ii' qd_i - G_i' . W_i,           W_i = V+ + sum of h_j qd_j over j after i,
    y   = sum over children of phi (y - G L^-1 H y + P+ c) + V x* M V,        c = V x V_J + H*' qd

so that nu . C = 0 whatever the joints (for one degree of freedom this is Algorithm 7.1). C is S(q, nu) nu with S
skew: the same sweep gives S(q, nu) w, of any w with velocities W.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.aba import Gain, require_regular, smooth
from jaxdyn.algorithms.articulation import Rows, like_vector, tile_of_rows
from jaxdyn.joints import combine
from jaxdyn.model import Model
from jaxdyn.operators.mechanism import Mechanism
from jaxdyn.operators.steps import BASE_SWEEPS, BODY_BY_BODY, Base, Factor
from jaxdyn.recursion import batched
from jaxdyn.spatial import ArticulatedInertia, Force, Motion, Vec3
from jaxdyn.spatial.components import minus, plus, times

WHAT = "the diagonalised equations of motion"


# ---------------------------------------------------------------------- velocities
def _move(inboard: Motion, body: Any) -> Any:
    """Find the rates of a joint and its body's velocity from total joint rates (002 Table 1)."""
    V, qd = smooth(inboard, body)
    return V, (V, qd)


def _move_base(base: Base, world: Motion, nu: Rows) -> Any:
    V, qd = BASE_SWEEPS["m^-1"][1](base, world, nu)
    return V, (V, qd)


def _motions(robot: Mechanism, rows: list[Rows]) -> tuple[list[Motion], list[Rows]]:
    """Return velocities of the bodies and rates of the joints, of total joint rates, by stage."""
    gains = [part.gains for part in robot.factor]
    bodies: list[Any] = [((H, l, G), x) for H, l, G, x in zip(robot.H, robot.l, gains, rows, strict=True)]
    base_step = None
    if isinstance(base := gains[0], Base):
        bodies[0], base_step = rows[0], partial(_move_base, base)
    moved = robot.joints.walk.outward(_move, Motion.zero(), bodies, base_step)
    return [V for V, _ in moved], [qd for _, qd in moved]


# ---------------------------------------------------------------------- the rates of the filter
class Turning(NamedTuple):
    """A joint in motion as the sweep of rates sees it: all but H and b about the origin of the parent."""

    H: tuple[Motion, ...]
    b: Force
    """Forces of motion of the body."""
    l: Vec3
    columns: tuple[Motion, ...]
    """H."""
    dH: tuple[Motion, ...]
    """Rates of the columns."""
    gains: tuple[Gain, ...]
    P: ArticulatedInertia
    """P+."""
    V_J: Motion
    """Velocity across the joint."""
    c: Motion
    """Acceleration across the joint by motion alone."""
    W: tuple[Motion, ...]
    """By column, the velocity that all columns after it leave, less H* xi."""
    w: Rows
    """Rates of the joint, less xi."""
    turned: tuple[Motion, ...]
    """By column, H*' times the rates up to it, and xi after it."""
    tau: Rows


def _turn(outboard: Any, joint: Turning) -> Any:
    """Cross a joint inward with the rate of P and with y; return the rate of nu of each column."""
    (dP, y), j = outboard, joint
    y = y + j.b
    z = y.shift(j.l)  # y about the parent's origin, to be corrected by the innovations e
    dG: list[Force] = []
    e: list[Any] = []
    found = []
    for i, (h, column, dh, (G, root)) in enumerate(zip(j.H, j.columns, j.dH, j.gains, strict=True)):
        dPh, force = dP @ h, y.dot(h)
        dU, dD = dPh.shift(j.l) + j.P @ dh, plus(dPh.dot(h), times(2 * root, G.dot(dh)))
        for later, _ in j.gains[i:]:  # what P is before the columns after are eliminated
            dU = dU + later.dot(dh) * later
        for k, (before, _) in enumerate(j.gains[:i]):
            along, turning = before.dot(column), dG[k].dot(column)
            dU, dD, force = dU - turning * before - along * dG[k], dD - 2 * turning * along, force + e[k] * along
        root_rate = dD / (2 * root)
        dG.append((dU - root_rate * G) / root)
        e.append((j.tau[i] - force) / root)
        found.append(minus(e[i] + root_rate * j.w[i] + dG[i].dot(j.W[i]), G.dot(j.turned[i])))
        z = z + e[i] * G
    dP = dP.shift(j.l) + j.P.moved(j.V_J)
    for (G, _), rate in zip(j.gains, dG, strict=True):
        dP = dP.minus_pair(G, rate)
    return (dP, z + j.P @ j.c), tuple(found)


def _turn_base(base: Base, outboard: Any, joint: Any) -> Any:
    """Cross the joint of a floating base, which hands nothing on, and whose columns are fixed in it."""
    (dP, y), (b, w, tau) = outboard, joint
    half = (base.L_inverse[:, :, None] * base.H[None]).sum(1)  # L^-1 H
    rate = (half[:, :, None] * dP.to_array()[None]).sum(1)
    rate = (rate[:, None] * half[None]).sum(2)  # L^-1 D' L^-*
    lower = np.tril(np.ones((6, 6))) - 0.5 * np.eye(6)
    rate = jnp.asarray(lower, rate.dtype).reshape((6, 6) + (1,) * (rate.ndim - 2)) * rate  # L^-1 L'
    e = BASE_SWEEPS["m^-1"][0](base, y + b, tau)[1]
    moved = jnp.stack(BODY_BY_BODY["L"][1](None, Factor(dP, dP, base), w))
    found = tuple(a + (rate[:, i] * moved).sum(0) for i, a in enumerate(e))
    return (ArticulatedInertia.zero(), Force.zero()), found


def _turning(
    factor: Factor, H: Any, dH: Any, l: Vec3, b: Force, tau: Rows, V_J: Motion, W: Motion, w: Rows, xi: Rows
) -> Turning:
    """Bring together what the sweep of rates needs of a joint."""
    columns, dH = (tuple(h.shift(-l) for h in hs) for hs in (H, dH))
    gains = tuple(Gain(G.shift(l), root) for G, root in factor.gains)
    V_J, rest = V_J.shift(-l), tuple(minus(a, b) for a, b in zip(w, xi, strict=True))
    W = W.shift(-l) - combine(columns, w)
    c = W.cross(V_J) + combine(dH, w)
    after, turned = [W], [combine(dH, xi)]
    for h, x in zip(columns[:0:-1], rest[:0:-1], strict=True):
        after.insert(0, after[0] + x * h)
    for dh, x in zip(dH, rest, strict=True):
        turned.append(turned[-1] + x * dh)
    return Turning(H, b, l, columns, dH, gains, factor.handed_on, V_J, c, tuple(after), rest, tuple(turned[1:]), tau)


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
    joints = robot.joints
    nothing = [(0.0,) * stage.width for stage in joints.stages]
    if qd is None:
        rows = joints.rows(rates)
        V, beta = _motions(robot, rows if normalised else robot.apply("L", True, rows))
        qd = joints.collect(beta)
    else:
        V, beta = robot.V, joints.rows(qd)
    W, w = (V, beta) if other is None else _motions(robot, joints.rows(other))
    b = [_force(M, *both) for M, *both in zip(robot.M, V, W, strict=True)]
    if gravity:
        b = [f - load for f, load in zip(b, robot.loads(f_ext), strict=True)]
    torques = nothing if tau is None else joints.rows(tau)
    xi = nothing if normalised else joints.rows(rates)
    V_J = [combine(H, x) for H, x in zip(robot.H, beta, strict=True)]
    parts = [robot.factor, robot.H, robot.column_rates(q, qd), robot.l, b, torques, V_J, W, w, xi]
    data: list[Any] = [None if stage.is_base else _turning(*x) for stage, *x in zip(joints.stages, *parts, strict=True)]
    base_step = None
    if isinstance(base := robot.factor[0].gains, Base):
        rest = tuple(minus(a, b) for a, b in zip(w[0], xi[0], strict=True))
        data[0], base_step = (b[0], rest, torques[0]), partial(_turn_base, base)
    start = ArticulatedInertia.zero(), Force.zero()
    return robot, joints.walk.inward(_turn, start, data, base_step)[1]


def _force(M: Any, V: Motion, W: Motion) -> Force:
    """Return V x* M V; of two velocities, the form that leaves S skew."""
    if W is V:
        return V.cross_force(M @ V)
    return 0.5 * (V.cross_force(M @ W) + W.cross_force(M @ V) + M @ V.cross(W))


# ---------------------------------------------------------------------- kernels, arrays (..., batch)
def _coriolis(model: Model, q: Any, nu: Any, w: Any) -> jax.Array:
    robot, found = accelerations(model, q, nu, other=w)
    return -robot.joints.collect(found)


def _drift(model: Model, q: Any, nu: Any, f_ext: Any) -> jax.Array:
    robot, found = accelerations(model, q, nu, gravity=True, f_ext=f_ext)
    return robot.joints.collect(found)


def _coriolis_xi(model: Model, q: Any, xi: Any) -> jax.Array:
    robot, found = accelerations(model, q, xi, normalised=False)
    return -robot.joints.collect(robot.apply("L", False, found))


def _forward_dynamics_xi(model: Model, q: Any, xi: Any, tau: Any, f_ext: Any, qd: Any) -> jax.Array:
    robot, found = accelerations(model, q, xi, normalised=False, gravity=True, tau=tau, f_ext=f_ext, qd=qd)
    return robot.joints.collect(robot.apply("L^-1", True, found))


TILE = tile_of_rows(per_body=90, row=2048)
_coriolis_of_state, _drift_of_state, _coriolis_xi_of_state, _forward_dynamics_xi_of_state = (
    batched(kernel, tile=TILE, like=lambda model, q, rates, *rest: like_vector(rates, model, q, rest))
    for kernel in (_coriolis, _drift, _coriolis_xi, _forward_dynamics_xi)
)


# ---------------------------------------------------------------------- functions of one state
def prepared(model: Model) -> Model:
    """Check a model at the door, and return what motion depends on."""
    arguments.require_model(model)
    arguments.refuse_mimic(model, WHAT)
    require_regular(model)
    return model.moving


@jax.jit
def _coriolis_jitted(model: Model, q: Any, nu: Any, w: Any) -> jax.Array:
    if w is None:
        q, nu = arguments.vectors(model, q=q, nu=nu)
    else:
        q, nu, w = arguments.vectors(model, q=q, nu=nu, w=w)
    return _coriolis_of_state(model, q, nu, w) if model.nv else nu


def coriolis(model: Model, q: Any, nu: Any) -> jax.Array:
    r"""Compute the Coriolis term of the diagonalised equations of motion, without gravity.

    .. math:: \dot\nu + C(q, \nu) = \epsilon, \qquad \nu^* C(q, \nu) = 0

    For joints of one degree of freedom this is Algorithm 7.1 of 002; for all others its generalisation, in which the
    rate of the filter is taken column by column. Time is proportional to the number of bodies. Twins:
    `coriolis_autodiff`, and for joints of one degree of freedom `coriolis_closed_form`.

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused.
        q: configuration, (nq,).
        nu: total joint rates, (nv,).

    Returns:
        C, (nv,).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> q, nu = jnp.ones(7), jnp.arange(7.0)
        >>> C = jaxdyn.diagonal.coriolis(model, q, nu)
        >>> bool(abs(nu @ C) < 1e-5 * jnp.linalg.norm(nu) * jnp.linalg.norm(C))  # it does no work
        True
    """
    return _coriolis_jitted(prepared(model), q, nu, None)


def coriolis_product(model: Model, q: Any, nu: Any, w: Any) -> jax.Array:
    r"""Compute S(q, nu) w, where S is skew-symmetric, linear in nu, and S(q, nu) nu is the Coriolis term.

    .. math:: S(q, \nu)\, w = m^{-1} C(q, \dot q)\, m^{-*} w - \dot m^* m^{-*} w

    with :math:`\dot q = m^{-*} \nu` and the matrix of `jaxdyn.coriolis_matrix`, whose difference to half the rate of
    the mass matrix is skew. Time is proportional to the number of bodies.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        nu: total joint rates that the matrix is taken at, (nv,).
        w: vector that it is multiplied by, (nv,).

    Returns:
        S w, (nv,); w* S w is zero.
    """
    return _coriolis_jitted(prepared(model), q, nu, w)


@jax.jit
def _coriolis_xi_jitted(model: Model, q: Any, xi: Any) -> jax.Array:
    q, xi = arguments.vectors(model, q=q, xi=xi)
    return _coriolis_xi_of_state(model, q, xi) if model.nv else xi


def coriolis_xi(model: Model, q: Any, xi: Any) -> jax.Array:
    r"""Compute the Coriolis term of the equations of motion in total joint rates that are not normalised.

    .. math:: D \dot\xi + C(q, \xi) = \kappa, \qquad \kappa = (I - H \psi K)\, \tau = L\, \epsilon

    (002 Lemma 7.3). It is simpler than the normalised one, but not orthogonal to the rates.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        xi: total joint rates, (nv,), as of `to_xi`.

    Returns:
        C, (nv,), without gravity.
    """
    return _coriolis_xi_jitted(prepared(model), q, xi)


@jax.jit
def _forward_dynamics_jitted(model: Model, q: Any, nu: Any, eps: Any, f_ext: Any) -> jax.Array:
    q, nu, eps = arguments.vectors(model, q=q, nu=nu, eps=eps)
    return eps + _drift_of_state(model, q, nu, arguments.forces(model, f_ext)) if model.nv else nu


def forward_dynamics(model: Model, q: Any, nu: Any, eps: Any, *, f_ext: Any = None) -> jax.Array:
    r"""Compute the rates of the total joint rates under working moments, the model's gravity, and external forces.

    .. math:: \dot\nu = \epsilon - C(q, \nu) - m^{-1} (g(q) - J^T f_{ext})

    It is the motion of `jaxdyn.forward_dynamics`, in other coordinates (002 (3.1)).

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused.
        q: configuration, (nq,).
        nu: total joint rates, (nv,).
        eps: working moments of the joint forces, (nv,).
        f_ext: force on each body, (nbodies, 6), as in `jaxdyn.forward_dynamics`.

    Returns:
        nu', (nv,).
    """
    return _forward_dynamics_jitted(prepared(model), q, nu, eps, f_ext)


@jax.jit
def _forward_dynamics_xi_jitted(model: Model, q: Any, xi: Any, tau: Any, f_ext: Any, qd: Any) -> jax.Array:
    if qd is None:
        q, xi, tau = arguments.vectors(model, q=q, xi=xi, tau=tau)
    else:
        q, xi, tau, qd = arguments.vectors(model, q=q, xi=xi, tau=tau, qd=qd)
    f_ext = arguments.forces(model, f_ext)
    return _forward_dynamics_xi_of_state(model, q, xi, tau, f_ext, qd) if model.nv else xi


def forward_dynamics_xi(model: Model, q: Any, xi: Any, tau: Any, *, f_ext: Any = None, qd: Any = None) -> jax.Array:
    r"""Compute the rates of total joint rates that are not normalised (002 (8.1)-(8.3)).

    .. math:: \dot\xi = D^{-1} [\tau - H \psi \zeta]

    with all forces of motion inside one sweep inward, together with the filter. What it needs of the velocities comes
    from an outward sweep, which has to know the gains; where the velocity is known already, as in `step_xi`, no sweeps
    but these two remain.

    Args:
        model: the model, without mimic joints. A joint that moves no inertia is refused.
        q: configuration, (nq,).
        xi: total joint rates, (nv,).
        tau: joint forces, (nv,).
        f_ext: force on each body, (nbodies, 6).
        qd: the velocity that belongs to xi, (nv,), if it is known.

    Returns:
        xi', (nv,).
    """
    return _forward_dynamics_xi_jitted(prepared(model), q, xi, tau, f_ext, qd)
