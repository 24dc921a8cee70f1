"""Forward dynamics, inverse mass matrix and operational space in operators, against dense matrices."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import long, quickly, random_state, relative

import jaxdyn
from jaxdyn import operators
from jaxdyn.model.random_models import random_chain, random_tree

TOLERANCE = 1e-10
ROWS = (3, 4)
POINTS = np.array([[0.1, 0.2, 0.3], [0.3, -0.1, 0.2]])
FORCE = np.arange(12.0) / 5


class Case:
    """Everything about one robot at one state, by one program."""

    def __init__(self, model):
        self.model = model
        state = random_state(model, seed=1)
        q, qd, tau, f_ext = (state[name] for name in ("q", "qd", "tau", "f_ext"))
        names = (model.body_names[-1], model.body_names[1])

        def run(q):
            M = jaxdyn.mass_matrix(model, q)
            X = jnp.linalg.inv(M)
            J = jnp.concatenate([jaxdyn.jacobian(model, q, *frame) for frame in zip(names, POINTS, strict=True)])
            rate = [jaxdyn.jacobian_bias(model, q, qd, *frame) for frame in zip(names, POINTS, strict=True)]
            g = jaxdyn.gravity_force(model, q)
            c = jaxdyn.bias_force(model, q, qd) - g
            qdd = jaxdyn.forward_dynamics(model, q, qd, tau, f_ext=f_ext)
            both = {}
            for biases in ("before", "inside"):
                both[f"qdd, biases {biases}"] = (
                    operators.forward_dynamics(model, q, qd, tau, f_ext=f_ext, biases=biases),
                    qdd,
                )
            s, (a, b) = operators.spatial_operators(model, q), operators.bias_terms(model, q, qd)
            both["C"] = (s.H @ s.phi) @ (s.M @ (s.phi.T @ a) + b), c + g
            both["M^-1"] = operators.mass_matrix_inverse(model, q), X
            frames = model, q, names, POINTS
            both["J M^-1 J*"] = operators.operational_space_inertia_inverse(*frames), J @ X @ J.T
            both["J J*"] = operators.jacobian_gram(*frames), J @ J.T
            both["-M^-1 J* f"] = operators.tip_force_acceleration(model, q, names, FORCE, POINTS), -X @ J.T @ FORCE
            task, T = operators.operational_space_dynamics(model, q, qd, names, POINTS, rows=ROWS), J[np.array(ROWS)]
            Lambda = jnp.linalg.inv(T @ X @ T.T)
            both["Lambda"] = task.inertia, Lambda
            both["mu"] = task.coriolis, Lambda @ (T @ X @ c - jnp.concatenate(rate)[np.array(ROWS)])
            both["p"] = task.gravity, Lambda @ T @ X @ g
            both["null space"] = task.null_space(qd), qd - X @ T.T @ Lambda @ T @ qd
            both["null space*"] = task.null_space_T(tau), tau - T.T @ Lambda @ T @ X @ tau
            one = jaxdyn.jacobian(model, q, names[0], POINTS[0])
            both["(J* J + 0.3)^-1"] = (
                operators.jacobian_normal_inverse(model, q, names[0], POINTS[0], damping=0.3),
                jnp.linalg.inv(one.T @ one + 0.3 * jnp.eye(model.nv)),
            )
            return both

        self.both = quickly(run)(q)


ROBOTS = {
    "chain": lambda: random_chain(4, seed=1, joints=("revolute", "spherical", "prismatic"), armature=True),
    "tree on a floating base": lambda: random_tree(
        5, seed=2, joints=("revolute", "prismatic", "spherical"), floating_base=True, armature=True
    ),
}
QUANTITIES = (
    "qdd, biases before", "qdd, biases inside", "C", "M^-1", "J M^-1 J*", "J J*", "-M^-1 J* f", "Lambda", "mu", "p",
    "null space", "null space*", "(J* J + 0.3)^-1",
)  # fmt: skip


@pytest.fixture(scope="module", params=["chain", pytest.param("tree on a floating base", marks=pytest.mark.long)])
def case(request):
    return Case(ROBOTS[request.param]())


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_quantity(case, quantity):
    found, truth = case.both[quantity]
    assert relative(found, truth) < TOLERANCE


# ---------------------------------------------------------------------- an arm of two joints, straight and bent
@pytest.fixture(scope="module")
def two_links():
    builder = jaxdyn.ModelBuilder("two")
    link = {"mass": 1.0, "com": (0.0, 0.0, -0.5), "inertia": (0.1, 0.1, 0.01)}
    builder.add_body("upper", axis=(0, 1, 0), **link)
    return builder.add_body("lower", "upper", xyz=(0, 0, -1), axis=(0, 1, 0), **link).build()


TIP = (0.0, 0.0, -1.0)
STRAIGHT, BENT = np.zeros(2), np.array([0.3, 1.2])


def test_a_task_that_fits_the_arm_is_exact(two_links):
    """Directions x and z of two joints: Lambda = J^-T M J^-1; the manipulability is |det J| = l1 l2 |sin q2|."""
    inertia = operators.operational_space_inertia(two_links, BENT, "lower", TIP, rows=(3, 5))
    J = np.asarray(jaxdyn.jacobian(two_links, BENT, "lower", TIP))[[3, 5]]
    inverse = np.linalg.inv(J)
    assert relative(inertia, inverse.T @ np.asarray(jaxdyn.mass_matrix(two_links, BENT)) @ inverse) < TOLERANCE
    volume = operators.manipulability(two_links, BENT, "lower", TIP, rows=(3, 5))
    np.testing.assert_allclose(volume, np.sin(1.2), rtol=1e-12)
    slope = jax.grad(lambda q: operators.manipulability(two_links, q, "lower", TIP, rows=(3, 5)))(jnp.asarray(BENT))
    np.testing.assert_allclose(slope, [0, np.cos(1.2)], atol=1e-12)


def test_singular_poses_and_few_joints_give_finite_values_and_gradients(two_links):
    """Two joints move the tip in two of six directions, and the straight arm in one.

    With damping the inertia is 1 / delta at most; without, it is the pseudo-inverse: other directions drop out.
    """

    def inertias(q):
        whole = operators.operational_space_inertia_inverse(two_links, q, "lower", TIP)
        of = partial(operators.operational_space_inertia, two_links, q, "lower", TIP)
        return whole, [of(rows=rows, damping=damping) for rows in (None, (3, 5)) for damping in (None, 1e-3)]

    for q in (STRAIGHT, BENT):
        whole, found = quickly(inertias)(q)
        assert np.linalg.matrix_rank(whole, tol=1e-9) == 2
        for Lambda, delta in zip(found[1::2], (1e-3, 1e-3), strict=True):
            size = np.linalg.eigvalsh(Lambda)
            assert size.min() > 0
            assert size.max() <= (1 + 1e-9) / delta
        for Lambda, X in zip(found[::2], (whole, whole[np.ix_((3, 5), (3, 5))]), strict=True):
            assert relative(Lambda, np.linalg.pinv(X, rcond=1e-9)) < 1e-4  # of directions that drop out, rounding
            assert np.linalg.eigvalsh(Lambda).min() > -1e-12

    def task(q):
        Lambda = operators.operational_space_inertia(two_links, q, "lower", TIP, rows=(3, 5), damping=1e-3)
        return Lambda.sum() + operators.manipulability(two_links, q, "lower", TIP, rows=(3, 5))

    assert np.all(np.isfinite(quickly(jax.grad(task))(STRAIGHT)))
    np.testing.assert_allclose(operators.manipulability(two_links, STRAIGHT, "lower", TIP, rows=(3, 5)), 0, atol=1e-7)


TOLERANCES = {np.float64: (1e-10, 1e-5), np.float32: (1e-4, 1e-2)}
"""Of projectors, and of their derivatives."""


@pytest.mark.parametrize("rows", [(3, 4, 5), long(None), long((3, 5))])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_projectors_at_singular_poses_and_of_few_joints(two_links, rows, dtype):
    """P = 1 - Jbar J with Jbar = M^-1 J* (J M^-1 J*)^+, by matrices; P P = P, J P = 0.

    P of the bent arm is zero whatever q: so are its derivatives. Those of the straight arm are finite.
    """
    model = two_links.astype(dtype)
    (tolerance, of_slopes), x = TOLERANCES[dtype], np.array([0.4, -1.3], dtype)
    picked = np.arange(6) if rows is None else np.array(rows)

    def run(q):
        task = operators.operational_space_dynamics(model, q, x, "lower", TIP, rows=rows)
        P, P_T = task.null_space(jnp.eye(2, dtype=dtype)), task.null_space_T(jnp.eye(2, dtype=dtype))
        return (P @ x).sum(), (P, P_T, task.consistent_inverse(jnp.eye(len(picked), dtype=dtype)))

    def by_matrices(q):
        J = jaxdyn.jacobian(two_links, q, "lower", TIP)[picked]
        X = jnp.linalg.inv(jaxdyn.mass_matrix(two_links, q))
        inverse = X @ J.T @ jnp.linalg.pinv(J @ X @ J.T, rtol=1e-9)
        return jnp.eye(2) - inverse @ J, inverse, J

    both, truths = quickly(jax.value_and_grad(run, has_aux=True)), quickly(by_matrices)
    for q in (np.array([0.7, 0.0], dtype), BENT.astype(dtype)):
        (_, (P, P_T, inverse)), slopes = both(q)
        truth, inverse_truth, J = truths(q.astype(np.float64))
        assert np.abs(P - truth).max() < tolerance
        assert np.abs(P_T - truth.T).max() < tolerance
        assert np.abs(P @ P - P).max() < tolerance
        assert np.abs(J @ P).max() < tolerance
        assert relative(inverse, inverse_truth) < tolerance
        assert np.all(np.isfinite(slopes))
        assert (np.abs(truth).max() > 0.5) == (q[1] == 0 and rows is not None)  # the straight arm leaves something
    assert np.abs(slopes).max() < of_slopes


def test_a_massless_joint_is_refused():
    builder = jaxdyn.ModelBuilder("massless")
    builder.add_body("a", axis=(0, 1, 0), mass=1.0, com=(0, 0, 0.3), inertia=(0.1, 0.1, 0.1))
    builder.add_body("b", "a", xyz=(0, 0, 0.5), axis=(1, 0, 0))
    with pytest.warns(jaxdyn.ModelWarning, match="moves no inertia"):
        model = builder.build()
    q = np.array([0.3, 0.2])
    s = operators.spatial_operators(model, q)
    newton_euler = s.H @ s.phi @ s.M @ s.phi.T @ s.H.T
    calls = (s.m.logdet, s.D.logdet, newton_euler.logdet, lambda: operators.operational_inertias_inverse(model, q))
    for call in calls:
        with pytest.raises(jaxdyn.ModelError, match="joint 'joint_1' moves no inertia"):
            call()


def test_bad_input(two_links):
    with pytest.raises(ValueError, match=r"rows must be numbers of directions, 0 to 5"):
        operators.operational_space_inertia(two_links, BENT, "lower", rows=(3, 6))
    with pytest.raises(ValueError, match="rows must be different"):
        operators.operational_space_inertia(two_links, BENT, "lower", rows=(3, 3))
    with pytest.raises(ValueError, match=r"point must have shape \(1, 3\)"):
        operators.operational_space_inertia(two_links, BENT, ("lower",), TIP)
    with pytest.raises(ValueError, match='biases must be "before" or "inside"'):
        operators.forward_dynamics(two_links, BENT, BENT, BENT, biases="after")
    with pytest.raises(ValueError, match="'upper' has no inverse: 1 of 2 joints move it"):
        operators.jacobian_normal_inverse(two_links, BENT, "upper")
    with pytest.raises(ValueError, match="no body or frame named 'hand'"):
        operators.operational_space_inertia(two_links, BENT, "hand")
    for frame in (3, ("lower", 3)):
        with pytest.raises(TypeError, match="frame must be the name of a body or frame, or a sequence of names; got"):
            operators.operational_space_inertia_inverse(two_links, BENT, frame)
    for damping in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"damping must be finite and not negative; got {damping}"):
            operators.operational_space_inertia(two_links, BENT, "lower", TIP, rows=(3, 5), damping=damping)
        with pytest.raises(ValueError, match=f"damping must be finite and not negative; got {damping}"):
            operators.jacobian_normal_inverse(two_links, BENT, "lower", damping=damping)
    with pytest.raises(ValueError, match=r"damping must be one real number; got shape \(2,\)"):
        operators.operational_space_inertia(two_links, BENT, "lower", TIP, rows=(3, 5), damping=(1.0, 2.0))


def test_a_frame_that_no_joint_moves_is_refused():
    arm = jaxdyn.load("arm7")
    q = np.zeros(7)
    for call in (
        lambda: operators.operational_space_inertia_inverse(arm, q, ("tool", "base")),
        lambda: operators.operational_space_inertia(arm, q, "base"),
        lambda: operators.operational_space_dynamics(arm, q, q, "base"),
    ):
        with pytest.raises(ValueError, match="frame 'base' is fixed to the world"):
            call()
