"""One robot at a time: forward dynamics per Python call, and per step inside a compiled loop.

The loop takes semi-implicit Euler steps. Everything is a ratio to Pinocchio's Python call `pin.aba`, which takes
no step at all: the loops pay for their integration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin

import jaxdyn
from benchmarks.dynamics import relative_error
from benchmarks.measure import compile_function, forget_compiled, interleave
from benchmarks.report import say
from benchmarks.robots import Robot, States, load_robot, random_states
from jaxdyn.io import from_mujoco, from_pinocchio, to_pinocchio

ROBOTS = ("arm", "anymal")
STEPS = 1000
DT = 1e-5
ADDING = "JAX adding two vectors"
"""What a call of JAX costs at the least."""
TOLERANCE = {"float64": 1e-6, "float32": 1e-2}
MUJOCO_TOLERANCE = 1e-3
"""A step of a floating base in other coordinates differs by the order of the step."""


def run(precisions: tuple[str, ...], rounds: int) -> list[dict[str, Any]]:
    """Measure every robot and precision; one row per way of asking."""
    rows = []
    for name in ROBOTS:
        robot = load_robot(name)
        state = random_states(robot.model, 1)
        for precision in precisions:
            forget_compiled()
            with jax.enable_x64(precision == "float64"):
                new = _run(robot, state, precision, rounds)
            rows += new
            shown = (f"{row['way']} {row['ratio']:.2f}" if "ratio" in row else f"{row['way']} wrong" for row in new)
            say(f"latency {name} {precision}, ratio to a call of pin.aba: {', '.join(shown)}")
    return rows


def _run(robot: Robot, state: States, precision: str, rounds: int) -> list[dict[str, Any]]:
    end = _pinocchio_end(robot, state)
    ways: dict[str, tuple[Callable[[], Any], int, float]] = {}  # call, steps in it, error
    ways["Pinocchio call"] = (_pinocchio_call(robot, state), 1, 0.0)
    ways |= _jaxdyn_ways(robot, state, end, precision)
    if precision == "float64":
        try:
            ways["MuJoCo rollout step"] = _mujoco_steps(robot, state, end)
        except ImportError as error:
            say(f"MuJoCo skipped: {error}")
    rows, calls = [], {}
    for way, (call, _, error) in ways.items():
        allowed = MUJOCO_TOLERANCE if way.startswith("MuJoCo") else TOLERANCE[precision]
        rows.append({"robot": robot.name, "precision": precision, "way": way, "error": error})
        if error <= allowed:
            calls[way] = call
    timings = interleave(calls, rounds=rounds)
    base = timings["Pinocchio call"]
    for row in rows:
        if row["way"] in timings:
            timing, steps = timings[row["way"]], ways[row["way"]][1]
            row |= {"cpu_us": 1e6 * timing.cpu / steps, "wall_us": 1e6 * timing.wall / steps}
            ratio, ratio_wall = timing.ratio(base)
            row |= {"ratio": ratio / steps, "ratio_wall": ratio_wall / steps}
    return rows


# ---------------------------------------------------------------------- jaxdyn
def simulate(model: jaxdyn.Model, q: jax.Array, qd: jax.Array, tau: jax.Array) -> jax.Array:
    """Take STEPS semi-implicit Euler steps under a constant force; return the velocity."""

    def step(_: int, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        q, qd = state
        qd = qd + DT * jaxdyn.forward_dynamics(model, q, qd, tau)
        return jaxdyn.integrate(model, q, DT * qd), qd

    return jax.lax.fori_loop(0, STEPS, step, (q, qd))[1]


def _jaxdyn_ways(robot: Robot, state: States, end: np.ndarray, precision: str) -> dict[str, Any]:
    if not hasattr(jaxdyn, "forward_dynamics"):
        say("latency: missing: jaxdyn.forward_dynamics")
        return {}
    dtype = np.dtype(precision)
    model = robot.model.astype(dtype)
    arguments = tuple(jnp.asarray(x[0], dtype) for x in (state.q, state.qd, state.tau))
    truth = pin_acceleration(robot, state)
    forms = {
        "jaxdyn call in a jit": (jaxdyn.forward_dynamics, (model, *arguments), 1, truth),
        "jaxdyn call in a jit, model closed over": (
            lambda *args: jaxdyn.forward_dynamics(model, *args), arguments, 1, truth,
        ),
        "jaxdyn loop step": (simulate, (model, *arguments), STEPS, end),
        ADDING: (lambda q, qd, tau: qd + tau, arguments, 1, np.asarray(arguments[1] + arguments[2], np.float64)),
    }  # fmt: skip
    plain = lambda: jaxdyn.forward_dynamics(model, *arguments).block_until_ready()
    ways = {"jaxdyn call": (plain, 1, relative_error(np.asarray(plain(), np.float64), truth))}
    for way, (function, given, steps, expected) in forms.items():
        call = _blocking(compile_function(function, *given).function, given)
        ways[way] = (call, steps, relative_error(np.asarray(call(), np.float64), expected))
    return ways


def _blocking(function: Callable[..., Any], given: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: function(*given).block_until_ready()


# ---------------------------------------------------------------------- the others
def pin_acceleration(robot: Robot, state: States) -> np.ndarray:
    """Return Pinocchio's forward dynamics of one state, in our conventions."""
    q, v = to_pinocchio(robot.model, robot.pin_model, state.q, state.qd)
    tau = to_pinocchio(robot.model, robot.pin_model, state.q, state.tau)[1]
    a = pin.aba(robot.pin_model, robot.pin_model.createData(), q[0], v[0], tau[0])
    return from_pinocchio(robot.model, robot.pin_model, q, a[None])[1][0]


def _pinocchio_call(robot: Robot, state: States) -> Callable[[], Any]:
    model, data = robot.pin_model, robot.pin_model.createData()
    q, v = to_pinocchio(robot.model, model, state.q[0], state.qd[0])
    tau = to_pinocchio(robot.model, model, state.q[0], state.tau[0])[1]
    return lambda: pin.aba(model, data, q, v, tau)


def _pinocchio_end(robot: Robot, state: States) -> np.ndarray:
    """Return the velocity after STEPS steps, in our conventions: what the loops are checked with."""
    model, data = robot.pin_model, robot.pin_model.createData()
    q, v = to_pinocchio(robot.model, model, state.q[0], state.qd[0])
    tau = to_pinocchio(robot.model, model, state.q[0], state.tau[0])[1]
    for _ in range(STEPS):
        v = v + DT * pin.aba(model, data, q, v, tau)
        q = pin.integrate(model, q, DT * v)
    return from_pinocchio(robot.model, model, q, v)[1]


def _mujoco_steps(robot: Robot, state: States, end: np.ndarray) -> tuple[Callable[[], Any], int, float]:
    """Return a rollout of STEPS steps in C."""
    import mujoco
    import mujoco.rollout

    from benchmarks.contenders.mujoco_conventions import MujocoConventions

    conventions = MujocoConventions(robot)
    model = conventions.mj_model
    model.opt.timestep = DT
    theirs, data = conventions.theirs(state), mujoco.MjData(model)
    start = np.concatenate([np.zeros((1, 1)), theirs.q, theirs.qd], axis=1)  # time, qpos, qvel
    force = np.repeat(theirs.tau[:, None], STEPS, axis=1)
    spec = int(mujoco.mjtState.mjSTATE_QFRC_APPLIED)
    roll = mujoco.rollout.Rollout(nthread=0)

    def call() -> np.ndarray:
        return roll.rollout([model], [data], start, control=force, control_spec=spec, nstep=STEPS)[0]

    final = call()[0, -1, 1:]
    qd = from_mujoco(robot.model, model, final[: model.nq], final[model.nq :])[1]
    return call, STEPS, relative_error(qd, end)
