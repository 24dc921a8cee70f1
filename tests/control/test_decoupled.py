"""Decoupled control by total joint rates (002 section 8)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.runge_kutta import runge_kutta
from helpers.states import geared, long, quickly, relative

import jaxdyn
from jaxdyn import control
from jaxdyn.diagonal import to_eps, to_nu
from jaxdyn.model.random_models import random_chain, random_tree

MODELS = {
    "chain": lambda: random_chain(3, seed=1, armature=True),
    "tree on a floating base": lambda: random_tree(
        3, seed=2, joints=("spherical", "revolute"), floating_base=True, branching=1.0, armature=True
    ),
}
POINT = np.array([0.1, -0.2, 0.3])
C_1, C_2 = 1.7, 3.0


def pose_jacobian(model, q, frame):
    """The derivative of the pose vector in the tangent, (12, nv)."""
    moved = lambda dq: control.pose_vector(model, jaxdyn.integrate(model, q, dq), frame, POINT)
    return jax.jacfwd(moved)(jnp.zeros(model.nv))


def pointwise(model, frame, q, qd, hat):
    """Return at one state joint forces by sweeps and by matrices, and what they do to the Lyapunov functions."""
    damping, stiffness = gains(model)
    target = jaxdyn.frame_pose(model, hat, frame, POINT)
    error = lambda q: control.pose_error(model, q, frame, target, POINT)
    rate = jax.vmap(lambda c: control.rate_feedback(model, q, qd, gain=c))(damping)
    pose = jax.vmap(
        lambda c_1, c_2: control.pose_feedback(model, q, qd, frame, target, damping=c_1, stiffness=c_2, point=POINT)
    )(damping, stiffness)
    J, M, g = pose_jacobian(model, q, frame), jaxdyn.mass_matrix(model, q, form="dense"), jaxdyn.gravity_force(model, q)
    damped = g - C_1 * M @ qd

    def slope(tau, c_2):
        """Return the rate at which (nu* nu + e* c_2 e) / 2 changes."""
        qdd = jaxdyn.forward_dynamics(model, q, qd, tau, form="dense")

        def W(t):
            moved = jaxdyn.integrate(model, q, t * qd)
            v, e = qd + t * qdd, error(moved)
            return 0.5 * v @ jaxdyn.mass_matrix(model, moved, form="dense") @ v + 0.5 * e @ (c_2 * e)

        return jax.jvp(W, (0.0,), (1.0,))[1]

    return {
        "sweeps": (rate[0], pose[0]),
        "matrices": (damped, damped + C_2 * J.T @ error(q)),
        "slopes": (jax.vmap(slope)(rate, 0 * stiffness), jax.vmap(slope)(pose, stiffness)),
        "nu": to_nu(model, q, qd),
        "e": error(q),
    }


def gains(model):
    """Return damping (2, nv) and stiffness (2, 12): all equal, and all different."""
    damping = jnp.stack([jnp.full(model.nv, C_1), jnp.arange(1.0, model.nv + 1)])
    return damping, jnp.stack([jnp.full(12, C_2), jnp.arange(12.0)])


@pytest.fixture(scope="module", params=["chain", long("tree on a floating base")])
def states(request):
    """What control does at random states."""
    model = MODELS[request.param]()
    keys = jax.random.split(jax.random.key(0), 12).reshape((2, 6))
    q, hat = jax.vmap(jax.vmap(lambda key: jaxdyn.random_configuration(model, key)))(keys)
    qd = np.random.default_rng(0).normal(size=(6, model.nv))
    found = quickly(jax.vmap(partial(pointwise, model, model.body_names[-1])))(q, qd, hat)
    return found | {"dissipation": found["nu"] ** 2 @ np.asarray(gains(model)[0]).T}


# ---------------------------------------------------------------------- at every state
def test_rate_feedback_takes_energy_at_the_rate_it_says(states):
    """T' = -nu* c nu: for one number c, -2c T."""
    assert relative(states["slopes"][0], -states["dissipation"]) < 1e-12


def test_pose_feedback_has_a_lyapunov_function(states):
    """W' = -nu* c_1 nu, also with a gain for each total joint rate and for each component of the error."""
    assert relative(states["slopes"][1], -states["dissipation"]) < 1e-11


@pytest.mark.parametrize("k", [0, 1], ids=["rate", "pose"])
def test_sweeps_give_what_matrices_give(states, k):
    """-c nu is -c M qd; L^-1 H psi B e, made joint forces by m, is J* e."""
    assert relative(states["sweeps"][k], states["matrices"][k]) < 1e-12


def test_the_pose_vector():
    model = MODELS["chain"]()
    q = np.array([0.3, -0.5, 0.8])
    frame = model.body_names[-1]
    R, p = jaxdyn.frame_pose(model, q, frame, POINT)
    Y = control.pose_vector(model, q, frame, POINT)
    assert relative(Y, np.concatenate([p, R[:, 0], R[:, 1], R[:, 2]])) < 1e-15
    turned = R @ np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1.0]])  # by a right angle
    e = control.pose_error(model, q, frame, (turned, p), POINT)
    assert abs(np.linalg.norm(e) - np.sqrt(8) * np.sin(np.pi / 4)) < 1e-14


# ---------------------------------------------------------------------- in closed loop
def simulate(model, policy, q, qd, h, steps):
    """Return the states of a robot with ordinary coordinates under a policy, (steps + 1, 2, nv)."""
    accelerate = partial(jaxdyn.forward_dynamics, model, form="dense")
    rate = lambda x: jnp.stack([x[1], accelerate(x[0], x[1], policy(x[0], x[1]))])
    return runge_kutta(rate, jnp.stack([q, qd]), h, steps)


@pytest.fixture(scope="module")
def arm():
    return MODELS["chain"]()


def test_kinetic_energy_decays_exactly(arm):
    """T(t) = T(0) exp(-2ct), with gravity compensated."""
    h, steps = 0.002, 300
    policy = lambda q, qd: control.rate_feedback(arm, q, qd, gain=C_1)

    def energies(q, qd):
        x = simulate(arm, policy, q, qd, h, steps)
        return jax.vmap(partial(jaxdyn.kinetic_energy, arm))(x[:, 0], x[:, 1]), x[-1, 0] - q

    T, moved = quickly(energies)(np.array([0.2, 0.5, -0.3]), np.array([1.0, -0.7, 0.9]))
    decay = np.exp(-2 * C_1 * h * np.arange(steps + 1))
    assert np.abs(T / (T[0] * decay) - 1).max() < 1e-10
    assert np.abs(moved).max() > 0.1


def test_pose_feedback_reaches_the_target_and_the_printed_sign_does_not(arm):
    frame, hat, start = arm.body_names[-1], np.array([0.4, -0.6, 0.9]), np.array([0.9, -0.2, 0.5])
    c_1, c_2, h, steps = 3.0, 8.0, 0.02, 1500

    def run(q, sign):
        target = jaxdyn.frame_pose(arm, hat, frame, POINT)

        def policy(q, qd):
            c = {"damping": c_1, "stiffness": sign * c_2}  # what is traced is not looked at: also a negative one
            return control.pose_feedback(arm, q, qd, frame, target, point=POINT, **c)

        x = simulate(arm, policy, q, jnp.zeros(3), h, steps)
        e = jax.vmap(lambda q: control.pose_error(arm, q, frame, target, POINT))(x[:, 0])
        T = jax.vmap(partial(jaxdyn.kinetic_energy, arm))(x[:, 0], x[:, 1])
        return T + c_2 / 2 * jnp.sum(e**2, 1), jnp.linalg.norm(e, axis=1), x[-1]

    run = quickly(run)
    W, size, (q, qd) = run(start, 1.0)
    assert np.all(np.diff(W) < 1e-12 * W[0])
    assert size[-1] < 1e-3 * size[0]
    assert np.abs(q - hat).max() < 1e-3
    assert np.abs(qd).max() < 1e-3
    _, away, _ = run(start, -1.0)  # 002 (8.6) as printed
    assert away[-1] > 2 * away[0]


# ---------------------------------------------------------------------- bounds, types, arguments
def test_forces_stay_within_bounds(arm):
    q, qd = np.array([0.9, -0.2, 0.5]), np.array([1.0, -0.7, 0.9])
    free = control.rate_feedback(arm, q, qd, gain=C_1)
    bound = 0.5 * np.abs(free)
    cut = control.rate_feedback(arm, q, qd, gain=C_1, limit=bound)
    assert np.array_equal(cut, np.sign(free) * bound)
    least = float(np.abs(free).min())
    assert np.array_equal(control.rate_feedback(arm, q, qd, gain=C_1, limit=least), np.clip(free, -least, least))
    assert np.array_equal(control.rate_feedback(arm, q, qd, gain=C_1, limit=2 * bound.max()), free)
    weak = arm.replace(effort_limit=jnp.array([bound[0], np.inf, bound[2]]))
    wanted = np.array([cut[0], free[1], cut[2]])
    assert np.array_equal(control.rate_feedback(weak, q, qd, gain=C_1, limit="effort"), wanted)
    frame = arm.body_names[-1]
    options = {"damping": 1.0, "stiffness": 1e3, "limit": "effort"}
    tau = control.pose_feedback(weak, q, qd, frame, jaxdyn.frame_pose(arm, 0 * q, frame), **options)
    assert np.all(np.abs(tau) <= weak.effort_limit)


def test_gradients_are_finite_at_the_target_and_at_rest(arm):
    frame, q = arm.body_names[-1], jnp.zeros(3)
    target = jaxdyn.frame_pose(arm, q, frame)

    def force(gains, q, qd):
        tau = control.pose_feedback(arm, q, qd, frame, target, damping=gains[0], stiffness=gains[1], limit=1e3)
        return tau.sum()

    for g in quickly(jax.grad(force, argnums=(0, 1, 2)))(jnp.array([C_1, C_2]), q, jnp.zeros(3)):
        assert np.all(np.isfinite(g))


def test_single_precision(arm, float32):
    model = arm.astype(float32)
    q, qd = jnp.array([0.9, -0.2, 0.5], float32), jnp.ones(3, float32)
    tau = control.rate_feedback(model, q, qd, gain=2.0, compensate_gravity=False)
    assert tau.dtype == float32
    assert relative(to_eps(model, q, tau), -2 * to_nu(model, q, qd)) < 1e-5


def test_arguments_are_named(arm):
    q, frame = np.zeros(3), arm.body_names[-1]
    one, origin = np.eye(3), np.zeros(3)
    rate = partial(control.rate_feedback, arm, q, q)
    pose = lambda frame=frame, target=(one, origin), damping=1.0, stiffness=1.0, **options: control.pose_feedback(
        arm, q, q, frame, target, damping=damping, stiffness=stiffness, **options
    )
    for call, message in (
        (lambda: rate(gain=np.ones(4)), r"gain must be a number, or have shape \(3,\).*got \(4,\)"),
        (lambda: rate(gain="high"), "gain must be a number.*got 'high'"),
        (lambda: rate(gain=-1.0), r"gain must not be negative; got -1\.0"),
        (lambda: rate(gain=1.0, limit="torque"), "limit must be .*got 'torque'"),
        (lambda: rate(gain=1.0, limit=[1.0, 2.0]), r"limit must be a number, or have shape \(3,\)"),
        (lambda: pose(frame="hand"), "hand"),
        (lambda: pose(damping=np.ones(2)), r"damping must be a number, or have shape \(3,\)"),
        (lambda: pose(stiffness=np.ones(6)), r"stiffness must be a number, or have shape \(12,\)"),
        (lambda: pose(target=one), r"target must be a pair \(rotation \(3, 3\), position \(3,\)\)"),
        (lambda: pose(target=(np.ones(4), origin)), r"target: the rotation must have shape \(3, 3\); got \(4,\)"),
        (lambda: pose(target=(2 * one, origin)), "target: the rotation must be orthogonal"),
        (lambda: pose(target=(-one, origin)), "target: the rotation must be orthogonal with determinant 1"),
        (lambda: pose(target=(one, np.zeros(2))), r"target: the position must have shape \(3,\)"),
        (lambda: control.rate_feedback(arm, q, np.zeros(2), gain=1.0), r"qd must have shape \(3,\)"),
        (lambda: control.rate_feedback(geared(), np.zeros(2), np.zeros(2), gain=1.0), "mimic"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match=r"model must be a jaxdyn\.Model"):
        control.rate_feedback("arm7", q, q, gain=1.0)
