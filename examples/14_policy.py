"""Shooting: a small neural network learns to bring a double pendulum to rest, by gradients through its motions."""

import jax
import jax.numpy as jnp
import optax

import jaxdyn
from jaxdyn.trajopt import shooting

model = jaxdyn.load("double_pendulum")
goal = jnp.array([0.8, -0.4])


def policy(t, q, qd, p):
    """Return the torques: what holds the goal, and one hidden layer of 16 units."""
    hidden = jnp.tanh(jnp.concatenate([q - goal, qd]) @ p["in"] + p["bias"])
    return p["hold"] + hidden @ p["out"]


def loss(run, p):
    """Return the mean error on the way, with a little for torques."""
    return ((run.q - goal) ** 2).mean() + 0.02 * (run.qd**2).mean() + 1e-5 * (run.extras["tau"] ** 2).mean()


keys = jax.random.split(jax.random.key(0), 4)
guess = {
    "in": 0.5 * jax.random.normal(keys[0], (4, 16)),
    "bias": jnp.zeros(16),
    "out": 0.1 * jax.random.normal(keys[1], (16, 2)),
    "hold": jaxdyn.gravity_force(model, goal),
}
starts = 0.5 * jax.random.normal(keys[2], (8, 2)), jnp.zeros((8, 2))
learned = shooting(
    model,
    loss,
    *starts,
    policy,
    params=guess,
    dt=0.02,
    steps=75,
    optimizer=optax.adam(optax.exponential_decay(0.1, 100, 0.3)),
    max_iterations=150,
    remat="steps",
)
print(f"8 starts: loss {learned.history['cost'][0]:.3f} before, {learned.cost:.4f} after {learned.iterations} steps")

# A start that it has not seen.
q, qd = 0.5 * jax.random.normal(keys[3], (2,)), jnp.zeros(2)
for name, p in (("untrained", guess), ("trained", learned.extras["params"])):
    run = jaxdyn.rollout(model, q, qd, policy, dt=0.02, steps=150, params=p)
    print(f"{name}: {jnp.abs(run.q[-1] - goal).max():.3f} rad from the goal after 3 s")
jaxdyn.viz.export_html(model, run, "policy.html")
