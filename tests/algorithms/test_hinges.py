"""The numbers of a model in axes turned to its hinges, against the spatial types that say the same one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.algorithms.hinges import Frames
from jaxdyn.recursion import unpacked
from jaxdyn.spatial import Force

N = 60


@pytest.fixture
def numbers(rng):
    """Axes of any length, some along -z, z and across the edge between; placements; inertias. Batch last."""
    axis = rng.normal(size=(N, 3)) * 10.0 ** rng.integers(-6, 7, (N, 1))
    axis[:4] = [0, 0, 1], [0, 0, -2], [1e-9, 0, -1], [0.43588989, 0, -0.9]
    arrays = axis, rng.normal(size=(N, 7)), rng.normal(size=(N, 10))
    return tuple(jnp.asarray(x)[..., None] for x in arrays)


def test_matrices_of_all_links_say_what_the_formulas_of_spatial_say(numbers):
    """For one model; a batch of two equal models takes those formulas."""
    axis, placement, inertia = numbers
    links = np.arange(5, N, dtype=np.int32)
    parents = links - np.where(links % 7 == 0, 6, 1).astype(np.int32)  # some hang on body 1, which is no hinge
    frames = Frames(placement, axis), Frames(*(jnp.repeat(x, 2, axis=-1) for x in (placement, axis)))
    one, two = (f.hinges(links, parents) for f in frames)
    f = Force.from_array(jnp.asarray(np.random.default_rng(1).normal(size=(len(links), 1, 6))))
    for first, second in (
        (one.placement.unpack(), two.placement),
        (unpacked(one.inertias(inertia[5:])), two.inertias(inertia[5:])),
        (unpacked(one.inertias(inertia[5:])), one.inertias(jnp.repeat(inertia[5:], 2, axis=-1))),
        (one.forces(f), two.forces(f)),
        tuple(f.placements(links) for f in frames),
    ):
        for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
            np.testing.assert_allclose(np.broadcast_to(a, b.shape), b, atol=1e-13)


def test_derivatives_are_finite_for_axes_along_z(numbers):
    axis, placement, inertia = numbers
    links = np.arange(N, dtype=np.int32)

    def total(axis):
        on = Frames(placement, axis).hinges(links, links - 1)
        return sum(x.sum() for x in jax.tree.leaves((on.placement, on.inertias(inertia))))

    assert np.all(np.isfinite(jax.jit(jax.grad(total))(axis)))
