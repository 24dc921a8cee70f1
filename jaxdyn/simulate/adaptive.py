"""Integration with steps as long as the accuracy allows, by the package diffrax."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.algorithms import arguments
from jaxdyn.model import Model, integrate
from jaxdyn.simulate.rollouts import Trajectory, answer, system_of
from jaxdyn.simulate.system import JointLimits, OfState, System


def adaptive_rollout(
    model: Model,
    q: Any,
    qd: Any,
    tau: Any,
    *,
    t: Any,
    params: Any = None,
    f_ext: Any = None,
    limits: JointLimits | None = None,
    solver: Any = None,
    rtol: float = 1e-8,
    atol: float = 1e-8,
    max_steps: int = 4096,
) -> Trajectory:
    """Simulate a robot with steps of adaptive length. Needs the package diffrax: `pip install jaxdyn[ode]`.

    Args:
        model: the model; its passive forces are included.
        q: initial configuration, (nq,).
        qd: initial velocity, (nv,).
        tau: constant joint forces, (nv,), or a policy (t, q, qd, params) -> (nv,), continuous in time.
        t: increasing times at which the state is wanted, (rows,); the first is that of the initial state.
        params: see `rollout`.
        f_ext: see `rollout`.
        limits: see `rollout`.
        solver: a solver of diffrax; `Dopri8()` if None.
        rtol: relative accuracy of a step.
        atol: absolute accuracy of a step.
        max_steps: the most steps to take.

    Returns:
        The trajectory at the times t; extras["steps"] is the number of steps taken.
    """
    diffrax = _diffrax()
    times = np.shape(t)
    if len(times) != 1 or times[0] < 2:
        raise ValueError(f"t must have shape (rows,), with two or more times; got {times}")
    if not isinstance(t, jax.core.Tracer):
        values = np.asarray(t, np.float64)
        if not (np.all(np.isfinite(values)) and np.all(np.diff(values) > 0)):
            raise ValueError(f"t must be finite and increasing; got {values}")
    policy = tau if callable(tau) else None
    system = system_of(model, f_ext, limits, params)
    solver = diffrax.Dopri8() if solver is None else solver
    return _adaptive(system, q, qd, None if policy else tau, t, rtol, atol, policy, solver, max_steps)


def _diffrax() -> Any:
    try:
        return import_module("diffrax")
    except ImportError as error:
        raise ImportError("adaptive_rollout needs the package diffrax: pip install jaxdyn[ode]") from error


@partial(jax.jit, static_argnames=("policy", "solver", "max_steps"))
def _adaptive(
    system: System,
    q: Any,
    qd: Any,
    tau: Any,
    t: Any,
    rtol: Any,
    atol: Any,
    policy: OfState | None,
    solver: Any,
    max_steps: int,
) -> Trajectory:
    diffrax, model = _diffrax(), system.model
    q, qd, tau = arguments.vectors(model, q=q, qd=qd, tau=jnp.zeros(model.nv, model.dtype) if tau is None else tau)
    still = jnp.zeros_like(qd)

    def rate(t: Any, state: Any, _: Any) -> Any:
        q, qd = state
        force = tau if policy is None else answer(policy(t, q, qd, system.params), model, q.dtype)
        _, dq = jax.jvp(lambda x: integrate(model, q, x), (still,), (qd,))
        return dq, system.acceleration(t, q, qd, force)

    t = jnp.asarray(t, q.dtype)
    found = diffrax.diffeqsolve(
        diffrax.ODETerm(rate),
        solver,
        t[0],
        t[-1],
        None,
        (integrate(model, q, still), qd),
        saveat=diffrax.SaveAt(ts=t),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
        max_steps=max_steps,
    )
    q_rows, qd_rows = found.ys
    unit = jax.vmap(lambda q: integrate(model, q, still))(q_rows)  # quaternions of length one
    return Trajectory(t, unit, qd_rows, {"steps": found.stats["num_steps"]})
