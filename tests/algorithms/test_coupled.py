"""Mimic joints on the tree's factor: the same accelerations as by the mass matrix, in time proportional to the bodies."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import quickly, relative

import jaxdyn
from jaxdyn.model.random_models import random_tree


def gripper(n: int = 5) -> jaxdyn.Model:
    """Return an arm whose last joint leads two fingers: one beside it, one outboard of it."""
    b = jaxdyn.ModelBuilder("gripper")
    solid = {"mass": 1.3, "com": (0.1, 0.2, -0.1), "inertia": (0.3, 0.2, 0.4)}
    for i in range(n):
        b.add_body(f"link{i}", f"link{i - 1}" if i else None, "revolute", joint_name=f"j{i}", axis=(0.3 * i, 1.0, 0.5),
                   xyz=(0.2, 0.1 * i, 0.3), **solid)  # fmt: skip
    follow = {"follows": f"j{n - 1}", "axis": (0.0, 1.0, 1.0), "xyz": (0.1, 0.0, 0.2)}
    b.add_body("beside", f"link{n - 2}", "prismatic", **follow, **solid, ratio=0.7, offset=0.1)
    b.add_body("outboard", f"link{n - 1}", "revolute", **follow, **solid, ratio=-1.2)
    return b.build()


def accelerations(model, q, qd, form):
    return jaxdyn.forward_dynamics(model, q, qd, jnp.cos(qd), form=form)


def without(model, *bodies):
    """Return the model's inertias with some bodies massless."""
    return jnp.asarray(model.inertia) * np.array([name not in bodies for name in model.body_names])[:, None]


def test_accelerations_equal_those_by_the_mass_matrix():
    """Also where a leader or a follower moves nothing of its own, or a follower does not move: one batch of models."""
    model = gripper()
    q, qd = jnp.linspace(-1, 2, 5), jnp.linspace(1, -1, 5)
    massless = ((), ("beside",), ("outboard",), (), ("link4", "outboard"), ("link4", "beside"))
    inertias = [without(model, *names) for names in massless]
    ratios = jnp.asarray(model.ratio)[None] * jnp.where(np.arange(6)[:, None] == 3, 0.0, 1.0)
    armatures = jnp.array([0.0, 0, 0.2, 0, 0, 0])[:, None] * jnp.ones(5)[None]

    def both(inertia, ratio, armature):
        other = model.replace(inertia=inertia, ratio=ratio, armature=armature)
        return [accelerations(other, q, qd, form) for form in ("sweep", "dense")]

    sweep, dense = quickly(jax.vmap(both))(jnp.stack(inertias), ratios, armatures)
    for ours, matrix in zip(sweep, dense, strict=True):
        assert relative(ours, matrix) < 1e-12
    assert min(np.abs(a - b).max() for a, b in itertools.combinations(dense, 2)) > 1e-3  # six different robots


@pytest.mark.long
def test_floating_trees_of_many_joint_types():
    model = random_tree(6, seed=5, floating_base=True, joints=("spherical", "revolute", "mimic", "universal", "mimic"),
                        armature=True)  # fmt: skip
    assert len(model.topology.mimic_names) > 1
    q, qd = jaxdyn.random_configuration(model, jax.random.key(0)), jnp.linspace(-1, 1, model.nv)
    sweep, dense = quickly(lambda m: [accelerations(m, q, qd, form) for form in ("sweep", "dense")])(model)
    assert relative(sweep, dense) < 1e-11


@pytest.mark.long
def test_derivatives_equal_those_by_the_mass_matrix():
    model, q, qd = gripper(3), jnp.array([0.3, -0.4, 1.1]), jnp.array([1.0, -1, 0.5])
    loss = lambda form: lambda m, q, qd: jnp.sin(accelerations(m, q, qd, form)).sum()
    both = quickly(lambda *args: [jax.grad(loss(form), argnums=(0, 1, 2))(*args) for form in ("sweep", "dense")])
    for (path, ours), theirs in zip(*map(jax.tree_util.tree_leaves_with_path, both(model.moving, q, qd)), strict=True):
        assert np.abs(ours - theirs[1]).max(initial=0) < 1e-11 * (1 + np.abs(theirs[1]).max(initial=0)), path


def test_nothing_of_the_size_of_the_matrix_is_made():
    """Of 60 degrees of freedom, without being asked; by matrices it is."""
    model = gripper(60)
    q = jnp.zeros(60)
    program = lambda form: str(jax.make_jaxpr(lambda q: accelerations(model, q, q, form))(q))
    sizes = lambda form: [
        np.prod([int(n) for n in s.split(",")]) for s in re.findall(r"f64\[([\d,]+)\]", program(form))
    ]
    assert max(sizes("auto")) < 60 * 30
    assert max(sizes("dense")) >= 60 * 60


@pytest.mark.long
def test_a_long_chain_equals_the_matrix():
    model = gripper(60)
    q, qd = jnp.linspace(-1, 2, 60), jnp.linspace(1, -1, 60)
    sweep, dense = quickly(lambda m: [accelerations(m, q, qd, form) for form in ("auto", "dense")])(model)
    assert relative(sweep, dense) < 1e-8  # the matrix loses digits
