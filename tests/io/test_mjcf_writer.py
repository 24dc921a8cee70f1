"""MJCF out: MuJoCo and our own loader read back what was written."""

import dataclasses
import re

import numpy as np
import pytest

from jaxdyn.io.convert import from_mujoco
from jaxdyn.io.mjcf import body_names, load_mjcf, parse_mjcf
from jaxdyn.io.mjcf_writer import to_mjcf
from jaxdyn.joints import Revolute
from jaxdyn.model import ModelBuilder, ModelError, ModelWarning

mujoco = pytest.importorskip("mujoco")

from helpers.mjcf import EVERYTHING, assert_same, motions, mujoco_data, one_body, random_state  # noqa: E402


@pytest.fixture(scope="module")
def everything():
    return mujoco.MjModel.from_xml_string(EVERYTHING), parse_mjcf(EVERYTHING, strict=True)


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
