"""Random models: real bodies, the joints asked for, the same model for the same seed."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxdyn.model import ModelBuilder, ModelError
from jaxdyn.model.random_models import MOVING_JOINTS, random_chain, random_tree
from jaxdyn.spatial import RigidInertia

EVERY_JOINT = (*MOVING_JOINTS, "mimic", "fixed")
LIMITS = ("lower", "upper", "velocity_limit", "effort_limit")


def same(a, b):
    """Whether two models are equal in every number, name and shape."""
    if a.topology != b.topology or a.geometry != b.geometry:
        return False
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_a_thousand_inertias_are_those_of_real_bodies():
    inertias = np.concatenate([np.asarray(random_tree(250, seed=seed).inertia) for seed in range(4)])
    assert inertias.shape == (1000, 10)
    mass, _, central = RigidInertia.from_parameters(inertias).central()
    moments = np.linalg.eigvalsh(central.to_array())
    assert np.all(mass > 0)
    assert np.all(moments[:, 0] > 0)
    assert np.all(moments[:, 0] + moments[:, 1] > moments[:, 2])
    # They are not all alike: some nearly flat, some nearly round, and few have principal axes of the frame.
    roundness = moments[:, 0] / moments[:, 2]
    assert roundness.min() < 0.2
    assert roundness.max() > 0.8
    off_diagonal = np.abs(central.xy) / moments[:, 2]
    assert np.median(off_diagonal) > 0.01


@pytest.mark.parametrize("make", [random_chain, random_tree])
def test_a_seed_gives_one_model(make):
    assert same(make(9, seed=4), make(9, seed=4))
    a, b = make(9, seed=4), make(9, seed=5)
    for leaf in ("placement", "axis", "inertia", "frame_placement"):
        assert np.max(np.abs(getattr(a, leaf) - getattr(b, leaf))) > 0.01


@pytest.mark.parametrize("seed", range(4))
def test_tree_has_every_joint_asked_for(seed):
    model = random_tree(2 * len(EVERY_JOINT), seed=seed, joints=EVERY_JOINT)
    count = {kind: model.joint_types.count(kind) for kind in EVERY_JOINT}
    assert count == dict.fromkeys(EVERY_JOINT, 2) | {"fixed": 0}
    assert model.nbodies == 2 * (len(EVERY_JOINT) - 1)
    welded = {f"body_{i}" for i in range(2 * len(EVERY_JOINT))} - set(model.body_names)
    assert len(welded) == 2
    assert welded <= set(model.frame_names)
    assert "tip" in model.frame_names
    t = model.topology
    for i, kind in enumerate(model.joint_types):
        if kind == "mimic":
            assert t.joints[t.followed[i]].nq == 1
            assert abs(model.ratio[i]) >= 0.5


def test_default_tree_has_all_moving_types():
    types = random_tree(len(MOVING_JOINTS), seed=1).joint_types
    assert sorted(types) == sorted(MOVING_JOINTS)


def test_chain_repeats_its_joints_in_order():
    model = random_chain(5, joints=("prismatic", "revolute"))
    assert model.joint_types == ("prismatic", "revolute", "prismatic", "revolute", "prismatic")
    assert model.parents == (-1, 0, 1, 2, 3)
    assert random_chain(3, joints=("mimic", "helical")).joint_types == ("helical", "mimic", "mimic")


def test_branching():
    assert random_tree(20, seed=2, branching=0.0).parents == tuple(range(-1, 19))
    parents = random_tree(20, seed=2, branching=1.0).parents
    assert parents.count(-1) == 1
    assert len(set(parents)) < 15  # several bodies carry more than one


@pytest.mark.parametrize("roots", [1, 3])
def test_forest(roots):
    model = random_tree(10, seed=3, roots=roots)
    assert model.parents.count(-1) == roots
    assert all(parent < i for i, parent in enumerate(model.parents))


def test_floating_base():
    model = random_tree(11, seed=3, floating_base=True, roots=2)
    assert model.joint_names[0] == "root_joint"
    assert model.joint_types[0] == "free"
    assert sorted(model.joint_types[1:]) == sorted(MOVING_JOINTS)
    assert "root_joint" not in random_tree(11, seed=3).joint_names


def test_armature_and_passive_elements_change_nothing_else():
    plain = random_tree(12, seed=6)
    full = random_tree(12, seed=6, armature=True, passive=True)
    for leaf in ("armature", "stiffness", "damping", "friction"):
        assert not np.any(getattr(plain, leaf))
        assert np.all(getattr(full, leaf) > 0)
        full = full.replace(**{leaf: getattr(plain, leaf)})
    assert same(plain, full)


@pytest.mark.parametrize("seed", range(3))
def test_numbers_are_finite_and_the_model_builds_strictly(seed):
    model = random_tree(40, seed=seed, joints=EVERY_JOINT, floating_base=True, armature=True, passive=True)
    leaves = {f.name: np.asarray(getattr(model, f.name)) for f in dataclasses.fields(model)[:-2]}
    without_limits = {name: leaf for name, leaf in leaves.items() if name not in LIMITS}
    assert len(without_limits) == len(leaves) - 4
    for name, leaf in without_limits.items():
        assert np.all(np.isfinite(leaf)), name
    axis, axis2 = np.asarray(model.axis), np.asarray(model.axis2)
    assert np.max(np.abs(np.sum(axis * axis2, axis=1))) < 0.75  # universal joints are far from singular
    assert np.min(np.abs(model.pitch)) >= 0.05
    ModelBuilder.from_model(model).build(strict=True)


def test_empty_and_single():
    assert random_chain(0).nbodies == 0
    assert random_tree(1).nbodies == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"joints": ("revolut",)}, "unknown joint type 'revolut': did you mean 'revolute'"),
        ({"joints": ()}, "at least one joint type"),
        ({"joints": ("mimic", "spherical")}, "needs a joint with one coordinate to follow"),
        ({"roots": 5}, "roots must be between one and the number of bodies, 4; got 5"),
    ],
)
def test_errors_say_what_is_wrong(arguments, message):
    with pytest.raises(ModelError, match=message):
        random_tree(4, **arguments)
