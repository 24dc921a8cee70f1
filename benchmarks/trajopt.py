"""A reaching motion of the arm: how many iterations, how long each, how long to compile, and 256 starts at once."""

from __future__ import annotations

import json
import subprocess
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from benchmarks.measure import Timing, compile_function, forget_compiled, interleave
from benchmarks.report import say
from benchmarks.robots import FILES, FINGERS, robot_data
from jaxdyn.trajopt import SMALL_LOOPS, Solution, frame_position, ilqr, state, torque_minus_gravity

ANCHOR = {"cost": 0.2118143809, "iterations": 12, "ms_per_iteration": 2.5}
"""Crocoddyl's FDDP on the same problem, measured once on another machine: for where it is not at hand."""
Q0 = np.array([0, -np.pi / 4, 0, -3 * np.pi / 4, 0, np.pi / 2, np.pi / 4])
FRAME, STEPS, DT = "panda_hand_tcp", 100, 0.01
STARTS, SHORT_STARTS = 256, 16
SPREAD = 0.05
"""rad, by which the joints of the starts differ from Q0."""


def arm() -> jaxdyn.Model:
    """Return the arm with its frames, without friction or damping."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jaxdyn.ModelWarning)
        model = jaxdyn.load(robot_data() / FILES["arm"], mimic=False)
        model = jaxdyn.lock_joints(model, dict.fromkeys(FINGERS, 0.0)).astype(np.float64)
    zero = np.zeros(model.nv)
    return model.replace(damping=zero, friction=zero, stiffness=zero)


def given(model: jaxdyn.Model, q: Any) -> tuple[jax.Array, jax.Array]:
    """Return what a problem is given by: inputs to begin with, which hold the arm at q, and the target."""
    target = jaxdyn.frame_pose(model, jnp.asarray(Q0), FRAME).position + jnp.array([0.2, 0.35, -0.25])
    return jnp.tile(jaxdyn.gravity_force(model, q)[None], (STEPS, 1)), target


def reach(model: jaxdyn.Model, q: Any, us: Any, target: Any, **options: Any) -> Solution:
    """Reach from q, at rest, for a point near to the tool at Q0."""
    rest = jnp.concatenate([jnp.asarray(Q0), jnp.zeros(7)])
    near, still = frame_position(FRAME, target), state(rest, weight=jnp.repeat(jnp.array([0.1, 1.0]), 7))
    running = DT * (0.1 * near + 0.1 * still + 1e-4 * torque_minus_gravity())
    return ilqr(model, running, 1e3 * near + still, jnp.concatenate([q, jnp.zeros(7)]), us, dt=DT, **options)


class Crocoddyl:
    """Crocoddyl in an environment of its own, on the same core: solves the problem once for every call."""

    def __init__(self, python: str, target: Any) -> None:
        given = {"urdf": str(robot_data() / FILES["arm"]), "locked": FINGERS, "frame": FRAME, "q0": Q0.tolist(),
                 "target": np.asarray(target).tolist(), "steps": STEPS, "dt": DT}  # fmt: skip
        script = Path(__file__).parent / "contenders" / "crocoddyl_reach.py"
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([python, str(script), json.dumps(given)], **pipes)
        self.solutions: list[dict[str, Any]] = []

    def __call__(self) -> None:
        """Solve."""
        print(file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"Crocoddyl ended with {self.process.wait()}: see the message above")
        self.solutions.append(json.loads(line))

    def close(self) -> None:
        """End the process."""
        self.process.communicate()

    def anchor(self, timing: Timing) -> dict[str, Any]:
        """Return its figures, of the calls that were timed (its CPU time is not this process's)."""
        timed = self.solutions[-len(timing.samples) * timing.calls :]
        cost, iterations = timed[-1]["cost"], timed[-1]["iterations"]
        ms = 1e3 * median(x["cpu"] for x in timed) / iterations
        return {"cost": cost, "iterations": iterations, "ms_per_iteration": ms}


def run(starts: int, rounds: int, crocoddyl: str | None = None) -> list[dict[str, Any]]:
    """Time one problem, and many starts of it at once, compiled as `ilqr` is outside of `jit` and as it advises.

    Args:
        starts: how many at once.
        rounds: of which the median is taken.
        crocoddyl: the Python of an environment with Crocoddyl, which then solves the same problem in turns.
    """
    model, q = arm(), jnp.asarray(Q0)
    us, target = jax.jit(given)(model, q)
    forget_compiled()
    one = compile_function(reach, model, q, us, target, options=SMALL_LOOPS)
    found = one.function(model, q, us, target)
    iterations = int(found.iterations)
    solve = lambda: jax.block_until_ready(one.function(model, q, us, target))
    peer = Crocoddyl(crocoddyl, target) if crocoddyl else None
    timings = interleave({"reach": solve} | ({"Crocoddyl": peer} if peer else {}), rounds=rounds)
    anchor, where = (peer.anchor(timings["Crocoddyl"]), "in turns") if peer else (ANCHOR, "on another machine")
    if peer:
        peer.close()
    ms, error = 1e3 * timings["reach"].cpu / iterations, float(found.cost) - anchor["cost"]
    ratio = ms / anchor["ms_per_iteration"]
    say(f"trajopt, {found.message}: cost {float(found.cost):.10f}, Crocoddyl's {anchor['cost']:.10f} ({error:+.1e})")
    say(f"  iterations {iterations}, Crocoddyl's {anchor['iterations']}; compiled in {one.seconds:.1f} CPU s")
    say(f"  CPU ms per iteration {ms:.2f}, Crocoddyl's {anchor['ms_per_iteration']:.2f} {where}: ratio {ratio:.2f}")
    rows = [{"problem": "reach", "cost": float(found.cost), "error": error, "iterations": iterations,
             "ms_per_iteration": ms, "ratio": ratio, "Crocoddyl": anchor | {"measured": where},
             "compile_cpu_s": one.seconds}]  # fmt: skip
    qs = q[None] + SPREAD * jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (starts, 7)))
    starting = jax.jit(jax.vmap(given, in_axes=(None, 0)))(model, qs)[0]
    together = jax.vmap(reach, in_axes=(None, 0, 0, None))
    many = compile_function(together, model, qs, starting, target, options=SMALL_LOOPS)
    call = lambda: jax.block_until_ready(many.function(model, qs, starting, target))
    each = 1e3 * interleave({"starts": call}, rounds=3)["starts"].cpu / starts
    alone = anchor["iterations"] * anchor["ms_per_iteration"]
    say(f"  {starts} starts at once: {each:.1f} CPU ms per problem, Crocoddyl's {alone:.1f} for one; {call().message}")
    rows.append({"problem": f"{starts} starts", "ms_per_problem": each, "compile_cpu_s": many.seconds})
    return [*rows, _derivative(model, q), _limited(model, q)]


def _derivative(model: jaxdyn.Model, q: Any) -> dict[str, Any]:
    """Compare the derivative of the optimum by the masses of all links with differences of optima, extrapolated."""
    options, (us, target) = {"tolerance": 1e-22, "max_iterations": 60, "method": "newton"}, given(model, q)

    def optimum(change: Any) -> Any:
        inertia = model.inertia.at[:, 0].multiply(1 + change)
        found = reach(model.replace(inertia=inertia), q, us, target, **options)
        return jnp.concatenate([found.xs.ravel(), found.us.ravel(), found.cost[None]])

    along = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, model.nbodies))
    moved = jax.jit(jax.vmap(lambda e: optimum(e * along)))
    exact = jax.jit(lambda: jax.jvp(optimum, (jnp.zeros(model.nbodies),), (along,))[1])()
    h = 1e-2
    values = moved(h * jnp.array([1, -1, 0.5, -0.5, 0.25, -0.25]))
    d = [(values[2 * k] - values[2 * k + 1]) / (2 * h * 0.5**k) for k in range(3)]
    d = [(4 * d[1] - d[0]) / 3, (4 * d[2] - d[1]) / 3]
    slope = (16 * d[1] - d[0]) / 15
    parts = {"xs": slice(0, (STEPS + 1) * 14), "us": slice((STEPS + 1) * 14, -1), "cost": slice(-1, None)}
    errors = {name: float(jnp.abs(exact - slope)[k].max() / jnp.abs(slope)[k].max()) for name, k in parts.items()}
    say(f"  derivative by masses against differences: {', '.join(f'{n} {e:.0e}' for n, e in errors.items())}")
    return {"problem": "derivative by masses", **errors}


def _limited(model: jaxdyn.Model, q: Any) -> dict[str, Any]:
    """Lower the largest torque of every joint, and see that the limit is kept."""
    us, target = given(model, q)
    top = 0.8 * jnp.abs(reach(model, q, us, target).us).max(0)
    found = jax.jit(lambda: reach(model, q, us, target, limits=(-top, top)))()
    over, active = float((jnp.abs(found.us) - top).max()), int((jnp.abs(found.us) == top).sum())
    say(f"  limits at 0.8 of the largest torques: {found.message}, {active} active, exceeded by {max(over, 0.0):g}")
    return {"problem": "limits", "active": active, "exceeded_by": max(over, 0.0), "cost": float(found.cost)}
