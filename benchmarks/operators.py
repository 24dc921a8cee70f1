"""What expressions in spatial operators cost, building included, beside the algorithms written by hand."""

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
from jaxdyn.operators import forward_dynamics, innovations_factor, spatial_operators

ROBOTS = ("arm", "anymal", "talos")
SHORT_ROBOTS = ("arm", "anymal")
LINKS = (8, 32, 128, 512)
SHORT_LINKS = (8, 512)
BATCH = 1024
State = tuple[Any, Any, Any, Any]


def newton_euler(model: Any, q: Any, qd: Any, qdd: Any, tau: Any) -> Any:
    """Apply the mass matrix as an expression."""
    s = spatial_operators(model, q)
    return (s.H @ s.phi @ s.M @ s.phi.T @ s.H.T) @ qdd


def solution(model: Any, q: Any, qd: Any, qdd: Any, tau: Any) -> Any:
    """Apply the inverse of the mass matrix by the innovations factor."""
    whiten = innovations_factor(model, q).inv()
    return (whiten.T @ whiten) @ tau


ONES: dict[str, Callable[..., Any]] = {
    "ID": lambda model, q, qd, qdd, tau: jaxdyn.inverse_dynamics(model, q, qd, qdd),
    "FD": lambda model, q, qd, qdd, tau: jaxdyn.forward_dynamics(model, q, qd, tau),
    "H phi M phi* H* x": newton_euler,
    "m^-* m^-1 x": solution,
    "FD, biases before": lambda model, q, qd, qdd, tau: forward_dynamics(model, q, qd, tau),
    "FD, biases inside": lambda model, q, qd, qdd, tau: forward_dynamics(model, q, qd, tau, biases="inside"),
}
BESIDE = {"H phi M phi* H* x": "ID", "m^-* m^-1 x": "FD", "FD, biases before": "FD", "FD, biases inside": "FD"}


def run(robots: tuple[str, ...], links: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    """Time expressions beside algorithms, one row per expression and robot; and per link, one row per length."""
    rows = []
    for name in robots:
        timings, results = _timed(name, ONES, rounds)
        error = max(relative_error(results[form], results["FD"]) for form in ("FD, biases before", "FD, biases inside"))
        for expression, beside in BESIDE.items():
            ratio = timings[expression].ratio(timings[beside])[0]
            rows.append({"robot": name, "expression": expression, "beside": beside, "ratio": ratio, "batch": BATCH})
        shown = ", ".join(f"{row['expression']} / {row['beside']} {row['ratio']:.2f}" for row in rows[-len(BESIDE) :])
        say(f"operators {name}: {shown}; error {error:.1e}")
    for n in links:
        timings, _ = _timed(f"chain{n}", {name: ONES[name] for name in ("H phi M phi* H* x", "m^-* m^-1 x")}, rounds)
        for expression, timing in timings.items():
            rows.append({"expression": expression, "bodies": n, "us_per_body": 1e6 * timing.cpu / BATCH / n})
        say(f"operators, chain of {n}, us per link: " + ", ".join(f"{r['us_per_body']:.3f}" for r in rows[-2:]))
    return rows


def _timed(robot: str, functions: dict[str, Any], rounds: int) -> tuple[Any, dict[str, np.ndarray]]:
    model = load_robot(robot).model
    states = random_states(model, BATCH)
    given = [jnp.asarray(x) for x in (states.q, states.qd, states.qdd, states.tau)]
    forget_compiled()
    calls = {}
    for name, function in functions.items():
        compiled = compile_function(jax.vmap(function, in_axes=(None, 0, 0, 0, 0)), model, *given).function
        calls[name] = lambda compiled=compiled: jax.block_until_ready(compiled(model, *given))
    return interleave(calls, rounds=rounds), {name: np.asarray(call()) for name, call in calls.items()}
