"""A cart swings its pole up: one force for two joints, and a limit on it that is kept exactly."""

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn.trajopt import ilqr, state, torque

jax.config.update("jax_enable_x64", True)
model = jaxdyn.load("cartpole").astype(jnp.float64)
hanging = jnp.array([0.0, jnp.pi, 0.0, 0.0])
upright = jnp.zeros(4)
if jaxdyn.potential_energy(model, hanging[:2]) > jaxdyn.potential_energy(model, upright[:2]):
    hanging, upright = upright, hanging  # whichever way the angle is measured
dt, steps = 0.05, 60

running = dt * (0.1 * state(upright, weight=jnp.array([1.0, 0.1, 0.1, 0.1])) + 1e-3 * torque())
push = 1.0 * jnp.sin(jnp.arange(steps) * dt * 4.0)[:, None]  # to begin with, a little to and fro
for limit in (None, 10.0):
    bounds = None if limit is None else (-limit, limit)
    solution = ilqr(
        model, running, 100 * state(upright), hanging, push, dt=dt, driven=["slider"], limits=bounds, max_iterations=300
    )
    print(f"limit {limit} N: {solution.message} after {int(solution.iterations)} iterations, cost {solution.cost:.4f}")
    print(f"  largest force {jnp.abs(solution.us).max():.3f} N, the last state {jnp.round(solution.xs[-1], 3)}")

jaxdyn.viz.export_html(model, solution.trajectory(model), "swing_up.html")
print("The motion is in swing_up.html.")
