"""A reaching motion of the arm: how many iterations, how long each, how long to compile, and 256 starts at once."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from benchmarks.measure import compile_function, forget_compiled, interleave
from benchmarks.report import say
from benchmarks.robots import FILES, FINGERS, robot_data
from jaxdyn.trajopt import SMALL_LOOPS, Solution, frame_position, ilqr, state, torque_minus_gravity

ANCHOR = {"cost": 0.2118143809, "iterations": 12, "ms_per_iteration": 2.5}
"""Crocoddyl's FDDP on the same problem, measured once elsewhere."""
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


def run(starts: int, rounds: int) -> list[dict[str, Any]]:
    """Time one problem, and many starts of it at once, compiled as `ilqr` is outside of `jit` and as it advises."""
    model, q = arm(), jnp.asarray(Q0)
    us, target = jax.jit(given)(model, q)
    forget_compiled()
    one = compile_function(reach, model, q, us, target, options=SMALL_LOOPS)
    found = one.function(model, q, us, target)
    iterations = int(found.iterations)
    solve = lambda: jax.block_until_ready(one.function(model, q, us, target))
    timing = interleave({"reach": solve}, rounds=rounds)["reach"]
    ms, error = 1e3 * timing.cpu / iterations, float(found.cost) - ANCHOR["cost"]
    ratio = ms / ANCHOR["ms_per_iteration"]
    say(f"trajopt, {found.message}: cost {float(found.cost):.10f}, Crocoddyl's {ANCHOR['cost']} ({error:+.1e})")
    say(f"  iterations {iterations}, Crocoddyl's {ANCHOR['iterations']}; compiled in {one.seconds:.1f} CPU s")
    say(f"  CPU ms per iteration {ms:.2f}, Crocoddyl's {ANCHOR['ms_per_iteration']}: ratio {ratio:.2f}")
    rows = [{"problem": "reach", "cost": float(found.cost), "error": error, "iterations": iterations,
             "ms_per_iteration": ms, "ratio": ratio, "compile_cpu_s": one.seconds}]  # fmt: skip
    qs = q[None] + SPREAD * jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (starts, 7)))
    starting = jax.jit(jax.vmap(given, in_axes=(None, 0)))(model, qs)[0]
    together = jax.vmap(reach, in_axes=(None, 0, 0, None))
    many = compile_function(together, model, qs, starting, target, options=SMALL_LOOPS)
    call = lambda: jax.block_until_ready(many.function(model, qs, starting, target))
    each = 1e3 * interleave({"starts": call}, rounds=3)["starts"].cpu / starts
    say(f"  {starts} starts at once: {each:.1f} CPU ms per problem; {call().message}")
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
