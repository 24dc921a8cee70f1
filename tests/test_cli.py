"""The command line: what it prints and which exit code it gives."""

import os
import subprocess
import sys
import tempfile

import pytest

from jaxdyn.cli import main, table

DOUBTFUL = """<robot name="r"><link name="base"/>
<link name="a"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="9"/></inertial></link>
<joint name="j" type="continuous"><parent link="base"/><child link="a"/></joint></robot>"""


def test_info(capsys):
    assert main(["info", "quadruped"]) == 0
    out = capsys.readouterr().out
    for word in ("13 bodies", "nq = 19", "nv = 18", "front_left_thigh_joint", "revolute", "root_joint", "0:7", "trunk",
                 "rear_right_foot", "-2.7 .. -0.4"):  # fmt: skip
        assert word in out


def test_check_of_a_sound_model(capsys):
    assert main(["check", "arm7"]) == 0
    assert "all is well" in capsys.readouterr().out


def test_check_of_a_doubtful_model(tmp_path, capsys):
    path = tmp_path / "r.urdf"
    path.write_text(DOUBTFUL)
    assert main(["check", str(path)]) == 1
    out = capsys.readouterr().out
    assert "breaks the triangle inequality" in out
    assert "warnings: 1; bodies with doubtful inertia: 1" in out
    assert main(["info", str(path)]) == 0
    assert "warnings: 1;" in capsys.readouterr().out


def test_ill_conditioned_model(tmp_path, capsys):
    path = tmp_path / "r.urdf"
    tip = DOUBTFUL.replace('izz="9"', 'izz="1"').replace("</robot>", """<link name="b"><inertial><mass value="1e-9"/>
      <inertia ixx="1e-12" ixy="0" ixz="0" iyy="1e-12" iyz="0" izz="1e-12"/></inertial></link>
      <joint name="tiny" type="continuous"><parent link="a"/><child link="b"/></joint></robot>""")  # fmt: skip
    path.write_text(tip)
    assert main(["check", str(path)]) == 1
    assert "ill conditioned: joint 'tiny' moves an inertia of 1e-12" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["info", "nothing.urdf"], ["check", "nothing.urdf"]])
def test_files_that_do_not_load(arguments, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err == "error: nothing.urdf: no such file\n"


def test_options(tmp_path, capsys):
    path = tmp_path / "r.urdf"
    path.write_text(DOUBTFUL)
    assert main(["info", "--floating-base", str(path)]) == 0
    assert "root_joint" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["fly"], ["info"]])
def test_wrong_command_lines(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: jaxdyn" in capsys.readouterr().err


def test_help_reads_well(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    for word in ("info", "check", "simulate", "view", "exit codes:", "--version"):
        assert word in out


def test_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "jaxdyn", "check", "pendulum"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "all is well" in done.stdout


def test_readers_that_leave_and_terminals_without_letters():
    command = f"{sys.executable} -u -m jaxdyn info humanoid"
    done = subprocess.run(f"{command} | true", shell=True, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    code = "import jaxdyn.cli as c; print(c.main(['info', 'r.urdf']))"
    urdf = '<robot name="r"><link name="\xe9"/></robot>'
    script = f"open('r.urdf', 'w', encoding='utf-8').write({urdf!r}); {code}"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PYTHONIOENCODING": "ascii"})  # fmt: skip
    assert done.stdout.endswith("0\n"), done.stderr


def test_table_is_aligned():
    assert table(("a", "long"), [("1", "2"), ("333", "4")]) == "a    long\n---  ----\n1    2\n333  4"
    assert table(("a",), []) == ""
