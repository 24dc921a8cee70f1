"""integrate, difference, neutral, random_configuration on models with every joint type."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.model.random_models import MOVING_JOINTS


def draw(model, count):
    keys = jax.random.split(jax.random.key(0), count)
    return jax.vmap(jaxdyn.random_configuration, in_axes=(None, 0))(model, keys)


def test_the_tree_has_every_joint_type(forest):
    assert set(forest.joint_types) == {*MOVING_JOINTS, "mimic"}


def test_integrate_and_difference_are_inverse(forest):
    q = draw(forest, 50)
    dq = jax.random.uniform(jax.random.key(1), (50, forest.nv), minval=-1.5, maxval=1.5)
    integrate, difference = (jax.vmap(f, in_axes=(None, 0, 0)) for f in (jaxdyn.integrate, jaxdyn.difference))
    there = integrate(forest, q, dq)
    np.testing.assert_allclose(difference(forest, q, there), dq, atol=1e-12)
    np.testing.assert_allclose(integrate(forest, q, jnp.zeros_like(dq)), q, atol=1e-14)
    poses = jax.vmap(jaxdyn.forward_kinematics, in_axes=(None, 0))
    other = draw(forest, 50)[::-1]
    arrived = integrate(forest, q, difference(forest, q, other))
    np.testing.assert_allclose(poses(forest, arrived).position, poses(forest, other).position, atol=1e-11)


def test_random_configurations_lie_within_limits(forest):
    bounded = forest.replace(lower=jnp.full(forest.nq, -0.5), upper=jnp.full(forest.nq, 0.25))
    q = draw(bounded, 200)
    for name, kind in zip(forest.joint_names, forest.joint_types, strict=True):
        if kind not in ("spherical", "free"):
            part = q[:, forest.q_slice(name)]
            assert jnp.all((part >= -0.5) & (part < 0.25)), name


def test_neutral_is_neutral(forest):
    q = jaxdyn.neutral(forest)
    np.testing.assert_allclose(jaxdyn.difference(forest, q, q), jnp.zeros(forest.nv))
    assert q.dtype == forest.dtype


def test_unnormalised_quaternions_mean_the_same(forest):
    q = draw(forest, 1)[0]
    scaled = q
    for name, kind in zip(forest.joint_names, forest.joint_types, strict=True):
        if kind in ("spherical", "free"):
            at = forest.q_slice(name).start
            scaled = scaled.at[at : at + 4].multiply(3.0)
    a, b = (jaxdyn.forward_kinematics(forest, x) for x in (q, scaled))
    np.testing.assert_allclose(a.position, b.position, atol=1e-13)
    np.testing.assert_allclose(jaxdyn.difference(forest, q, scaled), jnp.zeros(forest.nv), atol=1e-14)


def test_ten_thousand_steps_keep_unit_quaternions():
    model = jaxdyn.load("quadruped")
    dq = jnp.linspace(-0.1, 0.1, model.nv)
    q = jax.lax.fori_loop(0, 10_000, lambda _, q: jaxdyn.integrate(model, q, dq), jaxdyn.neutral(model))
    assert abs(jnp.linalg.norm(q[:4]) - 1) < 1e-12


def test_bad_arguments_are_named():
    model = jaxdyn.load("arm7")
    q = jaxdyn.neutral(model)
    with pytest.raises(ValueError, match=r"dq must have shape \(7,\), one number per degree of freedom; got \(6,\)"):
        jaxdyn.integrate(model, q, q[:6])
    with pytest.raises(ValueError, match=r"q1 must have shape \(7,\).*got \(2, 7\); use jax.vmap for a batch"):
        jaxdyn.difference(model, q, jnp.stack([q, q]))
    with pytest.raises(ValueError, match="must be real"):
        jaxdyn.forward_kinematics(model, q + 0j)


def test_single_precision(float32):
    model = jaxdyn.load("quadruped")
    q = jaxdyn.random_configuration(model, jax.random.key(0))
    dq = jnp.full(model.nv, 0.3)
    assert q.dtype == jnp.float32
    np.testing.assert_allclose(jaxdyn.difference(model, q, jaxdyn.integrate(model, q, dq)), dq, atol=2e-6)
