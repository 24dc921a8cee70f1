"""Dynamics of frames: operational space, for one frame or several (001 section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._checks import number
from jaxdyn._numerics import safe_sqrt
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.articulation import tile_of_rows
from jaxdyn.algorithms.rnea import bias_force, gravity_force
from jaxdyn.algorithms.velocities import jacobian_bias
from jaxdyn.model import Model
from jaxdyn.operators.dynamics import nearest_common, operational_inertias_inverse
from jaxdyn.operators.mechanism import Mechanism
from jaxdyn.operators.operator import Operator
from jaxdyn.operators.robot import SpatialOperators, spatial_operators
from jaxdyn.operators.steps import Frames
from jaxdyn.recursion import batched
from jaxdyn.spatial import ArticulatedInertia, Mat3, Sym3

Names = str | Sequence[str]


def _frames(model: Model, frame: Names, point: Any) -> tuple[tuple[str, ...], Any]:
    """Return names and points of one frame or several."""
    if isinstance(frame, str):
        return (frame,), None if point is None else [point]
    if not isinstance(frame, Sequence) or not all(isinstance(name, str) for name in frame):
        raise TypeError(f"frame must be the name of a body or frame, or a sequence of names; got {frame!r}")
    if point is not None and np.shape(point) != (len(frame), 3):
        raise ValueError(f"point must have shape ({len(frame)}, 3), one for each frame; got {np.shape(point)}")
    return tuple(frame), point


def _moving_frames(model: Model, frame: Names, point: Any) -> tuple[tuple[str, ...], Any]:
    """Return the same, or raise a ValueError if no joint moves one of them."""
    names, points = _frames(model, frame, point)
    for name in names:
        if not sum(model.topology.joints[k].nv for k in _inboard(model, name)):
            raise ValueError(f"frame {name!r} is fixed to the world: no joint moves it, so it shows no inertia")
    return names, points


def _inboard(model: Model, frame: str) -> list[int]:
    """Return the bodies from the one that carries a frame to the root."""
    found, body = [], model.body_index(frame)
    while body >= 0:
        found.append(body)
        body = model.parents[body]
    return found


def _damping(value: Any, dtype: Any) -> jax.Array:
    """Return a damping as an array; if its value is known, raise a ValueError unless it is finite and not negative."""
    delta = number("damping", value, dtype)
    if not isinstance(value, jax.core.Tracer) and not 0 <= float(np.asarray(value)) < np.inf:
        raise ValueError(f"damping must be finite and not negative; got {value}")
    return delta


def _at_frames(s: SpatialOperators, names: tuple[str, ...], points: Any, *, rigid: bool) -> jax.Array:
    """Return J M^-1 J*, or if rigid J J*, block by block: of two frames, through their nearest common body."""
    model = s.source.model
    bodies = [model.body_index(name) for name in names]
    Omega = operational_inertias_inverse(model, s.source.q, rigid=rigid)
    carry = (s.phi if rigid else s.psi) @ s.B(*names, points=points)
    x = carry.as_matrix().reshape((model.nbodies, 6, len(names), 6))
    common = nearest_common(model.parents)

    def block(i: int, j: int) -> jax.Array:
        c = int(common[bodies[i], bodies[j]])
        return jnp.zeros((6, 6), x.dtype) if c < 0 else x[c, :, i].T @ Omega[c] @ x[c, :, j]

    return jnp.block([[block(i, j) for j in range(len(names))] for i in range(len(names))])


def operational_space_inertia_inverse(model: Model, q: Any, frame: Names, point: Any = None) -> jax.Array:
    r"""Compute the acceleration of a frame by a force on it, other joint forces being zero.

    .. math:: \Lambda^{-1} = J M^{-1} J^T = B^* \Omega B

    Blocks between two frames are :math:`\psi^*(c, i)\,\Omega(c)\,\psi(c, j)`, c the nearest body inboard of both.
    In time proportional to the number of bodies.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        frame: name of a body or frame, or several. One that no joint moves is refused.
        point: a point in that frame, (3,), or in each, (frames, 3); their origins if not given.

    Returns:
        (6, 6), or (6 frames, 6 frames), world axes, [angular; linear], symmetric and at least positive semidefinite.

    Example:
        >>> import jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> jaxdyn.operators.operational_space_inertia_inverse(model, jaxdyn.neutral(model), "tool").shape
        (6, 6)
    """
    return _at_frames(spatial_operators(model, q), *_moving_frames(model, frame, point), rigid=False)


def operational_space_inertia(
    model: Model, q: Any, frame: Names, point: Any = None, *, rows: Any = None, damping: Any = None
) -> jax.Array:
    r"""Compute the inertia that a frame shows to forces on it.

    .. math:: \Lambda = (S J M^{-1} J^T S^T + \delta\,1)^{+}

    + is the inverse where the frame moves in all directions of the task. At singular poses, and of an arm with too few
    joints, it is the pseudo-inverse: directions in which the frame cannot move drop out, with inertia zero. An
    eigenvalue x becomes :math:`x^4 / (x^5 + c^5)`, with c the trace times :math:`\epsilon^{3/4}` (2e-12 in float64,
    6e-6 in float32): 1 / x where x is larger than c, zero where it is rounding, and smooth between the two.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        frame: name of a body or frame, or several.
        point: a point in that frame, (3,), or in each, (frames, 3); their origins if not given.
        rows: which of the 6 directions (of 6 frames: 6 each) are the task, in order; all if not given.
        damping: delta, 1/kg, not negative; zero if not given. If it is larger than c the inertia is 1 / delta at most,
            and just that in a direction in which the frame cannot move; nothing drops out.

    Returns:
        Lambda, (rows, rows), symmetric positive semidefinite; finite, with finite derivatives, at every pose.
    """
    inverse = operational_space_inertia_inverse(model, q, frame, point)
    return _inverted(inverse[_picked(rows, len(inverse))], damping)


def _picked(rows: Any, size: int) -> Any:
    """Return the index of a block of a matrix by the directions of the task."""
    return np.ix_(*[_rows(rows, size)] * 2)


def _rows(rows: Any, size: int) -> np.ndarray:
    index = np.arange(size) if rows is None else np.asarray(rows)
    if index.ndim != 1 or index.dtype.kind not in "iu" or not len(index) or index.min() < 0 or index.max() >= size:
        raise ValueError(f"rows must be numbers of directions, 0 to {size - 1}; got {rows!r}")
    if len(set(index.tolist())) < len(index):
        raise ValueError(f"rows must be different directions; got {rows!r}")
    return index


def _inverted(X: jax.Array, damping: Any) -> jax.Array:
    """Return (X + damping)^+: 1 / x of eigenvalues x that are more than rounding, zero of the others."""
    delta = _damping(0.0 if damping is None else damping, X.dtype)
    X = (X + X.T) / 2 + delta * jnp.eye(len(X), dtype=X.dtype)
    info = jnp.finfo(X.dtype)
    c = info.eps**0.75 * jnp.trace(X) + info.tiny**0.5
    return _powers_over(X / c)[-1] / c


_POWER = 5
_CYCLE = np.zeros((_POWER,) * 3)
for _i, _k in np.ndindex(_POWER, _POWER):
    _CYCLE[_i, _k, (_i + _k + 1) % _POWER] = 1 if _i + _k + 1 < _POWER else -1


@jax.custom_jvp
def _powers_over(X: jax.Array) -> jax.Array:
    """Return Y_j = X^j (1 + X^5)^-1 for j = 0 to 4, of a symmetric positive semidefinite matrix.

    By eigenvectors, so that rounding in directions that drop out does not reach the others; they may be several to an
    eigenvalue, where their derivatives do not exist. Those of all Y_j are in Y_j again:
    dY_j is the sum of Y_i dX Y_k over i + k + 1 = j, less that over i + k + 1 = j + 5.
    """
    x, U = jnp.linalg.eigh(X, symmetrize_input=False)
    x = jnp.maximum(x, 0)  # below is rounding
    y = jnp.stack([x**j / (1 + x**_POWER) for j in range(_POWER)])
    return jnp.einsum("ax,jx,bx->jab", U, y, U)


@_powers_over.defjvp
def _powers_over_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    Y = _powers_over(*primals)
    return Y, jnp.einsum("ikj,iab,bc,kcd->jad", jnp.asarray(_CYCLE, Y.dtype), Y, tangents[0], Y)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OperationalSpace:
    r"""The dynamics of a task, :math:`\Lambda \ddot x + \mu + p = F` with joint forces :math:`J^T F`.

    Directions in which the task cannot move drop out of all that has Lambda in it, unless there is damping (see
    `operational_space_inertia`): inertia, mu and p have no part in them, the consistent inverse takes none of an
    acceleration's, and 1 - Jbar J is the projector onto the accelerations that do not move the task, at singular poses
    and of arms with few joints too. With a damping it is one up to delta Lambda.
    """

    inertia: jax.Array
    """Lambda, (rows, rows)."""
    inertia_inverse: jax.Array
    """J M^-1 J*, (rows, rows)."""
    bias_acceleration: jax.Array
    """The rate of J times qd, (rows,)."""
    coriolis: jax.Array
    """mu = Lambda (J M^-1 C - Jdot qd), (rows,)."""
    gravity: jax.Array
    """p = Lambda J M^-1 g, (rows,)."""
    J: Operator
    """The Jacobian of all frames, before directions are picked."""
    by_forces: Operator
    """M^-1 J*, of all frames."""
    rows: tuple[int, ...] = field(metadata={"static": True})

    def jacobian(self, x: Any) -> jax.Array:
        """Return J x, (rows,) or (rows, k)."""
        return (self.J @ x)[np.array(self.rows)]

    def jacobian_T(self, F: Any) -> jax.Array:
        """Return J* F, joint forces of forces in the task's directions."""
        return self.J.T @ self._full(F)

    def consistent_inverse(self, x: Any) -> jax.Array:
        r"""Return :math:`\bar J x`, :math:`\bar J = M^{-1} J^T \Lambda`: the acceleration of least effort for x."""
        return self.by_forces @ self._full(self.inertia @ jnp.asarray(x))

    def consistent_inverse_T(self, tau: Any) -> jax.Array:
        r"""Return :math:`\bar J^T \tau`: the forces in the task's directions that joint forces amount to."""
        return self.inertia @ (self.by_forces.T @ tau)[np.array(self.rows)]

    def null_space(self, qdd: Any) -> jax.Array:
        r"""Return :math:`(1 - \bar J J)\,\ddot q`: what of an acceleration does not move the task."""
        return jnp.asarray(qdd) - self.consistent_inverse(self.jacobian(qdd))

    def null_space_T(self, tau: Any) -> jax.Array:
        r"""Return :math:`(1 - J^T \bar J^T)\,\tau`: what of joint forces does not accelerate the task."""
        return jnp.asarray(tau) - self.jacobian_T(self.consistent_inverse_T(tau))

    def _full(self, F: Any) -> jax.Array:
        F = jnp.asarray(F)
        if F.shape[:1] != (len(self.rows),):
            raise ValueError(f"a force or motion of the task has shape ({len(self.rows)},); got {F.shape}")
        return jnp.zeros((self.J.shape[0], *F.shape[1:]), F.dtype).at[np.array(self.rows)].set(F)


def operational_space_dynamics(
    model: Model, q: Any, qd: Any, frame: Names, point: Any = None, *, rows: Any = None, damping: Any = None
) -> OperationalSpace:
    r"""Compute the dynamics of a task: of one frame or several, in all directions or some.

    .. math:: \Lambda \ddot x + \mu + p = F

    In time proportional to the number of bodies. J, its dynamically consistent inverse and the projector onto its
    null space are applied without being formed.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        frame: name of a body or frame, or several.
        point: a point in that frame, (3,), or in each, (frames, 3); their origins if not given.
        rows: as in `operational_space_inertia`.
        damping: as in `operational_space_inertia`.

    Returns:
        The task's dynamics.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> q, qd = jaxdyn.neutral(model), jnp.ones(7)
        >>> task = jaxdyn.operators.operational_space_dynamics(model, q, qd, "tool", rows=(3, 4, 5))
        >>> tau = task.jacobian_T(task.coriolis + task.gravity) + task.null_space_T(-qd)  # the tool floats freely
        >>> tau.shape
        (7,)
    """
    s = spatial_operators(model, q)
    q, qd = arguments.vectors(model, q=q, qd=qd)
    names, points = _moving_frames(model, frame, point)
    J, B = s.J(*names, points=points), s.B(*names, points=points)
    picked = _rows(rows, J.shape[0])
    X = _at_frames(s, names, points, rigid=False)[np.ix_(picked, picked)]
    inertia = _inverted(X, damping)
    by_forces = s.m.inv().T @ s.L.inv() @ s.H @ s.psi @ B  # M^-1 J*, since (I - H psi K) H phi = H psi
    given = [None] * len(names) if points is None else points
    rate = jnp.concatenate([jacobian_bias(model, q, qd, name, p) for name, p in zip(names, given, strict=True)])[picked]
    weight = gravity_force(model, q)
    accelerations = by_forces.T @ jnp.stack([bias_force(model, q, qd) - weight, weight], axis=1)
    mu, p = (inertia @ (accelerations[picked] - jnp.stack([rate, jnp.zeros_like(rate)], axis=1))).T
    return OperationalSpace(inertia, X, rate, mu, p, J, by_forces, tuple(picked.tolist()))


def tip_force_acceleration(model: Model, q: Any, frame: Names, force: Any, point: Any = None) -> jax.Array:
    r"""Compute the change of the joint acceleration by a force that a frame exerts on its surroundings.

    .. math:: \Delta\ddot q = -M^{-1} J^T f = -(I - H\psi K)^* D^{-1} H \psi B f

    (001 (17)-(18)), in two sweeps.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        frame: name of a body or frame, or several.
        force: [moment; force] that the frame exerts, (6,) or (6 frames,), world axes, about its point.
        point: a point in that frame, (3,), or in each, (frames, 3); their origins if not given.

    Returns:
        (nv,), to be added to the acceleration without the force.
    """
    s = spatial_operators(model, q)
    names, points = _frames(model, frame, point)
    return -(s.m.inv().T @ s.L.inv() @ s.H @ s.psi @ s.B(*names, points=points)) @ force


def jacobian_gram(model: Model, q: Any, frame: Names, point: Any = None) -> jax.Array:
    r"""Compute :math:`J J^T` by the recursion of Omega with phi for psi and 1 for D (001 section 2).

    Arguments as in `operational_space_inertia_inverse`; (6, 6), or (6 frames, 6 frames).
    """
    return _at_frames(spatial_operators(model, q), *_frames(model, frame, point), rigid=True)


def manipulability(model: Model, q: Any, frame: Names, point: Any = None, *, rows: Any = None) -> jax.Array:
    r"""Compute the volume of the velocities of a frame at joint velocities of length one, :math:`\sqrt{\det J J^T}`.

    Arguments as in `operational_space_inertia`. Where the frame cannot move in all directions of the task it is zero up
    to the root of the determinant's rounding, about 1e-8 in float64. It has a kink there: its derivatives are zero if
    the determinant comes out as zero or less, else they are rounding.
    """
    gram = jacobian_gram(model, q, frame, point)
    return safe_sqrt(jnp.linalg.det(gram[_picked(rows, len(gram))]))


# ---------------------------------------------------------------------- the normal matrix of the Jacobian
def _normal_inverse(model: Model, q: Any, body: Any, r: Any, damping: Any) -> jax.Array:
    """Return (J* J + damping)^-1, (nv, nv, batch): the filter of a robot whose only inertia is 1, at the frame."""
    still = Mechanism(model, q, root_axes=False, columns=False)
    (points,) = [still.points(Frames(body[None], r[None]), 0)]
    one = ArticulatedInertia(Sym3.scalar(1.0), Mat3.zero(), Sym3.scalar(1.0))
    M = [here * one.shift(x) for here, x in points]
    noise = still.joints.rows(jnp.broadcast_to(damping, (model.nv, *damping.shape)), nothing=1.0)
    robot = Mechanism(model, q, root_axes=False, columns=True)
    robot.use(still.filtered(M, still.H, still.l, noise))
    x = robot.take("joint", jnp.eye(model.nv, dtype=q.dtype)[..., None])
    return robot.give("joint", robot.apply("m^-1", True, robot.apply("m^-1", False, x)))


_normal_inverse_of_state = batched(
    _normal_inverse,
    tile=tile_of_rows(width=lambda model: model.nv),
    like=lambda model, q, *_: jax.ShapeDtypeStruct((model.nv, model.nv), jnp.result_type(q, model.dtype)),
)


@partial(arguments.compiled)
def _normal_inverse_jitted(model: Model, q: Any, body: Any, r: Any, damping: Any) -> jax.Array:
    return _normal_inverse_of_state(model, q, body, r, damping)


def jacobian_normal_inverse(model: Model, q: Any, frame: str, point: Any = None, *, damping: Any = 0.0) -> jax.Array:
    r"""Compute :math:`(J^T J + \delta\,1)^{-1}` of an arm that is not redundant, by the filter (001 section 2).

    :math:`J^T J = H\phi B B^* \phi^* H^*` is the mass matrix of a robot without mass but for a unit inertia at the
    frame, so the factors of the mass matrix are its factors.

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        frame: name of a body or frame.
        point: a point in that frame, (3,); its origin if not given.
        damping: delta, not negative. Where it is zero all joints must move the frame, and not more than six: J must
            have full column rank, which fails at singular poses.

    Returns:
        (nv, nv).
    """
    s = spatial_operators(model, q)
    if not isinstance(frame, str):
        raise TypeError(f"frame must be the name of one body or frame; got {frame!r}")
    if not model.nv:
        return jnp.zeros((0, 0), s.I.dtype)
    moves, delta = _inboard(model, frame), _damping(damping, s.source.q.dtype)
    undamped = not isinstance(damping, jax.core.Tracer) and not np.all(np.asarray(damping))
    if undamped and (len(moves) < model.nbodies or model.nv > 6):
        raise ValueError(
            f"J* J of frame {frame!r} has no inverse: {len(moves)} of {model.nbodies} joints move it, with "
            f"{model.nv} degrees of freedom (at most 6); give a damping"
        )
    (at,) = s.B(frame, points=None if point is None else [point]).frames
    return _normal_inverse_jitted(model, s.source.q, at.body[0], at.point[0], delta)
