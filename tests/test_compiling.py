"""What is called by itself has compiler options of its own; what is a part of a program has those of the whole."""

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import _compiling


@pytest.fixture
def cube(monkeypatch):
    """Return a function whose options ask for what no compiler does, so that it shows where they are used."""
    monkeypatch.setattr(_compiling, "SMALL_LOOPS", {"xla_backend_optimization_level": "none"})
    monkeypatch.setattr(_compiling, "_known", dict)
    power = _compiling.jit(lambda x, n: x**n, static_argnames="n")
    return lambda x: power(x, n=3)


def test_alone_it_is_compiled_with_its_options(cube):
    with pytest.raises(Exception, match="xla_backend_optimization_level"):
        cube(2.0)


def test_as_a_part_it_has_those_of_the_whole(cube):
    assert jax.jit(cube)(2.0) == 8
    assert jax.jit(lambda: cube(2.0))() == 8  # nothing in its arguments says that it is traced
    assert jax.grad(cube)(2.0) == 12
    assert jax.jvp(cube, (2.0,), (1.0,))[1] == 12
    assert jax.vmap(cube)(jnp.array([1.0, 2.0])).tolist() == [1, 8]
    assert jax.eval_shape(cube, 2.0).shape == ()


def test_alone_in_another_thread_too(cube):
    with ThreadPoolExecutor() as pool, pytest.raises(Exception, match="xla_backend_optimization_level"):
        pool.submit(cube, 2.0).result()


def test_alone_is_so_wherever_the_library_was_imported():
    """A program that is being traced may be the first to import it."""
    lines = (
        "import jax, jax.extend.core as core",
        "cube = lambda x: __import__('jaxdyn')._compiling.jit(lambda x: x**3)(x)",
        "print(jax.jit(cube)(2.0), __import__('jaxdyn')._compiling._ALONE == core.get_opaque_trace_state())",
    )
    result = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "8.0 True"


def test_options_that_the_compiler_does_not_know_are_left_out(monkeypatch):
    assert _compiling._known(tuple(jaxdyn.trajopt.SMALL_LOOPS.items())) == jaxdyn.trajopt.SMALL_LOOPS
    monkeypatch.setattr(_compiling, "SMALL_LOOPS", {"no_such_option": False})
    assert _compiling.jit(lambda x: 2 * x)(2.0) == 4


def test_it_is_traced_once():
    traces = []
    double = _compiling.jit(lambda x: traces.append(x) or 2 * x)
    assert [double(x) for x in (1.0, 2.0, 3.0)] == [2, 4, 6]
    assert len(traces) == 1


def test_a_model_is_handed_over_in_one_array():
    model = jaxdyn.load("arm7")
    packed = model.packed
    assert len(jax.tree.leaves(packed)) == 1 < len(jax.tree.leaves(model))
    assert jax.tree.structure(packed.tree()) == jax.tree.structure(model)
    jax.tree.map(np.testing.assert_array_equal, packed.tree(), model)


def test_numbers_of_a_new_model_are_new():
    """What is packed belongs to one model; another with other numbers has its own, and nothing is compiled anew."""
    arm, q = jaxdyn.load("arm7").replace(armature=jnp.zeros(7)), jnp.full(7, 0.3)
    heavy = arm.replace(inertia=2 * arm.inertia)
    traces = []
    mass = _compiling.jit(lambda model, q: traces.append(q) or jaxdyn.mass_matrix(model, q))
    for model, factor in ((arm, 1), (heavy, 2), (arm, 1)):
        np.testing.assert_allclose(mass(model, q), factor * jaxdyn.mass_matrix(arm, q), rtol=1e-12)
    assert len(traces) == 1


def test_what_may_change_or_is_elsewhere_is_not_packed():
    model = jaxdyn.load("arm7")
    changing = jax.tree.map(np.array, model)
    assert changing.packed is None  # NumPy's arrays can be written to
    mixed = model.replace(gravity=model.gravity.astype(jnp.float32))
    assert mixed.packed is None
    jax.jit(lambda model: pytest.fail("packed") if model.packed else None)(model)
    before = jaxdyn.potential_energy(changing, jnp.zeros(7))
    assert before == jaxdyn.potential_energy(model, jnp.zeros(7))
    changing.gravity[:] *= 2
    assert jaxdyn.potential_energy(changing, jnp.zeros(7)) == 2 * before


def test_a_model_that_is_bound_to_no_device_stays_so():
    """So that single results mix with arrays on other devices; one that is bound stays bound."""
    model = jaxdyn.load("arm7")
    assert not model.packed.numbers.committed
    assert not jaxdyn.mass_matrix(model, jnp.zeros(7)).committed
    bound = jax.device_put(model, jax.devices()[0])
    assert bound.packed.numbers.committed


def test_what_is_cached_is_not_copied():
    model = jaxdyn.load("arm7")
    size = len(pickle.dumps(model))
    jaxdyn.mass_matrix(model, jnp.zeros(7))
    assert len(pickle.dumps(model)) == size
    assert "packed" not in vars(copy.copy(model).moving)
