r"""Shooting: any loss of a rollout, minimised by any optax optimiser, over joint forces or a policy's parameters.

Where the loss's gradient vanishes, the parameters p are a differentiable function of all that the loss depends on,

.. math:: \nabla_p^2 L\; dp = -\partial_\theta \nabla_p L\; d\theta,

solved by conjugate gradients with products of the Hessian and vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.custom_derivatives import SymbolicZero
from jax.flatten_util import ravel_pytree

from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.model import Model
from jaxdyn.recursion.ruled import Ruled
from jaxdyn.simulate import JointLimits, Trajectory, rollout
from jaxdyn.simulate.integrators import Integrator
from jaxdyn.simulate.loops import Remat
from jaxdyn.trajopt.optimum import once
from jaxdyn.trajopt.results import Solution, Status, finite_or_zero, report

RUNNING = -1
_LBFGS = optax.lbfgs()  # one object: another one would be compiled anew


class _Theta(NamedTuple):
    """What the loss depends on, besides its unknowns."""

    model: Model
    q: jax.Array
    qd: jax.Array
    dt: jax.Array
    data: Any
    limits: Any


class _Options(NamedTuple):
    """What is known when the program is compiled."""

    loss: Callable[..., Any]
    policy: Callable[..., Any] | None
    steps: int
    hold: int
    integrator: str | Integrator
    remat: Remat
    optimizer: Any
    project: Callable[[Any], Any] | None
    max_iterations: int
    tolerance: float
    verbose: bool


def shooting(
    model: Model,
    loss: Callable[..., Any],
    q: Any,
    qd: Any,
    tau: Any,
    *,
    dt: Any,
    steps: int | None = None,
    params: Any = None,
    data: Any = None,
    optimizer: Any = None,
    project: Callable[[Any], Any] | None = None,
    max_iterations: int = 200,
    tolerance: float = 1e-6,
    hold: int = 1,
    integrator: str | Integrator = "semi_implicit_euler",
    limits: JointLimits | None = None,
    remat: Remat = "none",
    verbose: bool = False,
) -> Solution:
    r"""Minimise a loss of a robot's motion by gradients through time.

    .. math:: \min_p\; \frac1B \sum_b L(\text{rollout}_b(p), p)

    The unknowns p are the joint forces, or the parameters of a policy. Derivatives of a solution that has converged are
    by the theorem of the implicit function, with respect to the model's leaves, q, qd, dt and data; those of another
    one take p to be constant. Second derivatives are refused. `jax.vmap` solves batches of problems.

    Args:
        model: the model.
        loss: function (trajectory, p) -> number, or (trajectory, p, data) if there are data. The trajectory is that of
            `jaxdyn.rollout`, its `extras["tau"]` the forces that acted.
        q: initial configuration, (nq,), or (B, nq) to minimise the mean over several starts.
        qd: initial velocity, (nv,) or (B, nv).
        tau: first guess of the joint forces, (T, nv), or a policy (t, q, qd, p) -> (nv,).
        dt: time step, s.
        steps: T; needed with a policy.
        params: first guess of the policy's parameters, any pytree.
        data: what else the loss depends on, such as targets; any pytree.
        optimizer: any optax optimiser, those with a line search included; by default `optax.lbfgs()`.
        project: function p -> p that is applied after each step, such as a clip to limits of torques. Solutions then
            have no derivatives.
        max_iterations: most steps to take.
        tolerance: largest component of the gradient at a solution. With `project`, of the change that a small step
            along the gradient makes.
        hold: number of steps for which a row of tau, or an answer of the policy, is held.
        integrator: as in `jaxdyn.rollout`.
        limits: springs at the joints' limits, as there.
        remat: what reverse mode keeps in memory, as there: "none", "steps" or "sqrt".
        verbose: print a line for each step.

    Returns:
        The solution with the smallest loss on the way: xs (T + 1, nq + nv) and us (T, nv), with an axis of starts
        before them if there are several; `cost` is the loss, and `extras["params"]` is p.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.trajopt import shooting
        >>> model = jaxdyn.load("pendulum")
        >>> miss = lambda run, tau: (run.q[-1, 0] - 1) ** 2 + run.qd[-1, 0] ** 2 + 1e-3 * (tau**2).mean()
        >>> found = shooting(model, miss, jnp.zeros(1), jnp.zeros(1), jnp.zeros((20, 1)), dt=0.05)
        >>> bool(found.cost < 0.1)
        True
    """
    arguments.require_model(model)
    starts = np.shape(q)[:-1]
    if len(starts) > 1 or np.shape(q) != (*starts, model.nq) or np.shape(qd) != (*starts, model.nv):
        raise ValueError(
            f"q and qd must have shapes ({model.nq},) and ({model.nv},), or (B, {model.nq}) and (B, {model.nv}) for "
            f"several starts; got {np.shape(q)} and {np.shape(qd)}"
        )
    if not callable(loss):
        raise TypeError(f"loss must be a function (trajectory, p); got {type(loss).__name__}")
    if callable(tau):
        if params is None:
            raise ValueError("params must be given with a policy: a first guess of its parameters")
        if steps is None:
            raise ValueError("steps must be given with a policy: the number of time steps")
    elif params is not None:
        raise ValueError("params are those of a policy, but tau is an array: the unknowns are the forces themselves")
    elif len(np.shape(tau)) != 2 or np.shape(tau)[1] != model.nv:
        raise ValueError(f"tau must have shape (T, {model.nv}), one row per step, or be a policy; got {np.shape(tau)}")
    if optimizer is not None and not hasattr(optimizer, "update"):
        raise TypeError(f"optimizer must be an optax optimiser, such as optax.adam(1e-2); got {optimizer!r}")
    if not isinstance(max_iterations, (int, np.integer)) or max_iterations < 1:
        raise ValueError(f"max_iterations must be a positive integer; got {max_iterations!r}")
    policy, p = (tau, params) if callable(tau) else (None, tau)
    steps = steps if policy else np.shape(tau)[0] * hold
    dtype = jnp.result_type(jnp.asarray(q), jnp.asarray(qd), model.dtype)
    theta = _Theta(model, jnp.asarray(q, dtype), jnp.asarray(qd, dtype), jnp.asarray(dt, dtype), data, limits)
    p = jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x, float) if policy else dtype), p)
    options = _Options(
        loss,
        policy,
        int(steps),  # type: ignore[arg-type]
        hold,
        integrator,
        remat,
        _LBFGS if optimizer is None else optimizer,
        project,
        int(max_iterations),
        float(tolerance),
        bool(verbose),
    )
    return _shot(theta, p, options)


@partial(jit, static_argnames="options")
def _shot(theta: _Theta, p: Any, options: _Options) -> Solution:
    ruled = Ruled(
        lambda theta, p: _descended(theta, p, options),
        lambda at, changes: _solution_and_change(ruled, options, at, changes),
    )
    p, status, iterations, history = ruled(theta, p)
    cost, run = _evaluated(theta, p, options)
    x, us = jnp.concatenate([run.q, run.qd], -1), run.extras["tau"]
    xs, us, cost, t = finite_or_zero((x, us, cost, run.t if run.t.ndim == 1 else run.t[0]))
    return Solution(xs, us, cost, status, iterations, history, t, {"params": p})


def _evaluated(theta: _Theta, p: Any, options: _Options) -> tuple[jax.Array, Trajectory]:
    """Return the mean loss and the motion."""
    policy = options.policy

    def one(q: jax.Array, qd: jax.Array) -> tuple[jax.Array, Trajectory]:
        run = rollout(
            theta.model,
            q,
            qd,
            p if policy is None else policy,
            dt=theta.dt,
            steps=options.steps,
            params=None if policy is None else p,
            hold=options.hold,
            integrator=options.integrator,
            limits=theta.limits,
            outputs=["tau"],
            remat=options.remat,
        )
        value = jnp.asarray(options.loss(run, p) if theta.data is None else options.loss(run, p, theta.data))
        if value.ndim:
            raise ValueError(f"loss must return a number; got {value.shape}")
        return value, run

    if theta.q.ndim == 1:
        return one(theta.q, theta.qd)
    values, runs = jax.vmap(one)(theta.q, theta.qd)
    return values.mean(), runs


class _State(NamedTuple):
    p: Any
    memory: Any
    best: Any
    least: jax.Array
    status: jax.Array
    iterations: jax.Array
    history: dict[str, jax.Array]


def _descended(theta: _Theta, p: Any, options: _Options) -> Any:
    """Return (p, status, iterations, history)."""
    optimizer = optax.with_extra_args_support(options.optimizer)
    project = options.project or (lambda p: p)
    value_of = lambda p: _evaluated(theta, p, options)[0]

    def step(state: _State) -> _State:
        value, gradient = jax.value_and_grad(value_of)(state.p)
        flat = ravel_pytree(gradient)[0]
        finite = jnp.isfinite(value) & jnp.isfinite(flat).all()
        if options.project is not None:
            small = jax.tree.map(lambda p, g: p - 1e-3 * g, state.p, gradient)
            flat = ravel_pytree(jax.tree.map(jnp.subtract, state.p, project(small)))[0] / 1e-3
        slope = jnp.abs(flat).max(initial=0)
        better = finite & (value < state.least)
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), state.p, state.best)
        update, memory = optimizer.update(
            gradient, state.memory, state.p, value=value, grad=gradient, value_fn=value_of
        )
        p = project(optax.apply_updates(state.p, update))
        moved = jnp.any(ravel_pytree(p)[0] != ravel_pytree(state.p)[0])
        status = jnp.select(
            [~finite & (state.iterations == 0), ~finite, slope <= options.tolerance, ~moved],
            [Status.NOT_FINITE, Status.STALLED, Status.CONVERGED, Status.STALLED],
            RUNNING,
        )
        keep = status == Status.CONVERGED  # the last point, even if an earlier one was lower by rounding
        best = jax.tree.map(lambda new, old: jnp.where(keep, new, old), state.p, best)
        row = {"cost": value, "gradient": slope}
        report(options.verbose, list(row), state.iterations, list(row.values()))
        history = {name: x.at[state.iterations].set(jnp.nan_to_num(row[name])) for name, x in state.history.items()}
        return _State(p, memory, best, jnp.where(better, value, state.least), status, state.iterations + 1, history)

    p = project(p)
    number = jax.eval_shape(value_of, p)
    rows = {name: jnp.zeros(options.max_iterations, number.dtype) for name in ("cost", "gradient")}
    least = jnp.full((), jnp.inf, number.dtype)
    zero = jnp.zeros((), int)
    state = jax.lax.while_loop(
        lambda state: (state.status == RUNNING) & (state.iterations < options.max_iterations),
        step,
        _State(p, optimizer.init(p), finite_or_zero(p), least, zero + RUNNING, zero, rows),
    )
    status = jnp.where(state.status == RUNNING, Status.MAX_ITERATIONS, state.status)
    return state.best, status, state.iterations, state.history


def _solution_and_change(ruled: Ruled, options: _Options, at: Any, changes: Any) -> Any:
    """Return the solution and its change along a change of what the loss depends on."""
    if options.project is not None:
        raise NotImplementedError(
            "solutions that a projection keeps within bounds have no derivatives here: leave out `project`, and put "
            "the bounds into the loss or the policy"
        )
    out = ruled(*at)
    theta, dtheta = at[0], jax.tree.map(_filled, at[0], changes[0])
    flat, restore = ravel_pytree(once(out[0]))
    slope = lambda theta, x: jax.grad(lambda x: _evaluated(theta, restore(x), options)[0])(x)
    right = jax.jvp(lambda theta: slope(theta, flat), (theta,), (dtheta,))[1]
    usable = out[1] == Status.CONVERGED
    product = lambda d: jax.jvp(lambda x: slope(theta, x), (flat,), (d,))[1]
    solve = lambda product, b: jax.scipy.sparse.linalg.cg(product, b, tol=1e-12, maxiter=10 * flat.size)[0]
    change = jax.lax.custom_linear_solve(product, jnp.where(usable, -right, 0), solve, symmetric=True)
    nothing = jax.tree.map(_no_change, out)
    return out, (restore(change), *nothing[1:])


def _filled(x: jax.Array, change: Any) -> Any:
    return _no_change(x) if isinstance(change, SymbolicZero) else change


def _no_change(x: jax.Array) -> Any:
    floating = jnp.issubdtype(jnp.result_type(x), jnp.floating)
    return jnp.zeros_like(x) if floating else np.zeros(jnp.shape(x), jax.dtypes.float0)
