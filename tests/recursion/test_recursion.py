"""The tree is cut into limbs so that every body follows its parent, and swept in that order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.model.random_models import random_tree
from jaxdyn.recursion import limb_groups, outward

CHAIN = (-1, 0, 1, 2, 3)
STAR = (-1, 0, 0, 0)
QUADRUPED = (-1, 0, 1, 2, 0, 4, 5, 0, 7, 8, 0, 10, 11)
FOREST = (-1, 0, -1, 2, 3, 3, -1)
UNEVEN = (-1, 0, 1, 0, 3, 4, 4, 6, 0)  # limbs whose parents lie in different groups
TREES = {"chain": CHAIN, "star": STAR, "quadruped": QUADRUPED, "forest": FOREST, "uneven": UNEVEN, "one": (-1,)}


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES.keys())
def test_every_body_is_crossed_once_after_its_parent(parents):
    seen, tips = [], [-1]
    for group in limb_groups(parents):
        for lane in range(group.bodies.shape[1]):
            limb = group.bodies[:, lane].tolist()
            assert parents[limb[0]] == tips[group.start[lane]]
            assert [parents[b] for b in limb[1:]] == limb[:-1]
            seen += limb
        tips += group.bodies[-1].tolist()
    assert sorted(seen) == list(range(len(parents)))


def test_equal_limbs_share_a_scan():
    assert [g.bodies.shape for g in limb_groups(QUADRUPED)] == [(1, 1), (3, 4)]
    assert len(limb_groups(CHAIN)) == 1


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES.keys())
def test_outward_sums_along_every_path(parents):
    """The sum from the root to each body, against a plain loop."""
    values = np.arange(1.0, len(parents) + 1)

    def step(total, body):
        total = total + body
        return total, (total, -total)

    plus, minus = jax.jit(lambda x: outward(parents, step, 100.0, x))(jnp.array(values))
    expected = np.zeros(len(parents))
    for i, p in enumerate(parents):
        expected[i] = values[i] + (100.0 if p < 0 else expected[p])
    np.testing.assert_array_equal(plus, expected)
    np.testing.assert_array_equal(minus, -expected)


def test_outward_over_nothing():
    result = outward((), lambda a, b: (a, (a + b, b)), 1.0, jnp.zeros(0))
    assert [x.shape for x in result] == [(0,), (0,)]


def test_outward_on_large_random_trees():
    parents = random_tree(60, seed=5, joints=("revolute",), roots=3, branching=0.7).parents
    depth = np.zeros(60)
    for i, p in enumerate(parents):
        depth[i] = 1 + (0 if p < 0 else depth[p])
    step = lambda a, b: (a + b, a + b)
    np.testing.assert_array_equal(jax.jit(lambda x: outward(parents, step, 0.0, x))(jnp.ones(60)), depth)
