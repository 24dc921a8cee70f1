"""Force control: a tip presses on a springy wall with 10 N and slides along it, wherever the wall is.

With matplotlib installed and a file named, it draws what it prints.
"""

import importlib.util
import sys

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn import control

# A planar arm of three links, and a wall a centimetre in front of its tip, of which the controller knows nothing.
builder = jaxdyn.ModelBuilder("arm")
for k in range(3):
    builder.add_body(
        f"link_{k}", None if k == 0 else f"link_{k - 1}", xyz=(0, 0, 0.5 if k else 0), axis=(0, 1, 0),
        mass=1.0, com=(0, 0, 0.25), inertia=(0.02, 0.02, 0.01),
    )  # fmt: skip
model = builder.add_frame("tip", "link_2", xyz=(0, 0, 0.5)).build()
q = jnp.array([0.3, 1.0, 0.6])
R, p = jaxdyn.frame_pose(model, q, "tip")
wall, stiffness, wanted = p[0] + 0.01, 2000.0, 10.0


def on_wall(q):
    """The force of the tip on the wall, [moment; force] in the world: what a sensor in the wrist measures."""
    depth = jaxdyn.frame_pose(model, q, "tip").position[0] - wall
    return jnp.zeros(6).at[3].set(stiffness * jnp.maximum(depth, 0))


def policy(t, q, qd, _):
    """Press along x, slide up along z with 0.1 m/s; the arm cannot turn otherwise, nor leave its plane."""
    return control.hybrid_control(
        model, q, qd, "tip", (R, p + jnp.stack([0 * t, 0 * t, 0.1 * t])), jnp.zeros(6).at[3].set(wanted),
        selection=(1, 1, 1, 1, 1, 0), velocity=jnp.zeros(6).at[5].set(0.1), stiffness=400.0, damping=40.0,
        measured=on_wall(q), force_gain=0.2, regularization=1e-6, null_acceleration=-5.0 * qd,
    )  # fmt: skip


@jax.jit
def run(q):
    f_ext = lambda t, q, qd, _: control.frame_force(model, q, "tip", -on_wall(q))
    trajectory = jaxdyn.rollout(model, q, jnp.zeros(3), policy, dt=5e-4, steps=3000, f_ext=f_ext, save_every=10)
    tips = jax.vmap(lambda q: jaxdyn.frame_pose(model, q, "tip").position)(trajectory.q)
    return trajectory.t, jax.vmap(on_wall)(trajectory.q)[:, 3], tips[:, 2] - p[2]


t, force, height = run(q)
first = t[jnp.argmax(force > 0)]
print(f"The tip touches the wall after {first:.2f} s, and presses with {force[-1]:.3f} N at the end ({wanted} wanted)")
print(f"Meanwhile it slid up {100 * height[-1]:.2f} cm, {100 * 0.1 * t[-1]:.2f} wanted")

if len(sys.argv) > 1 and importlib.util.find_spec("matplotlib"):
    from jaxdyn.cli.plotting import new_figure

    figure = new_figure()
    figure.set_size_inches(8, 5)
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(t, force)
    above.axhline(wanted, color="grey", linewidth=0.8, linestyle="--")
    above.set(ylabel="force on the wall, N")
    below.plot(t, 100 * height)
    below.plot(t, 10 * t, "--", color="grey", linewidth=0.8)
    below.set(ylabel="way along the wall, cm", xlabel="time, s")
    figure.savefig(sys.argv[1], dpi=120)
    print(f"drawn in {sys.argv[1]}")
