"""Linear-quadratic regulators: a pole on a cart is balanced, and an arm is kept on a swing that pushes throw it off.

With matplotlib installed and a file named, it draws what it prints.
"""

import dataclasses
import importlib.util
import sys

import jax
import jax.numpy as jnp

import jaxdyn
from jaxdyn import control

# A cart, which alone is driven, balances a pole: gains for ever, from the algebraic Riccati equation.
cart, dt = jaxdyn.load("cartpole"), 0.01
upright = jnp.array([0.0, jnp.pi])
balance = control.equilibrium_lqr(
    cart, upright, dt=dt, actuated=[0], state_weight=[1.0, 10.0, 0.1, 0.1], input_weight=0.1
)
run = jaxdyn.rollout(
    cart, upright + jnp.array([0.0, 0.3]), jnp.zeros(2), control.follow, params=balance, dt=dt, steps=500
)
print(f"The regulator is {control.Status(int(balance.status)).name}")
print(f"A pole that starts 0.30 rad off is {abs(run.q[-1, 1] - jnp.pi):.0e} rad off after 5 s")

# A double pendulum swings along under given torques. Gains of every time step keep it there.
arm, steps = jaxdyn.load("double_pendulum"), 300
tau = jnp.stack([8.0 * jnp.sin(jnp.arange(steps) * 0.03), 2.0 * jnp.cos(jnp.arange(steps) * 0.05)], axis=1)
start = jnp.array([0.5, 0.2])
reference = jaxdyn.rollout(arm, start, jnp.zeros(2), tau, dt=dt)
feedback = control.trajectory_lqr(arm, reference, tau, dt=dt, state_weight=[100.0, 100.0, 1.0, 1.0], input_weight=0.05)


@jax.jit
@jax.vmap
def distance(push, share):
    """Start off the reference, with a share of the feedback, and return how far off the arm is from then on."""
    params = dataclasses.replace(feedback, gains=share * feedback.gains)
    run = jaxdyn.rollout(arm, start + push, jnp.zeros(2), control.follow, params=params, dt=dt, steps=steps)
    return jnp.linalg.norm(run.q - reference.q, axis=1)


pushes = 0.3 * jax.random.normal(jax.random.key(0), (32, 2))
alone, led = distance(jnp.tile(pushes, (2, 1)), jnp.repeat(jnp.array([0.0, 1.0]), 32)).reshape((2, 32, -1))
print(f"32 arms that start up to {jnp.abs(pushes).max():.2f} rad off end off by (mean)")
print(f"  {alone[:, -1].mean():.3f} rad under the torques alone, {led[:, -1].mean():.0e} rad with feedback")

if len(sys.argv) > 1 and importlib.util.find_spec("matplotlib"):
    from jaxdyn.cli.plotting import new_figure

    figure = new_figure()
    figure.set_size_inches(9, 4)
    left, right = figure.subplots(1, 2)
    left.plot(run.t, run.q[:, 0], label="cart, m")
    left.plot(run.t, run.q[:, 1] - jnp.pi, label="pole, rad")
    left.set(title="balance", xlabel="time, s")
    left.legend()
    right.semilogy(reference.t, alone.T + 1e-9, color="C7", linewidth=0.5)
    right.semilogy(reference.t, led.T + 1e-9, color="C0", linewidth=0.5)
    right.set(title="distance from the swing, rad: alone (grey), led (blue)", xlabel="time, s")
    figure.savefig(sys.argv[1], dpi=120)
    print(f"drawn in {sys.argv[1]}")
