"""The diagonalised equations of motion against the Cholesky factor of the mass matrix, and the laws they keep."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import KINDS, geared, in_single, long, quickly, random_state, relative

import jaxdyn
from jaxdyn import diagonal
from jaxdyn.diagonal import momentum, two_sweeps
from jaxdyn.model.random_models import MOVING_JOINTS, random_chain, random_tree

ROBOTS = {name: make for name, make in KINDS.items() if name != "mimic"}
ROBOTS["chain without armature"] = lambda: random_chain(4, seed=7, joints=("revolute", "prismatic"))
ROBOTS["floating base alone"] = lambda: random_tree(1, seed=1, floating_base=True)
ROBOTS["hinge on a floating base"] = lambda: random_tree(2, seed=1, joints=("revolute",), floating_base=True)


def _factor(model, s):
    along = lambda t: diagonal.innovations_factor_dense(model, jaxdyn.integrate(model, s["q"], t * s["qd"]))
    return jax.jvp(along, (0.0,), (1.0,))


def _coordinates(model, s):
    q, qd, tau = s["q"], s["qd"], s["tau"]
    nu, xi, eps = diagonal.to_nu(model, q, qd), diagonal.to_xi(model, q, qd), diagonal.to_eps(model, q, tau)
    back = diagonal.from_nu(model, q, nu), diagonal.from_xi(model, q, xi), diagonal.from_eps(model, q, eps)
    return {"nu": nu, "xi": xi, "eps": eps, "back": back}


def _of_state(f, *names):
    return lambda model, s: f(model, s["q"], *(s[name] for name in names))


def _with_forces(f, *names, **known):
    return lambda model, s: f(
        model, s["q"], *(s[name] for name in names), f_ext=s["f_ext"], **{key: s[name] for key, name in known.items()}
    )


# What is tested, and dynamics that share nothing with it; each compiled by itself.
FUNCTIONS = {
    "C": _of_state(diagonal.coriolis, "nu"),
    "C_xi": _of_state(diagonal.coriolis_xi, "xi"),
    "S w": _of_state(diagonal.coriolis_product, "nu", "w"),
    "nu'": _with_forces(diagonal.forward_dynamics, "nu", "eps"),
    "xi'": _with_forces(diagonal.forward_dynamics_xi, "xi", "tau"),
    "xi', qd known": _with_forces(diagonal.forward_dynamics_xi, "xi", "tau", qd="qd"),
    "rates": _of_state(diagonal.rate_split, "qd"),
    "moments": _of_state(diagonal.moment_split, "tau"),
    "of gravity": _of_state(diagonal.gravity_eps),
    "of forces": _of_state(diagonal.external_eps, "f_ext"),
    "T": _of_state(jaxdyn.kinetic_energy, "qd"),
    "g": _of_state(jaxdyn.gravity_force),
    "b": _of_state(jaxdyn.bias_force, "qd"),
    "matrix": _of_state(jaxdyn.coriolis_matrix, "qd"),
    "qdd": _with_forces(jaxdyn.forward_dynamics, "qd", "tau"),
    "b with forces": _with_forces(jaxdyn.bias_force, "qd"),
}


NOW = {"hinge on a floating base"}


@pytest.fixture(scope="module", params=[name if name in NOW else long(name) for name in ROBOTS])
def case(request):
    model = ROBOTS[request.param]()
    s = random_state(model) | {"w": np.random.default_rng(5).normal(size=model.nv)}
    m, m_rate = quickly(_factor)(model, s)
    there = quickly(_coordinates)(model, s)
    found = {"m": m, "m_rate": m_rate} | there
    found |= {name: quickly(f)(model, s | there) for name, f in FUNCTIONS.items()}
    found["of f_ext"] = found["b"] - found["b with forces"]
    body = np.concatenate([np.full(j.nv, i) for i, j in enumerate(model.topology.joints)])
    blocks = body[:, None] == body[None]
    return model, s, found, blocks * found["m"], blocks * found["m_rate"]


@pytest.mark.parametrize("name", ["hinge on a floating base", long("chain"), long("tree on a floating base")])
def test_long_robots_differ_in_memory_only(monkeypatch, name):
    """Their last sweep finds the filter once more, and all else in it: the same C, S w and nu' with forces."""
    model = ROBOTS[name]()
    s = random_state(model)
    rows = jax.tree.map(lambda x: x[..., None], s)

    def everything(least):
        monkeypatch.setattr(momentum, "LONG", least)

        def run(model, s):
            found = {
                "C": {}, "S w": {"other": s["qdd"]},
                "nu'": {"gravity": True, "f_ext": s["f_ext"], "qd": s["qd"]},
            }  # fmt: skip
            for key, options in found.items():
                robot, rates = momentum.accelerations(model, s["q"], s["qd"], **options)
                found[key] = robot.joints.collect(rates)
            return found

        return quickly(run)(jax.tree.map(lambda x: x[..., None], model.moving), rows)

    once_more, known = everything(0), everything(10**9)
    for key in known:
        assert np.abs(known[key]).max() > 0
        assert relative(once_more[key], known[key]) < 1e-12, key


def test_coordinates_are_the_factor_of_the_mass_matrix(case):
    _, s, x, L, _ = case
    m = x["m"]
    assert relative(x["nu"], m.T @ s["qd"]) < 1e-12
    assert relative(x["xi"], np.linalg.solve(L.T, m.T @ s["qd"])) < 1e-12
    assert relative(x["eps"], np.linalg.solve(m, s["tau"])) < 1e-11
    for back, there in zip(x["back"], (s["qd"], s["qd"], s["tau"]), strict=True):
        assert relative(back, there) < 1e-12


def test_energy_is_half_the_square_of_nu_and_power_nu_times_eps(case):
    _, s, x, L, _ = case
    assert relative(x["nu"] @ x["nu"] / 2, x["T"]) < 1e-13
    assert relative(x["xi"] @ L @ L.T @ x["xi"] / 2, x["T"]) < 1e-12  # (7.8)
    assert abs(x["nu"] @ x["eps"] - s["qd"] @ s["tau"]) < 1e-12 * np.linalg.norm(x["nu"]) * np.linalg.norm(x["eps"])


def test_5_3_a_total_rate_is_relative_and_induced(case):
    _, s, x, L, _ = case
    relative_rate, induced = x["rates"]
    np.testing.assert_array_equal(relative_rate, s["qd"])
    assert relative(relative_rate + induced, x["xi"]) < 1e-12
    assert relative(L.T @ (relative_rate + induced), x["nu"]) < 1e-12


def test_5_4_a_moment_is_working_and_compensating(case):
    _, s, x, L, _ = case
    working, compensating = x["moments"]
    assert relative(working, L @ x["eps"]) < 1e-12
    assert relative(working + compensating, s["tau"]) < 1e-12


def test_working_moments_of_gravity_and_of_forces(case):
    x = case[2]
    assert relative(x["of gravity"], np.linalg.solve(x["m"], x["g"])) < 1e-11
    assert relative(x["of forces"], np.linalg.solve(x["m"], x["of f_ext"])) < 1e-11


def test_coriolis_is_that_of_the_cholesky_factor(case):
    _, s, x, _, _ = case
    truth = np.linalg.solve(x["m"], x["b"] - x["g"]) - x["m_rate"].T @ s["qd"]
    assert relative(x["C"], truth) < 1e-11


def test_coriolis_does_no_work(case):
    x = case[2]
    assert abs(x["nu"] @ x["C"]) < 1e-13 * np.linalg.norm(x["nu"]) * np.linalg.norm(x["C"])


def test_7_9_coriolis_of_rates_that_are_not_normalised(case):
    _, _, x, L, L_rate = case
    assert relative(x["C_xi"], L @ (x["C"] + L_rate.T @ x["xi"])) < 1e-11


def test_the_skew_form(case):
    """S = m^-1 C m^-* - m'* m^-* is skew, and S nu is the Coriolis term."""
    _, s, x, _, _ = case
    inverse = np.linalg.inv(x["m"])
    S = (inverse @ x["matrix"] - x["m_rate"].T) @ inverse.T
    assert relative(x["S w"], S @ s["w"]) < 1e-11
    assert relative(S @ x["nu"], x["C"]) < 1e-11
    assert np.abs(S + S.T).max() < 1e-12 * np.abs(S).max()
    assert abs(s["w"] @ x["S w"]) < 1e-13 * np.linalg.norm(s["w"]) * np.linalg.norm(x["S w"])


def test_the_motion_is_that_of_forward_dynamics(case):
    _, s, x, L, L_rate = case
    nu_rate = x["m"].T @ x["qdd"] + x["m_rate"].T @ s["qd"]
    assert relative(x["nu'"], nu_rate) < 1e-11
    xi_rate = np.linalg.solve(L.T, nu_rate - L_rate.T @ x["xi"])
    assert relative(x["xi'"], xi_rate) < 1e-11
    assert relative(x["xi', qd known"], xi_rate) < 1e-11


def _forest():
    """Two trees on floating bases and two that stand on the world, away from its origin."""
    return random_tree(9, seed=4, joints=("revolute", "universal"), roots=4, floating_base=True, armature=True)


TWO_SWEEPS = ROBOTS | {"forest on bases": _forest, "legs side by side": lambda: jaxdyn.load("quadruped")}
MORE = ["hinge on a floating base", "legs side by side", "chain", *map(long, ("forest on bases", "forest"))]
MORE += map(long, ("tree on a floating base", "columns that turn in the body"))


@pytest.mark.parametrize("name", MORE)
def test_algorithm_8_1_does_not_depend_on_the_point_that_all_is_about(monkeypatch, name):
    model = TWO_SWEEPS[name]()
    s = random_state(model)
    rows = jax.tree.map(lambda x: x[..., None], (model.moving, s["q"], s["qd"], s["tau"], s["f_ext"]))

    def rates(most):
        monkeypatch.setattr(two_sweeps, "LONG", most)
        return quickly(lambda rows: two_sweeps.rates(*rows))(rows)

    about_root, about_own = rates(10**9), rates(0)
    assert np.abs(about_own).max() > 0
    assert relative(about_root, about_own) < 1e-11


@pytest.mark.parametrize("name", MORE)
def test_a_step_of_algorithm_8_1(name):
    """xi after the step is xi + h xi', the velocity is that of the new xi at the old q, and q moves by it."""
    model, h = TWO_SWEEPS[name](), 0.01
    s = random_state(model)

    @quickly
    def both(model, s):
        q, qd, tau, f_ext = (s[key] for key in ("q", "qd", "tau", "f_ext"))
        xi = diagonal.to_xi(model, q, qd)
        after = diagonal.step_xi(model, q, xi, qd, tau, dt=h, f_ext=f_ext)
        rate = diagonal.forward_dynamics_xi(model, q, xi, tau, f_ext=f_ext)
        velocity = diagonal.from_xi(model, q, after.xi)
        return after, (xi + h * rate, velocity, jaxdyn.integrate(model, q, h * velocity))

    after, (xi, qd, q) = both(model, s)
    assert relative(after.xi, xi) < 1e-12
    assert relative(after.qd, qd) < 1e-11
    assert relative(after.q, q) < 1e-12


def test_algorithm_8_1_batched_by_configurations_alone():
    """Bases that are turned differently at one velocity."""
    model = random_tree(2, seed=4, joints=("free",), roots=2)
    q = jnp.stack([random_state(model, seed)["q"] for seed in range(2)])
    s = random_state(model)
    rate = lambda q: diagonal.forward_dynamics_xi(model, q, s["qd"], s["tau"], qd=s["qd"])
    batch = quickly(jax.vmap(rate))(q)
    assert np.abs(batch[0] - batch[1]).max() > 0.1
    assert relative(batch, np.stack([quickly(rate)(x) for x in q])) < 1e-12


def test_algorithm_8_1_keeps_the_digits_of_a_slender_base():
    """e w' = e about the axis of a rod, in single precision."""
    model = random_tree(1, joints=("free",)).astype(jnp.float32)
    e, zero = 1e-7, jnp.zeros(6, jnp.float32)
    model = model.replace(inertia=jnp.array([[1, 0, 0, 0, e, 0, 1, 0, 0, 1]], jnp.float32))
    q = jaxdyn.neutral(model)
    rate = quickly(lambda tau: diagonal.forward_dynamics_xi(model, q, zero, tau, qd=zero))(zero.at[0].set(e))
    assert abs(float(rate[0]) - 1) < 1e-6


def test_derivatives_of_algorithm_8_1_forward_and_reverse():
    model = ROBOTS["hinge on a floating base"]()
    s = random_state(model)
    f = lambda q, qd: diagonal.forward_dynamics_xi(model, q, diagonal.to_xi(model, q, qd), s["tau"], qd=qd)
    forward, reverse = (quickly(jac(f, argnums=(0, 1)))(s["q"], s["qd"]) for jac in (jax.jacfwd, jax.jacrev))
    for a, b in zip(forward, reverse, strict=True):
        assert np.abs(a).max() > 0
        assert relative(a, b) < 1e-11
    e, h = np.random.default_rng(2).normal(size=model.nv), 1e-6
    central = (quickly(f)(s["q"], s["qd"] + h * e) - quickly(f)(s["q"], s["qd"] - h * e)) / (2 * h)
    assert relative(forward[1] @ e, central) < 1e-6


def test_energy_changes_by_the_power_of_working_moments(case):
    """Lemma 7.2: the rate of nu* nu / 2 is nu* times the working moments of all that acts."""
    _, _, x, _, _ = case
    acting = x["eps"] - x["of gravity"] + x["of forces"]
    scale = np.linalg.norm(x["nu"]) * np.linalg.norm(x["nu'"])
    assert abs(x["nu"] @ x["nu'"] - x["nu"] @ acting) < 1e-12 * scale


# ---------------------------------------------------------------------- twins, closed forms
@pytest.fixture(scope="module")
def joints_of_all_kinds():
    return random_tree(3, seed=3, joints=("spherical", "universal"), armature=True)


def test_twins_by_automatic_differentiation(joints_of_all_kinds):
    model = joints_of_all_kinds
    q = jnp.stack([random_state(model, seed)["q"] for seed in range(4)])
    rates = jnp.asarray(np.random.default_rng(0).normal(size=(4, model.nv)))

    @quickly
    @jax.vmap
    def both(q, x):
        return {
            "C": (diagonal.coriolis(model, q, x), diagonal.coriolis_autodiff(model, q, x)),
            "C_xi": (diagonal.coriolis_xi(model, q, x), diagonal.coriolis_xi_autodiff(model, q, x)),
        }

    for pair in both(q, rates).values():
        assert relative(*pair) < 1e-10


def test_one_spherical_body_obeys_eulers_equation():
    """J w' + w x J w = tau, in the coordinates nu = L* w of J = L L*."""
    builder = jaxdyn.ModelBuilder("top", gravity=(0, 0, 0))
    J = np.array([[0.3, 0.02, 0.01], [0.02, 0.2, -0.03], [0.01, -0.03, 0.25]])
    model = builder.add_body("body", joint="spherical", mass=1.0, com=(0, 0, 0), inertia=J).build()
    w, tau = np.array([0.3, -1.0, 0.7]), np.array([0.1, 0.2, -0.4])
    L, q = np.linalg.cholesky(J), jnp.array([0.5, 0.5, -0.5, 0.5])
    rate = diagonal.forward_dynamics(model, q, L.T @ w, np.linalg.solve(L, tau))
    assert relative(rate, L.T @ np.linalg.solve(J, tau - np.cross(w, J @ w))) < 1e-13


def test_planar_arm_of_two_joints_in_closed_form():
    """M = [[a + d + 2 b c, d + b c], [d + b c, d]], c = cos q2; the second rate is p2 / sqrt(d), and p2' = dT/dq2."""
    builder = jaxdyn.ModelBuilder("2R", gravity=(0, 0, 0))
    l1, l2, m1, m2, J1, J2 = 0.7, 0.4, 1.3, 0.9, 0.05, 0.03
    builder.add_body("one", axis=(0, 0, 1), mass=m1, com=(l1, 0, 0), inertia=(J1,) * 3)
    builder.add_body("two", "one", xyz=(l1, 0, 0), axis=(0, 0, 1), mass=m2, com=(l2, 0, 0), inertia=(J2,) * 3)
    q, nu = np.array([0.4, 1.1]), np.array([0.8, -0.3])
    a, b, d = J1 + (m1 + m2) * l1**2, m2 * l1 * l2, J2 + m2 * l2**2
    c, s = np.cos(q[1]), np.sin(q[1])
    qd1 = nu[0] / np.sqrt(a - (b * c) ** 2 / d)
    qd2 = nu[1] / np.sqrt(d) - (d + b * c) / d * qd1
    second = b * s * qd1 * (qd1 + qd2) / np.sqrt(d)
    truth = np.array([-second * nu[1] / nu[0], second])  # no work
    assert relative(diagonal.coriolis(builder.build(), q, nu), truth) < 1e-13


# ---------------------------------------------------------------------- never NaN, single precision, refusals
AT_REST = {
    "coriolis": lambda model, q, x: diagonal.coriolis(model, q, x),
    "algorithm 8.1": lambda model, q, x: jnp.concatenate(diagonal.step_xi(model, q, x, x, x, dt=0.1)),
}


@pytest.mark.parametrize("name", AT_REST)
@pytest.mark.parametrize("dtype", [jnp.float32, long(jnp.float64)], ids=str)
def test_gradients_at_rest_are_finite(dtype, name):
    model = random_chain(2, seed=5, joints=("spherical", "revolute")).astype(dtype)
    q, nu = jaxdyn.neutral(model), jnp.zeros(model.nv, dtype)

    def value(q, nu, model):
        C = AT_REST[name](model, q, nu)
        return (C * C).sum() + C.sum()

    found = quickly(jax.value_and_grad(value, argnums=(0, 1, 2), allow_int=True))(q, nu, model)
    leaves = [x for x in jax.tree.leaves(found) if np.issubdtype(x.dtype, np.floating)]
    assert len(leaves) > 5
    assert all(np.isfinite(x).all() for x in leaves)


@pytest.mark.long
def test_gradient_of_coriolis_is_that_of_its_twin(joints_of_all_kinds):
    model = joints_of_all_kinds
    q, (nu, x) = random_state(model)["q"], np.random.default_rng(1).normal(size=(2, model.nv))

    @quickly
    def both(dq, nu, inertia):
        def value(coriolis, dq, nu, inertia):
            robot = jaxdyn.with_inertial_parameters(model, inertia)
            return x @ coriolis(robot, jaxdyn.integrate(robot, q, dq), nu)

        return tuple(jax.grad(value, argnums=(1, 2, 3))(f, dq, nu, inertia)
                     for f in (diagonal.coriolis, diagonal.coriolis_autodiff))  # fmt: skip

    for analytic, automatic in zip(*both(np.zeros(model.nv), nu, model.inertia), strict=True):
        assert relative(analytic, automatic) < 1e-10


def test_single_precision():
    model = random_chain(6, seed=3, joints=("revolute", "prismatic", "spherical"))
    q, nu = random_state(model)["q"], np.random.default_rng(1).normal(size=model.nv)
    exact = quickly(diagonal.coriolis)(model, q, nu)
    single = quickly(diagonal.coriolis)(*in_single((model, q, nu)))
    assert single.dtype == np.float32
    assert relative(single, exact) < 1e-4
    rates = quickly(lambda model, q, qd: diagonal.forward_dynamics_xi(model, q, qd, qd, qd=qd))
    single = rates(*in_single((model, q, nu)))
    assert single.dtype == np.float32
    assert relative(single, rates(model, q, nu)) < 1e-4


def test_a_batch_is_its_states(joints_of_all_kinds):
    model = joints_of_all_kinds
    q = jnp.stack([random_state(model, seed)["q"] for seed in range(3)])
    nu = jnp.asarray(np.random.default_rng(0).normal(size=(3, model.nv)))
    batch = quickly(jax.vmap(lambda q, nu: diagonal.coriolis(model, q, nu)))(q, nu)
    one = quickly(lambda q, nu: diagonal.coriolis(model, q, nu))
    assert relative(batch, np.stack([one(*x) for x in zip(q, nu, strict=True)])) < 1e-12


@pytest.mark.parametrize(
    "function", ["to_nu", "from_nu", "to_eps", "from_eps", "to_xi", "from_xi", "coriolis", "coriolis_xi",
                 "coriolis_autodiff", "coriolis_xi_autodiff", "rate_split", "moment_split"]
)  # fmt: skip
def test_what_is_refused(function):
    f, arm = getattr(diagonal, function), jaxdyn.load("arm7")
    with pytest.raises(ValueError, match="mimic"):
        f(geared(), jnp.zeros(2), jnp.zeros(2))
    with pytest.raises(ValueError, match=r"\(7,\).*\(6,\)"):
        f(arm, jnp.zeros(7), jnp.zeros(6))
    with pytest.raises(TypeError, match="model"):
        f("arm7", jnp.zeros(7), jnp.zeros(7))


def test_a_model_without_freedom():
    model = jaxdyn.ModelBuilder("nothing").build()
    empty = jnp.zeros(0)
    assert diagonal.coriolis(model, empty, empty).shape == (0,)
    assert diagonal.forward_dynamics(model, empty, empty, empty).shape == (0,)
    assert diagonal.step(model, empty, empty, dt=0.1).nu.shape == (0,)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_random_trees_of_all_joints(seed):
    model = random_tree(
        9, seed=seed, joints=MOVING_JOINTS, roots=1 + seed % 2, floating_base=seed % 3 == 0, armature=True
    )
    q = jnp.stack([random_state(model, k)["q"] for k in range(8)])
    nu = jnp.asarray(np.random.default_rng(seed).normal(size=(8, model.nv)))

    @quickly
    @jax.vmap
    def both(q, nu):
        return diagonal.coriolis(model, q, nu), diagonal.coriolis_autodiff(model, q, nu)

    found, truth = both(q, nu)
    assert relative(found, truth) < 1e-10
    power, size = (found * nu).sum(1), np.linalg.norm(found, axis=1) * np.linalg.norm(nu, axis=1)
    assert np.all(np.abs(power) < 1e-12 * size)
