"""A first look: load an arm, pose it, let it swing, and differentiate both by the arm itself; then a thousand arms."""

import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn.cli import describe, table
from jaxdyn.cli.plotting import plot_run

jax.config.update("jax_enable_x64", True)


def timed(what, f, *args):
    """Print how long a function takes to compile and then to run, and return its result."""
    start = time.perf_counter()
    result = jax.block_until_ready(f(*args))
    first = time.perf_counter() - start
    runs = []
    for _ in range(20):
        start = time.perf_counter()
        jax.block_until_ready(f(*args))
        runs.append(time.perf_counter() - start)
    print(f"  {what}: compiled and run in {first:.2f} s, then {1e6 * sorted(runs)[10]:.0f} us a call")
    return result


def row(numbers):
    return " ".join(f"{float(x):+.4f}" for x in numbers)


# A model is a pytree: its numbers are leaves, its topology is static.
model = jaxdyn.load("arm7")
print(describe(model))

# Poses of all bodies at a random configuration within the limits.
print("\nPoses at a random configuration")
q = jaxdyn.random_configuration(model, jax.random.key(0))
poses = timed("forward_kinematics", jaxdyn.forward_kinematics, model, q)
rows = [(name, row(p), row(R[:, 2])) for name, R, p in zip(model.body_names, *poses)]
print(table(("body", "position m", "z axis"), rows))


# The tip as a function of configuration and model. Everything is differentiable in both.
def tip(model, q):
    return jaxdyn.frame_pose(model, q, "tool").position


print("\nGradient of the tool's position with respect to the joint angles (one column a joint)")
by_q = timed("jacobian in q", jax.jit(jax.jacobian(tip, argnums=1)), model, q)
print(table(("", *model.joint_names), [(axis, *(f"{x:+.4f}" for x in line)) for axis, line in zip("xyz", by_q)]))

print("\nGradient of the tool's height with respect to where joint 4 sits in link 3: its quaternion, its position")
by_model = timed("gradient in the model", jax.jit(jax.grad(lambda model, q: tip(model, q)[2])), model, q)
print(f"  d height / d placement[3] = {row(by_model.placement[3])}")

# A thousand configurations at once, and a check of one gradient by a difference.
print("\nA batch of 1000 configurations")
qs = jax.vmap(jaxdyn.random_configuration, in_axes=(None, 0))(model, jax.random.split(jax.random.key(1), 1000))
tips = timed("1000 tool positions", jax.jit(jax.vmap(tip, in_axes=(None, 0))), model, qs)
print(f"  the tool reaches from {float(jnp.min(tips[:, 2])):.2f} m to {float(jnp.max(tips[:, 2])):.2f} m in height")

h = 1e-3
longer = model.replace(placement=model.placement.at[3, 6].add(h))
shorter = model.replace(placement=model.placement.at[3, 6].add(-h))
difference = (tip(longer, q)[2] - tip(shorter, q)[2]) / (2 * h)
print(f"\nOne metre on link 3 would lift the tool by {difference:.4f} m; the gradient: {by_model.placement[3, 6]:.4f}")

# The arm swings for 5 s. Links get heavier without another shape: all ten inertial parameters grow with the mass.
dt, steps, qd = 0.005, 1000, jnp.zeros(model.nv)


@jax.jit
def swing(tau, masses):
    links = model.replace(inertia=(masses / model.inertia[:, 0])[:, None] * model.inertia)
    return jaxdyn.rollout(links, q, qd, tau, dt=dt, outputs=["energy"])


def end(tau, masses):
    return tip(model, swing(tau, masses).q[-1])


print(f"\nLet go, the arm swings for {dt * steps:g} s, {steps} steps")
tau, masses = jnp.zeros((steps, model.nv)), model.inertia[:, 0]
run = swing(tau, masses)
energy = run.extras["energy"]
print(f"  energy: {energy[0]:.2f} J at the start, {energy[-1]:.2f} J at the end; friction took the difference")
print(f"  the tool ends at {row(end(tau, masses))} m")

print(f"\nGradient of where it ends with respect to all {tau.size} torques and all {masses.size} link masses")
start = time.perf_counter()
by_tau, by_mass = jax.block_until_ready(jax.jit(jax.jacrev(end, (0, 1)))(tau, masses))
print(f"  compiled and run in {time.perf_counter() - start:.1f} s")
lines = [(f"d {axis} / d mass, m/kg", *(f"{x:+.4f}" for x in by_mass[k])) for k, axis in enumerate("xyz")]
print(table(("", *model.body_names), lines))
print("  and by the torques, summed over time: one more Nm throughout")
lines = [(f"d {axis} / d torque, m/Nm", *(f"{x:+.4f}" for x in by_tau[k].sum(0))) for k, axis in enumerate("xyz")]
print(table(("", *model.joint_names), lines))
h = 1e-4
difference = (end(tau, masses.at[6].add(h)) - end(tau, masses.at[6].add(-h))) / (2 * h)
print(f"By a difference, one kilogram on link 7 would move the end by {row(difference)} m")

# The same swing from 1024 starts.
copies = 1024
print(f"\n{copies} copies that start a little elsewhere")
qs = q + 0.05 * jax.random.normal(jax.random.key(2), (copies, model.nq))
many = jax.jit(jax.vmap(lambda q: jaxdyn.rollout(model, q, qd, tau, dt=dt, save_every=4))).lower(qs).compile()
start = time.perf_counter()
runs = jax.block_until_ready(many(qs))
seconds = time.perf_counter() - start
ends = jax.vmap(tip, in_axes=(None, 0))(model, runs.q[:, -1])
print(f"  {copies * steps} steps in {seconds:.2f} s: {copies * steps / seconds:,.0f} steps/s")
print(f"  the tools end with a standard deviation of {row(ends.std(axis=0))} m")

# See them: twelve of the copies move in the page.
folder = Path(tempfile.mkdtemp(prefix="jaxdyn-"))
print(f"\nOpen {jaxdyn.viz.export_html(model, runs, folder / 'swing.html')} in a browser")
try:
    plot_run(model, run.t, run.q, run.qd, energy, folder / "swing.png")
    print(f"Look at {folder / 'swing.png'}")
except ImportError as error:
    print(f"There is no picture: {error}")
