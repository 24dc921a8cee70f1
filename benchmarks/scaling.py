"""How cost grows with the number of bodies, and from where on ABA beats CRBA + Cholesky."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np

import jaxdyn
from benchmarks.contenders.base import inputs
from benchmarks.contenders.of_pinocchio import Pinocchio
from benchmarks.dynamics import relative_error
from benchmarks.measure import compile_function, forget_compiled, interleave
from benchmarks.report import say
from benchmarks.robots import load_robot, random_states

LINKS = (8, 16, 32, 64, 128, 256, 512)
SHORT_LINKS = (8, 512)
LINK_BATCH = 1024
KINDS = ("chain", "spherical", "floating")
"""Revolute chains, spherical chains, revolute chains on a free base."""
SIZES = (2, 4, 6, 8, 12, 16, 24, 32, 64)
CROSSOVER_BATCHES = (1024, 1)


def cost_per_link(links: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    """Time forward dynamics of revolute chains in float64; one row per length, with the time per body."""
    if not _is_there():
        return []
    rows = []
    for n in links:
        robot = load_robot(f"chain{n}")
        states = random_states(robot.model, LINK_BATCH)
        forget_compiled()
        reference = Pinocchio(robot).job("FD", states, np.float64)
        call = _call(jaxdyn.forward_dynamics, robot.model, inputs("FD", states))
        timings = interleave({"jaxdyn": call, "Pinocchio": reference.call}, rounds=rounds)
        truth = reference.ours()
        row: dict[str, Any] = {"bodies": n, "batch": LINK_BATCH}
        row["error"] = relative_error(np.asarray(call())[: len(truth)], truth)
        for name, timing in timings.items():
            row[f"{name}_us_per_body"] = 1e6 * timing.cpu / LINK_BATCH / n
        rows.append(row)
        shown = ", ".join(f"{name} {row[f'{name}_us_per_body']:.3f} us" for name in timings)
        say(f"cost per link, chain of {n}: {shown}")
    return rows


def crossover(batches: tuple[int, ...], precisions: tuple[str, ...], rounds: int) -> list[dict[str, Any]]:
    """Time ABA beside CRBA + Cholesky on chains of growing length; one row per chain, batch and precision."""
    if not _is_there():
        return []
    rows = []
    for precision in precisions:
        for batch in batches:
            for kind in KINDS:
                new = [_both(kind, n, batch, precision, rounds) for n in SIZES]
                rows += new
                say(
                    f"crossover {kind} {precision} B={batch}: ABA / CRBA + Cholesky "
                    + ", ".join(f"{row['bodies']}: {row['ratio']:.2f}" for row in new)
                    + f"; ABA wins from N = {wins_from(new)} on"
                )
    return rows


def wins_from(rows: list[dict[str, Any]]) -> int | None:
    """Return the smallest number of bodies from which on ABA was always faster."""
    winner = None
    for row in sorted(rows, key=lambda row: -row["bodies"]):
        if row["ratio"] >= 1:
            break
        winner = row["bodies"]
    return winner


def crba_cholesky(model: jaxdyn.Model, q: jax.Array, qd: jax.Array, tau: jax.Array) -> jax.Array:
    """Solve M qdd = tau - bias: the twin that `forward_dynamics` is compared with."""
    bias = jaxdyn.inverse_dynamics(model, q, qd, jnp.zeros_like(qd))
    factor = jax.scipy.linalg.cho_factor(jaxdyn.mass_matrix(model, q), lower=True)
    return jax.scipy.linalg.cho_solve(factor, tau - bias)


def _both(kind: str, n: int, batch: int, precision: str, rounds: int) -> dict[str, Any]:
    robot = load_robot(f"{kind}{n}")
    forget_compiled()
    with jax.enable_x64(precision == "float64"):
        model = robot.model.astype(precision)
        given = inputs("FD", random_states(robot.model, batch))
        aba, crba = (_call(f, model, given) for f in (jaxdyn.forward_dynamics, crba_cholesky))
        difference = relative_error(np.asarray(aba(), np.float64), np.asarray(crba(), np.float64))
        timings = interleave({"aba": aba, "crba": crba}, rounds=rounds)
    row: dict[str, Any] = {"kind": kind, "bodies": n, "nv": robot.model.nv, "batch": batch, "precision": precision}
    row |= {f"{name}_us": 1e6 * timing.cpu / batch for name, timing in timings.items()}
    return row | {"difference": difference, "ratio": timings["aba"].ratio(timings["crba"])[0]}


def _call(function: Any, model: jaxdyn.Model, given: tuple[np.ndarray, ...]) -> Any:
    """Return a compiled call for a batch of states that blocks on its result.

    A batch of one is a batch too: so it is the recursion that is timed, not a form for single states.
    """
    arguments = [jnp.asarray(x, model.dtype) for x in given]
    compiled = compile_function(jax.vmap(function, in_axes=(None, 0, 0, 0)), model, *arguments).function
    return lambda: jax.block_until_ready(compiled(model, *arguments))


def _is_there() -> bool:
    if hasattr(jaxdyn, "forward_dynamics"):
        return True
    say("scaling: missing: jaxdyn.forward_dynamics")
    return False
