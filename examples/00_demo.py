"""A first look: load an arm, pose it, and differentiate the pose by the joint angles and by the arm itself."""

import time

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn.cli import describe, table


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
