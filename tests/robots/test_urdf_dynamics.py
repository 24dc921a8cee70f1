"""Dynamics of real robots against Pinocchio's: a handful always, all of them in the long run."""

import itertools

import jax
import numpy as np
import pytest
from helpers import dynamics_oracle as oracle

pytest.importorskip("pinocchio")

HANDFUL = {
    "panda_description/urdf/panda.urdf": False,
    "solo_description/robots/solo12.urdf": True,
    "baxter_description/urdf/baxter.urdf": False,
    "talos_data/robots/talos_reduced.urdf": True,
}
TOLERANCE, TOLERANCE_F32 = oracle.TOLERANCES["float64"], oracle.TOLERANCES["float32"]
FORCES = (
    "inverse_dynamics", "forward_dynamics", "mass_matrix", "mass_matrix_inverse", "bias_force", "gravity_force",
    "coriolis_matrix",
)  # fmt: skip
MOTIONS = (
    "body_velocities, world", "body_accelerations, world", "kinetic_energy", "potential_energy", "center_of_mass",
    "centroidal_momentum", "centroidal_momentum_matrix", "centroidal_momentum_bias", "jacobian", "jacobian_bias",
)  # fmt: skip
ALL = (
    *FORCES, *MOTIONS, "body_velocities", "body_accelerations", "center_of_mass_jacobian", "frame_velocity",
    "frame_acceleration",
)  # fmt: skip
SINGLE = ("forward_dynamics",)
FORMS = (
    "inverse_dynamics",
    "forward_dynamics",
    "mass_matrix",
    "mass_matrix_inverse",
    "body_accelerations",
    *oracle.DENSE,
)
# By matrices, accelerations are refused in single precision.
SINGLE_STATE = (*(name for name in oracle.DENSE if name != "forward_dynamics, dense"), "forward_dynamics")
WORLDS, PARTS = 6, 8


@pytest.fixture(scope="module")
def handful(robot_data):
    """Return robots with armature; two of them with joints that slide, two on floating bases."""
    robots = [
        oracle.pinocchio_robot(robot_data / path, floating_base, seed, armature=0.01)
        for seed, (path, floating_base) in enumerate(HANDFUL.items())
    ]
    assert {"free", "revolute", "prismatic"} == set(itertools.chain(*(robot.model.joint_types for robot in robots)))
    return robots


def expected(names):
    """Return what is compared: the Coriolis matrix also times the velocity."""
    return {*names, "coriolis_matrix @ qd"} if "coriolis_matrix" in names else set(names)


def test_forces_equal_pinocchios(handful):
    """Four robots in one world: with external forces, armature and slanting gravity."""
    oracle.assert_small(oracle.differences(handful, names=FORCES), TOLERANCE, expected(FORCES))


def test_motions_energies_and_momenta_equal_pinocchios(handful):
    """A quadruped alone in its world, whose legs are swept side by side."""
    oracle.assert_small(oracle.differences(handful[1:2], names=MOTIONS), TOLERANCE, MOTIONS)


def test_the_comparison_can_fail(handful):
    """A thousandth off in any number of a model that dynamics uses shows in that robot, and in no other."""
    of_mass = expected(FORCES)
    for leaf, functions in {
        "inertia": of_mass,
        "placement": of_mass,
        "armature": {"inverse_dynamics", "forward_dynamics", "mass_matrix", "mass_matrix_inverse"},
    }.items():
        one = handful[0]
        spoilt = one._replace(model=one.model.replace(**{leaf: np.asarray(getattr(one.model, leaf)) + 1e-3}))
        worst = oracle.differences([spoilt, *handful[1:]], names=FORCES)
        wrong = {label: {n for n, d in found.items() if not d <= 1e-7} for label, found in worst.items()}
        assert wrong.pop(one.label) == functions, (leaf, worst[one.label])
        assert not any(wrong.values()), (leaf, wrong)


def test_single_precision(handful):
    """Three robots in one world, to a hundredth of what is asked of all robots in the long run."""
    worst = oracle.differences(handful[:3], "float32", SINGLE)
    oracle.assert_small(worst, 1e-5, SINGLE)
    assert max(worst[handful[0].label].values()) > 1e-9  # it is single precision


def every(robot_data):
    """Yield all robots on fixed and floating bases: path, floating_base, number."""
    paths = sorted(robot_data.rglob("*.urdf"))
    yield from ((path, floating, 2 * k + floating) for k, path in enumerate(paths) for floating in (False, True))


@pytest.mark.long
@pytest.mark.parametrize("part", range(WORLDS))
def test_every_robot_equals_pinocchio(robot_data, part):
    """All functions in both precisions, for all robots of the package in six worlds."""
    robots = [oracle.pinocchio_robot(*arguments) for arguments in list(every(robot_data))[part::WORLDS]]
    robots = [robot for robot in robots if robot is not None]
    assert len(robots) >= 20
    for dtype, tolerance in (("float64", TOLERANCE), ("float32", TOLERANCE_F32)):
        worst = oracle.differences(robots, dtype, ALL)
        jax.clear_caches()  # a process cannot hold the compiled code of all robots
        oracle.assert_small(worst, tolerance, expected(ALL), f"{dtype}: ")


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_every_robot_alone_equals_pinocchio(robot_data, part):
    """How bodies are swept depends on a tree's structure: each robot alone in its world, and one state by matrices."""
    structures = {}
    for arguments in every(robot_data):
        robot = oracle.pinocchio_robot(*arguments)
        if robot is not None:
            structures.setdefault(oracle.forest([robot.model]).topology, []).append(robot)
    worst = {"float64": {}, "float32": {}}
    for robots in list(structures.values())[part::PARTS]:
        for robot in robots:
            worst["float64"] |= oracle.differences([robot], names=FORMS)
            worst["float32"] |= oracle.differences([robot], "float32", SINGLE_STATE)
        jax.clear_caches()
    for dtype, tolerance, names in (("float64", TOLERANCE, FORMS), ("float32", TOLERANCE_F32, SINGLE_STATE)):
        oracle.assert_small(worst[dtype], tolerance, names, f"{dtype}: ")
        assert len(worst[dtype]) >= 5
