"""A strict environment: float64, no silent rank promotion; long sweeps only when asked for."""

import gc
import importlib.metadata
import os
from pathlib import Path

# What tests wait for is the compiler: XLA's older code generator, without optimisation, takes less than half as long, and
# is right as often. Read when JAX is imported; also by the programs that tests start.
os.environ["XLA_FLAGS"] = (
    "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    + os.environ.get("XLA_FLAGS", "")
)
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"  # programs do not note the lines of Python that they are made of

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.model.random_models import MOVING_JOINTS, random_tree

gc.set_threshold(200_000)  # tracing makes many small objects that stay, and looking through them often takes long
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

# The same examples every time, and no deadline: a busy machine is not a failure.
hypothesis.settings.register_profile("jaxdyn", deadline=None, derandomize=True)
hypothesis.settings.load_profile("jaxdyn")


@pytest.fixture(scope="module", autouse=True)
def few_programs_in_memory():
    """Forget compiled programs before they are too many: Linux gives a process 65530 pieces of memory, each takes some."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_text().count("\n") > 40_000:
        jax.clear_caches()
        gc.collect()


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run the long sweeps too")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="a long sweep; `make test-long` runs it")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def robot_data() -> Path:
    """Folder of the real robots in the package example-robot-data."""
    try:
        files = importlib.metadata.files("example-robot-data") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package example-robot-data is not installed")
    urdf = next(file for file in files if "/robots/" in str(file) and str(file).endswith(".urdf"))
    path = Path(str(urdf.locate())).resolve()
    return next(parent for parent in path.parents if parent.name == "robots")


@pytest.fixture
def float32():
    """JAX's own default: 32-bit floats, for the length of one test."""
    with jax.enable_x64(False):
        yield jnp.float32


@pytest.fixture(scope="session")
def forest() -> jaxdyn.Model:
    """Three trees, one on a floating base, with every joint type; shared, since every model compiles anew."""
    return random_tree(13, seed=2, roots=3, floating_base=True, joints=(*MOVING_JOINTS, "mimic", "fixed"))


@pytest.fixture(scope="session")
def rng():
    return np.random.default_rng(20261116)
