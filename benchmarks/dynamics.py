"""The big table: every quantity, robot, batch, precision and library."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from benchmarks import contenders
from benchmarks.contenders import JAX_PEERS, QUANTITIES, Contender, Job, Unsupported
from benchmarks.measure import Timing, forget_compiled, interleave
from benchmarks.report import say
from benchmarks.robots import Robot, States, load_robot, random_states

ROBOTS = ("arm", "anymal", "talos", "chain7", "chain32", "chain128", "chain512")
SHORT_ROBOTS = ROBOTS[:4]
BATCHES = (1, 256, 1024, 8192)
YARDSTICK = "Pinocchio"
NATIVE = ("Pinocchio", "jaxdyn", "MuJoCo")
ALL = (*NATIVE, *JAX_PEERS)
SINGLE = ("Pinocchio", "jaxdyn")
"""What is timed in float32 too, besides the JAX peers; Pinocchio's float64 is the yardstick there as well."""
LARGEST_RESULT = 2**29
"""Bytes of result beyond which a case is left out: matrices of long chains in large batches."""


@dataclass(frozen=True)
class Case:
    """What the contenders compete in."""

    robot: str
    quantity: str
    batch: int
    precision: str
    contenders: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.quantity} {self.robot} B={self.batch} {self.precision}"


def short_cases() -> list[Case]:
    """Return what fits in a few minutes: JAX peers, which compile for long, do forward dynamics only.

    In float32 only the fastest of them, frax, does; of chains nothing but forward dynamics is timed.
    """
    chosen = []
    for robot in SHORT_ROBOTS:
        is_chain = robot.startswith("chain")
        chosen += [
            Case(robot, "FD", 1024, "float64", (*NATIVE, *(() if is_chain else JAX_PEERS))),
            Case(robot, "FD", 1024, "float32", (*SINGLE, *(() if is_chain else ("frax",)))),
            Case(robot, "FD", 1, "float64", (*NATIVE, "frax")),
            *(Case(robot, quantity, 1024, "float64", NATIVE) for quantity in QUANTITIES[1:] if not is_chain),
        ]
    return chosen


def all_cases() -> list[Case]:
    """Return everything, an hour or two."""
    return [
        Case(robot, quantity, batch, precision, ALL if precision == "float64" else (*SINGLE, *JAX_PEERS))
        for robot in ROBOTS
        for quantity in QUANTITIES
        for batch in BATCHES
        for precision in ("float64", "float32")
    ]


def run(cases: Iterable[Case], rounds: int) -> list[dict[str, Any]]:
    """Check and time all cases.

    Returns:
        One row per case and contender, with times per evaluation and ratios to Pinocchio.
    """
    cases = list(cases)
    found, missing = contenders.available()
    for name, reason in missing.items():
        say(f"{name} {reason}")
    rows, loaded = [], {}
    for k, case in enumerate(cases):
        robot = load_robot(case.robot)
        if case.robot not in loaded:  # one robot at a time is kept in the libraries' own forms
            loaded = {case.robot: _load(robot, found)}
        start = time.perf_counter()
        new = _run_case(case, robot, loaded[case.robot], missing, rounds)
        rows += new
        say(f"[{k + 1}/{len(cases)}] {case} ({time.perf_counter() - start:.0f} s): {_line(new)}")
    return rows


def _load(robot: Robot, found: Mapping[str, type[Contender]]) -> dict[str, Contender | str]:
    """Return the contenders with the robot, or the reason why one cannot have it."""
    loaded: dict[str, Contender | str] = {}
    for name, make in found.items():
        try:
            loaded[name] = make(robot)
        except Exception as error:
            loaded[name] = _reason(error)
    return loaded


def _run_case(
    case: Case, robot: Robot, loaded: Mapping[str, Contender | str], missing: Mapping[str, str], rounds: int
) -> list[dict[str, Any]]:
    size = case.batch * robot.model.nv * (robot.model.nv if case.quantity in ("CRBA", "Minv") else 1)
    if size * np.dtype(case.precision).itemsize > LARGEST_RESULT:
        return [_row(case, name, "skipped: the result takes more than half a gigabyte") for name in case.contenders]
    states = random_states(robot.model, case.batch)
    rows: dict[str, dict[str, Any]] = {}
    jobs: dict[str, Job] = {}
    forget_compiled()
    with jax.enable_x64(case.precision == "float64"):
        truth, tolerance = _truth(case, loaded[YARDSTICK], states)
        for name in case.contenders:
            contender = loaded.get(name, missing.get(name, "missing"))
            if isinstance(contender, str):
                rows[name] = _row(case, name, contender)
                continue
            try:
                job = contender.job(case.quantity, states, np.dtype(case.precision).type)
                error = relative_error(job.ours(), truth)
            except Exception as problem:  # a library that fails is reported, and the others go on
                rows[name] = _row(case, name, _reason(problem))
                continue
            right = error <= tolerance
            rows[name] = _row(case, name, "timed" if right else "wrong", job, error)
            if right:
                jobs[name] = job
        timings = interleave(_calls(jobs), rounds=rounds)
    _fill_in(rows, timings, case.batch)
    return list(rows.values())


def _truth(case: Case, yardstick: Any, states: States) -> tuple[np.ndarray, float]:
    """Return Pinocchio's results and how far others may be from them.

    A solution of M x = b may be off by the condition number of M times the rounding.
    """
    truth = yardstick.job(case.quantity, states, np.float64).ours()
    rounding = float(np.finfo(case.precision).eps)
    if case.quantity in ("ID", "CRBA"):
        return truth, 1e4 * rounding
    condition = np.linalg.cond(yardstick.job("CRBA", states, np.float64).ours()).max()
    return truth, min(max(10 * rounding * condition, 1e4 * rounding), 0.1)


def relative_error(result: np.ndarray, truth: np.ndarray) -> float:
    """Return max|result - truth| / max|truth|; infinite if the result is not finite."""
    error = float(np.abs(result - truth).max() / np.abs(truth).max())
    return error if np.isfinite(error) else float("inf")


def _calls(jobs: Mapping[str, Job]) -> dict[str, Any]:
    calls = {name: job.call for name, job in jobs.items()}
    calls |= {f"{name} overhead": job.overhead for name, job in jobs.items() if job.overhead}
    return calls


def _row(case: Case, name: str, status: str, job: Job | None = None, error: float | None = None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "robot": case.robot, "quantity": case.quantity, "batch": case.batch, "precision": case.precision,
        "contender": name, "status": status,
    }  # fmt: skip
    if job is not None:
        row |= {"method": job.method, "error": error, "compile_s": job.compile_seconds}
        row |= {"temporaries_bytes": job.temporaries}
    return row


def _fill_in(rows: Mapping[str, dict[str, Any]], timings: Mapping[str, Timing], batch: int) -> None:
    """Add times per evaluation and ratios to the rows."""
    base = timings[YARDSTICK]
    overhead = timings.get(f"{YARDSTICK} overhead")
    for name, row in rows.items():
        if name not in timings:
            continue
        timing = timings[name]
        ratio, ratio_wall = timing.ratio(base)
        row |= {
            "cpu_us": 1e6 * timing.cpu / batch,
            "wall_us": 1e6 * timing.wall / batch,
            "spread": timing.spread,
            "calls_per_round": timing.calls,
            "ratio": ratio,
            "ratio_wall": ratio_wall,
        }
        if overhead is not None:
            row["ratio_without_python_calls"] = timing.cpu / (base.cpu - overhead.cpu)


def _reason(error: Exception) -> str:
    if isinstance(error, Unsupported):
        return f"skipped: {error}" if not str(error).startswith("missing") else str(error)
    first = (str(error).splitlines() or [""])[0]
    return f"failed: {type(error).__name__}: {first[:200]}"


def _line(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a case in one line."""
    parts = []
    for row in rows:
        if row["contender"] == YARDSTICK and "cpu_us" in row:
            parts.append(f"{YARDSTICK} {row['cpu_us']:.2f} us")
        elif "ratio" in row:
            parts.append(f"{row['contender']} {row['ratio']:.2f}")
        else:
            shown = f" (error {row['error']:.1e})" if row.get("error") is not None else ""
            parts.append(f"{row['contender']} {row['status']}{shown}")
    return ", ".join(parts)
