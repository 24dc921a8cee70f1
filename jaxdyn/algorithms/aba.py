"""Forward dynamics: the articulated-body algorithm as filter and smoother (000 VIII; 003 (27)-(28); 004 (12)-(14))."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakSet

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from jaxdyn._checks import ModelError
from jaxdyn._compiling import jit
from jaxdyn._numerics import invert_rows, solve_rows
from jaxdyn.algorithms import arguments, coupled, implicit
from jaxdyn.algorithms.articulation import Articulation, Rows, articulation, like_vector, matrix_like, tile_of_rows
from jaxdyn.algorithms.crba import mass_matrix
from jaxdyn.algorithms.dense import LARGEST, Form, forward_dynamics_dense, in_all_forms
from jaxdyn.algorithms.filtering import (
    base_matrix,
    corrected,
    factored,
    force_on_base,
    gains_with_link,
    innovations_of,
    smoothed,
    solved,
    times,
    with_columns,
)
from jaxdyn.algorithms.motion import loaded_links
from jaxdyn.algorithms.rnea import bias_force
from jaxdyn.model import Model
from jaxdyn.model.consistency import massless_joints_of
from jaxdyn.recursion import Known, batched, tiled
from jaxdyn.spatial import ArticulatedInertia, Force

LONG = 24
"""Steps of a sweep from which on the forces of motion are worked out within it (measured)."""


def _filter(outboard: Any, body: Any) -> Any:
    """Predict across the link, correct across the joint (000 (36)-(43))."""
    (P, z), (M, b, H, l, own, tau, armature) = outboard, body
    gains = gains_with_link(P, M, own, H, armature)
    z, innovations = innovations_of(z + b, H, gains, tau)
    return (corrected(P.plus_rigid(M), gains, l), z.shift(l)), (gains, innovations)


def _solve_base(outboard: Any, body: Any, keep: bool) -> Any:
    """Cross the joint of a floating base, which hands nothing on: P a = tau - z (000 (44)).

    Return the inverse of its inertia, if it is to be kept, and its acceleration.
    """
    (P, z), (M, b, _, _, _, tau, armature) = outboard, body
    matrix, force = base_matrix(P, M, armature), force_on_base(z + b, tau)
    inverse = invert_rows(matrix) if keep else None
    a = solve_rows(matrix, force) if inverse is None else times(inverse, force)
    return (ArticulatedInertia.zero(), Force.zero()), (inverse, tuple(a))


def _armature(joints: Articulation, model: Model) -> list[Rows]:
    """Return the armature of each column; a column that is not there is too heavy to move."""
    return joints.rows(model.armature, nothing=jnp.inf)


def _filtered(model: Model, q: Any, qd: Any, tau: Any, f_ext: Any, base_motion: Any, *, keep: bool) -> Any:
    """Sweep inward: return the factor of the mass matrix by stage (see `filtering.factored`), and the innovations."""
    joints = articulation(model.topology)
    links = joints.links(model, q)
    at_once = len(joints.walk.stages[-1]) > LONG
    loaded = loaded_links(joints, model, links, q, qd, None, f_ext, base_motion, at_once=at_once, own=True)
    bodies = [(*link, *rest) for link, *rest in zip(loaded, joints.rows(tau), _armature(joints, model), strict=True)]
    base_step = partial(_solve_base, keep=keep)
    _, filtered = joints.walk.inward(_filter, (ArticulatedInertia.zero(), Force.zero()), bodies, base_step)
    stages = list(zip(joints.stages, loaded, filtered, strict=True))
    factor = [x[0] if stage.is_base else (link.H, link.l, x[0]) for stage, link, x in stages]
    return joints, factor, [x[1] for x in filtered]


def _forward_dynamics(*args: Any) -> jax.Array:
    joints, factor, innovations = _filtered(*args, keep=False)
    return joints.collect(smoothed(joints, factor, innovations))


def _forward_dynamics_and_factor(*args: Any) -> tuple[jax.Array, list[Known]]:
    joints, factor, innovations = _filtered(*args, keep=True)
    return joints.collect(smoothed(joints, factor, innovations)), [Known.of(part) for part in factor]


def _solved(model: Model, tau: Any, factor: list[Known]) -> jax.Array:
    """Return the accelerations by torques alone, (nv, batch)."""
    joints = articulation(model.topology)
    return joints.collect(solved(joints, [part.tree() for part in factor], joints.rows(tau)))


def _mass_matrix_inverse(model: Model, q: Any) -> jax.Array:
    """Return the inverse of the mass matrix, (nv, nv, batch): the accelerations by all unit torques at once."""
    joints = articulation(model.topology)
    factor = with_columns(factored(joints, model, q, _armature(joints, model)))
    return joints.collect(solved(joints, factor, joints.rows(jnp.eye(model.nv, dtype=q.dtype)[..., None])))


_factored = tiled(_forward_dynamics_and_factor, tile=tile_of_rows())
_solve = tiled(_solved, tile=tile_of_rows(), like=lambda model, tau, factor: like_vector(tau, factor))
_forward_dynamics_of_state = in_all_forms(
    _forward_dynamics,
    forward_dynamics_dense,
    make=lambda kernel, **options: implicit.acceleration(tiled(kernel, **options), _factored, _solve),
    like=lambda model, q, qd, tau, *rest: like_vector(tau, model, q, qd, rest),
    single_from=8,  # about one point for the whole robot, light links are differences of large numbers
)
# Its derivatives go through the recursion: -M^-1 dM M^-1 takes three times as long, and of a light tip in float32
# cancels (measured).
_mass_matrix_inverse_of_state = batched(
    _mass_matrix_inverse, tile=tile_of_rows(row=20_000, width=lambda model: model.nv), like=matrix_like
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
    bodies. Springs, damping and friction are not included: add `passive_force`. Mimic joints are eliminated on
    the factor of the tree (`algorithms.coupled`); up to 48 degrees of freedom, "auto" takes the mass matrix for them.

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
            Where M is ill-conditioned, the recursions keep about a digit more.

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


@partial(jit, static_argnums=6)
def _forward_dynamics_jitted(
    model: Model, q: Any, qd: Any, tau: Any, f_ext: Any, base_motion: Any, form: Form
) -> jax.Array:
    q, qd, tau = arguments.vectors(model, q=q, qd=qd, tau=tau)
    of_state = _forward_dynamics_of_state(form)
    if not model.nv:
        return tau
    if model.topology.mimic_names:
        rest = tau - bias_force(model, q, qd, f_ext=f_ext, base_motion=base_motion, form=form)
        return implicit.solution(model, q, rest, _solver_of_mass_matrix(model, q, form))
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


def _solver_of_mass_matrix(model: Model, q: jax.Array, form: Form) -> Callable[[jax.Array], jax.Array]:
    """Return b -> M^-1 b for a model with mimic joints, of use where derivatives do not go through the factor of M."""
    model, q = jax.lax.stop_gradient((model, q))
    if form == "sweep" or (form == "auto" and model.nv > LARGEST):
        coupled_factor = coupled.factor_of_state(model, q)
        return lambda b: coupled.solve_of_state(model, b, coupled_factor)
    factor = jax.lax.linalg.cholesky(mass_matrix(model, q, form=form), symmetrize_input=False)
    return lambda b: cho_solve((factor, True), b)


@implicit.inverse
def _mass_matrix_inverse_by_factor(model: Model, q: jax.Array) -> jax.Array:
    return jax.vmap(_solver_of_mass_matrix(model, q, "auto"), 1, 1)(jnp.eye(model.nv, dtype=q.dtype))
