"""Forward dynamics: the articulated-body algorithm as filter and smoother (000 VIII; 003 (27)-(28); 004 (12)-(14))."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple
from weakref import WeakSet

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from jaxdyn._checks import ModelError
from jaxdyn._numerics import invert_rows, solve_rows
from jaxdyn.algorithms import arguments, implicit
from jaxdyn.algorithms.articulation import Articulation, Rows, articulation, like_vector, tile_of_rows
from jaxdyn.algorithms.crba import mass_matrix
from jaxdyn.algorithms.dense import Form, forward_dynamics_dense, in_all_forms
from jaxdyn.algorithms.motion import (
    joint_columns,
    link_inertias,
    loaded_links,
    placed_links,
)
from jaxdyn.algorithms.rnea import bias_force
from jaxdyn.model import Model
from jaxdyn.model.consistency import massless_joints_of
from jaxdyn.recursion import Known, tiled
from jaxdyn.spatial import ArticulatedInertia, Force, Motion, Vec3

LONG = 24
"""Steps of a sweep from which on the forces of motion are worked out within it (measured)."""


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
    gains: list[Gain] = []
    for h, A in zip(H, armature, strict=True):
        U = P @ h
        for G, _ in gains:
            U = U - G.dot(h) * G
        root = jnp.sqrt(U.dot(h) + A)
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


def _filter(outboard: Any, body: Any) -> Any:
    """Predict across the link, correct across the joint (000 (36)-(43))."""
    (P, z), (M, b, H, l, tau, armature) = outboard, body
    P = P.plus_rigid(M)
    gains = gains_of(P, H, armature)
    z, innovations = innovations_of(z + b, H, gains, tau)
    return (corrected(P, gains, l), z.shift(l)), (gains, innovations)


def _base_matrix(P: ArticulatedInertia, armature: Rows) -> jax.Array:
    """Return the inertia that a floating base moves, whose columns are the identity, (6, 6, ...)."""
    matrix = P.to_array()
    return matrix + _one_like(matrix) * jnp.stack(armature)[:, None]


def _one_like(matrix: jax.Array) -> jax.Array:
    """Return the identity with as many axes."""
    return jnp.eye(6, dtype=matrix.dtype).reshape((6, 6) + (1,) * (matrix.ndim - 2))


def _force_on_base(z: Force, tau: Rows) -> jax.Array:
    """Return tau - z, (6, ...)."""
    return jnp.stack(jnp.broadcast_arrays(*(t - f for t, f in zip(tau, (*z.ang, *z.lin), strict=True))))


def _solve_base(outboard: Any, body: Any, keep: bool) -> Any:
    """Cross the joint of a floating base, which hands nothing on: P a = tau - z (000 (44)).

    Return the inverse of its inertia, if it is to be kept, and its acceleration.
    """
    (P, z), (M, b, _, _, tau, armature) = outboard, body
    matrix, force = _base_matrix(P.plus_rigid(M), armature), _force_on_base(z + b, tau)
    inverse = invert_rows(matrix) if keep else None
    a = solve_rows(matrix, force) if inverse is None else _times(inverse, force)
    return (ArticulatedInertia.zero(), Force.zero()), (inverse, tuple(a))


def _times(matrix: jax.Array, x: jax.Array) -> jax.Array:
    return (matrix * x[None]).sum(1)


def _factor_base(outboard: ArticulatedInertia, body: Any) -> Any:
    """Cross the joint of a floating base: all that is needed of it is the inverse of its inertia."""
    M, _, _, armature = body
    return ArticulatedInertia.zero(), invert_rows(_base_matrix(outboard.plus_rigid(M), armature))


def _solve_base_for_torques(inverse: jax.Array, outboard: Force, tau: Rows) -> Any:
    """Cross the joint of a floating base, the inverse of its inertia being known."""
    return Force.zero(), tuple(_times(inverse, _force_on_base(outboard, tau)))


def _move_base(world: Motion, qdd: Any) -> Any:
    """Hand on the acceleration of a floating base."""
    return Motion(Vec3(*qdd[:3]), Vec3(*qdd[3:])), qdd


def _factor(outboard: ArticulatedInertia, body: Any) -> Any:
    """Find the articulated inertias and gains alone (000 (36)-(41))."""
    M, H, l, armature = body
    P = outboard.plus_rigid(M)
    gains = gains_of(P, H, armature)
    return corrected(P, gains, l), gains


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


def _armature(joints: Articulation, model: Model) -> list[Rows]:
    """Return the armature of each column; a column that is not there is too heavy to move."""
    return joints.rows(model.armature, nothing=jnp.inf)


def _filtered(model: Model, q: Any, qd: Any, tau: Any, f_ext: Any, base_motion: Any, *, keep: bool) -> Any:
    """Sweep inward: return the factor of the mass matrix by stage (see `_solved`), and the innovations."""
    joints = articulation(model.topology)
    links = joints.links(model, q)
    at_once = len(joints.walk.stages[-1]) > LONG
    loaded = loaded_links(joints, model, links, q, qd, None, f_ext, base_motion, at_once=at_once)
    bodies = [(*link, *rest) for link, *rest in zip(loaded, joints.rows(tau), _armature(joints, model), strict=True)]
    base_step = partial(_solve_base, keep=keep)
    _, filtered = joints.walk.inward(_filter, (ArticulatedInertia.zero(), Force.zero()), bodies, base_step)
    stages = list(zip(joints.stages, loaded, filtered, strict=True))
    factor = [x[0] if stage.is_base else (link.H, link.l, x[0]) for stage, link, x in stages]
    return joints, factor, [x[1] for x in filtered]


def _smoothed(joints: Articulation, factor: list[Any], innovations: list[Any]) -> jax.Array:
    """Sweep outward, (nv, batch). What a base has of innovations is its acceleration."""
    stages = zip(joints.stages, factor, innovations, strict=True)
    bodies = [e if stage.is_base else (part, e) for stage, part, e in stages]
    return joints.collect(joints.walk.outward(smooth, Motion.zero(), bodies, _move_base))


def _forward_dynamics(*args: Any) -> jax.Array:
    return _smoothed(*_filtered(*args, keep=False))


def _forward_dynamics_and_factor(*args: Any) -> tuple[jax.Array, list[Known]]:
    joints, factor, innovations = _filtered(*args, keep=True)
    return _smoothed(joints, factor, innovations), [Known.of(part) for part in factor]


def _solved(model: Model, tau: Any, factor: list[Known]) -> jax.Array:
    """Return the accelerations by torques alone, (nv, batch).

    The factor has of every joint (H, l, gains), and of a floating base the inverse of its inertia.
    """
    joints, parts = articulation(model.topology), [part.tree() for part in factor]
    stages = zip(joints.stages, parts, joints.rows(tau), strict=True)
    bodies = [torques if stage.is_base else (part, torques) for stage, part, torques in stages]
    base_step = partial(_solve_base_for_torques, parts[0])
    return _smoothed(joints, parts, joints.walk.inward(whiten, Force.zero(), bodies, base_step)[1])


def _mass_matrix_inverse(model: Model, q: Any) -> jax.Array:
    """Return the inverse of the mass matrix, (nv, nv, batch): the accelerations by all unit torques at once."""
    joints = articulation(model.topology)
    links = joints.links(model, q)
    placed = placed_links(joints, links)
    M, H, l = link_inertias(joints, model, links, placed), joint_columns(links, placed), [m.l for m in placed]
    bodies = list(zip(M, H, l, _armature(joints, model), strict=True))
    _, gains = joints.walk.inward(_factor, ArticulatedInertia.zero(), bodies, _factor_base)
    factor = [x[-1] if stage.is_base else x for stage, *x in zip(joints.stages, H, l, gains, strict=True)]
    # The torques are an axis before the batch.
    factor = jax.tree.map(lambda x: x if type(x) is float else x[..., None, :], factor)
    return _solved(model, jnp.eye(model.nv, dtype=q.dtype)[..., None], [Known.of(part) for part in factor])


_factored = tiled(_forward_dynamics_and_factor, tile=tile_of_rows())
_solve = tiled(_solved, tile=tile_of_rows(), like=lambda model, tau, factor: like_vector(tau, factor))
_forward_dynamics_of_state = in_all_forms(
    _forward_dynamics,
    forward_dynamics_dense,
    make=lambda kernel, **options: implicit.acceleration(tiled(kernel, **options), _factored, _solve),
    like=lambda model, q, qd, tau, *rest: like_vector(tau, model, q, qd, rest),
    single_from=8,  # about one point for the whole robot, light links are differences of large numbers
)
_mass_matrix_inverse_of_state = implicit.inverse(
    tiled(_mass_matrix_inverse, tile=tile_of_rows(row=20_000, width=lambda model: model.nv))
)
_regular: WeakSet[Model] = WeakSet()


def require_regular(model: Model) -> None:
    """Raise a ModelError if a joint moves no inertia; a model is looked at once, and not while it is traced."""
    if model in _regular or any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(model.moving)):
        return
    model.moving.require_single()
    with jax.ensure_compile_time_eval():  # joints of users' own types are differentiated by JAX
        problems = [message for _, message in massless_joints_of(model)]
    if problems:
        raise ModelError("; ".join(problems))
    _regular.add(model)


def forward_dynamics(
    model: Model, q: Any, qd: Any, tau: Any, *, f_ext: Any = None, base_motion: Any = None, form: Form = "auto"
) -> jax.Array:
    r"""Compute the acceleration that given joint forces cause.

    .. math:: \ddot q = M(q)^{-1} (\tau + J^T f_{ext} - b(q, \dot q))

    The matrix is never formed: the articulated-body algorithm takes time proportional to the number of
    bodies. Springs, damping and friction are not included: add `passive_force`. Models with mimic joints
    are solved with their mass matrix.

    Args:
        model: the model. A joint that moves no inertia is refused: give it armature, or lock it.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        tau: joint forces, (nv,).
        f_ext: force on each body, (nbodies, 6), [moment; force] about the body's origin, in its axes.
        base_motion: as in `inverse_dynamics`.
        form: "sweep" for the articulated-body algorithm, "dense" for the mass
            matrix and its Cholesky factor, in float64 only. "auto" takes matrices for a single
            state in float64 of a model with at most 48 degrees of freedom; recursions otherwise.

    Returns:
        qdd, (nv,).

    Example:
        >>> import jax, jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("quadruped")
        >>> q, qd = jaxdyn.neutral(model), jnp.zeros(18)
        >>> qdd = jaxdyn.forward_dynamics(model, q, qd, jnp.zeros(18))
        >>> round(float(qdd[5]), 3)  # it falls
        -9.81
    """
    arguments.require_model(model)
    require_regular(model)
    return _forward_dynamics_jitted(model.moving, q, qd, tau, f_ext, base_motion, form)


@partial(jax.jit, static_argnums=6)
def _forward_dynamics_jitted(
    model: Model, q: Any, qd: Any, tau: Any, f_ext: Any, base_motion: Any, form: Form
) -> jax.Array:
    q, qd, tau = arguments.vectors(model, q=q, qd=qd, tau=tau)
    of_state = _forward_dynamics_of_state(form)
    if not model.nv:
        return tau
    if model.topology.mimic_names:
        rest = tau - bias_force(model, q, qd, f_ext=f_ext, base_motion=base_motion, form=form)
        factor = _factor_of_mass_matrix(model, q, form)
        return implicit.solution(model, q, rest, lambda b: cho_solve((factor, True), b))
    f_ext, base_motion = arguments.forces(model, f_ext), arguments.motion(model, base_motion)
    return of_state(model, q, qd, tau, f_ext, base_motion)


def mass_matrix_inverse(model: Model, q: Any) -> jax.Array:
    r"""Compute the inverse of the mass matrix, without the matrix, in time proportional to its size.

    .. math:: M^{-1} = (I - H \psi K)^* D^{-1} (I - H \psi K)

    Args:
        model: the model. A joint that moves no inertia is refused: give it armature, or lock it.
        q: configuration, (nq,).

    Returns:
        The inverse, (nv, nv), symmetric up to rounding.
    """
    arguments.require_model(model)
    require_regular(model)
    return _mass_matrix_inverse_jitted(model, q)


@arguments.compiled
def _mass_matrix_inverse_jitted(model: Model, q: Any) -> jax.Array:
    (q,) = arguments.vectors(model, q=q)
    if not model.nv:
        return jnp.zeros((0, 0), q.dtype)
    if model.topology.mimic_names:
        return _mass_matrix_inverse_by_factor(model, q)
    return _mass_matrix_inverse_of_state(model, q)


def _factor_of_mass_matrix(model: Model, q: jax.Array, form: Form) -> jax.Array:
    """Return the Cholesky factor of the mass matrix, of use for solutions whose derivatives do not go through it."""
    model, q = jax.lax.stop_gradient((model, q))
    return jax.lax.linalg.cholesky(mass_matrix(model, q, form=form), symmetrize_input=False)


@implicit.inverse
def _mass_matrix_inverse_by_factor(model: Model, q: jax.Array) -> jax.Array:
    return cho_solve((_factor_of_mass_matrix(model, q, "auto"), True), jnp.eye(model.nv, dtype=q.dtype))
