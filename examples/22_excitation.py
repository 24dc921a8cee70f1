"""Optimal exciting trajectories: a motion from which all parameters of a robot can be told apart."""

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn.cli import table
from jaxdyn.sysid import excitation

jax.config.update("jax_enable_x64", True)

# Two links, each within 1.5 rad of hanging, with motors of 20 and 8 Nm. The best of 16 random Fourier series is
# improved by gradients through the base regressor.
robot = jaxdyn.load("double_pendulum")
effort = jnp.array([20.0, 8.0])
motion = excitation(
    robot, duration=5.0, position=(-1.5, 1.5), velocity=3.0, acceleration=12.0, effort=effort, max_iterations=100
)
print(f"{motion.base.rank} base parameters: {', '.join(motion.base.describe())}")
print(f"Condition number of their regressor: {motion.start_condition:.2f} for the best of the random series, "
      f"{motion.condition:.2f} after 100 steps ({motion.message})")  # fmt: skip

# Its limits hold at all times, and it begins and ends at rest.
q, qd, qdd = motion.at(jnp.linspace(0, 5, 5001))
tau = jax.vmap(lambda *x: jaxdyn.inverse_dynamics(robot, *x) - jaxdyn.passive_force(robot, *x[:2]))(q, qd, qdd)
rows = [
    (what, f"{limit}", " ".join(f"{x:.2f}" for x in jnp.abs(values).max(0)))
    for what, limit, values in (
        ("position, rad", 1.5, q),
        ("velocity, rad/s", 3.0, qd),
        ("acceleration, rad/s^2", 12.0, qdd),
        ("torque, Nm", "20, 8", tau),
    )
]
print("\n" + table(("", "limit", "largest of joints 1 and 2"), rows))
print(f"\nVelocity at the beginning and the end: {jnp.abs(qd[0]).max():.0e}, {jnp.abs(qd[-1]).max():.0e}")

try:
    import matplotlib.pyplot as plt
except ImportError:
    pass
else:
    figure, axes = plt.subplots(3, 1, sharex=True, figsize=(7, 6))
    for axis, values, name in zip(axes, (motion.q, motion.qd, motion.tau), ("q, rad", "qd, rad/s", "tau, Nm")):
        axis.plot(motion.t, values)
        axis.set_ylabel(name)
    axes[-1].set_xlabel("t, s")
    figure.tight_layout()
    figure.savefig("excitation.png")
    print("excitation.png shows it")
