"""Dynamics as optimal control: of all accelerations, a robot takes those that make Gibbs' function least."""

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn import estimation
from jaxdyn.cli import table
from jaxdyn.estimation import lq

jax.config.update("jax_enable_x64", True)


def row(numbers):
    return " ".join(f"{float(x):+8.3f}" for x in numbers)


# A linear-quadratic problem has nothing to do with robots: stages, states, controls, costs. Here 40 steps of 0.05 s in
# which a cart is brought to rest at zero by pushes.
steps = 40
each = lambda x: jnp.broadcast_to(jnp.array(x), (steps, *jnp.array(x).shape))
cart = lq.Problem(
    A=each([[1.0, 0.05], [0.0, 1.0]]),
    B=each([[0.0], [0.05]]),
    M=each([[1.0, 0.0], [0.0, 0.1]]),
    h=each([0.0, 0.0]),
    W=each([[0.01]]),
    t=each([0.0]),
)
solve = jax.jit(lq.solve, static_argnums=0)
pushed = solve(tuple(range(-1, steps - 1)), cart, jnp.array([1.0, 0.0]))
print("A cart is pushed home: position in m after each half second")
print(f"  {row([1.0, *pushed.x[9::10, 0]])}")

# An arm is a problem of the same kind. Stages are bodies, from the base to the tips; states are the bodies'
# accelerations, controls those of the joints; the cost of a state is half of a* M a, Gibbs' function.
model = jaxdyn.load("arm7")
q = jaxdyn.random_configuration(model, jax.random.key(2))
qd, tau = jax.random.normal(jax.random.key(1), (2, model.nv))
arm = estimation.mechanism(model, q, qd, tau)
best = solve(model.parents, arm, jnp.zeros(6))
print("\nAn arm: the best accelerations of its joints, 1/s^2, by the solver of the cart, and by forward dynamics")
print(f"  {row(best.u[:, 0])}\n  {row(jaxdyn.forward_dynamics(model, q, qd, tau))}")


def index(qdd):
    return lq.index(model.parents, arm, jnp.zeros(6), qdd[:, None])


least = index(best.u[:, 0])
others = jax.vmap(lambda key: index(best.u[:, 0] + 0.1 * jax.random.normal(key, (7,))) - least)
extra = others(jax.random.split(jax.random.key(0), 1000))
print(f"  a thousand others cost {extra.min():.1e} to {extra.max():.1e} more")
M = jaxdyn.mass_matrix(model, q)
print(f"  the Hessian of the cost is the mass matrix up to {jnp.abs(jax.hessian(index)(qd) - M).max():.0e} kg m^2")

# The costates are the forces between the bodies; what of them the bearings carry follows by Armstrong's variant.
found = estimation.optimal_control(model, q, qd, tau)
loads = jaxdyn.reaction_forces(model, q, qd, tau, axes="world")
difference = jnp.abs(found.constraint - loads.constraint).max()
print(f"\nWhat the bearings carry, by Armstrong's variant (by reaction_forces up to {difference:.0e})")
size = lambda x: f"{float(jnp.linalg.norm(x)):.1f}"
lines = [(name, size(f[:3]), size(f[3:])) for name, f in zip(model.joint_names, found.constraint)]
print(table(("joint", "moment N m", "force N"), lines))
