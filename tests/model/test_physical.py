"""Physical inertias: moments of distributions of mass. Witnesses are clouds of point masses, NumPy and autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.bodies import (
    BODIES,
    DTYPES,
    box,
    cloud,
    clouds,
    eigenvalues,
    parameters,
    point_masses,
    random_theta,
    rotation,
    second_moments,
    turned,
)
from helpers.states import quickly, relative

import jaxdyn
from jaxdyn import ModelBuilder
from jaxdyn.model import (
    entropic_divergence,
    from_log_cholesky,
    from_pseudo_inertia,
    is_physical,
    log_cholesky,
    log_cholesky_jacobian,
    physical_margins,
    project_physical,
    pseudo_inertia,
)
from jaxdyn.model.bundled import BUNDLED
from jaxdyn.model.consistency import inertia_problems
from jaxdyn.spatial import RigidInertia, Transform


@pytest.fixture(scope="module")
def one_body():
    return ModelBuilder().add_body("b", mass=1.0, inertia=(0.1, 0.1, 0.1)).build()


def judged(model, pi):
    """Return for each of n inertias whether a model of that one body is physical, and its margin."""
    batch = model.replace(inertia=jnp.asarray(pi)[:, None])
    verdict, margins = is_physical(batch), physical_margins(batch)
    assert verdict.dtype == bool
    return np.asarray(verdict), np.asarray(margins[:, 0])


def test_the_pseudo_inertia_is_the_second_moment_of_a_distribution_of_mass():
    x, w = cloud(0, 20)
    P, pi = second_moments(x, w), point_masses(x, w)
    assert relative(pseudo_inertia(pi), P) < 1e-14
    assert relative(from_pseudo_inertia(P), pi) < 1e-14
    assert relative(from_pseudo_inertia(pseudo_inertia(pi[0])), pi[0]) < 1e-14


def test_log_cholesky_is_the_factor_numpy_finds():
    pi = clouds(1, 20)
    P = np.asarray(pseudo_inertia(pi))
    U = np.linalg.cholesky(P[:, ::-1, ::-1])[:, ::-1, ::-1]  # upper triangular: all indices reversed
    m = pi[:, :1, None]
    U = U / np.sqrt(m)
    s = np.stack([U[:, 0, 1], U[:, 1, 2], U[:, 0, 2]], -1)
    d = np.log(np.diagonal(U, axis1=1, axis2=2)[:, :3])
    theta = np.concatenate([0.5 * np.log(m[..., 0]), d, s, pi[:, 1:4] / pi[:, :1]], -1)
    assert relative(log_cholesky(pi), theta) < 1e-11


@DTYPES
def test_log_cholesky_is_a_bijection_onto_physical_inertias(dtype):
    eps = np.finfo(dtype).eps
    theta = random_theta(2, 200).astype(dtype) * dtype(0.7)
    pi = from_log_cholesky(theta)
    assert pi.dtype == dtype
    assert (np.linalg.eigvalsh(pseudo_inertia(np.asarray(pi, np.float64)))[:, 0] > 0).all()
    assert relative(log_cholesky(pi), theta) < 5e3 * eps  # by the condition of these bodies
    pi = np.stack([clouds(3, 1)[0], *BODIES.values()]).astype(dtype)
    again = np.asarray(from_log_cholesky(log_cholesky(pi)))
    for came, wanted in zip(again, pi, strict=True):  # backward stable: as good for the thinnest
        assert relative(came, wanted) < 20 * eps


def test_barely_positive_inertias_have_coordinates():
    thickness = np.array([1e-3, 1e-5, 1e-7])
    thin = np.stack([box(1.0, (1.0, 1.0, h)) for h in thickness])
    theta = np.asarray(log_cholesky(thin))
    assert np.abs(np.exp(2 * theta[:, 3]) - thickness**2 / 12).max() < 1e-16  # moments of 0.1 are no more exact
    assert relative(from_log_cholesky(theta), thin) < 1e-15


def test_what_has_no_coordinates_is_refused():
    good, bad = box(1.0, (0.1, 0.2, 0.3)), np.array([1.0, 0, 0, 0, 0.1, 0, 0.1, 0, 0, 0.4])
    pi = np.stack([good, good, bad])
    with pytest.raises(ValueError, match=r"pi: body 2: .* least eigenvalue is -0.1\. project_physical"):
        log_cholesky(pi)
    with pytest.raises(ValueError, match=r"pi: body \(0, 2\): "):
        log_cholesky(pi[None])
    with pytest.raises(ValueError, match=r"prior: body 2: "):
        entropic_divergence(good, pi)
    with pytest.raises(ValueError, match=r"least eigenvalue is 0\. "):
        log_cholesky(np.zeros(10))
    with pytest.raises(ValueError, match="pi: the inertia is not finite"):
        log_cholesky(good * np.nan)
    with pytest.raises(ValueError, match=r"pi must have shape \(..., 10\), .* got \(9,\)"):
        log_cholesky(np.ones(9))
    with pytest.raises(ValueError, match=r"P must have shape \(..., 4, 4\); got \(3, 3\)"):
        from_pseudo_inertia(np.eye(3))
    with pytest.raises(ValueError, match="margin.*must not be negative; got -1"):
        project_physical(good, margin=-1)
    traced = np.isfinite(jax.jit(log_cholesky)(pi)).all(-1)
    assert traced.tolist() == [True, True, False]


def test_the_jacobian_and_its_inverse_equal_their_twins():
    theta = random_theta(4, 20) * 0.5
    J, inverse = log_cholesky_jacobian(theta), log_cholesky_jacobian(theta, inverse=True)
    twins = quickly(
        jax.vmap(lambda x: (jax.jacfwd(from_log_cholesky)(x), jax.jacfwd(log_cholesky)(from_log_cholesky(x))))
    )
    J_twin, inverse_twin = twins(theta)
    assert relative(J, J_twin) < 1e-14
    for a, b in zip(inverse, inverse_twin, strict=True):
        assert relative(a, b) < 1e-9  # the twin subtracts
    assert np.abs(np.asarray(J @ inverse) - np.eye(10)).max() < 1e-11


def test_the_divergence_is_that_of_log_det():
    pi, prior = clouds(5, 30), clouds(6, 30)
    W = np.linalg.solve(np.asarray(pseudo_inertia(prior)), np.asarray(pseudo_inertia(pi)))
    wanted = np.trace(W, axis1=1, axis2=2) - np.linalg.slogdet(W)[1] - 4
    assert relative(entropic_divergence(pi, prior) / wanted, np.ones(30)) < 1e-9
    assert (wanted > 0).all()
    assert relative(entropic_divergence(pi, prior[0])[0], wanted[0]) < 1e-9  # one prior for all
    assert np.abs(entropic_divergence(pi, pi)).max() < 1e-20
    near = entropic_divergence((1 + 1e-4) * pi, pi)
    assert relative(near / (4 * (1e-4 - np.log1p(1e-4))), np.ones(30)) < 1e-6


def test_the_divergence_does_not_depend_on_frame_and_units():
    """Nor on any affine map of space: bodies may be sheared together."""
    pi, prior = clouds(7, 20), clouds(8, 20)
    wanted = np.asarray(entropic_divergence(pi, prior))
    rng = np.random.default_rng(9)
    X = Transform.from_pose(jnp.asarray(rng.normal(size=(20, 7))))
    moved = [RigidInertia.from_parameters(jnp.asarray(p)).transform(X).to_parameters() for p in (pi, prior)]
    assert relative(moved[0][:, 0], pi[:, 0]) < 1e-15
    assert relative(moved[0], pi) > 0.1
    assert relative(entropic_divergence(*moved) / wanted, np.ones(20)) < 1e-8
    grams_and_millimetres = np.array([1e3, *[1e6] * 3, *[1e9] * 6])
    other = entropic_divergence(pi * grams_and_millimetres, prior * grams_and_millimetres)
    assert relative(other / wanted, np.ones(20)) < 1e-9
    x, w = cloud(7, 20)
    x2, w2 = cloud(8, 20)
    A, b = rng.normal(size=(3, 3)), rng.normal(size=3)
    sheared = [point_masses(y @ A.T + b, v) for y, v in ((x, w), (x2, w2))]
    assert relative(entropic_divergence(*sheared) / wanted, np.ones(20)) < 1e-6


def test_the_divergences_hessian_is_the_metric_of_positive_matrices():
    prior = clouds(10, 1)[0]
    gradient = jax.grad(lambda pi: entropic_divergence(pi, prior))
    slope, hessian = quickly(lambda pi: (gradient(pi), jax.jacfwd(gradient)(pi)))(prior)
    assert np.abs(slope).max() < 1e-9
    basis = np.asarray(pseudo_inertia(np.eye(10)))
    W = np.linalg.solve(np.asarray(pseudo_inertia(prior)), basis)
    assert relative(hessian, np.einsum("aij,bji->ab", W, W)) < 1e-9


def test_bundled_robots_are_physical(one_body):
    pi = np.concatenate([jaxdyn.load(name).inertia for name in BUNDLED])
    verdict, margins = judged(one_body, pi)
    assert verdict.all()
    assert (margins > 0).all()
    assert (eigenvalues(pi) > 0).all()
    assert judged(one_body, pi.astype(np.float32))[0].all()
    assert np.isfinite(log_cholesky(pi.astype(np.float32))).all()
    arm = jaxdyn.load("arm7")
    assert is_physical(arm).shape == ()
    assert is_physical(arm)
    wrong = arm.replace(inertia=arm.inertia.at[3, 9].add(arm.inertia[3, 4] + arm.inertia[3, 6]))
    assert not is_physical(wrong)
    assert (np.asarray(physical_margins(wrong)) < 0).nonzero()[0].tolist() == [3]


def test_verdicts_are_those_of_loaders(one_body):
    """On random inertias about half of which break a rule, and on those that lie at the bounds."""
    rng = np.random.default_rng(11)
    n, pi, wanted = 400, [], []
    for _ in range(n):
        m, c, R = rng.uniform(0.1, 3), rng.normal(size=3), rotation(rng.integers(1 << 30))
        I = R @ np.diag(rng.uniform(-0.05, 1, 3)) @ R.T
        pi.append(parameters(m, c, I))
        wanted.append(not list(inertia_problems(m, I)))
    assert 0.3 < np.mean(wanted) < 0.7
    verdict, margins = judged(one_body, np.stack(pi))
    np.testing.assert_array_equal(verdict, wanted)
    np.testing.assert_array_equal(margins > 0, eigenvalues(np.stack(pi))[:, 0] > 0)
    np.testing.assert_array_equal(margins > 0, wanted)


@DTYPES
def test_verdicts_at_the_bounds(one_body, dtype):
    I = np.diag([1.0, 2.0, 3.0])
    spin = rotation(3)[:, 2]
    cases = {  # mass, inertia about the centre of mass, whether it is physical
        "plate": (1.0, I, True),
        "plate in a file": (1.0, np.diag([1.0, 2.0, 3.000005]), True),
        "too flat": (1.0, np.diag([1.0, 2.0, 3.0004]), False),
        "rod": (1.0, np.diag([1.0, 1.0, 0.0]), False),
        "point": (1.0, np.zeros((3, 3)), False),
        "no body": (0.0, np.zeros((3, 3)), True),
        "rotor": (0.0, 1e-4 * np.outer(spin, spin), True),
        "inertia without mass": (0.0, I, False),
    }
    pi = np.stack([parameters(m, np.zeros(3), I) for m, I, _ in cases.values()]).astype(dtype)
    verdict, margins = judged(one_body, pi)
    wanted = [ok for *_, ok in cases.values()]
    assert dict(zip(cases, verdict.tolist(), strict=True)) == dict(zip(cases, wanted, strict=True))
    assert [not list(inertia_problems(m, I)) for m, I, _ in cases.values()] == wanted
    assert relative(margins, [0, -5e-6 / 3.000005, -0.0004 / 3.0004, 0, 0, 0, -1, -1]) < 2 * np.finfo(dtype).eps
    assert not judged(one_body, -pi[:1])[0][0]
    assert not judged(one_body, pi[:1] * np.nan)[0][0]
    assert not judged(one_body, np.array([[0, 1, 0, 0, *[0] * 6]], dtype))[0][0]  # a moment without mass


def test_rotors_and_massless_bodies_pass_as_they_do_in_loaders(one_body):
    geared = jaxdyn.add_rotors(one_body, {"joint_0": jaxdyn.Rotor(ratio=50, inertia=1e-4)})
    assert bool(is_physical(geared))
    with pytest.raises(ValueError, match="body 1: .* project_physical"):
        log_cholesky(geared.inertia)
    projected = project_physical(geared.inertia, margin=1e-9)
    assert np.isfinite(log_cholesky(projected)).all()


@DTYPES
def test_margins_of_boxes_in_any_frame(one_body, dtype):
    sides = np.array([[1, 1, 1], [1, 1, 0], [3, 2, 1], [1, 0.1, 0.1]])
    squares = np.sort(sides**2, -1)
    wanted = 2 * squares[:, 0] / (squares[:, 1] + squares[:, 2])
    pi = [turned(rotation(i), box(i + 0.5, s, (0.3, 0.1, -0.2))) for i, s in enumerate(sides)]
    assert relative(judged(one_body, np.stack(pi).astype(dtype))[1], wanted) < 20 * np.finfo(dtype).eps
    moved = np.stack([box(1.0, sides[1], (5.0, 3, 2))]).astype(dtype)  # a plate far away, to rounding
    assert judged(one_body, moved)[0].all()


@DTYPES
def test_values_gradients_and_hessians_are_finite(one_body, dtype):
    """At repeated eigenvalues, of thin and of tiny bodies, and where the projection has a kink."""
    pi = np.stack(list(BODIES.values())).astype(dtype)
    assert eigenvalues(pi[1]) == pytest.approx(np.ones(4))
    theta, v = log_cholesky(pi), np.linspace(-1, 1, 10).astype(dtype)
    once = lambda f: jax.vmap(lambda x: (f(x), jax.jacfwd(f)(x)))

    def twice(f):
        def gradient(x):
            value, slope = jax.value_and_grad(f)(x)
            return slope, (value, slope)

        return jax.vmap(jax.jacfwd(gradient, has_aux=True))

    def divergence(x):
        both = jnp.stack([x, 1.3 * jax.lax.stop_gradient(x)])
        return entropic_divergence(both, both[::-1]).sum()

    @quickly
    def everything(pi, theta, margins):
        at = lambda margin: twice(lambda x: project_physical(x, margin=margin) @ v)(jnp.concatenate([pi, -pi]))
        return {
            "log_cholesky": twice(lambda x: log_cholesky(x) @ v)(pi),
            "from_log_cholesky": (from_log_cholesky(theta), once(log_cholesky_jacobian)(theta)),
            "inverse jacobian": log_cholesky_jacobian(theta, inverse=True),
            "divergence": twice(divergence)(pi),
            "projection": jax.vmap(at)(margins),
            "margins": twice(lambda x: physical_margins(one_body.replace(inertia=x[None])).sum())(pi),
        }

    found = everything(pi, theta, np.array([0, 1e-6, 1, 10], dtype))
    assert np.abs(found["margins"][0][0]).max() < 1e5  # the Hessian at a sphere: rounding parts no eigenvalues
    for name, parts in found.items():
        for values in jax.tree.leaves(parts):
            assert values.dtype == dtype
            assert np.isfinite(values).all(), name


def test_batches_of_any_shape():
    pi = clouds(23, 6)
    for f in (project_physical, lambda x: entropic_divergence(x, 2 * pi[0])):
        whole = np.asarray(f(pi.reshape(2, 3, 10)))
        assert relative(whole.reshape(6, *whole.shape[2:]), jax.vmap(f)(pi)) < 1e-14
        assert f(pi[:0]).shape == (0, *whole.shape[2:])
