"""What a GPU does, where JAX finds one: forward dynamics, its VJP and rollouts, in large batches; wall time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from benchmarks.report import say

ROBOTS = ("arm", "anymal", "talos")
BATCHES = (1024, 8192, 65536)
STEPS = 100


def run() -> list[dict[str, Any]]:
    """Measure in a process of its own, to which GPUs are not hidden; one row per robot, precision and batch."""
    hidden = ("JAX_PLATFORMS", "XLA_FLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run([sys.executable, "-m", "benchmarks.gpu"], env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit("the measurements on the GPU failed")
    rows = json.loads(done.stdout.splitlines()[-1])
    if not rows:
        say("gpu: JAX finds none here; install jaxdyn[cuda] on a machine that has one")
    for row in rows:
        say(f"gpu {row['robot']} {row['precision']} B={row['batch']}: {row['what']} {row['us']:.3f} us each")
    return rows


def _measure() -> list[dict[str, Any]]:
    import jax
    import jax.numpy as jnp

    import jaxdyn
    from benchmarks.robots import load_robot, random_states
    from jaxdyn.simulate import rollout

    if jax.default_backend() != "gpu":
        return []
    rows = []
    for precision in ("float32", "float64"):
        jax.config.update("jax_enable_x64", precision == "float64")
        for name in ROBOTS:
            model = load_robot(name).model.astype(precision)
            dynamics = jax.vmap(lambda *state: jaxdyn.forward_dynamics(model, *state))
            steps = lambda q, qd, tau: rollout(model, q, qd, jnp.tile(tau, (STEPS, 1)), dt=1e-3, save_every=STEPS).q
            functions = {
                "FD": (dynamics, 1),
                "VJP of FD": (lambda *state: jax.vjp(dynamics, *state)[1](state[2]), 1),
                "a step of a rollout": (jax.vmap(steps), STEPS),
            }
            for batch in BATCHES:
                states = random_states(model, batch)
                given = [jnp.asarray(x, precision) for x in (states.q, states.qd, states.tau)]
                for what, (function, each) in functions.items():
                    seconds = _seconds(jax.jit(function), given)
                    row = {"what": what, "robot": name, "precision": precision, "batch": batch}
                    rows.append(row | {"us": 1e6 * seconds / (batch * each), "device": jax.devices()[0].device_kind})
    return rows


def _seconds(function: Any, given: list[Any]) -> float:
    import jax

    jax.block_until_ready(function(*given))
    taken = []
    for _ in range(9):
        start = time.perf_counter()
        jax.block_until_ready(function(*given))
        taken.append(time.perf_counter() - start)
    return sorted(taken)[4]


if __name__ == "__main__":
    print(json.dumps(_measure()))
