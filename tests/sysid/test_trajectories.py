"""Output-error fits: the truth is found from its own motion, by the law of least squares, and bad data get a status."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxdyn
from jaxdyn.model import is_physical
from jaxdyn.simulate import integrators
from jaxdyn.sysid.base import base_parameters
from jaxdyn.sysid.output_error import Point, Problem
from jaxdyn.sysid.solving import Status
from jaxdyn.sysid.trajectories import fit_trajectories, windows_of
from jaxdyn.sysid.unknowns import unknowns_of

DT = 0.01


@pytest.fixture(scope="module")
def robot():
    return jaxdyn.load("double_pendulum").replace(damping=np.array([0.1, 0.2]))


@pytest.fixture(scope="module")
def run(robot):
    tau = np.stack([2 * np.sin(0.1 * np.arange(60)), np.cos(0.2 * np.arange(60))], 1)
    return jaxdyn.rollout(robot, np.array([1.0, 0.5]), np.zeros(2), tau, dt=DT, outputs=["tau"])


@pytest.fixture(scope="module")
def recording(run):
    return {"q": run.q, "qd": run.qd, "tau": run.extras["tau"], "dt": DT}


@pytest.fixture(scope="module")
def fit_inertia(robot, run):
    """A fit of all inertias and dampings, from a model whose numbers are all wrong."""
    start = robot.replace(inertia=1.3 * robot.inertia, damping=np.zeros(2))
    return fit_trajectories(start, run, params=["inertia", "damping"])


def problem_of(robot, data, params, **options):
    unknowns, model = unknowns_of(robot, params)
    windows = windows_of(model, data, options.get("segment"), (1.0, 1.0), unknowns.initial_state)
    start = Point(unknowns.coordinates(model), windows.q[:, 0], windows.qd[:, 0])
    return Problem(model, windows, start, jnp.asarray(0.0), unknowns, integrators.semi_implicit_euler)


def test_the_motion_is_found_again_by_a_physical_model(robot, run, fit_inertia):
    """The fitted model moves as the robot does; inertias as such are not determined: scaling all of them needs torque."""
    assert fit_inertia.message == "converged"
    assert is_physical(fit_inertia.model)
    again = jaxdyn.rollout(fit_inertia.model, run.q[0], run.qd[0], run.extras["tau"], dt=DT)
    np.testing.assert_allclose(again.q, run.q, atol=1e-7)
    np.testing.assert_allclose(fit_inertia.values["damping"], robot.damping, rtol=1e-4)


def test_the_rank_is_the_number_of_base_parameters(robot, fit_inertia):
    """What motion depends on is what torque depends on: the base parameters, found from regressors, and two dampings."""
    assert int(fit_inertia.rank) == base_parameters(robot).rank + 2
    assert len(fit_inertia.names) == 22
    assert np.isfinite(fit_inertia.covariance).all()
    assert np.isfinite(fit_inertia.deviations["damping"]).all()
    assert np.isinf(fit_inertia.deviations["inertia"]).any()


def test_normal_equations_are_those_of_central_differences(robot, recording):
    """H = J^T J and g = J^T r, J by differences of simulations: parameters and the starts of windows."""
    names = ["inertia", "damping", "friction", "gravity_direction", "initial_state"]
    problem = problem_of(robot.replace(friction=np.array([0.1, 0.1])), recording, names, segment=40)
    rng = np.random.default_rng(0)
    point = problem.start._replace(theta=problem.start.theta + 0.05 * rng.uniform(0, 1, problem.unknowns.size))
    linearize = jax.jit(Problem.linearize)
    r, normal = linearize(problem, point)
    n, B = problem.unknowns.size, len(point.q0)
    x = np.concatenate([rng.normal(size=n), rng.normal(size=4 * B)])
    step = lambda e: Point(point.theta + e * x[:n], point.q0 + e * x[n : n + 2 * B].reshape(B, 2),
                           point.qd0 + e * x[n + 2 * B :].reshape(B, 2))  # fmt: skip
    simulate = lambda e: linearize(problem, step(e))[0]
    w = problem.windows.weights
    change = w * (simulate(1e-6) - simulate(-1e-6)) / 2e-6
    s = np.concatenate([x[n : n + 2 * B].reshape(B, 2), x[n + 2 * B :].reshape(B, 2)], 1)
    along = x[:n] @ normal.g_p + (s * normal.g_s).sum()
    np.testing.assert_allclose(along, (change * w * r).sum(), rtol=1e-6)
    curve = x[:n] @ normal.H_pp @ x[:n] + np.einsum("bi,bij,bj", s, normal.H_ss, s)
    curve += 2 * np.einsum("i,bij,bj", x[:n], normal.H_ps, s)
    np.testing.assert_allclose(curve, (change**2).sum(), rtol=1e-6)


def test_gravity_friction_and_initial_state_from_positions_alone(robot, run):
    """Without measured velocities, in windows of their own starts; the direction of gravity is found, and its size kept."""
    tilted = robot.replace(gravity=9.81 * np.array([np.sin(0.2), 0, -np.cos(0.2)]), friction=np.array([0.05, 0.02]))
    tau = run.extras["tau"]
    moved = jaxdyn.rollout(tilted, run.q[0], np.array([0.3, -0.2]), tau, dt=DT)
    data = {"q": moved.q, "tau": tau, "t": moved.t}
    names = ["gravity_direction", "friction", "initial_state"]
    fit = fit_trajectories(tilted.replace(gravity=robot.gravity, friction=np.zeros(2)), data, params=names, segment=30)
    np.testing.assert_allclose(fit.model.gravity[::2], tilted.gravity[::2], atol=1e-5)
    np.testing.assert_allclose(jnp.linalg.norm(fit.model.gravity), 9.81, rtol=1e-12)
    np.testing.assert_allclose(fit.model.friction, tilted.friction, atol=1e-5)
    np.testing.assert_allclose(fit.qd0[0], [0.3, -0.2], atol=1e-4)


@pytest.mark.long
def test_deviations_cover_the_errors_of_many_fits(robot, recording):
    """Over noisy recordings, fitted by vmap, errors scatter as their deviations say; a bound holds in each of them."""
    noise = 1e-2 * jax.random.normal(jax.random.key(0), (32, *np.shape(recording["q"])))

    @jax.jit
    @jax.vmap
    def fits(noise):
        data = {**recording, "q": recording["q"] + noise.at[0].set(0)}
        fit = fit_trajectories(robot, data, params=["damping", "friction"], noise=(1e-2, 1e2), max_iterations=15)
        return fit.values, fit.deviations, fit.status

    values, deviations, status = fits(noise)
    assert np.isin(status, [Status.CONVERGED, Status.MAX_ITERATIONS, Status.STALLED]).all()
    assert (values["friction"] >= 0).all()
    assert (values["damping"] >= 0).all()
    error = np.abs(values["damping"] - robot.damping[None]) / deviations["damping"]
    assert 0.1 < np.sqrt((error**2).mean()) < 1.5  # bounds can only bring errors down


@pytest.mark.long
def test_an_optimiser_of_optax_descends_too(robot, recording):
    start = robot.replace(damping=np.array([0.15, 0.15]))
    fit = fit_trajectories(start, recording, params=["damping"], method=optax.adam(5e-3), max_iterations=100)
    assert fit.rms < 0.2 * fit.history["rms"][0]
    np.testing.assert_allclose(fit.model.damping, robot.damping, atol=0.02)


@pytest.mark.parametrize("what", ["q", "qd", "tau"])
def test_data_that_are_not_finite_give_a_status_and_the_start(robot, recording, what):
    spoilt = {**recording, what: jnp.asarray(recording[what]).at[20, 1].set(jnp.nan)}
    fit = fit_trajectories(robot, spoilt, params=["damping"])
    assert fit.status == Status.NOT_FINITE
    np.testing.assert_array_equal(fit.model.damping, robot.damping)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((fit.theta, fit.covariance, fit.residuals, fit.rms)))


def test_a_robot_that_hangs_still_says_nothing_of_its_damping(robot):
    still = {"q": np.zeros((61, 2)), "qd": np.zeros((61, 2)), "tau": np.zeros((60, 2)), "dt": DT}
    fit = fit_trajectories(robot, still, params=["damping"])
    assert fit.status == Status.NO_INFORMATION
    assert fit.rank == 0
    assert np.isinf(fit.deviations["damping"]).all()


def test_one_step_and_recordings_of_different_lengths(robot, recording):
    """A recording that ends early, and a single step, count as much as they have."""
    early = {**recording, "q": recording["q"][:31], "qd": recording["qd"][:31], "tau": recording["tau"][:31]}
    windows = windows_of(robot, [recording, early], None, (1.0, 1.0), False)
    assert (windows.weights > 0).sum() == (60 + 30) * 4
    one = {**recording, "q": recording["q"][:2], "qd": recording["qd"][:2], "tau": recording["tau"][:1]}
    fit = fit_trajectories(robot.replace(damping=np.zeros(2)), one, params=["damping"])
    assert np.isfinite(fit.model.damping).all()
    assert fit.residuals.shape == (1, 2, 4)


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        ({"q": np.zeros((61, 3))}, {}, r"data.q must have shape \(rows, 2\); got \(61, 3\)"),
        ({"q": [[0.0], [1.0, 2.0]]}, {}, "rows of different lengths"),
        ({"q": np.zeros((1, 2))}, {}, "two rows or more"),
        ({"tau": np.zeros((40, 2))}, {}, "data.tau must have 60 rows, one per step, or 61.*got 40"),
        ({"qd": np.zeros((60, 2))}, {}, "data.qd must have 61 rows"),
        ({"dt": None}, {}, "time step dt, or times t"),
        ({"dt": -1.0}, {}, "dt must be positive"),
        ({"dt": None, "t": np.arange(61.0) ** 2}, {}, "evenly spaced"),
        ({}, {"params": ["dampnig"]}, "did you mean 'damping'"),
        ({}, {"params": {"damping": ["elbo"]}}, "no joint or body"),
        ({}, {"params": []}, "params must name"),
        ({}, {"segment": 0}, "segment must be a positive number"),
        ({}, {"noise": (1.0, 0.0)}, "noise of qd must be positive"),
        ({}, {"method": "newton"}, "method must be"),
        ({}, {"max_iterations": 0}, "max_iterations must be a positive integer"),
    ],
)
def test_bad_arguments_are_named(robot, recording, change, options, says):
    with pytest.raises(ValueError, match=says):
        fit_trajectories(robot, {**recording, **change}, **{"params": ["damping"], **options})


def test_unphysical_inertias_are_replaced_and_massless_bodies_left_out(robot):
    bad = np.array(robot.inertia)
    bad[0, 4:] = [0.1, 0, 0.1, 0, 0, 9.0]
    with pytest.warns(jaxdyn.ModelWarning, match="not physical"):
        unknowns, model = unknowns_of(robot.replace(inertia=bad), ["inertia"])
    assert unknowns.size == 20
    assert np.isfinite(unknowns.coordinates(model)).all()
    bad[0] = 0
    assert unknowns_of(robot.replace(inertia=bad), ["inertia"])[0].size == 10


def test_a_robot_without_mass_has_no_inertias_to_fit(robot):
    with pytest.raises(ValueError, match="no body of the model has mass"):
        unknowns_of(robot.replace(inertia=0 * robot.inertia), ["inertia"])


def test_turned_gravity_keeps_its_length_and_coordinates_are_inverse(robot):
    unknowns, model = unknowns_of(robot, ["inertia", "damping", "v_s", "gravity_direction"])
    theta = unknowns.coordinates(model)
    np.testing.assert_allclose(unknowns.model(model, theta).inertia, model.inertia, atol=1e-12)
    turned = unknowns.model(model, theta.at[-2:].set(jnp.array([0.3, -0.4]))).gravity
    np.testing.assert_allclose(turned @ model.gravity / 9.81**2, np.cos(0.5), rtol=1e-12)
