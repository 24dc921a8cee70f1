"""Integrators: closed forms, orders of convergence, laws that they keep, MuJoCo's Euler step."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers.states import long, relative
from scipy.special import ellipj, ellipk

import jaxdyn
from jaxdyn.model.random_models import random_chain, random_tree
from jaxdyn.simulate import INTEGRATORS, rollout, step

ORDERS = {"semi_implicit_euler": 1, "mujoco_euler": 1, "midpoint": 2, "implicit_midpoint": 2, "diagonal": 2, "rk4": 4}


def walk(model, q, qd, tau, time, steps, integrator):
    """Take steps one by one: one program for any number and length of them."""
    for _ in range(steps):
        q, qd = step(model, q, qd, tau, dt=time / steps, integrator=integrator)
    return q, qd


@pytest.fixture(scope="module")
def exact(floating, state):
    return walk(floating, *state, 0.5, 128, "rk4")


def test_every_integrator_is_tested():
    assert set(ORDERS) == set(INTEGRATORS)


@pytest.mark.parametrize("name", [long(name) if name == "diagonal" else name for name in ORDERS])
def test_order_of_convergence(name, floating, state, exact):
    """On a floating base with a ball joint the error falls with the order-th power of the step."""

    def error(steps):
        q, qd = walk(floating, *state, 0.5, steps, name)
        gap = jaxdyn.difference(floating, exact[0], q)
        return np.abs(np.concatenate([gap, qd - exact[1]])).max()

    steps = 32 if ORDERS[name] < 4 else 8
    order = np.log2(error(steps) / error(2 * steps))
    assert ORDERS[name] - 0.3 < order < ORDERS[name] + 0.6


def test_momentum_of_a_free_tree(floating, state):
    """Without gravity and joint forces on the base, momentum in the world is conserved, and so is energy."""
    q, qd, tau = state
    free = floating.replace(gravity=np.zeros(3))
    q1, qd1 = walk(free, q, qd, 0 * tau, 0.5, 128, "rk4")
    before, after = (jaxdyn.centroidal_momentum(free, *s) for s in ((q, qd), (q1, qd1)))
    assert relative(after, before) < 1e-8
    energies = [jaxdyn.kinetic_energy(free, *s) for s in ((q, qd), (q1, qd1))]
    assert abs(energies[1] / energies[0] - 1) < 1e-8
    drift = jaxdyn.center_of_mass(free, q1) - jaxdyn.center_of_mass(free, q)
    mass = free.inertia[:, 0].sum()
    np.testing.assert_allclose(drift, 0.5 * before[3:] / mass, rtol=0, atol=1e-8 * np.abs(drift).max())


def test_implicit_midpoint_is_reversible(floating, state):
    """A step back after a step leads to where it began, whatever its length: Newton has converged."""
    q, qd, tau = state
    there = step(floating, q, qd, tau, dt=0.05, integrator="implicit_midpoint")
    q1, qd1 = step(floating, *there, tau, dt=-0.05, integrator="implicit_midpoint")
    assert np.abs(jaxdyn.difference(floating, q, q1)).max() < 1e-12
    assert relative(qd1, qd) < 1e-12


@pytest.fixture(scope="module")
def pendulum():
    return jaxdyn.load("pendulum").replace(damping=[0.0], friction=[0.0], stiffness=[0.0])


def test_pendulum_by_elliptic_functions(pendulum):
    """From rest at a large angle: sin(theta / 2) = k sn(K - w t, k)."""
    rate = np.sqrt(float(jax.grad(lambda x: jaxdyn.gravity_force(pendulum, x)[0])(jnp.zeros(1))[0]))
    rate /= np.sqrt(float(jaxdyn.mass_matrix(pendulum, jnp.zeros(1))[0, 0]))
    start = jnp.array([2.0])
    k = np.sin(1.0)
    found = rollout(pendulum, start, jnp.zeros(1), jnp.zeros((1000, 1)), dt=2e-3, integrator="rk4", save_every=100)
    sn = ellipj(ellipk(k**2) - rate * np.asarray(found.t), k**2)[0]
    np.testing.assert_allclose(found.q[:, 0], 2 * np.arcsin(k * sn), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "bound"), [("semi_implicit_euler", 3e-2), ("implicit_midpoint", 1e-3), ("diagonal", 1e-3)]
)
def test_energy_does_not_drift(name, bound, pendulum):
    """Over many periods the energy of symplectic and of reversible steps only swings about its value."""
    tau = jnp.zeros((5000, 1))
    run = rollout(pendulum, [1.0], [0.0], tau, dt=1e-2, integrator=name, outputs=["energy"], save_every=10)
    most = jaxdyn.potential_energy(pendulum, [1.0]) - jaxdyn.potential_energy(pendulum, [0.0])
    error = np.abs(run.extras["energy"] - run.extras["energy"][0]) / most
    assert 1e-6 < error.max() < bound
    assert error[-100:].max() < 1.05 * error[:100].max()


# ---------------------------------------------------------------------- MuJoCo
def mujoco_run(model, q, qd, tau, dt):
    """Return the final state of MuJoCo's Euler integrator, in our conventions."""
    mj = mujoco.MjModel.from_xml_string(jaxdyn.io.to_mjcf(model))
    mj.opt.timestep = dt
    assert mj.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER
    bits = mujoco.mjtDisableBit
    mj.opt.disableflags |= bits.mjDSBL_CONTACT | bits.mjDSBL_CONSTRAINT
    data = mujoco.MjData(mj)
    data.qpos[:], data.qvel[:] = jaxdyn.io.to_mujoco(model, mj, q, qd)
    for row in tau:
        data.qfrc_applied[:] = row
        mujoco.mj_step(mj, data)
    return jaxdyn.io.from_mujoco(model, mj, data.qpos, data.qvel)


def test_arm_equals_mujoco():
    """Semi-implicit Euler treats damping implicitly, as MuJoCo does; springs and armature are the same."""
    rng = np.random.default_rng(0)
    model = random_chain(3, seed=1, joints=("revolute", "prismatic"), armature=True)
    n = model.nv
    model = model.replace(damping=rng.uniform(0.5, 2, n), stiffness=rng.uniform(1, 5, n), friction=np.zeros(n))
    q, qd, tau = 0.3 * rng.normal(size=n), rng.normal(size=n), rng.normal(size=(200, n))
    q1, qd1 = mujoco_run(model, q, qd, tau, 5e-3)
    run = rollout(model, q, qd, tau, dt=5e-3, save_every=200)
    assert relative(run.q[-1], q1) < 1e-9
    assert relative(run.qd[-1], qd1) < 1e-9


def test_floating_base_equals_mujoco():
    """With `mujoco_euler`; our own update on SE(3) converges to it at first order."""
    rng = np.random.default_rng(1)
    model = random_tree(3, seed=2, joints=("revolute",), floating_base=True)
    model = model.replace(placement=model.placement.at[0].set(jnp.eye(7)[0]))  # where MuJoCo's free joints are
    n = model.nv
    damping = np.where(np.arange(n) < 6, 0.0, 0.3)
    model = model.replace(damping=damping, friction=np.zeros(n), stiffness=np.zeros(n))
    q = np.asarray(jaxdyn.integrate(model, jaxdyn.neutral(model), 0.5 * rng.normal(size=n)))
    qd, tau = rng.normal(size=n), np.r_[np.zeros(6), rng.normal(size=n - 6)]
    q1, qd1 = mujoco_run(model, q, qd, np.tile(tau, (100, 1)), 5e-3)
    found = walk(model, q, qd, tau, 0.5, 100, "mujoco_euler")
    assert relative(found[0], q1) < 1e-9
    assert relative(found[1], qd1) < 1e-9
    gaps = []
    for steps in (50, 100):
        ours, theirs = (walk(model, q, qd, tau, 0.5, steps, name) for name in ("semi_implicit_euler", "mujoco_euler"))
        gaps.append(np.abs(ours[0] - theirs[0]).max())
    assert 1.8 < gaps[0] / gaps[1] < 2.2
