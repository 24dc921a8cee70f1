"""Rates of the articulated quantities and of the mass matrix's factor: by the equations of 002, and by their twins.

One entry an equation, named by its number: both sides, of a state s in motion. Where a joint turns, Omega_delta of the
paper is -X* left of P, and X right of it; written with X, an equation holds for joints that slide too.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.in_motion import block, diagonal
from helpers.states import geared, long, quickly, random_state, relative

import jaxdyn
from jaxdyn import estimation
from jaxdyn.diagonal.filter_rates import (
    factor_rate,
    factor_rate_autodiff,
    factor_rate_product,
    factor_rate_product_autodiff,
    rates,
    rates_autodiff,
)
from jaxdyn.estimation import block_diagonal
from jaxdyn.model.random_models import random_chain

TOLERANCE = 1e-11


def by_children(s, input, right=lambda psi: psi.T):
    """Return lambda by the recursion over bodies, children first: what they hand on is psi lambda psi*."""
    lam = [block(input, k) for k in range(s.n)]
    for k in reversed(range(s.n)):
        if (p := s.parents[k]) >= 0:
            psi = block(s.E_psi, p, k)
            lam[p] = lam[p] + psi @ lam[k] @ right(psi)
    return diagonal(lam)


def local_G(s):
    return s.tau_bar @ s.P_ring @ s.H.T @ s.D_inverse


def m_dot(s, lam, tau_bar):
    """Return (6.7)."""
    return s.H @ s.phi @ (-s.X.T @ s.phi_t @ s.P + 0.5 * (s.I + tau_bar) @ lam) @ s.H.T @ s.Dmh


def turned(s, X):
    return s.Omega @ X - X @ s.Omega


def in_blocks(s, rows):
    """Return rows (nv, 6), one a degree of freedom, as a matrix like H."""
    return np.einsum("kj,ki->kij", rows, s.one).reshape((s.n, 6 * s.n))


ALWAYS = {
    "Table 3, H: local derivative": lambda s: (s.H + in_blocks(s, s.local.H), s.H),
    "Table 3, H: inertial derivative": lambda s: (-s.H @ s.Omega, s.dot.H),
    "Table 3, M: local derivative": lambda s: (s.M + diagonal(s.local.M), s.M),
    "Table 3, M: inertial derivative": lambda s: (turned(s, s.M), s.dot.M),
    "Table 3, D": lambda s: (s.H @ s.P_ring @ s.H.T, s.dot.D),
    "Table 3, G: local derivative": lambda s: (local_G(s), in_blocks(s, s.local.G).T),
    "Table 3, G: inertial derivative": lambda s: (local_G(s) + s.Omega @ s.G, s.dot.G),
    "Table 3, tau_bar: local derivative": lambda s: (-local_G(s) @ s.H, diagonal(s.local.tau_bar)),
    "Table 3, tau_bar: inertial derivative": lambda s: (-local_G(s) @ s.H + turned(s, s.tau_bar), s.dot.tau_bar),
    "6.1, 6.2": lambda s: (s.Omega @ s.H.T, s.dot.H.T),
    "6.4: lambda": lambda s: (s.P_ring - s.X.T @ s.P - s.P @ s.X, diagonal(s.local.lam)),
    "6.4: P": lambda s: (s.E_psi @ s.lam @ s.E_psi.T, diagonal(s.local.P)),
    "6.5": lambda s: (by_children(s, -s.X.T @ s.P - s.P @ s.X), diagonal(s.local.lam)),
    "6.6: by P": lambda s: (s.P_ring + turned(s, s.P), s.dot.P),
    "6.6: by lambda": lambda s: (
        s.lam + s.Omega_s @ s.P - s.P @ s.Omega_s + s.slide.T @ s.P + s.P @ s.slide, s.dot.P,
    ),
    "A.19, rate": lambda s: (s.H @ s.lam @ s.H.T, s.dot.D),
    "A.26": lambda s: (np.tensordot(s.qd, s.lam_i, 1), diagonal(s.local.lam)),
    "A.27": lambda s: (s.lam - s.E_psi @ s.lam @ s.E_psi.T, -s.X.T @ s.P - s.P @ s.X),
    "A.28": lambda s: (by_children(s, s.lam - s.P_ring), diagonal(s.local.lam)),
}  # fmt: skip
WITHOUT_ARMATURE = {
    "6.7, Identity 6.1": lambda s: (m_dot(s, s.lam, s.tau_bar), s.dot.m),
    "6.8, Identity 6.2": lambda s: (
        s.H @ s.phi @ (
            -s.X.T @ s.phi @ s.K @ s.H @ s.P
            + 0.5 * (-s.X.T @ s.P - s.P @ s.X + s.E_psi @ s.lam - s.lam @ s.E_psi.T)
        ) @ s.V, s.dot.m @ s.nu,
    ),
    "6.9": lambda s: (
        s.H @ s.phi @ (-s.X.T @ s.phi @ s.K @ s.H @ s.P + 0.5 * (s.I + s.tau_bar) @ s.lam @ s.tau.T) @ s.V,
        s.dot.m @ s.nu,
    ),
    "A.30": lambda s: (m_dot(s, by_children(s, s.lam - s.P_ring), s.tau_bar), s.dot.m),
    "A.31": lambda s: (s.one + s.H @ s.phi @ s.K, s.H @ s.phi @ s.G),
}  # fmt: skip
# As printed; Omega_delta is X where joints turn.
MISPRINTS = {
    "6.5: psi lambda psi": lambda s: (by_children(s, s.lam - s.P_ring, right=lambda psi: psi), diagonal(s.local.lam)),
    "6.7: I + tau": lambda s: (m_dot(s, s.lam, s.tau), s.dot.m),
    "A.28: Omega for Omega_delta": lambda s: (by_children(s, turned(s, s.P)), diagonal(s.local.lam)),
    "A.30: the inertial rate of P": lambda s: (m_dot(s, s.dot.P, s.tau_bar), s.dot.m),
    "A.30: the local rate of P": lambda s: (m_dot(s, s.P_ring, s.tau_bar), s.dot.m),
}


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


def test_6_3(both):
    """Omega_delta = Omega(k) - Omega(k+1) = H* qd where joints turn, and is then both X and -X*."""
    s = both[1]
    parent = np.array([s.V.reshape((-1, 6))[p] if p >= 0 else np.zeros(6) for p in s.parents])
    angular = (s.V.reshape((-1, 6)) - parent)[:, :3]
    assert relative(angular, (s.H.T @ s.qd).reshape((-1, 6))[:, :3]) < TOLERANCE
    if s.turning:
        assert relative(s.X, s.Omega_delta) == 0
        assert relative(-s.X.T, s.Omega_delta) == 0
    else:
        assert relative(s.X, s.Omega_delta) > 0.1


# ---------------------------------------------------------------------- the functions
@pytest.mark.parametrize("general", ["tree on a floating base"], indirect=True)
def test_functions_equal_derivatives_of_the_operators(general):
    """Rates are the derivatives along the motion, for all joint types: they are linear in the velocity."""
    model, qd, theta = general.model, general.qd, vars(general.theta)
    rate, m_rate = quickly(lambda q, qd: (rates(model, q, qd), factor_rate(model, q, qd)))(general.q, qd)
    along = SimpleNamespace(**{name: X @ qd for name, X in theta.items()})
    own = [model.qd_slice(name) for name in model.joint_names]
    rows = lambda X: np.concatenate([X[joint, 6 * i : 6 * i + 6] for i, joint in enumerate(own)])
    L, L_rate = general.operators.L, block_diagonal(model, rate.L)
    pairs = {name: (diagonal(getattr(rate, name)), getattr(along, name)) for name in ("M", "P", "tau_bar")} | {
        "H": (rate.H, rows(along.H)),
        "G": (rate.G, rows(along.G.T)),
        "D": (block_diagonal(model, rate.D), along.D),
        "L": (L_rate @ L.T + L @ L_rate.T, along.D),
        "m": (m_rate, along.m),
    }
    for name, (mine, truth) in pairs.items():
        assert relative(mine, truth) < TOLERANCE, name
    assert np.abs(np.triu(L_rate, 1)).max() == 0


@pytest.mark.parametrize("seen_from", [long("world"), "body"])
@pytest.mark.parametrize("general", ["chain"], indirect=True)
def test_rates_and_their_twins(general, seen_from):
    model, given = general.model, {"seen_from": seen_from}
    both = quickly(lambda q, qd: (rates(model, q, qd, **given), rates_autodiff(model, q, qd, **given)))
    found, twin = both(general.q, general.qd)
    for name in found._fields:
        truth = getattr(twin, name)
        assert relative(getattr(found, name), truth, max(np.abs(truth).max(), 1)) < TOLERANCE, name


def test_factor_rate_equals_that_of_a_cholesky_factor():
    """The twin knows nothing of the filter: m is the Cholesky factor of the mass matrix, from tip to base."""
    model = random_chain(2, seed=1, joints=("revolute", "universal"), armature=True)
    s = random_state(model)
    both = quickly(lambda q, qd: (factor_rate(model, q, qd), factor_rate_autodiff(model, q, qd)))
    found, twin = both(s["q"], s["qd"])
    assert relative(found, twin) < TOLERANCE


@pytest.mark.parametrize("general", ["tree on a floating base"], indirect=True)
def test_what_rates_are_rates_of(general):
    """P, D and G are those of the filter of 000, a program of its own."""
    model, q, still = general.model, general.q, np.zeros(general.model.nv)
    filtered = quickly(lambda q: estimation.filter(model, q, still, still))(q)
    assert relative(general.operators.P, diagonal(filtered.P_minus)) < TOLERANCE
    assert relative(general.operators.D, block_diagonal(model, filtered.D)) < TOLERANCE
    assert relative(general.operators.G.T.reshape((model.nv, -1, 6)).sum(1), filtered.G) < TOLERANCE


def test_a_batch_of_products_equals_a_loop_of_twins():
    model = random_chain(2, seed=1)
    q, qd, nu = np.random.default_rng(0).normal(size=(3, 2, model.nv))
    batch = jax.vmap(lambda *x: factor_rate_product(model, *x))(q, qd, nu)
    for k in range(2):
        assert relative(batch[k], factor_rate_product_autodiff(model, q[k], qd[k], nu[k])) < 1e-13


@pytest.mark.long
def test_at_rest_and_gradients_are_finite():
    """Nothing changes at rest; gradients by state and model are numbers."""
    model = random_chain(2, seed=1, joints=("spherical", "universal"))
    q, still = jaxdyn.neutral(model), jnp.zeros(model.nv)

    cost = lambda model, q, qd: factor_rate_product(model, q, qd, jnp.ones(model.nv)).sum()
    value, slopes = quickly(jax.value_and_grad(cost, argnums=(0, 1, 2), allow_int=True))(model, q, still)
    slopes = [x for x in jax.tree.leaves(slopes) if x.dtype == value.dtype]
    assert value == 0
    assert all(np.isfinite(x).all() for x in slopes)
    assert max(np.abs(x).max(initial=0) for x in slopes) > 0


def test_nothing_to_move():
    model = jaxdyn.ModelBuilder("nothing").build()
    none = jnp.zeros(0)
    assert rates(model, none, none).P.shape == (0, 6, 6)
    assert rates_autodiff(model, none, none).D.shape == (0, 1)
    assert factor_rate(model, none, none).shape == (0, 0)


def test_errors():
    model = random_chain(2, seed=1)
    two = jnp.zeros(2)
    with pytest.raises(ValueError, match='seen_from must be "world" or "body"; got \'here\''):
        rates(model, two, two, seen_from="here")
    with pytest.raises(ValueError, match=r"qd must have shape \(2,\)"):
        rates(model, two, jnp.zeros(3))
    for function in (rates, rates_autodiff, factor_rate, factor_rate_autodiff):
        with pytest.raises(ValueError, match="mimic joints 'c_joint'|mimic joint"):
            function(geared(), two, two)
        with pytest.raises(TypeError, match=r"model must be a jaxdyn\.Model"):
            function(None, two, two)
    with pytest.raises(jaxdyn.ModelError, match="no inertia|massless"):
        rates(model.replace(inertia=jnp.zeros((2, 10))), two, two)
