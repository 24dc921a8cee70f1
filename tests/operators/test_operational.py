"""Forward dynamics, inverse mass matrix and operational space in operators, against dense matrices."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import quickly, random_state, relative

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
    """Two joints move the tip in two of six directions, and the straight arm in one; the inertia is 1 / delta at most."""

    def inertias(q):
        whole = operators.operational_space_inertia_inverse(two_links, q, "lower", TIP)
        of = partial(operators.operational_space_inertia, two_links, q, "lower", TIP)
        return whole, [of(rows=rows, damping=damping) for rows in (None, (3, 5)) for damping in (None, 1e-3)]

    for q in (STRAIGHT, BENT):
        whole, found = quickly(inertias)(q)
        assert np.linalg.matrix_rank(whole, tol=1e-9) == 2
        for Lambda, delta in zip(found, (None, 1e-3) * 2, strict=True):
            size = np.linalg.eigvalsh(Lambda)
            assert np.all(np.isfinite(size))
            assert size.min() > 0
            assert delta is None or size.max() <= (1 + 1e-9) / delta

    def task(q):
        Lambda = operators.operational_space_inertia(two_links, q, "lower", TIP, rows=(3, 5), damping=1e-3)
        return Lambda.sum() + operators.manipulability(two_links, q, "lower", TIP, rows=(3, 5))

    assert np.all(np.isfinite(quickly(jax.grad(task))(STRAIGHT)))
    np.testing.assert_allclose(operators.manipulability(two_links, STRAIGHT, "lower", TIP, rows=(3, 5)), 0, atol=1e-7)


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
