"""Identify link inertias, rotor inertias, friction and offsets from recorded motion and torque."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn import _checks
from jaxdyn._checks import ModelWarning, suggestion
from jaxdyn._compiling import jit
from jaxdyn._numerics import safe_reciprocal, safe_sqrt
from jaxdyn.algorithms import arguments
from jaxdyn.model import Model, physical_margins, project_physical, pseudo_inertia
from jaxdyn.model import log_cholesky as log_cholesky_coordinates
from jaxdyn.sysid import entropic, log_cholesky
from jaxdyn.sysid.base import base_of_regressor, base_parameters, fewest_states
from jaxdyn.sysid.compression import (
    Rows,
    correlation_time,
    nearest_least_squares,
    noise_of_joints,
    regular_directions,
    together,
)  # fmt: skip
from jaxdyn.sysid.entropic import newton_step
from jaxdyn.sysid.objective import (
    Gram,
    History,
    Point,
    Solution,
    System,
    einsum,
    least_gamma,
    scaled,
    start_of,
    times_scale,
)  # fmt: skip
from jaxdyn.sysid.results import CONVERGED, NOT_FINITE, STOPPED, WEAKLY_EXCITED, CrossValidation, Identification
from jaxdyn.sysid.terms import (
    Terms,
    driven,
    known_torque,
    parameters_of,
    stacked_regressor,
    terms_of,
    with_parameters,
)  # fmt: skip

METHODS = ("entropic", "log_cholesky", "least_squares")
GAMMAS = np.logspace(6, -2, 17)
"""Weights of the prior among which cross-validation chooses, in observations."""
BLOCKS = 4
"""Pieces of each fold, for `bootstrap`."""
SOLID = 1e-5
"""The physical margin that a prior's body must have; one with less is made solid."""
THICK, THIN = 1e-3, 1e-6
"""How solid: the least eigenvalue of the pseudo-inertia as part of the second moment of mass, and m^2 of thickness."""
MOST_STATES = 5000
"""Of which base parameters are made."""
WEAK = 1e-7
"""Combinations whose singular value is smaller than this, beside the largest, count as not excited."""
FAINT, UNSEEN = 1e-2, 1e-9
"""Scale of friction and rotors that the prior lacks, as part of what would explain all torque; and without motion."""


def identify(
    model: Model,
    q: Any,
    qd: Any,
    qdd: Any,
    tau: Any,
    *,
    friction: str | None = "viscous+coulomb",
    rotor_inertia: bool = True,
    offset: bool = True,
    prior: Model | None = None,
    method: str = "entropic",
    regularization: Any = None,
    noise: Any = None,
    folds: int = 5,
    start: Any = None,
    max_iterations: int | None = None,
    verbose: bool = False,
) -> Identification:
    r"""Identify a robot's parameters from samples of motion and torque.

    .. math:: \tau = Y(q, \dot q, \ddot q)\,\pi + I_a \ddot q + f_v \dot q + f_c \tanh(\dot q / v_s) + o

    is linear in the parameters. By default they minimise a convex function, the misfit plus a divergence from the
    prior that is infinite where no link could be built (`jaxdyn.sysid.objective`): every link is strictly physical,
    rotor inertias and friction are positive, and what the data do not determine stays as the prior has it. What is not
    sought (friction="none", ...) and springs are taken from the model.

    Args:
        model: the model: kinematics, gravity, v_s. Mimic joints are welcome; q may be any kind of configuration.
        q: configurations, (samples, nq).
        qd: velocities, (samples, nv).
        qdd: accelerations, (samples, nv).
        tau: joint torques, (samples, nv).
        friction: "viscous+coulomb", "viscous", "coulomb" or "none".
        rotor_inertia: whether to identify reflected rotor inertias, the model's `armature`.
        offset: whether to identify a constant torque at each joint.
        prior: what is known before: a model of the same robot; the model itself if None. Bodies whose inertia is not
            physical are projected, with a `ModelWarning`; bodies without mass stay as they are.
        method: "entropic", Newton's method on the convex problem; "log_cholesky", the same minimum by Levenberg and
            Marquardt's method in coordinates without bounds; "least_squares", weighted least squares nearest to the
            prior: the links may come out unphysical.
        regularization: the weight gamma of the prior, in observations; None lets cross-validation choose.
        noise: standard deviation of each joint's torque, (nv,); None estimates it.
        folds: parts of the recording for cross-validation, each in one piece.
        start: inertial parameters (nbodies, 10) at which the iteration begins; the prior's if None. The minimum does
            not depend on it.
        max_iterations: at which the iteration gives up; by default 200, and 1000 for "log_cholesky".
        verbose: print a table of the iterations.

    Returns:
        An `Identification`: the identified `model`, `parameters` with `interval()`, `status`, `history`, and
        `summary()`. Data that are not finite give a status and the prior, not an exception. A pytree: `identify` may
        be called inside jit, vmap and grad (there without warnings, table and base parameters; to derivatives, the
        estimated noise, the chosen gamma and the covariance are constants).

    Example:
        >>> import jax, numpy as np, jaxdyn
        >>> from jaxdyn.sysid import identify
        >>> model, rng = jaxdyn.load("double_pendulum"), np.random.default_rng(0)
        >>> q, qd, qdd = rng.normal(size=(3, 100, 2))
        >>> tau = jax.vmap(jaxdyn.inverse_dynamics, in_axes=(None, 0, 0, 0))(model, q, qd, qdd)
        >>> wrong = model.replace(inertia=1.3 * model.inertia)
        >>> found = identify(model, q, qd, qdd, tau, friction="none", rotor_inertia=False, prior=wrong)
        >>> found.status, bool((found.margins > 0).all())
        ('converged', True)
    """
    arguments.require_model(model)
    model.require_single(concrete=False)
    terms = terms_of(friction, rotor_inertia, offset)
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}: {suggestion(method, METHODS)}")
    dtype = jnp.result_type(float)  # double precision wherever JAX has it
    data = tuple(x.astype(dtype) for x in _samples(model, q=q, qd=qd, qdd=qdd, tau=tau))
    model, prior = model.astype(dtype), _prior(model, prior).astype(dtype)
    free = _solid_bodies(prior)
    if not free and method != "least_squares":
        raise ValueError("prior: no body has mass, so there is no inertia to start from")
    prior = _made_solid(prior, free)
    start = None if start is None else _start(model, start, free)
    gamma: Any = _gamma(regularization)
    given = None if noise is None else _noise(model, noise)
    folds = _folds(folds, len(data[0]))

    blocks = folds * max(min(BLOCKS, len(data[0]) // folds), 1)
    A = stacked_regressor(model, data[0], data[1], data[2], terms)
    problem = _problem(model, prior, A, data, given, terms, free, blocks)
    system = problem.system
    nothing = jnp.zeros(1, system.R.dtype)
    validation = CrossValidation(nothing, nothing, nothing)
    if method == "least_squares":
        gamma, solution = 0.0, None
        x = nearest_least_squares(problem.factor, problem.gram, problem.x0)
    else:
        if gamma is None and folds > 1:
            validation = _cross_validated(system, problem.parts, folds)
            gamma = _heaviest(validation)
        gamma = 1.0 if gamma is None else gamma
        gamma = jnp.asarray(gamma, system.R.dtype) if method == "entropic" else least_gamma(system, gamma)
        solve = entropic.solve if method == "entropic" else log_cholesky.solve
        begin = start_of(system, None if start is None else pseudo_inertia(start).astype(system.R.dtype))
        most = max_iterations or (200 if method == "entropic" else 1000)
        solution = solve(system, gamma, begin, max_iterations=most)
        x = entropic.implicit(system, problem.gram, gamma, solution.point)
    found = _concluded(model, problem, x, gamma, validation, solution, terms, free, method)
    if not isinstance(found.parameters, jax.core.Tracer):
        found = _examined(found, model, data, terms)
        if verbose:
            print(found.table())
    return found


class Problem(NamedTuple):
    """The data as a system to solve; of all parameters, only some are sought."""

    rows: Rows
    """The torques of all samples, linear in what is sought."""
    noise: jax.Array
    """(nv,)."""
    parts: jax.Array
    """(blocks, k + 1, k + 1) factors of pieces of the recording, whitened by the noise; constants to derivatives."""
    factor: jax.Array
    """(k + 1, k + 1) of all of it."""
    gram: Gram
    """The same as normal equations."""
    system: System
    """The convex problem."""
    whole: jax.Array
    """(n,) all parameters of the prior."""
    x0: jax.Array
    """(k,) those that are sought."""
    tau: jax.Array
    """(samples, nv) as measured."""
    finite: jax.Array
    """Whether all data are; otherwise they have been taken as zero."""


@partial(jit, static_argnames=("terms", "free", "blocks"))
def _problem(
    model: Model, prior: Model, A: jax.Array, data: Any, noise: Any, terms: Terms, free: tuple[int, ...], blocks: int
) -> Problem:
    finite = jnp.stack([jnp.isfinite(x).all() for x in (A, *data)]).all()
    A, q, qd, qdd, tau = (jnp.where(finite, x, 0) for x in (A, *data))
    whole, columns = parameters_of(prior, terms).astype(q.dtype), _columns(model, terms, free)
    held = np.setdiff1d(np.arange(len(whole)), columns)
    known = known_torque(model, q, qd, qdd, terms) + einsum("tjn,n->tj", A[..., held], whole[held])
    rows = Rows(A[..., columns], tau - known)
    x0 = whole[columns]
    constant: Rows = jax.lax.stop_gradient(rows)
    noise = noise_of_joints(constant, jax.lax.stop_gradient(x0)) if noise is None else noise.astype(q.dtype)
    parts = constant.factors(1 / jax.lax.stop_gradient(noise), blocks)
    factor = together(parts, jnp.ones(blocks, parts.dtype))
    system = _system(factor, prior, x0, rows, model, terms, free)
    return Problem(rows, noise, parts, factor, rows.gram(1 / noise), system, whole, x0, tau, finite)


@partial(jit, static_argnames=("terms", "free", "method"))
def _concluded(
    model: Model, problem: Problem, x: jax.Array, gamma: Any, validation: CrossValidation, solution: Solution | None,
    terms: Terms, free: tuple[int, ...], method: str,
) -> Identification:  # fmt: skip
    rows, system, columns = problem.rows, problem.system, _columns(model, terms, free)
    good = problem.finite & jnp.isfinite(x).all()
    x = jnp.where(good, x, problem.x0)
    residual = rows.residual(x)
    constant: Rows = jax.lax.stop_gradient(rows)
    correlated = jnp.sqrt(correlation_time(jax.lax.stop_gradient(residual)))
    noisy = constant.factor(jax.lax.stop_gradient(correlated / problem.noise))[:, :-1]
    if solution is None:
        converged, iterations, history = jnp.array(True), jnp.array(1), History.blank(jnp.zeros(1, x.dtype))
        covariance, informed = _spread_of_least_squares(problem.factor, noisy)
    else:
        converged, iterations, history = solution.converged, solution.iterations, solution.history
        fixed_system, weight = jax.lax.stop_gradient((system, jnp.maximum(gamma, 1)))
        covariance, informed = _spread(fixed_system, weight, solution.point, noisy)
    n, parameters = len(problem.whole), problem.whole.at[columns].set(x)
    return Identification(
        model=with_parameters(model, parameters, terms),
        parameters=parameters,
        covariance=jnp.zeros((n, n), x.dtype).at[np.ix_(columns, columns)].set(jnp.where(good, covariance, 0)),
        informed=jnp.zeros(n, x.dtype).at[columns].set(jnp.where(good, informed, 0)),
        regularization=jnp.asarray(gamma, x.dtype),
        validation=validation,
        code=jnp.where(good, jnp.where(converged, CONVERGED, STOPPED), NOT_FINITE),
        iterations=iterations,
        history=history,
        torque=problem.tau - residual,
        residual=residual,
        noise=problem.noise,
        system=system,
        blocks=problem.parts,
        base=None,
        base_of_data=None,
        columns=tuple(columns.tolist()),
        names=terms.names(model),
        terms=terms,
        method=method,
    )


# ---------------------------------------------------------------------- the problem
def _columns(model: Model, terms: Terms, free: tuple[int, ...]) -> np.ndarray:
    """Return which parameters are sought: those of the free bodies and of all terms."""
    of_bodies = [10 * i + k for i in free for k in range(10)]
    return np.array([*of_bodies, *range(10 * model.nbodies, terms.size(model))], int)


def _system(
    factor: jax.Array, prior: Model, x0: jax.Array, rows: Rows, model: Model, terms: Terms, free: tuple[int, ...]
) -> System:
    """Return data and prior; joint terms that the prior has not get a scale from the data."""
    bodies, joints = 10 * len(free), driven(model)
    count = len([k for k in terms.kinds if k != "offset"])
    mean_square = (rows.A[..., bodies : bodies + count * len(joints)] ** 2).sum(1).mean(0)
    torque = jnp.tile(safe_sqrt((rows.b[:, joints] ** 2).mean(0)), count)
    faint = FAINT * torque * safe_reciprocal(safe_sqrt(mean_square))
    scale = jnp.maximum(x0[bodies : bodies + len(faint)], jnp.maximum(faint, UNSEEN))
    Q = pseudo_inertia(prior.inertia[np.array(free, int)].astype(factor.dtype))
    return System(factor[:-1, :-1], factor[:-1, -1], Q, scale)


@partial(jit, static_argnames="folds")
def _cross_validated(system: System, parts: jax.Array, folds: int) -> CrossValidation:
    """Return the error on each part of the recording of what the other parts teach, over the weight of the prior."""
    group = np.arange(len(parts)) // (len(parts) // folds)
    gammas = jnp.asarray(GAMMAS, parts.dtype)

    def one(k: jax.Array) -> jax.Array:
        left_out = group == k
        taught = together(parts, jnp.where(left_out, 0, 1).astype(parts.dtype))
        here = system._replace(R=taught[:-1, :-1], c=taught[:-1, -1])
        x, _ = entropic.path(here, least_gamma(here, gammas), start_of(here))
        miss = einsum("bmn,gn->gbm", parts[..., :-1], x) - parts[None, ..., -1]
        return (jnp.where(left_out[None, :, None], miss, 0) ** 2).sum((1, 2))

    errors = jax.lax.stop_gradient(jax.vmap(one)(jnp.arange(folds)))
    excess = errors - errors[:, jnp.argmin(errors.sum(0))][:, None]
    return CrossValidation(gammas, errors.sum(0), excess.std(0) * np.sqrt(folds))


def _heaviest(validation: CrossValidation) -> jax.Array:
    """Return the heaviest prior whose error is the least, up to what one observation makes of it."""
    close = validation.error <= validation.error.min() + 1
    return validation.regularization[jnp.argmax(close)]  # the first: they descend


def _spread(system: System, gamma: jax.Array, at: Point, noisy: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the covariance of the parameters, and which part of their prior variance the data took away."""
    s = scaled(system, gamma, at)
    _, T = newton_step(s)
    S = times_scale(jnp.eye(len(T), dtype=T.dtype), s.L, at.z)
    back = partial(jax.scipy.linalg.solve_triangular, T)
    B = back(S.T, trans=1)
    pulled = jnp.concatenate([times_scale(noisy, s.L, at.z), jnp.diag(jnp.sqrt(s.weight))])
    C = einsum("mn,nk->mk", pulled, back(B))
    before = (S * S * safe_reciprocal(s.weight)[None]).sum(1)
    informed = jnp.where(before > 0, 1 - (B * B).sum(0) * safe_reciprocal(before), 1).clip(0, 1)
    return einsum("mi,mj->ij", C, C), informed


def _spread_of_least_squares(factor: jax.Array, noisy: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the covariance of what the data determine, and how much of each parameter that is."""
    scale, kept, s, Vt = regular_directions(factor[:-1, :-1])
    V = Vt.T * jnp.where(kept, 1, 0).astype(s.dtype)[None]
    G = V * safe_reciprocal(s * s)[None]
    C = einsum("mn,nk,jk->mj", noisy / scale[None], G, V) / scale[None]
    return einsum("mi,mj->ij", C, C), (V * V).sum(1)


# ---------------------------------------------------------------------- what is said about it
def _examined(found: Identification, model: Model, data: Any, terms: Terms) -> Identification:
    """Return the result with its base parameters, and a note of what is wrong with the data."""
    if found.code == NOT_FINITE:
        return replace(found, note=_what_is_not_finite(data))
    options: dict[str, Any] = {"friction": "+".join(k for k in terms.kinds if k in ("viscous", "coulomb")) or "none",
               "rotor_inertia": "rotor" in terms.kinds, "offset": "offset" in terms.kinds}  # fmt: skip
    columns = np.array(found.columns, int)
    eps = float(jnp.finfo(found.parameters.dtype).eps)
    R = np.zeros((len(columns), len(found.names)))
    R[:, columns] = np.asarray(found.system.R, np.float64)
    base = base_parameters(model, **options, samples=_as_many(model, terms, len(data[0])))
    of_data = base_of_regressor(R, found.names, terms, eps, max(WEAK, 64 * len(columns) * eps))
    found = replace(found, base=base, base_of_data=of_data)
    if of_data.rank < base.rank and found.code == CONVERGED:
        note = (
            f"the motion determines {of_data.rank} of {base.rank} combinations of parameters; the others stay near the "
            "prior. A richer motion helps: several joints at once, fast and slow, over the whole workspace"
        )
        found = replace(found, code=jnp.asarray(WEAKLY_EXCITED), note=note)
    return found


def _as_many(model: Model, terms: Terms, samples: int) -> int | None:
    """Return how many random states to look at: as many as there are samples, for which the program is there."""
    return samples if fewest_states(model, terms) <= samples <= MOST_STATES else None


def _what_is_not_finite(data: Any) -> str:
    for name, x in zip(("q", "qd", "qdd", "tau"), data, strict=True):
        bad = np.flatnonzero(~np.isfinite(np.asarray(x)).all(1))
        if len(bad):
            return f"{name} is not finite in {len(bad)} of {len(x)} samples, the first being {bad[0]}"
    return "the data are finite, but too large to compute with"


# ---------------------------------------------------------------------- arguments
def _samples(model: Model, **values: Any) -> tuple[jax.Array, ...]:
    """Return q (samples, nq) and the others (samples, nv) as arrays of one floating-point type."""
    arrays = {}
    for name, value in values.items():
        width = model.nq if name == "q" else model.nv
        array = jnp.asarray(value)
        if array.ndim != 2 or array.shape[1] != width:
            raise ValueError(f"{name} must have shape (samples, {width}), one row per sample; got {array.shape}")
        if jnp.issubdtype(array.dtype, jnp.complexfloating):
            raise ValueError(f"{name} must be real; got {array.dtype}")
        arrays[name] = array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(model.dtype)
    counts = {name: len(x) for name, x in arrays.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"q, qd, qdd and tau must have as many samples; got {counts}")
    if not model.nv or not counts["q"]:
        raise ValueError(f"there must be samples and joints; got {counts['q']} samples of {model.nv} joints")
    dtype = jnp.result_type(*arrays.values())
    return tuple(x.astype(dtype) for x in arrays.values())


def _prior(model: Model, prior: Any) -> Model:
    """Return the prior, a model of the same bodies."""
    prior = model if prior is None else prior
    if not isinstance(prior, Model):
        raise TypeError(f"prior must be a jaxdyn.Model, or None for the model itself; got {type(prior).__name__}")
    if prior.body_names != model.body_names:
        raise ValueError(
            f"prior must have the bodies of the model, {', '.join(model.body_names)}; got {', '.join(prior.body_names)}"
        )
    if not isinstance(prior.inertia, jax.core.Tracer) and not np.isfinite(np.asarray(prior.inertia)).all():
        raise ValueError("prior: its inertias must be finite")
    return prior


def _solid_bodies(prior: Model) -> tuple[int, ...]:
    """Return the bodies whose inertia is sought: those that have one. Where the prior is traced, all."""
    if isinstance(prior.inertia, jax.core.Tracer):
        return tuple(range(prior.nbodies))
    return tuple(np.flatnonzero(np.any(np.asarray(prior.inertia), axis=1)).tolist())


def _made_solid(prior: Model, free: tuple[int, ...]) -> Model:
    """Return the prior with strictly physical inertias of the free bodies."""
    pi, margins = prior.inertia, physical_margins(prior)
    if not isinstance(margins, jax.core.Tracer):
        flat = [prior.body_names[i] for i in free if not margins[i] > SOLID]
        if not flat:
            return prior
        warnings.warn(
            f"prior: the inertia of {', '.join(flat)} is not (strictly) that of a body, margin "
            f"{float(np.min(np.asarray(margins)[list(free)])):.3g}; the nearest one that is takes its place",
            ModelWarning,
            stacklevel=3,
        )
    m, h, trace = pi[:, 0], pi[:, 1:4], (pi[:, 4] + pi[:, 6] + pi[:, 9]) / 2
    central = trace - (h * h).sum(1) * safe_reciprocal(m)
    solid = project_physical(pi, margin=jnp.maximum(THICK * central, THIN * jnp.abs(m)))
    chosen = jnp.zeros(len(pi), bool).at[np.array(free, int)].set(True) & ~(margins > SOLID)
    return prior.replace(inertia=jnp.where(chosen[:, None], solid, pi))


def _start(model: Model, start: Any, free: tuple[int, ...]) -> jax.Array:
    """Return the inertias of the free bodies at which to start, if they are physical."""
    array = jnp.asarray(start)
    if array.shape != (model.nbodies, 10):
        raise ValueError(f"start must have shape ({model.nbodies}, 10), as inertial_parameters; got {array.shape}")
    array = array[np.array(free, int)]
    log_cholesky_coordinates(array)  # refuses what is not physical
    return array


def _noise(model: Model, noise: Any) -> jax.Array:
    array = _checks.vector("noise", noise, model.nv, "degree of freedom", model.dtype)
    if not isinstance(array, jax.core.Tracer) and not (np.asarray(array) > 0).all():
        raise ValueError(f"noise must be positive; got {np.asarray(array).tolist()}")
    return array


def _gamma(regularization: Any) -> jax.Array | None:
    if regularization is None:
        return None
    gamma = _checks.number("regularization", regularization, jnp.zeros(0).dtype)
    if not isinstance(gamma, jax.core.Tracer) and not gamma >= 0:
        raise ValueError(f"regularization, the weight of the prior, must not be negative; got {float(gamma)}")
    return gamma


def _folds(folds: int, samples: int) -> int:
    """Return in how many parts to cross-validate; 1 is too few samples for it."""
    if not isinstance(folds, int) or folds < 2:
        raise ValueError(f"folds must be an integer, 2 or more; got {folds!r}")
    return max(min(folds, samples // 2), 1)
