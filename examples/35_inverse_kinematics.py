"""Inverse kinematics: one pose, a thousand poses at once, a goal out of reach, and the derivative of the solution.

Writes a page that shows the arm following a line by inverse kinematics, if a file is named.
"""

import sys
import time

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn import control

model = jaxdyn.load("arm7")
draw = jax.vmap(jaxdyn.random_configuration, in_axes=(None, 0))

# A thousand poses that can be reached, from the middle of the joints' ranges and, where that fails, from other starts.
targets = jax.vmap(lambda q: jaxdyn.frame_pose(model, q, "tool"))(
    draw(model, jax.random.split(jax.random.key(0), 1024))
)
starts = jnp.concatenate([jnp.full((1, 7), 0.3), draw(model, jax.random.split(jax.random.key(1), 15))])


@jax.jit
@jax.vmap
def reach(target):
    goal = control.pose_goal("tool", target)
    return control.inverse_kinematics(model, goal, starts, tolerance=1e-5)


found = jax.block_until_ready(reach(targets))
clock = time.process_time()
found = jax.block_until_ready(reach(targets))
clock = time.process_time() - clock
print(f"{int(found.solved.sum())} of 1024 poses reached within joint limits")
print(f"  {1e6 * clock / 1024:.0f} us of CPU a pose, {jnp.median(found.iterations):.0f} steps (median)")

# A point that is too far away: the nearest that the arm gets to, and a status that says so.
far = control.inverse_kinematics(model, control.position_goal("tool", [3.0, 0.0, 0.5]), jnp.full(7, 0.3))
reached = jaxdyn.frame_pose(model, far.q, "tool").position
print(f"A point 3 m away: {control.Status(int(far.status)).name}, {far.error:.2f} m short along one axis")

# Several goals at once: the tool along a line, its z axis down, the joints near to where they were.
line = jnp.linspace(0.0, 1.0, 50)[:, None] * jnp.array([0.0, 0.5, 0.1]) + jnp.array([0.45, -0.25, 0.4])


def along(q, p):
    goals = (
        control.position_goal("tool", p), control.axis_goal("tool", [0, 0, 1], [0, 0, -1]),
        control.posture_goal(q, weight=1e-3),
    )  # fmt: skip
    step = control.inverse_kinematics(model, goals, q, tolerance=1e-4)
    return step.q, (step.q, step.solved)


_, (path, solved) = jax.jit(lambda q: jax.lax.scan(along, q, line))(jnp.array([0.0, 0.6, 0.0, 1.2, 0.0, 0.6, 0.0]))
print(f"A line with the tool pointing down: {int(solved.sum())} of 50 points reached")

# The solution is a differentiable function of the target: how joints follow when the target moves.
solution = lambda p: control.inverse_kinematics(model, control.position_goal("tool", p), path[25]).q
slope = jax.jacobian(solution)(jaxdyn.frame_pose(model, path[25], "tool").position)
forth = jaxdyn.jacobian(model, path[25], "tool")[3:] @ slope
print(f"J dq/dp differs from the identity by {jnp.abs(forth - jnp.eye(3)).max():.0e}")
if len(sys.argv) > 1:
    print(f"Open {jaxdyn.viz.export_html(model, path, sys.argv[1], dt=0.05)} in a browser")
