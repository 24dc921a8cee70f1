"""Dynamics of frames: operational space, for one frame or several (001 section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve

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
    if point is not None and np.shape(point) != (len(frame), 3):
        raise ValueError(f"point must have shape ({len(frame)}, 3), one for each frame; got {np.shape(point)}")
    return tuple(frame), point


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
        frame: name of a body or frame, or several.
        point: a point in that frame, (3,), or in each, (frames, 3); their origins if not given.

    Returns:
        (6, 6), or (6 frames, 6 frames), world axes, [angular; linear], symmetric and at least positive semidefinite.

    Example:
        >>> import jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> jaxdyn.operators.operational_space_inertia_inverse(model, jaxdyn.neutral(model), "tool").shape
        (6, 6)
    """
    return _at_frames(spatial_operators(model, q), *_frames(model, frame, point), rigid=False)


def operational_space_inertia(
    model: Model, q: Any, frame: Names, point: Any = None, *, rows: Any = None, damping: Any = None
) -> jax.Array:
    r"""Compute the inertia that a frame shows to forces on it.

    .. math:: \Lambda = (S J M^{-1} J^T S^T + \delta\,1)^{-1}

    Args:
        model: the model, without mimic joints.
        q: configuration, (nq,).
        frame: name of a body or frame, or several.
        point: a point in that frame, (3,), or in each, (frames, 3); their origins if not given.
        rows: which of the 6 directions (of 6 frames: 6 each) are the task, in order; all if not given.
        damping: delta, 1/kg. If not given, a few units in the last place of the mean of the diagonal: nothing
            where the frame moves in all directions of the task. In a direction in which it cannot move the inertia
            is 1 / delta: large, but finite, with finite derivatives.

    Returns:
        Lambda, (rows, rows), symmetric positive definite.
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
    least = 8 * jnp.finfo(X.dtype).eps * jnp.trace(X) / len(X) + jnp.finfo(X.dtype).tiny ** 0.5
    delta = least if damping is None else jnp.asarray(damping, X.dtype)
    one = jnp.eye(len(X), dtype=X.dtype)
    X = (X + X.T) / 2 + delta * one
    return cho_solve((jnp.linalg.cholesky(X), True), one)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OperationalSpace:
    r"""The dynamics of a task, :math:`\Lambda \ddot x + \mu + p = F` with joint forces :math:`J^T F`."""

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
    names, points = _frames(model, frame, point)
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

    Arguments as in `operational_space_inertia`. Zero where the frame cannot move in all directions of the task, with
    derivatives zero there.
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
        damping: delta. Where it is zero all joints must move the frame, and not more than six: J must have full
            column rank, which fails at singular poses.

    Returns:
        (nv, nv).
    """
    s = spatial_operators(model, q)
    if not isinstance(frame, str):
        raise TypeError(f"frame must be the name of one body or frame; got {frame!r}")
    if not model.nv:
        return jnp.zeros((0, 0), s.I.dtype)
    body = model.body_index(frame)
    moves, outboard = set(), body
    while outboard >= 0:
        moves.add(outboard)
        outboard = model.parents[outboard]
    undamped = not isinstance(damping, jax.core.Tracer) and not np.all(np.asarray(damping))
    if undamped and (len(moves) < model.nbodies or model.nv > 6):
        raise ValueError(
            f"J* J of frame {frame!r} has no inverse: {len(moves)} of {model.nbodies} joints move it, with "
            f"{model.nv} degrees of freedom (at most 6); give a damping"
        )
    (at,) = s.B(frame, points=None if point is None else [point]).frames
    damping = jnp.asarray(damping, s.source.q.dtype)
    return _normal_inverse_jitted(model, s.source.q, at.body[0], at.point[0], damping)
