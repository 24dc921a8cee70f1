"""Rollouts: what they save, policies, batches of states and models, failures, bad input."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import relative

import jaxdyn
from jaxdyn.model.random_models import random_chain
from jaxdyn.simulate import JointLimits, rollout, step
from jaxdyn.simulate.passive import passive_force
from jaxdyn.simulate.progress import Bar
from jaxdyn.simulate.system import limit_force

T, DT = 12, 0.02


@pytest.fixture(scope="module")
def tau():
    return jnp.asarray(np.random.default_rng(3).normal(size=(T, 2)))


@pytest.fixture(scope="module")
def start():
    return jnp.array([0.4, -0.7]), jnp.array([0.5, 1.0])


@pytest.fixture(scope="module")
def whole(chain, start, tau):
    return rollout(chain, *start, tau, dt=DT, outputs=["qdd", "tau", "energy"])


def test_rows(chain, start, tau, whole):
    """Row 0 is the initial state, and each row follows from the one before it by a step."""
    assert whole.q.shape == whole.qd.shape == (T + 1, 2)
    np.testing.assert_allclose(whole.t, DT * np.arange(T + 1), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(whole.q[0], start[0])
    found = [step(chain, q, qd, u, dt=DT) for q, qd, u in zip(whole.q[:-1], whole.qd[:-1], tau, strict=True)]
    assert relative(jnp.stack([x[0] for x in found]), whole.q[1:]) < 1e-14
    assert relative(jnp.stack([x[1] for x in found]), whole.qd[1:]) < 1e-14


def test_semi_implicit_euler_by_hand(chain, start, tau, whole):
    """(M + h D) qdd = tau - bias + passive forces, with the mass matrix and in NumPy."""
    q, qd = map(np.asarray, start)
    for u in np.asarray(tau):
        M = np.asarray(jaxdyn.mass_matrix(chain, q)) + DT * np.diag(np.asarray(chain.damping))
        force = u - np.asarray(jaxdyn.bias_force(chain, q, qd)) + np.asarray(jaxdyn.passive_force(chain, q, qd))
        qd = qd + DT * np.linalg.solve(M, force)
        q = q + DT * qd
    assert relative(whole.q[-1], q) < 1e-12
    assert relative(whole.qd[-1], qd) < 1e-12


def test_extras(chain, tau, whole):
    assert relative(whole.qd[:-1] + DT * whole.extras["qdd"], whole.qd[1:]) < 1e-14
    np.testing.assert_array_equal(whole.extras["tau"], tau)
    energy = jaxdyn.kinetic_energy(chain, whole.q[-1], whole.qd[-1]) + jaxdyn.potential_energy(chain, whole.q[-1])
    assert relative(whole.extras["energy"][-1], energy) < 1e-13


def test_policy_hold_saved_rows_and_observables(chain, start, tau, whole):
    """A policy that reads a table is the table; it is asked every `hold` steps; only every k-th state is saved."""
    table = lambda t, q, qd, params: params[jnp.round(t / DT).astype(int)]
    run = rollout(
        chain,
        *start,
        table,
        dt=DT,
        steps=T,
        params=tau,
        hold=2,
        save_every=3,
        outputs=["tau", "qdd"],
        observables={"speed": lambda t, q, qd, params: (qd**2).sum() + 0 * params[0, 0]},
        on_nonfinite="stop",
    )
    held = rollout(chain, *start, tau[::2], dt=DT, hold=2, outputs=["tau", "qdd"])
    assert run.q.shape == (T // 3 + 1, 2)
    for name in ("t", "q", "qd"):
        assert relative(getattr(run, name), getattr(held, name)[::3]) < 1e-13
    np.testing.assert_array_equal(held.extras["tau"], jnp.repeat(tau[::2], 2, axis=0))
    for name in ("tau", "qdd"):
        assert relative(run.extras[name], held.extras[name][::3]) < 1e-13
    assert relative(run.extras["speed"], (run.qd**2).sum(1)) < 1e-15
    assert run.extras["failed_at"] == -1


def test_external_forces(chain, start, tau):
    """A constant function of the state is the constant, and the constant is that of forward dynamics."""
    f = jnp.asarray(np.random.default_rng(0).normal(size=(2, 6)))
    constant = step(chain, *start, tau[0], dt=DT, f_ext=f)
    by_function = step(chain, *start, tau[0], dt=DT, f_ext=lambda t, q, qd, params: params * f, params=1.0)
    assert relative(by_function[1], constant[1]) < 1e-14
    force = tau[0] + jaxdyn.passive_force(chain, *start)
    damped = chain.replace(armature=chain.armature + DT * chain.damping)
    qdd = jaxdyn.forward_dynamics(damped, *start, force, f_ext=f)
    assert relative(constant[1], start[1] + DT * qdd) < 1e-13


def test_passive_forces_are_the_same():
    """Also their derivatives by the coefficients, with coefficients that are zero, too."""
    rng = np.random.default_rng(0)
    model = random_chain(3, seed=1, joints=("continuous", "spherical", "revolute"))
    n = model.nv
    q = jaxdyn.integrate(model, jaxdyn.neutral(model), jnp.asarray(rng.normal(size=n)))
    qd, x = (jnp.asarray(v) for v in rng.normal(size=(2, n)))
    rest = jaxdyn.integrate(model, q, jnp.asarray(0.4 * rng.normal(size=n)))

    @jax.jit
    def both(k, f, d):
        def of(force):
            by = lambda k, f, d, q, qd: force(model.replace(stiffness=k, friction=f, damping=d, rest=rest), q, qd)
            value, pull = jax.vjp(by, k, f, d, q, qd)
            return value, pull(x)

        return of(passive_force), of(jaxdyn.passive_force)

    for scale in (0.0, 1.0):
        ours, theirs = both(*(jnp.asarray(scale * rng.uniform(size=(3, n)))))
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
        assert not scale or np.abs(theirs[0]).min() > 0


# ---------------------------------------------------------------------- batches
def test_batches_of_states_inputs_and_models(chain, start, tau, whole):
    """Every element of a batch is what it is alone; batches are nested, models are batched too."""
    scale = jnp.array([1.0, 1.2, 0.8])
    models = jax.vmap(lambda s: chain.replace(inertia=s * chain.inertia, friction=s * chain.friction))(scale)
    run = lambda model, q, tau: rollout(model, q, start[1], tau, dt=DT).q
    q, taus = jnp.stack([start[0], start[0] + 0.1]), jnp.stack([tau, 2 * tau, -tau])
    many = jax.vmap(jax.vmap(run, (None, 0, None)), (0, None, 0))(models, q, taus)
    assert many.shape == (3, 2, T + 1, 2)
    assert relative(many[0, 0], whole.q) < 1e-13
    alone = run(jax.tree.map(lambda x: x[1], models), q[1], taus[1])
    assert relative(many[1, 1], alone) < 1e-13


# ---------------------------------------------------------------------- failures
def test_failure_stays_where_it_is(hinges, start, tau):
    """One of three inputs is not finite at step 5: its robot stops there, the others and all gradients do not notice."""
    bad = jnp.stack([tau, tau.at[5, 1].set(jnp.inf), -tau])

    def run(model, tau):
        return rollout(model, *start, tau, dt=DT, on_nonfinite="stop")

    @jax.jit
    def losses(inertia, tau):
        def loss(inertia, tau):
            runs = jax.vmap(lambda tau: run(hinges.replace(inertia=inertia), tau))(tau)
            return (runs.q**2).sum(), runs

        return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(inertia, tau)

    (_, runs), (by_inertia, by_tau) = losses(hinges.inertia, bad)
    np.testing.assert_array_equal(runs.extras["failed_at"], [-1, 5, -1])
    np.testing.assert_array_equal(runs.q[1, 6:], np.broadcast_to(runs.q[1, 5], (T - 5, 2)))
    (_, good), (_, by_good) = losses(hinges.inertia, jnp.stack([tau, 0 * tau, -tau]))
    for k in (0, 2):
        np.testing.assert_array_equal(runs.q[k], good.q[k])
        assert relative(by_tau[k], by_good[k]) < 1e-13
    assert np.isfinite(by_inertia).all()
    assert np.isfinite(by_tau).all()
    assert not by_tau[1, 5:].any()
    assert by_tau[1, :5].any()


def test_a_failure_beyond_all_numbers_leaves_gradients_finite(hinges):
    """Before it fails, a robot may turn so fast that derivatives overflow: those of its neighbours stay what they are."""
    policy = lambda t, q, qd, gain: -gain * qd * abs(qd)
    gains, model = jnp.array([0.1, 50.0, 0.2]), hinges.replace(gravity=jnp.array([0.0, 0.0, -9.81]))
    start = jnp.array([0.3, 0.4]), jnp.array([3.0, -2.0])

    def run(inertia, gain):
        options = {"dt": 0.05, "steps": 60, "params": gain, "on_nonfinite": "stop"}
        return rollout(model.replace(inertia=inertia), *start, policy, **options)

    @jax.jit
    def of_all(inertia, gains):
        runs = jax.vmap(run, (None, 0))(inertia, gains)
        return jnp.sin(runs.q).sum(), runs.extras["failed_at"]

    (_, failed_at), (by_inertia, by_gain) = jax.value_and_grad(of_all, (0, 1), has_aux=True)(model.inertia, gains)
    assert failed_at[1] > 0
    assert np.isfinite(by_inertia).all()
    assert np.isfinite(by_gain).all()
    alone = jax.grad(lambda gain: jnp.sin(run(model.inertia, gain).q).sum())
    assert relative(by_gain[jnp.array([0, 2])], np.array([alone(0.1), alone(0.2)])) < 1e-10


def test_what_is_asked_of_a_state_that_is_not_finite(chain, start, tau):
    """Is not a number, and has no derivatives: those of its neighbours stay finite."""
    observe = {"speed": lambda t, q, qd, params: (qd * qd).sum()}

    def of_all(inertia, q):
        options = {"dt": DT, "on_nonfinite": "stop", "outputs": ["energy"], "observables": observe}
        run = lambda q: rollout(chain.replace(inertia=inertia), q, start[1], tau, **options)
        found = jax.vmap(run)(q).extras
        total = (found["energy"] + found["speed"]).sum(1)
        return jnp.where(found["failed_at"] < 0, total, 0).sum(), found

    q = jnp.stack([start[0], start[0].at[0].set(jnp.nan)])
    (_, found), (by_inertia, by_q) = jax.jit(jax.value_and_grad(of_all, (0, 1), has_aux=True))(chain.inertia, q)
    for name in ("energy", "speed"):
        assert np.isfinite(found[name][0]).all()
        assert np.isnan(found[name][1]).all()
    assert np.isfinite(by_inertia).all()
    assert by_inertia.any()
    assert np.isfinite(by_q[0]).all()


def test_failure_is_reported(chain, start, tau):
    with pytest.warns(UserWarning, match="not finite after step 3"):
        found = rollout(chain, *start, tau.at[3].set(jnp.nan), dt=DT, on_nonfinite="report")
    assert np.isfinite(found.q).all()


# ---------------------------------------------------------------------- limits
def test_joint_limits(chain):
    """No force inside; outside, without damping, minus the derivative of an energy; infinite limits do nothing."""
    model = chain.replace(lower=[-0.5, -np.inf], upper=[0.5, 1.0])
    limits = JointLimits(stiffness=100.0, damping=0.0, width=0.1)
    force = jax.jit(lambda q, qd, d: limit_force(model, limits._replace(damping=d), q, qd))
    rest = jnp.zeros(2)
    np.testing.assert_array_equal(force(jnp.array([0.49, -30.0]), rest, 1.0), 0)
    for past in (0.05, 0.3):
        s = past**2 / 0.2 if past < 0.1 else past - 0.05
        np.testing.assert_allclose(
            force(jnp.array([-0.5 - past, 1 + past]), rest, 0.0), [100 * s, -100 * s], atol=1e-12
        )
    damped = force(jnp.array([0.55, 0.0]), jnp.array([2.0, 2.0]), 3.0) - force(jnp.array([0.55, 0.0]), rest, 3.0)
    np.testing.assert_allclose(damped, [-3.0, 0.0], atol=1e-12)
    slope = jax.jacfwd(force)(jnp.array([0.5, 0.0]), rest, 0.0)
    np.testing.assert_array_equal(slope, 0)
    run = rollout(model, jnp.zeros(2), rest, jnp.full((200, 2), 2.0), dt=5e-3, limits=JointLimits(stiffness=500.0))
    assert run.q.max(0)[0] < 0.6
    assert run.q.max(0)[1] < 1.1


# ---------------------------------------------------------------------- devices
SHARDED = """
import jax, jax.numpy as jnp, numpy as np, jaxdyn
from jaxdyn.simulate import rollout, sharded_rollout
jax.config.update("jax_enable_x64", True)
assert jax.device_count() == 2
model = jaxdyn.load("double_pendulum")
rng = np.random.default_rng(0)
q, qd, tau = (jnp.asarray(rng.normal(size=s)) for s in ((4, 2), (4, 2), (4, 6, 2)))
def loss(run, inertia, tau):
    return (run(model.replace(inertia=inertia), q, qd, tau).q ** 2).sum()
split = lambda model, q, qd, tau: sharded_rollout(model, q, qd, tau, dt=0.02)
whole = jax.vmap(lambda *a: rollout(*a, dt=0.02), (None, 0, 0, 0))
found = split(model, q, qd, tau)
assert len(found.q.sharding.device_set) == 2
(a, da), (b, db) = (jax.value_and_grad(loss, argnums=(1, 2))(f, model.inertia, tau) for f in (split, whole))
for x, y in ((a, b), *zip(da, db)):
    np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
policy = lambda t, q, qd, gain: -gain * qd
sharded_rollout(model, q, qd, policy, dt=0.02, steps=3, params=1.0, on_nonfinite="stop")
"""


def test_batch_on_two_devices():
    """The batch is split over the devices, and loss and gradients are those of one device."""
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", SHARDED], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------------- progress
def test_progress(capfd):
    """One bar for a batch, at most 100 times a run, and the same results; none where a derivative is taken."""
    model = jaxdyn.load("pendulum")
    many = lambda progress: jax.vmap(lambda q: rollout(model, q, q, jnp.zeros((1600, 1)), dt=0.01, progress=progress).q)
    starts = jnp.linspace(0, 1, 8)[:, None]
    found = many(True)(starts)
    jax.effects_barrier()
    lines = capfd.readouterr().err.split("\r")
    assert 30 <= sum("%" in line for line in lines) / 2 <= 100
    assert "[####################....................]  50 %" in "".join(lines)
    assert lines[-1] == ""
    np.testing.assert_array_equal(found, many(False)(starts))
    jax.grad(lambda q: many(True)(q).sum())(starts)
    assert capfd.readouterr().err == ""


def test_progress_of_several_devices(capsys):
    """They share one bar, which goes forward only, side by side or one after the other; the next run begins anew."""
    bar = Bar(1600, 2)
    for now in [*range(0, 800, bar.every)] * 2 + [*range(800, 1600, bar.every)] * 2:
        bar.update(now)
    shown = [int(line.split("]")[1].split("%")[0]) for line in capsys.readouterr().err.split("\r") if "%" in line][::2]
    assert shown == sorted(set(shown))
    assert shown[0] == 0
    assert shown[-1] > 90
    bar.update(0)
    assert "]   0 %" in capsys.readouterr().err


# ---------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tau": np.zeros(2)}, r"tau must have shape \(T, 2\).*got \(2,\)"),
        ({"tau": np.zeros((3, 4, 2))}, "use jax.vmap"),
        ({"tau": [[1.0, 2.0], [1.0]]}, r"tau must have shape \(T, 2\).*rows of different lengths"),
        ({"tau": np.zeros((3, 3))}, r"tau must have shape \(T, 2\)"),
        ({"q": np.zeros(3)}, r"q must have shape \(2,\)"),
        ({"qd": np.zeros((1, 2))}, r"qd must have shape \(2,\)"),
        ({"steps": 7}, "steps is 7, but tau has 4 rows"),
        ({"tau": lambda t, q, qd, p: qd}, "steps must be given with a policy"),
        ({"save_every": 3}, "save_every must divide the number of steps, 4; got 3"),
        ({"hold": 0}, "hold must be a positive integer; got 0"),
        ({"remat": "all"}, "remat must be"),
        ({"on_nonfinite": "ignore"}, "on_nonfinite must be"),
        ({"integrator": "rk5"}, "integrator 'rk5' is not known.*'rk4'"),
        ({"outputs": ["energie"]}, "outputs has 'energie'.*'energy'"),
        ({"observables": {"tau": lambda *x: x}}, "the name of one of the outputs"),
        ({"observables": {"a": 1}}, "must be a function"),
        ({"limits": 3.0}, "limits must be JointLimits"),
        ({"f_ext": np.zeros((3, 6))}, r"f_ext must have shape \(2, 6\)"),
        ({"tau": lambda t, q, qd, p: qd[:1], "steps": 2}, "what the policy returns must have shape"),
    ],
)
def test_bad_input(change, message, chain):
    given = {"q": np.zeros(2), "qd": np.zeros(2), "tau": np.zeros((4, 2)), "dt": 0.01} | change
    with pytest.raises((ValueError, TypeError), match=message):
        rollout(chain, **given)


def test_quaternions_are_normalised_with_a_warning(floating, state):
    q, qd, tau = state
    at = floating.q_slice(floating.joint_names[0]).start
    long = q.at[at : at + 4].multiply(1.5)
    with pytest.warns(UserWarning, match=r"quaternion of length 1.5 at joint"):
        found = rollout(floating, long, qd, tau[None], dt=DT)
    np.testing.assert_allclose(found.q[0], q, rtol=0, atol=1e-15)
    with pytest.raises(ValueError, match="length zero"):
        rollout(floating, q.at[at : at + 4].set(0.0), qd, tau[None], dt=DT)
