"""`batched`: whatever transformation is applied, the result is that of one state at a time."""

import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.recursion import batched

# Many small programs: what counts is the time to compile them.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
quickly = partial(jax.jit, compiler_options=QUICK)
N = 3


def kernel(model, q, count):
    """A small algorithm on rows over the batch: a sweep, a dictionary of results, one of which has no batch in it.

    x_i = sin(gain_i q_i) + slope x_(i-1), begun with x = count.
    """

    def step(x, body):
        gain, q = body
        x = jnp.sin(gain * q) + model["slope"] * x
        return x, x

    batch = np.broadcast_shapes(*(x.shape[-1:] for x in (*model.values(), q, count)))
    start = jnp.broadcast_to(count, batch).astype(q.dtype)
    end, path = jax.lax.scan(step, start, (model["gain"], q))
    return {"path": path, "end": end * end, "model": model["gain"].sum(0)}


sizes_run = []


def recording(model, q, count):
    """The kernel, which notes on how large a batch it is called."""
    sizes_run.append(max(x.shape[-1] for x in (*model.values(), q, count)))
    return kernel(model, q, count)


def by_hand(model, q, count):
    """The same for one state, in jax.numpy without anything of ours."""
    x, path = jnp.asarray(count, jnp.float64), []
    for gain, angle in zip(model["gain"], q, strict=True):
        x = jnp.sin(gain * angle) + model["slope"] * x
        path.append(x)
    return {"path": jnp.stack(path), "end": x * x, "model": model["gain"].sum()}


f = batched(recording, tile=lambda *args: 4)
rng = np.random.default_rng(0)
Q = rng.normal(size=(5, 3, 2, N))
GAIN, SLOPE = rng.uniform(0.5, 1.5, (2, N)), rng.uniform(0.5, 1.5, 5)
MODEL = {"gain": jnp.array(GAIN[0]), "slope": jnp.array(SLOPE[0])}
MODELS = {"gain": jnp.array(GAIN), "slope": jnp.array(SLOPE[:2])}


def assert_equal(found, truth, tolerance=1e-13):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), found, truth)


def assert_same(transform, *args, tolerance=1e-13):
    """Assert that a transformation of `f` gives what the same transformation of the plain function gives."""
    found, truth = quickly(lambda *args: (transform(f)(*args), transform(by_hand)(*args)))(*args)
    assert_equal(found, truth, tolerance)
    return found


# ---------------------------------------------------------------------- batches
def test_one_state():
    assert_same(lambda f: f, MODEL, Q[0, 0, 0], 2)


def test_batches_of_any_size_are_cut_into_equal_tiles():
    """Tiles of at most 4: 9 states are three tiles of 3, 10 are three of 4, of which the last two share two states."""
    q = Q.reshape(-1, N)[:10]
    sizes_run.clear()
    sizes = (1, 3, 4, 5, 9, 10)
    found = quickly(lambda q: [jax.vmap(f, (None, 0, None))(MODEL, q[:size], 2) for size in sizes])(q)
    truth = [by_hand(MODEL, row, 2) for row in q]
    for size, result in zip(sizes, found, strict=True):
        assert_equal(result, jax.tree.map(lambda *x: np.stack(x), *truth[:size]))
    assert {1, 3, 4} <= set(sizes_run)
    assert max(sizes_run) == 4


def test_axes_may_be_anywhere():
    counts = jnp.arange(5)
    assert_same(lambda f: jax.vmap(f, (None, 0, 0)), MODEL, Q[:, 0, 0], counts)
    assert_same(lambda f: jax.vmap(f, (None, 1, None)), MODEL, Q[:, 0, 0].T, 2)
    out_axes = {"path": 1, "end": 0, "model": 0}
    assert_same(lambda f: jax.vmap(f, (None, None, 0), out_axes=out_axes), MODEL, Q[0, 0, 0], counts)


def test_batches_of_models():
    """Over all leaves, over one leaf, and over models and states together."""
    assert_same(lambda f: jax.vmap(f, (0, None, None)), MODELS, Q[0, 0, 0], 2)
    assert_same(
        lambda f: jax.vmap(f, ({"gain": None, "slope": 0}, None, None)), {**MODEL, "slope": SLOPE}, Q[0, 0, 0], 2
    )
    assert_same(lambda f: jax.vmap(f, (0, 0, None)), MODELS, Q[0, 0], 2)


ONE_SLOPE = {"gain": None, "slope": 0}
STATES_IN_STATES = lambda f: jax.vmap(jax.vmap(f, (None, 0, None)), (None, 0, None))
STATES_IN_MODELS = lambda f: jax.vmap(jax.vmap(f, (None, 0, None)), (0, None, None))


def summed(f):
    """A number that depends on all results for a batch of states, which share the model."""

    def total(model, q):
        out = jax.vmap(f, (None, 0, None))(model, q, 2)
        weights = 1.0 + jnp.arange(len(q))
        return (weights[:, None] * out["path"] ** 2).sum() + weights @ (out["end"] + out["model"] ** 2)

    return total


@pytest.mark.parametrize("size", [1, 4, 10])
def test_gradients_by_what_a_batch_shares(size):
    """They are sums over the batch: what fills up the last of the tiles of 4 does not count."""
    q = Q.reshape(-1, N)[:size]
    assert_same(lambda f: jax.grad(summed(f), argnums=(0, 1)), MODEL, q)


def test_gradients_by_what_a_batch_of_batches_shares():
    """Of the inner or the outer batch, or of both; and at second order, forward over reverse and reverse over it."""
    q = Q[:, 0, 0]
    by_model = lambda f: jax.grad(summed(f))
    assert_same(lambda f: jax.vmap(by_model(f), (0, None)), MODELS, q)
    assert_same(lambda f: jax.vmap(by_model(f), (ONE_SLOPE, None)), {**MODEL, "slope": SLOPE}, q)
    assert_same(lambda f: jax.grad(lambda m, q: jax.vmap(summed(f), (None, 0))(m, q).sum()), MODEL, Q[:, :, 0])
    assert_same(lambda f: jax.grad(lambda m, q: jax.vmap(summed(f), (0, None))(m, q).sum(), 1), MODELS, q)
    along = lambda f: lambda m, q: jax.jvp(lambda m: by_model(f)(m, q), (m,), (m,))[1]
    assert_same(along, MODEL, q, tolerance=1e-12)
    square = lambda f: jax.grad(lambda m, q: sum((x**2).sum() for x in by_model(f)(m, q).values()), argnums=(0, 1))
    assert_same(square, MODEL, q, tolerance=1e-12)


def test_gradients_of_an_empty_batch_are_zero():
    found = quickly(jax.grad(summed(f)))(MODEL, np.zeros((0, N)))
    assert all(not np.any(x) for x in found.values())


def test_states_in_states():
    assert_same(STATES_IN_STATES, MODEL, Q[:, 0], 2)


def test_states_in_models_and_models_in_states():
    assert_same(STATES_IN_MODELS, MODELS, Q[:, 0, 0], 2)
    assert_same(lambda f: jax.vmap(jax.vmap(f, (0, None, None)), (None, 0, None)), MODELS, Q[:, 0, 0], 2)


def test_one_leaf_of_the_model_in_states():
    assert_same(
        lambda f: jax.vmap(jax.vmap(f, (ONE_SLOPE, None, None)), (None, 0, None)),
        {**MODEL, "slope": SLOPE},
        Q[:3, 0, 0],
        2,
    )


def test_states_in_models_with_states():
    out_axes = {"path": 1, "end": 0, "model": 0}
    assert_same(lambda f: jax.vmap(jax.vmap(f, (None, 0, None), out_axes=out_axes), (0, 1, None)), MODELS, Q[:, 0], 2)


def test_three_batches_deep():
    over_all = lambda f: jax.vmap(jax.vmap(jax.vmap(f, (None, 0, None)), (0, 0, None)), (None, 0, 0), out_axes=1)
    assert_same(over_all, MODELS, np.swapaxes(Q, 1, 2), jnp.arange(5))


def test_batches_of_one_in_batches():
    assert_same(STATES_IN_STATES, MODEL, Q[:, :1, 0], 2)
    assert_same(STATES_IN_STATES, MODEL, Q[:1, :, 0], 2)
    assert_same(STATES_IN_MODELS, jax.tree.map(lambda x: x[:1], MODELS), Q[:1, 0, 0], 2)


# ---------------------------------------------------------------------- derivatives
def number(f):
    """A scalar that depends on every result."""
    weights = jnp.cos(jnp.arange(1.0, N + 1))
    return lambda *args: (lambda r: r["path"] @ weights + r["end"] + jnp.square(r["model"]))(f(*args))


def test_jvp():
    forward = lambda f: lambda *args: jax.jvp(lambda m, q: f(m, q, 2), args, args)
    assert_same(forward, MODEL, Q[0, 0, 0])


def test_gradients_with_respect_to_state_and_model_and_both():
    for argnums in (0, 1, (0, 1)):
        assert_same(lambda f: jax.grad(number(f), argnums), MODEL, Q[0, 0, 0], 2)


def test_hessian():
    assert_same(lambda f: jax.hessian(number(f), argnums=1), MODEL, Q[0, 0, 0], 2)
    assert_same(lambda f: jax.jacrev(jax.grad(number(f)), argnums=1), MODEL, Q[0, 0, 0], 2)


def test_gradient_of_a_batch_and_batch_of_gradients():
    assert_same(lambda f: jax.vmap(jax.grad(number(f), argnums=(0, 1)), (None, 0, None)), MODEL, Q[:, 0, 0], 2)
    total = lambda f: lambda *args: jax.vmap(number(f), (None, 0, None))(*args).sum()
    assert_same(lambda f: jax.grad(total(f), argnums=(0, 1)), MODEL, Q[:, 0, 0], 2)
    assert_same(lambda f: jax.hessian(total(f)), MODEL, Q[:, 0, 0], 2)


def test_gradient_of_nested_batches():
    total = lambda f: lambda *args: STATES_IN_MODELS(number(f))(*args).sum()
    assert_same(lambda f: jax.grad(total(f), argnums=(0, 1)), MODELS, Q[:, 0, 0], 2)


# ---------------------------------------------------------------------- control flow
def test_inside_scan_and_checkpoint():
    """A rollout and its gradient, one and many, with and without remembering the steps."""

    def rollout(f, remember):
        step = lambda q, _: (q - 0.1 * f(MODEL, q, 1)["path"], q[0])
        step = step if remember else jax.checkpoint(step)
        return lambda q: (lambda end, seen: end.sum() + jnp.square(seen).sum())(*jax.lax.scan(step, q, None, length=4))

    for remember in (True, False):
        assert_same(lambda f: jax.value_and_grad(rollout(f, remember)), Q[0, 0, 0])
        assert_same(lambda f: jax.vmap(jax.value_and_grad(rollout(f, remember))), Q[:, 0, 0])


def test_inside_cond_and_while():
    def until(f):
        body = lambda q: q - 0.1 * f(MODEL, q, 1)["path"]
        last = lambda q: jax.lax.while_loop(lambda q: q[0] > -1, body, q)
        return lambda q: jax.lax.cond(q[0] > 0, last, body, q)

    assert_same(until, Q[0, 0, 0])
    assert_same(lambda f: jax.vmap(until(f)), Q[:, 0, 0])


# ---------------------------------------------------------------------- forms
def test_another_form_takes_the_place_of_the_kernel_for_one_state_only():
    """And derivatives stay those of the kernel: this form has none."""
    calls = []

    def single(model, q, count):
        calls.append(q.shape)
        return jax.lax.stop_gradient(by_hand(model, q, count))

    g = batched(kernel, tile=lambda *args: 4, single=single, single_if=lambda model, q, count: len(q) == N)
    assert_equal(g(MODEL, Q[0, 0, 0], 2), by_hand(MODEL, Q[0, 0, 0], 2))
    assert calls == [(N,)]
    slope = lambda f: quickly(jax.grad(number(f), argnums=1))
    assert_equal(slope(g)(MODEL, Q[0, 0, 0], 2), slope(by_hand)(MODEL, Q[0, 0, 0], 2))
    calls.clear()
    long_model, long_q = {"gain": jnp.ones(N + 1), "slope": jnp.ones(())}, jnp.ones(N + 1)
    assert_equal(g(long_model, long_q, 2), by_hand(long_model, long_q, 2))
    assert calls == []
    found = quickly(jax.vmap(g, (None, 0, None)))(MODEL, Q[:, 0, 0], 2)
    assert_equal(jax.tree.map(lambda x: x[-1], found), by_hand(MODEL, Q[-1, 0, 0], 2))


def test_what_remains_is_done_after_the_tiles_for_each_state():
    """A table of products is made of the path: for one state, for batches of any size, nested, and its derivatives."""
    table = lambda out, model, q, count: out["path"][:, None] * (model["gain"] * out["path"] + q + count)[None]
    g = batched(kernel, tile=lambda *args: 4, last=table)
    truth = lambda model, q, count: table(by_hand(model, q, count), model, q, count)
    for transform, args in (
        (lambda f: f, (MODEL, Q[0, 0, 0], 2)),
        (lambda f: jax.vmap(f, (None, 0, None)), (MODEL, Q[:, 0, 0], 2)),
        (lambda f: jax.vmap(f, (None, 0, None)), (MODEL, Q[:2, 0, 0], 2)),
        (
            lambda f: jax.vmap(f, ({"gain": 0, "slope": None}, 1, None)),
            (MODELS | {"slope": SLOPE[0]}, Q[0, 0, :2].T, 2),
        ),
        (lambda f: jax.vmap(jax.vmap(f, (0, None, None)), (None, 0, None)), (MODELS, Q[:, 0, 0], 2)),
        (
            lambda f: jax.vmap(jax.grad(lambda *a: (f(*a) ** 2).sum(), argnums=(0, 1)), (None, 0, None)),
            (MODEL, Q[0, :, 0], 2.0),
        ),
    ):
        found, wanted = quickly(lambda *args: (transform(g)(*args), transform(truth)(*args)))(*args)
        assert_equal(found, wanted)


def test_a_function_whose_results_are_declared_is_traced_only_as_it_is_used():
    """For one state, or for a batch; also where `jax.jit` stands between; and eagerly, with the same results."""
    traced = []

    def double():
        def doubled(q):
            traced.append(q.shape)
            return 2 * q

        return batched(doubled, tile=lambda *args: 4, like=lambda q: jax.ShapeDtypeStruct(q.shape, q.dtype))

    q, g = Q[:, 0, 0], double()
    for transform, x, shape in (
        (lambda f: f, q[0], (N, 1)),
        (jax.vmap, q[:3], (N, 3)),
        (lambda f: jax.vmap(jax.jit(f)), q[:3], (N, 3)),
        (lambda f: jax.vmap(jax.vmap(f)), q[None, :3], (N, 3)),
    ):
        for compiled in (quickly, lambda f: f):
            traced.clear()
            np.testing.assert_array_equal(compiled(transform(double()))(x), 2 * x)
            assert set(traced) == {shape}
    assert jax.vmap(g)(q[:0]).shape == (0, N)
    assert_equal(jax.vmap(jax.grad(lambda q: g(q) @ g(q)))(q), 8 * q)


def test_several_results_may_be_declared():
    """In any structure, also of what follows the kernel; they are traced once, have their types, and derivatives."""
    traced = []

    def kernel(q):
        traced.append(q.shape)
        return 2 * q

    declared = lambda q: {"outer": jax.ShapeDtypeStruct((N, N), q.dtype), "sum": jax.ShapeDtypeStruct((), jnp.float32)}
    last = lambda doubled, q: {"outer": doubled[:, None] * q[None], "sum": doubled.sum()}
    g = batched(kernel, tile=lambda *args: 4, last=last, like=declared)
    q = Q[:3, 0, 0]
    found = quickly(jax.vmap(g))(q)
    assert traced == [(N, 2)]  # the tiles are two
    np.testing.assert_array_equal(found["outer"], 2 * q[:, :, None] * q[:, None])
    np.testing.assert_allclose(found["sum"], 2 * q.sum(1), rtol=1e-6)
    assert found["sum"].dtype == jnp.float32
    np.testing.assert_array_equal(g(q[0])["outer"], found["outer"][0])
    slope = jax.vmap(jax.grad(lambda q: g(q)["outer"].sum()))(q)
    np.testing.assert_allclose(slope, np.broadcast_to(4 * q.sum(1, keepdims=True), q.shape), rtol=1e-13)


def test_derivatives_by_the_rest_cost_nothing_where_a_factor_is_zero():
    """They are not worked out: there is no logarithm. Those by the factor are, and those by both."""
    kernel = lambda k, x: k * jnp.log(x)
    f = batched(kernel, tile=lambda *_: 4, factor=0)
    total = lambda k, x: jax.vmap(f, (None, 0))(k, x).sum()
    zero, x = jnp.zeros(1), jnp.array([[-1.0], [2.0], [4.0]])
    np.testing.assert_array_equal(jax.jit(jax.grad(total, 1))(zero, 0 * x), 0 * x)
    np.testing.assert_array_equal(jax.jvp(lambda x: total(zero, x), (0 * x,), (x,))[1], 0)
    np.testing.assert_allclose(jax.jit(jax.grad(total, 1))(zero + 3, x), 3 / x)
    np.testing.assert_allclose(jax.jit(jax.grad(total))(zero, x[1:]), [np.log(8)], rtol=1e-15)
    by_both = jax.jacfwd(jax.grad(total, 1))(zero, x)
    np.testing.assert_allclose(by_both[..., 0], 1 / x)
    np.testing.assert_allclose(jax.jacrev(jax.grad(total, 1))(zero, x)[..., 0], 1 / x)


def test_the_name_and_text_of_the_kernel_are_kept():
    assert (f.__name__, f.__doc__) == (recording.__name__, recording.__doc__)


# ---------------------------------------------------------------------- devices
ON_TWO_DEVICES = f"""
import jax, jax.numpy as jnp, numpy as np, jaxdyn
from functools import partial
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from jaxdyn.model.random_models import random_tree
from jaxdyn.recursion import Walk, batched

assert jax.device_count() == 2
compiled = partial(jax.jit, compiler_options={QUICK})
rng = np.random.default_rng(0)
shards = P("batch")


def check(found, truth):
    np.testing.assert_allclose(np.asarray(found), truth, rtol=1e-12, atol=1e-12 * np.abs(truth).max())


def inside(f, mesh):
    return compiled(jax.shard_map(f, mesh=mesh, in_specs=(P(), *3 * [shards]), out_specs=shards))


# A sweep outward and one inward through a tree on a base, six states in tiles of two.
walk = Walk((-1, 0, 1, 1, 0), (0,))
step = lambda x, body: (x + body[0] * body[1], x * body[1])


def kernel(scale, q, qd, qdd):
    out = walk.outward(step, 1.0, walk.take((scale, q)))
    return walk.join(walk.inward(step, 0.0, walk.take((qd * qdd, walk.join(out))))[1])


batch = jax.vmap(batched(kernel, tile=lambda *args: 2), (None, 0, 0, 0))
scale, *states = jnp.array(rng.normal(size=5)), *jnp.array(rng.normal(size=(3, 6, 5)))
truth = compiled(batch)(scale, *states)

mesh = jax.make_mesh((2,), ("batch",), axis_types=(AxisType.Auto,))
check(inside(batch, mesh)(scale, *states), truth)
print("shard_map")

found = compiled(batch)(scale, *(jax.device_put(x, NamedSharding(mesh, shards)) for x in states))
check(found, truth)
assert len(found.sharding.device_set) == 2
print("sharded arguments")

check(jax.pmap(batch, in_axes=(None, 0, 0, 0))(scale, *(x.reshape(2, 3, 5) for x in states)).reshape(6, 5), truth)
print("pmap")

explicit = jax.make_mesh((2,), ("batch",), axis_types=(AxisType.Explicit,))
with jax.set_mesh(explicit):
    spread = [jax.device_put(x, NamedSharding(explicit, shards)) for x in states]
    check(inside(batch, explicit)(scale, *spread), truth)
print("explicit mesh")

model = random_tree(6, seed=1, joints=("revolute",), branching=0.8, floating_base=True)
q = np.asarray(jaxdyn.neutral(model)) + rng.normal(size=(4, model.nq))
qd, qdd = rng.normal(size=(2, 4, model.nv))
batch = jax.vmap(jaxdyn.inverse_dynamics, (None, 0, 0, 0))
check(inside(batch, mesh)(model, q, qd, qdd), compiled(batch)(model, q, qd, qdd))
print("inverse dynamics in shard_map")
"""


WAYS = ["shard_map", "sharded arguments", "pmap", "explicit mesh", "inverse dynamics in shard_map"]


@pytest.fixture(scope="module")
def on_two_devices():
    flags = {"xla_force_host_platform_device_count": 2} | QUICK
    flags = " ".join(f"--{name}={str(value).lower()}" for name, value in flags.items())
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
    run = partial(subprocess.run, capture_output=True, text=True, timeout=600, check=False)
    return run([sys.executable, "-W", "error", "-c", ON_TWO_DEVICES], env=environment)


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_spread_over_two_devices(on_two_devices, way):
    assert way in on_two_devices.stdout.splitlines(), on_two_devices.stderr[-3000:]
