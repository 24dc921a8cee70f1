"""`jaxdyn identify`: from a recording to a file and a page; the file is the old one but for inertias and friction."""

import warnings
from html.parser import HTMLParser

import jax
import numpy as np
import pytest

import jaxdyn
from jaxdyn.cli import main
from jaxdyn.model import is_physical

URDF = """<?xml version="1.0"?>
<!-- made by hand -->
<robot name="arm">
  <link name="base"/>
  <link name="upper">
    <inertial><origin xyz="0 0 -0.4"/><mass value="2"/>
      <inertia ixx="0.05" ixy="0" ixz="0" iyy="0.05" iyz="0" izz="0.01"/></inertial>
  </link>
  <joint name="shoulder" type="revolute">
    <parent link="base"/><child link="upper"/><axis xyz="0 1 0"/><limit lower="-3" upper="3" effort="9" velocity="9"/>
  </joint>
  <link name="lower"><!-- kept --><inertial><origin xyz="0 0 -0.3" rpy="0.3 0 0"/><mass value="1"/>
      <inertia ixx="0.03" ixy="0" ixz="0" iyy="0.03" iyz="0" izz="0.01"/></inertial></link>
  <joint name="elbow" type="revolute">
    <origin xyz="0 0 -0.8"/><parent link="upper"/><child link="lower"/><axis xyz="0 1 0"/>
    <limit lower="-3" upper="3" effort="9" velocity="9"/><dynamics damping="0.1"/>
  </joint>
  <link name="hand"><inertial><mass value="0.5"/>
      <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.01"/></inertial></link>
  <joint name="mount" type="fixed"><origin xyz="0 0.1 -0.6" rpy="0 0 1"/><parent link="lower"/><child link="hand"/></joint>
</robot>
"""


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    """A file, the model in it, and one that differs in inertias and friction."""
    path = tmp_path_factory.mktemp("robot") / "arm.urdf"
    path.write_text(URDF)
    model = jaxdyn.load(path)
    theta = jaxdyn.model.log_cholesky(model.inertia)
    away = np.random.default_rng(0).normal(size=theta.shape)
    other = jaxdyn.model.from_log_cholesky(theta + 0.1 * away)
    return path, model, model.replace(inertia=other, friction=[0.2, 0.3])


def test_updating_a_file_changes_inertias_and_friction_only(robot, tmp_path):
    path, model, other = robot
    text = jaxdyn.io.update_urdf(path, other, tmp_path / "new.urdf")
    again = jaxdyn.load(tmp_path / "new.urdf")
    assert np.abs(again.inertia - other.inertia).max() < 1e-12
    assert np.array_equal(again.friction, other.friction)
    assert np.array_equal(again.damping, model.damping)
    assert np.array_equal(again.placement, model.placement)
    assert again.frame_names == model.frame_names
    assert "made by hand" in text
    assert "kept" in text
    # The hand is a link of its own still, and physical, as is the rest of what it is welded to.
    assert text.count("<inertial>") == 3
    for link in ("lower", "hand"):
        alone = text.split(f'<link name="{link}">')[1].split("</link>")[0]
        builder = f'<robot name="x"><link name="w"/><link name="b">{alone}</link><joint name="j" type="floating"><parent link="w"/><child link="b"/></joint></robot>'
        assert bool(is_physical(jaxdyn.io.parse_urdf(builder)))


def test_an_unchanged_model_leaves_the_file_as_it_is(robot):
    path, model, _ = robot
    text = jaxdyn.io.update_urdf(path, model)
    assert text.replace(" />", "/>").split() == URDF.split()


def test_locked_joints_stay_in_the_file(robot, tmp_path):
    path, _model, other = robot
    text = jaxdyn.io.update_urdf(path, jaxdyn.lock_joints(other, {"elbow": 0.4}), tmp_path / "new.urdf")
    again = jaxdyn.lock_joints(jaxdyn.load(tmp_path / "new.urdf"), {"elbow": 0.4})
    wanted = jaxdyn.lock_joints(other, {"elbow": 0.4})
    assert 'name="elbow"' in text
    assert np.abs(again.inertia - wanted.inertia).max() < 1e-9


def test_armature_and_foreign_models_are_reported(robot):
    path, model, _ = robot
    with pytest.warns(jaxdyn.ModelWarning, match="no place for armature"):
        jaxdyn.io.update_urdf(path, model.replace(armature=[0.1, 0.1]))
    with pytest.raises(jaxdyn.ModelError, match="the file has no joint"):
        jaxdyn.io.update_urdf(path, jaxdyn.load("cartpole"))


@pytest.fixture(scope="module")
def recording(robot, tmp_path_factory):
    _, _, true = robot
    rng, w = np.random.default_rng(1), np.array([0.9, 2.1, 3.3])
    t = np.arange(0, 8, 0.004)
    a, b = 0.5 * rng.normal(size=(2, 3, 2))
    s, c = np.sin(np.outer(t, w)), np.cos(np.outer(t, w))
    q, qd, qdd = s @ a + c @ b, (c * w) @ a - (s * w) @ b, -(s * w**2) @ a - (c * w**2) @ b
    one = lambda q, qd, qdd: jaxdyn.inverse_dynamics(true, q, qd, qdd) - jaxdyn.passive_force(true, q, qd)
    tau = np.asarray(jax.jit(jax.vmap(one))(q, qd, qdd)) + 0.02 * rng.normal(size=q.shape)
    path = tmp_path_factory.mktemp("data") / "run.csv"
    names = "t,q_shoulder,q_elbow,qd_shoulder,qd_elbow,tau_shoulder,tau_elbow"
    np.savetxt(path, np.column_stack([t, q, qd, tau]), delimiter=",", header=names, comments="")
    return path


class Tags(HTMLParser):
    """Counts what a page is made of, and refuses tags that are not closed."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_from_recording_to_urdf_and_report(robot, recording, tmp_path, capsys):
    path, _, true = robot
    out, report = tmp_path / "identified.urdf", tmp_path / "report.html"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = "--rate 250 --cutoff 10 --every 4 --no-rotor-inertia --verbose".split()
        code = main(["identify", str(path), str(recording), "--out", str(out), "--report", str(report), *options])
    printed, problems = capsys.readouterr()
    assert code == 0, problems
    assert "validation on the last" in printed
    assert "decrement" in printed
    identified = jaxdyn.load(out)
    assert bool(is_physical(identified))
    assert np.abs(identified.friction - true.friction).max() < 0.03
    rng = np.random.default_rng(2)
    states = [rng.normal(size=(50, 2)) for _ in range(3)]
    torque = jax.jit(jax.vmap(jaxdyn.inverse_dynamics, in_axes=(None, 0, 0, 0)))
    a, b = torque(identified, *states), torque(true, *states)
    assert float(np.sqrt(((a - b) ** 2).mean())) < 0.02 * float(np.sqrt((b**2).mean()))
    page, text = Tags(), report.read_text()
    page.feed(text)
    assert not page.open
    assert page.seen.count("svg") >= 2 * 2 + 3
    assert "http" not in text
    assert "<script" not in text
    for word in ("Residuals", "lower.Ixx", "shoulder.viscous", "physical margin", "condition number"):
        assert word in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "x.txt"], "wanted a name that ends with .urdf or .npz"),
        (["--out", "nowhere/x.urdf"], "there is no folder"),
        (["--lock", "wrist=0"], "no joint 'wrist'"),
        (["--lock", "elbow=a"], "wanted JOINT=Q"),
        (["--cutoff", "900"], "cutoff must be below half the rate"),
        (["--train", "2"], "fraction must lie between 0 and 1"),
    ],
)
def test_what_is_refused(robot, recording, capsys, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["identify", str(robot[0]), str(recording), *arguments]) == 2
    assert message in capsys.readouterr().err
