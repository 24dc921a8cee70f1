"""What dynamics does with any numbers and arguments: no new trace, no NaN, no lost precision, clear errors."""

import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import FORMS, QUICK, in_form, long, quickly, random_state, relative, stacked

import jaxdyn
from jaxdyn import ModelBuilder, ModelError
from jaxdyn.model.random_models import random_chain
from jaxdyn.spatial import Mat3, Motion, Transform, Vec3


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
def in_single(x):
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), x)


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
        for key, value in truth.items():
            assert rough[key].dtype == np.float32
            assert 1e-9 < relative(rough[key], value) < 1e-5, (key, distance)


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


FINITE = {"sweep": dynamics("sweep"), "dense": dynamics("dense"), "springs": springs}
JOINTS = {("spherical", "revolute"): "float64", ("free", "planar"): "float32", ("helical", "cylindrical"): "float32"}


@pytest.mark.parametrize(
    ("derivatives", "f", "joints", "dtype"),
    [
        (backward, "sweep", ("revolute",), "float32"),
        (forward, "dense", ("spherical", "revolute"), "float32"),
        (curvature, "dense", ("spherical", "revolute"), "float64"),
        *(
            long(derivatives, f, joints, dtype)
            for derivatives in (backward, forward, curvature) for f in FINITE for joints, dtype in JOINTS.items()
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


# ---------------------------------------------------------------------- arguments
def test_errors_name_the_argument_what_came_and_what_was_wanted():
    model, x = jaxdyn.load("double_pendulum"), np.zeros(2)
    for text, call in {
        r"q must have shape \(2,\).*got \(3,\)": lambda: jaxdyn.mass_matrix(model, np.zeros(3)),
        r"qd must have shape \(2,\).*got \(1,\)": lambda: jaxdyn.bias_force(model, x, np.zeros(1)),
        r"qdd must have shape \(2,\).*got \(\)": lambda: jaxdyn.inverse_dynamics(model, x, x, 0.0),
        r"tau must have shape \(2,\).*got \(5, 2\); use jax.vmap": lambda: jaxdyn.forward_dynamics(
            model, x, x, np.zeros((5, 2))
        ),
        r"w must have shape \(2,\).*got \(4,\)": lambda: jaxdyn.coriolis_product(model, x, x, np.zeros(4)),
        r"f_ext must have shape \(2, 6\).*got \(6,\)": lambda: jaxdyn.gravity_force(model, x, f_ext=np.zeros(6)),
        r"base_motion must be a pair": lambda: jaxdyn.bias_force(model, x, x, base_motion=np.zeros(6)),
        r"base_motion\[1\] must have shape \(6,\).*got \(3,\)": lambda: jaxdyn.inverse_dynamics(
            model, x, x, x, base_motion=(np.zeros(6), np.zeros(3))
        ),
        r'form must be "auto", "sweep" or "dense"; got \'fast\'': lambda: jaxdyn.mass_matrix(model, x, form="fast"),
        r'axes must be "body" or "world"; got \'base\'': lambda: jaxdyn.body_velocities(model, x, x, axes="base"),
        r"f_ext must be real; got complex128": lambda: jaxdyn.gravity_force(model, x, f_ext=np.full((2, 6), 1j)),
        r"qd must be real; got complex128": lambda: jaxdyn.kinetic_energy(model, x, 1j * x),
        r"q must have shape \(2,\).*got None": lambda: jaxdyn.mass_matrix(model, None),
        r"q must have shape \(2,\).*got a list of things": lambda: jaxdyn.mass_matrix(model, [[1, 2], [3]]),
        r'form="dense" solves in float32 or float64; got float16': lambda: jaxdyn.forward_dynamics(
            model.astype(jnp.float16), *[np.zeros(2, np.float16)] * 3, form="dense"
        ),
        r"form must be .*got 'fast'": lambda: jaxdyn.inverse_dynamics(
            ModelBuilder().build(), *[np.zeros(0)] * 3, form="fast"
        ),
        r"'tool'": lambda: jaxdyn.frame_velocity(model, x, x, "tool"),
        r"one model is needed; this is a batch .*: use jax.vmap": lambda: jaxdyn.mass_matrix(
            stacked([model, model]), x
        ),
    }.items():
        with pytest.raises(ValueError, match=text):
            call()


@pytest.mark.parametrize(
    ("f", "arguments"),
    {"forward_dynamics": 3, "inverse_dynamics": 3, "mass_matrix": 1, "mass_matrix_inverse": 1, "forward_kinematics": 1,
     "potential_energy": 1, "passive_force": 2, "jacobian": 1, "frame_velocity": 2, "frame_pose": 1}.items(),
)  # fmt: skip
def test_what_is_no_model_is_refused(f, arguments):
    frame = ["tool"] if f.startswith(("jacobian", "frame")) else []
    with pytest.raises(TypeError, match=r"model must be a jaxdyn.Model; got str"):
        getattr(jaxdyn, f)("arm7", *[np.zeros(7)] * arguments, *frame)


@pytest.mark.parametrize("leaf", ["armature", "axis", "inertia", "damping", "stiffness"])
def test_a_batch_of_models_is_refused_without_vmap(leaf):
    model, x = random_chain(2, seed=1, armature=True), np.zeros(2)
    many = model.replace(**{leaf: jnp.stack([getattr(model, leaf)] * 2)})
    calls = [lambda: jaxdyn.passive_force(many, x, x), lambda: jaxdyn.potential_energy(many, x)]
    if leaf not in ("damping", "stiffness"):
        calls += [
            lambda: jaxdyn.forward_dynamics(many, x, x, x), lambda: jaxdyn.mass_matrix(many, x),
            lambda: jaxdyn.mass_matrix_inverse(many, x), lambda: jaxdyn.kinetic_energy(many, x, x),
        ]  # fmt: skip
    for call in calls:
        with pytest.raises(ModelError, match=rf"one model is needed; this is a batch .*{leaf}.*: use jax.vmap"):
            call()


@pytest.mark.parametrize("f", ["forward_dynamics", "mass_matrix_inverse"])
def test_a_joint_that_moves_no_inertia_is_refused_by_name(f):
    builder = ModelBuilder().add_body("a", joint_name="shoulder", mass=1.0, com=(0, 0, 1), inertia=(1, 1, 1))
    with pytest.warns(jaxdyn.ModelWarning, match="wrist"):
        model = builder.add_body("b", "a", joint_name="wrist").build()
    vectors = [np.zeros(2)] * (3 if f == "forward_dynamics" else 1)
    with pytest.raises(ModelError, match="joint 'wrist' moves no inertia.*armature"):
        getattr(jaxdyn, f)(model, *vectors)
    assert np.all(np.isfinite(getattr(jaxdyn, f)(model.replace(armature=[0.0, 0.1]), *vectors)))


def test_integers_and_lists_take_the_type_of_the_model():
    model = jaxdyn.load("double_pendulum").astype(jnp.float32)
    for x in ([0, 1], np.array([0, 1]), (0.0, 1.0)):
        assert jax.eval_shape(lambda: jaxdyn.forward_dynamics(model, x, x, x)).dtype == jnp.float32
    wide = jax.eval_shape(lambda: jaxdyn.forward_dynamics(model, [0, 1], np.zeros(2), [0, 1]))
    assert wide.dtype == jnp.float64


@pytest.mark.parametrize(
    ("joints", "f"),
    [
        (("revolute", "spherical"), "inverse_dynamics"),
        (("universal",), "inverse_dynamics"),
        (("prismatic",), "mass_matrix"),
    ],
)  # fmt: skip
def test_single_precision_stays_single(joints, f):
    """While double precision is enabled; so that the forms agree, without which there are no derivatives."""
    model = random_chain(2, seed=1, joints=joints).astype(jnp.float32)
    x = [np.zeros(n, np.float32) for n in (model.nq, model.nv, model.nv)][: 1 if f == "mass_matrix" else 3]
    for form in FORMS:
        assert jax.eval_shape(lambda: getattr(jaxdyn, f)(model, *x, form=form)).dtype == jnp.float32, form


@pytest.mark.parametrize("bodies", [0, 1])
def test_models_without_degrees_of_freedom(bodies):
    """All functions return arrays of no length, or the numbers of a model at rest."""

    class Weld(jaxdyn.joints.Joint):
        type, nq = "weld", 0

        def transform(self, parameters, q):
            return Transform.from_pose(np.array([0.8, 0.0, 0.6, 0.0, 0.1, 0.2, 0.3]))

    builder = ModelBuilder()
    for _ in range(bodies):
        builder.add_body("a", joint=Weld(), mass=1.0, inertia=(1, 1, 1))
    model, x = builder.build(), np.zeros(0)
    shapes = {
        (0,): ["inverse_dynamics", "forward_dynamics", "coriolis_product", "bias_force", "gravity_force", "passive_force"],
        (0, 0): ["mass_matrix", "mass_matrix_inverse", "coriolis_matrix"],
        (6, 0): ["centroidal_momentum_matrix"],
        (3, 0): ["center_of_mass_jacobian"],
        (): ["kinetic_energy", "potential_energy"],
        (6,): ["centroidal_momentum", "centroidal_momentum_bias"],
        (bodies, 6): ["body_velocities", "body_accelerations"],
    }  # fmt: skip
    three = {"inverse_dynamics", "forward_dynamics", "coriolis_product", "body_accelerations"}
    one = {"gravity_force", "mass_matrix", "mass_matrix_inverse", "centroidal_momentum_matrix",
           "center_of_mass_jacobian", "potential_energy"}  # fmt: skip
    for shape, names in shapes.items():
        for name in names:
            arguments = [x] * (3 if name in three else 1 if name in one else 2)
            found = getattr(jaxdyn, name)(model, *arguments)
            assert found.shape == shape, name
            assert np.all(np.isfinite(found))
    at_rest = ModelBuilder().add_frame("post", None, xyz=(1, 2, 3)).build()
    np.testing.assert_array_equal(jaxdyn.frame_velocity(at_rest, x, x, "post"), np.zeros(6))
    np.testing.assert_array_equal(jaxdyn.frame_acceleration(at_rest, x, x, x, "post"), np.zeros(6))


# ---------------------------------------------------------------------- models of all sorts
@pytest.mark.parametrize("leaf", ["axis", "pitch", "armature", "placement"])
def test_a_traced_leaf_is_no_obstacle(leaf):
    model = random_chain(1, seed=1, joints=("helical",), armature=True)
    x = np.ones(1)
    f = lambda value: jaxdyn.forward_dynamics(model.replace(**{leaf: value}), x, x, x).sum()
    assert jax.eval_shape(jax.grad(f), getattr(model, leaf)).shape == getattr(model, leaf).shape
    inverse = lambda value: jaxdyn.mass_matrix_inverse(model.replace(**{leaf: value}), x)
    assert jax.eval_shape(inverse, getattr(model, leaf)).shape == (1, 1)


def test_a_model_with_joints_of_ones_own_may_be_closed_over():
    """Integers for the zeros of its columns are as good as any."""

    class Rail(jaxdyn.joints.Joint):
        type, nq, custom_parameters = "rail", 1, ("slope",)

        def transform(self, parameters, q):
            return Transform(Mat3.identity(), (parameters.custom[0] * jnp.sin(q[0])) * parameters.axis)

        def subspace(self, parameters, q):
            along = (parameters.custom[0] * jnp.cos(q[0])) * parameters.axis
            return (Motion(Vec3(0, 0, 0), along),)

    inertia = {"mass": 2.0, "inertia": (1, 1, 1)}
    model = ModelBuilder().add_body("a", joint=Rail(), parameters=(0.5,), axis=(0, 0, 1), **inertia).build()
    x = np.array([0.3])
    found = quickly(lambda x: (jaxdyn.forward_dynamics(model, x, x, x), jaxdyn.inverse_dynamics(model, x, x, x)))(x)
    M, slope = 2 * (0.5 * np.cos(0.3)) ** 2, 0.5 * np.cos(0.3)
    bias = 2 * slope * (9.81 - 0.5 * np.sin(0.3) * 0.3**2)
    np.testing.assert_allclose(found, [(x - bias) / M, M * x + bias], rtol=1e-12)


def test_lengths_of_axes_and_quaternions_do_not_matter():
    """Even if their squares are no numbers of single precision."""
    model = in_single(random_chain(2, seed=1))
    x = np.ones(2, np.float32)
    f = quickly(partial(jaxdyn.mass_matrix, form="sweep"))
    truth = f(model, x)
    for factor in (1e-25, 1e-3, 1e25):
        placement = model.placement.at[:, :4].multiply(factor)
        assert relative(f(model.replace(axis=factor * model.axis, placement=placement), x), truth) < 1e-6


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
