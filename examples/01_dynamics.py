"""Forces and motion: the torques that a motion takes, how an arm swings without any, and what its masses do to that."""

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn.cli import table


def row(numbers):
    return " ".join(f"{float(x):+8.3f}" for x in numbers)


model = jaxdyn.load("arm7")
q = jaxdyn.random_configuration(model, jax.random.key(2))
qd, qdd = jax.random.normal(jax.random.key(1), (2, model.nv))

tau = jaxdyn.inverse_dynamics(model, q, qd, qdd)
again = jaxdyn.forward_dynamics(model, q, qd, tau)
print("A motion, the torques that it takes, and the motion that these torques cause")
print(f"  acceleration rad/s^2  {row(qdd)}\n  torque N m            {row(tau)}\n  acceleration again    {row(again)}")
M, bias = jaxdyn.mass_matrix(model, q), jaxdyn.inverse_dynamics(model, q, qd, 0 * qdd)
print(f"  mass matrix times acceleration, plus bias, is the torque up to {jnp.abs(M @ qdd + bias - tau).max():.0e} N m")

dt, steps = 1e-3, 400


# A simulation is a scan of semi-implicit Euler steps; `integrate` moves joints of every type.
def swing(model, q):
    def step(state, _):
        q, qd = state
        passive = jaxdyn.passive_force(model, q, qd)
        qd = qd + dt * jaxdyn.forward_dynamics(model, q, qd, passive)
        return (jaxdyn.integrate(model, q, dt * qd), qd), (*state, -jnp.dot(passive, qd))

    return jax.lax.scan(step, (q, jnp.zeros(model.nv)), length=steps + 1)[1]


print("\nIt swings from rest, slowed only by the friction in its joints: energies in J")
qs, qds, friction = jax.jit(swing)(model, q)
kinetic = jax.vmap(jaxdyn.kinetic_energy, in_axes=(None, 0, 0))(model, qs, qds)
potential = jax.vmap(jaxdyn.potential_energy, in_axes=(None, 0))(model, qs)
lost = dt * (jnp.cumsum(friction) - friction)
columns = dt * jnp.arange(steps + 1), kinetic, potential, lost, kinetic + potential + lost
rows = [[f"{column[k]:.2f}" for column in columns] for k in range(0, steps + 1, 100)]
print(table(("t s", "kinetic", "potential", "lost", "sum"), rows))


# An arm with a heavier link arrives elsewhere. A batch of arms, and in each the derivative through all the steps.
def arrival(mass):
    inertia = model.inertia.at[6].multiply(mass / model.inertia[6, 0])
    return swing(model.replace(inertia=inertia), q)[0][-1]


masses = jnp.linspace(0.9, 1.1, 11)
arrivals, slopes = jax.jit(jax.vmap(lambda mass: jax.jvp(arrival, (mass,), (1.0,))))(masses)
differences = (arrivals[-1] - arrivals[0]) / (masses[-1] - masses[0])
print(f"\nJoint angles after {dt * steps} s, rad, of {len(masses)} arms whose last link weighs 0.9 to 1.1 kg")
print(f"  at 1 kg         {row(arrivals[5])}\n  change per kg   {row(slopes[5])}\n  by differences  {row(differences)}")
