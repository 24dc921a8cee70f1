"""The builder: what it makes, and what it refuses, naming the culprit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import ModelBuilder, ModelError, ModelWarning
from jaxdyn.joints import Joint, Mimic

SOLID = {"mass": 1.0, "com": (0.1, 0.0, 0.2), "inertia": (0.1, 0.2, 0.15)}


class Screw(Joint):
    type = "screw"
    nq = 1

    def __init__(self, lead):
        self.__dict__["lead"] = lead


def two_links():
    builder = ModelBuilder("two")
    builder.add_body("a", axis=(0, 1, 0), **SOLID).add_body("b", "a", xyz=(0, 0, 1), **SOLID)
    return builder


def test_numbers_bodies_depth_first_with_children_as_added():
    builder = ModelBuilder("tree")
    for name, parent in (("c", "b"), ("a", None), ("d", "a"), ("b", "a"), ("e", "d")):
        builder.add_body(name, parent, **SOLID)
    model = builder.build(strict=True)
    assert model.body_names == ("a", "d", "e", "b", "c")
    assert model.parents == (-1, 0, 1, 0, 3)


def test_merges_fixed_joints_and_keeps_them_as_frames():
    builder = ModelBuilder("merged")
    builder.add_body("base", None, "fixed", xyz=(0, 0, 1), rpy=(0, 0, np.pi / 2), **SOLID)
    builder.add_body("arm", "base", xyz=(1, 0, 0), **SOLID)
    builder.add_body("plate", "arm", "fixed", xyz=(0, 0, 0.5), rpy=(np.pi / 2, 0, 0), **SOLID)
    builder.add_body("finger", "plate", xyz=(0, 0.2, 0), **SOLID)
    builder.add_frame("tip", "plate", xyz=(0, 0, 0.1))
    model = builder.build(strict=True)
    assert model.body_names == ("arm", "finger")
    assert model.frame_names == ("base", "plate", "tip")
    np.testing.assert_allclose(model.placement[0, 4:], (0, 1, 1), atol=1e-15)  # through the turned base
    np.testing.assert_allclose(model.placement[1, 4:], (0, 0, 0.7), atol=1e-15)  # y of the plate is z of the arm
    # Lumped: mass 2, first moment = sum of both, the plate's com (0.1, 0, 0.2) turned to (0.1, -0.2, 0).
    np.testing.assert_allclose(model.inertia[0, :4], (2, 0.2, -0.2, 0.2 + 0.5), atol=1e-15)
    assert model.body_index("tip") == model.body_index("arm") == 0
    assert model.body_index("base") == -1


def test_lumped_inertia_is_that_of_the_rigid_pair(rng):
    """Kinetic energy of a merged body equals the sum over its parts, for any twist."""
    from jaxdyn.spatial import Motion, RigidInertia, Sym3, Transform, Vec3

    xyz, rpy = rng.normal(size=(2, 3))
    one = ModelBuilder().add_body("a", **SOLID).add_body("b", "a", "fixed", xyz=xyz, rpy=rpy, **SOLID).build()
    V = Motion.from_array(rng.normal(size=6))
    part = RigidInertia.from_com(1.0, Vec3(0.1, 0.0, 0.2), Sym3.from_array(np.diag(SOLID["inertia"])))
    X = Transform.from_pose(np.asarray(one.frame_placement[0]))
    V_b = X.inverse().motion(V)
    whole = RigidInertia.from_parameters(np.asarray(one.inertia[0]))
    assert (whole @ V).dot(V) == pytest.approx((part @ V).dot(V) + (part @ V_b).dot(V_b), rel=1e-13)


def test_default_names_are_numbered():
    model = ModelBuilder().add_body(**SOLID).add_body(parent="body_0", **SOLID).build()
    assert model.body_names == ("body_0", "body_1")
    assert model.joint_names == ("joint_0", "joint_1")


def test_slices_and_names():
    builder = ModelBuilder()
    builder.add_body("base", joint="free", joint_name="root", **SOLID)
    builder.add_body("ball", "base", "spherical", joint_name="s", **SOLID)
    builder.add_body("wheel", "ball", "continuous", joint_name="w", **SOLID)
    builder.add_body("gear", "wheel", joint_name="g", follows="w", ratio=-2.0, offset=0.5, **SOLID)
    model = builder.build()
    assert (model.nq, model.nv) == (12, 10)
    assert (model.q_slice("s"), model.qd_slice("s")) == (slice(7, 11), slice(6, 9))
    assert (model.q_slice("w"), model.qd_slice("w")) == (slice(11, 12), slice(9, 10))
    assert model.q_slice("g") == slice(11, 11)
    assert model.joint_types == ("free", "spherical", "continuous", "mimic")
    with pytest.raises(ValueError, match=r"no joint named 'x'.*'root'"):
        model.q_slice("x")
    with pytest.raises(ValueError, match=r"no body or frame named 'bal': did you mean 'ball'"):
        model.body_index("bal")


def test_mimic_of_a_mimic_is_resolved():
    builder = two_links()
    builder.add_body("c", "b", follows="joint_1", ratio=2.0, offset=0.1, **SOLID)
    builder.add_body("d", "c", follows="joint_2", ratio=-3.0, offset=0.5, **SOLID)
    model = builder.build()
    assert model.topology.followed == (-1, -1, 1, 1)
    np.testing.assert_allclose(model.ratio[2:], (2.0, -6.0))
    np.testing.assert_allclose(model.offset[2:], (0.1, -3.0 * 0.1 + 0.5))


def test_what_resists_a_follower_resists_its_leader():
    """tau = G* tau_tree: armature and damping come with the square of the ratio, friction with its size."""
    builder = two_links()
    resists = {"armature": 0.1, "damping": 0.2, "friction": 0.3}
    builder.add_body("c", "b", follows="joint_1", ratio=-2.0, **resists, **SOLID)
    model = builder.build(strict=True)
    for name, factor in (("armature", 4), ("damping", 4), ("friction", 2)):
        np.testing.assert_allclose(getattr(model, name), [0, factor * resists[name]])


REFUSED = {
    "duplicate body": (lambda b: b.add_body("a"), "two bodies or frames are named 'a'"),
    "duplicate joint": (lambda b: b.add_body("c", joint_name="joint_0"), "two joints are named 'joint_0'"),
    "frame named like a body": (lambda b: b.add_frame("a", "b"), "two bodies or frames are named 'a'"),
    "missing parent": (lambda b: b.add_body("c", "z"), "body 'c' hangs on 'z', which does not exist"),
    "loop": (lambda b: b.add_body("c", "d").add_body("d", "c"), "in a loop: '[cd]' -> '[cd]' -> '[cd]'"),
    "carries itself": (lambda b: b.add_body("c", "c"), "in a loop: 'c' -> 'c'"),
    "zero axis": (lambda b: b.add_body("c", axis=(0, 0, 0)), "joint 'joint_2': axis must not be zero"),
    "short axis": (lambda b: b.add_body("c", axis=(0, 1)), "axis must be 3 numbers"),
    "text for a number": (lambda b: b.add_body("c", mass="heavy"), "body 'c': mass must be one number; got 'heavy'"),
    "nan": (lambda b: b.add_body("c", xyz=(0, np.nan, 0)), "xyz must be finite"),
    "negative mass": (lambda b: b.add_body("c", mass=-1.0), "body 'c': mass must not be negative; got -1.0"),
    "asymmetric inertia": (lambda b: b.add_body("c", inertia=np.arange(9.0).reshape(3, 3)), "must be symmetric"),
    "unknown joint": (lambda b: b.add_body("c", joint="rotary"), "unknown joint type 'rotary'"),
    "no joint at all": (lambda b: b.add_body("c", joint=3), "must be a name such as 'revolute' or an instance"),
    "limits crossed": (lambda b: b.add_body("c", lower=1.0, upper=-1.0), "lower limit must not lie above"),
    "nan limit": (lambda b: b.add_body("c", lower=np.nan), "lower limit must be finite"),
    "negative damping": (lambda b: b.add_body("c", damping=-0.1), "damping must not be negative"),
    "negative speed": (lambda b: b.add_body("c", velocity_limit=-1), "velocity limit must not be negative"),
    "v_s": (lambda b: b.add_body("c", v_s=0.0), "v_s must be positive"),
    "two orientations": (lambda b: b.add_body("c", rpy=(0, 0, 0), quaternion=(1, 0, 0, 0)), "rpy or quaternion"),
    "zero quaternion": (lambda b: b.add_body("c", quaternion=(0, 0, 0, 0)), "quaternion must not be zero"),
    "parallel axes": (
        lambda b: b.add_body("c", joint="universal", axis=(0, 0, 1), axis2=(0, 0, -2)),
        "must not be parallel",
    ),
    "mimic of nothing": (lambda b: b.add_body("c", "b", follows="j"), "mimics 'j', which is not a moving joint"),
    "mimic of itself": (lambda b: b.add_body("c", "b", joint_name="j", follows="j"), "in a loop: j -> j"),
    "mimic of a ball": (
        lambda b: b.add_body("c", "b", "spherical", **SOLID).add_body("d", "c", follows="joint_2"),
        "a spherical joint with 4 coordinates",
    ),
    "a ball that mimics": (lambda b: b.add_body("c", joint="spherical", follows="joint_0"), "only a joint with one"),
    "text number": (lambda b: b.add_body("c", mass="1.0"), "mass must be one number; got '1.0'"),
    "the world by name": (lambda b: b.add_body("c", "world"), "the world is parent=None"),
    "mimic without a leader": (lambda b: b.add_body("c", joint=Mimic()), "with `follows`"),
    "hidden number": (lambda b: b.add_body("c", joint=Screw(0.1)), "'lead' of Screw is none: make the class a dataclass"),
    "more velocities": (lambda b: b.add_body("c", joint=type("J", (Joint,), {"nq": 1, "nv": 2})()), "0 <= nv <= nq"),
    "a spring that mimics": (
        lambda b: b.add_body("c", "b", follows="joint_0", stiffness=1.0), "a mimic joint has no spring of its own",
    ),
    "too large": (lambda b: b.add_body("c", mass=1e200, com=(1e200, 0, 0), inertia=(1, 1, 1)), "of body 'c' is not finite"),
    "ragged": (lambda b: b.add_body("c", inertia=[[1, 2], [3]]), "inertia .*must be 3 x 3 numbers"),
    "ragged limits": (lambda b: b.add_body("c", lower=[[1], [2, 3]]), "lower limit must be"),
    "geometry in the air": (lambda b: b.add_geometry("z", "sphere", [1.0]), "geometry hangs on 'z'"),
    "unknown shape": (lambda b: b.add_geometry("a", "blob", [1.0]), "unknown shape 'blob'"),
    "size of a box": (lambda b: b.add_geometry("a", "box", [1.0]), "size of a box must be 3 numbers"),
    "role": (lambda b: b.add_geometry("a", "box", [1, 1, 1], role="x"), "role must be 'visual' or 'collision'"),
    "parameters": (lambda b: b.add_body("c", parameters=(1.0,)), "parameters must be 0 numbers"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case):
    spoil, message = REFUSED[case]
    with pytest.raises(ModelError, match=message):
        spoil(two_links()).build()


def test_errors_name_source_and_line():
    builder = ModelBuilder(source="robot.urdf")
    with pytest.raises(ModelError, match=r"^robot.urdf:7: body 'a': mass must not be negative") as caught:
        builder.add_body("a", mass=-1, line=7)
    assert (caught.value.source, caught.value.line) == ("robot.urdf", 7)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("solid", "message"),
    [
        ({"mass": 1.0, "inertia": (0.1, 0.1, 0.3)}, "body 'c': inertia breaks the triangle inequality .*0.3"),
        ({"mass": 1.0, "inertia": (0.1, 0.1, -0.1)}, "body 'c': inertia is not positive definite .*-0.1"),
        ({"mass": 1.0, "inertia": (0.0, 0.0, 0.0)}, "body 'c': inertia is not positive definite"),
        ({"mass": 0.0, "inertia": (0.1, 0.1, 0.1)}, "body 'c': has rotational inertia but no mass"),
    ],
)
def test_doubtful_inertias_load_with_a_warning_and_are_refused_when_strict(solid, message):
    builder = two_links().add_body("c", "b", joint="fixed", **solid)
    with pytest.warns(ModelWarning, match=message):
        builder.build()
    with pytest.raises(ModelError, match="strict=True: " + message):
        builder.build(strict=True)


def test_rounded_thin_plate_is_not_doubtful():
    plate = two_links().add_body("c", "b", "fixed", mass=1.0, inertia=(0.333333, 0.666667, 1.000001))
    assert plate.build(strict=True).nbodies == 2


def test_joint_that_moves_no_inertia():
    with pytest.warns(ModelWarning, match="joint 'j' moves no inertia"):
        two_links().add_body("c", "b", joint_name="j").build()
    with pytest.raises(ModelError, match="'j' moves no inertia"):
        two_links().add_body("c", "b", joint_name="j").build(strict=True)
    two_links().add_body("c", "b", joint_name="j", armature=0.1).build(strict=True)
    # A massless body that carries another one is no problem; nor is a leader whose follower has mass.
    two_links().add_body("c", "b").add_body("d", "c", axis=(1, 0, 0), **SOLID).build(strict=True)
    leader = two_links().add_body("c", "b", joint_name="j").add_body("d", "b", follows="j", **SOLID)
    leader.build(strict=True)


def test_point_mass_on_its_axis_moves_nothing():
    on_axis = {"mass": 1.0, "com": (0, 0, 0.5)}
    with pytest.warns(ModelWarning, match="not positive definite"), pytest.warns(ModelWarning, match="'j' moves no"):
        ModelBuilder().add_body("a", joint_name="j", **on_axis).build()
    # A later joint that swings the mass off the axis makes it move something.
    with pytest.warns(ModelWarning) as caught:
        ModelBuilder().add_body("a", joint_name="j").add_body("b", "a", axis=(1, 0, 0), **on_axis).build()
    assert not [w for w in caught if "moves no inertia" in str(w.message)]


def test_traced_numbers_are_refused():
    with pytest.raises(ModelError, match="traced"):
        jax.jit(lambda m: ModelBuilder().add_body("a", mass=m).build())(1.0)


def test_empty_model_works_everywhere():
    model = ModelBuilder("nothing").add_frame("here").build(strict=True)
    q = jaxdyn.neutral(model)
    assert q.shape == (0,)
    assert jaxdyn.forward_kinematics(model, q).rotation.shape == (0, 3, 3)
    assert jaxdyn.frame_pose(model, q, "here").position.tolist() == [0, 0, 0]
    assert jaxdyn.integrate(model, q, q).shape == jaxdyn.difference(model, q, q).shape == (0,)
    assert jaxdyn.random_configuration(model, jax.random.key(0)).shape == (0,)


def test_default_dtype_is_jaxs(float32):
    assert two_links().build().placement.dtype == jnp.float32


def test_own_joint_type_with_parameters():
    from jaxdyn.spatial import Transform, axis_angle

    class Screw(Joint):
        type = "screw"
        nq = nv = 1
        custom_parameters = ("lead",)

        def transform(self, parameters, q):
            (lead,) = parameters.custom
            return Transform(axis_angle(parameters.axis, q[0]), (lead * q[0]) * parameters.axis)

    class Pair(Joint):  # wider than the other: each type sees its own parameters only
        type = "pair"
        nq = 1
        custom_parameters = ("a", "b")

        def transform(self, parameters, q):
            a, b = parameters.custom
            return Transform(axis_angle(parameters.axis, a * q[0]), (b * q[0]) * parameters.axis)

    builder = two_links().add_body("c", "b", Screw(), parameters=(0.25,), **SOLID)
    model = builder.add_body("d", "c", Pair(), parameters=(1.0, 2.0), **SOLID).build(strict=True)
    height = lambda model: jaxdyn.forward_kinematics(model, jnp.array([0.0, 0.0, 2.0, 0.0])).position[2, 2]
    assert height(model) == pytest.approx(1 + 0.25 * 2)
    assert jax.grad(height)(model).joint_parameters[2, 0] == pytest.approx(2.0)
