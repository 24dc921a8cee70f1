"""The Kalman filter and smoother of a robot (000) against dense Gaussian conditioning, and against dynamics.

The operators of 001 too, made of the filter's matrices: on a chain and a tree that have all joint types between them.
"""

from functools import cache
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import quickly, random_state, relative, stacked
from operators.test_identities import ALWAYS, WITHOUT_ARMATURE

import jaxdyn
from jaxdyn import estimation
from jaxdyn.model.random_models import random_chain, random_tree

MODELS = {
    "chain": lambda: random_chain(4, seed=1, joints=("revolute", "prismatic", "helical"), armature=True),
    "tree": lambda: random_tree(
        6, seed=5, joints=("universal", "spherical", "planar", "cylindrical", "translation"),
        floating_base=True, armature=True,
    ),
}  # fmt: skip
KEY = jax.random.key(3)


def everything(model, s):
    """All that is compared, of one state."""
    q, qd, tau, f_ext = s["q"], s["qd"], s["tau"], s["f_ext"]
    args, f = (model, q, qd, tau), {"f_ext": f_ext}
    qdd = jaxdyn.forward_dynamics(*args, **f, form="sweep")
    velocities = jax.vmap(lambda v: jaxdyn.body_velocities(model, q, v, axes="world"))
    accelerations = jax.vmap(lambda x: jaxdyn.body_accelerations(model, q, qd, x, axes="world"))
    return {
        "smoothed": estimation.smooth(*args, **f),
        "joseph": estimation.filter(*args, **f, joseph=True),
        "parts": estimation.acceleration_components(*args, **f),
        "sample": estimation.sample(model, q, KEY),
        "sample of inverse": estimation.sample(model, q, KEY, of="inverse"),
        "qdd": qdd,
        "mass": jaxdyn.mass_matrix(model, q, form="sweep"),
        "gravity": jaxdyn.gravity_force(model, q),
        "poses": jaxdyn.forward_kinematics(model, q),
        "V": velocities(jnp.concatenate([jnp.eye(model.nv), qd[None]])),
        "a": accelerations(jnp.stack([0 * qdd, qdd])),
    }


class Dense:
    """The stacked operators of one state, in world axes, each body about its origin: from poses and velocities."""

    def __init__(self, model, s, found):
        self.model, self.found, self.filtered, self.smoothed = (
            model,
            found,
            found["smoothed"].filtered,
            found["smoothed"],
        )
        self.n, self.nv, self.parents, self.tau = model.nbodies, model.nv, model.parents, s["tau"]
        self.qd = s["qd"]
        self.A = np.diag(model.armature)
        *columns, self.V = found["V"]
        self.J = np.stack(columns, axis=-1).reshape(6 * self.n, self.nv)  # phi* H*
        R, p = found["poses"]
        self.M = block_diagonal([inertia(pi, R_k) for pi, R_k in zip(model.inertia, R, strict=True)])
        self.phi = np.zeros((6 * self.n, 6 * self.n))
        self.E = np.zeros_like(self.phi)  # from each body to its parent
        self.dofs = [range(self.nv)[model.qd_slice(name)] for name in model.joint_names]
        self.subtree = [[k] for k in range(self.n)]
        for k in range(self.n):
            j = k
            while j >= 0:
                self.at(self.phi, j, k)[:] = shift(p[k] - p[j])
                j = self.parents[j]
            if self.parents[k] >= 0:
                self.at(self.E, self.parents[k], k)[:] = shift(p[k] - p[self.parents[k]])
        for k in reversed(range(self.n)):
            if self.parents[k] >= 0:
                self.subtree[self.parents[k]] += self.subtree[k]
        self.H = np.zeros((self.nv, 6 * self.n))
        for k, dofs in enumerate(self.dofs):
            self.H[dofs, 6 * k : 6 * k + 6] = self.J[6 * k : 6 * k + 6, dofs].T
        self.G = np.zeros((6 * self.n, self.nv))
        for k, dofs in enumerate(self.dofs):
            self.G[6 * k : 6 * k + 6, dofs] = self.filtered.G[dofs].T
        self.D = np.asarray(estimation.block_diagonal(model, self.filtered.D))
        self.up = up = np.concatenate([np.zeros(3), -np.asarray(model.gravity)])
        self.a_0, self.a = (spatial(a, self.V) + up for a in found["a"])
        f_ext = np.concatenate([np.einsum("kij,kj->ki", R, x) for x in np.split(s["f_ext"], 2, axis=1)], axis=1)
        MV = (self.M @ self.V.ravel()).reshape(-1, 6)
        self.b = np.array([cross_force(V) @ h for V, h in zip(self.V, MV, strict=True)]) - f_ext
        self.n_bias = self.a_0 - np.array([self.from_parent(k, self.a_0, up) for k in range(self.n)])

    def from_parent(self, k, x, world):
        parent = self.parents[k]
        return world if parent < 0 else self.at(self.E, parent, k).T @ x[parent]

    @staticmethod
    def at(matrix, j, k):
        return matrix[6 * j : 6 * j + 6, 6 * k : 6 * k + 6]

    def block(self, matrix):
        return np.array([self.at(matrix, k, k) for k in range(self.n)])

    def condition(self, mean, dofs):
        """Return mean and covariance of all forces, given some torques: x ~ (mean, phi M phi*), tau = H x + noise."""
        prior, H = self.phi @ self.M @ self.phi.T, self.H[dofs]
        gain = prior @ H.T @ np.linalg.inv(H @ prior @ H.T + self.A[np.ix_(dofs, dofs)])
        return mean + gain @ (self.tau[dofs] - H @ mean), prior - gain @ H @ prior

    def psi(self):
        return np.linalg.inv(np.eye(6 * self.n) - self.E @ (np.eye(6 * self.n) - self.G @ self.H))

    def operators(self):
        """Return the operators of 001 by their letters; P, P+, D, G and Omega are the filter's and the smoother's."""
        I, one, L = np.eye(6 * self.n), np.eye(self.nv), np.linalg.cholesky(self.D)
        H, G, K, tau_bar = self.H, self.G, self.E @ self.G, I - self.G @ self.H
        return SimpleNamespace(
            I=I, one=one, H=H, G=G, K=K, tau_bar=tau_bar, phi=self.phi, psi=self.psi(), E_phi=self.E,
            E_psi=self.E @ tau_bar, M=self.M, P=block_diagonal(self.filtered.P_minus), A=self.A, D=self.D, L=L,
            P_plus=block_diagonal(self.filtered.P_plus), D_inverse=np.linalg.inv(self.D), L_inverse=np.linalg.inv(L),
            m=(one + H @ self.phi @ K) @ L, MM=self.found["mass"], Omega=self.smoothed.Delta_minus, model=self.model,
        )  # fmt: skip

    def bias_accelerations(self):
        """Return a of 001 (4): across each joint, and gravity as an upward acceleration of the roots."""
        a = self.n_bias.copy()
        a[[k for k in range(self.n) if self.parents[k] < 0]] += self.up
        return a.ravel()

    def jacobian(self, k, point):
        """Return J of a point that moves with body k, (6, nv), and B: J = B* phi* H*."""
        B = np.zeros((6 * self.n, 6))
        B[6 * k : 6 * k + 6] = shift(point - self.found["poses"][1][k])
        return B.T @ self.J, B


def block_diagonal(blocks):
    out = np.zeros((6 * len(blocks), 6 * len(blocks)))
    for k, block in enumerate(blocks):
        out[6 * k : 6 * k + 6, 6 * k : 6 * k + 6] = block
    return out


def tilde(x):
    return np.array([[0, -x[2], x[1]], [x[2], 0, -x[0]], [-x[1], x[0], 0]])


def shift(l):
    return np.block([[np.eye(3), tilde(l)], [np.zeros((3, 3)), np.eye(3)]])


def cross_force(V):
    return np.block([[tilde(V[:3]), tilde(V[3:])], [np.zeros((3, 3)), tilde(V[:3])]])


def inertia(pi, R):
    m, h, (xx, xy, yy, xz, yz, zz) = pi[0], R @ pi[1:4], pi[4:]
    I = R @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ R.T
    return np.block([[I, tilde(h)], [-tilde(h), m * np.eye(3)]])


def spatial(a, V):
    """Return spatial accelerations from rates of world components."""
    return a - np.concatenate([np.zeros_like(V[:, :3]), np.cross(V[:, :3], V[:, 3:])], axis=1)


STATES = {
    "moving": {},
    "without armature": {"armature": 0},
    "at rest, without gravity": {"gravity": 0, "qd": 0},
    "at rest, without gravity and armature": {"gravity": 0, "qd": 0, "armature": 0},
}


class Case:
    """A model in several states, in one program."""

    def __init__(self, model):
        self.model = model
        models, states = [], []
        for seed, changes in enumerate(STATES.values()):
            leaves = {name: 0 * getattr(model, name) for name in changes if name != "qd"}
            s = random_state(model, seed=seed)
            models.append(model.replace(**leaves))
            states.append(s | {"qd": changes.get("qd", 1) * s["qd"]})
        found = quickly(jax.vmap(everything))(stacked(models), stacked(states))
        row = lambda k: jax.tree.map(lambda x: x[k], found)
        self.state = {
            name: Dense(m, s, row(k)) for k, (name, m, s) in enumerate(zip(STATES, models, states, strict=True))
        }


@cache
def case_of(kind):
    return Case(MODELS[kind]())


@pytest.fixture(params=MODELS)
def case(request):
    return case_of(request.param)


@pytest.fixture(params=STATES)
def dense(case, request):
    return case.state[request.param]


def test_the_models_have_all_kinds_of_joints():
    types = {kind for make in MODELS.values() for kind in make().joint_types}
    assert types == {
        "revolute", "prismatic", "helical", "universal", "spherical", "planar", "cylindrical", "translation", "free",
    }  # fmt: skip


# ---------------------------------------------------------------------- dynamics
def test_000_46_joint_accelerations_are_forward_dynamics(dense):
    assert relative(dense.smoothed.qdd, dense.found["qdd"]) < 1e-11


def test_000_47_costates_are_the_accelerations_of_the_bodies(dense):
    up = dense.a[0] * 0
    assert relative(dense.smoothed.lam_minus, dense.a) < 1e-11
    inner = [k for k in range(dense.n) if dense.parents[k] >= 0]
    expected = np.array([dense.from_parent(k, dense.a, up) for k in inner])
    assert relative(dense.smoothed.lam_plus[inner], expected) < 1e-11


def test_000_24_61_the_smoothed_forces_are_those_that_the_joints_carry(dense):
    carried = (dense.phi @ (dense.M @ dense.a.ravel() + dense.b.ravel())).reshape(-1, 6)
    f, s = dense.filtered, dense.smoothed
    assert relative(s.x, carried) < 1e-11
    assert relative(f.z_plus + np.einsum("kij,kj->ki", f.P_plus, s.lam_plus), carried) < 1e-11


def test_000_20_a_torque_is_what_the_joint_feels_and_what_its_armature_takes(dense):
    assert relative(dense.H @ dense.smoothed.x.ravel() + dense.A @ dense.smoothed.qdd, dense.tau) < 1e-11


# ---------------------------------------------------------------------- operators
def test_001_3_20_identities_of_the_operators(dense):
    """Those of tests/operators, on the filter's matrices."""
    s = dense.operators()
    exact = not dense.A.any()
    for equation, sides in (ALWAYS | WITHOUT_ARMATURE if exact else ALWAYS).items():
        assert relative(*sides(s)) < 1e-11, equation


def _turn_of_columns(kind, H, qd):
    """Return N qd: the rate of a joint's columns in body axes. Only the first axis of a universal joint turns there."""
    if kind != "universal":
        return np.zeros(6)
    first, second = H[:, :3]
    return np.concatenate([np.cross(first, second) * qd[0] * qd[1], np.zeros(3)])


def test_000_11_15_001_3_the_recursions_of_newton_and_euler(dense):
    """V, A and f body after body; across a joint A gains V x V_J, and the turn of its columns in the body."""
    V, A, f = np.zeros((3, dense.n, 6))
    qdd = dense.found["qdd"]
    for k, own in enumerate(dense.dofs):
        H = dense.H[own, 6 * k : 6 * k + 6]
        V[k] = dense.from_parent(k, V, np.zeros(6)) + H.T @ dense.qd[own]
        turn = _turn_of_columns(dense.model.joint_types[k], H, dense.qd[own])
        n = turn - cross_force(V[k]).T @ H.T @ dense.qd[own]
        assert relative(n, dense.n_bias[k], scale=np.abs(dense.n_bias).max() or 1.0) < 1e-11
        A[k] = dense.from_parent(k, A, dense.up) + H.T @ qdd[own] + n
    tau = dense.A @ qdd
    for k in reversed(range(dense.n)):
        f[k] += dense.at(dense.M, k, k) @ A[k] + dense.b[k]
        tau[dense.dofs[k]] += dense.H[dense.dofs[k], 6 * k : 6 * k + 6] @ f[k]
        if dense.parents[k] >= 0:
            f[dense.parents[k]] += dense.at(dense.E, dense.parents[k], k) @ f[k]
    assert relative(V, dense.V, scale=np.abs(dense.V).max() or 1.0) < 1e-11
    assert relative(A, dense.a) < 1e-11
    assert relative(f, dense.smoothed.x) < 1e-11
    assert relative(tau, dense.tau) < 1e-11


def test_001_4_bias_forces_and_those_of_gravity(dense):
    """C = H phi (M phi* a + b) is what forward dynamics takes off the torques; gravity's share is H phi M gamma."""
    C = dense.H @ dense.phi @ (dense.M @ dense.phi.T @ dense.bias_accelerations() + dense.b.ravel())
    assert relative(C, dense.tau - dense.found["mass"] @ dense.found["qdd"], scale=np.abs(dense.tau).max()) < 1e-11
    g = dense.H @ dense.phi @ dense.M @ np.tile(dense.up, dense.n)
    assert np.any(g) == np.any(dense.up)
    assert relative(g, dense.found["gravity"], scale=np.abs(g).max() or 1.0) < 1e-11


def test_000_28_33_composite_inertias_are_the_mass_matrix(dense):
    """r(k) = M(k) + sum of phi r phi*; columns x = r H* go inward by phi. r has ten parameters."""
    r, mass = dense.block(dense.M), dense.A.copy()
    for k in reversed(range(dense.n)):
        x, j = r[k] @ dense.H[dense.dofs[k], 6 * k : 6 * k + 6].T, k
        while True:
            rows = dense.H[dense.dofs[j], 6 * j : 6 * j + 6] @ x
            mass[np.ix_(dense.dofs[j], dense.dofs[k])] = rows + (j == k) * dense.A[np.ix_(dense.dofs[j], dense.dofs[k])]
            mass[np.ix_(dense.dofs[k], dense.dofs[j])] = mass[np.ix_(dense.dofs[j], dense.dofs[k])].T
            if (parent := dense.parents[j]) < 0:
                break
            x, j = dense.at(dense.E, parent, j) @ x, parent
        if (parent := dense.parents[k]) >= 0:
            phi = dense.at(dense.E, parent, k)
            r[parent] += phi @ r[k] @ phi.T
        rho, first = r[k][3, 3], r[k][:3, 3:]
        expected = np.block([[r[k][:3, :3].T, -first.T], [-first, rho * np.eye(3)]])
        assert relative(r[k], expected) < 1e-11
    assert relative(mass, dense.found["mass"]) < 1e-11


def test_001_14_16_forward_dynamics(dense):
    """With the biases taken off before, and by lemma 4 with the biases inside the filter."""
    s, a, b = dense.operators(), dense.bias_accelerations(), dense.b.ravel()
    whiten = s.one - s.H @ s.psi @ s.K
    rest = dense.tau - s.H @ s.phi @ (s.M @ s.phi.T @ a + b)  # (14)
    assert relative(whiten.T @ s.D_inverse @ whiten @ rest, dense.found["qdd"]) < 1e-11  # (15)
    e = dense.tau - s.H @ s.psi @ (s.K @ dense.tau + s.P @ a + b)
    assert relative(whiten.T @ s.D_inverse @ e - s.K.T @ s.psi.T @ a, dense.found["qdd"]) < 1e-11


def test_001_17_20_a_force_at_the_tip(dense):
    """Accelerations by it, and the inertia that it meets: with psi as with phi, and by Omega of the tip's body."""
    s, inverse = dense.operators(), np.linalg.inv(dense.found["mass"])
    k, f = dense.n - 1, np.arange(1.0, 7.0)
    J, B = dense.jacobian(k, dense.found["poses"][1][k] + np.array([0.3, -0.2, 0.5]))
    whiten = s.one - s.H @ s.psi @ s.K
    truth = -inverse @ J.T @ f
    assert relative(-whiten.T @ s.D_inverse @ whiten @ s.H @ s.phi @ B @ f, truth) < 1e-11  # (17)
    assert relative(-whiten.T @ s.D_inverse @ s.H @ s.psi @ B @ f, truth) < 1e-11  # (18)
    Omega, phi = J @ inverse @ J.T, B[6 * k : 6 * k + 6]
    both = whiten @ s.H @ s.phi @ B
    assert relative(both.T @ s.D_inverse @ both, Omega) < 1e-11  # (19)
    assert relative(B.T @ s.psi.T @ s.H.T @ s.D_inverse @ s.H @ s.psi @ B, Omega) < 1e-11  # (20)
    assert relative(phi.T @ dense.smoothed.Delta_minus[k] @ phi, Omega) < 1e-11


def test_004_20_22_three_ways_to_close_a_loop(dense):
    """Two bodies, or a body and the ground, keep a point in common: [[M, L*], [L, 0]] [qdd; -lam] = [tau - C; c].

    The whole system; lam first, by the inverse that Omega and psi give; and within the null space of L.
    """
    s, M, rest = dense.operators(), dense.found["mass"], dense.found["mass"] @ dense.found["qdd"]
    leaves = sorted(set(range(dense.n)) - set(dense.parents))
    point = dense.found["poses"][1][leaves[-1]] + np.array([0.3, -0.2, 0.5])
    ends = [dense.jacobian(k, point) for k in leaves[-2:]]
    sign = [1.0, -1.0][: len(ends)]
    L = sum(x * J[3:] for x, (J, _) in zip(sign, ends, strict=True))
    c = np.array([0.4, -1.0, 0.7])
    zero = np.zeros((3, 3))
    truth = np.linalg.solve(np.block([[M, L.T], [L, zero]]), np.concatenate([rest, c]))
    qdd, lam = truth[: dense.nv], -truth[dense.nv :]
    B = sum(x * B[:, 3:] for x, (_, B) in zip(sign, ends, strict=True))
    inverse = B.T @ s.psi.T @ s.H.T @ s.D_inverse @ s.H @ s.psi @ B  # 001 (20), between the ends too
    by_force = np.linalg.solve(inverse, c - L @ dense.found["qdd"])
    assert relative(by_force, lam) < 1e-11
    whiten = s.one - s.H @ s.psi @ s.K
    moved = dense.found["qdd"] + whiten.T @ s.D_inverse @ s.H @ s.psi @ B @ by_force  # 001 (18)
    assert relative(moved, qdd) < 1e-11
    Z = np.linalg.svd(L)[2][3:].T
    some = np.linalg.lstsq(L, c)[0]
    assert relative(some + Z @ np.linalg.solve(Z.T @ M @ Z, Z.T @ (rest - M @ some)), qdd) < 1e-11


# ---------------------------------------------------------------------- Gaussian conditioning
def test_000_60_64_the_smoother_is_gaussian_conditioning_on_all_torques(dense):
    prior = dense.phi @ (dense.b.ravel() + dense.M @ dense.a_0.ravel())
    mean, covariance = dense.condition(prior, np.arange(dense.nv))
    assert relative(dense.smoothed.x, mean.reshape(-1, 6)) < 1e-11
    assert relative(dense.smoothed.S, dense.block(covariance), scale=np.abs(dense.filtered.P_minus).max()) < 1e-11


def test_000_64_errors_of_the_smoother_are_orthogonal_to_every_estimate(dense):
    """So x - z may stand for one of the two x - x^, but not for both: [x - z][x - x^]* has the mean S, as printed."""
    H, prior = dense.H, dense.phi @ dense.M @ dense.phi.T
    scale, seen = np.abs(dense.filtered.P_minus).max(), 0.0
    error = lambda dofs: (
        np.eye(6 * dense.n)
        - prior @ H[dofs].T @ np.linalg.inv(H[dofs] @ prior @ H[dofs].T + dense.A[np.ix_(dofs, dofs)]) @ H[dofs]
    )
    noise = lambda dofs: prior @ H[dofs].T @ np.linalg.inv(H[dofs] @ prior @ H[dofs].T + dense.A[np.ix_(dofs, dofs)])
    everything = np.arange(dense.nv)
    for k in range(dense.n):
        outboard = np.array([dof for j in dense.subtree[k][1:] for dof in dense.dofs[j]], int)
        some, all_of_it = error(outboard), error(everything)
        shared = noise(outboard) @ dense.A[np.ix_(outboard, everything)] @ noise(everything).T
        here = slice(6 * k, 6 * k + 6)
        cross = (some @ prior @ all_of_it.T + shared)[here, here]
        assert relative(cross, dense.smoothed.S[k], scale=scale) < 1e-11
        seen = max(seen, relative(dense.filtered.P_minus[k], dense.smoothed.S[k], scale=scale))
    assert seen > 1e-2  # [x - z][x - z]*


@pytest.mark.parametrize("name", [name for name in STATES if "at rest" in name])
def test_000_54_59_the_filter_is_gaussian_conditioning_on_the_torques_outboard(case, name):
    """Of a robot at rest without gravity, as in section IX: the bias accelerations are zero."""
    dense = case.state[name]
    prior = dense.phi @ dense.b.ravel()
    for k in range(dense.n):
        here = slice(6 * k, 6 * k + 6)
        own = list(dense.dofs[k])
        outboard = [dof for j in dense.subtree[k][1:] for dof in dense.dofs[j]]
        outboard, all_of_it = np.array(outboard, int), np.array(outboard + own)
        for dofs, z, P in (
            (outboard, dense.filtered.z_minus, dense.filtered.P_minus),
            (all_of_it, dense.filtered.z_plus, dense.filtered.P_plus),
        ):
            mean, covariance = dense.condition(prior, dofs)
            assert relative(z[k], mean[here], scale=np.abs(prior).max()) < 1e-11
            assert relative(P[k], covariance[here, here], scale=np.abs(dense.M).max()) < 1e-11


def test_000_57_the_innovations_are_white_with_covariance_d(dense):
    """(I - H psi K) M (I - H psi K)* = D: block diagonal, and so is what the factor leaves of the mass matrix."""
    whiten = np.eye(dense.nv) - dense.H @ dense.psi() @ dense.E @ dense.G
    assert relative(whiten @ dense.found["mass"] @ whiten.T, dense.D) < 1e-11
    root = np.linalg.inv(np.linalg.cholesky(dense.D)) @ whiten
    assert relative(root @ dense.found["mass"] @ root.T, np.eye(dense.nv)) < 1e-11
    expected = whiten @ dense.tau - dense.H @ dense.psi() @ dense.b.ravel()
    at_rest = not np.abs(dense.V).max() > 0 and not np.abs(dense.a_0).max() > 0
    assert not at_rest or relative(dense.filtered.e_minus, expected) < 1e-11


def test_000_39_43_gains_and_covariances(dense):
    f = dense.filtered
    P = block_diagonal(f.P_minus)
    assert relative(dense.G, P @ dense.H.T @ np.linalg.inv(dense.D)) < 1e-11
    assert relative(dense.D, dense.H @ P @ dense.H.T + dense.A) < 1e-11
    assert relative(block_diagonal(f.P_plus), P - dense.G @ dense.H @ P) < 1e-11
    assert relative(dense.D @ f.e_plus, f.e_minus) < 1e-11


def test_000_51_josephs_form_is_the_same(dense):
    for name, plain in dense.filtered._asdict().items():
        assert relative(getattr(dense.found["joseph"], name), plain) < 1e-11, name


def test_000_xi_without_noise_nothing_is_left_along_the_joint(case):
    """H P+ = 0 and H G = I, which the paper prints as H P- = 0; neither holds with armature."""
    for name, dense in case.state.items():
        f = dense.filtered
        rest = np.abs(dense.H @ block_diagonal(f.P_plus)).max() / np.abs(f.P_minus).max()
        along = np.abs(dense.H @ dense.G - np.eye(dense.nv)).max()
        if "without" in name and "armature" in name:
            assert max(rest, along) < 1e-11
            assert np.abs(dense.H @ block_diagonal(f.P_minus)).max() > 1e-3
        else:
            assert min(rest, along) > 1e-4


@pytest.mark.parametrize("name", [name for name in STATES if "at rest" in name])
def test_000_42_the_residual_is_the_acceleration_with_all_joints_outside_the_subtree_locked(case, name):
    dense = case.state[name]
    for k, own in enumerate(dense.dofs):
        free = sorted(dof for j in dense.subtree[k] for dof in dense.dofs[j])
        J = dense.J[:, free]
        M = dense.found["mass"][np.ix_(free, free)]
        qdd = np.linalg.solve(M, dense.tau[free] - J.T @ dense.b.ravel())
        assert relative(dense.filtered.e_plus[own], qdd[[free.index(dof) for dof in own]]) < 1e-11


# ---------------------------------------------------------------------- covariances of the costates
def test_000_66_68_delta_is_the_acceleration_by_a_force_on_the_body(dense):
    Omega = dense.J @ np.linalg.inv(dense.found["mass"]) @ dense.J.T
    assert relative(dense.smoothed.Delta_minus, dense.block(Omega)) < 1e-11
    for k, parent in enumerate(dense.parents):
        E = np.zeros((6, 6)) if parent < 0 else dense.at(dense.E, parent, k)
        expected = E.T @ dense.at(Omega, max(parent, 0), max(parent, 0)) @ E
        assert relative(dense.smoothed.Delta_plus[k], expected, scale=np.abs(dense.block(Omega)).max()) < 1e-11


def test_000_65_the_smoothed_covariance_on_either_side_of_a_joint(dense):
    f, s = dense.filtered, dense.smoothed
    scale = np.abs(f.P_minus).max()
    assert relative(s.S, f.P_plus - f.P_plus @ s.Delta_plus @ f.P_plus, scale=scale) < 1e-11
    uncertain = np.linalg.eigvalsh(s.S)
    assert uncertain.min() > -1e-11 * scale
    assert uncertain.max() > 1e-3 * scale


def test_000_68_as_printed_is_wrong(dense):
    """The transposes are exchanged."""
    inner = [k for k in range(dense.n) if dense.parents[k] >= 0]
    L, own = np.eye(6 * dense.n) - dense.G @ dense.H, dense.H.T @ np.linalg.inv(dense.D) @ dense.H
    Delta = block_diagonal(dense.smoothed.Delta_plus)
    right, printed = (dense.block(x)[inner] for x in (L.T @ Delta @ L + own, L @ Delta @ L.T + own))
    assert relative(right, dense.smoothed.Delta_minus[inner]) < 1e-11
    assert relative(printed, dense.smoothed.Delta_minus[inner]) > 1e-2


# ---------------------------------------------------------------------- causes of accelerations
def test_000_69_accelerations_by_cause(dense):
    inverse, parts = np.linalg.inv(dense.found["mass"]), dense.found["parts"]
    size = np.abs(dense.found["qdd"]).max()
    assert relative(sum(parts), dense.found["qdd"]) < 1e-11
    assert relative(parts.moments, inverse @ dense.tau, scale=size) < 1e-11
    n = dense.phi.T @ dense.n_bias.ravel()
    assert relative(parts.bias_accelerations, -inverse @ dense.J.T @ dense.M @ n, scale=size) < 1e-11
    gravity = dense.a_0.ravel() - n
    forces = dense.b.ravel() + dense.M @ gravity
    assert relative(parts.bias_forces, -inverse @ dense.J.T @ forces, scale=size) < 1e-11


@pytest.fixture
def chain():
    return case_of("chain")


class Paper:
    """A chain in the paper's numbering: 1 is the tip, N the base."""

    def __init__(self, dense):
        f, s, last = dense.filtered, dense.smoothed, dense.n - 1
        body = lambda k: last + 1 - k
        self.N, self.body = dense.n, body
        self.H = lambda k: dense.H[body(k), 6 * body(k) : 6 * body(k) + 6]
        self.G, self.D = (lambda k: f.G[body(k)]), (lambda k: f.D[body(k), 0])
        self.P_plus = lambda k: f.P_plus[body(k)]
        self.Delta_plus, self.Delta_minus = (lambda k: s.Delta_plus[body(k)]), (lambda k: s.Delta_minus[body(k)])
        self.phi = lambda j, k: dense.at(dense.phi, body(j), body(k))
        self.L = lambda k: np.eye(6) - np.outer(self.G(k), self.H(k))
        self.c = lambda k: 1 / self.D(k) + self.G(k) @ self.Delta_plus(k) @ self.G(k)
        self.d = lambda k: self.G(k) @ self.Delta_plus(k) - self.c(k) * self.H(k)

    def psi(self, k, i):
        """psi(k-, i+) of (72): from joint i to joint k, the factors of later joints on the left."""
        out = self.phi(i + 1, i)
        for j in range(i + 1, k):
            out = self.phi(j + 1, j) @ self.L(j) @ out
        return out


@pytest.mark.parametrize("name", STATES)
def test_000_70_72_the_closed_forms_of_the_three_parts(chain, name):
    dense = chain.state[name]
    p, parts = Paper(dense), dense.found["parts"]
    tau = lambda k: dense.tau[p.body(k)]
    gravity = dense.a_0.ravel() - dense.phi.T @ dense.n_bias.ravel()
    forces = dense.b + (dense.M @ gravity).reshape(-1, 6)
    b, n = (lambda k: forces[p.body(k)]), (lambda k: dense.n_bias[p.body(k)])
    right = {"moments": [], "bias_forces": [], "bias_accelerations": []}
    for k in range(1, p.N + 1):
        before, after = range(1, k), range(k + 1, p.N + 1)
        one = p.c(k) * tau(k) + sum(p.d(k) @ p.psi(k, i) @ p.G(i) * tau(i) for i in before)
        one += sum(p.G(k) @ p.psi(i, k).T @ p.d(i) * tau(i) for i in after)
        two = p.d(k) @ b(k) + sum(p.d(k) @ p.psi(k, i) @ p.L(i) @ b(i) for i in before)
        two += sum(p.G(k) @ p.psi(i, k).T @ p.Delta_minus(i) @ b(i) for i in after)
        rest = lambda i: p.Delta_plus(i) @ p.P_plus(i) - np.eye(6)
        three = p.G(k) @ rest(k) @ n(k) + sum(p.d(k) @ p.psi(k, i) @ p.P_plus(i) @ n(i) for i in before)
        three += sum(p.G(k) @ (p.L(i) @ p.psi(i, k)).T @ rest(i) @ n(i) for i in after)
        for part, value in zip(right, (one, two, three), strict=True):
            right[part].append(value)
    size = np.abs(dense.found["qdd"]).max()
    for part, values in right.items():
        assert relative(values[::-1], getattr(parts, part), scale=size) < 1e-11, part


@pytest.mark.parametrize("name", list(STATES)[:2])
def test_000_83_the_inverse_of_the_mass_matrix_by_columns(chain, name):
    """alpha goes outward by phi^T; with phi, as printed, it is not the inverse."""
    dense = chain.state[name]
    p = Paper(dense)
    inverse = np.linalg.inv(dense.found["mass"])[::-1, ::-1]
    for transpose in (True, False):
        found = np.zeros((p.N, p.N))
        for i in range(1, p.N + 1):
            found[i - 1, i - 1] = p.c(i)
            alpha = p.Delta_plus(i) @ p.G(i) - p.c(i) * p.H(i)
            for k in range(i - 1, 0, -1):
                alpha = (p.phi(k + 1, k).T if transpose else p.phi(k + 1, k)) @ alpha
                found[k - 1, i - 1] = found[i - 1, k - 1] = p.G(k) @ alpha
                alpha = p.L(k).T @ alpha
        error = relative(found, inverse)
        assert error < 1e-11 if transpose else error > 1e-2


# ---------------------------------------------------------------------- samples
def test_samples_are_white_noise_through_the_factor(dense):
    """The innovations of a sample, over the root of D, are the noise it was made of."""
    noise = np.asarray(jax.random.normal(KEY, (dense.nv,)))
    whiten = np.eye(dense.nv) - dense.H @ dense.psi() @ dense.E @ dense.G
    root = np.linalg.cholesky(dense.D)
    assert relative(np.linalg.solve(root, whiten @ dense.found["sample"]), noise) < 1e-10
    assert relative(dense.found["sample of inverse"], whiten.T @ np.linalg.solve(root.T, noise)) < 1e-10
    assert relative(dense.found["mass"] @ dense.found["sample of inverse"], dense.found["sample"]) < 1e-11


def test_many_samples_have_the_covariance():
    model, count = random_chain(2, seed=1, armature=True), 20_000
    q, keys = random_state(model)["q"], jax.random.split(jax.random.key(0), count)
    M = np.asarray(jaxdyn.mass_matrix(model, q))
    for of, covariance in (("mass_matrix", M), ("inverse", np.linalg.inv(M))):
        draw = quickly(jax.vmap(lambda key: estimation.sample(model, q, key, of=of)))
        x = draw(keys)
        root = np.linalg.inv(np.linalg.cholesky(covariance))
        white = root @ (x.T @ x / count) @ root.T
        assert np.abs(white - np.eye(2)).max() < 5 / np.sqrt(count)  # four standard deviations of a variance
        assert np.abs(root @ x.mean(0)).max() < 4 / np.sqrt(count)
