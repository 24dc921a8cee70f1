"""Optimal control over stages (003), alone and as the dynamics of a robot."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import KINDS, long, quickly, random_state, relative, stacked

import jaxdyn
from jaxdyn import estimation
from jaxdyn.algorithms.gibbs import gibbs_function
from jaxdyn.algorithms.reactions import reaction_forces
from jaxdyn.estimation import lq
from jaxdyn.estimation.links import by_joint


# ---------------------------------------------------------------------- stages of anything
def positive(rng, *shape, size):
    root = rng.normal(size=(*shape, size, size))
    return root @ np.swapaxes(root, -1, -2) + 0.1 * np.eye(size)


def random_problem(stages, n=3, m=2, seed=0):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(stages, n, n)), rng.normal(size=(stages, n, m))
    M, W = positive(rng, stages, size=n), positive(rng, stages, size=m)
    return lq.Problem(A, B, M, rng.normal(size=(stages, n)), W, rng.normal(size=(stages, m)))


CHAIN, TREE = (-1, 0, 1, 2), (-1, 0, 1, 0, 3, 3, -1)


@pytest.fixture(params=[CHAIN, TREE], ids=["chain", "tree"])
def solved(request):
    parents = request.param
    problem, x_0 = random_problem(len(parents)), np.array([1.0, -2.0, 0.5])
    return parents, problem, x_0, quickly(lambda p, x: lq.solve(parents, p, x))(problem, x_0)


def test_003_39_the_sweeps_find_the_least_of_the_index(solved):
    """A quadratic function is least where its gradient vanishes; gradient and Hessian by automatic differentiation."""
    parents, problem, x_0, found = solved
    shape = problem.t.shape
    cost = lambda u: lq.index(parents, problem, x_0, u.reshape(shape))
    u, still = jnp.asarray(found.u.ravel()), jnp.zeros(found.u.size)
    hessian, gradient = quickly(jax.hessian(cost))(still), quickly(jax.grad(cost))(still)
    assert np.linalg.eigvalsh(hessian).min() > 0
    assert relative(found.u.ravel(), -np.linalg.solve(hessian, gradient)) < 1e-11
    rng = np.random.default_rng(1)
    for _ in range(5):
        assert cost(u + 0.1 * rng.normal(size=u.shape)) > cost(u)


def test_003_32_the_index_is_the_sum_over_stages(solved):
    parents, p, x_0, found = solved
    x, total = {-1: x_0}, 0.0
    for k, parent in enumerate(parents):
        x[k] = p.A[k] @ x[parent] + p.B[k] @ found.u[k]
        total += 0.5 * x[k] @ p.M[k] @ x[k] + p.h[k] @ x[k] + 0.5 * found.u[k] @ p.W[k] @ found.u[k]
        total -= p.t[k] @ found.u[k]
        assert relative(found.x[k], x[k]) < 1e-12
    assert relative(lq.index(parents, p, x_0, found.u), total) < 1e-12


def test_003_35_37_the_two_point_boundary_value_problem(solved):
    """States forward, costates backward, and t = -B* lam + W u."""
    parents, p, _, found = solved
    scale = np.abs(found.lam).max()
    for k in range(len(parents)):
        later = sum((p.A[j].T @ found.lam[j] for j in range(len(parents)) if parents[j] == k), start=np.zeros(3))
        assert relative(found.lam[k], later - p.M[k] @ found.x[k] - p.h[k], scale=scale) < 1e-11
        assert relative(p.t[k], p.W[k] @ found.u[k] - p.B[k].T @ found.lam[k], scale=scale) < 1e-11


def test_003_40_the_riccati_equation(solved):
    """In its first form; the sweep takes that of (42)."""
    parents, p, _, found = solved
    for k in range(len(parents)):
        S = p.M[k].copy()
        for j in [j for j in range(len(parents)) if parents[j] == k]:
            SB = found.S[j] @ p.B[j]
            R = p.B[j].T @ SB + p.W[j]
            S += p.A[j].T @ (found.S[j] - SB @ np.linalg.solve(R, SB.T)) @ p.A[j]
            assert relative(found.R[j], R) < 1e-12
            assert relative(found.K[j], np.linalg.solve(R, SB.T @ p.A[j])) < 1e-11
        assert relative(found.S[k], S) < 1e-11


def test_no_stages():
    none = random_problem(0)
    found = lq.solve((), none, jnp.zeros(3))
    assert found.x.shape == (0, 3)
    assert float(lq.index((), none, jnp.zeros(3), found.u)) == 0


# ---------------------------------------------------------------------- a mechanism
NAMES = [long("columns that turn in the body"), "tree on a floating base"]


def everything(model, s):
    q, qd, qdd, tau = s["q"], s["qd"], s["qdd"], s["tau"]
    args, f = (model, q, qd, tau), {"f_ext": s["f_ext"]}
    problem = estimation.mechanism(*args, **f)
    index = lambda qdd: lq.index(model.parents, problem, jnp.zeros(6), by_joint(model, qdd))
    gibbs = lambda qdd: gibbs_function(model, q, qd, qdd, **f) - tau @ qdd
    S = jax.vmap(lambda v: jaxdyn.body_velocities(model, q, v, axes="world"))
    return {
        "found": estimation.optimal_control(*args, **f),
        "smoothed": estimation.smooth(*args, **f),
        "qdd": jaxdyn.forward_dynamics(*args, **f, form="sweep"),
        "mass": jaxdyn.mass_matrix(model, q, form="sweep"),
        "reactions": reaction_forces(*args, **f, axes="world"),
        "hessian": jax.hessian(index)(qdd),
        "index": (index(qdd) - index(0 * qdd), gibbs(qdd) - gibbs(0 * qdd)),
        "J": jnp.moveaxis(S(jnp.eye(model.nv)), 0, -1),
        "problem": problem,
    }


@pytest.fixture(scope="module", params=NAMES)
def case(request):
    """A model with armature and without."""
    model = KINDS[request.param]()
    model = model.replace(armature=np.linspace(0.1, 0.5, model.nv))
    models, states = [model, model.replace(armature=0 * model.armature)], [random_state(model, k) for k in (0, 1)]
    found = quickly(jax.vmap(everything))(stacked(models), stacked(states))
    row = lambda k: jax.tree.map(lambda x: x[k], found)
    return model, [(m, s, row(k)) for k, (m, s) in enumerate(zip(models, states, strict=True))]


def test_003_28_the_optimal_controls_are_forward_dynamics(case):
    for _, _, x in case[1]:
        assert relative(x["found"].qdd, x["qdd"]) < 1e-11


def test_003_v_the_hessian_of_the_index_is_the_mass_matrix(case):
    for _, _, x in case[1]:
        assert relative(x["hessian"], x["mass"]) < 1e-11


def test_003_v_the_index_is_gibbs_function_less_the_power_of_the_torques(case):
    for _, _, x in case[1]:
        assert relative(*x["index"]) < 1e-11


def test_003_v_the_riccati_solution_is_the_articulated_inertia(case):
    model = case[0]
    for _, _, x in case[1]:
        assert relative(x["found"].S, x["smoothed"].filtered.P_minus) < 1e-11
        assert relative(x["found"].R, x["smoothed"].filtered.D) < 1e-11
        # K = D^-1 H P T: the filter's gain, about the parent's origin
        body = np.concatenate([[k] * len(range(99)[model.qd_slice(n)]) for k, n in enumerate(model.joint_names)])
        expected = [G @ x["problem"].A[k] for G, k in zip(x["smoothed"].filtered.G, body, strict=True)]
        assert relative(x["found"].K, np.array(expected)) < 1e-11


def test_003_8_19_the_costates_are_minus_the_forces_on_the_bodies(case):
    """With (7), (8) and (19) they are the forces on the parents; the paper's text below (2) has it the other way."""
    for _, _, x in case[1]:
        assert relative(x["found"].f, x["reactions"].total) < 1e-11
        again = np.einsum("kij,kj->ki", x["found"].S, x["found"].a) + x["found"].r  # (19)
        assert relative(again, x["reactions"].total) < 1e-11


def test_000_61_003_38_states_of_the_one_are_costates_of_the_other(case):
    """The smoothed forces are those that the joints carry."""
    for _, _, x in case[1]:
        assert relative(x["smoothed"].x, x["reactions"].total) < 1e-11
        assert relative(x["smoothed"].x, x["found"].f) < 1e-11


def test_003_31_armstrongs_variant_gives_the_constraint_forces(case):
    for _, _, x in case[1]:
        size = np.abs(x["reactions"].total).max()
        assert relative(x["found"].constraint, x["reactions"].constraint, scale=size) < 1e-11


def test_003_29_31_with_the_complementary_projection_itself(case):
    """Q from a decomposition of the joint's columns; psi_P instead of I f_c - psi_P, or f_c for I f_c, would not do.

    As they are printed, (29) has lost Psi, and (31) has the inverse of Psi_PQ, which is square if the joint has three
    columns, and singular for a single rigid body on a ball joint, where it is m c~: both fail.
    """
    model, ((*_, rotors), (_, s, x)) = case
    assert rotors is not x
    size = np.abs(x["reactions"].total).max()
    seen, square = 0.0, 0
    for k, name in enumerate(model.joint_names):
        own = range(model.nv)[model.qd_slice(name)]
        P = x["J"][k][:, own]
        Q = np.linalg.svd(P)[0][:, len(own) :]
        Psi, psi, a, tau = x["found"].S[k], x["found"].r[k], x["found"].a[k], s["tau"][own]
        PP, PQ, QQ = P.T @ Psi @ P, P.T @ Psi @ Q, Q.T @ Psi @ Q
        Phi = QQ - PQ.T @ np.linalg.solve(PP, PQ)
        left = Psi - Psi @ P @ np.linalg.solve(PP, P.T @ Psi)
        assert relative(Q @ Phi @ Q.T, left, scale=np.abs(Psi).max()) < 1e-11  # (29)
        assert relative(Q @ Phi @ Q.T, left - Psi, scale=np.abs(Psi).max()) > 1e-3
        phi = Q.T @ psi + PQ.T @ np.linalg.solve(PP, tau - P.T @ psi)
        force = Phi @ Q.T @ a + phi  # (31)
        assert relative(Q @ force, x["reactions"].constraint[k], scale=size) < 1e-11
        if len(own) == 3:
            square += 1
            printed = Q.T @ psi + PQ.T @ np.linalg.pinv(PQ) @ (tau - P.T @ psi)
            assert relative(Q @ (Phi @ Q.T @ a + printed), x["reactions"].constraint[k], scale=size) > 1e-3
        assert relative(P.T @ x["reactions"].total[k], tau, scale=size) < 1e-11  # (43)
        seen = max(seen, np.abs(P.T @ P - np.eye(len(own))).max())
    assert square
    assert seen > 1e-3 or "universal" not in model.joint_types  # the columns are not orthonormal


def test_gradients_are_those_of_forward_dynamics():
    model = KINDS["chain"]()
    s = random_state(model)
    args = s["q"], s["qd"], s["tau"]
    slope = lambda f: quickly(jax.grad(lambda model, q: f(model, q, *args[1:])[1], argnums=(0, 1)))(model, s["q"])
    found, expected = slope(lambda *x: estimation.optimal_control(*x).qdd), slope(jaxdyn.forward_dynamics)
    assert relative(found[1], expected[1]) < 1e-10
    for name in ("inertia", "armature", "gravity"):
        assert relative(getattr(found[0], name), getattr(expected[0], name)) < 1e-10


def test_no_bodies():
    model, none = jaxdyn.ModelBuilder("nothing").build(), jnp.zeros(0)
    found = estimation.optimal_control(model, none, none, none)
    assert found.qdd.shape == (0,)
    assert found.constraint.shape == (0, 6)
    assert float(found.J) == 0
