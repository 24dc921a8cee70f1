"""The adjoint of inverse dynamics in closed form is what JAX makes of the kernel itself."""

import jax
import numpy as np
import pytest
from helpers.states import geared, quickly, random_state, relative

import jaxdyn
from jaxdyn.algorithms.articulation import tile_of_rows
from jaxdyn.algorithms.rnea import inverse_dynamics_kernel, inverse_dynamics_of_state
from jaxdyn.model.random_models import random_tree
from jaxdyn.recursion import batched

BY_AUTODIFF = batched(inverse_dynamics_kernel, tile=tile_of_rows())
IN_CLOSED_FORM = inverse_dynamics_of_state("sweep")
WANTED = ("inertia", "armature", "q", "qd", "qdd", "f_ext")


def gradients(function, model, base_motion):
    """Return the gradients of x . ID by all that the closed form serves."""

    def pulled(x, *values):
        at = lambda inertia, armature, *rest: function(
            model.replace(inertia=inertia, armature=armature).moving, *rest, base_motion
        )
        return dict(zip(WANTED, jax.vjp(at, *values)[1](x), strict=True))

    return quickly(pulled)


@pytest.mark.parametrize(
    ("make", "based"),
    [
        (lambda: random_tree(10, armature=True), False),
        (lambda: random_tree(6, floating_base=True, roots=2, seed=3, armature=True), True),
        (geared, False),
    ],
    ids=["tree", "floating forest on a moving base", "geared"],
)
def test_closed_form_is_the_transposed_derivative(make, based):
    model = make()
    s = random_state(model)
    base_motion = tuple(np.random.default_rng(5).normal(size=(2, 6))) if based else None
    args = s["tau"], model.inertia, model.armature, *(s[name] for name in WANTED[2:])
    found, right = (gradients(f, model, base_motion)(*args) for f in (IN_CLOSED_FORM, BY_AUTODIFF))
    for name in WANTED:
        assert relative(found[name], right[name]) < 1e-13, name


def test_forces_at_no_acceleration():
    """Without qdd, armature does not enter."""
    model = jaxdyn.load("arm7").moving
    s = random_state(model)

    def gradient(function):
        of = lambda inertia, armature, q, qd: function(
            model.replace(inertia=inertia, armature=armature), q, qd, None, None, None
        )
        return quickly(lambda *args: jax.vjp(of, *args)[1](s["tau"]))(model.inertia, model.armature, s["q"], s["qd"])

    found, right = gradient(IN_CLOSED_FORM), gradient(BY_AUTODIFF)
    assert not np.any(right[1])
    assert not np.any(found[1])
    for i in (0, 2, 3):
        assert relative(found[i], right[i]) < 1e-13


def test_it_is_used_where_it_serves():
    """It takes one sweep outward and one inward; a gradient by axes does without it."""
    model = jaxdyn.load("arm7").moving
    s = random_state(model)
    by_state = lambda function: lambda q: function(model, q, s["qd"], s["qdd"], None, None)
    by_axes = lambda function: lambda axis: function(model.replace(axis=axis), *(s[n] for n in WANTED[2:5]), None, None)

    def sweeps(function, at):
        return jax.jit(lambda x: jax.vjp(function, x)[1](s["tau"])).lower(at).as_text().count("stablehlo.while")

    assert (sweeps(by_state(IN_CLOSED_FORM), s["q"]), sweeps(by_state(BY_AUTODIFF), s["q"])) == (2, 4)
    assert sweeps(by_axes(IN_CLOSED_FORM), model.axis) == sweeps(by_axes(BY_AUTODIFF), model.axis) == 4
