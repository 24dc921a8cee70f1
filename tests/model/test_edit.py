"""lock_joints and subtree: the reduced model moves as the whole one does with those joints held."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import ModelBuilder, ModelError, ModelWarning


@jax.jit
def _all_poses(model, q):
    return jaxdyn.forward_kinematics(model, q), jaxdyn.frame_poses(model, q)


def all_poses(model, q):
    """Poses of all bodies and frames by name."""
    bodies, frames = _all_poses(model, q)
    rows = zip(bodies.rotation.tolist() + frames.rotation.tolist(),
               bodies.position.tolist() + frames.position.tolist(), strict=True)  # fmt: skip
    return dict(zip((*model.body_names, *model.frame_names), rows, strict=True))


def centre_of_mass(model, q):
    poses, _ = _all_poses(model, q)
    m, h = model.inertia[:, :1], model.inertia[:, 1:4]
    return (m * poses.position + jnp.einsum("nij,nj->ni", poses.rotation, h)).sum(0)


def test_locked_model_moves_as_the_whole_does_with_those_joints_held(forest):
    q = jaxdyn.random_configuration(forest, jax.random.key(0))
    locked = [n for n, kind in zip(forest.joint_names, forest.joint_types, strict=True)
              if kind in ("spherical", "universal", "planar", "helical")]  # fmt: skip
    reduced = jaxdyn.lock_joints(forest, {n: q[forest.q_slice(n)] for n in locked})
    assert set(reduced.joint_names) == set(forest.joint_names) - set(locked)
    q_reduced = jnp.concatenate([q[forest.q_slice(n)] for n in reduced.joint_names])
    whole, part = all_poses(forest, q), all_poses(reduced, q_reduced)
    assert set(whole) == set(part)
    for name in whole:
        np.testing.assert_allclose(part[name][0], whole[name][0], atol=1e-13)
        np.testing.assert_allclose(part[name][1], whole[name][1], atol=1e-13)
    assert float(reduced.inertia[:, 0].sum()) == pytest.approx(float(forest.inertia[:, 0].sum()))
    np.testing.assert_allclose(centre_of_mass(reduced, q_reduced), centre_of_mass(forest, q), atol=1e-12)
    assert reduced.geometry == forest.geometry


def test_followers_are_locked_with_their_leader(forest):
    follower = forest.joint_types.index("mimic")
    leader = forest.topology.joint_names[forest.topology.followed[follower]]
    q = jaxdyn.neutral(forest).at[forest.q_slice(leader)].set(0.4)
    reduced = jaxdyn.lock_joints(forest, {leader: 0.4})
    assert "mimic" not in reduced.joint_types
    q_reduced = jaxdyn.neutral(reduced)
    body = forest.body_names[follower]
    np.testing.assert_allclose(all_poses(reduced, q_reduced)[body][0], all_poses(forest, q)[body][0], atol=1e-13)
    with pytest.raises(ModelError, match=f"mimics '{leader}': lock that one"):
        jaxdyn.lock_joints(forest, {forest.joint_names[follower]: 0.0})


def test_locking_nothing_changes_nothing(forest):
    same = jaxdyn.lock_joints(forest, {})
    assert same.topology == forest.topology
    chex.assert_trees_all_close(same, forest, atol=1e-15)


def test_locking_everything_leaves_frames_only():
    arm = jaxdyn.load("arm7")
    held = jaxdyn.lock_joints(arm, dict.fromkeys(arm.joint_names, 0.0))
    assert held.nbodies == 0
    assert held.frame_names == ("base", *arm.body_names, "tool")


def test_lock_refuses_bad_input():
    arm = jaxdyn.load("arm7")
    with pytest.raises(ValueError, match="no joint named 'joint8'"):
        jaxdyn.lock_joints(arm, {"joint8": 0.0})
    with pytest.raises(ModelError, match="position of 'joint1' must be 1 numbers"):
        jaxdyn.lock_joints(arm, {"joint1": [0.0, 1.0]})
    with pytest.raises(ModelError, match="position of 'joint1' must be finite"):
        jaxdyn.lock_joints(arm, {"joint1": np.nan})
    with pytest.raises(ModelError, match="positions must map joint names to q"):
        jaxdyn.lock_joints(arm, ["joint1"])
    with pytest.raises(ModelError, match="quaternion must not be zero"):
        jaxdyn.lock_joints(jaxdyn.load("quadruped"), {"root_joint": np.zeros(7)})
    with pytest.raises(ModelError, match="traced by jit"):
        jax.jit(lambda m: jaxdyn.lock_joints(m, {"joint1": 0.0}))(arm)


def test_a_joint_that_no_longer_moves_anything_is_reported():
    rod = {"mass": 1.0, "com": (0, 0, 0.5), "inertia": (1e-1, 1e-1, 1e-30)}
    builder = ModelBuilder().add_body("a", joint_name="spin").add_body("b", "a", axis=(1, 0, 0), **rod)
    with pytest.warns(ModelWarning, match="not positive definite"):
        model = builder.build()
    with pytest.warns(ModelWarning, match="'spin' moves no inertia"):
        jaxdyn.lock_joints(model, {"joint_1": 0.0})
    jaxdyn.lock_joints(model, {"joint_1": 0.5})


def test_keeps_the_floating_point_type():
    single = jaxdyn.load("arm7").astype(jnp.float32)
    assert jaxdyn.lock_joints(single, {"joint1": 0.5}).dtype == jnp.float32


def test_subtree(forest):
    root = next(i for i, kind in enumerate(forest.joint_types) if i > 0 and forest.parents.count(i))
    try:
        part = jaxdyn.subtree(forest, forest.body_names[root])
    except ModelError as error:
        pytest.fail(f"choose another seed: {error}")
    q = jaxdyn.random_configuration(forest, jax.random.key(1))
    q_part = jnp.concatenate([q[forest.q_slice(n)] for n in part.joint_names])
    whole, small = all_poses(forest, q), all_poses(part, q_part)
    R_w_p, p_w_p = (np.array(x) for x in whole[forest.body_names[forest.parents[root]]])
    for name, (R, p) in small.items():  # the parent stays behind, its frame becomes the world's
        np.testing.assert_allclose(R_w_p @ R, whole[name][0], atol=1e-13)
        np.testing.assert_allclose(p_w_p + R_w_p @ p, whole[name][1], atol=1e-13)


def test_subtree_refuses_frames_and_cut_couplings():
    builder = ModelBuilder()
    solid = {"mass": 1.0, "inertia": (0.1, 0.1, 0.1)}
    builder.add_body("a", joint_name="j", **solid).add_body("b", "a", follows="j", **solid).add_frame("f", "b")
    model = builder.build()
    with pytest.raises(ModelError, match="mimics 'j', which is not in the subtree of 'b'"):
        jaxdyn.subtree(model, "b")
    with pytest.raises(ModelError, match="'f' is a frame on 'b'"):
        jaxdyn.subtree(model, "f")
    assert jaxdyn.subtree(model, "a").body_names == ("a", "b")


@pytest.mark.filterwarnings("ignore::jaxdyn.ModelWarning")
def test_equals_pinocchios_reduced_model(robot_data):
    pinocchio = pytest.importorskip("pinocchio")
    path = robot_data / "panda_description/urdf/panda.urdf"
    full = pinocchio.buildModelFromUrdf(str(path))
    names = ["panda_joint3", "panda_joint6", "panda_finger_joint1", "panda_finger_joint2"]
    q0 = np.linspace(0.1, 0.9, full.nq)
    other = pinocchio.buildReducedModel(full, [full.getJointId(n) for n in names], q0)
    model = jaxdyn.load(path, mimic=False)
    ours = jaxdyn.lock_joints(model, {n: q0[full.joints[full.getJointId(n)].idx_q] for n in names})
    assert ours.joint_names == tuple(other.names)[1:]
    pi = np.stack([other.inertias[i].toDynamicParameters() for i in range(1, other.njoints)])
    np.testing.assert_allclose(ours.inertia, pi, rtol=0, atol=1e-12 * np.abs(pi).max())
    q = np.linspace(-0.5, 0.5, other.nq)
    data = other.createData()
    pinocchio.framesForwardKinematics(other, data, q)
    for name, (R, p) in all_poses(ours, jnp.array(q)).items():
        pose = data.oMf[other.getFrameId(name)]
        np.testing.assert_allclose(R, pose.rotation, atol=1e-12)
        np.testing.assert_allclose(p, pose.translation, atol=1e-12)
