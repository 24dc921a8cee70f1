"""How time grows with the number of bodies, one state at a time: scans in logarithmic depth beside serial sweeps.

On one core the scans do more arithmetic than the sweeps, and can only win by starting fewer operations; what they are
made for are machines that do all of a step at once.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from benchmarks.dynamics import relative_error
from benchmarks.measure import compile_function, forget_compiled, interleave
from benchmarks.report import say
from benchmarks.robots import bare, random_states
from jaxdyn.model.random_models import random_chain

LINKS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
SHORT_LINKS = (8, 64, 512)
SERIAL: dict[str, Any] = {
    "FD": lambda model, q, qd, tau, _: jaxdyn.forward_dynamics(model, q, qd, tau, form="sweep"),
    "ID": lambda model, q, qd, _, qdd: jaxdyn.inverse_dynamics(model, q, qd, qdd, form="sweep"),
    "kinematics": lambda model, q, *_: jaxdyn.forward_kinematics(model, q),
    "factor": lambda model, q, _, tau, __: jaxdyn.operators.innovations_factor(model, q).solve(tau),
}
PARALLEL: dict[str, Any] = {
    "FD": lambda model, q, qd, tau, _: jaxdyn.parallel.forward_dynamics(model, q, qd, tau),
    "ID": lambda model, q, qd, _, qdd: jaxdyn.parallel.inverse_dynamics(model, q, qd, qdd),
    "kinematics": lambda model, q, *_: jaxdyn.parallel.forward_kinematics(model, q),
    "factor": lambda model, q, _, tau, __: jaxdyn.parallel.innovations_factor(model, q).solve(tau),
}
"""Forward and inverse dynamics, poses of the bodies, and a solution with the innovations factor, which is built too."""


def run(links: tuple[int, ...], precisions: tuple[str, ...], rounds: int) -> list[dict[str, Any]]:
    """Time both forms on revolute chains; one row per quantity, length and precision."""
    if not hasattr(jaxdyn, "parallel"):
        say("parallel: missing: jaxdyn.parallel")
        return []
    rows = []
    for precision in precisions:
        for quantity in SERIAL:
            for n in links:
                forget_compiled()
                model = bare(random_chain(n))
                with jax.enable_x64(precision == "float64"):
                    row = _both(quantity, model.astype(precision), precision, rounds)
                rows.append(row)
                say(
                    f"parallel {quantity} {precision}, chain of {n}: {row['parallel_us']:.0f} us, "
                    f"serial {row['serial_us']:.0f} us, ratio {row['ratio']:.2f}; "
                    f"compile {row['parallel_compile_s']:.1f} and {row['serial_compile_s']:.1f} s; "
                    f"difference {row['difference']:.0e}"
                )
    return rows


def _both(quantity: str, model: jaxdyn.Model, precision: str, rounds: int) -> dict[str, Any]:
    states = random_states(model, 1)
    given = tuple(jnp.asarray(x[0], precision) for x in (states.q, states.qd, states.tau, states.qdd))
    forms = {"parallel": PARALLEL[quantity], "serial": SERIAL[quantity]}
    compiled = {form: compile_function(function, model, *given) for form, function in forms.items()}
    calls = {
        form: lambda function=c.function: jax.block_until_ready(function(model, *given)) for form, c in compiled.items()
    }
    flat = lambda result: np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in jax.tree.leaves(result)])
    results = {form: flat(call()) for form, call in calls.items()}
    timings = interleave(calls, rounds=rounds)
    row: dict[str, Any] = {"quantity": quantity, "bodies": model.nbodies, "precision": precision}
    row |= {f"{form}_us": 1e6 * timing.cpu for form, timing in timings.items()}
    row |= {f"{form}_compile_s": c.seconds for form, c in compiled.items()}
    row["ratio"] = timings["parallel"].ratio(timings["serial"])[0]
    row["difference"] = relative_error(results["parallel"], results["serial"])
    return row
