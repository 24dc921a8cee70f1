"""How cost grows with the number of bodies, and from where on ABA beats CRBA + Cholesky.

For a single state ABA is also timed beside jaxdyn's matrices, between which `form="auto"` chooses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
LARGE_ROBOTS = ("arm", "anymal", "talos")
LARGE_BATCHES = (1024, 8192)
KINDS = ("chain", "spherical", "floating")
"""Revolute chains, spherical chains, revolute chains on a free base."""
SIZES = (2, 4, 6, 8, 12, 16, 24, 32, 64, 128)
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


def large_batch(robots: tuple[str, ...], rounds: int) -> list[dict[str, Any]]:
    """Time forward dynamics of a usual and of a large batch, in turns; one row per robot."""
    if not _is_there():
        return []
    rows = []
    for name in robots:
        model = load_robot(name).model
        given = inputs("FD", random_states(model, max(LARGE_BATCHES)))
        forget_compiled()
        calls = {str(n): _call(jaxdyn.forward_dynamics, model, tuple(x[:n] for x in given)) for n in LARGE_BATCHES}
        usual, large = interleave(calls, rounds=rounds).values()
        ratio = large.ratio(usual)[0] * LARGE_BATCHES[0] / LARGE_BATCHES[1]
        rows.append({"robot": name, "batches": LARGE_BATCHES, "ratio_per_evaluation": ratio})
        say(f"large batch, {name}: B = {LARGE_BATCHES[1]} takes {ratio:.2f} of B = {LARGE_BATCHES[0]} per evaluation")
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
                    + f"; ABA wins from N on: {wins_from(new) or 'never here'}"
                )
    return rows


def wins_from(rows: Sequence[Mapping[str, Any]], key: str = "ratio") -> int | None:
    """Return the smallest number of bodies from which on ABA was always faster."""
    winner = None
    for row in sorted(rows, key=lambda row: -row["bodies"]):
        if row[key] >= 1:
            break
        winner = row["bodies"]
    return winner


def aba(model: jaxdyn.Model, q: jax.Array, qd: jax.Array, tau: jax.Array) -> jax.Array:
    """Return the accelerations by the articulated-body recursion."""
    return jaxdyn.forward_dynamics(model, q, qd, tau, form="sweep")


def crba_cholesky(model: jaxdyn.Model, q: jax.Array, qd: jax.Array, tau: jax.Array) -> jax.Array:
    """Solve M qdd = tau - bias, both by recursions: the twin that `aba` is compared with."""
    bias = jaxdyn.inverse_dynamics(model, q, qd, jnp.zeros_like(qd), form="sweep")
    factor = jax.scipy.linalg.cho_factor(jaxdyn.mass_matrix(model, q, form="sweep"), lower=True)
    return jax.scipy.linalg.cho_solve(factor, tau - bias)


def matrices(model: jaxdyn.Model, q: jax.Array, qd: jax.Array, tau: jax.Array) -> jax.Array:
    """Return the accelerations by jaxdyn's form for single states."""
    return jaxdyn.forward_dynamics(model, q, qd, tau, form="dense")


def _both(kind: str, n: int, batch: int, precision: str, rounds: int) -> dict[str, Any]:
    robot = load_robot(f"{kind}{n}")
    forget_compiled()
    forms = {"aba": aba, "crba": crba_cholesky} | ({"matrices": matrices} if batch == 1 else {})
    with jax.enable_x64(precision == "float64"):
        model = robot.model.astype(precision)
        given = inputs("FD", random_states(robot.model, batch))
        calls = {name: _call(form, model, given) for name, form in forms.items()}
        first = np.asarray(calls["aba"](), np.float64)
        differences = [relative_error(np.asarray(call(), np.float64), first) for call in calls.values()]
        timings = interleave(calls, rounds=rounds)
    row: dict[str, Any] = {"kind": kind, "bodies": n, "nv": robot.model.nv, "batch": batch, "precision": precision}
    row |= {f"{name}_us": 1e6 * timing.cpu / batch for name, timing in timings.items()}
    row |= {"difference": max(differences), "ratio": timings["aba"].ratio(timings["crba"])[0]}
    if "matrices" in timings:
        row["ratio_to_matrices"] = timings["aba"].ratio(timings["matrices"])[0]
    return row


def _call(function: Any, model: jaxdyn.Model, given: tuple[np.ndarray, ...]) -> Any:
    """Return a compiled call for a batch of states, or for one, that blocks on its result."""
    one = len(given[0]) == 1
    arguments = [jnp.asarray(x[0] if one else x, model.dtype) for x in given]
    batched = function if one else jax.vmap(function, in_axes=(None, 0, 0, 0))
    compiled = compile_function(batched, model, *arguments).function
    return lambda: jax.block_until_ready(compiled(model, *arguments))


def _is_there() -> bool:
    if hasattr(jaxdyn, "forward_dynamics"):
        return True
    say("scaling: missing: jaxdyn.forward_dynamics")
    return False
