"""Pages: their data against forward kinematics, hostile names, meshes, and what a real browser makes of them."""

import base64
import json
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from helpers.chromium import Chromium, find_chromium

import jaxdyn
from jaxdyn.viz import export_html
from jaxdyn.viz.meshes import find_mesh, read_mesh
from jaxdyn.viz.recording import read_trajectory, thin_out
from jaxdyn.viz.scene import capsules, scene_of

TILT = (math.cos(0.3), 0.0, math.sin(0.3), 0.0)
RED = (0.9, 0.05, 0.05, 1.0)
SIZES = {
    "box": (0.2, 0.1, 0.3),
    "sphere": (0.1,),
    "cylinder": (0.05, 0.4),
    "capsule": (0.04, 0.3),
    "ellipsoid": (0.1, 0.2, 0.05),
    "plane": (0.5, 0.4),
}


def build(name="toy", body="tip", joint="swing", geometry=True):
    """A hinge, a ball joint and a slide, with a shape of every kind, some on frames, one in the world."""
    builder = jaxdyn.ModelBuilder(name)
    heavy = {"mass": 1.0, "inertia": (0.01, 0.02, 0.02)}
    builder.add_body(
        "arm", joint="revolute", joint_name=joint, axis=(0, 1, 0), xyz=(0, 0, 0.5), com=(0.3, 0, 0), **heavy
    )
    builder.add_body("wrist", "arm", joint="spherical", joint_name="ball", xyz=(0.6, 0, 0.1), com=(0.1, 0, 0), **heavy)
    builder.add_body(
        body,
        "wrist",
        joint="prismatic",
        joint_name="reach",
        axis=(1, 0, 0),
        xyz=(0.3, 0, 0),
        com=(0.1, 0.1, 0),
        **heavy,
    )
    builder.add_frame("tool", body, quaternion=TILT, xyz=(0.2, 0.1, 0.0))
    builder.add_frame("stand", None, xyz=(0.0, 0.0, 0.25))
    if geometry:
        for shape, frame in zip(SIZES, ("arm", "tool", "wrist", "wrist", body, "stand"), strict=True):
            colour = RED if shape == "sphere" else None
            builder.add_geometry(frame, shape, SIZES[shape], quaternion=TILT, xyz=(0.1, 0.0, 0.2), colour=colour)
    return builder.build()


def run_of(model, count=9, seed=0, batch=()):
    """A smooth motion at uneven times."""
    normal = np.random.default_rng(seed).normal
    t = np.linspace(0.0, 1.0, count) ** 1.2
    waves = 0.6 * np.sin(3 * t[:, None] + normal(size=(*batch, 1, model.nv)))
    q = np.concatenate([waves[..., :1], np.ones((*batch, count, 1)), waves[..., 1:]], -1)  # 1: of the quaternion
    return SimpleNamespace(t=t, q=q, qd=waves)


class Page(HTMLParser):
    """What a parser of HTML sees in a page, without knowing how it was made."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.title, self._open = [], "", None
        self.scripts = {}
        self.feed(text)
        self.data = json.loads(self.scripts["recording"])

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._open = (tag, dict(attributes).get("id"))

    def handle_endtag(self, tag):
        self._open = None

    def handle_data(self, text):
        tag, name = self._open or (None, None)
        if tag == "title":
            self.title += text
        if tag == "script":
            self.scripts[name] = self.scripts.get(name, "") + text

    def array(self, name):
        return decoded(self.data[name])


def decoded(entry):
    raw = base64.b64decode(entry["data"])
    return np.frombuffer(raw, {"f4": "<f4", "f8": "<f8", "u4": "<u4"}[entry["type"]]).reshape(entry["shape"])


def rotation(quaternion):
    """R v = v + 2 w (u x v) + 2 u x (u x v), for unit quaternions (..., 4)."""
    w, u = quaternion[..., :1, None], quaternion[..., None, 1:]
    v = np.eye(3)
    once = np.cross(u, v)
    return np.swapaxes(v + 2 * w * once + 2 * np.cross(u, once), -1, -2)


@pytest.fixture(scope="module")
def toy():
    return build()


@pytest.fixture(scope="module")
def written(toy, tmp_path_factory):
    """Three runs of the toy as a page."""
    runs = run_of(toy, batch=(3,))
    path = export_html(toy, runs, tmp_path_factory.mktemp("page") / "toy.html")
    return SimpleNamespace(path=path, runs=runs, page=Page(path.read_text()))


# ---- the data ----------------------------------------------------------------------------------------------------


def test_poses_are_those_of_forward_kinematics(toy, written):
    poses, runs = written.page.array("poses"), written.runs
    assert poses.shape == (3, 9, 3, 7)
    np.testing.assert_array_equal(written.page.array("t"), runs.t)
    each = jax.vmap(jax.vmap(jaxdyn.forward_kinematics, (None, 0)), (None, 0))(toy, runs.q)
    np.testing.assert_allclose(rotation(poses[..., :4].astype(float)), each.rotation, atol=5e-7)
    np.testing.assert_allclose(poses[..., 4:], each.position, atol=1e-7)
    com = jax.vmap(jax.vmap(jaxdyn.center_of_mass, (None, 0)), (None, 0))(toy, runs.q)
    np.testing.assert_allclose(written.page.array("com"), com, atol=1e-7)


def test_coordinates_go_with_their_joints(toy, written):
    runs = written.runs
    np.testing.assert_allclose(written.page.array("q"), runs.q, rtol=1e-7)
    np.testing.assert_allclose(written.page.array("qd"), runs.qd, rtol=1e-7)
    for joint in written.page.data["joints"]:
        (q, nq), (qd, nv) = joint["q"], joint["qd"]
        assert slice(q, q + nq) == toy.q_slice(joint["name"])
        assert slice(qd, qd + nv) == toy.qd_slice(joint["name"])


def test_every_kind_of_shape_is_there(toy, written):
    shapes = {shape["kind"]: shape for shape in written.page.data["shapes"]}
    assert {kind: tuple(shape["size"]) for kind, shape in shapes.items()} == SIZES
    assert [shapes[kind]["body"] for kind in SIZES] == [0, 2, 1, 1, 2, -1]
    assert tuple(shapes["sphere"]["colour"]) == RED
    assert shapes["box"]["colour"] != shapes["ellipsoid"]["colour"], "bodies have colours of their own"
    # A shape on a frame is placed in the body: frame and body give the same place in the world.
    q = written.runs.q[0, 4]
    body = jaxdyn.frame_pose(toy, q, "tip", point=np.array(shapes["sphere"]["pose"][4:]))
    frame = jaxdyn.frame_pose(toy, q, "tool", point=np.array([0.1, 0.0, 0.2]))
    np.testing.assert_allclose(body.position, frame.position, atol=1e-12)
    turned = body.rotation @ rotation(np.array(shapes["sphere"]["pose"][:4]))
    np.testing.assert_allclose(turned, frame.rotation @ rotation(np.array(TILT)), atol=1e-12)
    np.testing.assert_allclose(shapes["plane"]["pose"], [*TILT, 0.1, 0.0, 0.45], atol=1e-12)


def test_the_page_needs_nothing_else(written):
    text = written.path.read_text()
    assert not re.search(r"https?:|src=|href=|@import|url\(|import\(|fetch\(|XMLHttpRequest", text)
    policy = next(a["content"] for tag, a in written.page.tags if "Content-Security-Policy" in a.values())
    assert policy.startswith("default-src 'none'")
    assert "@@" not in text


def test_the_forms_of_a_trajectory_are_equal(toy, tmp_path):
    q, qd = run_of(toy).q, run_of(toy).qd
    t = 0.25 * np.arange(len(q))
    forms = {
        "object": SimpleNamespace(t=t, q=q, qd=qd),
        "tuple": (t, q, qd),
        "mapping": {"t": t, "q": q, "qd": qd},
        "batch of one": (np.tile(t, (1, 1)), q[None], qd[None]),
    }
    np.savez(tmp_path / "run.npz", **forms["mapping"])
    with np.load(tmp_path / "run.npz") as saved:
        forms["file"] = saved
        read = [read_trajectory(toy, form) for form in forms.values()]
    for other in read:
        assert all(np.array_equal(a, b) for a, b in zip(read[0], other, strict=True))
    alone = read_trajectory(toy, q, dt=0.25)
    assert alone.qd is None
    np.testing.assert_array_equal(alone.t, t)
    np.testing.assert_array_equal(alone.q, read[0].q)


def test_long_runs_are_thinned_out(toy):
    count = 5001
    t = np.sort(np.random.default_rng(1).uniform(0, 50, count))
    q = np.broadcast_to(np.arange(count)[:, None] * 1.0, (20, count, toy.nq))
    everything = read_trajectory(toy, (t, q))
    for fps, most, runs in ((10.0, 2000, 4), (60.0, 300, 20), (1e4, 10**6, 1)):
        thin = thin_out(everything, fps, most, runs)
        rows = thin.q[0, :, 0].astype(int)  # q was the number of the row
        assert thin.q.shape[0] == runs
        assert len(rows) <= min(most, math.ceil((t[-1] - t[0]) * fps) + 1, count)
        assert rows[0] == 0
        assert rows[-1] == count - 1
        np.testing.assert_array_equal(thin.t, t[rows])
        if len(rows) == count:
            continue
        # Wherever the page looks, the nearest row that it has is no farther than the grid and the data allow.
        grid = (t[-1] - t[0]) / (min(most, math.ceil((t[-1] - t[0]) * fps) + 1) - 1)
        assert np.diff(thin.t).max() <= grid + np.diff(t).max()
    even = thin_out(read_trajectory(toy, q[0, :481], dt=1 / 240), 60.0, 2000, 1)
    np.testing.assert_array_equal(even.q[0, :, 0], np.arange(0, 481, 4))


def test_a_large_batch_is_thinned_out_and_says_so(toy, tmp_path):
    runs = run_of(toy, count=3, batch=(9,))
    page = Page(export_html(toy, runs, tmp_path / "many.html", max_runs=3, title="Many").read_text())
    assert page.data["runs"] == 9
    np.testing.assert_allclose(page.array("q"), runs.q[[0, 4, 8]], rtol=1e-7)
    assert page.title == "Many"


def test_a_rock_for_a_moment(tmp_path):
    """No moving body, no coordinate, one row: still a page."""
    builder = jaxdyn.ModelBuilder("rock")
    builder.add_body("rock", joint="fixed", mass=1.0, inertia=(1, 1, 1))
    builder.add_geometry("rock", "box", (1, 1, 1))
    page = Page(export_html(builder.build(), ([0.5], np.zeros((1, 0))), tmp_path / "rock.html").read_text())
    assert page.array("poses").shape == (1, 1, 0, 7)
    np.testing.assert_array_equal(page.array("com"), np.zeros((1, 1, 3)))
    assert [shape["body"] for shape in page.data["shapes"]] == [-1]


# ---- bad input ---------------------------------------------------------------------------------------------------

GOOD = np.tile([0.1, 1.0, 0.0, 0.0, 0.0, 0.2], (4, 1))
TIMES = np.arange(4.0)


@pytest.mark.parametrize(
    ("trajectory", "options", "message"),
    [
        ((TIMES, GOOD[:, :5]), {}, r"trajectory\.q must have shape \(T, 6\), or \(batch, T, 6\).*got \(4, 5\)"),
        ((TIMES, GOOD[0]), {}, r"trajectory\.q must have shape .* got \(6,\)"),
        ((TIMES[:0], GOOD[:0]), {}, r"trajectory\.q must have shape .* got \(0, 6\)"),
        ((TIMES, GOOD[None, None]), {}, r"trajectory\.q must have shape .* got \(1, 1, 4, 6\)"),
        ((TIMES[:3], GOOD), {}, r"trajectory\.t must have shape \(4,\), one time per row of q; got \(3,\)"),
        ((TIMES[::-1], GOOD), {}, r"trajectory\.t must be finite and increase"),
        ((TIMES * np.nan, GOOD), {}, r"trajectory\.t must be finite and increase"),
        ((np.stack([TIMES, 2 * TIMES]), np.stack([GOOD, GOOD])), {}, r"trajectory\.t must be the same in all runs"),
        ((TIMES, GOOD, GOOD), {}, r"trajectory\.qd must go with q.*wanted \(1, 4, 5\); got \(4, 6\)"),
        ((TIMES, np.where(np.arange(4)[:, None] == 2, np.inf, GOOD)), {}, r"q must be finite; 1 of .* row 2 of run 0"),
        ((TIMES, GOOD.astype(complex)), {}, r"trajectory\.q must be real numbers; got complex128"),
        ((TIMES, "fast"), {}, r"trajectory\.q must be an array of numbers; got str"),
        ((TIMES,), {}, r"tuple must be \(t, q\) or \(t, q, qd\); got 1 entries"),
        ({"t": TIMES, "Q": GOOD}, {}, r"trajectory needs 'q'; got the keys 't', 'Q'"),
        ("run.npz", {}, r"trajectory must have the attributes t and q.*got str"),
        (GOOD, {}, r"trajectory has no times: give t, or dt="),
        (GOOD, {"dt": 0.0}, r"dt must be a positive number of seconds; got 0\.0"),
        ((TIMES, GOOD), {"dt": 0.1}, r"trajectory has times of its own: leave out dt"),
        ((TIMES, GOOD), {"fps": 0}, r"fps must be a number greater than 0; got 0"),
        ((TIMES, GOOD), {"max_frames": 1}, r"max_frames must be a number greater than 1; got 1"),
        ((TIMES, GOOD), {"max_runs": -1}, r"max_runs must be a number greater than 0; got -1"),
    ],
)
def test_bad_input_is_named(toy, tmp_path, trajectory, options, message):
    with pytest.raises(ValueError, match=message):
        export_html(toy, trajectory, tmp_path / "page.html", **options)
    assert not (tmp_path / "page.html").exists()


def test_a_batch_of_models_is_refused(toy, tmp_path):
    several = toy.replace(gravity=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="one model is needed"):
        export_html(several, (TIMES, GOOD), tmp_path / "page.html")
    with pytest.raises(TypeError, match=r"model must be a jaxdyn\.Model; got str"):
        export_html("arm7", (TIMES, GOOD), tmp_path / "page.html")


EVIL = "</script><b onclick='x'>&amp;@@data@@\"]]>"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    model = build(EVIL, EVIL + "2", EVIL + "3")
    return export_html(model, run_of(model), tmp_path_factory.mktemp("page") / "evil.html")


def test_names_cannot_break_the_page(written, hostile):
    page = Page(hostile.read_text())
    assert page.tags == written.page.tags, "names bring no elements of their own"
    assert page.title == page.data["title"] == EVIL
    assert page.data["bodies"][2] == EVIL + "2"
    assert page.data["joints"][0]["name"] == EVIL + "3"


# ---- what is drawn -----------------------------------------------------------------------------------------------


def test_links_without_shapes_are_capsules_from_joint_to_joint(tmp_path):
    model = build(geometry=False)
    q = np.asarray(jaxdyn.neutral(model))
    poses = jaxdyn.forward_kinematics(model, q)
    spans = {}
    for shape in scene_of(model).shapes:
        if shape.kind == "capsule":
            R, p = (
                (np.eye(3), np.zeros(3)) if shape.body < 0 else (poses.rotation[shape.body], poses.position[shape.body])
            )
            axis = R @ rotation(np.array(shape.pose[:4]))[:, 2] * shape.size[1] / 2
            centre = p + R @ np.array(shape.pose[4:])
            spans[shape.body] = centre - axis, centre + axis
    origin = [np.zeros(3), *poses.position]
    for body in (-1, 0, 1):  # to the next joint
        np.testing.assert_allclose(spans[body], [origin[body + 1], origin[body + 2]], atol=1e-12)
    tool = jaxdyn.frame_pose(model, q, "tool").position  # 0.22 away; twice the centre of mass is farther
    far = origin[3] + poses.rotation[2] @ np.array([0.2, 0.2, 0.0])
    assert np.linalg.norm(far - origin[3]) > np.linalg.norm(tool - origin[3])
    np.testing.assert_allclose(spans[2], [origin[3], far], atol=1e-12)


@pytest.mark.parametrize("joint", ["free", "revolute", "prismatic"])
def test_a_lone_body_is_seen_whatever_it_weighs(joint):
    for mass in ({"mass": 2.0, "inertia": (0.1, 0.1, 0.1)}, {}):
        builder = jaxdyn.ModelBuilder("lone")
        with pytest.warns(jaxdyn.ModelWarning) if not mass else pytest.MonkeyPatch.context():
            model = builder.add_body("body", joint=joint, **mass) and builder.build()
        (mark,) = capsules(model, [0])
        assert all(0 < size < 10 for size in mark.size)
        assert np.isfinite(mark.pose).all()


def test_collisions_stand_in_for_visuals():
    def shown(*shapes):
        builder = jaxdyn.ModelBuilder("one")
        builder.add_body("body", joint="revolute", mass=1.0, inertia=(1, 1, 1))
        for shape, size, role in shapes:
            builder.add_geometry("body", shape, size, role=role)
        return [(shape.kind, shape.collision) for shape in scene_of(builder.build()).shapes]

    hull, skin, eye = ("box", (1, 1, 1), "collision"), ("sphere", (0.8,), "visual"), ("sphere", (0.05,), "visual")
    assert shown(hull) == [("box", False)]
    assert shown(skin, hull) == [("sphere", False), ("box", True)]
    assert shown(eye, hull) == [("sphere", False), ("box", False)], "eyes alone are no body"


# ---- meshes ------------------------------------------------------------------------------------------------------

TETRAHEDRON = """\
v 0 0 0
v 1 0 0
v 0 1 0
v 0 0 1
f 1 3 2
f 1 2 4
f 1 4 3
f 2 3 4
"""


def with_mesh(name="package://robot/meshes/part.obj", scale=(1, 1, 1), collision=False):
    builder = jaxdyn.ModelBuilder("meshed")
    for body, parent in (("first", None), ("second", "first")):
        builder.add_body(body, parent, joint="revolute", xyz=(0, 0, 1), com=(0, 0, 0.5), mass=1.0, inertia=(1, 1, 1))
        builder.add_geometry(body, "mesh", scale, mesh=name)
    if collision:
        builder.add_geometry("first", "box", (1, 1, 1), role="collision")
    return builder.build()


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "robot"
    (folder / "meshes").mkdir(parents=True)
    (folder / "urdf").mkdir()
    (folder / "meshes/part.obj").write_text(TETRAHEDRON)
    return folder


def volume(part):
    """The volume that triangles enclose, positive if they look outward."""
    a, b, c = np.moveaxis(part.vertices[part.faces].astype(float), 1, 0)
    return np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6


def test_meshes_are_embedded_once(package, tmp_path):
    pytest.importorskip("trimesh", reason="trimesh is not installed (the extra `mesh`)")
    model = with_mesh(scale=(1, 2, 3))
    path = export_html(model, (TIMES, np.zeros((4, 2))), tmp_path / "page.html", mesh_folders=package / "urdf")
    data = Page(path.read_text()).data
    assert [(shape["kind"], shape["body"], shape["mesh"]) for shape in data["shapes"]] == [
        ("mesh", 0, 0),
        ("mesh", 1, 0),
    ]
    (mesh,) = data["meshes"]
    corners = {tuple(vertex) for vertex in decoded(mesh["vertices"]).tolist()}
    assert corners == {(0, 0, 0), (1, 0, 0), (0, 2, 0), (0, 0, 3)}
    assert decoded(mesh["faces"]).shape == (4, 3)


@pytest.mark.parametrize("scale", [(1, 2, 3), (-1, 2, 3), (-1, -2, -3)])
def test_faces_look_outward_in_a_mirror_too(package, scale):
    pytest.importorskip("trimesh", reason="trimesh is not installed (the extra `mesh`)")
    (part,) = read_mesh(package / "meshes/part.obj", scale)
    assert volume(part) == pytest.approx(abs(np.prod(scale)) / 6, rel=1e-6)


def test_mesh_files_are_found(package):
    part = package / "meshes/part.obj"
    for name in ("package://robot/meshes/part.obj", "model://robot/meshes/part.obj", f"file://{part}", str(part)):
        assert find_mesh(name, [package / "urdf"]).samefile(part)
    assert find_mesh("../meshes/part.obj", [Path("/nowhere"), package / "urdf"]).samefile(part)
    assert find_mesh("part.obj", [package / "urdf"]) is None
    assert find_mesh("package://robot/meshes/other.obj", [package]) is None


def test_without_trimesh_the_extra_is_named(package, monkeypatch):
    monkeypatch.setitem(sys.modules, "trimesh", None)  # as if it were not installed
    with pytest.warns(jaxdyn.ModelWarning, match=r"pip install 'jaxdyn\[mesh\]'.*part\.obj \(of 'first'\)") as caught:
        shapes, meshes = scene_of(with_mesh(), folders=[package])
    assert len(caught) == 1
    assert meshes == []
    assert {shape.body for shape in shapes if shape.kind == "capsule"} == {-1, 0, 1}


def test_a_missing_mesh_file_is_named():
    with pytest.warns(jaxdyn.ModelWarning, match=r"not found in '/nowhere'.*robot/meshes/part\.obj \(of 'first'\)"):
        shapes, _ = scene_of(with_mesh(collision=True), folders=[Path("/nowhere")])
    assert [shape.kind for shape in shapes if shape.body == 0] == ["box"], "its collision shape stands in"
    assert "capsule" in [shape.kind for shape in shapes if shape.body == 1]


def test_a_broken_mesh_file_is_named(package):
    pytest.importorskip("trimesh", reason="trimesh is not installed (the extra `mesh`)")
    (package / "meshes/part.obj").write_text("no mesh\n")
    with pytest.warns(jaxdyn.ModelWarning, match=r"cannot be read: package://robot/meshes/part\.obj: .*\(of 'first'\)"):
        scene_of(with_mesh(), folders=[package])


def test_meshes_can_be_left_out():
    assert scene_of(with_mesh(collision=True), meshes=False).meshes == []


# ---- in a browser ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if find_chromium() is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with Chromium(tmp_path_factory.mktemp("profile"), size=(640, 560)) as chromium:
        yield chromium


@pytest.fixture
def opened(browser, written):
    browser.open(written.path, "?frame=0&ghosts=0")
    return browser


def sound(browser):
    """Whether the page is up, without an error, and has asked for nothing but itself."""
    assert browser.evaluate("window.jaxdyn.errors") == []
    assert browser.problems() == []
    assert browser.evaluate("window.jaxdyn.ready") is True
    assert browser.evaluate("window.jaxdyn.viewer.renderer.gl.getError()") == 0
    return [url.partition("?")[0] for url in browser.requests()]


def red(picture):
    """The centre (x, y) of what is red in a picture."""
    r, g, b = np.moveaxis(picture[..., :3].astype(int), -1, 0)
    y, x = np.nonzero((r > 2 * g) & (r > 2 * b) & (r > 40))
    assert len(x) > 20, "the red ball is in sight"
    return np.array([(x.min() + x.max()) / 2, (y.min() + y.max()) / 2])


def projected(browser, point, size):
    """Where the camera sees a point of the world, in pixels."""
    matrix = browser.evaluate("(({viewer: v}) => Array.from(v.camera(v.moment).matrix))(window.jaxdyn)")
    x, y, _, w = np.reshape(matrix, (4, 4)).T @ [*point, 1.0]
    return np.array([(1 + x / w) * size[0] / 2, (1 - y / w) * size[1] / 2])


def test_the_page_opens(opened, written):
    assert sound(opened) == [written.path.as_uri()]
    assert opened.evaluate("[window.jaxdyn.frames, window.jaxdyn.runs]") == [9, 3]
    picture = opened.pixels("#canvas")
    assert len(np.unique(picture.reshape(-1, 4), axis=0)) > 1000, "the canvas is not blank"
    for plot in ("#plot-q", "#plot-qd"):
        assert len(np.unique(opened.pixels(plot).reshape(-1, 4), axis=0)) > 20
    assert opened.evaluate("document.querySelectorAll('#legend li').length") == 3


def test_the_slider_moves_the_robot(opened, toy, written):
    """The red ball is where forward kinematics and the camera say, at every place of the slider."""
    places = []
    for along in (0.03, 0.5, 0.97):
        point = opened.middle("#slider", along)
        opened.drag(point, point)
        frame = opened.evaluate("window.jaxdyn.viewer.frame")
        picture = opened.pixels("#canvas")
        ball = jaxdyn.frame_pose(toy, written.runs.q[0, frame], "tool", point=np.array([0.1, 0.0, 0.2])).position
        expected = projected(opened, ball, picture.shape[1::-1])
        found = red(picture)
        np.testing.assert_allclose(found, expected, atol=3.0)
        places.append(found)
        assert opened.evaluate("document.querySelector('#clock').value").startswith(f"{written.runs.t[frame]:.2f} /")
    assert frame == 8
    assert np.linalg.norm(places[0] - places[1]) > 10
    assert np.linalg.norm(places[1] - places[2]) > 10
    assert sound(opened)


def test_the_keys_and_the_player(opened):
    opened.key("ArrowRight")
    opened.key("ArrowRight")
    opened.key("ArrowLeft")
    assert opened.evaluate("window.jaxdyn.viewer.frame") == 1
    opened.key(" ")
    opened.wait("window.jaxdyn.viewer.time > 0.2")
    opened.key(" ")
    time = opened.evaluate("window.jaxdyn.viewer.time")
    opened.settle()
    assert opened.evaluate("window.jaxdyn.viewer.time") == time, "it stands still"
    assert sound(opened)


def test_what_the_switches_show(opened):
    bare = opened.pixels("#canvas")
    changed = {}
    for key, name in (("a", "frames"), ("c", "com"), ("g", "ghosts")):
        opened.key(key)
        assert opened.evaluate(f"window.jaxdyn.viewer.shown.{name}") is True
        changed[name] = (opened.pixels("#canvas") != bare).any(-1).sum()
        opened.key(key)
    assert min(changed.values()) > 30
    assert changed["ghosts"] > changed["com"], "two robots are more than a dot"
    np.testing.assert_array_equal(opened.pixels("#canvas"), bare)
    opened.key("p")
    assert opened.pixels("#canvas").shape[0] > bare.shape[0], "the scene takes the plots' room"
    assert sound(opened)


def test_the_camera(opened):
    before = opened.evaluate("window.jaxdyn.viewer.yaw")
    x, y = opened.middle("#canvas")
    opened.drag((x, y), (x + 60, y))
    assert opened.evaluate("window.jaxdyn.viewer.yaw") < before
    target = opened.evaluate("window.jaxdyn.viewer.target")
    opened.drag((x, y), (x + 60, y), button="right")
    assert opened.evaluate("window.jaxdyn.viewer.target") != target
    distance = opened.evaluate("window.jaxdyn.viewer.distance")
    opened.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-200)
    opened.wait(f"window.jaxdyn.viewer.distance < {distance}")
    for view in ("top", "side", "front"):
        opened.evaluate(f"window.jaxdyn.view('{view}')")
        opened.settle()
        red(opened.pixels("#canvas"))
    assert sound(opened)


def test_hostile_names_in_a_browser(browser, hostile):
    browser.open(hostile, "?frame=3&theme=dark")
    assert sound(browser) == [hostile.as_uri()]
    assert browser.evaluate("document.querySelector('h1').textContent") == EVIL
    assert browser.evaluate("document.querySelector('#legend span').textContent") == EVIL + "3"
    assert browser.evaluate("document.querySelectorAll('b[onclick]').length") == 0


def test_a_browser_without_webgl_is_told(browser, written):
    script = "HTMLCanvasElement.prototype.getContext = () => null"
    number = browser.call("Page.addScriptToEvaluateOnNewDocument", source=script)["identifier"]
    browser.open(written.path)
    browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=number)
    assert "WebGL2" in browser.evaluate("document.querySelector('#message').textContent")
    assert browser.evaluate("document.querySelector('#message').hidden") is False
    assert browser.problems() == []
