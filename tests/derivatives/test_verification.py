"""The check of derivatives, and that it finds what is wrong."""

import jax
import jax.numpy as jnp
import pytest
from helpers.states import long

import jaxdyn
from jaxdyn import diagonal
from jaxdyn.algorithms import sensitivity
from jaxdyn.cli import main
from jaxdyn.derivatives import verify

SOME = ("mass_matrix", "kinetic_energy", "difference")
SOLVED = ("mass_matrix_inverse", "accelerations, by inertia")


def test_a_sound_model(capsys):
    seen = []
    found = verify(jaxdyn.load("double_pendulum"), jax.random.key(1), functions=SOME, progress=seen.append)
    assert found.ok
    assert [row.name for row in found.rows] == list(SOME)
    assert tuple(seen) == found.rows
    lines = str(found).splitlines()
    assert lines[0].split() == ["derivatives", "of", "forward", "reverse", "differences"]
    assert lines[1].startswith("mass_matrix")


def test_what_is_solved_for():
    found = verify(jaxdyn.load("double_pendulum"), jax.random.key(1), functions=SOLVED)
    assert found.ok, found
    assert [row.name for row in found.rows] == list(SOLVED)


def test_nothing_to_differentiate(tmp_path, capsys):
    """A model that cannot move has no rows, in Python and on the command line."""
    found = verify(jaxdyn.ModelBuilder("rock").build(), jax.random.key(0))
    assert found.ok
    assert found.rows == ()
    path = tmp_path / "rock.urdf"
    path.write_text('<robot name="rock"><link name="rock"/></robot>')
    assert main(["check", str(path), "--derivatives"]) == 0
    assert "the robot cannot move" in capsys.readouterr().out


def test_a_wrong_entry_is_found(monkeypatch):
    right = sensitivity.mass_matrix_sensitivity
    wrong = lambda model, q: right(model, q).at[0, 1, 1].multiply(1 + 1e-6)
    monkeypatch.setattr(sensitivity, "mass_matrix_sensitivity", wrong)
    found = verify(jaxdyn.load("double_pendulum"), jax.random.key(1), functions=["mass_matrix"])
    assert not found.ok
    assert str(found).endswith("differ")
    assert min(found.rows[0][1:3]) > 1e-8


def test_nan_is_not_well(monkeypatch):
    nothing = lambda model, q: jnp.full((2, 2, 2), jnp.nan)
    monkeypatch.setattr(sensitivity, "mass_matrix_sensitivity", nothing)
    assert not verify(jaxdyn.load("double_pendulum"), jax.random.key(1), functions=["mass_matrix"]).ok


def test_unknown_functions_are_named():
    with pytest.raises(ValueError, match="no derivatives of 'mass_matrx'.*mass_matrix"):
        verify(jaxdyn.load("pendulum"), jax.random.key(0), functions=["mass_matrx"])
    with pytest.raises(TypeError, match="model must be a jaxdyn.Model"):
        verify("pendulum", jax.random.key(0))


@pytest.mark.parametrize("robot", [long("arm7"), long("quadruped")])
def test_every_function(robot):
    found = verify(jaxdyn.load(robot), jax.random.key(0))
    assert len(found.rows) == 25
    assert found.ok, found


DIAGONAL = (
    "diagonal.coriolis",
    "diagonal.coriolis_xi",
    "diagonal.coriolis: no work",
    "diagonal.rates",
    "diagonal factor m",
)


@pytest.mark.long
def test_the_diagonalised_equations():
    found = verify(jaxdyn.load("double_pendulum"), jax.random.key(1), functions=DIAGONAL, samples=2)
    assert found.ok, found
    assert len(found.rows) == 5


@pytest.mark.long
def test_a_wrong_coriolis_term_is_found(monkeypatch):
    right = diagonal.coriolis
    monkeypatch.setattr(diagonal, "coriolis", lambda model, q, nu: right(model, q, nu) + 1e-6 * nu)
    found = verify(jaxdyn.load("double_pendulum"), jax.random.key(1), functions=DIAGONAL[:1], samples=2)
    assert [row.ok for row in found.rows] == [False]


@pytest.mark.long
def test_on_the_command_line(capsys):
    assert main(["check", "pendulum", "--derivatives"]) == 0
    out = capsys.readouterr().out
    for word in ("forward_dynamics", "differences", "all is well"):
        assert word in out
