r"""Exciting trajectories: periodic motions from which a robot's parameters can be identified well.

Every joint follows a finite Fourier series (Swevers et al. 1997) that begins and ends at rest,

.. math:: q(t) = c + \sum_{k=1}^K a_k \sin k\omega t + b_k \cos k\omega t, \quad
    \sum k\, a_k = 0, \quad \sum k^2 b_k = 0, \quad \omega = 2\pi / T

Position, velocity and acceleration are trigonometric polynomials of degree K, whose size between N even samples is at
most that on the samples over cos(pi K / N) (Ehlich and Zeller 1964): so their limits hold at all times, not only on a
grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments, inverse_dynamics, passive_force
from jaxdyn.joints import Joint
from jaxdyn.model import Model
from jaxdyn.sysid.base import BaseParameters, base_parameters, base_regressor
from jaxdyn.sysid.solving import Status, finite_or_zero, message, progress, show

Criterion = Literal["condition", "log_det"]
HISTORY = ("criterion", "excess torque")
POWER = 8
"""Of the norm that stands for the largest and the least singular value."""
SHARPNESS = 32
"""Of the norm that stands for the largest of a joint's ratios to its limits."""
FINER = 4
"""Torques are checked on a grid this many times as fine."""
DEFAULTS = {"position": np.pi, "velocity": np.pi, "acceleration": 4 * np.pi}
"""Limits of joints that have none, in rad or m, and s."""


class _Limits(NamedTuple):
    """What a motion must keep to, (nv,) each."""

    middle: jax.Array
    half: jax.Array
    velocity: jax.Array
    acceleration: jax.Array
    effort: jax.Array


class _Series(NamedTuple):
    """Motions as products basis @ z: values, first and second derivatives on a grid, (samples, n) each."""

    value: Any
    rate: Any
    second: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Excitation:
    """An exciting trajectory. Always finite; whether it keeps to all limits, `status` says."""

    t: jax.Array
    """(samples + 1,) times of one period, s."""
    q: jax.Array
    """(samples + 1, nq) configurations."""
    qd: jax.Array
    """(samples + 1, nv) velocities; zero in the first row and the last."""
    qdd: jax.Array
    """(samples + 1, nv) accelerations; zero in the first row and the last."""
    tau: jax.Array
    """(samples + 1, nv) joint forces that the model takes for it, passive forces included."""
    coefficients: jax.Array
    """(2 K + 1, nv): the constant, K factors of sines, K of cosines."""
    duration: jax.Array
    """() period T, s."""
    condition: jax.Array
    """() condition number of the base regressor along it."""
    start_condition: jax.Array
    """() that of the best of the random series from which the search began."""
    status: jax.Array
    """() integer, one of `jaxdyn.sysid.Status`."""
    iterations: jax.Array
    """() integer, how many motions were tried: random series, then steps along the gradient."""
    history: dict[str, jax.Array]
    """name -> (iterations,) what was found of each."""
    base: BaseParameters
    """What is to be identified."""

    @property
    def success(self) -> jax.Array:
        """Whether it keeps to all limits, and the search converged."""
        return self.status == Status.CONVERGED

    @property
    def message(self) -> str:
        """Why the search ended, in a sentence."""
        return message(self.status)

    def table(self) -> str:
        """Return the history as a table, a line per iteration."""
        last = f"{self.message} (condition number {float(self.condition):.4g})"
        return f"{progress({n: self.history[n] for n in HISTORY}, int(self.iterations))}\n{last}"

    def at(self, t: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return (q, qd, qdd) at times t, (..., nv) each; the motion goes on periodically.

        Example:
            >>> import jax.numpy as jnp, jaxdyn
            >>> from jaxdyn.sysid import excitation
            >>> motion = excitation(jaxdyn.load("pendulum"), duration=4.0, max_iterations=20)
            >>> motion.at(jnp.arange(0, 4, 0.001))[0].shape
            (4000, 1)
        """
        K = self.coefficients.shape[0] // 2
        w = 2 * jnp.pi / self.duration * jnp.arange(1, K + 1)
        angle = jnp.asarray(t, self.coefficients.dtype)[..., None] * w.reshape((1,) * np.ndim(t) + (K,))
        w = jnp.broadcast_to(w, angle.shape)
        one, sine, cosine = jnp.ones_like(angle[..., :1]), jnp.sin(angle), jnp.cos(angle)
        rows = ([one, sine, cosine], [0 * one, w * cosine, -w * sine], [0 * one, -w * w * sine, -w * w * cosine])
        q, qd, qdd = (jnp.matmul(jnp.concatenate(x, -1), self.coefficients, precision="highest") for x in rows)
        return q, qd, qdd


def excitation(
    model: Model,
    *,
    duration: float = 10.0,
    harmonics: int = 5,
    samples: int | None = None,
    criterion: Criterion = "condition",
    friction: str | None = "none",
    rotor_inertia: bool = False,
    offset: bool = False,
    position: Any = None,
    velocity: Any = None,
    acceleration: Any = None,
    effort: Any = None,
    noise: Any = 1.0,
    starts: int = 16,
    max_iterations: int = 200,
    learning_rate: float = 0.05,
    seed: int = 0,
    verbose: bool = False,
) -> Excitation:
    r"""Find a periodic motion that excites all base parameters of a robot evenly, within its limits.

    .. math:: \min_{a, b, c} \ \log \frac{\sigma_{max}(W)}{\sigma_{min}(W)} \quad \text{or} \quad
        -\sum_i \log \sigma_i(W)

    by gradients through the base regressor W of all samples. In the descent, largest and least singular values are
    replaced by norms of all of them, a smooth function also where they are equal.

    Args:
        model: the model, with concrete leaves, and joints with plain coordinates only (no quaternions).
        duration: period, s.
        harmonics: K >= 2, number of frequencies.
        samples: N, even samples of a period; by default 24 K.
        criterion: "condition" or "log_det".
        friction: what is to be identified, as in `base_parameters`; also `rotor_inertia` and `offset`.
        rotor_inertia: see `friction`.
        offset: see `friction`.
        position: pair (lower, upper) of limits, each a number or (nv,); by default the model's, or +-pi.
        velocity: largest velocities; by default the model's, or pi per s.
        acceleration: largest accelerations; by default 4 pi per s^2.
        effort: largest joint forces; by default the model's `effort_limit`.
        noise: standard deviation of the joint forces to be measured, a number or (nv,), by which W is divided.
        starts: number of random series of which the best is improved.
        max_iterations: the number of steps along the gradient.
        learning_rate: of Adam, in units in which the limits are one; it decays to zero.
        seed: of the random series.
        verbose: print a table of progress.

    Returns:
        The trajectory. Limits of position, velocity and acceleration hold always; if those of the joint forces cannot
        be met, its status is `Status.INFEASIBLE`.

    Example:
        >>> import jaxdyn
        >>> from jaxdyn.sysid import excitation
        >>> motion = excitation(jaxdyn.load("double_pendulum"), duration=5.0, max_iterations=50)
        >>> bool(motion.condition < motion.start_condition)
        True
    """
    arguments.require_model(model)
    model.require_single()
    _refuse_rotations(model)
    for name, value, least in (
        ("harmonics", harmonics, 2),
        ("starts", starts, 1),
        ("max_iterations", max_iterations, 1),
    ):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}; got {value!r}")
    if criterion not in ("condition", "log_det"):
        raise ValueError(f'criterion must be "condition" or "log_det"; got {criterion!r}')
    if not (np.ndim(duration) == 0 and np.isfinite(duration) and duration > 0):
        raise ValueError(f"duration must be a positive number; got {duration!r}")
    samples = 24 * harmonics if samples is None else samples
    if not isinstance(samples, (int, np.integer)) or samples <= 4 * harmonics:
        raise ValueError(f"samples must be an integer above 4 harmonics, {4 * harmonics}; got {samples!r}")
    limits = _limits_of(model, position, velocity, acceleration, effort)
    sigma = _per_joint("noise", noise, model)
    if not np.all(sigma > 0):
        raise ValueError(f"noise must be positive; got {noise!r}")
    if not 0 < float(learning_rate) < np.inf:
        raise ValueError(f"learning_rate must be positive; got {learning_rate!r}")
    base = base_parameters(model, friction=friction, rotor_inertia=rotor_inertia, offset=offset)
    if not base.rank:
        raise ValueError("the joint forces of this model depend on no parameter: there is nothing to excite")
    options = _Options(criterion, int(harmonics), int(samples), int(starts), int(max_iterations), bool(verbose))
    numbers = (jnp.asarray(x, model.dtype) for x in (sigma, duration, learning_rate))
    return _excitation(model, base, limits, *numbers, jax.random.key(seed), options)


class _Options(NamedTuple):
    """What is known when the search is compiled."""

    criterion: Criterion
    harmonics: int
    samples: int
    starts: int
    max_iterations: int
    verbose: bool


@partial(jit, static_argnames="options")
def _excitation(
    model: Model,
    base: BaseParameters,
    limits: _Limits,
    sigma: Any,
    duration: Any,
    rate: Any,
    key: Any,
    options: _Options,
) -> Excitation:
    """Improve the best of several random series by Adam, then make it as small as the joint forces ask for."""
    K, N, nv = options.harmonics, options.samples, model.nv
    rest = _at_rest(K)
    series = _scaled(_series(K, N, rest), duration)
    bound = float(np.cos(np.pi * K / N))

    def motion(z: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return motion_of(series, z, limits, bound)

    def loss(z: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        q, qd, qdd = motion(z)
        W = jax.vmap(lambda *x: base_regressor(model, base, *x) / sigma[:, None])(q, qd, qdd)
        value = spectral(options.criterion, W.reshape(N * nv, -1))
        over = jnp.maximum(jnp.abs(_torques(model, q, qd, qdd)) / limits.effort[None] - 0.97, 0)
        return value + 100 * (over**2).mean() + 10 * over.max(), (value, over.max())

    candidates = 0.5 * jax.random.normal(key, (options.starts, rest.shape[1], nv), model.dtype)
    adam = optax.adam(optax.cosine_decay_schedule(rate, options.max_iterations))
    total = options.starts + options.max_iterations

    def iterate(state: Any, i: jax.Array) -> Any:
        """Visit the next random series, or take the next step from the best of them."""
        z, memory, best, least, first = state
        descending = i >= options.starts
        z = jnp.where(descending, jnp.where(i == options.starts, best, z), candidates[i % options.starts])
        (value, row), gradient = jax.value_and_grad(loss, has_aux=True)(z)
        better = value < least
        best, least = jnp.where(better, z, best), jnp.where(better, value, least)
        update, later = adam.update(finite_or_zero(gradient), memory)
        memory = jax.tree.map(lambda new, old: jnp.where(descending, new, old), later, memory)
        first = jnp.where(descending, first, best)
        if options.verbose:
            jax.lax.cond(i % 10 == 0, lambda: show(HISTORY, i, row), lambda: None)
        return (z + update, memory, best, least, first), (jnp.stack(row), least)

    zero = jnp.zeros_like(candidates[0])
    begin = zero, adam.init(zero), candidates[0], jnp.asarray(jnp.inf, model.dtype), zero
    (_, _, best, least, start), (history, leasts) = jax.lax.scan(iterate, begin, jnp.arange(total))
    factor, feasible = _fitting(model, best, series, _scaled(_series(K, FINER * N, rest), duration), limits, bound)
    late = leasts[-1 - options.max_iterations // 10] - least < 1e-2
    status = jnp.where(late, Status.CONVERGED, Status.MAX_ITERATIONS)
    status = jnp.where(feasible, status, Status.INFEASIBLE)
    status = jnp.where(jnp.isfinite(least), status, Status.NOT_FINITE)

    scale = scale_of(series, best, limits, bound)
    amplitudes = jnp.asarray(rest, model.dtype) @ (best * scale[None])
    coefficients = jnp.concatenate([amplitudes[:1] + limits.middle[None], factor * amplitudes[1:]])
    closed = _scaled(_series(K, N, np.eye(2 * K + 1), ends=True), duration)
    found = tuple(jnp.asarray(x, model.dtype) @ coefficients for x in closed)
    both = jax.tree.map(lambda *x: jnp.stack(x), found, tuple(jnp.concatenate([x, x[:1]]) for x in motion(start)))
    (condition, at_start), tau = jax.lax.map(lambda x: _judged(model, base, sigma, *x), both)
    return Excitation(
        t=duration * jnp.arange(N + 1) / N,
        q=found[0],
        qd=found[1],
        qdd=found[2],
        tau=tau[0],
        coefficients=coefficients,
        duration=duration,
        condition=condition,
        start_condition=at_start,
        status=status,
        iterations=jnp.asarray(total),
        history=dict(zip(HISTORY, finite_or_zero(history).T, strict=True)),
        base=base,
    )


# ---------------------------------------------------------------------- motions
def _at_rest(K: int) -> np.ndarray:
    """Return a basis (2 K + 1, 2 K - 1) of the coefficients of series at rest at t = 0, orthonormal."""
    k = np.arange(1, K + 1)
    across = lambda v: np.linalg.svd(v[None].astype(float))[2][1:].T  # (K, K - 1)
    basis = np.zeros((2 * K + 1, 2 * K - 1))
    basis[0, 0] = 1
    basis[1 : K + 1, 1:K] = across(k)
    basis[K + 1 :, K:] = across(k**2)
    return basis


def _series(K: int, samples: int, basis: np.ndarray, ends: bool = False) -> _Series:
    """Return what a basis of coefficients is on even samples of one period, time in units of T."""
    angle = 2 * np.pi * np.arange(samples + ends)[:, None] * np.arange(1, K + 1)[None] / samples
    w = 2 * np.pi * np.arange(1, K + 1)[None]
    one, sine, cosine = np.ones((len(angle), 1)), np.sin(angle), np.cos(angle)
    rows = ([one, sine, cosine], [0 * one, w * cosine, -w * sine], [0 * one, -w * w * sine, -w * w * cosine])
    return _Series(*(np.concatenate(x, 1) @ basis for x in rows))


def _scaled(series: _Series, duration: jax.Array) -> _Series:
    """Return the series in seconds."""
    value, rate, second = (jnp.asarray(x, duration.dtype) for x in series)
    return _Series(value, rate / duration, second / duration**2)


def scale_of(series: _Series, z: jax.Array, limits: _Limits, bound: float) -> jax.Array:
    """Return the factors (nv,) with which motions basis @ z keep to their limits at all times, one at the most.

    A smooth function: the largest ratio to a limit is replaced by a norm that is no smaller.
    """
    of_each = [
        jnp.abs(basis @ z) / (bound * limit[None])
        for basis, limit in zip(series, (limits.half, limits.velocity, limits.acceleration), strict=True)
    ]
    ratios = jnp.concatenate(of_each)
    largest = jax.lax.stop_gradient(jnp.maximum(ratios.max(0), 1))
    return 1 / (largest * (largest**-SHARPNESS + ((ratios / largest[None]) ** SHARPNESS).sum(0)) ** (1 / SHARPNESS))


def motion_of(series: _Series, z: jax.Array, limits: _Limits, bound: float) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return (q, qd, qdd) on the grid of a series, (samples, nv) each, within the limits."""
    scaled = z * scale_of(series, z, limits, bound)[None]
    return limits.middle[None] + series.value @ scaled, series.rate @ scaled, series.second @ scaled


def _fitting(
    model: Model, z: Any, series: _Series, fine: _Series, limits: _Limits, bound: float
) -> tuple[jax.Array, jax.Array]:
    """Return the largest factor of the amplitudes with which joint forces keep to their limits, and if there is one."""
    scaled = z * scale_of(series, z, limits, bound)[None]
    constant, moving = jnp.zeros_like(scaled).at[0].set(scaled[0]), scaled.at[0].set(0)

    def keeps(factor: jax.Array) -> jax.Array:
        x = constant + factor * moving
        tau = _torques(model, limits.middle[None] + fine.value @ x, fine.rate @ x, fine.second @ x)
        return (jnp.abs(tau) <= limits.effort[None]).all()

    factors = jnp.linspace(1, 0, 51, dtype=z.dtype)[:-1]
    ok = jax.lax.map(keeps, factors)
    return jnp.where(ok.any(), factors[jnp.argmax(ok)], 1), ok.any()


def _torques(model: Model, q: jax.Array, qd: jax.Array, qdd: jax.Array) -> jax.Array:
    """Return the joint forces that motions take, (samples, nv)."""
    one = lambda q, qd, qdd: inverse_dynamics(model, q, qd, qdd) - passive_force(model, q, qd)
    return jax.vmap(one)(q, qd, qdd)


# ---------------------------------------------------------------------- criteria
@partial(jax.custom_jvp, nondiff_argnums=(0,))
def spectral(criterion: Criterion, W: jax.Array) -> jax.Array:
    r"""Return a criterion of the singular values of W, small if W determines all parameters well.

    .. math:: \tfrac1p \log \sum_i \sigma_i^p + \tfrac1p \log \sum_i \sigma_i^{-p} \ge \log \mathrm{cond}(W)
        \quad \text{or} \quad -\sum_i \log \sigma_i

    A symmetric function of the singular values: its gradient, U diag(f') V^T, is smooth where they are equal.
    """
    return _of_singular_values(criterion, jnp.linalg.svd(W, compute_uv=False))


@spectral.defjvp
def _spectral_jvp(criterion: Criterion, primals: Any, tangents: Any) -> Any:
    U, s, Vt = jnp.linalg.svd(primals[0], full_matrices=False)
    value, slope = jax.value_and_grad(partial(_of_singular_values, criterion))(s)
    gradient = jax.lax.stop_gradient(jnp.matmul(U * slope[None], Vt, precision="highest"))
    return value, (gradient * tangents[0]).sum()


def _of_singular_values(criterion: Criterion, s: jax.Array) -> jax.Array:
    finfo = jnp.finfo(s.dtype)
    floor = jax.lax.stop_gradient(jnp.maximum(finfo.eps * s.max(), finfo.tiny**0.5))
    logs = jnp.log(jnp.maximum(s, floor))
    if criterion == "log_det":
        return -logs.sum()
    return (jax.nn.logsumexp(POWER * logs) + jax.nn.logsumexp(-POWER * logs)) / POWER


def _judged(model: Model, base: BaseParameters, sigma: Any, q: Any, qd: Any, qdd: Any) -> tuple[jax.Array, jax.Array]:
    """Return the condition number of one period, at most what rounding can tell, and its joint forces."""
    W = jax.vmap(lambda *x: base_regressor(model, base, *x) / sigma[:, None])(q, qd, qdd)
    s = jnp.linalg.svd(finite_or_zero(W[:-1].reshape(-1, W.shape[-1])), compute_uv=False)
    finfo = jnp.finfo(s.dtype)
    least = jnp.maximum(s[-1], jnp.maximum(finfo.eps * s[0], finfo.tiny))
    return s[0] / least, finite_or_zero(_torques(model, q, qd, qdd))


# ---------------------------------------------------------------------- arguments
def _refuse_rotations(model: Model) -> None:
    for group in model.topology.own_groups:
        if type(group.joint).integrate is not Joint.integrate:
            name = model.joint_names[int(group.bodies[0])]
            raise ValueError(
                f"exciting trajectories are for joints with plain coordinates; joint {name!r} is {group.joint.type}: "
                "lock it, or load the robot with a fixed base"
            )
    if not model.nv:
        raise ValueError("this model has no joints to move")


def _limits_of(model: Model, position: Any, velocity: Any, acceleration: Any, effort: Any) -> _Limits:
    """Return the limits: what was given, else the model's, else DEFAULTS."""
    if position is None:
        lower, upper = np.asarray(model.lower, float), np.asarray(model.upper, float)
    elif isinstance(position, (tuple, list)) and len(position) == 2:
        lower, upper = (_per_joint(f"position[{k}]", x, model) for k, x in enumerate(position))
    else:
        raise ValueError(f"position must be a pair (lower, upper); got {position!r}")
    reach = DEFAULTS["position"]
    lower_or = np.where(np.isfinite(lower), lower, np.where(np.isfinite(upper), upper - 2 * reach, -reach))
    upper_or = np.where(np.isfinite(upper), upper, np.where(np.isfinite(lower), lower + 2 * reach, reach))
    if not np.all(lower_or < upper_or):
        bad = int(np.argmin(lower_or < upper_or))
        raise ValueError(f"position: the limits of coordinate {bad} leave no room, [{lower[bad]:g}, {upper[bad]:g}]")
    given = {"velocity": velocity, "acceleration": acceleration, "effort": effort}
    own = {"velocity": model.velocity_limit, "effort": model.effort_limit}
    found = {}
    for name, value in given.items():
        x = (
            np.asarray(own.get(name, np.full(model.nv, np.inf)), float)
            if value is None
            else _per_joint(name, value, model)
        )
        if not np.all(x > 0):
            raise ValueError(f"{name} must be positive in every joint; got {x.tolist()}")
        found[name] = np.where(np.isfinite(x), x, DEFAULTS.get(name, np.inf))
    arrays = (
        (lower_or + upper_or) / 2,
        (upper_or - lower_or) / 2,
        found["velocity"],
        found["acceleration"],
        found["effort"],
    )
    return _Limits(*(jnp.asarray(x, model.dtype) for x in arrays))


def _per_joint(name: str, value: Any, model: Model) -> np.ndarray:
    array = np.asarray(value, float)
    if array.shape not in ((), (model.nv,)) or np.isnan(array).any():
        raise ValueError(f"{name} must be a number, or have shape ({model.nv},); got {value!r}")
    return np.broadcast_to(array, (model.nv,)).copy()
