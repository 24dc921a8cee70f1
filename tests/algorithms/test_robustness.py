"""What dynamics does with any numbers: no new trace, no NaN, no lost precision; on any devices."""

import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import QUICK, in_form, in_single, long, quickly, random_state, relative, stacked

import jaxdyn
from jaxdyn import ModelBuilder
from jaxdyn.model.random_models import random_chain


# ---------------------------------------------------------------------- compiled once
def heavier(model, k):
    """Return a model with all numbers that dynamics uses changed."""
    names = ("inertia", "placement", "axis", "armature", "gravity", "damping", "stiffness", "frame_placement")
    return model.replace(**{name: (1 + 0.1 * k) * getattr(model, name) for name in names})


def test_changed_numbers_do_not_trace_again(quadruped):
    """Not even those of another model of the same structure, built anew; alone and in a batch."""
    traced = []

    def f(model, s):
        traced.append(s["q"].shape)
        return jaxdyn.forward_dynamics(model, s["q"], s["qd"], s["tau"], f_ext=s["f_ext"])

    one, many = jax.jit(f, compiler_options=QUICK), jax.jit(jax.vmap(f), compiler_options=QUICK)
    for k in range(3):
        model = heavier(ModelBuilder.from_model(quadruped).build(), k)
        s = random_state(model, seed=k)
        one(model, s)
        many(*map(stacked, ((model, heavier(model, 5)), (s, random_state(model, seed=9)))))
    assert len(traced) == 2


def test_changed_numbers_and_names_do_not_compile_again():
    """Calls outside of jit, also for other frames and points."""
    robot, compiled = random_chain(2, seed=1, armature=True), []
    listener = lambda event, *_, **__: compiled.append(event) if event.endswith("backend_compile_duration") else None

    def calls(model, s, frame):
        q, qd, qdd = s["q"], s["qd"], s["qdd"]
        point = s["f_ext"][0, :3]
        jaxdyn.forward_dynamics(model, q, qd, s["tau"], f_ext=s["f_ext"])
        jaxdyn.kinetic_energy(model, q, qd)
        jaxdyn.passive_force(model, q, qd)
        jaxdyn.frame_velocity(model, q, qd, frame, point)
        jaxdyn.power(model, q, qd, qdd)

    models = [ModelBuilder.from_model(heavier(robot, k)).build() for k in range(3)]
    states = [random_state(model, seed=k) for k, model in enumerate(models)]
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        calls(models[0], states[0], "tip")
        first = len(compiled)
        calls(models[1], states[1], "tip")
        calls(models[2], states[2], "body_0")
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    assert first >= 5
    assert len(compiled) == first


# ---------------------------------------------------------------------- single precision
def in_double(x):
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), x)


@pytest.mark.parametrize(
    ("floating", "form"), [(True, "sweep"), (True, "dense"), (False, "dense"), long(False, "sweep")]
)
def test_single_precision_far_from_the_origin(quadruped, floating, form):
    """At 100 m and at 10 km the result is as good as at home: within 1e-5 of double precision."""
    model = quadruped if floating else random_chain(4, seed=1, armature=True)
    s = random_state(model)
    f = in_form[form]
    for distance in (0.0, 1e2, 1e4):
        far = distance * np.array([0.6, -0.48, 0.64])
        if floating:
            there, at = model, s | {"q": np.concatenate([s["q"][:4], s["q"][4:7] + far, s["q"][7:]])}
        else:
            placement = np.array(model.placement)
            placement[0, 4:] += far
            there, at = model.replace(placement=placement), s
        there, at = in_single(there), in_single(at)
        truth, rough = f(in_double(there), in_double(at)), f(there, at)
        assert set(rough) == set(truth) - ({"qdd"} if form == "dense" else set())
        for key, value in rough.items():
            assert value.dtype == np.float32
            assert 1e-9 < relative(value, truth[key]) < 1e-5, (key, distance)


def test_single_precision_on_a_chain_of_512_links():
    """Within 2e-5 of double precision: errors of 512 rotations in a row do not pile up."""
    model = in_single(random_chain(512, seed=1, armature=True))
    s = in_single(random_state(model))

    @quickly
    def compiled(model, s):
        qd = 0.1 * s["qd"]
        return {
            "tau": jaxdyn.inverse_dynamics(model, s["q"], qd, s["qdd"]),
            "qdd": jaxdyn.forward_dynamics(model, s["q"], qd, s["tau"]),
        }

    truth, rough = compiled(in_double(model), in_double(s)), compiled(model, s)
    for key, value in truth.items():
        assert rough[key].dtype == np.float32
        assert relative(rough[key], value) < 2e-5, key


@pytest.mark.parametrize("joint", ["revolute", "spherical"])
def test_single_precision_of_a_thin_link(joint):
    """A needle that turns about itself, whose inertia there is 1e-5 of that about other axes: within 2e-5."""
    builder = ModelBuilder("needle")
    builder.add_body("arm", axis=(1, 2, 2), mass=1.0, com=(0.1, 0.2, 0.3), inertia=(0.1, 0.2, 0.15))
    needle = {"mass": 0.5, "com": (0.0, 0.0, 0.2), "inertia": (0.01, 0.01, 3e-7)}
    builder.add_body("needle", "arm", joint, xyz=(0.1, 0.3, -0.2), axis=(0, 0, 1), **needle)
    model = in_single(builder.build())
    s = in_single([random_state(model, seed=k) for k in range(8)])

    @quickly
    def compiled(model, s):
        def one(s):
            m = jaxdyn.operators.innovations_factor(model, s["q"])
            return {
                "qdd": jaxdyn.forward_dynamics(model, s["q"], s["qd"], s["tau"]),
                "M^-1": jaxdyn.mass_matrix_inverse(model, s["q"]),
                "M^-1 by Omega": jaxdyn.operators.mass_matrix_inverse(model, s["q"]),
                "m^-* m^-1 tau": m.T.solve(m.solve(s["tau"])),
            }

        return jax.vmap(one)(stacked(s))

    truth, rough = compiled(in_double(model), in_double(s)), compiled(model, s)
    for key, value in truth.items():
        assert rough[key].dtype == np.float32
        assert max(map(relative, rough[key], value)) < 2e-5, key


# ---------------------------------------------------------------------- never NaN
def special_states(model, dtype):
    """Return a batch: at rest, with all angles zero, pi or -2 pi, identity quaternions; and moving, through zero."""
    neutral = np.asarray(jaxdyn.neutral(model))
    angle = np.ones(model.nq)
    for name, kind in zip(model.joint_names, model.joint_types, strict=True):
        if kind in ("free", "spherical"):
            angle[model.q_slice(name)] = 0
    states = [(neutral + x * angle, v * np.ones(model.nv)) for x in (0, np.pi, -2 * np.pi) for v in (0, 1)]
    return tuple(jnp.asarray(np.stack(x), dtype) for x in zip(*states, strict=True))


def backward(f, model, q, qd):
    """Return a value and its derivatives by model and state, in reverse mode."""
    return jax.value_and_grad(lambda *args: (f(*args) ** 2).sum(), argnums=(0, 1, 2))(model, q, qd)


def forward(f, model, q, qd):
    """Return derivatives by the state, in forward mode."""
    return jax.jacfwd(f, argnums=(1, 2))(model, q, qd)


def curvature(f, model, q, qd):
    """Return a product of a Hessian by the state, forward over reverse."""
    number = lambda q, qd: (f(model, q, qd) ** 2).sum()
    return jax.jvp(jax.grad(number, argnums=(0, 1)), (q, qd), (jnp.ones_like(q), jnp.ones_like(qd)))[1]


def dynamics(form):
    return lambda model, q, qd: jaxdyn.forward_dynamics(model, q, qd, qd, form=form)


def springs(model, q, qd):
    return jaxdyn.passive_force(model, q, qd) + jaxdyn.potential_energy(model, q) + jaxdyn.kinetic_energy(model, q, qd)


def dense_forces(model, q, qd):
    return jaxdyn.inverse_dynamics(model, q, qd, qd, form="dense")


FINITE = {"sweep": dynamics("sweep"), "dense": dynamics("dense"), "dense forces": dense_forces, "springs": springs}
JOINTS = {("spherical", "revolute"): "float64", ("free", "planar"): "float32", ("helical", "cylindrical"): "float32"}


@pytest.mark.parametrize(
    ("derivatives", "f", "joints", "dtype"),
    [
        (backward, "sweep", ("revolute",), "float32"),
        (forward, "dense forces", ("spherical", "revolute"), "float32"),
        (curvature, "dense", ("spherical", "revolute"), "float64"),
        *(
            long(derivatives, f, joints, dtype)
            for derivatives in (backward, forward, curvature) for f in FINITE for joints, dtype in JOINTS.items()
            if (f, dtype) != ("dense", "float32")
        ),
    ],
)  # fmt: skip
def test_values_and_derivatives_are_finite_everywhere(derivatives, f, joints, dtype):
    """At rest and in motion, at angles of zero, pi and a full turn, at identity quaternions."""
    model = random_chain(len(joints), seed=3, joints=joints, armature=True, passive=True)
    model = model.replace(rest=jaxdyn.neutral(model)).astype(dtype)
    batch = jax.vmap(partial(derivatives, FINITE[f]), in_axes=(None, 0, 0))
    found = quickly(batch)(model, *special_states(model, dtype))
    leaves = jax.tree_util.tree_leaves_with_path(found)
    assert {x.dtype for _, x in leaves} == {np.dtype(dtype)}
    assert not [jax.tree_util.keystr(path) for path, x in leaves if not np.all(np.isfinite(x))]
    assert np.any(leaves[-1][1])


# ---------------------------------------------------------------------- devices
ON_TWO_DEVICES = """
import jax, jax.numpy as jnp, numpy as np, jaxdyn
from jax.sharding import AxisType, PartitionSpec as P

assert jax.device_count() == 2
model = jaxdyn.load("quadruped")
rng = np.random.default_rng(0)
q = np.asarray(jaxdyn.neutral(model)) + rng.normal(size=(4, model.nq))
qd, tau = rng.normal(size=(2, 4, model.nv))


def f(model, q, qd, tau):
    qdd = lambda q: jaxdyn.forward_dynamics(model, q, qd, tau)
    return qdd(q), jaxdyn.mass_matrix(model, q), jax.grad(lambda q: (qdd(q) ** 2).sum())(q)


def check(found, truth):
    for a, b in zip(found, truth, strict=True):
        np.testing.assert_allclose(np.asarray(a).reshape(b.shape), b, rtol=0, atol=1e-11 * np.abs(b).max())


batch = jax.vmap(f, (None, 0, 0, 0))
truth = jax.tree.map(np.asarray, jax.jit(batch)(model, q, qd, tau))
mesh = jax.make_mesh((2,), ("batch",), axis_types=(AxisType.Auto,))
shards = P("batch")
spread = jax.shard_map(batch, mesh=mesh, in_specs=(P(), shards, shards, shards), out_specs=shards)
check(jax.jit(spread)(model, q, qd, tau), truth)
print("shard_map")
check(jax.pmap(batch, in_axes=(None, 0, 0, 0))(model, *(x.reshape(2, 2, -1) for x in (q, qd, tau))), truth)
print("pmap")
"""


@pytest.mark.long
def test_a_batch_and_its_gradient_spread_over_two_devices():
    flags = "--xla_force_host_platform_device_count=2 " + os.environ.get("XLA_FLAGS", "")
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", ON_TWO_DEVICES],
        env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert run.stdout.split() == ["shard_map", "pmap"], run.stderr[-3000:]
