"""Inverse kinematics of a batch: how long a pose of the panda arm takes, and how many are found.

    taskset -c 0 python -m benchmarks.control

Poses are those of random configurations, with orientation, within joint limits, to 1e-6 m and rad. Searches begin at
the usual pose of the arm and go on from random ones. CPU time, median of five.
"""

from __future__ import annotations

import statistics
import time
import warnings

import jax
import jax.numpy as jnp

import jaxdyn
from benchmarks.robots import FILES, FINGERS, robot_data
from jaxdyn import control
from jaxdyn.cli import table

FRAME, POSES = "panda_hand_tcp", 1024
READY = (0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785)


def main() -> None:
    """Print the table."""
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jaxdyn.ModelWarning)
        model = jaxdyn.load(robot_data() / FILES["arm"], mimic=False)
    model = jaxdyn.lock_joints(model, dict.fromkeys(FINGERS, 0.0))
    draw = jax.vmap(jaxdyn.random_configuration, in_axes=(None, 0))
    there = draw(model, jax.random.split(jax.random.key(0), POSES))
    targets = jax.vmap(lambda q: jaxdyn.frame_pose(model, q, FRAME))(there)
    rows = []
    for starts in (1, 16):
        others = draw(model, jax.random.split(jax.random.key(1), starts))
        q = jnp.concatenate([jnp.array([READY]), others[1:]])
        solve = lambda target: control.inverse_kinematics(model, control.pose_goal(FRAME, target), q, tolerance=1e-6)
        reach = jax.jit(jax.vmap(solve))
        begin = time.process_time()
        found = jax.block_until_ready(reach(targets))
        compiled, runs = time.process_time() - begin, []
        for _ in range(5):
            begin = time.process_time()
            jax.block_until_ready(reach(targets))
            runs.append(time.process_time() - begin)
        each = 1e6 * statistics.median(runs) / POSES
        found_share = float(found.solved.mean())
        rows.append(
            (str(starts), f"{100 * found_share:.1f} %", f"{each:.0f}", f"{each / found_share:.0f}", f"{compiled:.1f}")
        )
    print(table(("starts", "solved", "us a pose", "us a solved pose", "first call, s"), rows))


if __name__ == "__main__":
    main()
