"""Derivatives of frames' motion, momentum and energies, of second order too, equal those by automatic differentiation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import KINDS, long, quickly, random_state, relative

import jaxdyn
from jaxdyn import derivatives
from jaxdyn.model.random_models import random_tree

SMALL = {"universal joint on a floating base": lambda: random_tree(
    2, seed=2, joints=("universal",), floating_base=True, armature=True
)}  # fmt: skip
POINT = (0.1, -0.2, 0.3)


@pytest.mark.parametrize("kind", [*SMALL, *map(long, KINDS)])
def test_frames_momentum_and_energies(kind):
    """On a moving base, at a point of the last body."""
    model = (KINDS | SMALL)[kind]().replace(gravity=(1.0, 2.0, -9.0))
    model = model.replace(stiffness=np.linspace(1.0, 2.0, model.nv))
    frame, base = model.body_names[-1], tuple(np.random.default_rng(2).normal(size=(2, 6)))
    in_motion = {"frame": frame, "point": POINT, "base_motion": base}
    cases = {
        "frame_velocity_derivatives": (("qd",), in_motion),
        "frame_acceleration_derivatives": (("qd", "qdd"), in_motion),
        "centroidal_momentum_derivatives": (("qd",), {}),
        "kinetic_energy_derivatives": (("qd",), {}),
        "potential_energy_derivatives": ((), {}),
    }

    def everything(suffix, s):
        of = lambda name: getattr(derivatives, name + suffix)
        return {n: of(n)(model, s["q"], *(s[k] for k in names), **extra) for n, (names, extra) in cases.items()}

    s = random_state(model)
    found, right = (quickly(partial(everything, suffix))(s) for suffix in ("", "_autodiff"))
    for name in cases:
        for a, b in zip(jax.tree.leaves(found[name]), jax.tree.leaves(right[name]), strict=True):
            assert relative(a, b) < 1e-11, name


@pytest.mark.parametrize("kind", ["chain", long("columns that turn in the body")])
def test_second_derivatives_of_inverse_dynamics(kind):
    """They are the Hessian of x . ID, by JAX from the plain twin."""
    model = KINDS[kind]()
    s = random_state(model)
    found = quickly(partial(derivatives.inverse_dynamics_second_derivatives, model))(*(s[n] for n in NAMES))

    def value(dq, qd, qdd):
        return s["tau"] @ jaxdyn.plain.inverse_dynamics(model, jaxdyn.integrate(model, s["q"], dq), qd, qdd)

    hessian = quickly(jax.hessian(value, argnums=(0, 1, 2)))(jnp.zeros(model.nv), s["qd"], s["qdd"])
    wanted = {"q_q": hessian[0][0], "q_qd": hessian[0][1], "qd_qd": hessian[1][1], "q_qdd": hessian[0][2]}
    for name, right in wanted.items():
        assert relative(getattr(found, name), right) < 1e-11, name
    assert not np.any(hessian[1][2])
    assert not np.any(hessian[2][2])


NAMES = ("q", "qd", "qdd", "tau")


def test_a_frame_on_the_world_does_not_move():
    builder = jaxdyn.ModelBuilder("r").add_body("a", mass=1.0, inertia=(1, 1, 1)).add_frame("here", None)
    model = builder.build()
    for matrix in derivatives.frame_velocity_derivatives(model, [0.3], [1.0], "here"):
        assert matrix.shape == (6, 1)
        assert not np.any(matrix)
