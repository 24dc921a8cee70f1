"""Forward kinematics against a plain loop, closed forms, autodiff and central differences."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.joints import JointParameters
from jaxdyn.model.random_models import MOVING_JOINTS, random_tree
from jaxdyn.spatial import Quaternion, Transform, Vec3

ALL_JOINTS = (*MOVING_JOINTS, "mimic", "fixed")


def poses_by_hand(model, q):
    """Multiply 4x4 matrices from the root outward, in NumPy: the obvious way."""
    t = model.topology
    X_w_b = []
    for i, joint in enumerate(t.joints):
        at = t.q_start[i]
        reads = joint.nq if joint.reads is None else joint.reads
        unit = lambda v: Vec3.from_array(np.asarray(v) / np.linalg.norm(v))
        parameters = JointParameters(
            unit(model.axis[i]), unit(model.axis2[i]), float(model.pitch[i]), float(model.ratio[i]),
            float(model.offset[i]),
        )  # fmt: skip
        X_J = matrix(joint.transform(parameters, tuple(np.float64(x) for x in q[at : at + reads])))
        X_p_j = matrix(Transform.from_pose(np.asarray(model.placement[i])))
        X_w_p = np.eye(4) if t.parents[i] < 0 else X_w_b[t.parents[i]]
        X_w_b.append(X_w_p @ X_p_j @ X_J)
    frames = [
        (np.eye(4) if p < 0 else X_w_b[p]) @ matrix(Transform.from_pose(np.asarray(x)))
        for p, x in zip(t.frame_parents, model.frame_placement, strict=True)
    ]
    return np.array(X_w_b), np.array(frames)


def matrix(X):
    dense = np.eye(4)
    dense[:3, :3], dense[:3, 3] = X.R.to_array(), X.p.to_array()
    return dense


@pytest.fixture(params=["forest", "chain"])
def model(request, forest):
    return forest if request.param == "forest" else random_tree(12, seed=3, joints=ALL_JOINTS, branching=0.0)


def test_poses_of_bodies_and_frames(model):
    for key in jax.random.split(jax.random.key(0), 3):
        q = jaxdyn.random_configuration(model, key)
        bodies, frames = poses_by_hand(model, np.asarray(q))
        got, named = jaxdyn.forward_kinematics(model, q), jaxdyn.frame_poses(model, q)
        np.testing.assert_allclose(got.rotation, bodies[:, :3, :3], atol=1e-13)
        np.testing.assert_allclose(got.position, bodies[:, :3, 3], atol=1e-13)
        np.testing.assert_allclose(named.rotation, frames[:, :3, :3], atol=1e-13)
        np.testing.assert_allclose(named.position, frames[:, :3, 3], atol=1e-13)


def test_frame_pose_is_one_of_them_and_moves_points(forest):
    model = forest
    q = jaxdyn.random_configuration(model, jax.random.key(5))
    bodies, frames = jaxdyn.forward_kinematics(model, q), jaxdyn.frame_poses(model, q)
    for i, name in enumerate(model.frame_names):
        one = jaxdyn.frame_pose(model, q, name)
        chex.assert_trees_all_close(one, jax.tree.map(lambda x: x[i], frames), atol=1e-14)
    body = jaxdyn.frame_pose(model, q, model.body_names[-1], point=(0.1, 0.2, 0.3))
    point = bodies.position[-1] + bodies.rotation[-1] @ jnp.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(body.position, point, atol=1e-14)
    with pytest.raises(ValueError, match="no body or frame named 'nose'"):
        jaxdyn.frame_pose(model, q, "nose")
    with pytest.raises(ValueError, match=r"point must have shape \(3,\)"):
        jaxdyn.frame_pose(model, q, "tip", point=(1.0, 2.0))


def test_a_frame_moves_with_its_placement(forest):
    """d position / d (xyz of the frame in its body) is the body's rotation."""
    q = jaxdyn.random_configuration(forest, jax.random.key(5))
    tip = forest.frame_names.index("tip")
    position = lambda placement: jaxdyn.frame_pose(forest.replace(frame_placement=placement), q, "tip").position
    _, slope = jax.jvp(position, (forest.frame_placement,), (jnp.zeros_like(forest.frame_placement).at[tip, 5].set(1),))
    body = forest.topology.frame_parents[tip]
    np.testing.assert_allclose(slope, jaxdyn.forward_kinematics(forest, q).rotation[body][:, 1], atol=1e-13)


def test_lengths_of_axes_and_quaternions_do_not_matter(forest):
    q = jaxdyn.random_configuration(forest, jax.random.key(5))
    scaled = forest.replace(
        axis=3 * forest.axis,
        axis2=0.1 * forest.axis2,
        placement=forest.placement.at[:, :4].multiply(2.0),
        frame_placement=forest.frame_placement.at[:, :4].multiply(-0.5),
    )
    for f in (jaxdyn.forward_kinematics, jaxdyn.frame_poses):
        chex.assert_trees_all_close(f(scaled, q), f(forest, q), atol=1e-13)


def test_works_on_both_sides_of_the_64_bit_flag():
    for flag in (True, False, True):
        with jax.enable_x64(flag):
            model = jaxdyn.load("quadruped")
            poses = jaxdyn.forward_kinematics(model, jaxdyn.neutral(model))
            assert poses.position.dtype == (jnp.float64 if flag else jnp.float32)


def test_shard_map():
    model = jaxdyn.load("double_pendulum")
    mesh = jax.make_mesh((1,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    q = jnp.ones((4, 2))
    positions = lambda q: jax.vmap(lambda q: jaxdyn.forward_kinematics(model, q).position)(q)
    spec = jax.sharding.PartitionSpec("batch")
    sharded = jax.jit(jax.shard_map(positions, mesh=mesh, in_specs=spec, out_specs=spec))(q)
    np.testing.assert_allclose(sharded, positions(q), atol=1e-15)


def test_a_batch_of_models_without_vmap_is_refused():
    model = jaxdyn.load("double_pendulum")
    batch = model.replace(inertia=jnp.stack([model.inertia] * 3))
    with pytest.raises(ValueError, match=r"a batch of them \(inertia has shape \(3, 2, 10\)\): use jax.vmap"):
        jaxdyn.forward_kinematics(batch, jnp.zeros(2))


def test_single_precision_models_stay_single():
    model = jaxdyn.load("double_pendulum").astype(jnp.float32)
    q = jnp.zeros(2, jnp.float32)
    for poses in (
        jaxdyn.frame_pose(model, q, "tip", point=(0.1, 0.2, 0.3)),
        jaxdyn.forward_kinematics(model, [0.0, 0.0]),
        jaxdyn.forward_kinematics(model, jnp.array([0, 0])),
    ):
        assert poses.position.dtype == jnp.float32


def test_vmap_and_jit_give_the_same(forest):
    model = forest
    keys = jax.random.split(jax.random.key(0), 4)
    q = jax.vmap(jaxdyn.random_configuration, in_axes=(None, 0))(model, keys)
    batch = jax.jit(jax.vmap(jaxdyn.forward_kinematics, in_axes=(None, 0)))(model, q)
    for i in range(2):
        one = jaxdyn.forward_kinematics(model, q[i])
        chex.assert_trees_all_close(jax.tree.map(lambda x: x[i], batch), one, atol=1e-13)


def scalar(poses):
    """A number that depends on every pose."""
    weights = jnp.arange(1.0, poses.position.size + 1).reshape(poses.position.shape)
    return jnp.sum(weights * poses.position) + jnp.sum(jnp.sin(weights)[..., None] * poses.rotation)


def test_gradient_with_respect_to_every_leaf(forest):
    """Reverse mode against central differences, along one direction that moves q and all leaves at once."""
    model = forest
    q = jaxdyn.random_configuration(model, jax.random.key(2))
    f = lambda leaves: scalar(jaxdyn.forward_kinematics(*leaves))
    bounded = model.replace(**{n: jnp.zeros(s.shape) for n in ("lower", "upper", "velocity_limit", "effort_limit")
                               for s in [getattr(model, n)]})  # fmt: skip
    at = (bounded, q)
    leaves, structure = jax.tree.flatten(at)
    keys = jax.random.split(jax.random.key(3), len(leaves))
    direction = structure.unflatten([jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)])
    g = jax.jit(jax.grad(f))(at)
    along = sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(g), jax.tree.leaves(direction), strict=True))
    h = 1e-6
    step = jax.jit(lambda s: f(jax.tree.map(lambda x, d: x + s * h * d, at, direction)))
    difference = (step(1.0) - step(-1.0)) / (2 * h)
    assert float(along) == pytest.approx(float(difference), rel=1e-6)
    for name in ("placement", "axis", "axis2", "pitch", "ratio", "offset"):
        assert jnp.any(getattr(g[0], name) != 0), name
    assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(g))


def test_forward_and_reverse_mode_agree(forest):
    model = forest
    q = jaxdyn.random_configuration(model, jax.random.key(4))
    f = lambda q: jaxdyn.forward_kinematics(model, q).position[-1]
    forward, reverse = jax.jit(lambda q: (jax.jacfwd(f)(q), jax.jacrev(f)(q)))(q)
    np.testing.assert_allclose(forward, reverse, atol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.long)])
def test_derivatives_are_finite_at_rest_and_half_turns(dtype):
    small = random_tree(6, seed=7, joints=("spherical", "planar", "universal", "continuous", "helical", "free"))
    small = small.astype(dtype)
    neutral = jaxdyn.neutral(small)
    half = jnp.where(neutral == 0, jnp.asarray(jnp.pi, dtype), neutral)
    f = lambda q: scalar(jaxdyn.forward_kinematics(small, q)).astype(dtype)
    curvature = lambda q: jax.jvp(jax.grad(f), (q,), (jnp.ones_like(q),))
    for values in jax.jit(jax.vmap(curvature))(jnp.stack([neutral, half, 0 * neutral])):
        assert values.dtype == dtype
        assert jnp.all(jnp.isfinite(values))


def test_double_pendulum_closed_form():
    model = jaxdyn.load("double_pendulum")
    q = jnp.array([0.3, -1.1])
    tip = jaxdyn.frame_pose(model, q, "tip").position
    angles = jnp.cumsum(q)
    np.testing.assert_allclose(tip, [-jnp.sum(jnp.sin(angles)), 0, -jnp.sum(jnp.cos(angles))], atol=1e-15)


def test_floating_base_pose_is_its_coordinates():
    model = jaxdyn.load("quadruped")
    q = jaxdyn.random_configuration(model, jax.random.key(0))
    trunk = jaxdyn.frame_pose(model, q, "trunk")
    np.testing.assert_allclose(trunk.position, q[4:7], atol=1e-15)
    R = Quaternion.from_array(np.asarray(q[:4])).to_matrix().to_array()
    np.testing.assert_allclose(trunk.rotation, R, atol=1e-14)


def test_lists_integers_and_mixed_precision_are_taken():
    model = jaxdyn.load("double_pendulum")
    exact = jaxdyn.forward_kinematics(model, jnp.array([1.0, 2.0]))
    for q in ([1, 2], np.array([1, 2]), jnp.array([1, 2], jnp.float32)):
        chex.assert_trees_all_close(jaxdyn.forward_kinematics(model, q), exact, atol=1e-12)


def test_single_precision_is_close():
    model = jaxdyn.load("humanoid")
    q = jaxdyn.random_configuration(model, jax.random.key(0))
    double = jaxdyn.forward_kinematics(model, q)
    single = jaxdyn.forward_kinematics(model.astype(jnp.float32), q.astype(jnp.float32))
    assert single.position.dtype == jnp.float32
    np.testing.assert_allclose(single.position, double.position, atol=2e-6)
