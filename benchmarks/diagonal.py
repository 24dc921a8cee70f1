"""What the diagonalised equations of motion cost beside forward dynamics, and what their twin by autodiff does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from benchmarks.dynamics import relative_error
from benchmarks.measure import compile_function, forget_compiled, interleave
from benchmarks.report import say
from benchmarks.robots import load_robot, random_states
from jaxdyn import diagonal

ROBOTS = ("arm", "anymal", "talos")
SHORT_ROBOTS = ("arm", "talos")
LINKS = (8, 32, 128, 512)
SHORT_LINKS = (8, 512)
BATCH = 1024
DT = 1e-3


def step(model: Any, q: Any, x: Any, qd: Any, tau: Any) -> Any:
    """Take a step of semi-implicit Euler with forward dynamics."""
    qd = qd + DT * jaxdyn.forward_dynamics(model, q, qd, tau)
    return jnp.concatenate([jaxdyn.integrate(model, q, DT * qd), qd])


def step_xi(model: Any, q: Any, x: Any, qd: Any, tau: Any) -> Any:
    """Take a step of Algorithm 8.1."""
    return jnp.concatenate(diagonal.step_xi(model, q, x, qd, tau, dt=DT))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "FD": lambda model, q, x, qd, tau: jaxdyn.forward_dynamics(model, q, qd, tau),
    "coriolis": lambda model, q, x, qd, tau: diagonal.coriolis(model, q, x),
    "coriolis_autodiff": lambda model, q, x, qd, tau: diagonal.coriolis_autodiff(model, q, x),
    "coriolis_xi": lambda model, q, x, qd, tau: diagonal.coriolis_xi(model, q, x),
    "forward_dynamics": lambda model, q, x, qd, tau: diagonal.forward_dynamics(model, q, x, tau),
    "step with FD": step,
    "step_xi": step_xi,
}
BESIDE = dict.fromkeys(("coriolis", "coriolis_autodiff", "coriolis_xi", "forward_dynamics"), "FD")
BESIDE["step_xi"] = "step with FD"


def run(robots: tuple[str, ...], links: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    """Time the equations beside forward dynamics, one row per function and robot; and per link, one per length."""
    rows = []
    for name in robots:
        timings, results, compile_times = _timed(name, FUNCTIONS, rounds)
        error = relative_error(results["coriolis"], results["coriolis_autodiff"])
        for function, beside in BESIDE.items():
            ratio = timings[function].ratio(timings[beside])[0]
            rows.append({"robot": name, "function": function, "beside": beside, "ratio": ratio, "batch": BATCH,
                         "compile_cpu_s": compile_times[function], "error": error})  # fmt: skip
        shown = ", ".join(f"{row['function']} / {row['beside']} {row['ratio']:.2f}" for row in rows[-len(BESIDE) :])
        say(f"diagonal {name}: {shown}; coriolis against autodiff {error:.1e}")
        say("  compiled in CPU s: " + ", ".join(f"{function} {t:.1f}" for function, t in compile_times.items()))
    for n in links:
        timings, _, _ = _timed(f"chain{n}", {name: FUNCTIONS[name] for name in ("FD", "coriolis")}, rounds)
        for function, timing in timings.items():
            rows.append({"function": function, "bodies": n, "us_per_body": 1e6 * timing.cpu / BATCH / n})
        say(
            f"diagonal, chain of {n}, us per link: FD, coriolis "
            + ", ".join(f"{r['us_per_body']:.3f}" for r in rows[-2:])
        )
    return rows


def _timed(robot: str, functions: dict[str, Any], rounds: int) -> tuple[Any, dict[str, np.ndarray], dict[str, float]]:
    model = load_robot(robot).model
    states = random_states(model, BATCH)
    given = [jnp.asarray(x) for x in (states.q, states.qdd, states.qd, states.tau)]  # any numbers will do for rates
    forget_compiled()
    calls, compile_times = {}, {}
    for name, function in functions.items():
        compiled = compile_function(jax.vmap(function, in_axes=(None, 0, 0, 0, 0)), model, *given)
        call = compiled.function
        calls[name] = lambda call=call: jax.block_until_ready(call(model, *given))
        compile_times[name] = compiled.seconds
    return interleave(calls, rounds=rounds), {name: np.asarray(call()) for name, call in calls.items()}, compile_times
