"""Base parameters: the rank of textbooks, combinations that determine torques, directions that change none."""

import jax
import numpy as np
import pytest

import jaxdyn
from jaxdyn.sysid import base_parameters, base_regressor, parameter_names, torque_regressor


@pytest.fixture(scope="module")
def base(pendulum):
    return base_parameters(pendulum)


def test_a_planar_double_pendulum_has_six_of_twenty(base, pendulum):
    """By hand: of each link the first moment in the plane and the moment about the axis; the second's mass joins."""
    l = 1.0
    assert (base.rank, base.nullspace.shape) == (6, (20, 14))
    assert base.describe() == [
        "link1.mx", "link1.mz - link2.m", "link1.Iyy + link2.m", "link2.mx", "link2.mz", "link2.Iyy",
    ]  # fmt: skip
    assert l == float(np.abs(pendulum.placement[1, 6]))
    assert "link1.m" in base.unidentifiable()


def test_null_directions_change_no_torque_and_base_parameters_all(base, pendulum, motion):
    rng = np.random.default_rng(1)
    torque = jax.jit(jax.vmap(jaxdyn.inverse_dynamics, in_axes=(None, 0, 0, 0)))
    bare = pendulum.replace(armature=0 * pendulum.armature)
    before = torque(bare, *motion)
    step = np.asarray(base.nullspace) @ rng.normal(size=14)
    after = torque(bare.replace(inertia=bare.inertia + step.reshape(2, 10)), *motion)
    assert np.abs(after - before).max() < 1e-12 * np.abs(before).max()
    assert np.abs(np.asarray(base.combination) @ np.asarray(base.nullspace)).max() < 1e-13
    Y = jax.vmap(lambda *s: base_regressor(pendulum, base, *s))(*motion)
    beta = np.asarray(base.combination) @ np.asarray(bare.inertia).ravel()
    assert np.abs(np.asarray(Y) @ beta - before).max() < 1e-12 * np.abs(before).max()


def test_the_regressor_with_friction_rotor_and_offset(pendulum, motion, torque):
    x = np.concatenate(
        [np.ravel(pendulum.inertia), pendulum.armature, pendulum.damping, pendulum.friction, [0.5, -0.25]]
    )
    W = jax.vmap(lambda *s: torque_regressor(pendulum, *s))(*motion)
    assert len(parameter_names(pendulum)) == W.shape[2] == 28
    assert np.abs(np.asarray(W) @ x - torque).max() < 1e-12 * np.abs(torque).max()


def test_data_that_do_not_move_identify_less(pendulum, motion):
    q = np.tile([[0.3, 0.7]], (120, 1))
    assert base_parameters(pendulum, q, 0 * q, 0 * q).rank == 2  # two torques of gravity
    assert base_parameters(pendulum, *motion).rank == 6


def test_a_free_base_has_no_friction():
    """The ten parameters of one free body are all seen; its joint has no motor."""
    builder = jaxdyn.ModelBuilder("ball")
    builder.add_body("ball", joint="free", mass=1.0, inertia=(0.1, 0.1, 0.1))
    model = builder.build()
    assert len(parameter_names(model)) == 10
    assert base_parameters(model).rank == 10


def test_bad_arguments(pendulum, motion):
    with pytest.raises(ValueError, match="friction must be one of .* got 'viscouss'"):
        base_parameters(pendulum, friction="viscouss")
    with pytest.raises(ValueError, match="together"):
        base_parameters(pendulum, motion[0])


@pytest.mark.long
def test_forty_three_of_seventy_on_a_real_arm(robot_data):
    model = jaxdyn.load(robot_data / "panda_description/urdf/panda.urdf", mimic=False)
    model = jaxdyn.lock_joints(model, {"panda_finger_joint1": 0.0, "panda_finger_joint2": 0.0})
    assert base_parameters(model).rank == 43
