"""Derivatives of dynamics in closed form: equal to their twins by automatic differentiation, and to Pinocchio's."""

from functools import partial

import jax
import numpy as np
import pytest
from helpers.pinocchio_oracle import both, rows_in_our_order
from helpers.states import KINDS, geared, long, quickly, random_state, relative, stacked

import jaxdyn
from jaxdyn import derivatives
from jaxdyn.io import to_pinocchio


def unit(model, q):
    """Return a configuration with quaternions of length one."""
    return np.asarray(jaxdyn.integrate(model, q, np.zeros(model.nv)))


SECONDARY = ("chain", "columns that turn in the body")
"""Kinds of which the others have most joint types."""


@pytest.mark.parametrize("kind", [long(kind) if kind in SECONDARY else kind for kind in KINDS])
def test_inverse_dynamics(kind):
    """With external forces, on a moving base."""
    model = KINDS[kind]()
    s, base = random_state(model), tuple(np.random.default_rng(2).normal(size=(2, 6)))
    extra = {"f_ext": s["f_ext"], "base_motion": base}
    args = unit(model, s["q"]), s["qd"], s["qdd"]
    found = quickly(partial(derivatives.inverse_dynamics_derivatives, **extra))(model, *args)
    wanted = quickly(partial(derivatives.inverse_dynamics_derivatives_autodiff, **extra))(model, *args)
    for a, b in zip(found, wanted, strict=True):
        assert relative(a, b) < 1e-12


@pytest.mark.parametrize("make", [KINDS["chain"], long(KINDS["tree on a floating base"]), long(geared)])
def test_forward_dynamics(make):
    model = make()
    s = random_state(model)
    args = unit(model, s["q"]), s["qd"], s["tau"]
    found = quickly(partial(derivatives.forward_dynamics_derivatives, f_ext=s["f_ext"]))(model, *args)
    wanted = quickly(partial(derivatives.forward_dynamics_derivatives_autodiff, f_ext=s["f_ext"]))(model, *args)
    for a, b in zip(found, wanted, strict=True):
        assert relative(a, b) < 1e-10


def test_a_batch_equals_a_loop():
    model = KINDS["chain"]()
    states = stacked([random_state(model, seed) for seed in range(3)])
    f = lambda s: derivatives.inverse_dynamics_derivatives(model, s["q"], s["qd"], s["qdd"])
    many, one = quickly(jax.vmap(f))(states), quickly(f)
    for k in range(3):
        for a, b in zip(many, one(jax.tree.map(lambda x: x[k], states)), strict=True):
            assert relative(a[k], b) < 1e-13


@pytest.mark.parametrize(
    ("path", "floating_base"),
    [long("panda_description/urdf/panda.urdf", False), ("solo_description/robots/solo12.urdf", True)],
)
def test_equal_to_pinocchio(robot_data, path, floating_base):
    pinocchio = pytest.importorskip("pinocchio")
    model, other = both(robot_data / path, floating_base)
    other.armature = np.asarray(to_pinocchio(model, other, jaxdyn.neutral(model), model.armature)[1])
    s = random_state(model)
    q = unit(model, s["q"])
    in_theirs = lambda x: to_pinocchio(model, other, q, x)[1]
    q_pin, v_pin, a_pin = to_pinocchio(model, other, q, s["qd"])[0], in_theirs(s["qd"]), in_theirs(s["qdd"])
    ours_by_rows = partial(rows_in_our_order, model, other, q_pin)
    in_ours = lambda Y: ours_by_rows(ours_by_rows(Y).T).T

    @quickly
    def ours(q, qd, qdd, tau):
        by_id = derivatives.inverse_dynamics_derivatives(model, q, qd, qdd)
        return by_id[:2], derivatives.forward_dynamics_derivatives(model, q, qd, tau)

    by_id, by_fd = ours(q, s["qd"], s["qdd"], s["tau"])
    data = other.createData()
    pinocchio.computeRNEADerivatives(other, data, q_pin, v_pin, a_pin)
    for a, b in zip(by_id, (data.dtau_dq, data.dtau_dv), strict=True):
        assert relative(a, in_ours(b)) < 1e-10
    pinocchio.computeABADerivatives(other, data, q_pin, v_pin, in_theirs(s["tau"]))
    inverse = np.triu(data.Minv) + np.triu(data.Minv, 1).T
    for a, b in zip(by_fd, (data.ddq_dq, data.ddq_dv, inverse), strict=True):
        assert relative(a, in_ours(b)) < 1e-10
