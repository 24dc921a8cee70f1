"""Identification: the truth from clean data, physical links from noisy ones, one minimum, honest intervals, statuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.model import from_log_cholesky, log_cholesky
from jaxdyn.sysid import bootstrap, identify

NOISE = 0.2


@pytest.fixture(scope="module")
def noisy(torque):
    return torque + NOISE * np.random.default_rng(5).normal(size=torque.shape)


@pytest.fixture(scope="module")
def found(wrong, motion, noisy):
    return identify(wrong, *motion, noisy)


def test_clean_data_give_torques_friction_and_offsets(wrong, pendulum, motion, torque):
    found = identify(wrong, *motion, torque)
    assert found.status == "converged"
    assert found.success
    assert float(found.rmse.max()) < 1e-7
    assert (np.asarray(found.margins) > 0).all()
    assert np.abs(found.model.friction - pendulum.friction).max() < 1e-6
    assert np.abs(found.model.damping - pendulum.damping).max() < 1e-6
    assert np.abs(np.asarray(found.offset) - [0.5, -0.25]).max() < 1e-6
    beta = lambda model: (
        np.asarray(found.base.combination)
        @ np.concatenate([np.ravel(model.inertia), model.armature, model.damping, model.friction, found.offset])
    )
    assert np.abs(beta(found.model) - beta(pendulum)).max() < 1e-5


def test_noisy_data_give_physical_links_and_predict_as_well_as_least_squares(found, wrong, pendulum, motion, noisy):
    ls = identify(wrong, *motion, noisy, method="least_squares")
    rng = np.random.default_rng(9)
    other = tuple(rng.normal(size=(120, 2)) for _ in range(3))
    truth = jax.vmap(lambda *s: jaxdyn.inverse_dynamics(pendulum, *s) - jaxdyn.passive_force(pendulum, *s[:2]))(*other)
    truth = np.asarray(truth) + np.array([0.5, -0.25])
    error = [float(np.sqrt(((np.asarray(f.predict(*other)) - truth) ** 2).mean())) for f in (found, ls)]
    assert found.success
    assert error[0] < 1.2 * error[1] < 0.1
    assert (np.asarray(found.margins) > 0).all()
    assert not (np.asarray(ls.margins) > 0).all()
    assert np.abs(np.asarray(found.noise) / NOISE - 1).max() < 0.3


def test_least_squares_is_numpy_s(wrong, motion, noisy):
    found = identify(wrong, *motion, noisy, method="least_squares", noise=[1.0, 1.0])
    W = jax.vmap(lambda *s: jaxdyn.sysid.torque_regressor(wrong, *s))(*motion)
    x = np.linalg.lstsq(np.asarray(W).reshape(-1, 28), noisy.ravel(), rcond=1e-10)[0]
    assert np.abs(np.asarray(W) @ x - found.torque).max() < 1e-10
    base = found.base_values()[0]
    assert np.abs(base - np.asarray(found.base.combination) @ x).max() < 1e-9


def test_the_minimum_is_where_the_gradient_vanishes(found):
    """The convex objective, written out with numpy's inverse and determinant and differentiated automatically."""
    s, gamma = found.system, float(found.regularization)
    Q = np.asarray(s.Q)

    def F(x):
        P = jaxdyn.model.pseudo_inertia(x[:20].reshape(2, 10))
        z = x[20:26] / s.scale
        of_links = jnp.trace(P @ np.linalg.inv(Q), axis1=1, axis2=2) - jnp.linalg.slogdet(P)[1]
        return 0.5 * ((s.R @ x - s.c) ** 2).sum() + gamma * of_links.sum() + min(gamma, 1) * (z - jnp.log(z)).sum()

    x = found.parameters
    g, H = jax.grad(F)(x), jax.hessian(F)(x)
    assert float(g @ jnp.linalg.solve(H, g)) < 1e-8  # twice what another Newton step would gain
    assert float(jnp.linalg.eigvalsh(H).min()) > 0


def test_log_cholesky_finds_the_same(found, wrong, motion, noisy):
    twin = identify(wrong, *motion, noisy, method="log_cholesky", regularization=found.regularization)
    assert twin.success
    assert float((jnp.abs(twin.parameters - found.parameters) / found.deviation).max()) < 1e-3


def test_the_start_does_not_matter(found, wrong, motion, noisy):
    rng, theta = np.random.default_rng(3), np.asarray(log_cholesky(wrong.inertia))
    for _ in range(3):
        start = from_log_cholesky(theta + 0.5 * rng.normal(size=theta.shape))
        again = identify(wrong, *motion, noisy, regularization=found.regularization, start=start)
        assert float((jnp.abs(again.parameters - found.parameters) / found.deviation).max()) < 1e-3


def test_intervals_hold_the_truth_and_agree_with_refits(found, pendulum):
    C = np.asarray(found.base.combination)
    truth = np.concatenate(
        [np.ravel(pendulum.inertia), pendulum.armature, pendulum.damping, pendulum.friction, [0.5, -0.25]]
    )
    value, deviation = (np.asarray(x) for x in found.base_values())
    assert (np.abs(value - C @ truth) < 4 * deviation).all()
    low, high = found.interval()
    assert bool((low < found.parameters).all())
    assert bool((found.parameters < high).all())
    refits = np.asarray(bootstrap(found, 64)) @ C.T
    ratio = refits.std(0) / deviation
    assert 0.5 < np.median(ratio) < 2
    assert ((np.asarray(found.informed) >= 0) & (np.asarray(found.informed) <= 1)).all()


def test_jit_vmap_and_grad(wrong, motion, noisy):
    """A batch is a loop, and the derivative is that of differences."""
    options = {"regularization": 10.0, "noise": [NOISE, NOISE]}

    def friction(scale):
        return identify(wrong, *motion, scale * noisy, **options).model.friction[0]

    values = jax.jit(jax.vmap(friction))(jnp.array([1.0, 1.0 + 1e-4, 1.0 - 1e-4]))
    one = identify(wrong, *motion, noisy, **options)
    assert abs(float(values[0] - one.model.friction[0])) < 1e-9
    slope = (values[1] - values[2]) / 2e-4
    assert abs(float(jax.jit(jax.grad(friction))(1.0)) - float(slope)) < 1e-5 * abs(float(slope))


def test_data_that_are_not_finite_give_a_status_and_the_prior(wrong, motion, noisy):
    bad = noisy.copy()
    bad[17, 1] = np.nan
    found = identify(wrong, *motion, bad)
    assert (found.status, found.success) == ("not finite", False)
    assert "tau is not finite in 1 of 120 samples, the first being 17" in found.message
    assert np.array_equal(found.model.inertia, wrong.inertia)
    assert np.isfinite(found.covariance).all()


def test_a_motion_that_excites_nothing_says_so(wrong, motion, noisy):
    still = tuple(0 * x for x in motion)
    found = identify(wrong, *still, 0 * noisy)
    assert found.status == "converged, weakly excited"
    assert "of 13 combinations" in found.message
    assert np.isfinite(found.parameters).all()
    assert (np.asarray(found.margins) > 0).all()


@pytest.mark.long
def test_too_few_samples_are_enough_for_an_answer(wrong, motion, noisy):
    found = identify(wrong, *(x[:2] for x in motion), noisy[:2])
    assert found.status == "converged, weakly excited"
    assert (np.asarray(found.margins) > 0).all()


def test_iteration_limit_and_table(wrong, motion, noisy, capsys):
    found = identify(wrong, *motion, noisy, regularization=1.0, max_iterations=2, verbose=True)
    assert found.status == "iteration limit"
    printed = capsys.readouterr().out
    assert "decrement" in printed
    assert "stopped after 2 iterations" in printed
    assert len(found.history.step) == 2


def test_unphysical_priors_are_projected_with_a_warning_and_massless_bodies_left_out(wrong, motion, noisy):
    no_body = np.asarray(wrong.inertia).copy()
    no_body[0, 9] = 10.0  # against the triangle inequality
    with pytest.warns(jaxdyn.ModelWarning, match="prior: the inertia of link1"):
        found = identify(wrong, *motion, noisy, prior=wrong.replace(inertia=no_body), regularization=1.0)
    assert (np.asarray(found.margins) > 0).all()
    negative = wrong.replace(inertia=wrong.inertia.at[1].multiply(-1.0))
    with pytest.warns(jaxdyn.ModelWarning, match="prior: the inertia of link2"):
        found = identify(wrong, *motion, noisy, prior=negative, regularization=1.0)
    assert (np.asarray(found.margins) > 0).all()
    no_body[0] = 0
    found = identify(wrong, *motion, noisy, prior=wrong.replace(inertia=no_body), regularization=1.0)
    assert not np.asarray(found.model.inertia[0]).any()
    assert found.success


def test_a_robot_without_mass_is_refused(wrong, motion, noisy):
    with pytest.raises(ValueError, match="prior: no body has mass"):
        identify(wrong, *motion, noisy, prior=wrong.replace(inertia=0 * wrong.inertia))


def test_data_in_single_precision_are_computed_with_in_double(wrong, motion, noisy):
    single = [np.asarray(x, np.float32) for x in (*motion, noisy)]
    found = identify(wrong.astype(jnp.float32), *single, regularization=1.0)
    assert found.success
    assert found.parameters.dtype == np.float64


def test_summary_names_everything(found):
    text = found.summary()
    for word in ("joint1", "link2", "viscous", "coulomb", "rotor", "offset", "13 combinations", "cross-validation"):
        assert word in text
    assert "converged" in repr(found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tau": np.zeros((120, 3))}, r"tau must have shape \(samples, 2\).*got \(120, 3\)"),
        ({"q": np.zeros((7, 2))}, "as many samples"),
        ({"q": np.zeros(2)}, r"q must have shape \(samples, 2\)"),
        ({"method": "entropy"}, "did you mean 'entropic'"),
        ({"regularization": -1.0}, "regularization.*must not be negative"),
        ({"noise": [1.0]}, r"noise must have shape \(2,\)"),
        ({"noise": [1.0, 0.0]}, "noise must be positive"),
        ({"folds": 1}, "folds must be an integer, 2 or more"),
        ({"start": np.zeros((2, 9))}, r"start must have shape \(2, 10\)"),
        ({"start": np.zeros((2, 10))}, "positive definite"),
    ],
)
def test_bad_arguments(wrong, motion, noisy, change, message):
    data = dict(zip(("q", "qd", "qdd"), motion, strict=True)) | {"tau": noisy}
    with pytest.raises(ValueError, match=message):
        identify(wrong, **(data | change))


def test_a_prior_of_another_robot_is_refused(wrong, motion, noisy):
    with pytest.raises(ValueError, match="prior must have the bodies"):
        identify(wrong, *motion, noisy, prior=jaxdyn.load("cartpole"))
    with pytest.raises(TypeError, match="prior must be a jaxdyn.Model"):
        identify(wrong, *motion, noisy, prior=3)
