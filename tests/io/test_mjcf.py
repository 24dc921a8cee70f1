"""MJCF in and out, against MuJoCo itself."""

import builtins
import dataclasses
import re
import warnings
from types import SimpleNamespace
from typing import NamedTuple

import jax
import numpy as np
import pytest

from jaxdyn.algorithms import frame_poses
from jaxdyn.io import xml as xml_reader
from jaxdyn.io.convert import from_mujoco
from jaxdyn.io.mjcf import body_names, joint_names, left_out, load_mjcf, model_from_mujoco, parse_mjcf
from jaxdyn.io.mjcf_writer import to_mjcf
from jaxdyn.joints import JointParameters, Revolute, combine
from jaxdyn.model import ModelBuilder, ModelError, ModelWarning
from jaxdyn.spatial import RigidInertia, Transform, Vec3

mujoco = pytest.importorskip("mujoco")

EVERYTHING = """
<mujoco model="everything">
  <compiler angle="radian"/>
  <option gravity="0.1 -0.2 -9.7"/>
  <asset>
    <material name="red" rgba="1 0 0 1"/>
    <mesh name="wedge" scale="2 2 2" vertex="0 0 0  1 0 0  0 2 0  0 0 3.5"/>
  </asset>
  <worldbody>
    <geom type="plane" size="0 3 1"/>
    <body name="base" pos="0 0 1" quat="1 0.2 0 0.3">
      <freejoint name="root"/>
      <inertial pos="0.1 0.2 -0.1" quat="1 1 0 0.5" mass="3" diaginertia="0.3 0.2 0.15"/>
      <geom type="box" size="0.1 0.2 0.3" material="red" mass="0"/>
      <body name="shoulder" pos="0.3 0.1 0" quat="0.7 0.1 0.7 0">
        <joint name="lift" type="slide" axis="1 2 0" pos="0.1 0 0.4" ref="0.3" range="-0.5 0.8" armature="0.2"
               damping="0.4"/>
        <joint name="yaw" axis="0 1 2" pos="0.2 0.3 -0.1" ref="0.7" range="-2 1.5" stiffness="4"
               springref="0.2" frictionloss="0.6" armature="0.1" actuatorfrcrange="-7 7"/>
        <joint name="pitch" axis="1 0 0.1" pos="-0.1 0.3 0.2" ref="-0.4" damping="0.3"/>
        <geom type="capsule" size="0.05 0.2" pos="0 0 0.2" mass="1.2" contype="0" conaffinity="0"
              rgba="0 1 0 0.5"/>
        <body name="bracket" pos="0 0.1 0.2" quat="1 0 1 0">
          <geom type="cylinder" size="0.05 0.1" mass="0.4"/>
          <body pos="0.1 0 0">
            <geom type="ellipsoid" size="0.1 0.2 0.3" mass="0.3"/>
            <body name="wrist" pos="0 0 0.2" quat="1 0 0 1">
              <joint name="ball" type="ball" pos="0.05 -0.1 0.2" damping="0.2" stiffness="1.5"/>
              <geom type="mesh" mesh="wedge" pos="0.1 0.2 0.3" quat="1 0.5 0 0.2" mass="0.5"/>
            </body>
          </body>
        </body>
      </body>
    </body>
    <body name="rail" pos="0 5 0">
      <geom type="sphere" size="0.2"/>
      <body name="cart"><joint type="slide" axis="0 0 1"/><geom size="0.1" mass="0.7"/></body>
    </body>
  </worldbody>
</mujoco>
"""


def one_body(joint='<joint name="j"/>', more="", body=""):
    return f"""<mujoco>{more}<worldbody>
      <body name="b">{joint}<geom name="g" size="0.1"/>{body}</body></worldbody></mujoco>"""


def random_state(mj_model, rng, batch=8):
    """Return qpos and qvel; qpos reaches every configuration space with unit quaternions."""
    qpos = np.tile(mj_model.qpos0, (batch, 1))
    for q in qpos:
        mujoco.mj_integratePos(mj_model, q, rng.normal(size=mj_model.nv), 1.0)
    return qpos, rng.normal(size=(batch, mj_model.nv))


def mujoco_data(mj_model, qpos, qvel=None):
    for i, q in enumerate(qpos):
        data = mujoco.MjData(mj_model)
        data.qpos[:] = q
        if qvel is not None:
            data.qvel[:] = qvel[i]
        mujoco.mj_forward(mj_model, data)
        yield data


class Motions(NamedTuple):
    """What a model does at some states, by names of bodies and frames; from the joints alone, in NumPy."""

    poses: dict[str, Transform]
    centre: np.ndarray
    energy: np.ndarray

    def position(self, name):
        return self.poses[name].p.to_array()

    def rotation(self, name):
        return self.poses[name].R.to_array()


def motions(model, q, qd=None):
    """Return poses, centre of mass and kinetic energy at configurations (k, nq) and velocities (k, nv)."""
    q, numbers, t = np.asarray(q), fields(model), model.topology
    qd = np.zeros((len(q), model.nv)) if qd is None else np.asarray(qd)
    energy, moment = np.sum(numbers["armature"] * qd**2, axis=-1) / 2, np.zeros((len(q), 3))
    poses, twists = [], []
    for i, joint in enumerate(t.joints):
        name = t.joint_names[i]
        own_q, own_qd = q[:, model.q_slice(name)].T, qd[:, model.qd_slice(name)].T
        axis, axis2 = (Vec3.from_array(numbers[n][i]) for n in ("axis", "axis2"))
        parameters = JointParameters(axis, axis2, 0.0, 1.0, 0.0)
        X = Transform.from_pose(numbers["placement"][i]) @ joint.transform(parameters, tuple(own_q))
        V = combine(joint.subspace(parameters, tuple(own_q)), tuple(own_qd))
        if t.parents[i] >= 0:
            V, X = V + X.inverse().motion(twists[t.parents[i]]), poses[t.parents[i]] @ X
        poses.append(X)
        twists.append(V)
        I = RigidInertia.from_parameters(numbers["inertia"][i])
        energy, moment = energy + (I @ V).dot(V) / 2, moment + (I.m * X.p + X.R @ I.h).to_array()
    frames = [Transform.from_pose(pose) for pose in numbers["frame_placement"]]
    frames = [poses[p] @ X if p >= 0 else X for p, X in zip(t.frame_parents, frames, strict=True)]
    whole = jax.tree.map(lambda x: np.broadcast_to(x, len(q)), poses + frames)
    names = dict(zip(t.body_names + t.frame_names, whole, strict=True))
    return Motions(names, moment / max(numbers["inertia"][:, 0].sum(), 1e-300), energy)


def fields(model):
    names = [f.name for f in dataclasses.fields(model) if f.name not in ("topology", "geometry")]
    return {name: np.asarray(getattr(model, name)) for name in names}


def assert_same(a, b, tolerance=1e-12):
    assert a.topology == b.topology
    for name, value in fields(a).items():
        np.testing.assert_allclose(fields(b)[name], value, atol=tolerance, rtol=tolerance, err_msg=name)
    assert len(a.geometry) == len(b.geometry)
    for x, y in zip(a.geometry, b.geometry, strict=True):
        assert (x.frame, x.shape, x.mesh, x.role) == (y.frame, y.shape, y.mesh, y.role)
        for field in ("size", "placement", "colour"):
            np.testing.assert_allclose(getattr(x, field), getattr(y, field), atol=tolerance)


@pytest.fixture(scope="module")
def everything():
    return mujoco.MjModel.from_xml_string(EVERYTHING), parse_mjcf(EVERYTHING, strict=True)


# ---------------------------------------------------------------------- loading, against MuJoCo
def test_names_and_types(everything):
    _, model = everything
    assert model.name == "everything"
    assert model.joint_names == ("root", "lift", "yaw", "pitch", "ball", "joint_5")
    assert model.joint_types == ("free", "prismatic", "revolute", "revolute", "spherical", "prismatic")
    assert model.body_names == (
        "base/root",
        "shoulder/lift",
        "shoulder/yaw",
        "shoulder/pitch",
        "wrist/ball",
        "cart/joint_5",
    )
    assert model.frame_names == ("world", "base", "shoulder", "bracket", "body_4", "wrist", "rail", "cart")
    assert model.parents == (-1, 0, 1, 2, 3, -1)


def test_poses_are_mujocos(everything):
    mj_model, model = everything
    qpos, _ = random_state(mj_model, np.random.default_rng(1))
    poses = jax.vmap(frame_poses, (None, 0))(model, from_mujoco(model, mj_model, qpos))
    order = [model.frame_names.index(name) for name in body_names(mj_model)]
    for k, data in enumerate(mujoco_data(mj_model, qpos)):
        np.testing.assert_allclose(poses.position[k, order], data.xpos, atol=1e-12)
        np.testing.assert_allclose(poses.rotation[k, order].reshape(-1, 9), data.xmat, atol=1e-12)


def test_moving_frames_sit_at_the_anchors(everything):
    mj_model, model = everything
    qpos, _ = random_state(mj_model, np.random.default_rng(2))
    ours = motions(model, from_mujoco(model, mj_model, qpos))
    for k, data in enumerate(mujoco_data(mj_model, qpos)):
        for joint, body in ((3, "shoulder/pitch"), (4, "wrist/ball")):
            np.testing.assert_allclose(ours.position(body)[k], data.xanchor[joint], atol=1e-12)
        for joint in (1, 2, 3):
            axis = ours.rotation(model.body_names[joint])[k] @ model.axis[joint]
            np.testing.assert_allclose(axis, data.xaxis[joint], atol=1e-12)


def test_mass_and_kinetic_energy_are_mujocos(everything):
    mj_model, model = everything
    moving = np.array([name not in ("world", "rail") for name in body_names(mj_model)])
    mass = mj_model.body_mass[moving].sum()
    np.testing.assert_allclose(model.inertia[:, 0].sum(), mass, rtol=1e-14)
    qpos, qvel = random_state(mj_model, np.random.default_rng(3))
    ours = motions(model, *from_mujoco(model, mj_model, qpos, qvel))
    for k, data in enumerate(mujoco_data(mj_model, qpos, qvel)):
        Mv = np.zeros(mj_model.nv)
        mujoco.mj_mulM(mj_model, data, Mv, qvel[k])
        np.testing.assert_allclose(ours.energy[k], qvel[k] @ Mv / 2, rtol=1e-12)
        wanted = (mj_model.body_mass[moving, None] * data.xipos[moving]).sum(axis=0) / mass
        np.testing.assert_allclose(ours.centre[k], wanted, atol=1e-12)


def test_joint_numbers(everything):
    _, model = everything
    np.testing.assert_allclose(model.gravity, [0.1, -0.2, -9.7])
    lift, yaw, pitch, ball = (model.qd_slice(name) for name in ("lift", "yaw", "pitch", "ball"))
    assert model.armature[lift] == 0.2
    assert model.damping[lift] == 0.4
    assert model.armature[yaw] == 0.1
    assert model.friction[yaw] == 0.6
    assert model.stiffness[yaw] == 4
    assert model.rest[model.q_slice("yaw")] == 0.2
    assert model.rest[model.q_slice("lift")] == 0.0
    assert model.effort_limit[yaw] == 7
    assert np.isinf(model.effort_limit[lift])
    assert model.lower[model.q_slice("lift")] == -0.5
    assert model.upper[model.q_slice("lift")] == 0.8
    assert np.isinf(model.lower[model.q_slice("pitch")])
    assert np.isinf(model.upper[model.q_slice("pitch")])
    np.testing.assert_array_equal(model.damping[ball], [0.2] * 3)
    np.testing.assert_array_equal(model.stiffness[ball], [1.5] * 3)
    base = np.array([1, 0.2, 0, 0.3])
    np.testing.assert_allclose(model.rest[:7], [*(base / np.linalg.norm(base)), 0, 0, 1])
    assert model.damping[pitch] == 0.3


def test_angular_and_linear_values_of_a_free_joint_keep_their_places():
    mj_model = mujoco.MjModel.from_xml_string(one_body('<freejoint name="j"/>'))
    mj_model.dof_armature[:], mj_model.dof_damping[:] = np.arange(6), np.arange(6) + 10
    mj_model.dof_frictionloss[:] = np.arange(6) + 20
    model = model_from_mujoco(mj_model)
    np.testing.assert_array_equal(model.armature, [3, 4, 5, 0, 1, 2])
    np.testing.assert_array_equal(model.damping, [13, 14, 15, 10, 11, 12])
    np.testing.assert_array_equal(model.friction, [23, 24, 25, 20, 21, 22])


@pytest.mark.parametrize("flag", ["gravity", "spring", "damper", "frictionloss"])
def test_forces_that_are_switched_off_are_zero(flag):
    joint = '<joint name="j" stiffness="1" damping="2" frictionloss="3"/>'
    model = parse_mjcf(one_body(joint, f'<option><flag {flag}="disable"/></option>'))
    names = ("gravity", "stiffness", "damping", "friction")
    values = {name: float(np.abs(getattr(model, name)).max()) for name in names}
    off = {"gravity": "gravity", "spring": "stiffness", "damper": "damping", "frictionloss": "friction"}[flag]
    assert values == {"gravity": 9.81, "stiffness": 1, "damping": 2, "friction": 3} | {off: 0}


def test_default_names_stay_unique():
    model = parse_mjcf("""<mujoco><worldbody>
      <body><joint/><geom size="1"/>
        <body name="body_1"><joint name="joint_0"/><geom size="1"/></body>
        <body name="body_1/joint_0"><geom size="1"/></body>
      </body></worldbody></mujoco>""")
    assert model.joint_names == ("joint_0_2", "joint_0")
    assert model.frame_names == ("body_1_2", "body_1", "body_1/joint_0")
    assert model.body_names == ("body_1_2/joint_0_2", "body_1/joint_0_2")


def test_welded_bodies_may_be_named_like_joints():
    model = parse_mjcf(one_body('<joint name="w_fixed"/>', body='<body name="w"><geom size="1"/></body>'))
    assert model.joint_names == ("w_fixed",)
    assert model.frame_names == ("b", "w")


# ---------------------------------------------------------------------- geometry
def test_shapes(everything):
    mj_model, model = everything
    shapes = {(g.frame, g.shape): g for g in model.geometry}
    assert shapes["world", "plane"].size == (0, 6)
    assert shapes["base", "box"].size == (0.2, 0.4, 0.6)
    assert shapes["base", "box"].colour == (1, 0, 0, 1)
    capsule = shapes["shoulder", "capsule"]
    assert (capsule.size, capsule.role, capsule.colour) == ((0.05, 0.4), "visual", (0, 1, 0, 0.5))
    assert capsule.placement[4:] == (0, 0, 0.2)
    assert shapes["bracket", "cylinder"].size == (0.05, 0.2)
    assert shapes["bracket", "cylinder"].role == "collision"
    assert shapes["body_4", "ellipsoid"].size == (0.1, 0.2, 0.3)
    assert shapes["rail", "sphere"].size == (0.2,)
    assert len(model.geometry) == mj_model.ngeom


@pytest.mark.parametrize(("bits", "role"), [((1, 0), "collision"), ((0, 1), "collision"), ((0, 0), "visual")])
def test_shapes_that_can_touch_collide(bits, role):
    more = '<default><geom contype="{}" conaffinity="{}"/></default>'.format(*bits)
    assert parse_mjcf(one_body(more=more)).geometry[0].role == role


def test_a_mesh_keeps_the_pose_of_its_file(everything):
    mj_model, model = everything
    mesh = next(g for g in model.geometry if g.shape == "mesh")
    quaternion = np.array([1, 0.5, 0, 0.2]) / np.linalg.norm([1, 0.5, 0, 0.2])
    assert mesh.size == (2, 2, 2)
    assert mesh.mesh == "wedge"
    # MuJoCo's vertices are float32
    np.testing.assert_allclose(mesh.placement, [*quaternion, 0.1, 0.2, 0.3], atol=1e-6)
    assert np.abs(mj_model.mesh_pos[0]).max() > 0.1  # the compiler did move it


def test_a_mesh_file_is_named_and_height_fields_are_skipped(tmp_path):
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    faces = [(1, 3, 2), (1, 2, 4), (2, 3, 4), (1, 4, 3)]
    lines = [f"v {x} {y} {z}" for x, y, z in corners] + [f"f {a} {b} {c}" for a, b, c in faces]
    (tmp_path / "corner.obj").write_text("\n".join(lines))
    asset = '<asset><mesh file="corner.obj"/><hfield name="h" nrow="2" ncol="2" size="1 1 1 1"/></asset>'
    body = '<geom type="mesh" mesh="corner" contype="0" conaffinity="0"/>'
    ground = '<worldbody><geom type="hfield" hfield="h"/>'
    text = one_body(more=asset, body=body).replace("<worldbody>", ground)
    (tmp_path / "robot.xml").write_text(text)
    with pytest.warns(ModelWarning, match="left out: shapes \\(height fields and the like\\) of bodies 'world'"):
        shapes = load_mjcf(tmp_path / "robot.xml").geometry
    assert [g.shape for g in shapes] == ["sphere", "mesh"]
    assert shapes[1].mesh.endswith("corner.obj")
    assert shapes[1].role == "visual"


# ---------------------------------------------------------------------- warnings and errors
IGNORED = {
    "tendons 'rope'": {"more": '<tendon><fixed name="rope"><joint joint="j" coef="1"/></fixed></tendon>'},
    "equality constraints 'tie'": {"more": '<equality><weld name="tie" body1="b"/></equality>'},
    "actuators, with their armature and damping 'motor', 'actuator_1'": {
        "more": '<actuator><motor name="motor" joint="j"/><motor joint="j"/></actuator>'
    },
    "gravity compensation of bodies 'c'": {"body": '<body name="c" gravcomp="1"><geom size="1"/></body>'},
    "nonlinear stiffness of joints 'j'": {"joint": '<joint name="j" stiffness="1 2 3"/>'},
    "nonlinear damping of joints 'j'": {"joint": '<joint name="j" damping="1 2 3"/>'},
    "limits of ball joints 'j'": {"joint": '<joint name="j" type="ball" range="0 1"/>'},
    "springs of free joints (body axes are used) 'j'": {"joint": '<joint name="j" type="free" stiffness="1"/>'},
    "unequal effort limits of joints (the larger one is used) 'j'": {
        "joint": '<joint name="j" actuatorfrcrange="-1 2"/>'
    },
    "the fluid of density 2 and viscosity 0": {"more": '<option density="2"/>'},
    "the fluid of density 0 and viscosity 3": {"more": '<option viscosity="3"/>'},
    "skins 'skin'": {
        "more": """<asset><skin name="skin" vertex="0 0 0 1 0 0 0 1 0" face="0 1 2">
        <bone body="b" bindpos="0 0 0" bindquat="1 0 0 0"
        vertid="0 1 2" vertweight="1 1 1"/></skin></asset>"""
    },
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("note", IGNORED)
def test_what_is_not_modelled_is_named_but_not_refused(note, strict):
    with pytest.warns(ModelWarning, match=re.escape(note)) as caught:
        model = parse_mjcf(one_body(**IGNORED[note]), source="robot.xml", strict=strict)
    assert model.nbodies == 1
    assert len(caught) == 1
    assert str(caught[0].message).startswith("robot.xml: not modelled and left out: ")


def test_mocap_and_flexible_bodies_are_named():
    text = """<mujoco><worldbody><body name="hand" mocap="true"><geom size="0.1"/></body>
      <body name="cloth"><flexcomp name="sheet" type="grid" count="3 3 1"
        spacing="0.1 0.1 0.1" dim="2" mass="1"
        radius="0.01"><edge equality="true"/></flexcomp></body></worldbody></mujoco>"""
    with pytest.warns(ModelWarning) as caught:
        parse_mjcf(text)
    said = "\n".join(str(w.message) for w in caught)
    assert "motion of mocap bodies 'hand'" in said
    assert "flexible bodies 'sheet'" in said


def test_plugins_and_yielding_springs_are_named():
    """Arrays that older versions of MuJoCo lack, and plugins, which need a library to be in a file."""
    mj_model = SimpleNamespace(
        opt=SimpleNamespace(density=0, viscosity=0),
        names=b"\0world\0b\0j\0press\0",
        **{f"name_{kind}adr": [] for kind in ("tendon", "eq", "actuator", "flex", "skin")},
        ngeom=0,
        name_bodyadr=[1, 7],
        name_jntadr=[9],
        name_pluginadr=[11],
        body_gravcomp=np.zeros(2),
        body_mocapid=np.full(2, -1),
        jnt_type=np.array([3]),
        jnt_stiffness=np.ones(1),
        jnt_limited=np.zeros(1),
        jnt_actfrclimited=np.zeros(1),
        jnt_actfrcrange=np.zeros((1, 2)),
        jnt_springyield=np.ones(1),
        dof_jntid=np.zeros(1, int),
    )
    assert list(left_out(mj_model)) == ["plugins 'press'", "yielding springs of joints 'j'"]


def test_asymmetric_effort_limit_takes_the_larger_bound():
    with pytest.warns(ModelWarning, match="unequal"):
        model = parse_mjcf(one_body('<joint name="j" actuatorfrcrange="-3 2"/>'))
    assert model.effort_limit[0] == 3


INCONSISTENT = one_body(body='<body name="odd"><inertial pos="0 0 0" mass="1e-3" diaginertia="0 0 0"/></body>')


def test_strict_refuses_inconsistent_inertias():
    with pytest.warns(ModelWarning, match="'odd': inertia is not positive definite"):
        parse_mjcf(INCONSISTENT)
    with pytest.raises(ModelError, match=r"(?s)robot.xml: refused because strict=True.*'odd'"):
        parse_mjcf(INCONSISTENT, source="robot.xml", strict=True)


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    missing = tmp_path / "missing.xml"
    with pytest.raises(ModelError, match=r"missing\.xml: no such file"):
        load_mjcf(missing)
    broken = tmp_path / "broken.xml"
    broken.write_text("<mujoco><worldbody><body>")
    with pytest.raises(ModelError, match=r"broken\.xml:1: malformed XML"):
        load_mjcf(str(broken))
    monkeypatch.setattr(xml_reader, "MAX_BYTES", 10)
    with pytest.raises(ModelError, match=r"broken\.xml: the file has 25 bytes; more than 10"):
        load_mjcf(broken)


def test_text_that_mujoco_refuses():
    with pytest.raises(ModelError, match=r"here: MuJoCo cannot compile it: .*mjMINVAL.* line 1") as caught:
        parse_mjcf('<mujoco><worldbody><body name="b"><joint/></body></worldbody></mujoco>', source="here")
    assert caught.value.source == "here"


def test_without_mujoco_the_message_says_what_to_install(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "mujoco":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    (tmp_path / "robot.xml").write_text(one_body())
    with pytest.raises(ImportError, match=re.escape("pip install 'jaxdyn[mjcf]'")):
        load_mjcf(tmp_path / "robot.xml")


# ---------------------------------------------------------------------- floating base
def test_a_welded_root_floats():
    text = """<mujoco><worldbody><geom size="1"/><body name="trunk" pos="1 2 3"><geom size="0.1" mass="2"/>
      <body name="arm" pos="0 0 1"><joint name="j"/><geom size="0.1"/></body></body></worldbody></mujoco>"""
    model, fixed = parse_mjcf(text, floating_base=True, strict=True), parse_mjcf(text)
    assert model.joint_names == ("root_joint", "j")
    assert model.joint_types == ("free", "revolute")
    assert model.body_names == ("trunk/root_joint", "arm/j")
    assert model.inertia[0, 0] == 2
    assert fixed.joint_names == ("j",)
    # With the base where the file puts it, everything is where it is on the fixed base.
    q = np.array([[1.0, 0, 0, 0, 1, 2, 3, 0.4]])
    floating, there = motions(model, q), motions(fixed, q[:, 7:])
    for name in ("trunk", "arm"):
        np.testing.assert_allclose(floating.position(name), there.position(name), atol=1e-15)
    np.testing.assert_allclose(floating.rotation("arm"), there.rotation("arm"), atol=1e-15)


def test_a_jointed_root_hangs_on_a_floating_base():
    with pytest.warns(ModelWarning, match="'b' hangs by joint 'j' on a floating base without mass"):
        parse_mjcf(one_body('<joint name="j" pos="1 0 0"/>'), floating_base=True)
    text = one_body('<joint name="j" pos="1 0 0" armature="1"/>')
    model = parse_mjcf(text, floating_base=True, strict=True)
    assert model.body_names == ("b/root_joint", "b/j")
    assert model.inertia[0, 0] == 0
    q = np.array([[1.0, 0, 0, 0, 0, 0, 0.5, np.pi / 2]])
    np.testing.assert_allclose(motions(model, q).position("b"), [[1, -1, 0.5]], atol=1e-15)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (one_body('<freejoint name="f"/>'), "'b' floats already, by its free joint 'f'"),
        (one_body().replace("</worldbody>", '<body name="c"/></worldbody>'), "exactly one body.*'b', 'c'"),
        ("<mujoco/>", "there are none"),
        (one_body('<joint name="root_joint"/>'), "there is one already"),
    ],
)
def test_floating_base_refused(text, reason):
    with pytest.raises(ModelError, match=f"robot.xml: floating_base=True.*{reason}"):
        parse_mjcf(text, source="robot.xml", floating_base=True)


# ---------------------------------------------------------------------- writing
def inertial(scale=1.0):
    return {
        "mass": scale,
        "com": (0.1, -0.2, 0.3),
        "inertia": scale * np.array([[0.4, 0.02, 0.01], [0.02, 0.3, -0.03], [0.01, -0.03, 0.35]]),
    }


def writable():
    """Return a model with every joint type that MJCF has room for."""
    builder = ModelBuilder("writable", gravity=(0.3, 0.1, -9))
    add = builder.add_body
    add("base", None, "free", joint_name="root", rest=(0.8, 0, 0.6, 0, 1, 2, 3), **inertial(3))
    add(
        "hip",
        "base",
        "universal",
        joint_name="hip",
        axis=(1, 0, 0.2),
        axis2=(0, 1, 0.5),
        xyz=(1, 0, 0.2),
        rpy=(0.1, 0.2, 0.3),
        lower=(-1, -2),
        upper=(1, 2),
        damping=(0.1, 0.2),
        **inertial(),
    )
    add(
        "sleeve",
        "hip",
        "cylindrical",
        joint_name="sleeve",
        axis=(0, 1, 1),
        rpy=(1, 0, 2),
        armature=(0.1, 0.2),
        stiffness=(3, 4),
        rest=(0.5, -0.1),
        effort_limit=(5, 6),
        **inertial(2),
    )
    # no mass on the next two: their joints and that of "hand" move one MJCF body
    add("roll", "sleeve", "revolute", joint_name="roll", axis=(1, 2, 3), xyz=(0.1, 0, 0), rpy=(0.3, 0.1, 0))
    add(
        "slide",
        "roll",
        "prismatic",
        joint_name="slide",
        axis=(0, 2, 3),
        xyz=(0, 0.1, 0.3),
        rpy=(0, 1, 0.2),
        upper=0.7,
    )
    add(
        "hand",
        "slide",
        "continuous",
        joint_name="turn",
        axis=(0, 1, 0),
        xyz=(0, 0.1, 0.3),
        rpy=(2, 0.1, 0),
        friction=0.4,
        **inertial(),
    )
    add(
        "eye",
        "base",
        "spherical",
        joint_name="eye",
        xyz=(0, 1, 0),
        rpy=(0, 0, 1),
        stiffness=2.0,
        **inertial(),
    )
    add("load", None, "translation", joint_name="load", rpy=(0.4, 0, 0.2), armature=(1, 2, 3), **inertial())
    builder.add_frame("tip", "hand", xyz=(1, 2, 3), rpy=(0.3, 0.2, 0.1)).add_frame("post", None, xyz=(0, 1, 0))
    builder.add_frame("world", None)
    builder.add_geometry("world", "plane", (4, 0), colour=(0.5, 0.25, 1, 1))
    builder.add_geometry("hand", "box", (1, 2, 3), xyz=(1, 0, 0), rpy=(0, 0, 1), role="collision")
    builder.add_geometry("tip", "capsule", (0.5, 2)).add_geometry("tip", "cylinder", (0.5, 2))
    builder.add_geometry("eye", "sphere", (0.5,)).add_geometry("post", "ellipsoid", (1, 2, 3))
    return builder.build(strict=True)


def test_writing_keeps_the_dynamics():
    model = writable()
    text = to_mjcf(model)
    mj_model, again = mujoco.MjModel.from_xml_string(text), parse_mjcf(text, strict=True)
    rng = np.random.default_rng(4)
    qpos, qvel = random_state(mj_model, rng)
    q, qd = from_mujoco(model, mj_model, qpos, qvel)
    ours, names = motions(model, q, qd), body_names(mj_model)
    for k, data in enumerate(mujoco_data(mj_model, qpos, qvel)):
        for name in ("base", "hip", "sleeve", "hand", "eye", "load", "tip", "post"):
            position, rotation = data.xpos[names.index(name)], data.xmat[names.index(name)]
            np.testing.assert_allclose(ours.position(name)[k], position, atol=1e-12)
            np.testing.assert_allclose(ours.rotation(name)[k].ravel(), rotation, atol=1e-12)
        Mv = np.zeros(mj_model.nv)
        mujoco.mj_mulM(mj_model, data, Mv, qvel[k])
        np.testing.assert_allclose(ours.energy[k], qvel[k] @ Mv / 2, rtol=1e-12)
    # The model that comes back has the same coordinates, and the same numbers on them.
    assert again.joint_names == (
        "root",
        "hip/1",
        "hip/2",
        "sleeve/1",
        "sleeve/2",
        "roll",
        "slide",
        "turn",
        "eye",
        "load/1",
        "load/2",
        "load/3",
    )
    for name in (
        "armature",
        "damping",
        "friction",
        "stiffness",
        "rest",
        "lower",
        "upper",
        "effort_limit",
        "gravity",
    ):
        np.testing.assert_allclose(getattr(again, name), getattr(model, name), atol=1e-15, err_msg=name)
    np.testing.assert_allclose(motions(again, q, qd).energy, ours.energy, rtol=1e-12)


def test_writing_keeps_names_and_shapes():
    model = writable()
    again = parse_mjcf(to_mjcf(model))
    assert set(again.frame_names) == {"world", "base", "hip", "sleeve", "hand", "eye", "load", "tip", "post"}
    assert again.body_names[:5] == (
        "base/root",
        "hip/hip/1",
        "hip/hip/2",
        "sleeve/sleeve/1",
        "sleeve/sleeve/2",
    )
    assert again.body_names[5:8] == ("hand/roll", "hand/slide", "hand/turn")
    before = {(g.frame, g.shape): g for g in model.geometry}
    after = {(g.frame, g.shape): g for g in again.geometry}
    assert before.keys() == after.keys()
    for key, shape in before.items():
        assert shape.role == after[key].role
        assert shape.size == after[key].size
        np.testing.assert_allclose(shape.placement, after[key].placement, atol=1e-15)
    assert after["world", "plane"].colour == (0.5, 0.25, 1, 1)


NO_MESH = EVERYTHING.replace('type="mesh" mesh="wedge"', 'size="0.1"')


@pytest.mark.parametrize("make", [writable, lambda: parse_mjcf(NO_MESH)])
def test_a_second_round_trip_changes_nothing(make):
    once = parse_mjcf(to_mjcf(make()))
    assert_same(once, parse_mjcf(to_mjcf(once)))


def test_round_trip_of_a_loaded_model_keeps_its_dynamics(everything):
    mj_model, model = everything
    with pytest.warns(ModelWarning, match="leaves out meshes 'wedge'"):
        text = to_mjcf(model)
    again = parse_mjcf(text)
    assert again.body_names == model.body_names
    assert set(again.frame_names) == set(model.frame_names)
    for name in ("inertia", "armature", "damping", "friction", "stiffness", "rest", "lower", "upper"):
        np.testing.assert_allclose(getattr(again, name), getattr(model, name), atol=1e-14, err_msg=name)
    state = from_mujoco(model, mj_model, *random_state(mj_model, np.random.default_rng(6)))
    before, after = motions(model, *state), motions(again, *state)
    np.testing.assert_allclose(after.energy, before.energy, rtol=1e-12)
    for name in model.frame_names:
        np.testing.assert_allclose(after.position(name), before.position(name), atol=1e-12)
        np.testing.assert_allclose(after.rotation(name), before.rotation(name), atol=1e-12)


def test_a_name_that_had_to_change_is_kept_by_a_round_trip():
    text = one_body(body='<body name="b/j"><geom size="1"/></body>')
    model = parse_mjcf(text)
    assert model.body_names == ("b/j_2",)
    assert_same(model, parse_mjcf(to_mjcf(model)))


def test_a_turned_frame_is_not_taken_for_the_body_it_names():
    builder = ModelBuilder().add_body("a/j", joint_name="j", **BAR).add_frame("a", "a/j", rpy=(1, 0, 0))
    model = builder.build()
    again = parse_mjcf(to_mjcf(model))
    assert again.frame_names == ("a/j", "a")
    np.testing.assert_allclose(again.frame_placement[1], model.frame_placement[0], atol=1e-15)
    np.testing.assert_allclose(again.axis, model.axis, atol=1e-15)


def test_of_two_quaternions_of_a_rotation_one_is_written():
    texts = [
        to_mjcf(ModelBuilder().add_body("a", quaternion=sign * np.array([-0.6, 0.8, 0, 0]), **BAR).build())
        for sign in (1, -1)
    ]
    assert texts[0] == texts[1]
    np.testing.assert_allclose(parse_mjcf(texts[0]).placement[0, :4], [0.6, -0.8, 0, 0], atol=1e-15)


def test_the_file_is_written_with_all_digits(tmp_path):
    model = parse_mjcf(one_body(f'<joint name="j" armature="{1 / 3!r}"/>'))
    text = to_mjcf(model, tmp_path / "robot.xml")
    assert (tmp_path / "robot.xml").read_text() == text
    assert f'armature="{1 / 3!r}"' in text
    assert_same(load_mjcf(tmp_path / "robot.xml"), model)


def test_a_flat_body_can_be_written():
    """Its moments are equal but for rounding to the largest that the triangle inequality allows."""
    rotation = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))[0]
    builder = ModelBuilder()
    builder.add_body("plate", mass=1, com=(3, 2, 1), inertia=rotation @ np.diag([0.1, 0.2, 0.3]) @ rotation.T)
    model = builder.build()
    np.testing.assert_allclose(parse_mjcf(to_mjcf(model)).inertia, model.inertia, rtol=1e-12)


def build(*bodies, frames=()):
    builder = ModelBuilder("refused")
    for name, parent, joint, arguments in bodies:
        builder.add_body(name, parent, joint, joint_name=f"{name}_joint", **arguments)
    for name, parent, pose in frames:
        builder.add_frame(name, parent, **pose)
    return builder.assemble()[0]


class Twist(Revolute):
    """A type of a user's own that has kept the name of another."""


BAR = inertial()
FREE = ("a", None, "free", {})
REFUSED = {
    "joint 'a_joint': MJCF has no helical joints; jaxdyn.save": [("a", None, "helical", BAR)],
    "joint 'a_joint': MJCF has no planar joints; jaxdyn.save": [("a", None, "planar", BAR)],
    "joint 'b_joint': MJCF has no mimic joints; jaxdyn.save": [
        ("a", None, "revolute", BAR),
        ("b", "a", "revolute", BAR | {"follows": "a_joint"}),
    ],
    "joint 'a_joint': MJCF has no revolute joints; jaxdyn.save": [("a", None, Twist(), BAR)],
    "joint 'b_joint': MuJoCo wants free joints on the world; this one is on 'a'": [
        ("a", None, "revolute", BAR),
        ("b", "a", "free", BAR),
    ],
    "joint 'a_joint': a free joint must sit in the world's origin": [("a", None, "free", BAR | {"xyz": (0, 0, 1)})],
    "joints 'a_joint', 'b_joint' move one body with mass; MuJoCo wants a free joint alone": [
        FREE,
        ("b", "a", "revolute", BAR),
    ],
    "'a_joint', 'b_joint' move one body with mass; MuJoCo wants at most six": [
        ("a", None, "spherical", {}),
        ("b", "a", "revolute", BAR),
    ],
    "joint 'a_joint' of body 'a', which has no mass": [
        ("a", None, "spherical", {}),
        ("b", "a", "prismatic", BAR | {"rpy": (1, 0, 0)}),
    ],
    "body 'a' has no mass and carries 0 bodies": [("a", None, "revolute", {})],
    "body 'a' has no mass and carries 2 bodies": [
        ("a", None, "revolute", {}),
        ("b", "a", "revolute", BAR),
        ("c", "a", "revolute", BAR),
    ],
    "body 'a' has rotational inertia but no mass": [("a", None, "revolute", {"inertia": (1, 1, 1)})],
    "body 'a': its inertia is not positive definite": [("a", None, "revolute", {"mass": 1})],
    "body 'a': its inertia breaks the triangle inequality": [
        ("a", None, "revolute", {"mass": 1, "inertia": (1, 1, 3)})
    ],
    "joint 'a_joint': MuJoCo knows one damping per joint": [("a", None, "spherical", BAR | {"damping": (1, 2, 3)})],
    "joint 'a_joint': the springs of MuJoCo's ball joints": [
        ("a", None, "spherical", BAR | {"stiffness": 1, "rest": (0.6, 0.8, 0, 0)})
    ],
    "a body named 'world' cannot be written": [("world", None, "revolute", BAR)],
    "one of its parts and another joint would both be named 'a_joint/1'": [
        ("a", None, "universal", BAR),
        ("b", None, "revolute", BAR),
    ],
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_mujoco_has_no_room_for_is_refused(reason):
    model = build(*REFUSED[reason])
    if "both be named" in reason:
        names = ("a_joint", "a_joint/1")
        model = model.replace(topology=dataclasses.replace(model.topology, joint_names=names))
    with pytest.raises(ModelError, match=re.escape(reason)):
        to_mjcf(model)


def test_frames_that_mujoco_has_no_room_for_are_refused():
    chain = [("a", None, "revolute", {}), ("b", "a", "revolute", BAR)]
    with pytest.raises(ModelError, match="'a' has no mass and carries 1 bodies and 1 frames"):
        to_mjcf(build(*chain, frames=[("f", "a", {})]))
    with pytest.raises(ModelError, match="frame named 'world'"):
        to_mjcf(build(*chain, frames=[("world", None, {"xyz": (1, 0, 0)})]))


def test_what_is_left_out_is_named():
    builder = ModelBuilder("r")
    builder.add_body(
        "a", joint_name="j", velocity_limit=3, friction=1, v_s=0.1, effort_limit=0, lower=1, upper=1, **BAR
    )
    builder.add_body("b", "a", "spherical", joint_name="k", effort_limit=3)
    builder.add_body("c", "b", "prismatic", joint_name="l", **BAR)
    builder.add_geometry("a", "mesh", (1, 1, 1), mesh="part.stl").add_geometry("b", "sphere", (1,))
    builder.add_geometry("a", "plane", (1, 1)).add_geometry("a", "sphere", (0,))
    with pytest.warns(ModelWarning) as caught:
        text = to_mjcf(builder.build())
    assert sorted(str(w.message).removeprefix("to_mjcf('r') leaves out ") for w in caught) == [
        "effort limits of joints 'j', 'k'",
        "meshes 'part.stl'",
        "planes on moving bodies and empty shapes: those of 'a'",
        "position limits of joints 'j'",
        "shapes of bodies without mass: 'b'",
        "v_s of joints 'j'",
        "velocity limits of joints 'j'",
    ]
    assert parse_mjcf(text).nv == 5


def test_one_sided_limits_survive():
    builder = ModelBuilder()
    builder.add_body("a", joint_name="j", lower=-0.5, **BAR)
    again = parse_mjcf(to_mjcf(builder.build()))
    assert again.lower[0] == -0.5
    assert again.upper[0] == np.inf


def test_joint_names_of_a_compiled_model(everything):
    mj_model, model = everything
    assert tuple(joint_names(mj_model)) == model.joint_names


def test_loading_is_silent_when_nothing_is_left_out():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse_mjcf(EVERYTHING)
