"""Derivatives of the operators by the coordinates, and the operator identities of 002's appendices.

One entry an equation, named by its number: both sides, of a state s in motion. What depends on a coordinate i is stacked,
[i, ...]; H_delta, H_s and H_i are those of (A.1), and X_i is H*_i x, which is H_delta where joints turn.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.in_motion import block, cross, diagonal
from helpers.states import geared, quickly, random_state, relative

import jaxdyn
from jaxdyn.algorithms.sensitivity import mass_matrix_sensitivity, mass_matrix_sensitivity_vp
from jaxdyn.diagonal.operator_sensitivities import (
    mass_matrix_sensitivity_operator,
    sensitivities,
    sensitivities_autodiff,
)
from jaxdyn.model.random_models import random_chain

TOLERANCE = 1e-11
T = lambda X: np.swapaxes(X, -1, -2)


def by(X):
    """Return derivatives [..., i] as [i, ...]."""
    return np.moveaxis(X, -1, 0)


def with_transpose(Y):
    return Y + T(Y)


def quadratic(s):
    """Return qd* M_theta qd."""
    return np.einsum("jli,j,l->i", s.M_theta, s.qd, s.qd)


def lam_by_cases(s, at_i):
    """Return lambda_i(k) by (A.16) from lambda_i(i): zero unless i is k, or outboard of k."""
    cases = lambda i, k: block(s.psi, k, i) @ at_i[i] @ block(s.psi, k, i).T
    return np.stack([diagonal([cases(i, k) for k in range(s.n)]) for i in range(s.n)])


def P_theta_by_cases(s):
    """Return (A.23)."""
    theta, h = by(s.theta.P), [block(s.H_delta[i], i) for i in range(s.n)]
    outboard = lambda i, k: h[i] @ block(s.P, k) - block(s.P, k) @ h[i]
    inboard = lambda i, k: block(s.psi, k, i) @ block(theta[i], i) @ block(s.psi, k, i).T
    cases = lambda i, k: outboard(i, k) if s.outboard[i, k] else inboard(i, k)
    return np.stack([diagonal([cases(i, k) for k in range(s.n)]) for i in range(s.n)])


def tau_theta(s):
    return s.tau_bar @ s.lam_i @ s.H.T @ s.D_inverse @ s.H + s.H_s @ s.tau - s.tau @ s.H_s


def E_psi_theta(s, first):
    return first @ s.E_psi - s.E_psi @ s.lam_i @ s.H.T @ s.D_inverse @ s.H - s.E_psi @ s.H_s


def M_theta(s, left, right):
    """Return H phi [left phi M - M phi* right] phi* H*."""
    Z = s.phi @ s.M @ s.phi.T
    return s.H @ (s.phi @ left @ Z - Z @ right @ s.phi.T) @ s.H.T


def E_phi_theta_by_cases(s):
    """Return (A.5) in the blocks of E_phi: phi(p, k) turns with all that is outboard of i."""
    found = np.zeros((s.n, 6 * s.n, 6 * s.n))
    for i, h in enumerate(s.columns):
        for k, p in enumerate(s.parents):
            if s.outboard[i, k] and k != i:
                block(found[i], p, k)[:] = cross(h) @ block(s.E_phi, p, k) - block(s.E_phi, p, k) @ cross(h)
    return found


def M_theta_by_cases(s):
    """Return (A.6)."""
    turned = lambda h, X: cross(h) @ X - X @ cross(h)
    cases = lambda i, k: turned(s.columns[i], block(s.M, k)) * s.outboard[i, k]
    return np.stack([diagonal([cases(i, k) for k in range(s.n)]) for i in range(s.n)])


def around(s, first, second):
    Z = s.phi @ s.M @ s.phi.T
    return (s.phi @ first + second) @ Z - Z @ (first @ s.phi.T + second)


def around_theta(s):
    half = by(s.theta.phi) @ s.M @ s.phi.T
    return with_transpose(half) + s.phi @ by(s.theta.M) @ s.phi.T


def m_theta(s, X):
    return s.H @ s.phi @ (X @ s.phi_t @ s.P + 0.5 * (s.I + s.tau_bar) @ s.lam_i) @ s.H.T @ s.Dmh


# For trees with joints of one column each, armature or not.
ALWAYS = {
    "6.12, Identity 6.3": lambda s: (M_theta(s, -T(s.X_i), s.X_i), by(s.M_theta)),
    "A.2": lambda s: (s.H_i, s.H_s + s.H_delta),
    "A.3: Omega": lambda s: (np.tensordot(s.qd, s.H_i, 1), s.Omega),
    "A.3: Omega_s": lambda s: (np.tensordot(s.qd, s.H_s, 1), s.Omega_s),
    "A.3: Omega_delta": lambda s: (np.tensordot(s.qd, s.H_delta, 1), s.Omega_delta),
    "A.7": lambda s: (s.H_s @ s.H.T, T(by(s.theta.H))),
    "A.8": lambda s: (s.H_i @ s.E_phi - s.E_phi @ (s.H_s + T(s.X_i - s.H_delta)), by(s.theta.E_phi)),
    "A.9: by E_phi": lambda s: (s.phi @ by(s.theta.E_phi) @ s.phi, by(s.theta.phi)),
    "A.10": lambda s: (s.H_i @ s.M - s.M @ s.H_i, by(s.theta.M)),
    "A.11": lambda s: (s.E_phi @ s.phi, s.phi - s.I),
    "A.11: the other way round": lambda s: (s.phi @ s.E_phi, s.phi - s.I),
    "A.14a": lambda s: (2 * s.H @ s.V_t.T @ s.phi @ s.M @ s.V, quadratic(s)),
    "A.14b": lambda s: (2 * s.H @ s.phi @ (-s.X.T @ s.phi + s.V_t.T) @ s.M @ s.V, quadratic(s)),
    "A.15": lambda s: (-2 * np.einsum("a,iba,b->i", s.V, s.X_i, s.phi @ s.M @ s.V), quadratic(s)),
    "A.16": lambda s: (
        lam_by_cases(s, [block(-X.T @ s.P - s.P @ X, i) for i, X in enumerate(s.X_i)]), s.lam_i,
    ),
    "A.17": lambda s: (s.lam_i - s.E_psi @ s.lam_i @ s.E_psi.T, -T(s.X_i) @ s.P - s.P @ s.X_i),
    "A.19": lambda s: (s.H @ s.lam_i @ s.H.T, by(s.theta.D)),
    "A.20": lambda s: (
        -s.D_inverse @ s.H @ s.lam_i @ s.H.T @ s.D_inverse, -s.D_inverse @ by(s.theta.D) @ s.D_inverse,
    ),
    "B.1": lambda s: ((s.one - s.H @ s.psi @ s.K) @ s.H @ s.phi, s.H @ s.psi),
    "B.2": lambda s: (s.phi @ s.K @ (s.one - s.H @ s.psi @ s.K), s.psi @ s.K),
    "B.5": lambda s: (np.linalg.inv(s.psi) - np.linalg.inv(s.phi), s.K @ s.H),
    "B.5: by tau": lambda s: (s.E_phi @ s.tau, s.K @ s.H),
    "B.7": lambda s: (s.H @ (s.V_t.T @ s.phi - s.phi @ s.V_t.T), -s.H @ s.phi @ s.X.T @ s.phi),
    "B.7: its proof": lambda s: (
        s.phi @ (s.V_t.T @ np.linalg.inv(s.phi) - s.X.T) + s.X.T, s.V_t.T,
    ),
    "B.8": lambda s: (
        cross(s.E_phi[:6, 6:12].T @ s.V[:6]), s.E_phi[:6, 6:12].T @ cross(s.V[:6]) @ np.linalg.inv(s.E_phi[:6, 6:12].T),
    ),
    "B.9, B.10": lambda s: (s.E_phi.T @ s.V_t, (s.V_t - s.X) @ s.E_phi.T),
    "B, last line: H Omega_delta = 0": lambda s: (s.one + s.H @ s.X.T @ s.H.T, s.one),
}  # fmt: skip
# For joints that turn.
TURNING = {
    "6.10": lambda s: (s.H_delta, s.X_i),
    "6.11": lambda s: (np.stack([block(X, i) for i, X in enumerate(s.H_delta)]), np.stack([cross(h) for h in s.columns])),
    "6.12: by H_delta": lambda s: (M_theta(s, s.H_delta, s.H_delta), by(s.M_theta)),
    "A.4": lambda s: (
        np.stack([[block(X, k) @ h for k, h in enumerate(s.columns)] for X in s.H_s]),
        np.einsum("kkai->ika", s.theta.H.reshape((s.n, s.n, 6, s.n))),
    ),
    "A.5": lambda s: (E_phi_theta_by_cases(s), by(s.theta.E_phi)),
    "A.6": lambda s: (M_theta_by_cases(s), by(s.theta.M)),
    "A.9": lambda s: (s.phi @ s.H_delta @ s.phi - s.phi @ s.H_i + s.H_s @ s.phi, by(s.theta.phi)),
    "A.12": lambda s: (around(s, s.H_delta, s.H_s), around_theta(s)),
    "A.13": lambda s: (M_theta(s, s.H_delta, s.H_delta), by(s.M_theta)),
    "A.18": lambda s: (s.lam_i - s.P @ s.H_s + s.H_s @ s.P, by(s.theta.P)),
    "A.21": lambda s: (s.tau_bar @ s.lam_i @ s.H.T @ s.D_inverse + s.H_s @ s.G, by(s.theta.G)),
    "A.22": lambda s: (
        np.stack([diagonal([block(X, k) * s.outboard[k, i] for k in range(s.n)]) for i, X in enumerate(by(s.theta.P))]),
        s.lam_i,
    ),
    "A.23": lambda s: (P_theta_by_cases(s), by(s.theta.P)),
    "A.24": lambda s: (by(s.theta.P) + s.P @ s.H_s - s.H_s @ s.P, s.lam_i),
    "A.25: tau": lambda s: (tau_theta(s), -by(s.theta.tau_bar)),
    "A.25: E_psi": lambda s: (E_psi_theta(s, s.H_i), by(s.theta.E_psi)),
}  # fmt: skip
WITHOUT_ARMATURE = {
    "6.13, Identity 6.4, A.14c": lambda s: (
        2 * s.H @ s.phi @ (-s.X.T @ (s.I + s.phi @ s.K @ s.H) @ s.P + s.V_t.T @ s.M) @ s.V, quadratic(s),
    ),
    "A.29": lambda s: (m_theta(s, -T(s.X_i)), by(s.theta.m)),
    "B.3": lambda s: (s.phi @ s.M @ s.phi.T @ s.H.T, (s.I + s.phi @ s.K @ s.H) @ s.P @ s.phi.T @ s.H.T),
    "B.4": lambda s: (s.H @ s.phi @ s.tau_bar, s.H @ s.phi @ s.E_psi),
    "B.6": lambda s: (s.I + s.P @ s.tau_bar.T @ s.H.T @ s.H, s.I),
    "B.6: the other way round": lambda s: (s.I + s.tau_bar @ s.P @ s.H.T @ s.H, s.I),
}  # fmt: skip
MISPRINTS = {
    "A.9: -phi E_phi phi": lambda s: (-s.phi @ by(s.theta.E_phi) @ s.phi, by(s.theta.phi)),
    "A.9: H_s for H_delta": lambda s: (s.phi @ s.H_s @ s.phi - s.phi @ s.H_i + s.H_s @ s.phi, by(s.theta.phi)),
    "A.11: -phi_t": lambda s: (s.E_phi @ s.phi, -s.phi_t),
    "A.12, last line of its proof": lambda s: (around(s, s.H_s, s.H_s), around_theta(s)),
    "A.13: H_s": lambda s: (M_theta(s, s.H_s, s.H_s), by(s.M_theta)),
    "A.17: H_s": lambda s: (s.lam_i - s.E_psi @ s.lam_i @ s.E_psi.T, s.H_s @ s.P - s.P @ s.H_s),
    "A.25: E_psi by H_s": lambda s: (E_psi_theta(s, s.H_s), by(s.theta.E_psi)),
    "A.29: H_s": lambda s: (m_theta(s, s.H_s), by(s.theta.m)),
    "B.6: tau for tau_bar": lambda s: (s.I + s.P @ s.tau.T @ s.H.T @ s.H, s.I),
    "B.7, its proof: + Omega_delta": lambda s: (
        s.phi @ (s.V_t.T @ np.linalg.inv(s.phi) - s.X.T) - s.X.T, s.V_t.T,
    ),
    "B.10: V+ for V": lambda s: (s.E_phi.T @ s.V_t, (s.V_t - 2 * s.X) @ s.E_phi.T),
    "B, last line: H Omega": lambda s: (s.I + s.H.T @ s.H @ s.Omega, s.I),
    "after 5.5: X x (Z x Y) = -Z x (X x Y)": lambda s: (
        cross(s.V[:6]) @ cross(s.V[6:12]), -cross(s.V[6:12]) @ cross(s.V[:6]),
    ),
}  # fmt: skip


ARMATURE = pytest.mark.parametrize("armature", [True, False], ids=["armature", "no armature"])


@ARMATURE
@pytest.mark.parametrize("equation", ALWAYS)
def test_equation(both, equation, armature):
    found, truth = ALWAYS[equation](both[not armature])
    assert relative(found, truth) < TOLERANCE


@ARMATURE
@pytest.mark.parametrize("both", ["turning"], indirect=True)
@pytest.mark.parametrize("equation", TURNING)
def test_equation_of_joints_that_turn(both, equation, armature):
    found, truth = TURNING[equation](both[not armature])
    assert relative(found, truth) < TOLERANCE


@pytest.mark.parametrize("equation", WITHOUT_ARMATURE)
def test_equation_that_needs_joints_without_armature(both, equation):
    found, truth = WITHOUT_ARMATURE[equation](both[1])
    assert relative(found, truth) < TOLERANCE
    found, truth = WITHOUT_ARMATURE[equation](both[0])
    assert relative(found, truth) > 1e-4


@pytest.mark.parametrize("equation", MISPRINTS)
def test_misprint(both, equation):
    found, truth = MISPRINTS[equation](both[1])
    assert relative(found, truth) > 1e-3


@pytest.mark.parametrize("both", ["sliding"], indirect=True)
def test_6_12_as_printed_needs_joints_that_turn(both):
    """The paper's H_delta has the angular part of the column alone."""
    s = both[1]
    assert relative(M_theta(s, s.H_delta, s.H_delta), by(s.M_theta)) > 1e-3


# ---------------------------------------------------------------------- the functions
def test_sensitivities_and_their_twin(general):
    """Of all joint types, with armature."""
    found = quickly(lambda q: sensitivities(general.model, q))(general.q)
    for name in found._fields:
        assert relative(getattr(found, name), getattr(general.theta, name)) < TOLERANCE, name


def test_identity_6_3_for_all_joint_types(general):
    """The operator expression equals the derivatives of m m*."""
    model, q, m, m_theta = general.model, general.q, general.operators.m, general.theta.m
    truth = np.einsum("ijd,kj->ikd", m_theta, m)
    found = quickly(lambda q: mass_matrix_sensitivity_operator(model, q))(q)
    assert relative(found, truth + np.swapaxes(truth, 0, 1)) < TOLERANCE


def test_identities_6_3_and_6_4_by_operators_entrywise_and_in_one_sweep():
    model = random_chain(2, seed=1, joints=("universal", "prismatic"))
    s = random_state(model)

    @quickly
    def found(q, x):
        tensors = mass_matrix_sensitivity_operator(model, q), mass_matrix_sensitivity(model, q)
        return *tensors, mass_matrix_sensitivity_vp(model, q, x, x)

    by_operators, entrywise, product = found(s["q"], s["qd"])
    assert relative(by_operators, entrywise) < TOLERANCE
    assert relative(np.einsum("jld,j,l->d", by_operators, s["qd"], s["qd"]), product) < TOLERANCE


def test_nothing_to_move():
    model = jaxdyn.ModelBuilder("nothing").build()
    assert sensitivities(model, jnp.zeros(0)).m.shape == (0, 0, 0)
    assert sensitivities_autodiff(model, jnp.zeros(0)).phi.shape == (0, 0, 0)
    assert mass_matrix_sensitivity_operator(model, jnp.zeros(0)).shape == (0, 0, 0)


def test_errors():
    functions = sensitivities, sensitivities_autodiff, mass_matrix_sensitivity_operator
    for function in functions:
        with pytest.raises(ValueError, match="mimic joint"):
            function(geared(), jnp.zeros(2))
        with pytest.raises(TypeError, match=r"model must be a jaxdyn\.Model"):
            function("arm7", jnp.zeros(2))
        with pytest.raises(ValueError, match=r"q must have shape \(2,\)"):
            function(random_chain(2, seed=1), jnp.zeros(3))
