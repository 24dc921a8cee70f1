"""Derivatives of inverse dynamics in closed form, transposed and forward, are what JAX makes of the kernel itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import geared, long, quickly, random_state, relative

import jaxdyn
from jaxdyn.algorithms.articulation import tile_of_rows
from jaxdyn.algorithms.rnea import inverse_dynamics_kernel, inverse_dynamics_of_state
from jaxdyn.derivatives import kinetic_energy_derivatives
from jaxdyn.joints import Joint
from jaxdyn.model.random_models import random_chain, random_tree
from jaxdyn.recursion import batched
from jaxdyn.spatial import Mat3, Transform, Vec3

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


MODELS = pytest.mark.parametrize(
    ("make", "based"),
    [
        long(lambda: random_tree(10, armature=True), False, id="tree"),
        pytest.param(
            lambda: random_tree(6, floating_base=True, roots=2, seed=3, armature=True),
            True,
            id="floating forest on a moving base",
        ),
        pytest.param(geared, False, id="geared"),
    ],
)


@MODELS
def test_closed_form_is_the_transposed_derivative(make, based):
    model = make()
    s = random_state(model)
    base_motion = tuple(np.random.default_rng(5).normal(size=(2, 6))) if based else None
    args = s["tau"], model.inertia, model.armature, *(s[name] for name in WANTED[2:])
    found, right = (gradients(f, model, base_motion)(*args) for f in (IN_CLOSED_FORM, BY_AUTODIFF))
    for name in WANTED:
        assert relative(found[name], right[name]) < 1e-13, name


@MODELS
def test_closed_form_is_the_derivative_along_a_direction(make, based):
    """Along all arguments at once and, on one model, along each alone: then others are known not to change."""
    model = make()
    alone = WANTED if make is geared else ()
    s = random_state(model)
    base_motion = tuple(np.random.default_rng(5).normal(size=(2, 6))) if based else None
    values = model.inertia, model.armature, *(jnp.asarray(s[name]) for name in WANTED[2:])
    directions = [jnp.asarray(np.random.default_rng(6).normal(size=x.shape)) for x in values]

    def pushed(function):
        at = lambda inertia, armature, *rest: function(
            model.replace(inertia=inertia, armature=armature).moving, *rest, base_motion
        )

        def along(values, directions):
            one_by_one = {}
            for i, name in enumerate(alone):
                of = lambda x: at(*(x if k == i else value for k, value in enumerate(values)))
                one_by_one[name] = jax.jvp(of, (values[i],), (directions[i],))[1]
            return one_by_one | {"all": jax.jvp(at, values, directions)[1]}

        return quickly(along)(values, tuple(directions))

    found, right = pushed(IN_CLOSED_FORM), pushed(BY_AUTODIFF)
    for name in found:
        assert relative(found[name], right[name]) < 1e-13, name


def test_a_batch_may_share_the_state_or_the_direction():
    """Joints with and without a manifold of their own."""
    model = random_chain(2, joints=("spherical", "revolute"))
    s, normal = random_state(model), np.random.default_rng(7).normal
    along = lambda q, dq: jax.jvp(lambda q: jaxdyn.inverse_dynamics(model, q, s["qd"], s["qdd"]), (q,), (dq,))[1]
    states, directions = s["q"] + 0.1 * normal(size=(3, model.nq)), normal(size=(3, model.nq))
    each = quickly(jax.vmap(along))
    for axes in ((0, None), (None, 0)):
        args = [
            x if axis == 0 else np.repeat(x[:1], 3, axis=0) for x, axis in zip((states, directions), axes, strict=True)
        ]
        shared = [x if axis == 0 else x[0] for x, axis in zip((states, directions), axes, strict=True)]
        assert relative(quickly(jax.vmap(along, in_axes=axes))(*shared), each(*args)) < 1e-14


def test_forces_at_no_acceleration():
    """Without qdd, armature does not enter."""
    model = jaxdyn.load("arm7").moving
    s = random_state(model)

    def gradient(function):
        of = lambda inertia, armature, q, qd: function(
            model.replace(inertia=inertia, armature=armature), q, qd, None, None, None
        )
        values = model.inertia, model.armature, *(jnp.asarray(s[name]) for name in ("q", "qd"))
        both = lambda *args: (jax.vjp(of, *args)[1](s["tau"]), jax.jvp(of, args, args)[1])
        return quickly(both)(*values)

    (found, along), (right, right_along) = gradient(IN_CLOSED_FORM), gradient(BY_AUTODIFF)
    assert not np.any(right[1])
    assert not np.any(found[1])
    for i in (0, 2, 3):
        assert relative(found[i], right[i]) < 1e-13
    assert relative(along, right_along) < 1e-13


class Ring(Joint):
    """A hinge whose coordinates are cosine and sine, of any length, and whose transform minds the length."""

    type = "ring"
    nq, nv = 2, 1

    def transform(self, parameters, q):
        c, s = q
        R = Mat3(Vec3(c, -s, 0 * c), Vec3(s, c, 0 * c), Vec3(0 * c, 0 * c, 1 + 0 * c))
        return Transform(R, Vec3(0 * c, 0 * c, 0 * c))

    def integrate(self, q, dq):
        (c, s), (cosine, sine) = q, (jnp.cos(dq[0]), jnp.sin(dq[0]))
        return c * cosine - s * sine, s * cosine + c * sine

    def difference(self, q0, q1):
        return (jnp.arctan2(q0[0] * q1[1] - q0[1] * q1[0], q0[0] * q1[0] + q0[1] * q1[1]),)

    def neutral(self):
        return 1.0, 0.0


def test_a_users_manifold_may_have_a_slope_off_it():
    """Then reverse mode is that of the kernel, and equals forward mode."""
    link = {"mass": 2.0, "com": (0.1, -0.2, 0.3), "inertia": (0.3, 0.4, 0.5)}
    model = jaxdyn.ModelBuilder("ring").add_body("body", joint=Ring(), **link).build()
    model = model.replace(gravity=(1.0, 2.0, -9.0))
    f = lambda q: jaxdyn.inverse_dynamics(model, q, [0.3], [0.2])
    q = jnp.array([0.6, 0.8])
    assert relative(jax.jacrev(f)(q), jax.jacfwd(f)(q)) < 1e-14
    radial = jax.jacfwd(f)(q) @ q
    assert abs(radial[0]) > 0.1


def test_a_state_in_single_precision_with_a_model_in_double():
    """Gradients have the types of what they are taken by, and are those of double precision but for rounding."""
    model = random_chain(2, joints=("spherical", "revolute"), armature=True)
    s = random_state(model)
    state = tuple(jnp.asarray(s[name], jnp.float32) for name in ("q", "qd", "tau"))

    @quickly
    def gradients(q, qd, x):
        of = lambda f: jax.grad(lambda *args: (f(model, *args) ** 2).sum(), (0, 1, 2))(q, qd, x)
        return of(jaxdyn.inverse_dynamics), of(jaxdyn.forward_dynamics), kinetic_energy_derivatives(model, q, qd)

    rough, right = gradients(*state), gradients(*(x.astype(jnp.float64) for x in state))
    assert {x.dtype.name for x in jax.tree.leaves(rough[:2])} == {"float32"}
    for a, b in zip(jax.tree.leaves(rough), jax.tree.leaves(right), strict=True):
        assert relative(a, b) < 1e-5


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
