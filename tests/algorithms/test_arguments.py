"""What dynamics does with arguments and models of all sorts: clear errors for bad ones, results for all others."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import FORMS, in_single, quickly, relative, stacked

import jaxdyn
from jaxdyn import ModelBuilder, ModelError
from jaxdyn.model.random_models import random_chain
from jaxdyn.spatial import Mat3, Motion, Transform, Vec3


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
        r'form="dense" of forward_dynamics needs float64.*got float32.*form="sweep"': lambda: jaxdyn.forward_dynamics(
            model.astype(jnp.float32), *[np.zeros(2, np.float32)] * 3, form="dense"
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
