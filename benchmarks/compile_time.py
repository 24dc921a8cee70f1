"""How long jaxdyn's forward dynamics takes to trace and compile, and what it sets aside to run."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from benchmarks.contenders import Unsupported
from benchmarks.contenders.of_jaxdyn import Jaxdyn
from benchmarks.contenders.of_pinocchio import Pinocchio
from benchmarks.dynamics import relative_error
from benchmarks.measure import forget_compiled
from benchmarks.report import say
from benchmarks.robots import load_robot, random_states

ROBOTS = ("arm", "anymal", "talos", "chain7", "chain512", "romeo", "tiago_dual", "tree100")
SHORT_ROBOTS = ROBOTS[4:]
"""The table of dynamics compiles the others too."""
BATCH = 1024


def run(robots: tuple[str, ...], repeats: int) -> list[dict[str, Any]]:
    """Compile every robot's forward dynamics anew, in float64; one row per robot."""
    rows = []
    for name in robots:
        robot = load_robot(name)
        states = random_states(robot.model, BATCH)
        truth = Pinocchio(robot).job("FD", states, np.float64).ours()
        seconds = []
        for _ in range(repeats):
            forget_compiled()
            try:
                job = Jaxdyn(robot).job("FD", states, np.float64)
            except Unsupported as reason:
                say(f"compile {name}: {reason}")
                break
            seconds.append(job.compile_seconds)
        if not seconds:
            continue
        row = {
            "robot": name, "bodies": robot.model.nbodies, "nv": robot.model.nv, "batch": BATCH,
            "compile_s": statistics.median(seconds), "samples_s": seconds,
            "temporaries_bytes": job.temporaries, "error": relative_error(job.ours(), truth),
        }  # fmt: skip
        rows.append(row)
        say(
            f"compile {name}: {row['compile_s']:.2f} CPU s, temporaries {row['temporaries_bytes'] / 1e6:.1f} MB, "
            f"error {row['error']:.1e}"
        )
    return rows
