"""Collocation: a cart swings its pole up as fast as its motor allows."""

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn.cli import table
from jaxdyn.trajopt import collocation, torque

jax.config.update("jax_enable_x64", True)
cartpole = jaxdyn.load("cartpole").replace(effort_limit=[12.0, jnp.inf])  # a weak motor; none in the hinge
hanging, upright = jnp.array([0.0, jnp.pi, 0.0, 0.0]), jnp.zeros(4)


@jax.jit
def swing_up(model):
    """From hanging to upright, both at rest: a second costs as much as 200 N^2 s of force."""
    return collocation(
        model,
        torque(weight=0.01),
        None,
        hanging,
        x_end=upright,
        steps=40,
        scheme="midpoint",  # forces are constant over an interval
        duration=2.0,  # a first guess
        free_duration=(0.5, 5.0),
        time_weight=1.0,
        driven=["slider"],
    )


found = swing_up(cartpole)
print(found.message, f"after {found.iterations} steps: up in {found.extras['duration']:.3f} s, cost {found.cost:.4f}")
used = [
    ("way on the rail, m", jnp.abs(found.xs[:, 0]).max(), cartpole.upper[0]),
    ("speed of the cart, m/s", jnp.abs(found.xs[:, 2]).max(), cartpole.velocity_limit[0]),
    ("force of the motor, N", jnp.abs(found.us).max(), cartpole.effort_limit[0]),
]
print(table(("largest", "used", "limit"), [(name, f"{x:.3f}", f"{limit:.1f}") for name, x, limit in used]))
print("largest error of a constraint:", f"{max(found.extras['violations'].values()):.0e}")

jaxdyn.viz.export_html(cartpole, found.trajectory(cartpole), "swing_up.html")
print("swing_up.html shows it")
