"""Derivatives of the mass matrix in closed form: equal to their twins, and what they are derivatives of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import KINDS, long, quickly, random_state, relative, stacked

import jaxdyn
from jaxdyn import derivatives
from jaxdyn.model.random_models import random_tree

SMALL = {"universal joint on a floating base": lambda: random_tree(
    2, seed=2, joints=("universal",), floating_base=True, armature=True
)}  # fmt: skip


@pytest.fixture(scope="module", params=[*SMALL, *map(long, KINDS)])
def model(request):
    return (KINDS | SMALL)[request.param]()


def test_sensitivity_quadratic_form_and_christoffel_symbols(model):
    """All three equal automatic differentiation; the symbols, with velocities, give the bias without gravity."""

    @quickly
    def both(q, x, y):
        d, arguments = derivatives, {"vp": (x, y)}
        names = ("mass_matrix_sensitivity", "mass_matrix_sensitivity_vp", "christoffel_symbols")
        pairs = {}
        for name in names:
            given = (model, q, *arguments.get(name[-2:], ()))
            pairs[name] = getattr(d, name)(*given), getattr(d, f"{name}_autodiff")(*given)
        bias = jaxdyn.bias_force(model, q, x) - jaxdyn.gravity_force(model, q)
        pairs["bias"] = jnp.einsum("ijk,j,k->i", pairs["christoffel_symbols"][0], x, x), bias
        return pairs

    s = random_state(model)
    pairs = both(s["q"], s["qd"], s["qdd"])
    for name, (found, right) in pairs.items():
        assert relative(found, right) < 1e-12, name
    tensor, vp = pairs["mass_matrix_sensitivity"][0], pairs["mass_matrix_sensitivity_vp"][0]
    assert relative(np.einsum("jld,j,l->d", tensor, s["qd"], s["qdd"]), vp) < 1e-12
    assert relative(np.swapaxes(tensor, 0, 1), tensor) < 1e-14


def test_symbols_do_without_torsion():
    """Gamma_ijk - Gamma_ikj = M_il c^l_jk, c the bracket of the velocities of a spherical joint: the cross product."""
    builder = jaxdyn.ModelBuilder("top")
    builder.add_body("body", joint="spherical", mass=2.0, com=(0.1, 0.2, 0.3), inertia=(0.3, 0.4, 0.5))
    model = builder.build()
    q = random_state(model)["q"]
    symbols, M = np.asarray(derivatives.christoffel_symbols(model, q)), np.asarray(jaxdyn.mass_matrix(model, q))
    levi_civita = np.cross(np.eye(3)[:, None], np.eye(3)[None])
    assert relative(symbols - np.swapaxes(symbols, 1, 2), np.einsum("il,jkl->ijk", M, levi_civita)) < 1e-13


def test_a_batch_equals_a_loop_and_can_be_differentiated():
    model = KINDS["chain"]()
    s = stacked([random_state(model, seed) for seed in range(3)])
    M_q = lambda q: derivatives.mass_matrix_sensitivity(model, q)
    along = quickly(lambda q, v: jax.jvp(jax.vmap(M_q), (q,), (v,)))
    values, slopes = along(s["q"], s["qd"])
    one = quickly(lambda q, v: jax.jvp(lambda q: derivatives.mass_matrix_sensitivity_autodiff(model, q), (q,), (v,)))
    for k in range(3):
        value, slope = one(s["q"][k], s["qd"][k])
        assert relative(values[k], value) < 1e-12
        assert relative(slopes[k], slope) < 1e-12
