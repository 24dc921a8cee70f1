"""The model as a pytree: differentiable, batchable, never retraced for numbers."""

import pickle
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn


@pytest.fixture(scope="module")
def arm():
    return jaxdyn.load("arm7")


def test_flattens_to_arrays_only(arm):
    leaves = jax.tree.leaves(arm)
    assert all(isinstance(x, jax.Array) and x.dtype == jnp.float64 for x in leaves)
    chex.assert_trees_all_equal(jax.tree.map(lambda x: x, arm), arm)


def test_replace_checks_names_and_shapes(arm):
    heavier = arm.replace(inertia=2 * arm.inertia)
    assert jnp.all(heavier.inertia == 2 * arm.inertia)
    assert heavier.topology is arm.topology
    with pytest.raises(ValueError, match=r"no leaf 'inertias': did you mean 'inertia'"):
        arm.replace(inertias=arm.inertia)
    with pytest.raises(ValueError, match=r"gravity must have shape \(3,\).*got \(2,\)"):
        arm.replace(gravity=jnp.zeros(2))
    assert arm.replace(gravity=np.zeros((5, 3))).gravity.shape == (5, 3)  # a batch of models


def test_replaced_leaves_keep_the_type_of_the_model(arm):
    single = arm.astype(jnp.float32)
    assert single.replace(gravity=(0, 0, -10)).gravity.dtype == jnp.float32
    assert single.replace(gravity=np.zeros(3)).dtype == jnp.float32
    assert single.replace(placement=arm.placement).placement.dtype == jnp.float64  # a JAX array knows what it is
    with pytest.raises(ValueError, match="gravity must be real"):
        arm.replace(gravity=jnp.zeros(3) + 0j)


def test_pickled_models_are_equal_in_another_process(arm, tmp_path):
    path = tmp_path / "arm.pickle"
    path.write_bytes(pickle.dumps((arm.topology, arm.geometry)))
    code = f"""
import pickle, jaxdyn
topology, geometry = pickle.load(open({str(path)!r}, "rb"))
arm = jaxdyn.load("arm7")
assert {{topology, arm.topology}} == {{topology}} and {{geometry, arm.geometry}} == {{geometry}}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_astype(arm):
    single = arm.astype(jnp.float32)
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(single))
    with pytest.raises(ValueError, match="floating-point"):
        arm.astype(jnp.int32)


def test_astype_float64_needs_the_flag(float32):
    with pytest.raises(ValueError, match="jax_enable_x64"):
        jaxdyn.load("pendulum").astype(jnp.float64)


def test_inertial_parameters_in_and_out(arm):
    pi = jaxdyn.inertial_parameters(arm)
    assert pi.shape == (arm.nbodies, 10)
    again = jaxdyn.with_inertial_parameters(arm, 3 * pi)
    assert jnp.all(jaxdyn.inertial_parameters(again) == 3 * pi)


def test_batches_of_models(arm):
    """Domain randomisation: vmap over a leaf, and over all leaves."""
    q = jnp.full(7, 0.3)
    offsets = jnp.linspace(0, 1, 4)
    moved = jax.vmap(lambda dz: arm.replace(placement=arm.placement.at[:, 6].add(dz)))(offsets)
    batched = jax.vmap(jaxdyn.forward_kinematics, in_axes=(0, None))(moved, q)
    for i in range(4):
        one = jaxdyn.forward_kinematics(jax.tree.map(lambda x: x[i], moved), q)
        chex.assert_trees_all_close(jax.tree.map(lambda x: x[i], batched), one, atol=1e-14)


def test_numbers_never_retrace_and_equal_models_share_a_trace(arm):
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def tip(model, q):
        return jaxdyn.frame_pose(model, q, "tool").position

    q = jnp.full(7, 0.1)
    first = tip(arm, q)
    assert not jnp.allclose(first, tip(arm.replace(placement=arm.placement.at[:, 4:].multiply(2)), q))
    tip(arm.replace(inertia=arm.inertia * 2, gravity=jnp.zeros(3)), 2 * q)
    tip(jaxdyn.load("arm7"), q)  # another object, equal by value


def test_public_functions_do_not_recompile_for_numbers_or_names(arm):
    q = jnp.full(7, 0.1)
    chex.clear_trace_counter()
    for point in (None, (0.0, 0.0, 0.0)):
        jaxdyn.frame_pose(arm, q, "tool", point)
    before = jaxdyn.algorithms.kinematics._frame_pose.compiled()
    for name in (*arm.body_names, *arm.frame_names):
        jaxdyn.frame_pose(arm.replace(axis=2 * arm.axis), 3 * q, name, point=(0.1, 0.2, 0.3))
    assert jaxdyn.algorithms.kinematics._frame_pose.compiled() == before


def test_repr(arm):
    assert repr(arm) == "Model('arm7': 7 bodies, nq=7, nv=7, 2 frames, float64)"


def test_topology_equality():
    a, b, c = (jaxdyn.load(n).topology for n in ("arm7", "arm7", "pendulum"))
    assert a is not b
    assert a == b
    assert hash(a) == hash(b)
    assert a != c
