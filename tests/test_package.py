"""The package as a whole: layers, public names, what importing does, examples in docstrings."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import jaxdyn

ROOT = Path(jaxdyn.__file__).parent

# A module imports from its own layer or below.
LAYERS = [
    {"_numerics", "_checks", "_version", "_compiling"},
    {"spatial"},
    {"joints"},
    {"model"},
    {"recursion"},
    {"algorithms"},
    {"operators", "estimation", "parallel", "diagonal"},
    {"derivatives"},
    {"simulate"},
    {"control", "trajopt", "sysid"},
    {"viz"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
IO_SEES = {"_numerics", "_checks", "_version", "spatial", "joints", "model", "io"}
TOP = {"cli", "__main__", "__init__"}


def modules():
    return sorted(ROOT.rglob("*.py"))


def imports(path):
    """The parts of jaxdyn that a module imports, those inside functions and for type checking included."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [node.module]
            if node.module == "jaxdyn":
                names = [f"jaxdyn.{alias.name}" for alias in node.names]
        for name in names:
            if name.split(".")[0] == "jaxdyn":
                yield name.split(".")[1] if "." in name else ""


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_layering(path):
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if part in TOP:
        return
    for imported in imports(path):
        if part == "io":
            assert imported in IO_SEES, f"io sees the model and below, not {imported}"
        else:
            assert imported in LEVEL, f"{path} imports {imported!r}, which is no layer below"
            assert LEVEL[imported] <= LEVEL[part], f"{part} is below {imported}"


def test_every_part_has_a_layer():
    parts = {p.relative_to(ROOT).parts[0].removesuffix(".py") for p in modules()}
    assert parts <= set(LEVEL) | TOP | {"io"}


PUBLIC = """
    load save lock_joints subtree add_rotors Rotor neutral random_configuration integrate difference inertial_parameters
    with_inertial_parameters forward_kinematics frame_pose frame_poses Model ModelBuilder ModelError ModelWarning
    Poses io joints model spatial algorithms recursion plain derivatives operators estimation parallel diagonal simulate control trajopt sysid viz rollout gibbs_function reaction_forces
    body_velocities body_accelerations frame_velocity frame_acceleration jacobian jacobian_bias
    inverse_dynamics bias_force gravity_force forward_dynamics mass_matrix mass_matrix_inverse
    coriolis_matrix coriolis_product kinetic_energy potential_energy passive_force power
    center_of_mass center_of_mass_jacobian centroidal_momentum centroidal_momentum_matrix centroidal_momentum_bias
""".split()
PUBLIC_IO = "load save to_urdf to_mjcf to_pinocchio from_pinocchio to_mujoco from_mujoco parse_urdf parse_mjcf update_urdf".split()
PUBLIC_MODEL = """
    nq nv nbodies body_names joint_names parents gravity placement axis inertia armature damping friction stiffness
    rest lower upper velocity_limit effort_limit geometry v_s pitch ratio offset
""".split()


def test_public_names():
    found = {name for name in dir(jaxdyn) if not name.startswith("_")}
    assert found - {"cli"} == set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC_IO)
def test_public_names_of_io(name):
    assert callable(getattr(jaxdyn.io, name))


def test_public_attributes_of_a_model():
    model = jaxdyn.load("arm7")
    assert all(hasattr(model, name) for name in PUBLIC_MODEL)
    assert model.placement.shape == (7, 7)


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_is_documented(name):
    assert (getattr(jaxdyn, name).__doc__ or "").strip()


def run(code):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_changes_nothing_and_is_quick():
    code = """
import time, sys
import jax, jax.numpy
before, start = dict(jax.config.values), time.process_time()
import jaxdyn
print(time.process_time() - start)
assert dict(jax.config.values) == before
assert not {"mujoco", "pinocchio", "optax", "chex"} & set(sys.modules)
"""
    assert min(float(run(code)) for _ in range(3)) < 0.5


UPPER = ("operators", "estimation", "parallel", "diagonal", "derivatives", "simulate", "control", "trajopt", "sysid")


@pytest.mark.parametrize("upper", [False, pytest.param(True, marks=pytest.mark.long)])
def test_examples_in_docstrings(upper):
    """In JAX's default configuration, in a process of their own."""
    code = f"""
import doctest, importlib, pkgutil, sys
import jaxdyn
failed = tried = 0
for info in [*pkgutil.walk_packages(jaxdyn.__path__, "jaxdyn."), None]:
    module = jaxdyn if info is None else importlib.import_module(info.name) if "__main__" not in info.name else None
    if module is not None and (module.__name__.partition(".")[2].startswith({UPPER}) == {upper}):
        result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
        failed, tried = failed + result.failed, tried + result.attempted
print(tried)
sys.exit(failed > 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.split()[-1]) > 20
