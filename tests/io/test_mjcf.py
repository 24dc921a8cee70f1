"""MJCF in, against MuJoCo itself."""

import builtins
import re
import warnings
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxdyn.algorithms import frame_poses
from jaxdyn.io import xml as xml_reader
from jaxdyn.io.convert import from_mujoco
from jaxdyn.io.mjcf import body_names, joint_names, left_out, load_mjcf, model_from_mujoco, parse_mjcf
from jaxdyn.model import ModelError, ModelWarning

mujoco = pytest.importorskip("mujoco")

from helpers.mjcf import EVERYTHING, motions, mujoco_data, one_body, random_state  # noqa: E402


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


def test_joint_names_of_a_compiled_model(everything):
    mj_model, model = everything
    assert tuple(joint_names(mj_model)) == model.joint_names


def test_loading_is_silent_when_nothing_is_left_out():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parse_mjcf(EVERYTHING)
    assert not caught
