"""Spatial operators: dynamics written as algebra, run as recursions."""

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn.operators import innovations_factor, operational_space_dynamics, spatial_operators

jax.config.update("jax_enable_x64", True)
model = jaxdyn.load("arm7")
q = jaxdyn.random_configuration(model, jax.random.key(1))
qd, tau = jax.random.normal(jax.random.key(2), (2, model.nv))

# The operators of the arm in this pose. An expression is kept as it is written ...
s = spatial_operators(model, q)
I, H, phi, psi, M, D, K = s.I, s.H, s.phi, s.psi, s.M, s.D, s.K
newton_euler = H @ phi @ M @ phi.T @ H.T + s.A
innovations = (I + H @ phi @ K) @ D @ (I + H @ phi @ K).T
print(f"the mass matrix, factored by Newton and Euler:  {newton_euler}")
print(f"and by the filter's innovations:                {innovations}")
print(f"its inverse, found by algebra:                  {innovations.inv()}")

# ... and applied from right to left: a sweep for each phi and psi, no matrix anywhere.
forces, same = newton_euler @ qd, innovations @ qd
print(f"both give the same forces, to {jnp.abs(forces - same).max():.0e}")

# Forward dynamics is the inverse applied to what is left of the torques (001 (14)-(15)).
qdd = newton_euler.inv() @ (tau - jaxdyn.bias_force(model, q, qd))
gap = jnp.abs(qdd - jaxdyn.forward_dynamics(model, q, qd, tau)).max()
print(f"forward dynamics as an expression and as an algorithm differ by {gap:.0e} rad/s^2")

# The square root of the mass matrix: M = m m*, with determinant and solutions in time proportional to the links.
m = innovations_factor(model, q)
whitened = m.solve(forces)
print(
    f"log det M = {2 * m.logdet():.6f}; |m^-1 M qd|^2 = {whitened @ whitened:.6f}, twice the kinetic energy is ", end=""
)
print(f"{2 * jaxdyn.kinetic_energy(model, q, qd):.6f}")

# Expressions are differentiable: the slope of log det M tells where the arm is heavy to move.
slope = jax.grad(lambda q: 2 * innovations_factor(model, q).logdet())(q)
print(f"d log det M / dq = {jnp.round(slope, 3)}")

# The tool's own dynamics: its inertia, and torques that leave it alone.
tool = operational_space_dynamics(model, q, qd, "tool", rows=(3, 4, 5))
masses = jnp.linalg.eigvalsh(tool.inertia)
print(f"pushed at the tool, the arm weighs between {masses[0]:.2f} and {masses[-1]:.2f} kg, by direction")
print(f"torques that the tool does not feel: {jnp.round(tool.null_space_T(tau), 2)}")
