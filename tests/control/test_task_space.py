"""Operational space and hybrid control: what frames do under them, and a spring wall."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import long, quickly, relative

import jaxdyn
from jaxdyn import control
from jaxdyn.model.random_models import random_chain, random_tree

POINT = np.array([0.1, -0.2, 0.3])
K, D, G = 30.0, 11.0, 0.7
MODELS = {
    "arm": lambda: random_chain(7, seed=1, armature=True),
    "tree on a floating base": lambda: random_tree(
        4, seed=2, joints=("spherical", "revolute"), floating_base=True, branching=1.0, armature=True
    ),
}


def everything(model, q, qd, target, velocity, a_d, free, pressed, wanted, axes):
    frame = model.body_names[-1]
    tau = control.operational_space_control(
        model, q, qd, frame, target, stiffness=K, damping=D, velocity=velocity, acceleration=a_d, point=POINT,
        null_acceleration=free,
    )  # fmt: skip
    hybrid = lambda measured: control.hybrid_control(
        model, q, qd, frame, target, wanted, selection=(0, 1, 0, 0, 0, 1), axes=axes, measured=measured, force_gain=G,
        stiffness=K, damping=D, velocity=velocity, acceleration=a_d, point=POINT, null_acceleration=free,
    )  # fmt: skip
    return {
        "M": jaxdyn.mass_matrix(model, q),
        "bias": jaxdyn.bias_force(model, q, qd),
        "J": jaxdyn.jacobian(model, q, frame, POINT),
        "J_rate": jaxdyn.jacobian_bias(model, q, qd, frame, POINT),
        "error": control.frame_error(model, q, frame, target, POINT),
        "S_f": control.selection_matrices((0, 1, 0, 0, 0, 1), axes)[1],
        "osc": tau,
        "hybrid": hybrid(pressed),
        "blind": hybrid(None),
        "pressed": jaxdyn.inverse_dynamics(
            model, q, qd, free, f_ext=control.frame_force(model, q, frame, -pressed, POINT)
        ) - jaxdyn.inverse_dynamics(model, q, qd, free),
    }  # fmt: skip


@pytest.fixture(scope="module", params=["arm", long("tree on a floating base")])
def state(request):
    model = MODELS[request.param]()
    q, goal = (jaxdyn.random_configuration(model, jax.random.key(k)) for k in (0, 1))
    rng = np.random.default_rng(0)
    qd, free = rng.normal(size=(2, model.nv))
    velocity, a_d, pressed, wanted = rng.normal(size=(4, 6))
    target = jaxdyn.frame_pose(model, goal, model.body_names[-1], POINT)
    axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    axes = axes * np.linalg.det(axes)
    found = quickly(partial(everything, model))(q, qd, target, velocity, a_d, free, pressed, wanted, axes)
    given = {"qd": qd, "free": free, "velocity": velocity, "a_d": a_d, "f": pressed, "wanted": wanted, "axes": axes}
    return found | given


def moved(s, tau, force=0.0):
    """Return the acceleration of joints and frame under joint forces and a force of the frame on its surroundings."""
    qdd = np.linalg.solve(s["M"], tau - s["bias"] - s["J"].T @ (force * np.ones(6)))
    return qdd, s["J"] @ qdd + s["J_rate"]


def commanded(s):
    return s["a_d"] + D * (s["velocity"] - s["J"] @ s["qd"]) + K * s["error"]


def test_the_frame_gets_the_acceleration_commanded(state):
    """x'' = x_d'' + D (x_d' - x') + K e; what is left of the joints' freedom takes qdd_0, seen with the metric M."""
    qdd, a = moved(state, state["osc"])
    assert relative(a, commanded(state)) < 1e-9
    M, J = state["M"], state["J"]
    Lambda = np.linalg.inv(J @ np.linalg.solve(M, J.T))
    null = np.eye(len(M)) - np.linalg.solve(M, J.T @ Lambda @ J)
    assert relative(null @ qdd, null @ state["free"]) < 1e-9


def test_operational_forces(state):
    """tau = J* (Lambda a + mu + p) + (1 - J* Jbar*) ID(q, qd, qdd_0), by matrices."""
    M, J = state["M"], state["J"]
    Lambda = np.linalg.inv(J @ np.linalg.solve(M, J.T))
    mu_p = Lambda @ (J @ np.linalg.solve(M, state["bias"]) - state["J_rate"])
    null = M @ state["free"] + state["bias"]
    null = null - J.T @ Lambda @ J @ np.linalg.solve(M, null)
    assert relative(state["osc"], J.T @ (Lambda @ commanded(state) + mu_p) + null) < 1e-9


def test_orientation_has_a_lyapunov_function(state):
    """e . e' = e . (w_d - w) for the rotation vector e, so that V = |d|^2 / 2 + K |e|^2 / 2 falls by D |d|^2."""
    lag = (state["velocity"] - state["J"] @ state["qd"])[:3]
    lag_rate = state["a_d"][:3] - moved(state, state["osc"])[1][:3]
    e = state["error"][:3]
    assert relative(lag @ lag_rate + K * e @ lag, -D * lag @ lag) < 1e-8


def test_hybrid_control_parts_motion_and_force(state):
    """Motion as commanded, whatever the force; along the selected axes x'' = G (f_d - f) - D x'."""
    S_f, R = state["S_f"], np.kron(np.eye(2), state["axes"])
    assert relative(S_f, R @ np.diag([0, 1, 0, 0, 0, 1.0]) @ R.T) < 1e-13
    a = (np.eye(6) - S_f) @ commanded(state)
    a += S_f @ (G * (state["wanted"] - state["f"]) - D * state["J"] @ state["qd"])
    assert relative(moved(state, state["hybrid"], state["f"])[1], a) < 1e-9
    blind = (np.eye(6) - S_f) @ commanded(state) - S_f @ (D * state["J"] @ state["qd"])
    assert relative(moved(state, state["blind"], S_f @ state["wanted"])[1], blind) < 1e-9


def test_forces_on_frames(state):
    """`frame_force` is J* f."""
    assert relative(state["pressed"], state["J"].T @ state["f"]) < 1e-11


# ---------------------------------------------------------------------- against a wall
def test_force_on_a_spring_wall_in_closed_form():
    """A planar arm presses on a wall of stiffness k: f'' + D f' + k G (f - f_d) = 0, as it slides along."""
    builder = jaxdyn.ModelBuilder("arm")
    for k in range(3):
        builder.add_body(
            f"link_{k}", None if k == 0 else f"link_{k - 1}", xyz=(0, 0, 0 if k == 0 else 0.5), axis=(0, 1, 0),
            mass=1.0, com=(0, 0, 0.25), inertia=(0.02, 0.02, 0.01),
        )  # fmt: skip
    model = builder.add_frame("tip", "link_2", xyz=(0, 0, 0.5)).build()
    k, f_d, dt = 500.0, 10.0, 2e-4
    q = jnp.array([0.3, 1.0, 0.6])
    start = jaxdyn.frame_pose(model, q, "tip")
    wall = start.position[0]  # it begins where they touch
    to_go = jnp.array([0.0, 0, 0, 0, 0, 0.1])
    push = lambda q: k * (jaxdyn.frame_pose(model, q, "tip").position[0] - wall)
    on_wall = lambda q: jnp.zeros(6).at[3].set(push(q))
    f_ext = lambda t, q, qd, _: control.frame_force(model, q, "tip", -on_wall(q))

    def policy(t, q, qd, _):
        target = start.rotation, start.position + to_go[3:] * t
        return control.hybrid_control(
            model, q, qd, "tip", target, jnp.zeros(6).at[3].set(f_d), selection=(1, 0, 1, 1, 1, 0), velocity=to_go,
            measured=on_wall(q), force_gain=0.2, stiffness=100.0, damping=20.0, regularization=1e-9,
        )  # fmt: skip

    run = jaxdyn.rollout(model, q, jnp.zeros(3), policy, dt=dt, steps=2500, f_ext=f_ext, save_every=250)
    force = np.asarray(jax.vmap(push)(run.q))
    t, w = np.asarray(run.t), 10.0  # w^2 = k G = 100, D = 2 w
    assert relative(force, f_d * (1 - (1 + w * t) * np.exp(-w * t))) < 5e-3  # of first order in dt
    tip = np.asarray(jax.vmap(lambda q: jaxdyn.frame_pose(model, q, "tip").position)(run.q))
    z = 0.1 * (t - t * np.exp(-w * t))  # it starts at rest: e(t) = 0.1 t exp(-w t)
    assert np.abs(tip[:, 2] - start.position[2] - z).max() < 2e-4


# ---------------------------------------------------------------------- at the edge
@pytest.fixture(scope="module")
def arm():
    return jaxdyn.load("arm7")


@pytest.mark.long
def test_singular_poses_stay_finite(arm):
    """A straight arm cannot move along itself: forces and their gradients are finite all the same."""
    target = jaxdyn.frame_pose(arm, jnp.full(7, 0.3), "tool")
    tau = lambda q: control.operational_space_control(
        arm, q, jnp.zeros(7), "tool", target, stiffness=1.0, damping=1.0, regularization=1e-3
    )
    value, slope = quickly(lambda q: (tau(q), jax.jvp(tau, (q,), (jnp.ones(7),))[1]))(jnp.zeros(7))
    assert np.isfinite(value).all()
    assert np.abs(value).max() < 1e5
    assert np.isfinite(slope).all()


def test_what_is_refused(arm):
    x, target = jnp.zeros(7), (jnp.eye(3), jnp.zeros(3))
    options = {"stiffness": 1.0, "damping": 1.0}
    with pytest.raises(ValueError, match="no body or frame named 'tol'"):
        control.operational_space_control(arm, x, x, "tol", target, **options)
    with pytest.raises(ValueError, match=r"target must be a pair"):
        control.operational_space_control(arm, x, x, "tool", jnp.zeros(3), **options)
    with pytest.raises(ValueError, match=r"velocity must have shape \(6,\)"):
        control.operational_space_control(arm, x, x, "tool", target, velocity=jnp.zeros(3), **options)
    with pytest.raises(ValueError, match=r"selection must be of zeros and ones"):
        control.selection_matrices((0, 0.5, 0, 0, 0, 0))
    with pytest.raises(ValueError, match=r"selection must have shape \(6,\)"):
        control.selection_matrices((0, 1, 0))
    with pytest.raises(ValueError, match="orthogonal projector"):
        control.selection_matrices(np.full((6, 6), 0.5))
    with pytest.raises(ValueError, match="axes must be orthogonal"):
        control.selection_matrices((0, 0, 0, 0, 0, 1), 2 * np.eye(3))
