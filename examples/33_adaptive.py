"""Adaptive control: an arm whose masses are guessed badly learns to follow a swing while it moves.

With matplotlib installed and a file named, it draws what it prints.
"""

import importlib.util
import sys

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn import control

model = jaxdyn.load("double_pendulum").replace(damping=jnp.zeros(2))
guess = jnp.array([[1.6], [0.5]]) * jaxdyn.inertial_parameters(model)
dt, steps = 2e-3, 4000


def swing(t):
    return jnp.array([0.8, 0.6]) * jnp.sin(jnp.array([2.0, 3.0]) * t)


def policy(t, q, qd, estimate, adaptation):
    """Joint forces from the estimates, and the estimates of the next step."""
    tau, rate = control.adaptive_control(
        model, q, qd, *control.desired_motion(model, swing, t),
        estimate=estimate, convergence=4.0, gain=5.0, adaptation=adaptation,
    )  # fmt: skip
    return tau, control.adapt(estimate, rate, dt=dt)


@jax.jit
@jax.vmap
def run(adaptation):
    q, qd, _ = control.desired_motion(model, swing, 0.0)
    trajectory = control.stateful_rollout(model, q, qd, policy, guess, dt=dt, steps=steps, params=adaptation)
    return trajectory, jnp.linalg.norm(jax.vmap(swing)(trajectory.t) - trajectory.q, axis=1)


trajectory, errors = run(jnp.array([0.0, 8.0]))
for name, error in zip(("never", "while it moves"), errors):
    print(f"Estimates change {name}: the error is {error[:1000].max():.3f} rad in the first 2 s, ", end="")
    print(f"{error[-1000:].max():.4f} rad in the last")
estimates = trajectory.extras["state"][1]
least = jnp.linalg.eigvalsh(jaxdyn.model.pseudo_inertia(estimates)).min()
print(f"All {steps} estimates are those of bodies that could be built: their pseudo-inertias exceed {least:.0e}")
print(
    "Masses, kg: " + ", ".join(f"{a:.2f} guessed, {b:.2f} at the end" for a, b in zip(guess[:, 0], estimates[-1, :, 0]))
)

if len(sys.argv) > 1 and importlib.util.find_spec("matplotlib"):
    from jaxdyn.cli.plotting import new_figure

    figure = new_figure()
    figure.set_size_inches(8, 5)
    above, below = figure.subplots(2, 1, sharex=True)
    for name, error in zip(("fixed guess", "adaptive"), errors):
        above.semilogy(trajectory.t[0], error + 1e-6, label=name)
    above.set(ylabel="error, rad")
    above.legend()
    below.plot(trajectory.t[1], estimates[:, :, 3], label=[f"m c_z of {name}" for name in model.body_names])
    for k, true in enumerate(model.inertia[:, 3]):
        below.axhline(true, color=f"C{k}", linestyle="--", linewidth=0.8)
    below.set(ylabel="estimates, kg m", xlabel="time, s")
    below.legend(fontsize="small")
    figure.savefig(sys.argv[1], dpi=120)
    print(f"drawn in {sys.argv[1]}")
