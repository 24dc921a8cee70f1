"""`jaxdyn simulate` and `jaxdyn view`: files that agree with rollouts, words that agree with files, errors."""

import builtins
import io
import json
import re
import sys
import webbrowser

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import relative

import jaxdyn
from jaxdyn.cli import main, running
from jaxdyn.cli.recordings import read_run

SWING = ["simulate", "double_pendulum", "--q0", "random", "--seed", "3", "--dt", "0.01"]


URDF = """<robot name="r"><link name="base"><inertial><mass value="2"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
<link name="a"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
<joint name="hip" type="continuous"><parent link="base"/><child link="a"/></joint></robot>"""


def npy():
    """A single array, as `numpy.save` writes it."""
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


def content(path):
    """The arrays of a run and what it says of itself."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    return arrays, json.loads(str(arrays.pop("about")))


@pytest.fixture(scope="module")
def model():
    return jaxdyn.load("double_pendulum")


@pytest.fixture(scope="module")
def q0(model):
    return jaxdyn.random_configuration(model, jax.random.key(3))


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """One run of 43 steps, which no number of equal calls from 15 to 42 divides: folder and what was printed."""
    folder = tmp_path_factory.mktemp("single")
    files = ["--out", str(folder / "run.npz"), "--html", str(folder / "run.html"), "--plot", str(folder / "run.png")]
    with pytest.MonkeyPatch.context() as patch:
        lines = []
        patch.setattr(builtins, "print", lambda *text, **_: lines.append(" ".join(map(str, text))))
        assert main([*SWING, "--duration", "0.43", *files]) == 0
    return folder, "\n".join(lines)


def test_a_run_is_a_rollout(single, model, q0):
    arrays, about = content(single[0] / "run.npz")
    wanted = jaxdyn.rollout(model, q0, jnp.zeros(2), jnp.zeros((43, 2)), dt=0.01, outputs=["energy"])
    assert set(arrays) == {"t", "q", "qd", "energy"}  # a plot asks for the energy
    assert all(x.dtype == np.float64 for x in arrays.values())
    for name, value in (("t", wanted.t), ("q", wanted.q), ("qd", wanted.qd), ("energy", wanted.extras["energy"])):
        assert relative(arrays[name], value) < 1e-12, name
    assert np.abs(arrays["qd"]).max() > 1  # it does swing
    assert about["robot"] == "double_pendulum"
    assert about["joint_names"] == list(model.joint_names)
    assert about["floating_base"] is False
    assert about["mimic"] is True


def test_what_is_printed_is_what_is_written(single):
    folder, text = single
    arrays, _ = content(folder / "run.npz")
    assert "double_pendulum: 43 steps, 0.43 s of motion" in text
    assert re.search(r"compiled in [\d.]+ s, ran in [\d.e-]+ s: [\d,]+ steps/s", text)
    assert f"energy: {arrays['energy'][0]:.6g} J at the start, {arrays['energy'][-1]:.6g} J at the end" in text
    assert f"largest joint speed: {np.abs(arrays['qd']).max():.4g} rad/s" in text
    for name in ("run.npz", "run.html", "run.png"):
        assert f"wrote {folder / name}" in text
    assert (folder / "run.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "run.html").read_text().lower().startswith("<!doctype html")


def test_copies_start_nearby_and_move_on_their_own(tmp_path, model, q0, capsys):
    out = tmp_path / "run.npz"
    options = [
        "--duration",
        "0.4",
        "--batch",
        "3",
        "--controller",
        "pd",
        "--save-every",
        "4",
        "--integrator",
        "midpoint",
    ]
    assert main([*SWING, *options, "--out", str(out)]) == 0
    arrays, about = content(out)
    assert set(arrays) == {"t", "q", "qd"}
    assert about["controller"] == "pd"
    assert arrays["q"].shape == (3, 11, 2)
    away = 0.05 * np.random.default_rng(3).normal(size=(3, 2))
    away[0] = 0
    assert np.abs(arrays["q"][:, 0] - (np.asarray(q0) + away)).max() < 1e-14

    m = np.diag(jaxdyn.mass_matrix(model, q0))
    hold = lambda t, q, qd, _: jaxdyn.gravity_force(model, q) + 25 * m * (q0 - q) - 10 * m * qd
    start = jnp.asarray(arrays["q"][2, 0])
    options = {"dt": 0.01, "steps": 40, "save_every": 4, "integrator": "midpoint"}
    wanted = jaxdyn.rollout(model, start, jnp.zeros(2), hold, **options)
    for name, value in (("t", wanted.t), ("q", wanted.q), ("qd", wanted.qd)):
        assert relative(arrays[name] if name == "t" else arrays[name][2], value) < 1e-12, name
    assert np.abs(arrays["q"][0] - np.asarray(q0)[None]).max() < 1e-12  # the first is held where it is
    assert "40 steps of 3 copies, 0.4 s of motion" in capsys.readouterr().out


def test_gravity_compensation_holds_a_pose(tmp_path):
    out = tmp_path / "run.npz"
    options = ["--q0", "random", "--controller", "gravity-comp", "--duration", "0.1", "--energy", "--out", str(out)]
    assert main(["simulate", "pendulum", *options]) == 0
    arrays, _ = content(out)
    assert np.abs(np.sin(arrays["q"][0])) > 0.1
    assert np.abs(arrays["qd"]).max() < 1e-12
    assert np.ptp(arrays["energy"]) < 1e-12


def test_one_program_and_a_bar_on_terminals(monkeypatch, capsys):
    """All calls are of one program, also where the number of steps is prime; the bar is on stderr alone."""
    traced = []
    rollout = jaxdyn.rollout
    monkeypatch.setattr(running, "rollout", lambda *args, **kw: traced.append(kw["steps"]) or rollout(*args, **kw))
    command = ["simulate", "pendulum", "--dt", "0.01", "--duration", "0.47"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert traced == [3]  # 16 calls of 3 steps, one of which is cut off
    assert printed.err == ""
    assert "nothing moves" in printed.out
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "[##....." in printed.err
    assert "] 100 %" in printed.err
    assert "%," not in printed.out


def test_a_robot_that_blows_up_is_reported(tmp_path, capsys):
    out = tmp_path / "run.npz"
    command = ["simulate", "double_pendulum", "--controller", "pd", "--dt", "2", "--duration", "2000", "--batch", "2"]
    assert main([*command, "--out", str(out)]) == 1
    err = capsys.readouterr().err
    assert "warning: the PD controller is not stable with --dt 2" in err
    found = re.search(r"warning: copy 1, as 1 of 2, is not finite after step (\d+)", err)
    q = content(out)[0]["q"]
    assert np.isfinite(q).all()
    step = int(found[1])
    assert (q[1, step] != q[1, step - 1]).any()  # the last step that went well
    assert (q[1, step + 1] == q[1, step]).all()


# ---------------------------------------------------------------------- view
def test_view_writes_the_page_and_opens_it(single, tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda uri: opened.append(uri) or True)
    run = tmp_path / "again.npz"
    run.write_bytes((single[0] / "run.npz").read_bytes())
    assert main(["view", str(run)]) == 0
    page = tmp_path / "again.html"
    assert opened == [page.as_uri()]
    assert page.read_text() == (single[0] / "run.html").read_text()
    assert capsys.readouterr().out == f"wrote {page}\n"
    elsewhere = tmp_path / "elsewhere.html"
    assert main(["view", str(run), "--no-browser", "--html", str(elsewhere)]) == 0
    assert elsewhere.read_text() == page.read_text()
    assert len(opened) == 1
    monkeypatch.setattr(webbrowser, "open", lambda uri: False)
    assert main(["view", str(run)]) == 0
    assert "no browser was found" in capsys.readouterr().err


def test_robots_in_files_are_found_again(tmp_path, monkeypatch, capsys):
    (tmp_path / "robots").mkdir()
    file = tmp_path / "robots" / "r.urdf"
    file.write_text(URDF)
    monkeypatch.chdir(tmp_path / "robots")
    assert main(["simulate", "r.urdf", "--floating-base", "--dt", "0.01", "--duration", "0.05", "--out", "r.npz"]) == 0
    monkeypatch.chdir(tmp_path)
    arrays, about = content("robots/r.npz")
    assert about["robot"] == str(file)
    assert arrays["q"].shape == (6, 8)
    assert np.abs(arrays["qd"][-1] - np.eye(7)[5] * -9.81 * 0.05).max() < 1e-12  # it falls
    assert main(["view", "robots/r.npz", "--no-browser"]) == 0  # the path does not depend on the folder
    assert (tmp_path / "robots" / "r.html").exists()
    moved = file.rename(tmp_path / "moved.urdf")
    capsys.readouterr()
    assert main(["view", "robots/r.npz", "--no-browser"]) == 2
    assert "error: the robot of robots/r.npz does not load; --robot FILE says where it is" in capsys.readouterr().err
    view = ["view", "robots/r.npz", "--no-browser", "--robot", str(moved)]
    assert main(view) == 0
    moved.write_text(URDF.replace("hip", "knee"))
    assert main(view) == 2
    assert "it has a joint 'knee' where the run has 'hip'" in capsys.readouterr().err
    moved.write_text('<robot name="r"><link name="base"/></robot>')
    assert main(view) == 2
    assert "is not the robot of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.write_bytes(b"not a run"), "not a run, or a damaged one"),
        (lambda path: path.write_bytes(b""), "not a run, or a damaged one"),
        (lambda path: path.write_bytes(b"PK\x03\x04 torn"), "not a run, or a damaged one"),
        (lambda path: path.write_bytes(npy()), "not a run, or a damaged one"),
        (lambda path: np.savez(path, t=np.zeros(2), q=np.zeros((2, 1))), "it lacks 'qd'"),
        (lambda path: np.savez(path, t=0, q=0, qd=0, about="{"), "'about' is no JSON"),
        (lambda path: np.savez(path, t=0, q=0, qd=0, about='{"format": 9}'), "written in format 9"),
        (lambda path: np.savez(path, t=0, q=0, qd=0, about='{"format": 1}'), "'about' lacks 'robot'"),
        (lambda path: jaxdyn.save(jaxdyn.load("pendulum"), path), "it lacks 't'"),
    ],
)
def test_files_that_are_no_runs(make, reason, tmp_path, capsys):
    path = tmp_path / "run.npz"
    make(path)
    assert main(["view", str(path), "--no-browser"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert reason in err
    with pytest.raises(ValueError):
        read_run(path)


# ---------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["nothing.urdf"], "nothing.urdf: no such file"),
        (["pendulun"], "did you mean 'pendulum'"),
        (["pendulum", "--floating-base"], "a finished model on a fixed base"),
        (["pendulum", "--out", "absent/run.npz"], "there is no folder 'absent'"),
        (["pendulum", "--out", "run.npy"], "must end in .npz"),
        (["pendulum", "--html", "."], "this is a folder"),
        (["pendulum", "--plot", "run.abc"], "unknown kind of picture '.abc'"),
        (["pendulum", "--duration", "0.0001"], "is shorter than one step"),
        (["pendulum", "--save-every", "7"], "must divide the number of steps, 5000"),
        (["pendulum", "--dt", "1e-300"], "takes more than 1e+09 steps"),
        (["pendulum", "--duration", "1e300", "--save-every", "1000"], "takes more than 1e+09 steps"),
        (["pendulum", "--batch", "9999999"], "use --save-every, or a smaller --batch"),
    ],
)
def test_what_cannot_be_done_is_refused(options, reason, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", *options]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert reason in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--dt", "-1"], "argument --dt: must be a positive number; got '-1'"),
        (["--dt", "nan"], "must be a positive number; got 'nan'"),
        (["--duration", "inf"], "argument --duration: must be a positive number; got 'inf'"),
        (["--batch", "0"], "argument --batch: must be a positive integer; got '0'"),
        (["--batch", "1.5"], "must be a positive integer; got '1.5'"),
        (["--seed", "-3"], "argument --seed: must be an integer from 0"),
        (["--integrator", "rk5"], "argument --integrator: invalid choice: 'rk5'"),
        (["--controller", "pid"], "argument --controller: invalid choice: 'pid'"),
    ],
)
def test_wrong_options(options, reason, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["simulate", "pendulum", *options])
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert "error: " in err
    assert reason in err


def test_nothing_to_simulate(tmp_path, capsys):
    path = tmp_path / "still.urdf"
    path.write_text('<robot name="r"><link name="base"/></robot>')
    assert main(["simulate", str(path)]) == 2
    assert "has no degree of freedom" in capsys.readouterr().err


def test_an_integrator_that_refuses_the_model(tmp_path, capsys):
    builder = jaxdyn.ModelBuilder("geared")
    link = {"mass": 1.0, "com": (0.1, 0.0, 0.3), "inertia": (0.1, 0.2, 0.15)}
    builder.add_body("a", joint_name="first", axis=(0, 1, 0), **link)
    path = tmp_path / "geared.npz"
    jaxdyn.save(builder.add_body("b", "a", xyz=(0, 0, 1), follows="first", ratio=-0.5, **link).build(), path)
    assert main(["simulate", str(path), "--integrator", "diagonal"]) == 2
    assert "mimic joints" in capsys.readouterr().err


def test_plots_without_matplotlib(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["simulate", "pendulum", "--plot", "run.png"]) == 2
    assert capsys.readouterr().err == "error: plots need matplotlib, the extra 'plot': pip install 'jaxdyn[plot]'\n"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (KeyboardInterrupt(), 130, "\ninterrupted\n"),
        (MemoryError("too much"), 2, "error: too much\n"),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: too much"), 2, "error: RESOURCE_EXHAUSTED: too much\n"),
    ],
)
def test_runs_that_end_early(error, code, text, monkeypatch, capsys):
    def stop(*_):
        raise error

    monkeypatch.setattr(running, "_move", stop)
    assert main(["simulate", "pendulum"]) == code
    assert capsys.readouterr().err == text


def test_help_says_what_the_controllers_do(capsys):
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    out = capsys.readouterr().out
    for word in ("kp = 25 m, kd = 10 m", "gravity-comp", "--save-every", "semi_implicit_euler", "exit codes:"):
        assert word in out
