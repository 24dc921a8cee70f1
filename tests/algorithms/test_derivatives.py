"""Derivatives of solutions, which come from the equation that they solve, against those of the plain twin.

The plain twin is differentiated step by step by JAX: it knows nothing of the rule.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import geared, long, quickly, random_state, relative, stacked

import jaxdyn
from jaxdyn import plain
from jaxdyn.model.random_models import random_chain, random_tree

WEIGHTS = np.random.default_rng(8).normal(size=64)


@pytest.fixture(scope="module")
def robot():
    """A free body that carries a ball joint and a hinge, with armature."""
    return random_tree(3, seed=4, joints=("spherical", "revolute"), floating_base=True, armature=True)


@pytest.fixture(scope="module")
def small():
    """A ball joint and a hinge, with armature."""
    return random_chain(2, seed=4, joints=("spherical", "revolute"), armature=True)


def number(forward_dynamics):
    """Return a number that depends on all arguments of forward dynamics."""

    def of(model, s):
        qdd = forward_dynamics(model, s["q"], s["qd"], s["tau"], f_ext=s["f_ext"], base_motion=(s["v0"], s["a0"]))
        return (WEIGHTS[: model.nv] * qdd).sum() + 0.1 * (qdd * qdd).sum()

    return of


ours, truth = number(jaxdyn.forward_dynamics), number(plain.forward_dynamics)


def state(model, seed=0):
    v0, a0 = np.random.default_rng(seed + 100).normal(size=(2, 6))
    return random_state(model, seed) | {"v0": v0, "a0": a0}


def direction(tree, seed):
    """Return a random direction of all leaves; limits may be infinite, and have none."""
    normal = np.random.default_rng(seed).normal
    return jax.tree.map(lambda x: jnp.asarray(np.where(np.isfinite(x), normal(size=np.shape(x)), 0.0)), tree)


def assert_all_close(found, wanted, tolerance=1e-10):
    """Compare leaf by leaf, each in units of its largest entry."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(wanted), strict=True)
    seen = 0
    for (path, a), b in pairs:
        assert a.shape == b.shape
        scale = np.abs(b).max(initial=0.0)
        if scale == 0:
            assert not np.any(a), jax.tree_util.keystr(path)
            continue
        seen += 1
        assert relative(a, b, scale) < tolerance, jax.tree_util.keystr(path)
    assert seen


def test_gradient_with_respect_to_state_forces_base_and_every_leaf(robot):
    """Reverse mode; the leaves that motion depends on are all there, and the others get zero."""
    found, wanted = (quickly(jax.grad(f, argnums=(0, 1)))(robot, state(robot)) for f in (ours, truth))
    assert_all_close(found, wanted)
    moved = {name for name, leaf in vars(found[0]).items() if isinstance(leaf, np.ndarray) and np.any(leaf)}
    assert moved == {"placement", "axis", "inertia", "gravity", "armature"}
    assert all(np.any(part) for part in found[1].values() if part is not found[1]["qdd"])


@pytest.mark.parametrize("which", ["small", long("robot")])
def test_forward_mode_along_everything_at_once(which, request):
    robot = request.getfixturevalue(which)
    args = robot, state(robot)
    along = direction(args, seed=5)
    found, wanted = (quickly(lambda *x, f=f: jax.jvp(f, x, along))(*args) for f in (ours, truth))
    assert_all_close(found, wanted)


@pytest.mark.long
@pytest.mark.parametrize("outer", ["forward over reverse", "reverse over reverse"])
def test_second_order(small, outer):
    """A product with the Hessian by the whole state and the inertias."""
    robot, s = small, state(small)
    along = direction((robot.inertia, s), seed=6)

    def product(f, inertia, s):
        slope = jax.grad(lambda inertia, s: f(robot.replace(inertia=inertia), s), argnums=(0, 1))
        if outer == "forward over reverse":
            return jax.jvp(slope, (inertia, s), along)[1]
        inner = lambda *x: sum((a * b).sum() for a, b in zip(*map(jax.tree.leaves, (slope(*x), along)), strict=True))
        return jax.grad(inner, argnums=(0, 1))(inertia, s)

    found, wanted = (quickly(partial(product, f))(robot.inertia, s) for f in (ours, truth))
    assert_all_close(found, wanted, 1e-9)


def test_batches_of_gradients_and_gradients_of_batches(small):
    """Over states, with one model and with one for each."""
    robot = small
    states = stacked([state(robot, seed) for seed in range(3)])
    factors = np.array([1.0, 1.1, 1.2])[:, None, None]
    of = lambda inertia, s: ours(robot.replace(inertia=inertia), s)
    slope = jax.grad(of, argnums=(0, 1))

    @quickly
    def both(inertia, inertias, states):
        one = lambda inertia, s: jax.vmap(of, (None, 0))(inertia, s).sum()
        return jax.grad(one, argnums=(0, 1))(inertia, states), jax.vmap(slope)(inertias, states)

    total, of_each = both(robot.inertia, factors * np.asarray(robot.inertia)[None], states)
    single = quickly(slope)
    for k in range(3):
        s = jax.tree.map(lambda x: x[k], states)
        assert_all_close(
            jax.tree.map(lambda x: x[k], of_each), single(factors[k] * np.asarray(robot.inertia), s), 1e-11
        )
    alone = [single(robot.inertia, jax.tree.map(lambda x: x[k], states)) for k in range(3)]
    by_inertia, by_state = zip(*alone, strict=True)
    assert_all_close(total, (sum(by_inertia), jax.tree.map(lambda *x: np.stack(x), *by_state)), 1e-11)


@pytest.mark.parametrize("wrap", [jax.checkpoint, long(lambda step: step)], ids=["checkpoints", "no checkpoints"])
def test_through_a_rollout_with_and_without_checkpoints(wrap):
    """Ten steps in a scan; the same gradient with respect to the start and the masses."""
    model = jaxdyn.load("double_pendulum")
    s = random_state(model)

    def end(forward_dynamics, wrap, inertia, q, qd):
        robot = model.replace(inertia=inertia)

        def step(x, _):
            qd = x[1] + 0.01 * forward_dynamics(robot, *x, s["tau"])
            return (x[0] + 0.01 * qd, qd), None

        (q, qd), _ = jax.lax.scan(wrap(step), (q, qd), length=10)
        return (q * q).sum() + (qd * qd).sum()

    ways = (plain.forward_dynamics, lambda step: step), (jaxdyn.forward_dynamics, wrap)
    wanted, found = (
        quickly(jax.grad(partial(end, *way), argnums=(0, 1, 2)))(model.inertia, s["q"], s["qd"]) for way in ways
    )
    assert_all_close(found, wanted, 1e-11)


def test_other_numbers_do_not_compile_again():
    """Gradients outside of jit, of one state and of a batch."""
    compiled = []
    listener = lambda event, *_, **__: compiled.append(event) if event.endswith("backend_compile_duration") else None
    model = jaxdyn.load("pendulum")
    slope = jax.grad(lambda model, q: jaxdyn.forward_dynamics(model, q, q, q).sum(), argnums=(0, 1))
    counts = []
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        for k in range(1, 4):
            heavier = model.replace(inertia=(1.0 + k) * model.inertia)
            slope(heavier, jnp.full(1, 0.1 * k))
            jax.vmap(slope, (None, 0))(heavier, jnp.full((2, 1), 0.1 * k))
            counts.append(len(compiled))
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    assert counts[0] > 0
    assert counts == [counts[0]] * 3


@pytest.mark.parametrize("make", [pytest.param(geared, marks=pytest.mark.long), lambda: jaxdyn.load("double_pendulum")])
def test_inverse_of_the_mass_matrix(make):
    """X M = 1 in value, first and second order; and forward dynamics of the same model against its plain twin."""
    model = make()
    s = random_state(model)
    along = direction((model.inertia, s["q"]), seed=2)

    def twice(f):
        """Return a function's value and its first and second derivative along a direction."""
        once = lambda *x: jax.jvp(f, x, along)
        return lambda *x: jax.jvp(once, x, along)

    at = lambda inertia, q: (model.replace(inertia=inertia), q)
    X = lambda *x: jaxdyn.mass_matrix_inverse(*at(*x))
    M = lambda *x: jaxdyn.mass_matrix(*at(*x))
    fd = lambda f: lambda *x: f(*at(*x), s["qd"], s["tau"])

    @quickly
    def derivatives(*x):
        return {
            "X": twice(X)(*x),
            "M": twice(M)(*x),
            "fd": twice(fd(jaxdyn.forward_dynamics))(*x),
            "twin": twice(fd(plain.forward_dynamics))(*x),
            "slope": jax.grad(lambda *x: (X(*x) ** 2).sum(), argnums=(0, 1))(*x),
        }

    found = derivatives(model.inertia, s["q"])
    ((X0, X1), (_, X2)), ((M0, M1), (_, M2)) = found["X"], found["M"]
    inverse = np.linalg.inv(M0)
    assert relative(X0, inverse) < 1e-12
    assert relative(X1, -inverse @ M1 @ inverse) < 1e-11
    assert relative(X2, 2 * inverse @ M1 @ inverse @ M1 @ inverse - inverse @ M2 @ inverse) < 1e-10
    slope = sum((a * b).sum() for a, b in zip(found["slope"], along, strict=True))
    assert abs(slope / (2 * (X0 * X1).sum()) - 1) < 1e-10
    assert_all_close(found["fd"], found["twin"], 1e-10)
