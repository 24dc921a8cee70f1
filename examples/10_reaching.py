"""An arm reaches for a point: the best motion, how it would change with the masses, and a page to look at."""

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn.trajopt import frame_position, ilqr, state, torque_minus_gravity

jax.config.update("jax_enable_x64", True)
model = jaxdyn.load("arm7").astype(jnp.float64)
q = jnp.array([0.0, 0.5, 0.0, -1.2, 0.0, 0.8, 0.0])
rest = jnp.concatenate([q, jnp.zeros(7)])
target = jaxdyn.frame_pose(model, q, "tool").position + jnp.array([0.1, 0.25, -0.15])
dt, steps = 0.02, 50


def reach(model):
    near, still = frame_position("tool", target), state(rest, weight=jnp.repeat(jnp.array([0.1, 1.0]), 7))
    running = dt * (0.1 * near + 0.1 * still + 1e-4 * torque_minus_gravity())
    us = jnp.tile(jaxdyn.gravity_force(model, q), (steps, 1))  # to begin with, the arm is held where it is
    return ilqr(model, running, 1e3 * near + still, rest, us, dt=dt, tolerance=1e-12)


solution = jax.jit(reach)(model)
print(solution.table())
tool = jaxdyn.frame_pose(model, solution.xs[-1, :7], "tool").position
print(f"\nThe tool ends {1e3 * jnp.linalg.norm(tool - target):.1f} mm from its target.")

# How would the least cost change if a link were heavier? By the conditions of the optimum, not through the iterations.
by_model = jax.jit(jax.grad(lambda model: reach(model).cost))(model)
print("\nd(cost) / d(mass), 1/kg, link by link:", ", ".join(f"{x:.1e}" for x in by_model.inertia[:, 0]))

jaxdyn.viz.export_html(model, solution.trajectory(model), "reaching.html")
print("\nThe motion is in reaching.html.")
