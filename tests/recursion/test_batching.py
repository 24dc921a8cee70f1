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


def same(transform, *args, tolerance=1e-13):
    """Assert that a transformation of `f` gives what the same transformation of the plain function gives."""
    found, truth = jax.jit(lambda *args: (transform(f)(*args), transform(by_hand)(*args)))(*args)
    assert_equal(found, truth, tolerance)
    return found


# ---------------------------------------------------------------------- batches
def test_one_state():
    same(lambda f: f, MODEL, Q[0, 0, 0], 2)


def test_batches_of_any_size_are_cut_into_equal_tiles():
    """Tiles of at most 4: 9 states are three tiles of 3, 10 are three of 4 with two states repeated."""
    q = Q.reshape(-1, N)[:10]
    sizes_run.clear()
    sizes = (1, 3, 4, 5, 9, 10)
    found = jax.jit(lambda q: [jax.vmap(f, (None, 0, None))(MODEL, q[:size], 2) for size in sizes])(q)
    truth = [by_hand(MODEL, row, 2) for row in q]
    for size, result in zip(sizes, found, strict=True):
        assert_equal(result, jax.tree.map(lambda *x: np.stack(x), *truth[:size]))
    assert {1, 3, 4} <= set(sizes_run)
    assert max(sizes_run) == 4


def test_axes_may_be_anywhere():
    counts = jnp.arange(5)
    same(lambda f: jax.vmap(f, (None, 0, 0)), MODEL, Q[:, 0, 0], counts)
    same(lambda f: jax.vmap(f, (None, 1, None), out_axes=-1), MODEL, Q[:, 0, 0].T, 2)
    out_axes = {"path": 1, "end": 0, "model": None}
    same(lambda f: jax.vmap(f, (None, None, 0), out_axes={**out_axes, "model": 0}), MODEL, Q[0, 0, 0], counts)


def test_batches_of_models():
    """Over all leaves, over one leaf, and over models and states together."""
    same(lambda f: jax.vmap(f, (0, None, None)), MODELS, Q[0, 0, 0], 2)
    same(lambda f: jax.vmap(f, ({"gain": None, "slope": 0}, None, None)), {**MODEL, "slope": SLOPE}, Q[0, 0, 0], 2)
    same(lambda f: jax.vmap(f, (0, 0, None)), MODELS, Q[0, 0], 2)


NESTED = {
    "states in states": lambda f: jax.vmap(jax.vmap(f, (None, 0, None)), (None, 0, None)),
    "states in models": lambda f: jax.vmap(jax.vmap(f, (None, 0, None)), (0, None, None)),
    "models in states": lambda f: jax.vmap(jax.vmap(f, (0, None, None)), (None, 0, None)),
    "both in both": lambda f: jax.vmap(jax.vmap(f, (None, 0, None), out_axes=1), (0, 1, None)),
    "slopes in states": lambda f: jax.vmap(jax.vmap(f, ({"gain": None, "slope": 0}, None, None)), (None, 0, None)),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_batches(name):
    models = "models" in name or "both" in name or "slopes" in name
    q = Q[:, 0, 0] if name.startswith(("models", "slopes")) or name == "states in models" else Q[:, 0]
    model = MODELS if models else MODEL
    same(NESTED[name], {**MODEL, "slope": SLOPE} if "slopes" in name else model, q, 2)


def test_three_batches_deep():
    over_all = lambda f: jax.vmap(jax.vmap(jax.vmap(f, (None, 0, None)), (0, 0, None)), (None, 0, 0), out_axes=1)
    same(over_all, MODELS, np.swapaxes(Q, 1, 2), jnp.arange(5))


def test_batches_of_one_in_batches():
    same(NESTED["states in states"], MODEL, Q[:, :1, 0], 2)
    same(NESTED["states in states"], MODEL, Q[:1, :, 0], 2)
    same(NESTED["states in models"], jax.tree.map(lambda x: x[:1], MODELS), Q[:1, 0, 0], 2)


# ---------------------------------------------------------------------- derivatives
def number(f):
    """A scalar that depends on every result."""
    weights = jnp.cos(jnp.arange(1.0, N + 1))
    return lambda *args: (lambda r: r["path"] @ weights + r["end"] + jnp.square(r["model"]))(f(*args))


def test_jvp():
    forward = lambda f: lambda *args: jax.jvp(lambda m, q: f(m, q, 2), args, args)
    same(forward, MODEL, Q[0, 0, 0])


def test_gradients_with_respect_to_state_and_model_and_both():
    for argnums in (0, 1, (0, 1)):
        same(lambda f: jax.grad(number(f), argnums), MODEL, Q[0, 0, 0], 2)


def test_hessian():
    same(lambda f: jax.hessian(number(f), argnums=1), MODEL, Q[0, 0, 0], 2)
    same(lambda f: jax.jacrev(jax.grad(number(f)), argnums=1), MODEL, Q[0, 0, 0], 2)


def test_gradient_of_a_batch_and_batch_of_gradients():
    same(lambda f: jax.vmap(jax.grad(number(f), argnums=(0, 1)), (None, 0, None)), MODEL, Q[:, 0, 0], 2)
    total = lambda f: lambda *args: jax.vmap(number(f), (None, 0, None))(*args).sum()
    same(lambda f: jax.grad(total(f), argnums=(0, 1)), MODEL, Q[:, 0, 0], 2)
    same(lambda f: jax.hessian(total(f)), MODEL, Q[:, 0, 0], 2)


def test_gradient_of_nested_batches():
    total = lambda f: lambda *args: NESTED["states in models"](number(f))(*args).sum()
    same(lambda f: jax.grad(total(f), argnums=(0, 1)), MODELS, Q[:, 0, 0], 2)


# ---------------------------------------------------------------------- control flow
def test_inside_scan_and_checkpoint():
    """A rollout and its gradient, one and many, with and without remembering the steps."""

    def rollout(f, remember):
        step = lambda q, _: (q - 0.1 * f(MODEL, q, 1)["path"], q[0])
        step = step if remember else jax.checkpoint(step)
        return lambda q: (lambda end, seen: end.sum() + jnp.square(seen).sum())(*jax.lax.scan(step, q, None, length=4))

    for remember in (True, False):
        same(lambda f: jax.value_and_grad(rollout(f, remember)), Q[0, 0, 0])
        same(lambda f: jax.vmap(jax.value_and_grad(rollout(f, remember))), Q[:, 0, 0])


def test_inside_cond_and_while():
    def until(f):
        body = lambda q: q - 0.1 * f(MODEL, q, 1)["path"]
        last = lambda q: jax.lax.while_loop(lambda q: q[0] > -1, body, q)
        return lambda q: jax.lax.cond(q[0] > 0, last, body, q)

    same(until, Q[0, 0, 0])
    same(lambda f: jax.vmap(until(f)), Q[:, 0, 0])


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
    slope = lambda f: jax.grad(number(f), argnums=1)
    assert_equal(slope(g)(MODEL, Q[0, 0, 0], 2), slope(by_hand)(MODEL, Q[0, 0, 0], 2))
    calls.clear()
    long_model, long_q = {"gain": jnp.ones(N + 1), "slope": jnp.ones(())}, jnp.ones(N + 1)
    assert_equal(g(long_model, long_q, 2), by_hand(long_model, long_q, 2))
    assert calls == []
    found = jax.jit(jax.vmap(g, (None, 0, None)))(MODEL, Q[:, 0, 0], 2)
    assert_equal(jax.tree.map(lambda x: x[-1], found), by_hand(MODEL, Q[-1, 0, 0], 2))


def test_the_name_and_text_of_the_kernel_are_kept():
    assert (f.__name__, f.__doc__) == (recording.__name__, recording.__doc__)


# ---------------------------------------------------------------------- devices
ON_TWO_DEVICES = """
import jax, jax.numpy as jnp, numpy as np, jaxdyn
from functools import partial
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

assert jax.device_count() == 2
model = jaxdyn.load("quadruped")
rng = np.random.default_rng(0)
q = jnp.array(np.asarray(jaxdyn.neutral(model)) + rng.normal(size=(6, model.nq)))
qd, tau = jnp.array(rng.normal(size=(2, 6, model.nv)))

def dynamics(model, q, qd, tau):
    return jaxdyn.forward_dynamics(model, q, qd, tau), jaxdyn.kinetic_energy(model, q, qd)

batch = jax.vmap(dynamics, (None, 0, 0, 0))
compiled = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False})
truth = compiled(batch)(model, q, qd, tau)

def check(found):
    for a, b in zip(found, truth, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-9, atol=1e-9 * np.abs(b).max())

auto = jax.make_mesh((2,), ("batch",), axis_types=(AxisType.Auto,))
inside = lambda mesh: compiled(
    jax.shard_map(batch, mesh=mesh, in_specs=(P(), P("batch"), P("batch"), P("batch")), out_specs=P("batch"))
)
check(inside(auto)(model, q, qd, tau))
print("shard_map")

spread = lambda x: jax.device_put(x, NamedSharding(auto, P("batch")))
found = compiled(batch)(model, spread(q), spread(qd), spread(tau))
check(found)
assert all(len(x.sharding.device_set) == 2 for x in found)
print("sharded arguments")

explicit = jax.make_mesh((2,), ("batch",), axis_types=(AxisType.Explicit,))
with jax.set_mesh(explicit):
    check(inside(explicit)(model, q, qd, tau))
print("explicit mesh")

cut = lambda x: x.reshape(2, 3, *x.shape[1:])
found = jax.pmap(batch, in_axes=(None, 0, 0, 0))(model, cut(q), cut(qd), cut(tau))
check([x.reshape(6, *x.shape[2:]) for x in found])
print("pmap")
"""


@pytest.fixture(scope="module")
def on_two_devices():
    flags = "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
    run = partial(subprocess.run, capture_output=True, text=True, timeout=600, check=False)
    return run([sys.executable, "-W", "error", "-c", ON_TWO_DEVICES], env=environment)


@pytest.mark.parametrize("way", ["shard_map", "sharded arguments", "explicit mesh", "pmap"])
def test_a_batch_spread_over_two_devices(on_two_devices, way):
    """Forward dynamics and energy of six states of a quadruped."""
    assert way in on_two_devices.stdout.splitlines(), on_two_devices.stderr[-3000:]
