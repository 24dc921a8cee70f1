"""Rollouts of controllers that remember something: estimates, integrals of errors, filters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn import _checks
from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.model import Model, integrate
from jaxdyn.simulate import JointLimits, Trajectory, integrators
from jaxdyn.simulate.integrators import Integrator
from jaxdyn.simulate.rollouts import system_of
from jaxdyn.simulate.system import System

Policy = Callable[[Any, jax.Array, jax.Array, Any, Any], tuple[Any, Any]]
"""A function (t, q, qd, state, params) -> (tau, next state)."""


def stateful_rollout(
    model: Model,
    q: Any,
    qd: Any,
    policy: Policy,
    state: Any,
    *,
    dt: Any,
    steps: int,
    params: Any = None,
    t0: Any = 0.0,
    integrator: str | Integrator = "semi_implicit_euler",
    f_ext: Any = None,
    limits: JointLimits | None = None,
) -> Trajectory:
    """Simulate a robot under a policy that has a state of its own.

    As `jaxdyn.rollout`, but for the policy; what robot and policy do is differentiable, and batched by `jax.vmap`.

    Args:
        model: the model.
        q: initial configuration, (nq,).
        qd: initial velocity, (nv,).
        policy: a function (t, q, qd, state, params) -> (tau (nv,), state of the next step), asked at the beginning of
            every step.
        state: what the policy gets first; any pytree of arrays.
        dt: time step, s.
        steps: number of steps.
        params: parameters that the policy and `f_ext` get; any pytree.
        t0: time of the initial state, s.
        integrator: as in `jaxdyn.rollout`; also `f_ext` and `limits`.
        f_ext: see `jaxdyn.rollout`.
        limits: see `jaxdyn.rollout`.

    Returns:
        The trajectory; `extras` has "tau", (steps, nv), and "state", the policy's states, (steps + 1, ...).

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> model = jaxdyn.load("pendulum")
        >>> def policy(t, q, qd, integral, gain):  # PI control against an unknown load
        ...     return 10.0 * (1.0 - q) - 2.0 * qd + gain * integral, integral + 0.01 * (1.0 - q)
        >>> x = jnp.zeros(1)
        >>> jaxdyn.control.stateful_rollout(model, x, x, policy, x, dt=0.01, steps=50, params=5.0).q.shape
        (51, 1)
    """
    if not callable(policy):
        raise TypeError(f"policy must be a function (t, q, qd, state, params); got {type(policy).__name__}")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise ValueError(f"steps must be a non-negative integer; got {steps!r}")
    system = system_of(model, f_ext, limits, params)
    return _rollout(system, q, qd, state, dt, t0, policy, steps, integrators.find(integrator))


@partial(jit, static_argnames=("policy", "steps", "integrator"))
def _rollout(
    system: System, q: Any, qd: Any, state: Any, dt: Any, t0: Any, policy: Policy, steps: int, integrator: Integrator
) -> Trajectory:
    model = system.model
    q, qd = arguments.vectors(model, q=q, qd=qd)
    q = integrate(model, q, jnp.zeros_like(qd))
    dt, t0 = (_checks.number(name, x, q.dtype) for name, x in (("dt", dt), ("t0", t0)))
    state = jax.tree.map(jnp.asarray, state)
    form = jax.tree.map(lambda x: (x.shape, x.dtype), state)

    def step(carry: Any, i: jax.Array) -> Any:
        q, qd, state = carry
        t = t0 + dt * i.astype(q.dtype)
        answer = policy(t, q, qd, state, system.params)
        if not isinstance(answer, (tuple, list)) or len(answer) != 2:
            raise ValueError("a policy with a state must return a pair (tau, next state)")
        tau = _checks.vector("the policy's tau", answer[0], model.nv, "degree of freedom", q.dtype).astype(q.dtype)
        after = jax.tree.map(jnp.asarray, answer[1])
        if (came := jax.tree.map(lambda x: (x.shape, x.dtype), after)) != form:
            raise ValueError(f"the policy's next state must be like its first, {form}; got {came}")
        moved = integrator(system, t, q, qd, tau, dt)[:2]
        return (*moved, after), (*moved, after, tau)

    _, (qs, qds, states, tau) = jax.lax.scan(step, (q, qd, state), jnp.arange(steps))
    first = lambda x, rows: jnp.concatenate([x[None], rows])
    t = t0 + dt * jnp.arange(steps + 1).astype(q.dtype)
    return Trajectory(t, first(q, qs), first(qd, qds), {"tau": tau, "state": jax.tree.map(first, state, states)})
