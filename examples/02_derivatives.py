"""Derivatives at work: a robot linearised about a pose, and masses found from measured torques that stay physical."""

import jax
import jax.numpy as jnp
import optax

import jaxdyn
from jaxdyn import derivatives
from jaxdyn.cli import table
from jaxdyn.model import entropic_divergence, from_log_cholesky, is_physical, log_cholesky

model = jaxdyn.load("arm7")
nv = model.nv

# Linearised about rest: d/dt [dq, dqd] = A [dq, dqd] + B dtau, from derivatives in closed form.
q = jaxdyn.random_configuration(model, jax.random.key(2))
rest = jnp.zeros(nv)
by_q, by_qd, by_tau = derivatives.forward_dynamics_derivatives(model, q, rest, jaxdyn.gravity_force(model, q))
A = jnp.block([[jnp.zeros((nv, nv)), jnp.eye(nv)], [by_q, by_qd]])
B = jnp.concatenate([jnp.zeros((nv, nv)), by_tau])
rates = jnp.sort(jnp.linalg.eigvals(A).real)[::-1]
falling = ", ".join(f"{1 / float(rate):.3f}" for rate in rates[rates > 1e-2])
print(f"Held by constant torques, the arm falls out of this pose as exp(t / T)\n  T in s: {falling}")

twin = derivatives.forward_dynamics_derivatives_autodiff(model, q, rest, jaxdyn.gravity_force(model, q))
print(f"  the same derivatives by automatic differentiation differ by {jnp.abs(twin[0] - by_q).max():.0e} 1/s^2")

# Somebody measured torques on a robot whose links are other than the drawing says: 64 motions, and 64 to test with.
keys = jax.random.split(jax.random.key(0), 128)
qs = jax.vmap(jaxdyn.random_configuration, in_axes=(None, 0))(model, keys)
motions = qs, *jax.random.normal(jax.random.key(1), (2, len(qs), nv))
seen, unseen = ([x[part] for x in motions] for part in (slice(64), slice(64, 128)))
forces = jax.vmap(jaxdyn.inverse_dynamics, in_axes=(None, 0, 0, 0))
theta = log_cholesky(model.inertia)
robot = jaxdyn.with_inertial_parameters(
    model, from_log_cholesky(theta + 0.1 * jax.random.normal(jax.random.key(3), theta.shape))
)


def error(model, motions):
    return jnp.sqrt(((forces(model, *motions) - forces(robot, *motions)) ** 2).mean())


def loss(theta):
    """Return the mean squared error of the torques, and a little for every step away from the drawing."""
    pi = from_log_cholesky(theta)
    prior = entropic_divergence(pi, model.inertia).sum()
    return error(jaxdyn.with_inertial_parameters(model, pi), seen) ** 2 + 1e-4 * prior


# In log-Cholesky coordinates every step of an optimiser is a body that could be built.
optimizer = optax.adam(2e-2)
state = optimizer.init(theta)


@jax.jit
def step(theta, state):
    updates, state = optimizer.update(jax.grad(loss)(theta), state)
    return optax.apply_updates(theta, updates), state


rows, check = [], jax.jit(lambda model: (error(model, seen), error(model, unseen), is_physical(model)))
for k in range(301):
    if k % 100 == 0:
        *errors, physical = check(jaxdyn.with_inertial_parameters(model, from_log_cholesky(theta)))
        rows.append([str(k), *(f"{e:.3f}" for e in errors), "yes" if physical else "no"])
    theta, state = step(theta, state)
print("\nMasses and inertias of all links, found from measured torques: what is left of their error, N m")
print(table(("step", "motions seen", "motions not seen", "physical"), rows))
