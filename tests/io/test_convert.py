"""Converters of q and qd, against Pinocchio and MuJoCo."""

import numpy as np
import pytest

from jaxdyn.io.convert import from_mujoco, from_pinocchio, to_mujoco, to_pinocchio
from jaxdyn.io.mjcf import model_from_mujoco
from jaxdyn.io.mjcf_writer import to_mjcf
from jaxdyn.joints import JointParameters, combine
from jaxdyn.model import ModelBuilder, ModelError, integrate
from jaxdyn.spatial import Transform, Vec3

mujoco, pin = pytest.importorskip("mujoco"), pytest.importorskip("pinocchio")

AXIS, AXIS2 = np.array([1.0, 2, 2]) / 3, np.array([0.0, 0.6, -0.8])
TYPES = {
    "root_joint": "free",
    "hinge": "revolute",
    "wheel": "continuous",
    "slider": "prismatic",
    "ball": "spherical",
    "table": "planar",
    "gantry": "translation",
    "cardan": "universal",
    "screw": "helical",
    "sleeve": "cylindrical",
}
BAR = {"mass": 1.0, "com": (0.1, 0.2, 0.3), "inertia": (0.3, 0.2, 0.25)}


def chain(types, *, reverse=False):
    """Return a model with one body per joint; with `reverse` its joints come in another order."""
    builder = ModelBuilder("chain")
    parent = None
    for name, kind in reversed(types.items()) if reverse else types.items():
        axes = {"axis": (0, 0, 1) if kind in ("planar", "continuous") else AXIS, "axis2": AXIS2}
        xyz = (0, 0, 0) if kind == "free" else (0.1, 0.2, 0.3)
        builder.add_body(f"{name}_body", parent, kind, joint_name=name, pitch=0.3, xyz=xyz, **axes, **BAR)
        parent = None if reverse else f"{name}_body"
    return builder.build(strict=True)


def states(model, batch=(), seed=0):
    """Return random q, its quaternions not of unit length, and qd."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(*batch, model.nq)), rng.normal(size=(*batch, model.nv))


def normalised(model, q):
    """Return q with unit quaternions."""
    return np.asarray(integrate(model, q, np.zeros(model.nv)))


# ---------------------------------------------------------------------- Pinocchio
def pinocchio_joint(kind):
    if kind == "cylindrical":
        joint = pin.JointModelComposite(2)
        joint.addJoint(pin.JointModelRevoluteUnaligned(AXIS))
        joint.addJoint(pin.JointModelPrismaticUnaligned(AXIS))
        return joint
    return {
        "free": pin.JointModelFreeFlyer,
        "revolute": lambda: pin.JointModelRevoluteUnaligned(AXIS),
        "continuous": pin.JointModelRUBZ,
        "prismatic": lambda: pin.JointModelPrismaticUnaligned(AXIS),
        "spherical": pin.JointModelSpherical,
        "planar": pin.JointModelPlanar,
        "translation": pin.JointModelTranslation,
        "universal": lambda: pin.JointModelUniversal(AXIS, AXIS2),
        "helical": lambda: pin.JointModelHelicalUnaligned(AXIS, 0.3),
    }[kind]()


def pinocchio_chain(types):
    model, parent = pin.Model(), 0
    for name, kind in types.items():
        xyz = np.zeros(3) if kind == "free" else np.array([0.1, 0.2, 0.3])
        parent = model.addJoint(parent, pinocchio_joint(kind), pin.SE3(np.eye(3), xyz), name)
    return model


def joint_motion(model, q, qd):
    """Return rotation, position and body twist [linear; angular] of the only body of a model."""
    joint = model.topology.joints[0]
    parameters = JointParameters(
        Vec3.from_array(np.asarray(model.axis[0])), Vec3.from_array(np.asarray(model.axis2[0])), 0.3, 1.0, 0.0
    )
    X = Transform.from_pose(np.asarray(model.placement[0])) @ joint.transform(parameters, tuple(q))
    V = combine(joint.subspace(parameters, tuple(q)), tuple(qd))
    twist = np.concatenate([np.asarray(V.lin.to_array()), np.asarray(V.ang.to_array())])
    return X.R.to_array(), X.p.to_array(), twist


@pytest.mark.parametrize("name", TYPES)
def test_pinocchio_sees_the_same_pose_and_twist(name):
    types = {name: TYPES[name]}
    model, pin_model = chain(types), pinocchio_chain(types)
    data = pin_model.createData()
    for seed in range(3):
        q, qd = states(model, seed=seed)
        pin.forwardKinematics(pin_model, data, *to_pinocchio(model, pin_model, q, qd))
        R, p, twist = joint_motion(model, q, qd)
        np.testing.assert_allclose(data.oMi[1].rotation, R, atol=1e-14)
        np.testing.assert_allclose(data.oMi[1].translation, p, atol=1e-14)
        np.testing.assert_allclose(data.v[1].vector, twist, atol=1e-14)


def test_pinocchio_integrates_alike():
    model, pin_model = chain(TYPES), pinocchio_chain(TYPES)
    q, dq = states(model)
    q = normalised(model, q)
    ours = integrate(model, q, dq)
    theirs = pin.integrate(pin_model, *to_pinocchio(model, pin_model, q, dq))
    wanted = to_pinocchio(model, pin_model, ours)
    for name, offset in (("root_joint", 3), ("ball", 0)):  # q and -q are one rotation
        start = pin_model.joints[pin_model.getJointId(name)].idx_q + offset
        quaternion = slice(start, start + 4)
        wanted[quaternion] *= np.sign(wanted[quaternion] @ theirs[quaternion])
    np.testing.assert_allclose(theirs, wanted, atol=1e-14)


def test_pinocchio_there_and_back_with_batches_and_other_order():
    model, pin_model = chain(TYPES, reverse=True), pinocchio_chain(TYPES)
    q, qd = states(model, batch=(2, 3))
    there = to_pinocchio(model, pin_model, q, qd)
    assert there[0].shape == (2, 3, pin_model.nq)
    assert there[1].shape == (2, 3, pin_model.nv)
    back = from_pinocchio(model, pin_model, *there)
    for i in np.ndindex(2, 3):
        np.testing.assert_allclose(back[0][i], normalised(model, q[i]), atol=1e-14)
    np.testing.assert_allclose(back[1], qd, atol=1e-15)
    np.testing.assert_array_equal(to_pinocchio(model, pin_model, q), there[0])
    np.testing.assert_array_equal(from_pinocchio(model, pin_model, there[0]), back[0])
    one = to_pinocchio(model, pin_model, q[1, 2], qd[1, 2])
    np.testing.assert_array_equal(one[1], there[1][1, 2])


def test_a_revolute_joint_may_be_bounded_or_not():
    pin_model = pinocchio_chain({"hinge": "continuous"})
    model = chain({"hinge": "revolute"})
    np.testing.assert_allclose(to_pinocchio(model, pin_model, [2.5]), [np.cos(2.5), np.sin(2.5)])
    np.testing.assert_allclose(from_pinocchio(model, pin_model, [np.cos(2.5), np.sin(2.5)]), [2.5])


def test_mimic_joints_have_no_coordinates_in_either():
    builder = ModelBuilder()
    builder.add_body("a", None, "revolute", joint_name="lead", **BAR)
    builder.add_body("b", "a", "revolute", joint_name="follow", follows="lead", ratio=2, offset=0.5, **BAR)
    model = builder.build()
    pin_model = pinocchio_chain({"lead": "revolute"})
    mimic = pin.JointModelMimic(pin_model.joints[1], 2.0, 0.5)
    pin_model.addJoint(1, mimic, pin.SE3.Identity(), "follow")
    q, v = to_pinocchio(model, pin_model, [0.3], [0.4])
    assert (q.tolist(), v.tolist()) == ([0.3], [0.4])
    independent = pinocchio_chain({"lead": "revolute", "follow": "revolute"})
    with pytest.raises(ModelError, match=r"'follow': a mimic joint with nq = 0, nv = 0 here, .* nq = 1, nv = 1"):
        to_pinocchio(model, independent, [0.3])


@pytest.mark.parametrize(
    ("here", "there", "reason"),
    [
        (
            {"a": "revolute", "b": "revolute"},
            {"a": "revolute"},
            "joint 'b' is not in the Pinocchio model.*'a'",
        ),
        (
            {"a": "revolute"},
            {"a": "revolute", "b": "revolute"},
            "'b' of the Pinocchio model is not in this one",
        ),
        (
            {"a": "spherical"},
            {"a": "translation"},
            "'a': a spherical joint with nq = 4, nv = 3 .* nq = 3, nv = 3",
        ),
        (
            {"a": "prismatic"},
            {"a": "continuous"},
            "'a': a prismatic joint with nq = 1, nv = 1 .* nq = 2, nv = 1",
        ),
        ({"a": "planar"}, {"a": "translation"}, "'a': a planar joint .* nq = 3, nv = 3"),
    ],
)
def test_pinocchio_models_that_do_not_fit(here, there, reason):
    model, pin_model = chain(here), pinocchio_chain(there)
    with pytest.raises(ModelError, match=reason):
        to_pinocchio(model, pin_model, np.zeros(model.nq))
    with pytest.raises(ModelError, match=reason):
        from_pinocchio(model, pin_model, np.zeros(pin_model.nq))


def test_shapes_are_checked():
    model, pin_model = chain({"ball": "spherical"}), pinocchio_chain({"ball": "spherical"})
    with pytest.raises(ValueError, match=r"configuration must have shape \(\.\.\., 4\); got \(3,\)"):
        to_pinocchio(model, pin_model, np.zeros(3))
    with pytest.raises(ValueError, match=r"velocity must have shape \(2, 3\); got \(3,\)"):
        from_pinocchio(model, pin_model, np.ones((2, 4)), np.zeros(3))


# ---------------------------------------------------------------------- MuJoCo
MUJOCO_TYPES = {name: kind for name, kind in TYPES.items() if kind not in ("planar", "helical")}


@pytest.fixture(scope="module")
def pair():
    model = chain(MUJOCO_TYPES)
    return model, mujoco.MjModel.from_xml_string(to_mjcf(model))


def test_mujoco_integrates_alike(pair):
    """Positions agree to first order in time, and exactly where a free joint does not rotate."""
    model, mj_model = pair
    q, qd = states(model)
    q = normalised(model, q)
    step = 1e-6

    def differences(qd):
        qpos, qvel = to_mujoco(model, mj_model, q, qd)
        mujoco.mj_integratePos(mj_model, qpos, qvel, step)
        return (qpos - to_mujoco(model, mj_model, integrate(model, q, step * qd))) / step

    np.testing.assert_allclose(differences(qd), 0, atol=1e-5)
    qd[:3] = 0
    np.testing.assert_allclose(differences(qd), 0, atol=1e-9)


def test_mujocos_velocity_of_a_free_joint():
    """Its linear part is the velocity of the origin in world axes, its angular part in body axes."""
    model = chain({"root_joint": "free"})
    mj_model = mujoco.MjModel.from_xml_string(to_mjcf(model))
    q, qd = states(model)
    qpos, qvel = to_mujoco(model, mj_model, q, qd)
    data = mujoco.MjData(mj_model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(mj_model, data)
    world = np.zeros(6)
    mujoco.mj_objectVelocity(mj_model, data, mujoco.mjtObj.mjOBJ_XBODY, 1, world, 0)
    R, p, twist = joint_motion(model, q, qd)
    np.testing.assert_allclose(data.xmat[1].reshape(3, 3), R, atol=1e-14)
    np.testing.assert_allclose(data.xpos[1], p, atol=1e-14)
    np.testing.assert_allclose(world, np.concatenate([R @ twist[3:], R @ twist[:3]]), atol=1e-14)


def test_mujoco_there_and_back_with_batches(pair):
    model, mj_model = pair
    q, qd = states(model, batch=(2, 3))
    there = to_mujoco(model, mj_model, q, qd)
    back = from_mujoco(model, mj_model, *there)
    np.testing.assert_allclose(to_mujoco(model, mj_model, *back)[0], there[0], atol=1e-15)
    np.testing.assert_allclose(back[1], qd, atol=1e-14)
    np.testing.assert_allclose(back[0][1, 2], normalised(model, q[1, 2]), atol=1e-14)
    np.testing.assert_array_equal(to_mujoco(model, mj_model, q), there[0])
    np.testing.assert_array_equal(from_mujoco(model, mj_model, there[0]), back[0])
    assert there[0].shape == (2, 3, mj_model.nq)


def test_joints_in_parts_and_their_loaded_model(pair):
    """A universal joint is two joints in MuJoCo, whether our model knows it as one or as two."""
    model, mj_model = pair
    again = model_from_mujoco(mj_model)
    q, qd = states(model)
    for a, b in zip(to_mujoco(model, mj_model, q, qd), to_mujoco(again, mj_model, q, qd), strict=True):
        np.testing.assert_array_equal(a, b)
    start = mj_model.jnt_qposadr[mj_model.joint("cardan/2").id]
    assert to_mujoco(model, mj_model, q)[start] == q[model.q_slice("cardan")][1]


def test_order_is_by_name():
    text = """<mujoco><worldbody>
      <body><joint name="b"/><geom size="1"/></body>
      <body><joint name="a"/><geom size="1"/></body>
      <body><joint/><geom size="1"/></body></worldbody></mujoco>"""
    mj_model = mujoco.MjModel.from_xml_string(text)
    model = chain({"a": "revolute", "b": "revolute", "joint_2": "revolute"})
    assert to_mujoco(model, mj_model, [1, 2, 3]).tolist() == [2, 1, 3]
    assert from_mujoco(model, mj_model, [2, 1, 3]).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("here", "there", "reason"),
    [
        ({"a": "revolute", "b": "revolute"}, {"a": "revolute"}, "joint 'b' is not in the MuJoCo model"),
        ({"a": "revolute"}, {"a": "revolute", "b": "revolute"}, "'b' of the MuJoCo model is not in this one"),
        (
            {"a": "spherical"},
            {"a": "revolute"},
            "'a': a spherical joint with nq = 4, nv = 3 here, .* nq = 1, nv = 1",
        ),
        ({"a": "planar"}, {"a": "translation"}, "'a': a planar joint with nq = 3"),
    ],
)
def test_mujoco_models_that_do_not_fit(here, there, reason):
    model, mj_model = chain(here), mujoco.MjModel.from_xml_string(to_mjcf(chain(there)))
    with pytest.raises(ModelError, match=reason):
        to_mujoco(model, mj_model, np.zeros(model.nq))
    with pytest.raises(ModelError, match=reason):
        from_mujoco(model, mj_model, np.zeros(mj_model.nq))
