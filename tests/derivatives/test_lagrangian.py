"""Lagrange's equations by automatic differentiation: equal to the recursive algorithms, for joints of every type."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import geared, long, quickly, random_state, relative, stacked

import jaxdyn
from jaxdyn.derivatives import lagrangian
from jaxdyn.joints import Joint
from jaxdyn.model.random_models import MOVING_JOINTS, random_chain, random_tree
from jaxdyn.spatial import Force, Motion, Quaternion, Transform, Vec3

GRAVITY = (1.0, 2.0, -9.0)


def dynamics(module, model, s):
    q, qd = s["q"], s["qd"]
    return {
        "M": module.mass_matrix(model, q),
        "bias": module.bias_force(model, q, qd),
        "tau": module.inverse_dynamics(model, q, qd, s["qdd"]),
        "qdd": module.forward_dynamics(model, q, qd, s["tau"]),
        "gravity": module.gravity_force(model, q),
        "T": module.kinetic_energy(model, q, qd),
    }


MODELS = {
    "every type": lambda: random_tree(11, seed=2, joints=(*MOVING_JOINTS, "mimic"), armature=True),
    "tree on a floating base": lambda: random_tree(
        6, seed=3, joints=("revolute", "spherical"), floating_base=True, armature=True
    ),
    "forest": lambda: random_tree(6, seed=4, joints=("helical", "cylindrical", "translation"), roots=2, armature=True),
}


@pytest.mark.parametrize("make", [geared, *map(long, MODELS.values())], ids=["mimic", *MODELS])
def test_equal_to_the_recursions(make):
    """In a batch, with quaternions of any length."""
    model = make().replace(gravity=GRAVITY)
    states = stacked([random_state(model, seed) for seed in range(3)])
    found, wanted = (
        quickly(jax.vmap(lambda s, module=module: dynamics(module, model, s)))(states)
        for module in (lagrangian, jaxdyn)
    )
    for name in wanted:
        assert relative(found[name], wanted[name]) < 1e-10, name


def of_planar(qd, p):
    (w, x, y), (_, px, py) = qd, p
    return np.array([x * py - y * px, -w * py, w * px])


# What the momenta p of these joints' velocities add, in body axes.
CLOSED_FORMS = {
    "spherical": np.cross,
    "planar": of_planar,
    "free": lambda qd, p: Motion.from_array(qd).cross_force(Force.from_array(p)).to_array(),
}


QUASI = {
    "two joints": lambda: random_chain(2, seed=2, joints=("spherical", "planar"), armature=True),
    "and a floating base": lambda: random_tree(
        3, seed=2, joints=("spherical", "planar"), roots=2, floating_base=True, armature=True
    ),
}


@pytest.mark.parametrize("name", ["two joints", long("and a floating base")])
def test_what_quasi_velocities_add(name):
    """Gamma = p . [e, qd], p without armatures, is qd x p of spherical joints and qd x* p of free ones."""
    model = QUASI[name]().replace(gravity=GRAVITY)
    states = stacked([random_state(model, seed) for seed in range(3)])

    def ours(s):
        M = lagrangian.mass_matrix(model, s["q"])
        brackets = jax.vmap(lambda e: lagrangian.bracket(model, s["q"], e, s["qd"]))(jnp.eye(model.nv))
        p = (M - jnp.diag(model.armature)) @ s["qd"]
        return M, lagrangian.bias_force(model, s["q"], s["qd"]), p, brackets @ p

    theirs = lambda s: (jaxdyn.mass_matrix(model, s["q"]), jaxdyn.bias_force(model, s["q"], s["qd"]))
    (M, bias, p, gamma), wanted = quickly(jax.vmap(ours))(states), quickly(jax.vmap(theirs))(states)
    assert relative(M, wanted[0]) < 1e-10
    assert relative(bias, wanted[1]) < 1e-10
    assert set(model.joint_types) == set(CLOSED_FORMS) - ({"free"} if name == "two joints" else set())
    for name, kind in zip(model.joint_names, model.joint_types, strict=True):
        own = np.s_[:, model.qd_slice(name)]
        qd, closed = np.asarray(states["qd"])[own], CLOSED_FORMS[kind]
        assert relative(gamma[own], [closed(*of_state) for of_state in zip(qd, p[own], strict=True)]) < 1e-12
        assert relative((bias - gamma)[own], wanted[1][own]) > 1e-2  # without it the equation is wrong
        assert np.abs((qd * gamma[own]).sum(1)).max() < 1e-12 * np.abs(gamma).max()  # it does no work


def test_brackets_of_ordinary_coordinates_vanish():
    model = random_chain(6, joints=("revolute", "prismatic", "helical", "universal", "cylindrical", "translation"))
    a, b = np.random.default_rng(0).normal(size=(2, model.nv))
    assert np.all(quickly(lagrangian.bracket)(model, random_state(model)["q"], a, b) == 0)


def test_the_bracket_is_how_far_a_small_loop_misses():
    """Along a, b, -a and -b by steps t it misses by t^2 [a, b]."""
    model = random_chain(3, seed=1, joints=("planar", "spherical", "free"))
    q = random_state(model)["q"]
    a, b = np.random.default_rng(0).normal(size=(2, model.nv))

    @quickly
    def missed(t):
        end = q
        for step in (a, b, -a, -b):
            end = jaxdyn.integrate(model, end, t * step)
        return jaxdyn.difference(model, q, end) / t**2

    near, far = missed(1e-3), missed(2e-3)
    assert relative(2 * near - far, quickly(lagrangian.bracket)(model, q, a, b)) < 1e-4


class Gimbal(Joint):
    """Free rotation, whose velocity is along axes fixed in the parent."""

    type = "gimbal"
    nq = 4
    nv = 3

    def transform(self, parameters, q):
        return Transform(Quaternion(*q).to_matrix(), Vec3.zero())

    def integrate(self, q, dq):
        return tuple((Quaternion.exp(Vec3(*dq)) @ Quaternion(*q)).normalized())

    def difference(self, q0, q1):
        return tuple((Quaternion(*q1) @ Quaternion(*q0).conjugate()).normalized().log())

    def neutral(self):
        return 1.0, 0.0, 0.0, 0.0


@pytest.mark.long
def test_a_users_own_joint():
    """Velocities in the parent's axes: the bracket has the other sign."""
    link = {"mass": 2.0, "com": (0.1, -0.2, 0.3), "inertia": (0.3, 0.4, 0.5)}
    model = jaxdyn.ModelBuilder("gimbal").add_body("body", joint=Gimbal(), **link).build()
    s = random_state(model)

    @quickly
    def ours(q, a, b):
        return lagrangian.bracket(model, q, a, b), lagrangian.bias_force(model, q, a)

    bracket, bias = ours(s["q"], s["qd"], s["qdd"])
    assert relative(bracket, -np.cross(s["qd"], s["qdd"])) < 1e-12
    assert relative(bias, jaxdyn.bias_force(model, s["q"], s["qd"])) < 1e-12


def test_rest_in_float32(float32):
    """Zero is no exception."""
    model = jaxdyn.load("double_pendulum")
    state = jaxdyn.neutral(model) + 0.5, jnp.zeros(2)
    bias = quickly(lagrangian.bias_force)(model, *state)
    assert bias.dtype == float32
    assert relative(bias, jaxdyn.bias_force(model, *state)) < 1e-5


def test_nothing_that_moves():
    model = jaxdyn.ModelBuilder("rock").build()
    none = np.zeros(0)
    assert lagrangian.forward_dynamics(model, none, none, none).shape == (0,)
    assert lagrangian.mass_matrix(model, none).shape == (0, 0)
