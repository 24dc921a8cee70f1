"""Every example runs."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("[0-9]*.py"))
LONG = {
    "00_demo",  # `make demo` runs it
    "10_reaching", "12_jump", "13_collocation", "14_policy", "20_identification", "21_fit_trajectories", "22_excitation",
    "32_force_control", "34_lqr", "35_inverse_kinematics",
}  # fmt: skip


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem, marks=[pytest.mark.long] if p.stem in LONG else []) for p in EXAMPLES]
)
def test_example(path, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_there_are_examples():
    assert EXAMPLES
