"""A quadruped in the air turns its body by moving its legs, as a cat does: no force from outside, and no momentum."""

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn.trajopt import centroidal_momentum, configuration, ilqr, torque, velocity

jax.config.update("jax_enable_x64", True)
model = jaxdyn.load("quadruped").astype(jnp.float64)
model = model.replace(friction=jnp.zeros(18))
stand = jaxdyn.neutral(model).at[7:].set(jnp.tile(jnp.array([0.0, 0.6, -1.2]), 4)).at[6].set(0.5)
dt, steps = 0.01, 60

# It leaves the ground with 3 m/s upwards. When it lands the body is to be turned by 0.1 rad, and the legs as before;
# where the body flies is not ours to say.
start = jnp.concatenate([stand, jnp.zeros(18).at[5].set(3.0)])
turned = jaxdyn.integrate(model, stand, jnp.zeros(18).at[1].set(0.1))
landing = configuration(turned, weight=jnp.concatenate([jnp.ones(3), jnp.zeros(3), jnp.full(12, 0.1)]))
quiet_legs = velocity(weight=jnp.concatenate([jnp.zeros(6), jnp.ones(12)]))
# In the air the angular momentum stays what it is, zero. Time steps keep it only nearly, and an optimiser would turn
# the body by what they lose: so it has to pay for it.
no_spin = centroidal_momentum(weight=jnp.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]))

solution = ilqr(
    model,
    dt * (1e-3 * torque() + 1e-2 * quiet_legs + 100.0 * no_spin),
    1e3 * landing,
    start,
    jnp.zeros((steps, 12)),
    dt=dt,
    max_iterations=100,
)
print(solution.message, "after", int(solution.iterations), "iterations")
print(f"largest torque {jnp.abs(solution.us).max():.1f} Nm of {model.effort_limit[6:].max():.0f}")

# The same torques with steps ten times as short, of fourth order: momentum is kept, and the body turns all the same.
tau = jnp.concatenate([jnp.zeros((steps, 6)), solution.us], axis=1)
run = jaxdyn.rollout(model, stand, start[19:], tau, dt=dt / 10, hold=10, integrator="rk4")
momentum = jax.vmap(lambda q, qd: jaxdyn.centroidal_momentum(model, q, qd)[:3])(run.q, run.qd)
turn = jaxdyn.difference(model, stand, run.q[-1])
print(f"turned by {turn[1]:.3f} rad, with an angular momentum of at most {jnp.abs(momentum).max():.0e} kg m^2/s;")
print(f"the legs are back to {jnp.abs(turn[6:]).max():.2f} rad")

jaxdyn.viz.export_html(model, run, "jump.html")
print("The motion is in jump.html.")
