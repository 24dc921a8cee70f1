"""Rollouts: a batch of robots through time beside MuJoCo's, on two cores beside one, and gradients through time.

All robots take STEPS steps of semi-implicit Euler under torques of their own. The gradient is that of the sum of
squares of all states by all torques and the inertias of all links, which the batch shares.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measure import compile_function, forget_compiled, interleave
from benchmarks.report import say
from benchmarks.robots import Robot, load_robot, random_states
from jaxdyn.simulate import rollout

ROBOTS = ("arm", "anymal", "talos")
BESIDE_MUJOCO = ("arm", "anymal")
BATCH, STEPS, DT = 1024, 100, 1e-3
LONG_BATCH, LONG_STEPS = 64, 10_000
TOLERANCE = 1e-9


def run(short: bool, rounds: int) -> list[dict[str, Any]]:
    """Measure everything; one row for each robot, precision and question."""
    rows = []
    for name in BESIDE_MUJOCO:
        for precision in ("float64", "float32"):
            rows.append(_beside_mujoco(load_robot(name), precision, rounds))
    for name in ("arm",) if short else ROBOTS:
        rows.append(_gradient(load_robot(name), rounds))
    if not short:
        rows += [_two_cores(name) for name in BESIDE_MUJOCO]
        rows.append(_long(load_robot("arm")))
    return rows


def _arrays(robot: Robot, batch: int, steps: int) -> tuple[np.ndarray, ...]:
    """Return (q, qd, tau); nothing acts on a floating base, whose forces MuJoCo has in other axes."""
    states = random_states(robot.model, batch)
    tau = np.random.default_rng(1).normal(size=(batch, steps, robot.model.nv))
    tau[..., : 6 * robot.floating] = 0
    return states.q, 0.1 * states.qd, tau


def _inputs(robot: Robot, batch: int, steps: int, dtype: Any) -> tuple[Any, ...]:
    return tuple(jnp.asarray(x, dtype) for x in _arrays(robot, batch, steps))


def _simulate(integrator: str = "semi_implicit_euler", **options: Any) -> Callable[..., Any]:
    def many(model: Any, q: Any, qd: Any, tau: Any) -> Any:
        return jax.vmap(lambda *one: rollout(model, *one, dt=DT, integrator=integrator, **options))(q, qd, tau)

    return many


def _call(function: Any, *args: Any) -> Callable[[], Any]:
    return lambda: jax.block_until_ready(function(*args))


# ---------------------------------------------------------------------- throughput
def _beside_mujoco(robot: Robot, precision: str, rounds: int) -> dict[str, Any]:
    """Time a rollout beside `mujoco.rollout` with one thread, and compare the last states in float64."""
    forget_compiled()
    row: dict[str, Any] = {"what": "rollout", "robot": robot.name, "precision": precision, "batch": BATCH}
    with jax.enable_x64(precision == "float64"):
        given = (robot.model.astype(precision), *_inputs(robot, BATCH, STEPS, precision))
        compiled = compile_function(_simulate(), *given)
        calls = {"jaxdyn": _call(compiled.function, *given)}
        try:
            theirs, end = _mujoco(robot)
            calls["MuJoCo"] = theirs
            if precision == "float64":
                ours = jax.jit(_simulate("mujoco_euler"))(*given)
                row["error"] = float(np.abs(np.asarray(ours.q[:, -1]) - end()).max())
                row["status"] = "ok" if row["error"] < TOLERANCE else "wrong"
        except ImportError as error:
            say(f"MuJoCo skipped: {error}")
        timings = interleave(calls, rounds=rounds)
    row |= {f"{name}_us": 1e6 * timing.cpu / (BATCH * STEPS) for name, timing in timings.items()}
    row["compile_s"] = compiled.seconds
    if "MuJoCo" in timings:
        row["speed_to_mujoco"] = 1 / timings["jaxdyn"].ratio(timings["MuJoCo"])[0]
    shown = ", ".join(f"{name} {row[f'{name}_us']:.2f} us" for name in timings)
    error = f"; error of q {row['error']:.0e}" if "error" in row else ""
    say(f"rollout {robot.name} {precision}: {shown} a step{error}")
    return row


def _mujoco(robot: Robot) -> tuple[Callable[[], Any], Callable[[], np.ndarray]]:
    """Return MuJoCo's rollout of the same batch, and its last configurations in our conventions."""
    import mujoco
    import mujoco.rollout

    from benchmarks.contenders.mujoco_conventions import MujocoConventions
    from jaxdyn.io import from_mujoco, to_mujoco

    model, mj = robot.model, MujocoConventions(robot).mj_model
    mj.opt.timestep = DT
    q, qd, force = _arrays(robot, BATCH, STEPS)
    start_q, start_qd = to_mujoco(model, mj, q, qd)
    start = np.concatenate([np.zeros((BATCH, 1)), start_q, start_qd], axis=1)
    roll, data = mujoco.rollout.Rollout(nthread=0), mujoco.MjData(mj)
    spec = int(mujoco.mjtState.mjSTATE_QFRC_APPLIED)

    def call() -> Any:
        return roll.rollout([mj], [data], start, control=force, control_spec=spec, nstep=STEPS)[0]

    return call, lambda: from_mujoco(model, mj, call()[:, -1, 1 : 1 + mj.nq], call()[:, -1, 1 + mj.nq :])[0]


# ---------------------------------------------------------------------- gradients
def _loss(model: Any, inertia: Any, q: Any, qd: Any, tau: Any, **options: Any) -> Any:
    found = _simulate(**options)(model.replace(inertia=inertia), q, qd, tau)
    return (found.q**2).sum() + (found.qd**2).sum()


def _gradient(robot: Robot, rounds: int) -> dict[str, Any]:
    """Time the gradient beside the rollout alone, and say what it takes to compile and in memory."""
    forget_compiled()
    q, qd, tau = _inputs(robot, BATCH, STEPS, np.float64)
    forward = compile_function(_loss, robot.model, robot.model.inertia, q, qd, tau)
    forget_compiled()
    gradient = compile_function(jax.grad(_loss, argnums=(1, 4)), robot.model, robot.model.inertia, q, qd, tau)
    given = robot.model, robot.model.inertia, q, qd, tau
    calls = {"forward": _call(forward.function, *given), "gradient": _call(gradient.function, *given)}
    timings = interleave(calls, rounds=min(rounds, 5))
    row = {
        "what": "gradient", "robot": robot.name, "batch": BATCH, "steps": STEPS,
        "ratio": timings["gradient"].ratio(timings["forward"])[0],
        "temporaries_MB": gradient.temporaries / 1e6, "compile_s": gradient.seconds,
    }  # fmt: skip
    say(
        f"gradient {robot.name}: {row['ratio']:.2f} x the rollout, {row['temporaries_MB']:.0f} MB, "
        f"compiled in {row['compile_s']:.1f} s"
    )
    return row


def _long(robot: Robot) -> dict[str, Any]:
    """Run the gradient of a long rollout that keeps every sqrt(T)-th state."""
    q, qd, tau = _inputs(robot, LONG_BATCH, LONG_STEPS // 10, np.float64)
    loss = lambda *args: _loss(*args, remat="sqrt", save_every=100, hold=10)
    given = robot.model, robot.model.inertia, q, qd, tau
    forget_compiled()
    compiled = compile_function(jax.grad(loss, argnums=(1, 4)), *given)
    timing = interleave({"gradient": _call(compiled.function, *given)}, rounds=1)["gradient"]
    row = {
        "what": "long gradient", "robot": robot.name, "batch": LONG_BATCH, "steps": LONG_STEPS,
        "temporaries_MB": compiled.temporaries / 1e6, "cpu_s": timing.cpu,
    }  # fmt: skip
    say(f"gradient of {LONG_STEPS} steps, B = {LONG_BATCH}: {row['temporaries_MB']:.0f} MB, {timing.cpu:.0f} s")
    return row


# ---------------------------------------------------------------------- two cores
SHARDED = """
import json, sys, time
import jax, numpy as np
from benchmarks import rollouts
from benchmarks.robots import load_robot
from jaxdyn.simulate import sharded_rollout
robot, n = load_robot(sys.argv[1]), jax.device_count()
given = rollouts._inputs(robot, rollouts.BATCH, rollouts.STEPS, np.float64)
call = lambda: jax.block_until_ready(sharded_rollout(robot.model, *given, dt=rollouts.DT))
call()
seconds = []
for _ in range(9):
    start = time.perf_counter(); call(); seconds.append(time.perf_counter() - start)
print(json.dumps(sorted(seconds)[4]))
"""


def _two_cores(name: str) -> dict[str, Any]:
    """Time a rollout on one core and on two, each in a process of its own; wall time."""
    row: dict[str, Any] = {"what": "two cores", "robot": name, "batch": BATCH}
    cores = sorted(_cores())
    if len(cores) < 2:
        say("two cores: this machine has one")
        return row
    seconds = []
    for n in (1, 2):
        command = ["taskset", "-c", ",".join(map(str, cores[:n])), sys.executable, "-c", SHARDED, name]
        done = subprocess.run(
            command, env=os.environ | {"JAX_NUM_CPU_DEVICES": str(n)}, capture_output=True, text=True, check=True
        )
        seconds.append(json.loads(done.stdout.splitlines()[-1]))
    row |= {"one_s": seconds[0], "two_s": seconds[1], "speedup": seconds[0] / seconds[1]}
    say(f"two cores {name}: {row['speedup']:.2f} x one")
    return row


def _cores() -> set[int]:
    """Return all cores of the machine that may be used; this process is pinned to one of them."""
    return set(range(os.cpu_count() or 1))
