"""Batches of any one argument, all others being single, and of none at all."""

from functools import partial

import jax
import numpy as np
import pytest
from helpers.states import long, quickly, random_state

import jaxdyn
from jaxdyn.model.random_models import random_chain


def everything(model, s):
    """Return what all functions say."""
    q, qd, qdd, tau, f_ext = (s[name] for name in ("q", "qd", "qdd", "tau", "f_ext"))
    base = s["base"]
    return {
        "inverse_dynamics": jaxdyn.inverse_dynamics(model, q, qd, qdd, f_ext=f_ext, base_motion=base),
        "forward_dynamics": jaxdyn.forward_dynamics(model, q, qd, tau, f_ext=f_ext, base_motion=base),
        "gravity_force": jaxdyn.gravity_force(model, q),
        "mass_matrix": jaxdyn.mass_matrix(model, q),
        "mass_matrix_inverse": jaxdyn.mass_matrix_inverse(model, q),
        "coriolis_matrix": jaxdyn.coriolis_matrix(model, q, qd),
        "kinetic_energy": jaxdyn.kinetic_energy(model, q, qd),
        "power": jaxdyn.power(model, q, qd, tau, f_ext=f_ext),
        "centroidal_momentum_bias": jaxdyn.centroidal_momentum_bias(model, q, qd),
        "body_velocities": jaxdyn.body_velocities(model, q, qd, base_motion=base),
        "body_accelerations": jaxdyn.body_accelerations(model, q, qd, qdd, base_motion=base),
        "jacobian": jaxdyn.jacobian(model, q, "tip", s["point"]),
        "frame_acceleration": jaxdyn.frame_acceleration(model, q, qd, qdd, "tip", s["point"], base_motion=base),
    }


def with_point(model, seed=0):
    v0, a0, point = np.split(np.random.default_rng(seed).normal(size=15), [6, 12])
    return random_state(model, seed) | {"base": (v0, a0), "point": point}


@pytest.mark.parametrize(
    "joints", [("prismatic",), long(("free",)), long(("revolute",)), long(("revolute", "spherical"))]
)
def test_a_batch_of_any_one_argument(joints):
    """Three of the one, one of all others; also of a leaf of the model; and none at all."""
    model = random_chain(len(joints), seed=1, joints=joints, armature=True)
    s = with_point(model)
    parts = {"q": ("q",), "qd": ("qd",), "qdd": ("qdd",), "base": ("base", 0), "point": ("point",)}
    leaves = ("placement", "inertia", "armature", "gravity", "frame_placement", *model.topology.joint_leaves)

    def at(path, x):
        if path[0] in leaves:
            return everything(model.replace(**{path[0]: x}), s)
        return everything(model, s | {path[0]: x if len(path) == 1 else (x, s["base"][1])})

    shapes = jax.eval_shape(lambda: everything(model, s))
    for path in (*parts.values(), *((leaf,) for leaf in leaves)):
        x = np.asarray(getattr(model, path[0]) if path[0] in leaves else s["base"][0] if len(path) > 1 else s[path[0]])
        for count in (3, 0):
            found = jax.eval_shape(jax.vmap(partial(at, path)), np.stack([x] * 3)[:count])
            assert {n: a.shape for n, a in found.items()} == {n: (count, *a.shape) for n, a in shapes.items()}, path
    path = ("inertia",) if joints == ("prismatic",) else ("base", 0)
    x = np.asarray(model.inertia if path == ("inertia",) else s["base"][0])
    batch = np.stack([x, 1.1 * x, 1.2 * x])
    found = quickly(jax.vmap(partial(at, path)))(batch)
    one = quickly(partial(at, path))
    for k in range(3):
        for name, value in one(batch[k]).items():
            np.testing.assert_allclose(found[name][k], value, rtol=1e-11, atol=1e-11, err_msg=name)
