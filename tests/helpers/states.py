"""States of robots, what dynamics makes of them, and how tests compile and compare it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.model.random_models import random_chain, random_tree

# What counts is the time to compile; these options make that quicker, and the code no worse.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
FORMS = ("sweep", "dense")
long = partial(pytest.param, marks=pytest.mark.long)


def quickly(f, **options):
    """Compile a function, and let it return NumPy arrays."""
    compiled = jax.jit(f, compiler_options=QUICK, **options)
    return lambda *args: jax.tree.map(np.asarray, compiled(*args))


def relative(a, b, scale=None):
    """Return max|a - b| / max|b|, or in units of a given scale."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    scale = np.abs(b).max() if scale is None else scale
    assert np.isfinite(scale)
    assert scale > 0
    return np.abs(a.astype(np.float64) - b).max() / scale


def random_state(model, seed=0):
    """Return a state and what acts on it; quaternions are not of length one."""
    normal = np.random.default_rng(seed).normal
    q = np.asarray(jaxdyn.neutral(model)) + normal(size=model.nq)
    qd, qdd, tau = normal(size=(3, model.nv))
    return {"q": q, "qd": qd, "qdd": qdd, "tau": tau, "f_ext": normal(size=(model.nbodies, 6))}


def stacked(trees):
    return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(a) for a in x]), *trees)


def forces(model, s, form="auto", base_motion=None):
    """Return what every form computes; by matrices, accelerations are refused in float32."""
    extra = {"f_ext": s["f_ext"], "base_motion": base_motion, "form": form}
    found = {
        "tau": jaxdyn.inverse_dynamics(model, s["q"], s["qd"], s["qdd"], **extra),
        "M": jaxdyn.mass_matrix(model, s["q"], form=form),
    }
    if form == "dense" and model.dtype == np.float32:
        return found
    return found | {"qdd": jaxdyn.forward_dynamics(model, s["q"], s["qd"], s["tau"], **extra)}


in_form = {form: quickly(partial(forces, form=form)) for form in FORMS}


def geared():
    """Return an arm whose last joint follows the first."""
    builder = jaxdyn.ModelBuilder("geared")
    links = {"mass": 1.0, "com": (0.1, 0.0, 0.3), "inertia": (0.1, 0.2, 0.15)}
    builder.add_body("a", joint_name="first", axis=(0, 1, 0), **links)
    builder.add_body("b", "a", xyz=(0, 0, 1), joint_name="second", axis=(1, 0, 0), armature=0.1, **links)
    return builder.add_body("c", "b", xyz=(0, 0, 1), axis=(0, 1, 1), follows="first", ratio=-0.5, **links).build()


def in_single(x):
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), x)


KINDS = {
    "chain": lambda: random_chain(3, seed=1, armature=True),
    "columns that turn in the body": lambda: random_chain(3, seed=3, joints=("universal", "revolute", "planar")),
    "tree on a floating base": lambda: random_tree(
        5, seed=2, joints=("revolute", "prismatic", "spherical"), floating_base=True, armature=True
    ),
    "forest": lambda: random_tree(
        6, seed=4, joints=("helical", "universal", "cylindrical", "translation"), roots=2, armature=True
    ),
    "mimic": geared,
}
"""Small models which together have all joint types."""
