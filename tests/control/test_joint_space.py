"""Control of joints: laws that hold at every state, for all joint types, and motions in closed form."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import geared, long, quickly, relative

import jaxdyn
from jaxdyn import control
from jaxdyn.model.random_models import random_chain, random_tree

MODELS = {
    "ball and hinge": lambda: random_chain(2, seed=5, joints=("spherical", "revolute"), armature=True),
    "floating base": lambda: random_chain(3, seed=5, joints=("free", "revolute", "planar"), armature=True),
    "mimic": geared,
    "all joint types": lambda: random_tree(
        8,
        seed=3,
        joints=("helical", "universal", "cylindrical", "translation", "spherical", "prismatic", "continuous"),
        armature=True,
    ),
}
GUESS = 1.3


def gains(model):
    """One number per degree of freedom, all different."""
    return np.linspace(1.0, 3.0, model.nv), np.linspace(0.5, 1.5, model.nv)


def everything(model, q, qd, q_des, v, a):
    """Return what controllers say at one state, and what else the laws speak of."""
    K, D = gains(model)
    motion, pi = (q, qd, q_des, v, a), GUESS * jaxdyn.inertial_parameters(model)
    adaptive = partial(control.adaptive_control, model, *motion, estimate=pi, convergence=K, gain=D, adaptation=2.0)
    return {
        "goal": control.tracking(model, *motion),
        "bias": jaxdyn.bias_force(model, q, qd),
        "computed_torque": control.computed_torque(model, *motion, stiffness=K, damping=D),
        "pd_plus": control.pd_plus(model, *motion, stiffness=K, damping=D),
        "pd": control.pd(model, q, qd, q_des, stiffness=K, damping=D),
        "gravity_compensation": control.gravity_compensation(model, q, qd, damping=D),
        "passivity_based": control.passivity_based(model, *motion, convergence=K, gain=D),
        "euclidean": adaptive(metric="euclidean"),
        "natural": adaptive(),
        "regressor": control.slotine_li_regressor(model, q, qd, v, a),
        "forces": jaxdyn.inverse_dynamics(model, q, 0 * v, a) + jaxdyn.coriolis_product(model, q, qd, v),
    }


@pytest.fixture(
    scope="module", params=["ball and hinge", long("floating base"), long("mimic"), long("all joint types")]
)
def state(request):
    """A random state with a goal nearby, and a push from outside."""
    model = MODELS[request.param]()
    q = jaxdyn.random_configuration(model, jax.random.key(0))
    qd, near, v, a, push = np.random.default_rng(0).normal(size=(5, model.nv))
    q_des = jaxdyn.integrate(model, q, 0.4 * near)
    found = quickly(partial(everything, model))(q, qd, q_des, v, a)
    mass = quickly(partial(jaxdyn.mass_matrix, model))
    M, h = mass(q), 1e-5
    M_rate = (mass(jaxdyn.integrate(model, q, h * qd)) - mass(jaxdyn.integrate(model, q, -h * qd))) / (2 * h)
    motion = {"q": q, "qd": qd, "q_des": q_des, "v": v, "a": a, "push": push}
    return found | motion | {"model": model, "M": M, "M_rate": M_rate}


def acceleration(s, tau, push=0.0):
    return np.linalg.solve(s["M"], tau + push - s["bias"])


def matrix(slope, n):
    return np.eye(n) if slope is None else slope


def kinetic_rate(s, x, x_rate):
    """The rate of x* M x / 2."""
    return x @ s["M"] @ x_rate + x @ s["M_rate"] @ x / 2


def test_errors_move_as_they_say(state):
    """e = q_des - q, its rate E (v - qd), and the rate of that, by differences along two motions."""
    model, goal = state["model"], state["goal"]
    q, qd, q_des, v, a = (state[k] for k in ("q", "qd", "q_des", "v", "a"))
    E, lag, h = matrix(goal.slope, model.nv), goal.velocity - qd, 1e-3
    gap = quickly(
        jax.vmap(
            lambda t: jaxdyn.difference(
                model, jaxdyn.integrate(model, q, t * qd), jaxdyn.integrate(model, q_des, t * v + t * t / 2 * a)
            )
        )
    )
    at = gap(h * np.arange(-3.0, 4.0))
    first = np.array([-1, 9, -45, 0, 45, -9, 1]) / 60
    second = np.array([2, -27, 270, -490, 270, -27, 2]) / 180
    assert relative(at[3], goal.error) < 1e-12
    assert relative(first @ at / h, E @ lag) < 1e-8
    assert relative(goal.rate(qd), E @ lag) < 1e-12
    assert relative(second @ at / h**2, E @ goal.acceleration + goal.turning(lag)) < 1e-5


def test_computed_torque_makes_errors_linear(state):
    """e'' + D e' + K e = 0, for every joint type."""
    goal, (K, D) = state["goal"], gains(state["model"])
    qdd, E = acceleration(state, state["computed_torque"]), matrix(goal.slope, state["model"].nv)
    second = E @ (goal.acceleration - qdd) + goal.turning(goal.velocity - state["qd"])
    assert relative(second, -D * goal.rate(state["qd"]) - K * goal.error) < 1e-10


def test_pd_plus_is_passive(state):
    """V = s* M s / 2 + e* K e / 2 with s = v - qd: V' = -s* D s, less what a push does on s."""
    goal, (K, D) = state["goal"], gains(state["model"])
    s = goal.velocity - state["qd"]
    s_rate = goal.acceleration - acceleration(state, state["pd_plus"], state["push"])
    V_rate = kinetic_rate(state, s, s_rate) + goal.error @ (K * goal.rate(state["qd"]))
    assert relative(V_rate, -s @ (D * s) - s @ state["push"]) < 1e-7


def test_pd_is_passive(state):
    """V = qd* M qd / 2 + e* K e / 2 of a goal at rest: V' = -qd* D qd and the power of a push."""
    goal, qd, (K, D) = state["goal"], state["qd"], gains(state["model"])
    e_rate = -matrix(goal.slope, len(qd)) @ qd
    V_rate = kinetic_rate(state, qd, acceleration(state, state["pd"], state["push"])) + goal.error @ (K * e_rate)
    assert relative(V_rate, -qd @ (D * qd) + qd @ state["push"]) < 1e-7


def test_gravity_compensation_is_passive(state):
    qd, (_, D) = state["qd"], gains(state["model"])
    T_rate = kinetic_rate(state, qd, acceleration(state, state["gravity_compensation"], state["push"]))
    assert relative(T_rate, -qd @ (D * qd) + qd @ state["push"]) < 1e-7


def surface(s):
    """Return s of `passivity_based` and the rate of its reference velocity, from the error's equations."""
    goal, (K, _) = s["goal"], gains(s["model"])
    E, E_rate = matrix(goal.slope, s["model"].nv), goal.turning(np.eye(s["model"].nv))
    x = np.linalg.solve(E, K * goal.error)
    return s["qd"] - goal.velocity - x, goal.acceleration + np.linalg.solve(E, K * goal.rate(s["qd"]) - E_rate @ x)


def test_passivity_based_control_is_passive(state):
    """V = s* M s / 2: V' = -s* G s and the power of a push on s; and where s = 0, e' = -Lambda e."""
    goal, (K, G) = state["goal"], gains(state["model"])
    s, reference_rate = surface(state)
    V_rate = kinetic_rate(state, s, acceleration(state, state["passivity_based"], state["push"]) - reference_rate)
    assert relative(V_rate, -s @ (G * s) + s @ state["push"]) < 1e-7
    assert relative(goal.rate(state["qd"] - s), -K * goal.error) < 1e-11


def test_the_regressor_with_two_velocities(state):
    """Y(q, qd, v, a) pi = M a + C(q, qd) v + g, less what armatures take."""
    model = state["model"]
    forces = state["regressor"] @ np.asarray(model.inertia).ravel() + model.armature * state["a"]
    assert relative(forces, state["forces"]) < 1e-11


@pytest.mark.parametrize("metric", ["euclidean", "natural"])
def test_adaptation_does_no_harm(state, metric):
    """V = s* M s / 2 + d(pi, estimate) / gamma: V' = -s* G s, however wrong the estimate is."""
    (tau, rate), (_, G), pi = state[metric], gains(state["model"]), jaxdyn.inertial_parameters(state["model"])
    s, reference_rate = surface(state)
    V_rate = kinetic_rate(state, s, acceleration(state, tau) - reference_rate)
    if metric == "euclidean":
        V_rate += (rate * (GUESS - 1) * pi).sum() / 2.0
    else:
        divergence = lambda estimate: jaxdyn.model.entropic_divergence(pi, estimate).sum()
        V_rate += jax.jvp(divergence, (GUESS * pi,), (jnp.asarray(rate),))[1] / 2.0
    assert relative(V_rate, -s @ (G * s)) < 1e-7


# ---------------------------------------------------------------------- in time
@pytest.fixture(scope="module")
def arm():
    return jaxdyn.load("double_pendulum").replace(damping=jnp.zeros(2))


SWING = lambda t: jnp.stack([0.6 * jnp.sin(2.0 * t), 0.4 * jnp.cos(3.0 * t)])


def test_computed_torque_in_closed_form(arm):
    """Critically damped, e(t) = (e0 + (e0' + w e0) t) exp(-w t), while the goal swings."""
    w, dt, steps = 5.0, 2e-4, 5000

    def policy(t, q, qd, _):
        return control.computed_torque(
            arm, q, qd, *control.desired_motion(arm, SWING, t), stiffness=w * w, damping=2 * w
        )

    q, qd = jnp.array([0.5, -0.5]), jnp.array([1.0, 2.0])
    run = jaxdyn.rollout(arm, q, qd, policy, dt=dt, steps=steps, save_every=500, outputs=["energy"])
    start, speed, _ = control.desired_motion(arm, SWING, 0.0)
    e, e_rate, t = np.asarray(start - q), np.asarray(speed - qd), np.asarray(run.t)[:, None]
    expected = (e + (e_rate + w * e) * t) * np.exp(-w * t)
    errors = np.asarray(jax.vmap(SWING)(run.t)) - np.asarray(run.q)
    assert np.abs(errors - expected).max() < 2e-3  # of first order in dt
    assert np.abs(errors[0]).max() > 0.5


def test_desired_motion_of_a_rotation():
    """A body that turns about a fixed axis has that axis times the rate as its velocity."""
    builder = jaxdyn.ModelBuilder("ball")
    model = builder.add_body("ball", joint="spherical", mass=1.0, inertia=(0.1, 0.2, 0.3)).build()
    axis = jnp.array([2.0, -1.0, 2.0]) / 3
    path = lambda t: 3.0 * jnp.concatenate([jnp.cos(t**2 / 2)[None], jnp.sin(t**2 / 2) * axis])  # of any length
    _, qd, qdd = control.desired_motion(model, path, 0.7)
    assert relative(qd, 2 * 0.7 * axis) < 1e-14
    assert relative(qdd, 2 * axis) < 1e-13


def test_adaptation_brings_the_error_down(arm):
    """Masses are half wrong; estimates stay physical, and the error falls."""
    guess = jnp.array([[1.6], [0.5]]) * jaxdyn.inertial_parameters(arm)

    def policy(t, q, qd, estimate, _):
        tau, rate = control.adaptive_control(
            arm, q, qd, *control.desired_motion(arm, SWING, t),
            estimate=estimate, convergence=4.0, gain=5.0, adaptation=8.0,
        )  # fmt: skip
        return tau, control.adapt(estimate, rate, dt=2e-3)

    q, qd, _ = control.desired_motion(arm, SWING, 0.0)
    run = control.stateful_rollout(arm, q, qd, policy, guess, dt=2e-3, steps=4000)
    errors = np.abs(jax.vmap(SWING)(run.t) - run.q)
    assert errors[3000:].max() < 0.3 * errors[:1000].max()
    assert np.linalg.eigvalsh(jaxdyn.model.pseudo_inertia(run.extras["state"])).min() > 0


def test_natural_steps_stay_physical_however_long(arm):
    """A step along the geodesic never leaves the bodies that could be built; a plain one does."""
    pi = jaxdyn.inertial_parameters(arm)
    rate = jnp.tile(-jnp.array([3.0, 0.1, 0.1, 0.1, *[0.5] * 6]), (2, 1))
    least = lambda pi: np.linalg.eigvalsh(jaxdyn.model.pseudo_inertia(pi)).min()
    assert least(control.adapt(pi, rate, dt=10.0)) > 0
    assert least(control.adapt(pi, rate, dt=10.0, metric="euclidean")) < 0
    small = control.adapt(pi, rate, dt=1e-9)
    assert relative((small - pi) / 1e-9, rate) < 1e-4
    massless = jnp.zeros_like(pi)
    assert bool(jnp.isfinite(jax.jacfwd(lambda x: control.adapt(x, rate, dt=0.1))(massless)).all())


def test_stateful_rollout_is_rollout_for_a_policy_without_state(arm):
    q, qd = jnp.array([0.5, -0.5]), jnp.array([1.0, 2.0])
    hold = lambda t, q, qd, gain: -gain * qd + jnp.sin(t)
    plain = jaxdyn.rollout(arm, q, qd, hold, dt=0.01, steps=20, params=2.0, outputs=["tau"])
    counted = control.stateful_rollout(
        arm, q, qd, lambda t, q, qd, n, gain: (hold(t, q, qd, gain), n + 1), 0, dt=0.01, steps=20, params=2.0
    )
    assert relative(counted.q, plain.q) < 1e-14
    assert relative(counted.extras["tau"], plain.extras["tau"]) < 1e-13
    assert counted.extras["state"].tolist() == list(range(21))


def test_gradients_are_finite_at_zero_error_and_at_rest():
    model = MODELS["ball and hinge"]()
    q, rest = jaxdyn.neutral(model), jnp.zeros(model.nv)
    pull = lambda x: jnp.sum(control.pd(model, x, rest, q, stiffness=1.0, damping=1.0, compensate_gravity=False) ** 2)
    assert np.isfinite(quickly(jax.grad(pull))(q)).all()


# ---------------------------------------------------------------------- arguments
def test_what_is_refused(arm):
    x = jnp.zeros(2)
    options = {"stiffness": 1.0, "damping": 1.0}
    with pytest.raises(ValueError, match=r"q_des must have shape \(2,\), one number per coordinate; got \(3,\)"):
        control.computed_torque(arm, x, x, jnp.zeros(3), **options)
    with pytest.raises(ValueError, match=r"qdd_des must have shape \(2,\)"):
        control.pd_plus(arm, x, x, x, x, jnp.zeros(3), **options)
    with pytest.raises(ValueError, match=r"stiffness must not be negative"):
        control.pd(arm, x, x, x, stiffness=-1.0, damping=1.0)
    with pytest.raises(ValueError, match=r"convergence must be a number, or have shape \(2,\)"):
        control.passivity_based(arm, x, x, x, convergence=jnp.ones(3), gain=1.0)
    with pytest.raises(TypeError, match="model must be a jaxdyn.Model"):
        control.pd(None, x, x, x, **options)
    with pytest.raises(ValueError, match=r"estimate must have shape \(2, 10\)"):
        control.adaptive_control(arm, x, x, x, estimate=x, convergence=1.0, gain=1.0, adaptation=1.0)
    with pytest.raises(ValueError, match=r'metric must be "natural" or "euclidean"'):
        control.adapt(jnp.zeros((2, 10)), jnp.zeros((2, 10)), dt=0.1, metric="riemann")
    with pytest.raises(ValueError, match=r"must return a pair \(tau, next state\)"):
        control.stateful_rollout(arm, x, x, lambda t, q, qd, s, p: q, 0.0, dt=0.1, steps=1)
    with pytest.raises(ValueError, match=r"next state must be like its first"):
        control.stateful_rollout(arm, x, x, lambda t, q, qd, s, p: (q, q), 0.0, dt=0.1, steps=1)


def test_limits(arm):
    x = jnp.zeros(2)
    tau = control.pd(arm, x, x, jnp.array([10.0, -10.0]), stiffness=100.0, damping=1.0, limit=[3.0, 5.0])
    assert tau.tolist() == [3.0, -5.0]
