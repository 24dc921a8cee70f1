"""Spatial operators as users write them: expressions, their recursions, inverses, errors, transformations."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import geared, long, quickly, relative

import jaxdyn
from jaxdyn.model.random_models import random_chain, random_tree
from jaxdyn.operators import innovations_factor, spatial_operators

N = 5


@pytest.fixture(scope="module")
def arm():
    return random_chain(N, seed=4, armature=True)


@pytest.fixture(scope="module")
def q(arm):
    return jaxdyn.random_configuration(arm, jax.random.key(0))


@pytest.fixture(scope="module")
def s(arm, q):
    return spatial_operators(arm, q)


# ---------------------------------------------------------------------- expressions
EXPRESSIONS = {
    "H @ phi @ M @ phi.T @ H.T": lambda s: s.H @ s.phi @ s.M @ s.phi.T @ s.H.T,
    "I - H @ psi @ K": lambda s: s.I - s.H @ s.psi @ s.K,
    "I - K.T @ psi.T @ H.T": lambda s: (s.I - s.H @ s.psi @ s.K).T,
    "(I + H @ phi @ K) @ D @ (I + K.T @ phi.T @ H.T)": lambda s: (
        (s.I + s.H @ s.phi @ s.K) @ s.D @ (s.I + s.H @ s.phi @ s.K).T
    ),
    "s0 * P - E_psi @ P @ E_psi.T": lambda s: 2.5 * s.P - s.E_psi @ s.P @ s.E_psi.T,
    "-B.T @ phi.T @ H.T": lambda s: -s.J("body_3"),
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_reads_as_it_is_written(s, text):
    assert repr(EXPRESSIONS[text](s)) == text


def test_shapes(s):
    assert s.H.shape == (N, 6 * N)
    assert s.G.shape == s.K.shape == s.H.T.shape == (6 * N, N)
    assert s.I.shape == s.phi.shape == (6 * N, 6 * N)
    assert (s.I - s.H @ s.psi @ s.K).shape == s.mass_matrix.shape == (N, N)


def test_identity_fits_every_space(s):
    for n in (N, 6 * N):
        x = np.arange(1.0, n + 1)
        np.testing.assert_array_equal(s.I @ x, x)
        np.testing.assert_array_equal((2.0 * s.I - s.I) @ x, x)


def test_products_with_inverses_vanish(s):
    assert repr(s.phi @ s.phi.inv()) == repr(s.m.inv() @ s.m) == repr(s.D @ s.D.inv()) == "I"
    assert repr(s.H @ s.psi @ s.psi.inv() @ s.K) == "H @ K"
    factor = s.I + s.H @ s.phi @ s.K
    assert repr(factor @ factor.inv()) == "I"


def test_an_identity_that_is_left_of_a_product_keeps_its_space(s):
    assert (s.m @ s.m.inv()).shape == (N, N)
    np.testing.assert_array_equal(s.D @ s.D.inv() @ np.arange(5.0), np.arange(5.0))
    with pytest.raises(ValueError, match=r"H takes body space \(30\), but I gives joint space \(5\)"):
        s.H @ (s.D @ s.D.inv())
    with pytest.raises(ValueError, match="there is no sum"):
        s.phi @ s.phi.inv() + s.D


def test_two_configurations_of_a_floating_base():
    """Every body vector is in world axes, whichever way the bases are turned."""
    model = random_tree(3, seed=2, joints=("revolute", "prismatic"), floating_base=True)
    poses = [jaxdyn.random_configuration(model, jax.random.key(k)) for k in range(2)]
    x = np.arange(1.0, model.nv + 1)

    def run(q, r):
        s, t = spatial_operators(model, q), spatial_operators(model, r)
        factors = [s.H, s.phi, t.M, t.phi.T, t.H.T]
        y = x
        for factor in reversed(factors):
            y = factor @ y
        return (factors[0] @ factors[1] @ factors[2] @ factors[3] @ factors[4]) @ x, y

    found, truth = quickly(run)(*poses)
    assert relative(found, truth) < 1e-12


def test_applying_sums_products_scalars_and_columns(arm, q):
    """Against the matrices of the parts: vectors, columns, traced scalars, operators of two configurations."""
    rng = np.random.default_rng(0)
    x, X, c = rng.normal(size=N), rng.normal(size=(N, 3)), 0.7

    def run(q, c):
        s, t = spatial_operators(arm, q), spatial_operators(arm, q + 0.3)
        mixed = c * s.H @ s.phi @ t.M @ s.phi.T @ t.H.T - 2 * (s.I + t.D) / 4
        parts = {"H": s.H, "phi": s.phi, "M": t.M, "Ht": t.H, "D": t.D}
        return mixed @ x, mixed @ X, {name: part.as_matrix() for name, part in parts.items()}

    vector, columns, d = quickly(run)(q, c)
    dense = c * d["H"] @ d["phi"] @ d["M"] @ d["phi"].T @ d["Ht"].T - (np.eye(N) + d["D"]) / 2
    assert relative(vector, dense @ x) < 1e-13
    assert relative(columns, dense @ X) < 1e-13


PRODUCTS = {
    "two sweeps of one way, then two of the other": lambda s: s.H @ s.psi @ s.K @ s.K.T @ s.psi.T @ s.H.T,
    "poses on the way out": lambda s: s.H @ s.phi @ s.M @ s.E_psi.T @ s.phi.T @ s.H.T + s.A,
    "the filter on the way in": lambda s: s.m.T @ s.L @ s.m.inv(),
    "a filter that comes late": lambda s: s.P_plus @ s.E_phi @ s.M @ s.phi.T,
    "frames between": lambda s: s.G.T @ s.psi.T @ s.B("body_3") @ s.J("body_2"),
}


@pytest.mark.parametrize("joints", [("revolute",), long(("revolute", "universal"))])
def test_passes_give_what_the_factors_give(joints):
    """Products at one vector share sweeps, with poses and filter; matrices of single factors do not."""
    model = random_tree(5, seed=2, joints=joints, floating_base=True, armature=True)
    q = np.asarray(jaxdyn.neutral(model)) + np.random.default_rng(1).normal(size=model.nq)
    X = np.random.default_rng(2).normal(size=(6 * model.nbodies, 3))

    def run(q):
        s = spatial_operators(model, q)
        products = {name: product(s) for name, product in PRODUCTS.items()}
        vectors = {name: A @ X[: A.shape[1], 0] for name, A in products.items()}
        many = jax.vmap(lambda x: s.m.inv() @ x, in_axes=1, out_axes=1)(X[: model.nv])
        alone = {name: getattr(s, name).as_matrix() for name in "H phi psi E_phi E_psi M P_plus A K L G m".split()}
        frames = {"B": s.B("body_3").as_matrix(), "J": s.J("body_2").as_matrix()}
        return vectors, many, alone | frames

    vectors, many, d = jax.tree.map(np.asarray, quickly(run)(q))
    truth = {
        "two sweeps of one way, then two of the other": d["H"] @ d["psi"] @ d["K"] @ (d["H"] @ d["psi"] @ d["K"]).T,
        "poses on the way out": d["H"] @ d["phi"] @ d["M"] @ d["E_psi"].T @ d["phi"].T @ d["H"].T + d["A"],
        "the filter on the way in": d["m"].T @ d["L"] @ np.linalg.inv(d["m"]),
        "a filter that comes late": d["P_plus"] @ d["E_phi"] @ d["M"] @ d["phi"].T,
        "frames between": d["G"].T @ d["psi"].T @ d["B"] @ d["J"],
    }
    for name, found in vectors.items():
        assert relative(found, truth[name] @ X[: truth[name].shape[1], 0]) < 1e-12, name
    assert relative(many, np.linalg.solve(d["m"], X[: model.nv])) < 1e-12


def test_velocities_and_forces_of_frames(arm, q):
    """phi* H* qd are the bodies' velocities; B picks frames, J is the Jacobian, of one frame and of several."""
    names, points = (arm.body_names[3], arm.body_names[1]), np.array([[0.1, 0.2, 0.3], [0.3, -0.1, 0.2]])
    qd, f = np.random.default_rng(1).normal(size=N), np.random.default_rng(2).normal(size=12)

    def run(q):
        s = spatial_operators(arm, q)
        J = s.J(*names, points=points)
        dense = jnp.concatenate([jaxdyn.jacobian(arm, q, name, p) for name, p in zip(names, points, strict=True)])
        return (
            ((s.phi.T @ s.H.T) @ qd, jaxdyn.body_velocities(arm, q, qd, axes="world").ravel()),
            (J @ qd, dense @ qd),
            (J.T @ f, dense.T @ f),
        )

    for found, truth in quickly(run)(q):
        assert relative(found, truth) < 1e-13


# ---------------------------------------------------------------------- inverses
def test_inverses(arm, q):
    """Of all that has one; the mass matrix without armature too."""
    b = np.random.default_rng(3).normal(size=6 * N)

    def run(q):
        s = spatial_operators(arm, q)
        newton_euler = s.H @ s.phi @ s.M @ s.phi.T @ s.H.T
        invertible = [
            s.phi, s.psi.T, s.I - s.E_psi, s.D, s.L.T, s.m, s.I - s.H @ s.psi @ s.K, (s.I + s.H @ s.phi @ s.K).T,
            s.mass_matrix, newton_euler, -3.0 * s.m @ s.m.T,
        ]  # fmt: skip
        return [A @ A.solve(b[: A.shape[0]]) for A in invertible]

    for back in quickly(run)(q):
        assert relative(back, b[: len(back)]) < 1e-11


def test_patterns_are_matched_exactly(s):
    """Signs and multiples go through an inverse; a term too many makes it another matrix, which has none."""
    M, whitening = s.mass_matrix, s.I - s.H @ s.psi @ s.K
    assert repr((2.0 * M).inv()) == "s1 * (I - K.T @ psi.T @ H.T) @ D^-1 @ (I - H @ psi @ K)"
    assert repr((-M).inv()) == "-(I - K.T @ psi.T @ H.T) @ D^-1 @ (I - H @ psi @ K)"
    assert repr((s.E_phi - s.I).inv()) == "-phi"
    assert repr((s.I - s.E_phi) @ s.phi) == repr(s.phi @ (s.I - s.E_phi)) == "I"
    for A in (M + s.A, s.I - s.E_phi - s.E_phi, whitening + s.I):
        with pytest.raises(ValueError, match="has no inverse"):
            A.inv()
    assert repr((s.I + s.I + s.H @ s.phi @ s.K) @ whitening) == "(I + I + H @ phi @ K) @ (I - H @ psi @ K)"


def test_determinants(arm, q):
    def run(q):
        s = spatial_operators(arm, q)
        found = [A.logdet() for A in (s.mass_matrix, s.m, s.D, s.phi, s.m @ s.m.T, s.I - s.H @ s.psi @ s.K, s.m.inv())]
        newton_euler = s.H @ s.phi @ s.M @ s.phi.T @ s.H.T
        bare = (newton_euler.logdet(), (-2.0 * newton_euler).logdet() - N * jnp.log(2.0))
        M = jaxdyn.mass_matrix(arm, q)
        truth = [jnp.linalg.slogdet(x)[1] for x in (M, M - jnp.diag(arm.armature))]
        return jnp.stack([*found, (-2.0 * s.D).logdet() - N * jnp.log(2.0)]), jnp.stack(bare), truth

    found, bare, truth = quickly(run)(q)
    np.testing.assert_allclose(found, truth[0] * np.array([1, 0.5, 1, 0, 1, 0, -0.5, 1]), atol=1e-12)
    np.testing.assert_allclose(bare, truth[1], atol=1e-12)
    assert abs(truth[0] - truth[1]) > 1e-3


def test_where_there_is_no_inverse(s):
    for A in (s.M, s.H, s.I + s.phi, s.E_phi, s.P + s.M):
        with pytest.raises(ValueError, match=re.escape(f"{A!r} has no inverse in the algebra")):
            A.inv()
    with pytest.raises(ValueError, match="the determinant of M is not known"):
        s.M.logdet()


def test_known_patterns_of_operators_that_come_apart(s, arm, q):
    """Of two calls, or one by one through jit, operators may be of two configurations."""
    t = spatial_operators(arm, np.asarray(q))
    apart = (s.I + s.H @ t.phi @ s.K, s.H @ t.phi @ s.M @ t.phi.T @ s.H.T, s.H @ s.phi @ t.M @ s.phi.T @ s.H.T + s.A)
    for A in apart:
        for call in (A.inv, A.logdet):
            with pytest.raises(ValueError, match=r"come from 2 different calls of spatial_operators.*one call returns"):
                call()
    with pytest.raises(ValueError, match="come from 3 different calls"):
        jax.jit(lambda H, phi, K: (s.I + H @ phi @ K).inv())(s.H, s.phi, s.K)
    with pytest.raises(ValueError, match="has no inverse in the algebra"):
        (s.I + t.phi @ s.phi).inv()


# ---------------------------------------------------------------------- errors
def test_spaces_that_do_not_fit(s):
    with pytest.raises(ValueError, match=r"H takes body space \(30\), but D gives joint space \(5\)"):
        s.H @ s.D
    with pytest.raises(ValueError, match=r"phi takes body space \(30\) to body space \(30\), but D takes joint space"):
        s.phi + s.D
    with pytest.raises(ValueError, match="the identity needs a square operator"):
        s.I - s.H
    with pytest.raises(ValueError, match=r"H takes a vector \(30,\) of body space \(30\), or a matrix \(30, k\); got"):
        s.H @ np.ones(5)
    with pytest.raises(ValueError, match="multiplied by a scalar"):
        s.H * np.ones(3)
    with pytest.raises(TypeError, match="can be added to another operator"):
        s.H + 1.0
    for difference in (lambda: s.D - 1.0, lambda: 1.0 - s.D):
        with pytest.raises(TypeError, match="D can be added to another operator; got float"):
            difference()
    with pytest.raises(ValueError, match="at least one frame"):
        s.B()
    with pytest.raises(ValueError, match="points must be one per frame"):
        s.B("body_1", points=np.zeros((2, 3)))


def test_robots_and_batches_that_do_not_fit(s, arm, q):
    other = random_chain(N, seed=4, joints=("prismatic",))
    with pytest.raises(ValueError, match="belong to robots of different structure"):
        s.H @ spatial_operators(other, q).phi
    many = jax.vmap(lambda q: spatial_operators(arm, q).mass_matrix)(jnp.stack([q, q]))
    with pytest.raises(ValueError, match=r"jax\.vmap"):
        many @ np.ones(N)


def test_rows_and_sums(s):
    x = np.arange(1.0, N + 1)
    np.testing.assert_allclose(x @ s.L, s.L.T @ x)
    assert repr(sum([s.D, s.A])) == "D + A"


def test_models_that_do_not_fit(arm):
    model = geared()
    with pytest.raises(ValueError, match="'geared' has the mimic joints 'joint_2'.*mimic=False"):
        spatial_operators(model, np.zeros(model.nq))
    with pytest.raises(ValueError, match=r"q must have shape \(5,\)"):
        spatial_operators(arm, np.zeros(3))
    with pytest.raises(TypeError, match=r"must be a jaxdyn\.Model"):
        spatial_operators("arm", np.zeros(3))


def test_a_model_without_bodies():
    s = spatial_operators(jaxdyn.ModelBuilder("nothing").build(), np.zeros(0))
    assert (s.phi @ np.zeros(0)).shape == (s.mass_matrix.inv() @ np.zeros(0)).shape == (0,)
    assert float(s.m.logdet()) == 0


# ---------------------------------------------------------------------- transformations
def test_operators_are_pytrees(arm, q):
    """They go into and out of `jit` and `vmap`, alone and as a whole."""
    s = spatial_operators(arm, q)
    A, x = s.H @ s.phi @ s.M @ s.phi.T @ s.H.T, np.arange(1.0, N + 1)
    truth = np.asarray(A @ x)
    inside = jax.jit(lambda A, s, x: ((A + s.A) @ x, s.A @ x))(A, s, x)
    assert relative(inside[0] - inside[1], truth) < 1e-13
    many = jax.vmap(lambda q: spatial_operators(arm, q).D)(jnp.stack([q, q + 1]))
    each = jax.vmap(lambda D: D @ x)(many)
    assert relative(each[0], s.D @ x) < 1e-13
    assert relative(each[1], spatial_operators(arm, q + 1).D @ x) < 1e-13


def test_derivatives_of_the_factor(arm, q):
    """By q, by the model and by x, forward and reverse: those of a Cholesky factor."""
    x, w = np.random.default_rng(4).normal(size=(2, N))
    order = np.arange(N)[::-1]

    class Cholesky:
        def __init__(self, model, q):
            M = jaxdyn.mass_matrix(model, q, form="sweep")
            self.matrix = jnp.linalg.cholesky(M[np.ix_(order, order)])[np.ix_(order, order)]

        def numbers(self, x):
            m, solve = self.matrix, jnp.linalg.solve
            return (w @ m.T @ x, w @ solve(m, x)), (w @ m @ x, w @ solve(m.T, x), jnp.log(jnp.diag(m)).sum())

    class Innovations:
        def __init__(self, model, q):
            self.m = innovations_factor(model, q)

        def numbers(self, x):
            m = self.m
            return (w @ (m.T @ x), w @ m.solve(x)), (w @ (m @ x), w @ m.T.solve(x), m.logdet())

    def run(q, x):
        along = jnp.cos(q), jnp.sin(x)
        forward = lambda factor: jax.jvp(lambda q, x: factor(arm, q).numbers(x)[0], (q, x), along)
        reverse = lambda factor: jax.grad(
            lambda inertia, q, x: sum(factor(arm.replace(inertia=inertia), q).numbers(x)[1]), (0, 1, 2)
        )(arm.inertia, q, x)
        return [(f(Innovations), f(Cholesky)) for f in (forward, reverse)]

    for found, truth in quickly(run)(q, x):
        jax.tree.map(lambda a, b: np.testing.assert_array_less(relative(a, b), 1e-10), found, truth)


# ---------------------------------------------------------------------- cost
def test_nothing_dense_is_formed():
    """512 bodies: no array in the compiled program has as many elements as a matrix of joint or body space."""
    n = 512
    model = random_chain(n, seed=1, armature=True)
    q = np.zeros(n)

    def run(q, x):
        s = spatial_operators(model, q)
        return (s.H @ s.phi @ s.M @ s.phi.T @ s.H.T) @ x + s.m.T.solve(s.m.solve(x))

    text = jax.jit(run).lower(q, q).compile().as_text()
    sizes = {int(np.prod([int(k) for k in shape.split(",")])) for shape in re.findall(r"f64\[([\d,]+)\]", text)}
    assert n * 6 <= max(sizes) < n * n / 4
    assert max(sizes) <= 64 * n
    assert "while" in text


SWEEPS = {
    "as Newton-Euler, out and in": (2, lambda s: s.H @ s.phi @ s.M @ s.phi.T @ s.H.T),
    "as the articulated-body algorithm, out, in and out": (3, lambda s: s.m.T.inv() @ s.m.inv()),
    "in parts: poses, filter and E_phi and psi, all of it back": (3, lambda s: s.K.T @ s.psi.T @ s.psi @ s.K),
    "nothing to sweep but poses": (1, lambda s: s.H @ s.M @ s.H.T),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_products_take_few_sweeps(arm, q, name):
    count, product = SWEEPS[name]
    sweeps = lambda f, *args: jax.jit(f).lower(*args).as_text().count("stablehlo.while")
    assert sweeps(lambda q, x: product(spatial_operators(arm, q)) @ x, q, q) == count


def test_many_vectors_at_one_configuration_share_poses_and_filter(arm, q):
    """They are found before, for one state: no row of the filter's sweep is as long as the batch."""
    run = jax.vmap(lambda q, x: innovations_factor(arm, q).inv() @ x, in_axes=(None, 0))
    text = jax.jit(run).lower(q, jnp.ones((24, N))).as_text()
    assert text.count("stablehlo.while") == 3
    assert "stablehlo.sqrt" in text
    assert not re.search(r"stablehlo.sqrt .*24x", text)


def test_no_recompilation_by_other_numbers(arm, q):
    traces = []

    @jax.jit
    def run(model, q, x):
        traces.append(0)
        s = spatial_operators(model, q)
        return (0.5 * s.H @ s.phi @ s.M @ s.phi.T @ s.H.T) @ x

    x = jnp.ones(N)
    first = run(arm, q, x)
    assert not np.allclose(first, run(arm.replace(inertia=2 * arm.inertia), q + 1, 2 * x))
    assert len(traces) == 1
