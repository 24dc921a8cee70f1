"""An arm follows a fast swing under four controllers, first as its model says, then with links that weigh more.

With matplotlib installed and a file named, it draws what it prints.
"""

import importlib.util
import sys

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn import control
from jaxdyn.cli import table

model = jaxdyn.load("double_pendulum")


def swing(t):
    """The path to follow: velocity and acceleration come from it by differentiation."""
    return jnp.array([1.2, 0.8]) * jnp.sin(jnp.array([3.0, 4.5]) * t)


springs = {"stiffness": 80.0, "damping": 20.0}
controllers = {
    "pd": lambda q, qd, goal: control.pd(model, q, qd, *goal[:2], **springs),
    "pd_plus": lambda q, qd, goal: control.pd_plus(model, q, qd, *goal, **springs),
    "passivity_based": lambda q, qd, goal: control.passivity_based(model, q, qd, *goal, convergence=4.0, gain=20.0),
    "computed_torque": lambda q, qd, goal: control.computed_torque(model, q, qd, *goal, **springs),
}


def run(robot, controller):
    """Return times and errors of 3 s, from a start that is off."""
    policy = lambda t, q, qd, _: controller(q, qd, control.desired_motion(model, swing, t))
    trajectory = jaxdyn.rollout(robot, jnp.array([0.4, -0.4]), jnp.zeros(2), policy, dt=2e-3, steps=1500)
    return trajectory.t, jnp.linalg.norm(jax.vmap(swing)(trajectory.t) - trajectory.q, axis=1)


rows, curves = [], {}
for name, controller in controllers.items():
    both = jax.jit(jax.vmap(lambda mass, c=controller: run(model.replace(inertia=mass * model.inertia), c)))
    t, errors = both(jnp.array([1.0, 1.3]))
    curves[name] = t[0], errors
    rows.append((name, *(f"{float(e[1000:].max()):.4f}" for e in errors)))
print("Largest error of a swing in its last second, rad")
print(table(("controller", "links as known", "30 % heavier"), rows))

if len(sys.argv) > 1 and importlib.util.find_spec("matplotlib"):
    from jaxdyn.cli.plotting import new_figure

    figure = new_figure()
    figure.set_size_inches(9, 4)
    for k, axes in enumerate(figure.subplots(1, 2, sharey=True)):
        for name, (t, errors) in curves.items():
            axes.semilogy(t, errors[k] + 1e-6, label=name)
        axes.set(xlabel="time, s", title=("links as the controllers know them", "links 30 % heavier")[k])
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("error, rad")
    figure.axes[0].legend(fontsize="small")
    figure.savefig(sys.argv[1], dpi=120)
    print(f"drawn in {sys.argv[1]}")
