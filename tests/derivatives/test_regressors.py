"""Regressors: equal to what they stand for, to their twins by automatic differentiation, and to Pinocchio's."""

from functools import partial

import jax
import numpy as np
import pytest
from helpers.pinocchio_oracle import both, rows_in_our_order
from helpers.states import geared, quickly, random_state, relative, stacked

import jaxdyn
from jaxdyn import derivatives
from jaxdyn.io import to_pinocchio
from jaxdyn.model.random_models import random_tree

JOINTS = ("revolute", "spherical", "prismatic", "helical", "universal", "planar")


@pytest.fixture(scope="module")
def tree():
    """A tree of many joint types on a floating base, with armature."""
    model = random_tree(7, seed=5, joints=JOINTS, floating_base=True, armature=True)
    return model.replace(gravity=(1.0, 2.0, -9.0))


@pytest.fixture(scope="module")
def state(tree):
    v0, a0 = np.random.default_rng(3).normal(size=(2, 6))
    return random_state(tree) | {"base": (v0, a0)}


@pytest.fixture(scope="module")
def found(tree, state):
    """Return regressors and their twins."""

    def everything(model, s, suffix):
        q, qd, qdd = s["q"], s["qd"], s["qdd"]
        of = lambda name: getattr(derivatives, name + suffix)
        return {
            "torque": of("joint_torque_regressor")(model, q, qd, qdd, base_motion=s["base"]),
            "kinetic": of("kinetic_energy_regressor")(model, q, qd),
            "potential": of("potential_energy_regressor")(model, q),
            "momentum": of("momentum_regressor")(model, q, qd),
        }

    return {suffix: quickly(partial(everything, suffix=suffix))(tree, state) for suffix in ("", "_autodiff")}


def test_a_regressor_times_the_parameters_is_what_it_stands_for(tree, state, found):
    @quickly
    def meant(model, s):
        q, qd, qdd = s["q"], s["qd"], s["qdd"]
        return {
            "torque": jaxdyn.inverse_dynamics(model, q, qd, qdd, base_motion=s["base"]) - model.armature * qdd,
            "kinetic": jaxdyn.kinetic_energy(model, q, qd) - 0.5 * (model.armature * qd * qd).sum(),
            "potential": jaxdyn.potential_energy(model.replace(stiffness=0 * model.stiffness), q),
            "centroidal": jaxdyn.centroidal_momentum(model, q, qd),
            "c": jaxdyn.center_of_mass(model, q),
        }

    wanted, pi = meant(tree, state), np.asarray(jaxdyn.inertial_parameters(tree)).ravel()
    h, c = wanted.pop("centroidal"), wanted.pop("c")
    wanted["momentum"] = np.concatenate([h[:3] + np.cross(c, h[3:]), h[3:]])
    for name, value in wanted.items():
        assert relative(found[""][name] @ pi, value) < 1e-12, name


@pytest.mark.parametrize("name", ["torque", "kinetic", "potential", "momentum"])
def test_regressors_equal_their_twins(found, name):
    assert relative(found[""][name], found["_autodiff"][name]) < 1e-12


def test_batches_and_mimic_joints():
    """A batch of states equals a loop; a follower's forces are felt by its leader."""
    model = geared()
    states = stacked([random_state(model, seed) for seed in range(3)])
    f = lambda s: (
        derivatives.joint_torque_regressor(model, s["q"], s["qd"], s["qdd"]),
        jaxdyn.inverse_dynamics(model, s["q"], s["qd"], s["qdd"]) - model.armature * s["qdd"],
    )
    (Y, tau), one = quickly(jax.vmap(f))(states), quickly(f)
    assert Y.shape == (3, 2, 30)
    for k in range(3):
        s = jax.tree.map(lambda x: x[k], states)
        assert relative(Y[k], one(s)[0]) < 1e-13
        assert relative(Y[k] @ np.asarray(model.inertia).ravel(), tau[k]) < 1e-12


@pytest.mark.parametrize(
    ("path", "floating_base"),
    [("panda_description/urdf/panda.urdf", False), ("solo_description/robots/solo12.urdf", True)],
)
def test_equal_to_pinocchio(robot_data, path, floating_base):
    """Row by row and column by column, in Pinocchio's order of joints."""
    pinocchio = pytest.importorskip("pinocchio")
    model, other = both(robot_data / path, floating_base)
    s = random_state(model)
    q = s["q"] / np.linalg.norm(s["q"][:4]) if floating_base else s["q"]
    data = other.createData()
    (q_pin, v_pin), a_pin = (to_pinocchio(model, other, q, s["qd"]), to_pinocchio(model, other, q, s["qdd"])[1])
    columns = np.concatenate([10 * (other.getJointId(name) - 1) + np.arange(10) for name in model.joint_names])

    @quickly
    def ours(q, qd, qdd):
        return (
            derivatives.joint_torque_regressor(model, q, qd, qdd),
            derivatives.kinetic_energy_regressor(model, q, qd),
            derivatives.potential_energy_regressor(model, q),
        )

    torque, kinetic, potential = ours(q, s["qd"], s["qdd"])
    Y = pinocchio.computeJointTorqueRegressor(other, data, q_pin, v_pin, a_pin)
    assert relative(torque, rows_in_our_order(model, other, q_pin, Y)[:, columns]) < 1e-12
    assert relative(kinetic, pinocchio.computeKineticEnergyRegressor(other, data, q_pin, v_pin)[columns]) < 1e-12
    assert relative(potential, pinocchio.computePotentialEnergyRegressor(other, data, q_pin)[columns]) < 1e-12
