"""The numbers of a model in axes turned to its hinges, against the spatial types that say the same one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.algorithms import hinges
from jaxdyn.spatial import RigidInertia, Transform, Vec3, align_z

N = 60


@pytest.fixture
def numbers(rng):
    """Axes of any length, some along -z, z and across the edge between; placements; inertias. Batch last."""
    axis = rng.normal(size=(N, 3)) * 10.0 ** rng.integers(-6, 7, (N, 1))
    axis[:4] = [0, 0, 1], [0, 0, -2], [1e-9, 0, -1], [0.43588989, 0, -0.9]
    arrays = axis, rng.normal(size=(N, 7)), rng.normal(size=(N, 10))
    return tuple(jnp.asarray(x)[..., None] for x in arrays)


def components(tree):
    return np.stack([np.broadcast_to(np.asarray(x).reshape(-1), (N,)) for x in jax.tree.leaves(tree)])


def test_axes_placements_and_inertias(numbers):
    axis, placement, inertia = numbers
    Q = hinges.hinge_axes(axis)
    one_by_one = align_z(Vec3.from_array(axis[..., 0]).normalized())
    np.testing.assert_allclose(components(hinges.matrix(Q)), components(one_by_one), atol=1e-14)

    X = Transform.from_pose(placement[..., 0])
    np.testing.assert_allclose(components(hinges.placements(placement)), components(X), atol=1e-14)

    parent = hinges.hinge_axes(axis[::-1])
    Q_p = align_z(Vec3.from_array(axis[::-1, :, 0]).normalized())
    wanted = Transform(Q_p.T @ X.R @ one_by_one, Q_p.T @ X.p)
    found = hinges.hinge_placements(placement, parent, Q).unpack()
    np.testing.assert_allclose(components(found), components(wanted), atol=1e-13)

    wanted = RigidInertia.from_parameters(inertia[..., 0]).rotate(one_by_one.T)
    np.testing.assert_allclose(components(hinges.hinge_inertias(inertia, Q)), components(wanted), atol=1e-13)


def test_derivatives_are_finite_for_axes_along_z(numbers):
    axis, _, inertia = numbers
    total = lambda axis: sum(x.sum() for x in jax.tree.leaves(hinges.hinge_inertias(inertia, hinges.hinge_axes(axis))))
    assert np.all(np.isfinite(jax.jit(jax.grad(total))(axis)))
