"""The identities of the papers, on matrices that the operators' own sweeps give; named by paper and equation.

With and without armature: it is the noise of the filter's measurements, and some identities need its absence.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import long, quickly, relative
from operators.conftest import NAMES, OUT_OF_JOINTS, ROBOTS, Case, by_numpy

import jaxdyn
from jaxdyn.model.random_models import random_tree
from jaxdyn.operators import spatial_operators
from jaxdyn.operators.dynamics import nearest_common
from jaxdyn.operators.mechanism import Mechanism
from jaxdyn.recursion import batched

TOLERANCE = 1e-11
FIXED = "tree on a fixed base"
ARMATURE = pytest.mark.parametrize("armature", [True, False], ids=["armature", "no armature"])


def _operators(model, q):
    """Return the matrices of all operators, (rows, columns, batch), by their own sweeps; none of a transpose."""
    robot = Mechanism(model, q, root_axes=False, columns=True)
    found = {}
    for name in NAMES:
        into = "joint" if name in OUT_OF_JOINTS else "body"
        out = "joint" if name in {"H", *OUT_OF_JOINTS} - {"G", "K"} else "body"
        size = model.nv if into == "joint" else 6 * model.nbodies
        x = robot.take(into, jnp.eye(size, dtype=q.dtype)[..., None])
        found[name] = robot.give(out, robot.apply(name, False, x))
    found["Omega"] = robot.joints.by_body(Mechanism(model, q, root_axes=False, columns=False).Omega()).to_array()
    return found


class FixedBase(Case):
    """A tree whose joints have one column each, with and without armature, by a smaller program."""

    def __init__(self):
        model = random_tree(6, seed=2, joints=("continuous", "revolute", "prismatic"), armature=True)
        rng = np.random.default_rng(3)
        self.model, nv = model, model.nv
        self.q, (self.qd, self.qdd, self.tau) = rng.normal(size=model.nq), rng.normal(size=(3, nv))
        armatures = np.stack([np.asarray(model.armature), np.zeros(nv)])
        of_state = batched(_operators, tile=lambda *args: 8)

        def everything(q, armature):
            robot = model.replace(armature=armature)
            of_bodies = jax.vmap(lambda v: jaxdyn.body_velocities(model, q, v, axes="world"))(jnp.eye(nv))
            poses = jaxdyn.forward_kinematics(model, q), jnp.moveaxis(of_bodies, 0, 2)
            return of_state(robot.moving, q), jaxdyn.mass_matrix(robot, q), poses

        found, mass_matrix, poses = quickly(jax.vmap(everything, (None, 0)))(self.q, armatures)
        (rotation, position), jacobians = jax.tree.map(lambda x: x[0], poses)
        self.mass_matrix, self.Omega = list(mass_matrix), list(np.moveaxis(found.pop("Omega"), 3, 1))
        self.found = [{name: x[k] for name, x in found.items()} for k in range(2)]
        self.truth = []
        for A in armatures:
            dense = by_numpy(model, position, rotation, jacobians, A)
            self.truth.append({name: X for name, X in dense.items() if not name.endswith(".T")})


@pytest.fixture(scope="module", params=["tree on a floating base", FIXED, long("chain")])
def case(request):
    return FixedBase() if request.param == FIXED else Case(ROBOTS[request.param]())


def test_every_operator_and_transpose_equals_its_definition(case):
    for found, truth in zip(case.found, case.truth, strict=True):
        assert found.keys() == truth.keys()
        for name, X in truth.items():
            scale = max(np.abs(X).max(), 1e-30)
            assert relative(found[name], X, scale) < TOLERANCE, name


# Both sides of each identity, of s: the operators' matrices. 001 has no armature; where it is A, it is the noise of 000.
ALWAYS = {
    "001 (3): M = H phi M phi* H* + A": lambda s: (s.MM, s.H @ s.phi @ s.M @ s.phi.T @ s.H.T + s.A),
    "001 (11), lemma 1: M = (I + H phi K) D (I + H phi K)*": lambda s: (
        s.MM, (s.one + s.H @ s.phi @ s.K) @ s.D @ (s.one + s.H @ s.phi @ s.K).T,
    ),
    "001 (12), lemma 2: (I + H phi K)^-1 = I - H psi K": lambda s: (
        s.one, (s.one + s.H @ s.phi @ s.K) @ (s.one - s.H @ s.psi @ s.K),
    ),
    "001 (13), lemma 3: M^-1 = (I - H psi K)* D^-1 (I - H psi K)": lambda s: (
        s.one, s.MM @ (s.one - s.H @ s.psi @ s.K).T @ s.D_inverse @ (s.one - s.H @ s.psi @ s.K),
    ),
    "001 appendix: phi^-1 = I - E_phi": lambda s: (s.I, s.phi @ (s.I - s.E_phi)),
    "001 lemma 5: psi^-1 = phi^-1 + K H": lambda s: (np.linalg.inv(s.psi) - np.linalg.inv(s.phi), s.K @ s.H),
    "001 (16), lemma 4: (I - H psi K) H phi = H psi": lambda s: ((s.one - s.H @ s.psi @ s.K) @ s.H @ s.phi, s.H @ s.psi),
    "001 lemma 4, its dual: phi K (I - H psi K) = psi K": lambda s: (s.phi @ s.K @ (s.one - s.H @ s.psi @ s.K), s.psi @ s.K),
    "001 appendix, lemma 1: phi M phi* = (phi - I) tau_bar P + (I + phi K H) P phi*": lambda s: (
        s.phi @ s.M @ s.phi.T, (s.phi - s.I) @ s.tau_bar @ s.P + (s.I + s.phi @ s.K @ s.H) @ s.P @ s.phi.T,
    ),
    "001 appendix: M = P - E_psi P E_phi*": lambda s: (s.M, s.P - s.E_psi @ s.P @ s.E_phi.T),
    "001 appendix: M = P - E_phi P E_phi* + K D K*": lambda s: (
        s.M, s.P - s.E_phi @ s.P @ s.E_phi.T + s.K @ s.D @ s.K.T,
    ),
    "001 (10): E_psi = E_phi - K H": lambda s: (s.E_psi, s.E_phi - s.K @ s.H),
    "000 (51): Joseph's form, with noise": lambda s: (
        s.P_plus, s.tau_bar @ s.P @ s.tau_bar.T + s.G @ s.A @ s.G.T,
    ),
    "000 (50): P+ = tau_bar P = P tau_bar*": lambda s: (
        np.stack([s.P_plus, s.P_plus]), np.stack([s.tau_bar @ s.P, s.P @ s.tau_bar.T]),
    ),
    "000 (37): P = M + phi P+ phi*": lambda s: (s.P, s.M + s.E_phi @ s.P_plus @ s.E_phi.T),
    "000 (38), (57) with noise: D = H P H* + R": lambda s: (s.D, s.H @ s.P @ s.H.T + s.A),
    "000 (39): G D = P H*": lambda s: (s.G @ s.D, s.P @ s.H.T),
    "001 section 6: M = m m*": lambda s: (s.MM, s.m @ s.m.T),
    "001 (11), 002 section 3: m is the Cholesky factor from tip to base": lambda s: (
        _tip_to_base(s, s.m), np.linalg.cholesky(_tip_to_base(s, s.MM)),
    ),
    "001 (19), (20): phi* H* M^-1 H phi = psi* H* D^-1 H psi": lambda s: (
        s.phi.T @ s.H.T @ np.linalg.solve(s.MM, s.H @ s.phi), s.psi.T @ s.H.T @ s.D_inverse @ s.H @ s.psi,
    ),
    "001 (20): Omega is the diagonal of phi* H* M^-1 H phi": lambda s: (
        np.stack(_blocks(s.phi.T @ s.H.T @ np.linalg.inv(s.MM) @ s.H @ s.phi)), s.Omega,
    ),
}  # fmt: skip
WITHOUT_ARMATURE = {
    "001 (9), 000 XI: H G = I": lambda s: (s.H @ s.G, s.one),
    "001 (11): I + H phi K = H phi G": lambda s: (s.one + s.H @ s.phi @ s.K, s.H @ s.phi @ s.G),
    "002 (B.6): tau_bar P H* = 0": lambda s: (s.I + s.tau_bar @ s.P @ s.H.T @ s.H, s.I),
    "000 XI: H P+ = 0": lambda s: (s.one + s.H @ s.P_plus @ s.H.T, s.one),
    "001 (8): M = P - E_psi P E_psi*": lambda s: (s.M, s.P - s.E_psi @ s.P @ s.E_psi.T),
    "001 (10): H phi tau_bar = H phi E_psi": lambda s: (s.H @ s.phi @ s.tau_bar, s.H @ s.phi @ s.E_psi),
    "001 (3), lemma 1: phi M phi* H* = (I + phi K H) P phi* H*": lambda s: (
        s.phi @ s.M @ s.phi.T @ s.H.T, (s.I + s.phi @ s.K @ s.H) @ s.P @ s.phi.T @ s.H.T,
    ),
    "000 (51): P+ = tau_bar P tau_bar*": lambda s: (s.P_plus, s.tau_bar @ s.P @ s.tau_bar.T),
}  # fmt: skip
MISPRINTS = {
    "002 (4.8): psi = -phi tau_bar": lambda s: (s.E_psi, -s.E_phi @ s.tau_bar),
    "001 section 6: nu = L* (I + H psi K)*": lambda s: (s.m.T, s.L.T @ (s.one + s.H @ s.psi @ s.K).T),
    "002 (4.9): M = I - E_phi P E_phi*": lambda s: (s.M, s.I - s.E_phi @ s.P @ s.E_phi.T),
    "000 (68): transposes the other way round": lambda s: (
        s.Omega[-1], _last(s.tau_bar) @ _last(_around(s)) @ _last(s.tau_bar).T + _last(s.H.T @ s.D_inverse @ s.H),
    ),
}  # fmt: skip


def _blocks(X):
    return [X[k : k + 6, k : k + 6] for k in range(0, len(X), 6)]


def _last(X):
    return X[-6:, -6:]


def _around(s):
    """Delta+ of every body: that of its parent, brought to it."""
    X = np.zeros_like(s.I)
    for k, Omega in enumerate(s.Omega):
        X[6 * k : 6 * k + 6, 6 * k : 6 * k + 6] = Omega
    return s.E_phi.T @ X @ s.E_phi


def _tip_to_base(s, X):
    """Return a matrix of joint space with the joints in the other order, each joint's columns in theirs."""
    names = s.model.joint_names
    order = np.concatenate([np.arange(s.model.nv)[s.model.qd_slice(name)] for name in reversed(names)])
    return X[np.ix_(order, order)]


@ARMATURE
@pytest.mark.parametrize("equation", ALWAYS)
def test_identity(case, equation, armature):
    found, truth = ALWAYS[equation](case.operators(armature))
    assert relative(found, truth) < TOLERANCE


@pytest.mark.parametrize("equation", WITHOUT_ARMATURE)
def test_identity_that_needs_joints_without_armature(case, equation):
    found, truth = WITHOUT_ARMATURE[equation](case.operators(False))
    assert relative(found, truth) < TOLERANCE
    found, truth = WITHOUT_ARMATURE[equation](case.operators(True))
    assert relative(found, truth) > 1e-4


@pytest.mark.parametrize("equation", MISPRINTS)
def test_what_is_printed_is_wrong(case, equation):
    found, truth = MISPRINTS[equation](case.operators(False))
    assert relative(found, truth) > 1e-2


@ARMATURE
def test_000_82_the_recursion_of_delta(case, armature):
    s = case.operators(armature)
    right = s.tau_bar.T @ _around(s) @ s.tau_bar + s.H.T @ s.D_inverse @ s.H
    assert relative(np.stack(_blocks(right)), s.Omega) < TOLERANCE


@ARMATURE
def test_blocks_between_bodies_go_through_their_nearest_common_one(case, armature):
    """001 5.2 for trees: psi*(c, i) Omega(c) psi(c, j)."""
    s = case.operators(armature)
    full = s.phi.T @ s.H.T @ np.linalg.inv(s.MM) @ s.H @ s.phi
    n, common = s.model.nbodies, nearest_common(s.model.parents)
    psi = s.psi.reshape((n, 6, n, 6))
    through = np.zeros((n, 6, n, 6))
    for i in range(n):
        for j in range(n):
            if (c := common[i, j]) >= 0:
                through[i, :, j] = psi[c, :, i].T @ s.Omega[c] @ psi[c, :, j]
    assert relative(through.reshape(full.shape), full) < TOLERANCE


def _off_diagonal(X):
    X = X.copy()
    for k in range(0, len(X), 6):
        X[k : k + 6, k : k + 6] = 0
    return np.abs(X).max()


def test_the_psi_form_of_a_block_diagonal_is_block_diagonal(case):
    """E_psi Q E_psi* always; E_psi* Q E_psi for chains only, since siblings of a tree share their parent."""
    s = case.operators(True)
    assert _off_diagonal(s.E_psi @ s.P @ s.E_psi.T) < 1e-12
    is_chain = list(s.model.parents) == list(range(-1, s.model.nbodies - 1))
    assert (_off_diagonal(s.E_psi.T @ s.P @ s.E_psi) < 1e-12) == is_chain


@ARMATURE
def test_001_section_6_velocities_from_total_rates(case, armature):
    """nu = m* qd gives the velocities back: V = psi* H* L^-* nu; of V+ the joints that give way leave tau_bar* V+."""
    s = case.operators(armature)
    V = s.phi.T @ s.H.T @ case.qd
    assert relative(s.psi.T @ s.H.T @ s.L_inverse.T @ (s.m.T @ case.qd), V) < TOLERANCE
    inboard = s.E_phi.T @ V
    assert relative(s.tau_bar.T @ inboard, s.E_psi.T @ V) < TOLERANCE
    assert (relative(s.tau_bar.T @ V, s.tau_bar.T @ inboard) < TOLERANCE) == (not armature)


def test_000_xi_articulated_inertias_know_their_subtree_only():
    """P(k), in the axes of body k, and D(k) do not change with joints outside the subtree of k.

    By joints of other branches the derivatives are exactly zero. By those inboard, and by that of k itself, they are zero
    up to rounding: all bodies are turned into common axes, and back.
    """
    model = random_tree(6, seed=3, joints=("revolute", "prismatic"), branching=0.6)
    n, common = model.nbodies, nearest_common(model.parents)[:-1, :-1]
    q = np.random.default_rng(5).normal(size=n)

    def inertias(q):
        s, (R, _) = spatial_operators(model, q), jaxdyn.forward_kinematics(model, q)
        P = (s.P @ jnp.tile(jnp.eye(6), (n, 1))).reshape((n, 2, 3, 2, 3))
        return s.D @ jnp.ones(n), jnp.einsum("kia,kxiyj,kjb->kxayb", R, P, R)

    slopes = quickly(jax.jacfwd(inertias))(q)
    k, j = np.indices((n, n))
    inside, inboard = (common == k) & (k != j), common == j
    other = ~inside & ~inboard
    assert np.any(other)
    for slope in slopes:
        slope = np.moveaxis(slope, -1, 1)  # by k and j
        assert np.all(slope[other] == 0)
        assert np.abs(slope[inboard]).max() < 1e-14 * np.abs(slope).max()
        assert np.abs(slope[inside]).max() > 0.1 * np.abs(slope).max()
