"""Steps and rollouts: what a robot does under given joint forces, or under a policy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn import _checks
from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments, kinetic_energy, potential_energy
from jaxdyn.algorithms.aba import require_regular
from jaxdyn.joints import Free, Spherical
from jaxdyn.model import Model, neutral
from jaxdyn.simulate import integrators
from jaxdyn.simulate.configurations import normalised
from jaxdyn.simulate.integrators import Integrator
from jaxdyn.simulate.loops import REMATS, Remat, loop
from jaxdyn.simulate.nonfinite import guarded
from jaxdyn.simulate.progress import Bar, ticked
from jaxdyn.simulate.system import JointLimits, OfState, System, has_only_damping

OUTPUTS = ("qdd", "tau", "energy")


class Trajectory(NamedTuple):
    """A motion in time. Rows are those of saved states; row 0 is the initial state."""

    t: jax.Array
    """(rows,) time, s."""
    q: jax.Array
    """(rows, nq) configurations."""
    qd: jax.Array
    """(rows, nv) velocities."""
    extras: dict[str, Any] = {}
    """What else was asked for, see `rollout`."""


class Options(NamedTuple):
    """What of a rollout is known when it is compiled."""

    steps: int
    policy: OfState | None
    hold: int
    save_every: int
    integrator: Integrator
    outputs: tuple[str, ...]
    observables: tuple[tuple[str, OfState], ...]
    remat: Remat
    guard: bool
    progress: int
    """On how many devices of this process a bar shows how far the run is; 0 for no bar."""


class Begun(NamedTuple):
    """Where a rollout goes on that was begun before."""

    steps: Any
    """Number of steps that it has done."""
    failed_at: Any = -1
    """The step that failed, -1 if none has."""


class _Carry(NamedTuple):
    """What goes from step to step."""

    q: jax.Array
    qd: jax.Array
    tau: jax.Array | None
    """What a policy that is held said last."""
    failed_at: jax.Array | None
    """The step that failed, -1 if none has."""


def step(
    model: Model,
    q: Any,
    qd: Any,
    tau: Any,
    *,
    dt: Any,
    t: Any = 0.0,
    integrator: str | Integrator = "semi_implicit_euler",
    f_ext: Any = None,
    limits: JointLimits | None = None,
    params: Any = None,
) -> tuple[jax.Array, jax.Array]:
    """Advance a state by one time step, under given joint forces and the model's passive forces.

    Args:
        model: the model.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        tau: joint forces, (nv,), held over the step.
        dt: time step, s.
        t: time, for an `f_ext` that depends on it.
        integrator: see `rollout`.
        f_ext: see `rollout`.
        limits: see `rollout`.
        params: see `rollout`.

    Returns:
        (q, qd) after the step.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.simulate import step
        >>> model = jaxdyn.load("pendulum")
        >>> q, qd = step(model, jnp.array([0.1]), jnp.zeros(1), jnp.zeros(1), dt=0.01)
        >>> bool(qd[0] < 0)
        True
    """
    system = system_of(model, f_ext, limits, params)
    return _step(system, q, qd, tau, dt, t, integrators.find(integrator))


@partial(jit, static_argnames="integrator")
def _step(system: System, q: Any, qd: Any, tau: Any, dt: Any, t: Any, integrator: Integrator) -> Any:
    q, qd, tau = arguments.vectors(system.model, q=q, qd=qd, tau=tau)
    t, dt = (_checks.number(name, x, q.dtype) for name, x in (("t", t), ("dt", dt)))
    return integrator(system, t, q, qd, tau, dt)[:2]


def rollout(
    model: Model,
    q: Any,
    qd: Any,
    tau: Any,
    *,
    dt: Any,
    steps: int | None = None,
    params: Any = None,
    hold: int = 1,
    t0: Any = 0.0,
    integrator: str | Integrator = "semi_implicit_euler",
    f_ext: Any = None,
    limits: JointLimits | None = None,
    outputs: Sequence[str] = (),
    observables: Mapping[str, OfState] | None = None,
    save_every: int = 1,
    remat: Remat = "none",
    on_nonfinite: Literal["stop", "report"] | None = None,
    progress: bool = False,
) -> Trajectory:
    """Simulate a robot over many time steps.

    The model's passive forces (springs, damping, Coulomb friction) are included. Batches of states, inputs, parameters
    and models are made with `jax.vmap`; gradients, with respect to all of them, with `jax.grad`.

    Args:
        model: the model.
        q: initial configuration, (nq,). Quaternions are normalised.
        qd: initial velocity, (nv,).
        tau: joint forces, (T, nv), row i held during step i; or a policy (t, q, qd, params) -> (nv,), asked at the
            beginning of every step.
        dt: time step, s.
        steps: T; needed with a policy.
        params: parameters that the policy, `f_ext` and observables get; any pytree.
        hold: number of steps for which each row of tau, or each answer of the policy, is held. T is then hold times
            the number of rows.
        t0: time of the initial state, s.
        integrator: "semi_implicit_euler" (damping is implicit), "mujoco_euler" (the same, but a floating base as in
            MuJoCo), "midpoint", "rk4", "implicit_midpoint", "diagonal" (keeps the energy); or a function
            (system, t, q, qd, tau, dt) -> (q, qd, qdd), as those in `jaxdyn.simulate.integrators`.
        f_ext: force on each body, (nbodies, 6), as in `forward_dynamics`; or a function (t, q, qd, params) of it,
            evaluated as often as the acceleration.
        limits: springs at the joints' limits, `JointLimits(...)`; none if None.
        outputs: some of "qdd" and "tau", (rows - 1, nv): mean acceleration and joint forces of the step that follows
            each saved state but the last; and "energy", (rows,), kinetic and potential.
        observables: further functions (t, q, qd, params) of the saved states, by name.
        save_every: k, a divisor of T: only every k-th state is saved.
        remat: what reverse mode keeps in memory. "none": what every step needs; "steps": every state; "sqrt": every
            sqrt(T)-th. What is not kept is computed again.
        on_nonfinite: what happens when a state is not finite any more. None: it is taken as it comes. "stop": the
            robot stays in its last finite state, and extras["failed_at"] is the number of the step that failed, -1 if
            none has; others of a batch are not affected, and gradients stay finite. "report": the same, with a warning
            unless the call is traced, as it is under `jax.vmap`.
        progress: show on stderr how far the run is: one bar for all of a batch, at most 100 times a run. Not
            shown while a derivative is taken.

    Returns:
        The trajectory, of T / k + 1 rows; outputs and observables are in its `extras`.

    Example:
        >>> import jax, jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.simulate import rollout
        >>> model = jaxdyn.load("arm7")
        >>> q, qd, tau = jaxdyn.neutral(model), jnp.zeros(7), jnp.zeros((20, 7))
        >>> trajectory = rollout(model, q, qd, tau, dt=0.01, outputs=["energy"])
        >>> trajectory.q.shape, trajectory.extras["energy"].shape
        ((21, 7), (21,))
        >>> damp = lambda t, q, qd, gain: -gain * qd
        >>> rollout(model, q, qd, damp, dt=0.01, steps=20, params=2.0).t.shape
        (21,)
    """
    system = system_of(model, f_ext, limits, params)
    tau = inputs_of("tau", tau, f"(T, {model.nv}), one row per step, or be a policy (t, q, qd, params)")
    options = options_of(
        model,
        tau,
        steps=steps,
        hold=hold,
        save_every=save_every,
        integrator=integrator,
        outputs=outputs,
        observables=observables,
        remat=remat,
        on_nonfinite=on_nonfinite,
        progress=progress,
    )
    _warn_of_lengths(model, q)
    trajectory = run(system, q, qd, None if options.policy else tau, dt, t0, options)
    if on_nonfinite == "report":
        _warn_of_failure(trajectory.extras["failed_at"])
    return trajectory


@partial(jit, static_argnames="options")
def run(
    system: System, q: Any, qd: Any, tau: Any, dt: Any, t0: Any, options: Options, begun: Begun | None = None
) -> Trajectory:
    """Return the trajectory of a system; t0 is the time of step 0, also if the run was begun before."""
    model = system.model
    q, qd = arguments.vectors(model, q=q, qd=qd)
    tau = None if tau is None else _floating(tau, model.dtype)
    dtype = jnp.result_type(q, qd, model.dtype, *([] if tau is None else [tau]))
    q, qd, tau = (None if x is None else x.astype(dtype) for x in (q, qd, tau))
    q = normalised(model, q)
    dt, t0 = (_checks.number(name, x, dtype) for name, x in (("dt", dt), ("t0", t0)))
    (q_rows, qd_rows), during, failed_at = _scanned(options, system, q, qd, tau, dt, t0, begun)
    q_rows, qd_rows = jnp.concatenate([q[None], q_rows]), jnp.concatenate([qd[None], qd_rows])
    t = t0 + dt * _since(begun, options.save_every * jnp.arange(q_rows.shape[0])).astype(dtype)
    extras = dict(during)
    of_rows: Any = partial(_of_finite_states, model) if options.guard else jax.vmap
    if "energy" in options.outputs:
        energy = lambda t, q, qd: kinetic_energy(model, q, qd) + potential_energy(model, q)
        extras["energy"] = of_rows(energy)(t, q_rows, qd_rows)
    for name, observe in options.observables:
        extras[name] = of_rows(lambda t, q, qd: observe(t, q, qd, system.params))(t, q_rows, qd_rows)
    if options.guard:
        extras["failed_at"] = failed_at
    return Trajectory(t, q_rows, qd_rows, extras)


def _of_finite_states(model: Model, f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of all rows, not a number where a state is not finite; there it has no derivatives."""

    def of_state(t: jax.Array, q: jax.Array, qd: jax.Array) -> Any:
        ok = jnp.isfinite(q).all() & jnp.isfinite(qd).all()
        found = f(t, jnp.where(ok, q, neutral(model).astype(q.dtype)), jnp.where(ok, qd, 0))
        none = lambda x: jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.zeros_like(x)
        return jax.tree.map(lambda x: jnp.where(ok, x, none(jnp.asarray(x))), found)

    return jax.vmap(of_state)


# ---------------------------------------------------------------------- the loop over time
def _advance(options: Options, system: System, dt: Any, t0: Any, q: Any, qd: Any, said: Any, i: Any) -> Any:
    """Return (q, qd, qdd, tau) after step i; `said` is what acts, or what the policy said last."""
    t, policy = t0 + i.astype(q.dtype) * dt, options.policy
    tau = said
    if policy is not None:
        ask = lambda: answer(policy(t, q, qd, system.params), system.model, q.dtype)
        tau = ask() if options.hold == 1 else jax.lax.cond(i % options.hold == 0, ask, lambda: said)
    return *options.integrator(system, t, q, qd, tau, dt), tau


def _step_of(options: Options, system: System, dt: Any, t0: Any, carry: _Carry, x: Any) -> Any:
    """Return the carry after a step, and what is saved of it: what holds after it, and during it."""
    i, row = x
    if options.progress:
        carry = carry._replace(q=ticked(Bar(options.steps, options.progress), i, carry.q))
    advance = partial(_advance, options)
    args = system, dt, t0, carry.q, carry.qd, carry.tau if options.policy else row, i
    if carry.failed_at is None:
        q, qd, qdd, tau = advance(*args)
        failed_at = None
    else:
        (q, qd, qdd, tau), ok = guarded(advance)(*args)
        well = carry.failed_at < 0
        q, qd = jnp.where(well & ok, q, carry.q), jnp.where(well & ok, qd, carry.qd)
        qdd, tau = (jnp.where(well, x, 0) for x in (qdd, tau))
        failed_at = jnp.where(well & ~ok, i, carry.failed_at)
    during = {name: x for name, x in (("qdd", qdd), ("tau", tau)) if name in options.outputs}
    return _Carry(q, qd, None if carry.tau is None else tau, failed_at), ((q, qd), during)


def _scanned(options: Options, system: System, q: Any, qd: Any, tau: Any, dt: Any, t0: Any, begun: Begun | None) -> Any:
    """Return ((q, qd) rows, what holds during steps, the step that failed)."""
    held = 0 * qd if options.policy and options.hold > 1 else None
    failed_at = None
    if options.guard:
        failed_at = jnp.where(jnp.isfinite(q).all() & jnp.isfinite(qd).all(), -1, 0)
        failed_at = failed_at if begun is None else jnp.asarray(begun.failed_at, failed_at.dtype)
    tau = tau if tau is None or options.hold == 1 else jnp.repeat(tau, options.hold, axis=0)
    step, xs = partial(_step_of, options, system, dt, t0), (_since(begun, jnp.arange(options.steps)), tau)
    carry, (after, during) = loop(step, _Carry(q, qd, held, failed_at), xs, options.save_every, options.remat)
    return after, during, carry.failed_at


def _since(begun: Begun | None, steps: jax.Array) -> jax.Array:
    """Return numbers of steps, counted from the beginning of the run."""
    return steps if begun is None else jnp.asarray(begun.steps, steps.dtype) + steps


# ---------------------------------------------------------------------- arguments
def system_of(model: Model, f_ext: Any, limits: JointLimits | None, params: Any) -> System:
    """Return the model with what acts on it, checked."""
    arguments.require_model(model)
    require_regular(model)
    if limits is not None and not isinstance(limits, JointLimits):
        raise TypeError(f"limits must be JointLimits(...) or None; got {type(limits).__name__}")
    constant, of_state = (None, f_ext) if callable(f_ext) else (arguments.forces(model, f_ext), None)
    return System(model, params, limits, constant, of_state, has_only_damping(model))


def inputs_of(name: str, value: Any, wanted: str) -> Any:
    """Return lists as an array, or raise a ValueError; anything else as it is."""
    if not isinstance(value, (list, tuple)):
        return value
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError):
        got = "a list that makes no array: rows of different lengths, or things that are no numbers"
        raise ValueError(f"{name} must have shape {wanted}; got {got}") from None


def options_of(
    model: Model,
    tau: Any,
    *,
    steps: int | None = None,
    hold: int = 1,
    save_every: int = 1,
    integrator: str | Integrator = "semi_implicit_euler",
    outputs: Sequence[str] = (),
    observables: Mapping[str, OfState] | None = None,
    remat: Remat = "none",
    on_nonfinite: str | None = None,
    progress: bool = False,
) -> Options:
    """Return the options, checked."""
    for name, value in (("hold", hold), ("save_every", save_every)):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a positive integer; got {value!r}")
    if remat not in REMATS:
        raise ValueError(f'remat must be "none", "steps" or "sqrt"; got {remat!r}')
    if on_nonfinite not in (None, "stop", "report"):
        raise ValueError(f'on_nonfinite must be "stop", "report" or None; got {on_nonfinite!r}')
    outputs = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    for name in outputs:
        if name not in OUTPUTS:
            raise ValueError(f"outputs has {name!r}, which is not known: {_checks.suggestion(name, OUTPUTS)}")
    observables = dict(observables or {})
    for name, function in observables.items():
        if not callable(function):
            raise TypeError(f"observables[{name!r}] must be a function (t, q, qd, params)")
        if name in (*OUTPUTS, "failed_at"):
            raise ValueError(f"observables has {name!r}, the name of one of the outputs: choose another")
    policy = tau if callable(tau) else None
    if policy is None:
        shape = np.shape(tau)
        if len(shape) != 2 or shape[1] != model.nv:
            hint = "; use jax.vmap for a batch" if len(shape) == 3 and shape[-1] == model.nv else ""
            raise ValueError(
                f"tau must have shape (T, {model.nv}), one row per step, or be a policy (t, q, qd, params); "
                f"got {shape}{hint}"
            )
        if steps not in (None, shape[0] * hold):
            raise ValueError(f"steps is {steps}, but tau has {shape[0]} rows, held for {hold} steps each")
        steps = shape[0] * hold
    elif steps is None:
        raise ValueError("steps must be given with a policy: the number of time steps")
    if not isinstance(steps, (int, np.integer)) or isinstance(steps, bool) or steps < 0:
        raise ValueError(f"steps must be a non-negative integer; got {steps!r}")
    if steps % save_every:
        raise ValueError(f"save_every must divide the number of steps, {steps}; got {save_every}")
    return Options(
        steps=int(steps),
        policy=policy,
        hold=hold,
        save_every=save_every,
        integrator=integrators.find(integrator),
        outputs=outputs,
        observables=tuple(observables.items()),
        remat=remat,
        guard=bool(on_nonfinite),
        progress=int(bool(progress)),
    )


def _floating(x: Any, dtype: Any) -> jax.Array:
    array = jnp.asarray(x)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(f"tau must be real; got {array.dtype}")
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(dtype)


def answer(tau: Any, model: Model, dtype: Any) -> jax.Array:
    """Return what a policy said, checked."""
    return _checks.vector("what the policy returns", tau, model.nv, "degree of freedom", dtype).astype(dtype)


def _warn_of_lengths(model: Model, q: Any) -> None:
    """Warn of quaternions that are not of length one, and refuse those that are zero, unless q is traced."""
    if isinstance(q, jax.core.Tracer) or np.shape(q) != (model.nq,):
        return
    values = np.asarray(q)
    for group in model.topology.own_groups:
        if not isinstance(group.joint, (Spherical, Free)):
            continue
        lengths = np.linalg.norm(values[group.q[:, :4]].astype(np.float64), axis=1)
        names = [model.joint_names[body] for body in group.bodies]
        for name, length in zip(names, lengths, strict=True):
            if length == 0:
                raise ValueError(f"q has a quaternion of length zero, at joint {name!r}")
            if abs(length - 1) > 1e-4:
                warnings.warn(
                    f"q has a quaternion of length {length:.6g} at joint {name!r}; it is normalised", stacklevel=3
                )


def _warn_of_failure(failed_at: Any) -> None:
    if isinstance(failed_at, jax.core.Tracer) or int(failed_at) < 0:
        return
    warnings.warn(f"the state is not finite after step {int(failed_at)}; the rollout stops there", stacklevel=3)
