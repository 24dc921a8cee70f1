"""Operational space: a tool draws a circle while the elbow, which the tool does not need, goes where it is told.

Writes a page that shows the motion, if a file is named.
"""

import sys

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn import control

model = jaxdyn.load("arm7")
model = model.replace(damping=jnp.zeros(model.nv))
q = jnp.array([0.0, 0.6, 0.0, 1.2, 0.0, 0.6, 0.0])
R, centre = jaxdyn.frame_pose(model, q, "tool")


def circle(t):
    return centre + 0.1 * jnp.stack([0 * t, jnp.sin(4 * t), 1 - jnp.cos(4 * t)])


def motion(t):
    """Return position, velocity and acceleration of the circle; the tool does not turn."""
    along = lambda f: lambda t: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]
    six = lambda v: jnp.concatenate([jnp.zeros(3), v])
    return circle(t), six(along(circle)(t)), six(along(along(circle))(t))


def policy(t, q, qd, lean):
    """Follow the circle; with what is left of the joints' freedom, lean the first joint."""
    position, velocity, acceleration = motion(t)
    posture = jnp.zeros(7).at[0].set(lean)
    return control.operational_space_control(
        model, q, qd, "tool", (R, position), velocity=velocity, acceleration=acceleration,
        stiffness=400.0, damping=40.0, null_acceleration=20.0 * (posture - q) - 9.0 * qd,
    )  # fmt: skip


@jax.jit
def run(lean):
    trajectory = jaxdyn.rollout(model, q, jnp.zeros(7), policy, dt=2e-3, steps=1000, params=lean, save_every=10)
    tool = jax.vmap(lambda q: jaxdyn.frame_pose(model, q, "tool").position)(trajectory.q)
    return trajectory, jnp.linalg.norm(tool - jax.vmap(circle)(trajectory.t), axis=1)


for lean in (0.0, 0.8):
    trajectory, error = run(lean)
    print(
        f"Leaning towards {lean:.1f} rad: the first joint ends at {trajectory.q[-1, 0]:+.2f} rad; the tool is off its "
        f"circle by {1000 * error[50:].max():.2f} mm at most in the second second"
    )
if len(sys.argv) > 1:
    print(f"Open {jaxdyn.viz.export_html(model, trajectory, sys.argv[1])} in a browser")
