"""Output-error identification: the model whose simulation is nearest to recorded motions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._checks import number
from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.aba import require_regular
from jaxdyn.model import Model, difference
from jaxdyn.simulate import integrators
from jaxdyn.simulate.integrators import Integrator
from jaxdyn.simulate.system import has_only_damping
from jaxdyn.sysid import levenberg_marquardt
from jaxdyn.sysid.descent import descend
from jaxdyn.sysid.levenberg_marquardt import HISTORY, Search, information
from jaxdyn.sysid.output_error import Point, Problem, Windows, squared
from jaxdyn.sysid.solving import Status, finite_or_zero, message, progress
from jaxdyn.sysid.unknowns import Params, Unknowns, unknowns_of


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class TrajectoryFit:
    """What `fit_trajectories` found. Always finite but for deviations; whether it is a solution, `status` says."""

    model: Model
    """The model with the numbers found."""
    values: dict[str, jax.Array]
    """The numbers found, by the names of `params`: rows of the model's leaves."""
    deviations: dict[str, jax.Array]
    """Their standard deviations, in the same shapes; infinite where the data do not determine a number."""
    theta: jax.Array
    """(n,) their coordinates, as in `names`."""
    covariance: jax.Array
    """(n, n) of the coordinates, by the scatter of the residuals; within what the data determine, zero elsewhere."""
    rank: jax.Array
    """() integer: how many combinations of the n coordinates the data determine."""
    q0: jax.Array
    """(segments, nq) configurations in which the simulations start."""
    qd0: jax.Array
    """(segments, nv) velocities with which they start."""
    residuals: jax.Array
    """(segments, rows, 2 nv) simulated minus recorded (q, qd), q in the tangent; zero where nothing was recorded."""
    rms: jax.Array
    """() root mean square of all residuals, each in units of its `noise`."""
    status: jax.Array
    """() integer, one of `jaxdyn.sysid.Status`."""
    iterations: jax.Array
    """() integer, how many were taken; the first is the model as it came."""
    history: dict[str, jax.Array]
    """name -> (max_iterations,) what every iteration found; rows from `iterations` on are zero."""
    names: tuple[str, ...] = field(metadata={"static": True})
    """(n,) names of the coordinates."""

    @property
    def success(self) -> jax.Array:
        """Whether it converged."""
        return self.status == Status.CONVERGED

    @property
    def message(self) -> str:
        """Why the fit ended, in a sentence; of a batch, how often for which reason."""
        return message(self.status)

    def table(self) -> str:
        """Return the history of one fit as a table, a line per iteration."""
        last = f"{self.message} (rms {float(self.rms):.6g}, rank {int(self.rank)} of {len(self.names)})"
        return f"{progress({name: self.history[name] for name in HISTORY}, int(self.iterations))}\n{last}"


def fit_trajectories(
    model: Model,
    data: Any,
    *,
    params: Params = ("inertia",),
    segment: int | None = None,
    noise: Any = (1.0, 1.0),
    prior: float = 0.0,
    method: Any = "levenberg_marquardt",
    integrator: str | Integrator = "semi_implicit_euler",
    max_iterations: int = 100,
    tolerance: float | None = None,
    target_rms: float | None = None,
    verbose: bool = False,
) -> TrajectoryFit:
    r"""Find the numbers of a model with which its simulation follows recorded motions best.

    .. math:: \min_\theta \tfrac12 \sum_i \left| \frac{q_i(\theta) \ominus q_i^{rec}}{\sigma_q} \right|^2
        + \left| \frac{\dot q_i(\theta) - \dot q_i^{rec}}{\sigma_{\dot q}} \right|^2
        + \tfrac12 \lambda^2 |\theta - \theta_{start}|^2

    where q_i is what `rollout` gives under the recorded joint forces. No accelerations are needed, and noise of the
    recording does not bias the result as it does in a regression on torques. Inertias are sought in `log_cholesky`
    coordinates: every step is to a physical model.

    Args:
        model: the model to start from. Unphysical inertias are replaced by the nearest physical ones, with a warning.
        data: a recording, or several: mappings or objects with q (T + 1, nq), qd (T + 1, nv) (None if it was not
            measured), tau (T, nv) or (T + 1, nv), and either the time step `dt` or times `t`. Such as
            `rollout(..., outputs=["tau"])` returns them. Recordings may differ in length.
        params: what to fit: names of leaves of the model ("inertia", "armature", "damping", "friction", "stiffness",
            "gravity", ...), "gravity_direction", "initial_state"; or a mapping from names to lists of the joints or
            bodies meant, None for all. Bodies without mass are left out.
        segment: cut recordings into simulations of this many steps, each from a state of its own (the recorded one,
            or a fitted one with "initial_state"): for long recordings, and where simulations soon run away.
        noise: standard deviations (of q, of qd), numbers or arrays (nv,), by which residuals are divided.
        prior: weight lambda with which coordinates are held where they start.
        method: "levenberg_marquardt", or an optimiser of optax, such as `optax.adam(1e-2)`.
        integrator: as in `rollout`.
        max_iterations: the most iterations; the first is the model as it came.
        tolerance: of the relative decrease, and of the gradient, at which the search ends; by default the square root
            of the rounding error.
        target_rms: the search ends too when the rms of the residuals is no larger; by default what rounding leaves.
        verbose: print a table of progress.

    Returns:
        The fit. If it failed, `status` and `message` say why.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.sysid import fit_trajectories
        >>> robot = jaxdyn.load("double_pendulum").replace(damping=[0.1, 0.2])
        >>> run = jaxdyn.rollout(robot, [1.0, 0.5], [0.0, 0.0], jnp.zeros((200, 2)), dt=0.01, outputs=["tau"])
        >>> start = robot.replace(damping=[0.0, 0.0])
        >>> fit = fit_trajectories(start, run, params=["damping"])
        >>> [round(float(x), 3) for x in fit.values["damping"]], fit.message
        ([0.1, 0.2], 'converged')
    """
    arguments.require_model(model)
    require_regular(model)
    model.require_single(concrete=False)
    integrator = integrators.find(integrator)
    if not isinstance(max_iterations, (int, np.integer)) or max_iterations < 1:
        raise ValueError(f"max_iterations must be a positive integer; got {max_iterations!r}")
    if method != "levenberg_marquardt" and not (hasattr(method, "init") and hasattr(method, "update")):
        raise ValueError(f'method must be "levenberg_marquardt" or an optimiser of optax; got {method!r}')
    unknowns, model = unknowns_of(model, params)
    windows = windows_of(model, data, segment, noise, unknowns.initial_state)
    eps = float(jnp.finfo(windows.q.dtype).eps)
    largest = windows.weights.max(initial=0)
    numbers = {
        "prior": prior,
        "tolerance": eps**0.5 if tolerance is None else tolerance,
        "target_rms": 1e3 * eps * largest if target_rms is None else target_rms,
    }
    numbers = {name: number(name, x, windows.q.dtype) for name, x in numbers.items()}
    plain = has_only_damping(model) and not {"stiffness", "friction"} & {part.leaf for part in unknowns.parts}
    return _fit(model, windows, numbers, unknowns, integrator, method, int(max_iterations), bool(verbose), plain)


@partial(jit, static_argnames=("unknowns", "integrator", "method", "max_iterations", "verbose", "plain"))
def _fit(
    model: Model,
    windows: Windows,
    numbers: dict[str, jax.Array],
    unknowns: Unknowns,
    integrator: Integrator,
    method: Any,
    max_iterations: int,
    verbose: bool,
    plain: bool,
) -> TrajectoryFit:
    model = model.astype(windows.q.dtype)
    if plain:  # known to have no springs and no friction: half as much to compile
        zero: Any = np.zeros(model.nv, windows.q.dtype)
        model = dataclasses.replace(model, stiffness=zero, friction=zero)
    start = Point(unknowns.coordinates(model), windows.q[:, 0], windows.qd[:, 0])
    problem = Problem(model, windows, start, numbers["prior"], unknowns, integrator)
    ends = numbers["tolerance"], numbers["target_rms"], max_iterations, verbose
    if method == "levenberg_marquardt":
        found = levenberg_marquardt.search(problem, *ends)
    else:
        found = descend(problem, method, *ends)
    covariance, rank, unknown = _covariance(problem, found)
    status = jnp.where((rank == 0) & (found.status != Status.NOT_FINITE), Status.NO_INFORMATION, found.status)
    theta, q0, qd0 = finite_or_zero(found.point)
    fitted = unknowns.model(model, theta) if unknowns.parts else model
    return TrajectoryFit(
        model=fitted,
        values=unknowns.values(fitted),
        deviations=_deviations(problem, theta, covariance, unknown),
        theta=theta,
        covariance=covariance,
        rank=rank,
        q0=q0,
        qd0=qd0,
        residuals=finite_or_zero(found.residuals),
        rms=jnp.where(status == Status.NOT_FINITE, 0, _rms(problem, found)),
        status=status,
        iterations=found.iteration,
        history=dict(zip(HISTORY, found.history.T, strict=True)),
        names=unknowns.names,
    )


def _rms(problem: Problem, found: Search) -> jax.Array:
    weighted = finite_or_zero(problem.windows.weights * found.residuals)
    return jnp.sqrt(squared(weighted) / jnp.maximum(problem.count, 1))


def _covariance(problem: Problem, found: Search) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the covariance of theta, how many of its combinations are determined, and which of them are not at all.

    From the eigenvalues of the information, in units in which its diagonal is one.
    """
    H = finite_or_zero(information(found.normal)) - problem.prior**2 * jnp.eye(
        problem.unknowns.size, dtype=problem.prior.dtype
    )
    n = len(H)
    if not n:
        return H, jnp.asarray(0), jnp.zeros(0, bool)
    sizes = problem.unknowns.sizes(problem.model)
    squares = jnp.diagonal(H) * sizes**2
    floor = jnp.finfo(H.dtype).eps * squares.max()  # columns of rounding alone are not made large
    root = jnp.sqrt(jnp.where(squares.max() > 0, jnp.maximum(squares, floor), 1)) / sizes
    w, V = jnp.linalg.eigh(H / (root[:, None] * root[None]))
    known = w > 64 * n * jnp.finfo(H.dtype).eps * jnp.maximum(w.max(), 1e-30)
    rank = known.sum()
    inverse = (V * jnp.where(known, 1 / jnp.where(known, w, 1), 0)[None]) @ V.T / (root[:, None] * root[None])
    free = problem.count - rank - found.normal.g_s.size
    variance = squared(finite_or_zero(problem.windows.weights * found.residuals)) / jnp.maximum(free, 1)
    unknown = (jnp.where(known[None], 0, V) ** 2).sum(1) > 1e-6
    return variance * inverse, rank, unknown


def _deviations(problem: Problem, theta: jax.Array, covariance: jax.Array, unknown: jax.Array) -> dict[str, jax.Array]:
    """Return the standard deviations of the numbers sought."""
    unknowns = problem.unknowns

    def values(theta: jax.Array) -> dict[str, jax.Array]:
        return unknowns.values(unknowns.model(problem.model, theta))

    deviations: dict[str, jax.Array] = {}
    for name, J in (jax.jacfwd(values)(theta) if unknowns.parts else {}).items():
        deviation = jnp.sqrt(jnp.maximum(((J @ covariance) * J).sum(-1), 0))
        touched = ((J != 0) & jnp.broadcast_to(unknown, J.shape)).any(-1)
        deviations[name] = jnp.where(touched, jnp.inf, deviation)
    return deviations


# ---------------------------------------------------------------------- recordings
def windows_of(model: Model, data: Any, segment: int | None, noise: Any, initial_state: bool) -> Windows:
    """Return recordings, checked, as windows of equal length."""
    recordings = list(data) if isinstance(data, (list, tuple)) and not hasattr(data, "q") else [data]
    if not recordings:
        raise ValueError("data must be a recording, or several; got none")
    if segment is not None and (not isinstance(segment, (int, np.integer)) or segment < 1):
        raise ValueError(f"segment must be a positive number of steps, or None; got {segment!r}")
    labels = ["data"] if len(recordings) == 1 else [f"data[{k}]" for k in range(len(recordings))]
    read = [_recording(model, *pair) for pair in zip(labels, recordings, strict=True)]
    dtype = jnp.result_type(model.dtype, *(x for r in read for x in r[:4]))
    length = min(segment or max(len(r[2]) for r in read), max(len(r[2]) for r in read))
    sigma = _sigmas(model, noise, dtype)
    parts = [_cut(*r, length, sigma, dtype, initial_state) for r in read]
    return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)


def _cut(
    q: Any, qd: Any, tau: Any, dt: Any, measured: bool, length: int, sigma: Any, dtype: Any, fitted: bool
) -> Windows:
    """Return one recording as windows; the last is filled up with its last row, without weight."""
    steps, nv = len(tau), len(sigma) // 2
    count = -(-steps // length)
    rows = np.arange(count)[:, None] * length + np.arange(length + 1)[None]
    inside, rows = rows <= steps, np.minimum(rows, steps)
    weights = inside[..., None] * np.concatenate([np.ones(nv), np.full(nv, float(measured))])
    if not fitted:
        weights[:, 0] = 0  # simulations start in the recorded state
    else:  # rows that two windows share count half in each
        weights[1:, 0] *= 0.5**0.5
        weights[:-1, -1] *= 0.5**0.5
    q, qd, tau = (x.astype(dtype) for x in (q[rows], qd[rows], tau[np.minimum(rows[:, :-1], steps - 1)]))
    return Windows(q, qd, tau, jnp.asarray(weights, dtype) / sigma[None, None], jnp.full(count, dt, dtype))


def _recording(model: Model, label: str, data: Any) -> tuple[jax.Array, jax.Array, jax.Array, Any, bool]:
    """Return (q, qd, tau, dt, whether qd was measured) of one recording."""
    q = _rows(model, label, "q", _of(data, "q"), model.nq)
    samples = len(q)
    if samples < 2:
        raise ValueError(f"{label}.q must have two rows or more, a state and what came of it; got {samples}")
    tau = _rows(model, label, "tau", _of(data, "tau"), model.nv)
    if len(tau) not in (samples - 1, samples):
        raise ValueError(
            f"{label}.tau must have {samples - 1} rows, one per step, or {samples}, one per row of q; got {len(tau)}"
        )
    dt = _time_step(label, _of(data, "dt"), _of(data, "t"), samples)
    if (velocities := _of(data, "qd")) is None:
        moved = jax.vmap(lambda q0, q1: difference(model, q0, q1))(q[:-1], q[1:])
        qd = jnp.concatenate([moved[:1], (moved[:-1] + moved[1:]) / 2, moved[-1:]]) / dt
    else:
        qd = _rows(model, label, "qd", velocities, model.nv)
        if len(qd) != samples:
            raise ValueError(f"{label}.qd must have {samples} rows, as many as q; got {len(qd)}")
    return q, qd, tau[: samples - 1], dt, velocities is not None


def _of(data: Any, name: str) -> Any:
    """Return what a recording has under a name: a key, an attribute, or one of the extras of a rollout."""
    if isinstance(data, Mapping) or (hasattr(data, "files") and hasattr(data, "__getitem__")):
        return data[name] if name in data else None  # noqa: SIM401  (archives of NumPy have no get)
    value = getattr(data, name, None)
    return getattr(data, "extras", {}).get(name) if value is None else value


def _rows(model: Model, label: str, name: str, value: Any, width: int) -> jax.Array:
    if value is None:
        raise ValueError(f"{label} must have {name}, of shape (rows, {width}); it has none")
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError):
        raise ValueError(f"{label}.{name} must have shape (rows, {width}); got rows of different lengths") from None
    if array.ndim != 2 or array.shape[1] != width:
        raise ValueError(f"{label}.{name} must have shape (rows, {width}); got {array.shape}")
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(f"{label}.{name} must be real; got {array.dtype}")
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(model.dtype)


def _time_step(label: str, dt: Any, t: Any, samples: int) -> Any:
    """Return the time step, of `dt` or of evenly spaced times."""
    if dt is None and t is None:
        raise ValueError(f"{label} must have a time step dt, or times t")
    if dt is None:
        if np.shape(t) != (samples,):
            raise ValueError(f"{label}.t must have shape ({samples},), one time per row of q; got {np.shape(t)}")
        dt = (t[-1] - t[0]) / (samples - 1)
        if not isinstance(t, jax.core.Tracer) and np.isfinite(t).all():
            steps = np.diff(np.asarray(t, np.float64))
            if np.abs(steps - steps.mean()).max() > 1e-2 * abs(steps.mean()):
                raise ValueError(f"{label}.t must be evenly spaced: resample the recording; its steps are "
                                 f"{steps.min():.4g} to {steps.max():.4g} s long")  # fmt: skip
    if not isinstance(dt, jax.core.Tracer):
        if np.ndim(dt):
            raise ValueError(f"{label}.dt must be one number; got shape {np.shape(dt)}")
        if not float(dt) > 0:
            raise ValueError(f"{label}.dt must be positive; got {float(dt)}")
    return jnp.asarray(dt, float)


def _sigmas(model: Model, noise: Any, dtype: Any) -> jax.Array:
    """Return the standard deviations of (q, qd), (2 nv,)."""
    if not isinstance(noise, (tuple, list)) or len(noise) != 2:
        raise ValueError(f"noise must be a pair, standard deviations of q and qd; got {noise!r}")
    for name, value in zip(("q", "qd"), noise, strict=True):
        if np.shape(value) not in ((), (model.nv,)):
            raise ValueError(f"noise of {name} must be a number or have shape ({model.nv},); got {np.shape(value)}")
        if not isinstance(value, jax.core.Tracer) and not np.all(np.asarray(value) > 0):
            raise ValueError(f"noise of {name} must be positive; got {value}")
    return jnp.concatenate([jnp.broadcast_to(jnp.asarray(x, dtype), (model.nv,)) for x in noise])
