"""The Coriolis terms of 002 section 7 in closed form, and the equations that lead to them and follow from them.

One entry an equation, named by its number: both sides, of a state s in motion, armature or not.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.in_motion import block
from helpers.states import geared, quickly, relative

from jaxdyn.diagonal.closed_form import coriolis_closed_form, coriolis_xi_closed_form
from jaxdyn.model.random_models import random_chain

TOLERANCE = 1e-11


def quadratic(s):
    """Return qd* M_theta qd."""
    return np.einsum("jli,j,l->i", s.M_theta, s.qd, s.qd)


def middle(s):
    """Return the skew part of the bracket in (7.1)."""
    return s.E_psi @ s.lam - s.lam @ s.E_psi.T + s.X.T @ s.P - s.P @ s.X


def C_xi(s):
    """Return what the definition in (7.9) says, D^1/2 [C - D^1/2 (d/dt D^-1/2) nu]."""
    slope = -0.5 * np.diag(s.dot.D) / np.diag(s.D) ** 1.5
    return s.Dh @ (s.C - s.Dh @ (slope * s.nu))


def recursion(s, bracket):
    """Return Algorithm 7.1, body by body, children first; the bracket of (k, X) acts on V(k)."""
    y, C = np.zeros((s.n, 6)), np.zeros(s.n)
    V, V_plus = s.V.reshape((-1, 6)), s.V_plus.reshape((-1, 6))
    for k in reversed(range(s.n)):
        for c in [c for c in range(s.n) if s.parents[c] == k]:
            psi = block(s.E_psi, k, c)
            y[k] += psi @ y[c] + psi @ block(s.lam, c) @ V[c]
        X = -block(s.X, k).T @ block(s.P, k)
        y[k] -= bracket(block(s.V_t, k).T @ block(s.M, k), X) @ V[k]
        y[k] -= block(s.lam, k) @ block(s.tau_bar, k).T @ V_plus[k]
        C[k] = s.columns[k] @ y[k] / (2 * s.Dh[k, k])
    return C


def recursion_xi(s):
    """Return (7.10)."""
    y, C, V = np.zeros((s.n, 6)), np.zeros(s.n), s.V.reshape((-1, 6))
    for k in reversed(range(s.n)):
        for c in [c for c in range(s.n) if s.parents[c] == k]:
            y[k] += block(s.E_psi, k, c) @ y[c]
        X = -block(s.X, k).T @ block(s.P, k)
        y[k] += block(s.lam, k) @ s.columns[k] * s.xi[k] - (block(s.V_t, k).T @ block(s.M, k) + X) @ V[k]
        C[k] = s.columns[k] @ y[k]
    return C


def xi_dot(s, tau):
    """Return the rate of xi under joint forces tau, from the normalised equations."""
    return s.Dmh @ (s.ell @ tau - s.C - 0.5 * s.dot.D @ s.Dmh @ s.xi)


def zeta(s, tau):
    return s.K @ tau + s.lam @ s.H.T @ s.xi + (s.X.T @ s.P - s.V_t.T @ s.M) @ s.V


TAU = np.array([0.3, -1.0, 0.7, 2.0, -0.4])
tau = lambda s: TAU[: s.n]

ALWAYS = {
    "2.1": lambda s: ((s.M_theta @ s.qd) @ s.qd - 0.5 * quadratic(s), s.bias),
    "3.2": lambda s: (s.ell @ (s.dot.m @ s.nu - 0.5 * quadratic(s)), s.C),
    "7.1: psi* H* D^-1/2 nu = V": lambda s: (s.psi.T @ s.H.T @ s.Dmh @ s.nu, s.V),
    "7.1, Identity 7.1": lambda s: (0.5 * s.Dmh @ s.H @ s.psi @ (middle(s) - 2 * s.V_t.T @ s.M) @ s.V, s.C),
    "7.2, Algorithm 7.1": lambda s: (recursion(s, lambda VM, X: 2 * VM + X - X.T), s.C),
    "7.3": lambda s: (1 + s.nu @ s.C, np.array(1.0)),
    "7.4, 7.5": lambda s: (middle(s), -middle(s).T),
    "7.6": lambda s: (s.nu @ (s.ell @ tau(s) - s.C), s.qd @ tau(s)),
    "7.7": lambda s: ((s.one + s.H @ s.phi @ s.K).T @ s.qd, s.xi),
    "7.8": lambda s: (s.xi @ s.D @ s.xi, s.qd @ s.m @ s.m.T @ s.qd),
    "7.9": lambda s: (s.H @ s.psi @ (s.lam @ s.H.T @ s.xi + (s.X.T @ s.P - s.V_t.T @ s.M) @ s.V), C_xi(s)),
    "7.9: equations of motion": lambda s: (
        s.D @ xi_dot(s, tau(s)) + C_xi(s), (s.one - s.H @ s.psi @ s.K) @ tau(s),
    ),
    "7.9, second form, for all joints": lambda s: (
        -s.H @ s.psi @ (s.E_phi @ s.P_plus @ s.X + s.V_t.T @ s.M) @ s.V - s.H @ s.P_ring @ s.E_psi.T @ s.V, C_xi(s),
    ),
    "7.10": lambda s: (recursion_xi(s), C_xi(s)),
    "8.1, 8.2": lambda s: (s.D_inverse @ (tau(s) - s.H @ s.psi @ zeta(s, tau(s))), xi_dot(s, tau(s))),
}  # fmt: skip
WITHOUT_ARMATURE = {
    "7.9, second form": lambda s: (
        s.H @ s.psi @ (s.P_ring @ s.H.T @ s.xi + s.X.T @ s.P_plus @ s.V - s.V_t.T @ s.M @ s.V), C_xi(s),
    ),
}  # fmt: skip
MISPRINTS = {
    "3.2: l on the first term alone": lambda s: (s.ell @ s.dot.m @ s.nu - 0.5 * quadratic(s), s.C),
    "section 3: qd = l nu": lambda s: (s.ell @ s.nu, s.qd),
    "7.2: 2 [V M - X + X*]": lambda s: (recursion(s, lambda VM, X: 2 * (VM - X + X.T)), s.C),
    "7.2: 2 [V M + X + X*]": lambda s: (recursion(s, lambda VM, X: 2 * (VM + X + X.T)), s.C),
    "7.6: one half": lambda s: (0.5 * s.nu @ (s.ell @ tau(s) - s.C), s.qd @ tau(s)),
    "7.9: (I - H psi K)*": lambda s: (
        s.D @ xi_dot(s, tau(s)) + C_xi(s), (s.one - s.H @ s.psi @ s.K).T @ tau(s),
    ),
    "7.9, second form: + V M V": lambda s: (
        s.H @ s.psi @ (s.P_ring @ s.H.T @ s.xi + s.X.T @ s.P_plus @ s.V + s.V_t.T @ s.M @ s.V), C_xi(s),
    ),
    "8.1: D^-1 H psi zeta": lambda s: (s.D_inverse @ s.H @ s.psi @ zeta(s, tau(s)), xi_dot(s, tau(s))),
    "8, step 4: nu = D^-1/2 xi": lambda s: (s.Dmh @ s.xi, s.nu),
}  # fmt: skip


@pytest.mark.parametrize("armature", [True, False], ids=["armature", "no armature"])
@pytest.mark.parametrize("equation", ALWAYS)
def test_equation(both, equation, armature):
    found, truth = ALWAYS[equation](both[not armature])
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
def test_functions(both):
    """With armature, against inverse dynamics and the rate of m by JAX."""
    s = both[0]
    of = lambda q, nu, xi: (coriolis_closed_form(s.model, q, nu), coriolis_xi_closed_form(s.model, q, xi))
    C, C_of_xi = quickly(of)(s.q, s.nu, s.xi)
    assert relative(C, s.C) < TOLERANCE
    assert relative(C_of_xi, C_xi(s)) < TOLERANCE
    assert abs(s.nu @ C) < 1e-13 * np.linalg.norm(s.nu) * np.linalg.norm(C)


def test_errors():
    for function, other in ((coriolis_closed_form, "coriolis"), (coriolis_xi_closed_form, "coriolis_xi")):
        with pytest.raises(ValueError, match=f"joint 'joint_1' is spherical. Use {other}, for joints of every type"):
            function(random_chain(2, seed=1, joints=("revolute", "spherical")), jnp.zeros(5), jnp.zeros(4))
        with pytest.raises(ValueError, match="mimic joint"):
            function(geared(), jnp.zeros(2), jnp.zeros(2))
        with pytest.raises(ValueError, match=r"must have shape \(2,\)"):
            function(random_chain(2, seed=1), jnp.zeros(2), jnp.zeros(3))
