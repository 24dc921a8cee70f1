"""Output-error identification: a model whose simulation follows a recording, found by gradients through rollouts."""

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn.cli import table
from jaxdyn.model import is_physical
from jaxdyn.sysid import fit_trajectories

jax.config.update("jax_enable_x64", True)

# A double pendulum with friction, hung up not quite upright, moves for 2 s under known torques. Angles are measured
# with noise of 1 mrad, velocities and accelerations not at all.
robot = jaxdyn.load("double_pendulum").replace(
    damping=jnp.array([0.10, 0.05]), gravity=9.81 * jnp.array([jnp.sin(0.1), 0.0, -jnp.cos(0.1)])
)
t = 0.01 * jnp.arange(200)
tau = jnp.stack([3 * jnp.sin(4 * t), jnp.cos(7 * t)], axis=1)
run = jaxdyn.rollout(robot, [0.5, -0.5], [0.0, 0.0], tau, dt=0.01)
noise = 1e-3 * jax.random.normal(jax.random.key(0), run.q.shape)
recording = {"q": run.q + noise, "tau": tau, "dt": 0.01}

# The model to start from is 20 % too heavy, has no friction, and hangs straight down. It soon moves otherwise than the
# robot does: windows of half a second, each with a start of its own, bring the two together.
model = jaxdyn.load("double_pendulum")
model = model.replace(inertia=1.2 * model.inertia, damping=jnp.zeros(2))
fit = fit_trajectories(
    model,
    recording,
    params=["inertia", "damping", "gravity_direction", "initial_state"],
    segment=50,
    noise=(1e-3, 1.0),
    max_iterations=40,
)
print(fit.table())

rows = [
    (f"damping of {name}", f"{true:.3f}", f"{found:.4f}", f"{deviation:.4f}")
    for name, true, found, deviation in zip(
        model.joint_names, robot.damping, fit.values["damping"], fit.deviations["damping"]
    )
]
tilt = [f"{jnp.arctan2(m.gravity[0], -m.gravity[2]):.4f}" for m in (robot, fit.model)]
rows.append(("tilt of gravity, rad", tilt[0], tilt[1], ""))
print("\n" + table(("", "true", "found", "deviation"), rows))
print(f"\nEvery link could be built: {bool(is_physical(fit.model))}")

# The rms of the residuals is that of the noise, and the model predicts a swing that was not in the recording.
other = jaxdyn.rollout(robot, [-1.0, 1.0], [0.0, 0.0], tau[:100], dt=0.01).q
guess = jaxdyn.rollout(model, [-1.0, 1.0], [0.0, 0.0], tau[:100], dt=0.01).q
found = jaxdyn.rollout(fit.model, [-1.0, 1.0], [0.0, 0.0], tau[:100], dt=0.01).q
print(f"Largest error over another swing: {jnp.abs(guess - other).max():.3f} rad before, "
      f"{jnp.abs(found - other).max():.4f} rad after")  # fmt: skip
