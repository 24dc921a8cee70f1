"""Diagonalised equations of motion: an arm in ordinary and in diagonalising coordinates, and what integrators keep.

    python examples/06_diagonal_coordinates.py [diagonal.png]

With matplotlib installed and a file named, it draws what it prints.
"""

import importlib.util
import sys

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn import control, diagonal
from jaxdyn.cli import table

jax.config.update("jax_enable_x64", True)
model = jaxdyn.load("arm7").replace(gravity=jnp.zeros(3))  # a free arm: its energy should not change at all
q = jaxdyn.random_configuration(model, jax.random.key(1))
qd = 1.5 * jax.random.normal(jax.random.key(2), (model.nv,))
nu = diagonal.to_nu(model, q, qd)

# Total joint rates nu = m* qd diagonalise the mass matrix: the kinetic energy is half their square, and the Coriolis
# term C(q, nu), which turns them, does no work.
C = jax.jit(diagonal.coriolis)(model, q, nu)
twin = jax.jit(diagonal.coriolis_autodiff)(model, q, nu)
print("An arm at one state, by joint")
columns = ("qd, rad/s", "nu", "C(q, nu)", "C by autodiff")
rows = [[name, *(f"{float(x):+.6f}" for x in xs)] for name, *xs in zip(model.joint_names, qd, nu, C, twin)]
print(table(("joint", *columns), rows))
print(f"  energy: {nu @ nu / 2:.9f} J from nu, {jaxdyn.kinetic_energy(model, q, qd):.9f} J from qd")
print(f"  nu . C = {nu @ C:.1e}, of |nu| |C| = {jnp.linalg.norm(nu) * jnp.linalg.norm(C):.3f}")


# Ten seconds twice: steps of the fourth order in (q, qd), and in (q, nu) steps that are rotations of nu.
def moved_by_rk4(state, dt):
    q, v = state
    acceleration = lambda q, v: jaxdyn.forward_dynamics(model, q, v, jnp.zeros_like(v))

    def stage(k, c):
        dq, dv = k
        return v + c * dt * dv, acceleration(q + c * dt * dq, v + c * dt * dv)

    k1 = v, acceleration(q, v)
    k2 = stage(k1, 0.5)
    k3 = stage(k2, 0.5)
    k4 = stage(k3, 1.0)
    return tuple(x + dt / 6 * (a + 2 * b + 2 * c + d) for x, a, b, c, d in zip(state, k1, k2, k3, k4))


@jax.jit
def in_both(q, nu, dt):
    def step(state, _):
        ordinary, turned = state
        coriolis = diagonal.coriolis(model, *turned)
        power = turned.nu @ coriolis / (jnp.linalg.norm(turned.nu) * jnp.linalg.norm(coriolis))
        row = ordinary[0], turned.q, jaxdyn.kinetic_energy(model, *ordinary), turned.nu @ turned.nu / 2, power
        return (moved_by_rk4(ordinary, dt), diagonal.step(model, *turned, dt=dt)), row

    start = (q, diagonal.from_nu(model, q, nu)), diagonal.State(q, nu)
    return jax.lax.scan(step, start, length=1000)[1]


energy = float(nu @ nu / 2)
runs = {dt: [np.asarray(x) for x in in_both(q, nu, dt)] for dt in (0.01, 0.04)}
print("\nThe same motion in both: 1000 steps of each length")
rows = []
for dt, (ordinary, turned, by_rk4, by_turning, power) in runs.items():
    second = round(1 / dt)
    rows.append([
        f"{dt}", f"{np.abs(ordinary - turned)[second].max():.1e}", f"{np.abs(by_rk4 / energy - 1).max():.1e}",
        f"{np.abs(by_turning / energy - 1).max():.1e}", f"{np.abs(power).max():.1e}",
    ])  # fmt: skip
header = ("step, s", "difference after 1 s, rad", "energy error, RK4", "energy error, rotations", "nu . C, relative")
print(table(header, rows))

# In these coordinates a controller may treat each joint by itself: eps = -c nu brings the arm to rest, and its energy
# falls exactly as exp(-2 c t), whatever the arm does meanwhile.
c = 2.0
tau = control.rate_feedback(model, q, qd, gain=c)
qdd = jaxdyn.forward_dynamics(model, q, qd, tau)
_, rate = jax.jvp(lambda t: jaxdyn.kinetic_energy(model, q + t * qd, qd + t * qdd), (0.0,), (1.0,))
print(
    f"\nUnder eps = -{c:.0f} nu the energy changes by {rate:.9f} W, -{2 * c:.0f} times itself ({-2 * c * energy:.9f})"
)

if len(sys.argv) > 1 and importlib.util.find_spec("matplotlib"):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    dt = 0.01
    ordinary, turned, by_rk4, by_turning, power = runs[dt]
    t = dt * np.arange(len(power))
    figure, axes = plt.subplots(3, 1, figsize=(8, 9), sharex=True, layout="constrained")
    for k, name in enumerate(model.joint_names[:4]):
        axes[0].plot(t, ordinary[:, k], color=f"C{k}", label=name)
        axes[0].plot(t[::40], turned[::40, k], "o", color=f"C{k}", markersize=4, fillstyle="none")
    axes[0].set(ylabel="angle, rad", title="Motion: lines in (q, qd), circles in (q, nu)")
    axes[0].legend(loc="lower left", ncols=4, fontsize="small")
    axes[1].plot(t, power, color="C7")
    axes[1].set(ylabel="nu . C / |nu| |C|", title="The Coriolis term does no work")
    for dt, (_, _, by_rk4, by_turning, _) in runs.items():
        axes[2].semilogy(t, np.abs(by_rk4 / energy - 1) + 1e-17, label=f"RK4, steps of {dt} s")
        axes[2].semilogy(t, np.abs(by_turning / energy - 1) + 1e-17, label=f"rotations of nu, {dt} s")
    axes[2].set(xlabel="step / 100", ylabel="energy error, relative", title="What the integrators keep")
    axes[2].legend(fontsize="small")
    figure.savefig(sys.argv[1], dpi=120)
    print(f"drawn in {sys.argv[1]}")
