"""Filter, smoother and optimal control as functions: size, derivatives, precision, bad input; the sweeps below them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import KINDS, geared, in_single, long, quickly, random_state, relative

import jaxdyn
from jaxdyn import estimation
from jaxdyn.estimation.walk import inward, outward
from jaxdyn.model.random_models import random_chain

MODELS = {name: KINDS[name] for name in ("columns that turn in the body", "tree on a floating base")}
KEY = jax.random.key(3)


def test_the_compiled_program_does_not_grow_with_the_robot():
    def equations(n):
        model = random_chain(n, seed=1)
        still = jnp.zeros(n)
        return str(jax.make_jaxpr(estimation.smooth)(model, still, still, still)).count(" = ")

    assert equations(64) == equations(8) > 100


def test_gradients_are_those_of_forward_dynamics():
    model, s = random_chain(2, seed=3, armature=True), random_state(random_chain(2, seed=3))
    args = model, s["q"], s["qd"], s["tau"]
    weights = np.array([1.0, -2.0])

    def slope(f):
        return quickly(jax.grad(lambda model, *x: weights @ f(model, *x), argnums=(0, 1, 2, 3)))(*args)

    found, expected = slope(lambda *x: estimation.smooth(*x).qdd), slope(jaxdyn.forward_dynamics)
    for name in ("inertia", "armature", "gravity", "placement"):
        assert relative(getattr(found[0], name), getattr(expected[0], name)) < 1e-10
    for a, b in zip(found[1:], expected[1:], strict=True):
        assert relative(a, b) < 1e-10


@pytest.mark.parametrize("make", [long(make) if "turn" in name else make for name, make in MODELS.items()], ids=MODELS)
def test_single_precision(make, float32):
    model = make()
    single = model.astype(np.float32)
    s = in_single(random_state(model))
    found = quickly(estimation.smooth)(single, s["q"], s["qd"], s["tau"])
    assert all(x.dtype == np.float32 for x in jax.tree.leaves(found))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))
    assert relative(found.qdd, quickly(jaxdyn.forward_dynamics)(single, s["q"], s["qd"], s["tau"])) < 1e-3


def test_no_bodies():
    model, none = jaxdyn.ModelBuilder("nothing").build(), jnp.zeros(0)
    found = estimation.smooth(model, none, none, none)
    assert found.qdd.shape == (0,)
    assert found.S.shape == (0, 6, 6)
    assert estimation.filter(model, none, none, none, joseph=True).z_plus.shape == (0, 6)
    assert estimation.acceleration_components(model, none, none, none).moments.shape == (0,)
    assert estimation.sample(model, none, KEY).shape == estimation.sample(model, none, KEY, of="inverse").shape == (0,)


CALLS = {
    "filter": lambda model, q, tau: estimation.filter(model, q, tau, tau),
    "smooth": lambda model, q, tau: estimation.smooth(model, q, tau, tau),
    "acceleration_components": lambda model, q, tau: estimation.acceleration_components(model, q, tau, tau),
    "sample": lambda model, q, tau: estimation.sample(model, q, KEY),
    "optimal_control": lambda model, q, tau: estimation.optimal_control(model, q, tau, tau),
    "mechanism": lambda model, q, tau: estimation.mechanism(model, q, tau, tau),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_cannot_be_estimated_is_refused(call):
    with pytest.raises(ValueError, match="mimic joints 'joint_2'.*mimic=False"):
        call(geared(), jnp.zeros(2), jnp.zeros(2))
    chain = random_chain(2, seed=1)
    with pytest.raises(ValueError, match=r"q must have shape \(2,\).*got \(3,\)"):
        call(chain, jnp.zeros(3), jnp.zeros(2))
    with pytest.raises(TypeError, match="model must be a jaxdyn.Model; got int"):
        call(1, jnp.zeros(2), jnp.zeros(2))
    with pytest.raises(jaxdyn.ModelError, match="armature"):
        call(chain.replace(inertia=0 * chain.inertia), jnp.zeros(2), jnp.zeros(2))


def test_other_bad_arguments_are_named():
    chain, two = random_chain(2, seed=1), jnp.zeros(2)
    with pytest.raises(ValueError, match=r"f_ext must have shape \(2, 6\)"):
        estimation.smooth(chain, two, two, two, f_ext=jnp.zeros((3, 6)))
    with pytest.raises(ValueError, match='of must be "mass_matrix" or "inverse"; got \'M\''):
        estimation.sample(chain, two, KEY, of="M")


# ---------------------------------------------------------------------- the walk
@pytest.mark.parametrize("parents", [(-1, 0, 1), (-1, 0, 1, 0, 3, 3), (-1, 0, -1, 2), (-1,)])
def test_sweeps_of_matrices_are_loops_over_the_bodies(parents):
    n, normal = len(parents), np.random.default_rng(0).normal
    A, b = normal(size=(n, 2, 2)), normal(size=(n, 2))

    def step(carry, body):
        (P, x), (A, b) = carry, body
        P, x = A @ (P + np.eye(2)) @ A.T, A @ x + b
        return (P, x), {"P": P, "x": x}

    start = np.ones((2, 2)), np.array([1.0, 2.0])
    here, expected = {-1: start}, []
    for k in range(n):
        here[k], result = step(here[parents[k]], (A[k], b[k]))
        expected.append(result)
    found = outward(parents, step, tuple(map(jnp.asarray, start)), (A, b))
    for name in ("P", "x"):
        assert relative(found[name], [e[name] for e in expected]) < 1e-14
    arrived, expected = {k: (np.zeros((2, 2)), np.zeros(2)) for k in range(-1, n)}, [None] * n
    for k in reversed(range(n)):
        end, expected[k] = step(arrived[k], (A[k], b[k]))
        arrived[parents[k]] = tuple(a + e for a, e in zip(arrived[parents[k]], end, strict=True))
    found = inward(parents, step, (jnp.zeros((2, 2)), jnp.zeros(2)), (A, b))
    for name in ("P", "x"):
        assert relative(found[name], [e[name] for e in expected]) < 1e-14
