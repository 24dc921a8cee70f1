"""Identification: a simulated arm moves, its noisy torques correct a wrong model of it, and the links stay physical."""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn.cli import table
from jaxdyn.cli.identification_page import write_page
from jaxdyn.sysid import Samples, identify

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)

# The first three joints of an arm. The data sheet is wrong about its links, and knows of no friction.
sheet = jaxdyn.load("puma560")
sheet = jaxdyn.lock_joints(sheet, dict.fromkeys(sheet.joint_names[3:], 0.0))
theta = jaxdyn.model.log_cholesky(jaxdyn.model.project_physical(sheet.inertia, margin=1e-3))
sheet = sheet.replace(inertia=jaxdyn.model.from_log_cholesky(theta))
true = sheet.replace(
    inertia=jaxdyn.model.from_log_cholesky(theta + 0.15 * rng.normal(size=theta.shape)),
    friction=jnp.array([0.6, 1.0, 0.4]),
    damping=jnp.array([0.2, 0.5, 0.3]),
)

# An exciting motion, ten seconds of it, and what the robot's sensors say: torques with noise.
t, w = np.arange(0, 10, 0.02), 2 * np.pi / 10 * np.arange(1, 6)
a, b = 0.3 * rng.normal(size=(2, 5, 3))
sin, cos = np.sin(np.outer(t, w)), np.cos(np.outer(t, w))
q, qd, qdd = sin @ a + cos @ b, (cos * w) @ a - (sin * w) @ b, -(sin * w**2) @ a - (cos * w**2) @ b
measure = lambda model, q, qd, qdd: jaxdyn.inverse_dynamics(model, q, qd, qdd) - jaxdyn.passive_force(model, q, qd)
torque = jax.jit(jax.vmap(measure, in_axes=(None, 0, 0, 0)))
clean = np.asarray(torque(true, q, qd, qdd))
tau = clean + 0.02 * clean.std(axis=0) * rng.normal(size=clean.shape)
train, test = Samples(t, q, qd, qdd, tau).split(0.5)

found = identify(sheet, *train[1:], rotor_inertia=False, offset=False, verbose=True)
print("\n" + found.summary())

# What the torques depend on are combinations of masses, not every mass; the others stay as the data sheet has them.
print(f"\n{found.base}: for example {found.base.describe()[5]}")

# On the other half of the motion, the sheet's torques and the identified ones beside the true ones:
rows = []
there = slice(len(train.t), None)
for name, prediction in (("data sheet", torque(sheet, q, qd, qdd)[there]), ("identified", found.predict(*test[1:4]))):
    error = np.sqrt(((np.asarray(prediction) - clean[there]) ** 2).mean(axis=0))
    rows.append((name, *(f"{x:.3f}" for x in error)))
print("\n" + table(("rms error, Nm", *sheet.joint_names), rows))
print(f"links that could be built: {int((np.asarray(found.margins) > 0).sum())} of {sheet.nbodies}")

page = Path(tempfile.mkdtemp(prefix="jaxdyn-")) / "identification.html"
write_page(found, train, test, page, source="the simulation")
print(f"\nplots with intervals: {page}")
