"""URDF: what is read, what is repaired with a warning, what is refused and with which words."""

import time
import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import ModelError, ModelWarning
from jaxdyn.io import parse_urdf, to_urdf

INERTIAL = """<inertial><origin xyz="0.1 0 0.2" rpy="0.3 -0.2 0.5"/><mass value="2"/>
  <inertia ixx="0.1" ixy="0.01" ixz="0.02" iyy="0.2" iyz="0.03" izz="0.15"/></inertial>"""
LIMIT = '<limit lower="-1" upper="2" effort="30" velocity="4"/>'

ARM = f"""<?xml version="1.0"?>
<robot name="arm">
  <material name="grey"><color rgba="0.5 0.5 0.5 1"/></material>
  <link name="base">{INERTIAL}</link>
  <link name="upper">{INERTIAL}
    <visual><origin xyz="0 0 0.1"/><geometry><box size="1 2 3"/></geometry><material name="grey"/></visual>
    <collision><geometry><mesh filename="package://arm/meshes/upper.stl" scale="2 2 2"/></geometry></collision>
  </link>
  <link name="lower">{INERTIAL}</link>
  <link name="tool"/>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/>
    <origin xyz="0 0 1" rpy="0 0 1.57"/><axis xyz="0 2 0"/>{LIMIT}<dynamics damping="0.5" friction="0.25"/></joint>
  <joint name="elbow" type="continuous"><parent link="upper"/><child link="lower"/><axis xyz="0 1 0"/></joint>
  <joint name="flange" type="fixed"><parent link="lower"/><child link="tool"/><origin xyz="0 0 0.5"/></joint>
</robot>
"""


def arm(**changes):
    """The arm with pieces of its text replaced; every replacement must hit."""
    text = ARM
    for old, new in changes.values():
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def swap(old, new):
    return arm(change=(old, new))


def test_reads_bodies_joints_frames_and_numbers():
    model = parse_urdf(ARM, strict=True)
    assert model.name == "arm"
    assert model.body_names == ("upper", "lower")
    assert model.joint_names == ("shoulder", "elbow")
    assert model.joint_types == ("revolute", "continuous")
    assert model.frame_names == ("base", "tool")
    assert model.body_index("base") == -1
    np.testing.assert_allclose(model.axis[0], (0, 1, 0))
    np.testing.assert_allclose(model.placement[0, 4:], (0, 0, 1))
    np.testing.assert_array_equal((model.lower[0], model.upper[0]), (-1, 2))
    np.testing.assert_array_equal((model.lower[1], model.upper[1]), (-np.inf, np.inf))
    np.testing.assert_array_equal((model.effort_limit[0], model.velocity_limit[0]), (30, 4))
    np.testing.assert_array_equal((model.damping[0], model.friction[0]), (0.5, 0.25))


def test_rotated_inertial_frame():
    pinocchio = pytest.importorskip("pinocchio")
    other = pinocchio.buildModelFromXML(ARM)
    model = parse_urdf(ARM)
    for i in range(2):
        np.testing.assert_allclose(model.inertia[i], other.inertias[i + 1].toDynamicParameters(), atol=1e-15)


def test_geometry_is_kept():
    box, mesh = parse_urdf(ARM).geometry
    assert (box.frame, box.shape, box.size, box.role) == ("upper", "box", (1.0, 2.0, 3.0), "visual")
    assert box.colour == (0.5, 0.5, 0.5, 1.0)
    assert box.placement[4:] == (0.0, 0.0, 0.1)
    assert (mesh.shape, mesh.size, mesh.role) == ("mesh", (2.0, 2.0, 2.0), "collision")
    assert mesh.mesh == "package://arm/meshes/upper.stl"


def test_floating_base():
    model = parse_urdf(ARM, floating_base=True)
    assert model.body_names == ("base", "upper", "lower")
    assert model.joint_names[0] == "root_joint"
    assert model.joint_types[0] == "free"
    assert float(model.inertia[0, 0]) == 2.0


@pytest.mark.parametrize("kind", ["prismatic", "planar", "floating"])
def test_other_joint_types(kind):
    text = arm(
        kind=('type="continuous"', f'type="{kind}"'),
        limit=('<child link="lower"/><axis xyz="0 1 0"/>', f'<child link="lower"/><axis xyz="0 1 0"/>{LIMIT}'),
    )
    model = parse_urdf(text, strict=True)
    assert model.joint_types[1] == {"floating": "free"}.get(kind, kind)


MIMIC = swap('<axis xyz="0 1 0"/></joint>', '<axis xyz="0 1 0"/><mimic joint="shoulder" multiplier="-2"/></joint>')


def test_mimic():
    model = parse_urdf(MIMIC, strict=True)
    assert (model.nq, model.joint_types) == (1, ("revolute", "mimic"))
    assert float(model.ratio[1]) == -2.0
    assert parse_urdf(MIMIC, mimic=False).nq == 2
    with pytest.warns(ModelWarning, match="<mimic> of 'flange' was ignored, since <joint name='flange'> is fixed"):
        ignored = parse_urdf(MIMIC.replace('mimic joint="shoulder"', 'mimic joint="flange"'))
    assert ignored.nq == 2


REPAIRED = {
    "no limit": (swap(LIMIT, ""), "a revolute joint should have a <limit>; taken as unlimited"),
    "no effort": (swap(' effort="30"', ""), "should have the attribute 'effort'; taken as unlimited"),
    "unknown shape": (swap('<box size="1 2 3"/>', "<torus/>"), "unknown shape <torus> in its <visual> was left out"),
    "triangle": (swap('ixx="0.1"', 'ixx="0.001"'), "body 'base': inertia"),
}


@pytest.mark.parametrize("case", REPAIRED)
def test_repairs_are_reported_and_refused_when_strict(case):
    text, message = REPAIRED[case]
    with pytest.warns(ModelWarning, match=r"<string>:\d+: .*" + message):
        parse_urdf(text)
    with pytest.raises(ModelError, match="strict=True"):
        parse_urdf(text, strict=True)


REFUSED = {
    "not XML": ("hello", "malformed XML: syntax error"),
    "empty": ("", "malformed XML: no element found"),
    "cut off": (ARM[:900], "malformed XML: .*"),
    "mismatched tag": (swap("</robot>", "</robt>"), "malformed XML: mismatched tag"),
    "null bytes": (ARM.replace("base", "ba\0se"), "malformed XML"),
    "surrogate": (swap('name="arm"', 'name="\ud800"'), "malformed XML"),
    "nan where it is not used": (swap('type="fixed"><', 'type="fixed"><limit effort="nan"/><'), "effort must be a number"),
    "negative radius": (swap('<box size="1 2 3"/>', '<sphere radius="-1"/>'), "size of a sphere must not be negative"),
    "control character": (swap('<link name="tool"/>', '<link name="to&#10;ol"/>').replace(
        'child link="tool"', 'child link="to&#10;ol"'), "name must be printable text"),
    "many digits": (swap('xyz="0 0 1"', 'xyz="0 0 ' + "1" * 100_000 + 'x"'), "xyz must be"),
    "many elements": ("<robot>" + "<a/>" * 500_001 + "</robot>", "more than 500000 elements"),
    "overflow": (arm(base=('<mass value="2"/>', '<mass value="1e308"/>')).replace(
        'type="continuous"', 'type="fixed"').replace('<mass value="2"/>', '<mass value="1e308"/>'), "not finite"),
    "doctype": (swap("<robot", "<!DOCTYPE robot>\n<robot"), "document types and entities .* are refused"),
    "entities": (swap("<robot", '<!DOCTYPE r [<!ENTITY a "aaaa">]>\n<robot'), "document types and entities"),
    "too deep": ("<robot>" + "<a>" * 300 + "</a>" * 300 + "</robot>", "nested deeper than 256"),
    "other root": ("<sdf/>", "must have <robot> as its root element"),
    "xacro": (swap("<material", "<xacro:include filename='x'/><material"), "xacro file; expand it first"),
    "no links": ("<robot name='x'/>", "has no <link>"),
    "nameless link": (swap('<link name="tool"/>', "<link/>"), "<link>: needs the attribute 'name'"),
    "duplicate link": (swap('<link name="tool"/>', '<link name="tool"/><link name="tool"/>'), "this name was given"),
    "duplicate joint": (swap('name="elbow"', 'name="shoulder"'), "this name was given to another <joint>"),
    "unknown type": (swap('type="continuous"', 'type="rotary"'), "unknown joint type 'rotary': did you mean"),
    "no type": (swap('type="continuous"', ""), "needs the attribute 'type'"),
    "missing parent": (swap('<parent link="upper"/>', '<parent link="uper"/>'), "parent link 'uper' does not exist"),
    "missing child": (swap('<child link="lower"/>', '<child link="x"/>'), "child link 'x' does not exist"),
    "no parent": (swap('<parent link="upper"/>', ""), "has no <parent>"),
    "two parents": (swap('<child link="tool"/>', '<child link="upper"/>'), "a link can have one parent only"),
    "loop": (swap("</robot>", """<link name="a"/><link name="b"/>
        <joint name="ab" type="fixed"><parent link="a"/><child link="b"/></joint>
        <joint name="ba" type="fixed"><parent link="b"/><child link="a"/></joint></robot>"""),
             "in a loop: '[ab]' -> '[ab]' -> '[ab]'"),
    "pure loop": (swap('<link name="base">' + INERTIAL + "</link>", "").replace(
        '<parent link="base"/>', '<parent link="lower"/>'), "no root link: the joints form a loop"),
    "carries itself": (swap('<parent link="upper"/><child link="lower"/>', '<parent link="lower"/><child link="lower"/>'),
                       "in a loop: 'lower' -> 'lower'"),
    "two roots": (swap('<link name="tool"/>', '<link name="tool"/><link name="spare"/>'),
                  "there must be one root link; 2 links are the child of no joint: 'base', 'spare'"),
    "zero axis": (swap('<axis xyz="0 2 0"/>', '<axis xyz="0 0 0"/>'), "<joint name='shoulder'>: axis must not be zero"),
    "infinite": (swap('<mass value="2"/>', '<mass value="1e999"/>'), "value must be finite"),
    "nan": (swap('<mass value="2"/>', '<mass value="nan"/>'), "value must be a number, finite"),
    "commas": (swap('xyz="0 0 1"', 'xyz="0,0,1"'), "xyz must be .* separated by blanks; got '0,0,1'"),
    "comma inside": (swap('xyz="0 0 1"', 'xyz="0 0 1,5"'), "got '1,5' in '0 0 1,5'"),
    "text": (swap('xyz="0 0 1"', 'xyz="0 0 up"'), "got 'up' in '0 0 up'"),
    "underscore": (swap('xyz="0 0 1"', 'xyz="0 0 1_0"'), "got '1_0'"),
    "two of three": (swap('xyz="0 0 1"', 'xyz="0 0"'), "xyz must be 3 numbers; got 2"),
    "bad fixed axis": (swap('<origin xyz="0 0 0.5"/>', '<axis xyz="a b c"/>'), "xyz must be 3 numbers"),
    "negative mass": (swap('<mass value="2"/>', '<mass value="-2"/>'), "<link name='base'>: mass must not be negative"),
    "no mass": (swap('<mass value="2"/>', ""), "<inertial>: has no <mass>"),
    "half an inertia": (swap(' izz="0.15"', ""), "<inertia>: needs the attribute 'izz'"),
    "two origins": (swap('<origin xyz="0 0 1" rpy="0 0 1.57"/>', '<origin/><origin/>'), "has more than one <origin>"),
    "crossed limits": (swap('lower="-1"', 'lower="3"'), "lower limit must not lie above upper"),
    "negative damping": (swap('damping="0.5"', 'damping="-0.5"'), "damping must not be negative"),
    "bad colour": (swap('rgba="0.5 0.5 0.5 1"', 'rgba="0.5 0.5 0.5"'), "rgba must be 4 numbers"),
    "bad size": (swap('size="1 2 3"', 'size="1 2"'), "size must be 3 numbers"),
    "mimic of nothing": (MIMIC.replace('mimic joint="shoulder"', 'mimic joint="sholder"'), "'sholder', which does not"),
    "mimic loop": (MIMIC.replace('mimic joint="shoulder"', 'mimic joint="elbow"'), "mimic each other in a loop"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_with_file_line_and_reason(case):
    text, message = REFUSED[case]
    with pytest.raises(ModelError, match=message) as caught:
        parse_urdf(text, source="robot.urdf")
    assert str(caught.value).startswith("robot.urdf")
    if case in ("many elements", "overflow"):
        return
    assert 0 < caught.value.line <= text.count("\n") + 1


def test_error_points_at_the_line():
    text = swap('<mass value="2"/>', '<mass value="two"/>')
    line = text[: text.index('"two"')].count("\n") + 1
    with pytest.raises(ModelError, match=rf"robot.urdf:{line}: <mass>: value must be a number"):
        parse_urdf(text, source="robot.urdf")


MESHES = {
    "../up.stl": True, "/etc/passwd": True, "file:///etc/passwd": True, "package://a/../../b.stl": True,
    "C:\\mesh.stl": True, "file:/etc/passwd": True, "a/../../b.stl": True, "http://x/y.stl": True,
    "up.stl": False, "meshes/up.stl": False, "package://a/b.stl": False, "a/../b.stl": False,
    "package:///a/b.stl": False, "model://a/b.dae": False,
}  # fmt: skip


@pytest.mark.parametrize(("path", "outside"), MESHES.items())
def test_meshes_that_lead_out_of_the_folder_are_ignored_unless_asked_for(path, outside):
    text = swap("package://arm/meshes/upper.stl", path)
    if outside:
        with pytest.warns(ModelWarning, match="1 mesh paths lead out of the file's folder"):
            model = parse_urdf(text)
        assert [g.shape for g in model.geometry] == ["box"]
    else:
        assert parse_urdf(text).geometry[1].mesh == path
    assert parse_urdf(text, outside_meshes=True).geometry[1].mesh == path


def test_load_by_path(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text(ARM)
    model = jaxdyn.load(path)
    assert model.topology == parse_urdf(ARM).topology
    assert jaxdyn.load(str(path), floating_base=True).nv == 8
    (tmp_path / "arm.xml").write_text(ARM)  # the content decides between URDF and MJCF
    assert jaxdyn.load(tmp_path / "arm.xml").topology == model.topology


def test_load_refuses_what_it_does_not_know(tmp_path):
    for name, message in {
        "nothing.urdf": "no such file",
        "robot.xacro": "xacro file; expand it first",
        "robot.dae": "unknown kind of file '.dae'",
        "arm8": "no file and no bundled model named 'arm8': did you mean 'arm7'",
        "a" * 300: "no file and no bundled model",
    }.items():
        with pytest.raises(ModelError, match=message):
            jaxdyn.load(tmp_path / name if "." in name else name)
    (tmp_path / "dir.urdf").mkdir()
    with pytest.raises(ModelError, match="this is not a file"):
        jaxdyn.load(tmp_path / "dir.urdf")
    (tmp_path / "plain").write_text("x")
    with pytest.raises(ModelError, match="should end in"):
        jaxdyn.load(tmp_path / "plain")
    with pytest.raises(ModelError, match="floating_base=True is for URDF and MJCF files"):
        jaxdyn.load("arm7", floating_base=True)
    with open(tmp_path / "huge.urdf", "wb") as file:
        file.truncate(64 * 2**20 + 1)
    with pytest.raises(ModelError, match="more than 67108864 are not read"):
        jaxdyn.load(tmp_path / "huge.urdf")


def test_three_hundred_links_load_within_a_second():
    links = "".join(f'<link name="l{i}">{INERTIAL}</link>' for i in range(301))
    joints = "".join(
        f'<joint name="j{i}" type="revolute"><parent link="l{i // 2}"/><child link="l{i + 1}"/>'
        f'<origin xyz="0 0 0.1" rpy="0.1 0.2 0.3"/><axis xyz="0 0 1"/>{LIMIT}</joint>'
        for i in range(300)
    )
    text = f'<robot name="big">{links}{joints}</robot>'
    parse_urdf(ARM)  # warm up JAX itself
    times = []
    for _ in range(3):
        start = time.process_time()  # not the wall clock: other tests run beside this one
        model = parse_urdf(text)
        jax.block_until_ready(model.placement)
        times.append(time.process_time() - start)
    assert min(times) < 1.0
    assert model.nbodies == 300


# ---------------------------------------------------------------- writing
def assert_same(a, b, tolerance=1e-14):
    assert a.body_names == b.body_names
    assert a.joint_names == b.joint_names
    assert a.joint_types == b.joint_types
    assert a.parents == b.parents
    assert sorted(a.frame_names) == sorted(b.frame_names)
    for name in ("axis", "ratio", "offset", "inertia", "gravity", "damping", "friction", "lower", "upper",
                 "velocity_limit", "effort_limit"):  # fmt: skip
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=0, atol=tolerance, err_msg=name)
    q = jaxdyn.random_configuration(a, jax.random.key(0))
    chex.assert_trees_all_close(jaxdyn.forward_kinematics(a, q), jaxdyn.forward_kinematics(b, q), atol=1e-13)
    for name in a.frame_names:
        chex.assert_trees_all_close(
            jaxdyn.frame_pose(a, q, name), jaxdyn.frame_pose(b, q, name), atol=1e-13
        )  # fmt: skip


def test_round_trip():
    model = parse_urdf(ARM)
    with pytest.warns(ModelWarning, match="the limits, or their absence, of joints elbow$"):
        text = to_urdf(model)
    again = parse_urdf(text)
    assert float(again.effort_limit[1]) == 1e12
    limited = model.replace(effort_limit=jnp.array([30.0, 5.0]), velocity_limit=jnp.array([4.0, 5.0]))
    again = parse_urdf(to_urdf(limited))
    assert_same(limited, again)
    assert again.geometry == limited.geometry
    assert to_urdf(again) == to_urdf(limited)


def test_round_trip_of_mimic_planar_and_floating(tmp_path):
    text = arm(kind=('type="fixed"', 'type="planar"'), axis=('<origin xyz="0 0 0.5"/>', '<axis xyz="0 0 1"/>'),
               tool=('<link name="tool"/>', f'<link name="tool">{INERTIAL}</link>'),
               mimic=('<axis xyz="0 1 0"/></joint>', '<axis xyz="0 1 0"/><mimic joint="shoulder"/></joint>'))  # fmt: skip
    text = text.replace('type="continuous"', 'type="prismatic"').replace("<mimic", LIMIT + "<mimic")
    model = parse_urdf(text, floating_base=True, strict=True)
    to_urdf(model, tmp_path / "arm.urdf")
    again = jaxdyn.load(tmp_path / "arm.urdf")
    assert again.frame_names == ("world",)
    assert again.joint_names == model.joint_names
    q = jaxdyn.random_configuration(model, jax.random.key(0))
    chex.assert_trees_all_close(
        jaxdyn.forward_kinematics(model, q), jaxdyn.forward_kinematics(again, q), atol=1e-13
    )  # fmt: skip


def test_names_of_fixed_joints_are_free():
    """A fixed joint, a frame or a root link takes no name from the moving joints."""
    text = arm(a=('name="shoulder"', 'name="joint_0"'), b=('name="elbow"', 'name="tool_fixed"'))
    model = parse_urdf(text, strict=True)
    assert model.joint_names == ("joint_0", "tool_fixed")
    assert jaxdyn.lock_joints(model, {"joint_0": 0.0}).joint_names == ("tool_fixed",)
    limited = model.replace(effort_limit=jnp.ones(2), velocity_limit=jnp.ones(2))
    assert parse_urdf(to_urdf(limited)).joint_names == model.joint_names


def test_encodings():
    latin = ARM.replace('version="1.0"', 'version="1.0" encoding="ISO-8859-1"').replace('"tool"', '"outil_\xe9"')
    for text in (latin, latin.encode("latin-1")):  # text has been decoded already, whatever it declares
        assert parse_urdf(text).frame_names == ("base", "outil_\xe9")
    assert parse_urdf(ARM.encode("utf-8-sig")).nq == parse_urdf(ARM.encode("utf-16")).nq == 2
    with pytest.raises(ModelError, match="malformed XML: unknown encoding"):
        parse_urdf(ARM.replace('version="1.0"', 'version="1.0" encoding="klingon"').encode())


def test_numbers_that_do_not_fit_single_precision(float32):
    with pytest.raises(ModelError, match="inertia has numbers too large for float32"):
        parse_urdf(swap('<mass value="2"/>', '<mass value="1e39"/>'), floating_base=True)


def test_writer_names_what_is_lost():
    arm7 = jaxdyn.load("arm7")
    with pytest.warns(ModelWarning, match="cannot hold armature"):
        text = to_urdf(arm7)
    again = parse_urdf(text, strict=True)
    assert_same(arm7, again)
    odd = arm7.replace(gravity=jnp.zeros(3), v_s=2 * arm7.v_s, armature=0 * arm7.armature)
    with pytest.warns(ModelWarning, match="cannot hold gravity; v_s$"):
        to_urdf(odd)
    with pytest.warns(ModelWarning, match="cannot hold armature; the limits, or their absence, of joints joint1$"):
        to_urdf(arm7.replace(lower=arm7.lower.at[0].set(-jnp.inf)))
    with pytest.raises(ModelError, match="one model is needed; this is a batch"):
        to_urdf(arm7.replace(placement=jnp.stack([arm7.placement] * 2)))
    with pytest.raises(ModelError, match="URDF has no spherical joints; jaxdyn.save keeps every type"):
        to_urdf(jaxdyn.ModelBuilder().add_body("a", joint="spherical", mass=1, inertia=(1, 1, 1)).build())


@pytest.mark.parametrize("name", ["pendulum", "cartpole", "gantry", "puma560", "quadruped", "humanoid"])
def test_bundled_models_survive_the_trip(name):
    pinocchio = pytest.importorskip("pinocchio")
    model = jaxdyn.load(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        text = to_urdf(model)
    again = parse_urdf(text)
    np.testing.assert_allclose(again.inertia, model.inertia, atol=1e-13)
    for leaf in ("placement", "damping", "friction"):
        np.testing.assert_allclose(getattr(again, leaf), getattr(model, leaf), atol=1e-14, err_msg=leaf)
    turns = np.array([kind != "free" for kind in model.joint_types])
    np.testing.assert_array_equal(again.axis[turns], model.axis[turns])
    assert again.body_names == model.body_names
    assert set(again.frame_names) - {"world"} == set(model.frame_names)
    bounded = np.isfinite(model.lower) & np.isfinite(model.upper)
    np.testing.assert_array_equal(again.lower[bounded], model.lower[bounded])
    np.testing.assert_array_equal(again.upper[bounded], model.upper[bounded])
    other = pinocchio.buildModelFromXML(text)  # a second reader takes the file
    assert set(other.names[1:]) == set(model.joint_names)
