"""One contract, every joint type: what a type gives in closed form follows from its transform."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.joints import (
    JOINT_TYPES,
    LEAVES,
    Joint,
    JointParameters,
    Mimic,
    bias_by_autodiff,
    bracket_by_autodiff,
    combine,
    register,
    subspace_by_autodiff,
    tangent_by_autodiff,
)
from jaxdyn.spatial import Transform, Vec3, axis_angle


@dataclass(frozen=True)
class VariableScrew(Joint):
    """A screw whose pitch grows with the angle, given by its transform alone."""

    type = "variable_screw"
    nq = nv = 1
    custom_parameters = ("growth",)

    def transform(self, parameters, q):
        travel = (parameters.pitch + parameters.custom[0] * q[0]) * q[0]
        return Transform(axis_angle(parameters.axis, q[0]), travel * parameters.axis)


TYPES = {name: joint() for name, joint in JOINT_TYPES.items()} | {"variable_screw": VariableScrew()}
AWKWARD = (0.0, math.pi, -math.pi, 1e-9, 2.0)


def parameters(dtype):
    axis, axis2 = jnp.array([[1.0, 2.0, -0.5], [0.3, -1.0, 0.8]], dtype)
    number = lambda x: jnp.array(x, dtype)
    return JointParameters(
        Vec3.from_array(axis).normalized(), Vec3.from_array(axis2).normalized(),
        number(0.3), number(-0.7), number(0.2), (number(0.05),),
    )  # fmt: skip


def samples(joint, dtype="float64", count=8):
    """Configurations (tuples of (count,)) and velocities: awkward ones first, then random ones."""
    rng = np.random.default_rng(3)
    reads = joint.nq if joint.reads is None else joint.reads
    u = tuple(jnp.array(rng.random((joint.nq, count)), dtype))
    free = tuple(jnp.full(count, jnp.inf, dtype) for _ in range(joint.nq))
    q = np.zeros((reads, count))
    q[: joint.nq] = np.reshape(joint.random(u, tuple(-x for x in free), free), (joint.nq, count))
    if joint.type in ("spherical", "free"):
        q[:4, 0] = (1, 0, 0, 0)
        q[:4, 1] = (0, 1, 0, 0)
    elif reads:
        q[:, : len(AWKWARD)] = AWKWARD
    columns = joint.nv if joint.reads is None else joint.reads
    qd = rng.uniform(-0.9, 0.9, (columns, count))
    qd[:, 0] = 0.0
    as_tuple = lambda rows: tuple(jnp.array(row, dtype) for row in rows)
    return as_tuple(q), as_tuple(qd)


def each_type(where=lambda joint: True):
    chosen = {name: joint for name, joint in TYPES.items() if where(joint)}
    return pytest.mark.parametrize("joint", chosen.values(), ids=chosen.keys())


@each_type(lambda joint: joint.leaves != LEAVES)
def test_a_type_reads_the_leaves_that_it_names_and_no_others(joint):
    """It works with them alone, and each makes a difference."""
    q, qd = samples(joint)
    given = {name: getattr(parameters("float64"), name) for name in joint.leaves}

    def methods(given):
        alone = JointParameters(**given)
        everything = joint.transform(alone, q), joint.subspace(alone, q), joint.bias(alone, q, qd)
        return jnp.stack([jnp.broadcast_to(x, (8,)) for x in jax.tree.leaves(everything)])

    assert np.all(np.isfinite(methods(given)))
    for name, value in given.items():
        slope = jax.jacfwd(lambda x: methods(given | {name: x}))(value)
        assert any(np.any(x) for x in jax.tree.leaves(slope)), name


def half_turn(q):
    """Another configuration, of a quaternion half a turn away."""
    return (-q[1], q[0], -q[3], q[2], *q[4:]) if len(q) >= 4 else tuple(x + math.pi for x in q)


def dense(motion, count=8):
    return jnp.stack([jnp.broadcast_to(jnp.asarray(x), (count,)) for x in (*motion.ang, *motion.lin)])


@each_type()
def test_dimensions(joint):
    q, qd = samples(joint)
    P = parameters("float64")
    assert len(joint.neutral()) == joint.nq
    assert len(joint.subspace(P, q)) == len(qd)
    assert len(joint.integrate(q[: joint.nq], qd[: joint.nv])) == joint.nq
    assert len(joint.difference(q[: joint.nq], q[: joint.nq])) == joint.nv
    assert hash(joint) == hash(type(joint)())
    assert joint == type(joint)()


@each_type(lambda joint: joint.nq)
def test_tangent_is_the_derivative_of_the_difference_and_inverts_the_rate_of_integrate(joint):
    """Also of quaternions that are not of length one: a change of length is no motion."""
    q, qd = samples(joint)
    rate = tuple(np.random.default_rng(4).normal(size=(joint.nq, 8)))
    for scale in (1.0, 3.0):
        at = tuple(scale * x for x in q[:4]) + q[4:] if joint.type in ("spherical", "free") else q
        np.testing.assert_allclose(joint.tangent(at, rate), tangent_by_autodiff(joint, at, rate), atol=1e-12)
        moved = jax.jvp(lambda dq: joint.integrate(at, dq), (tuple(0 * x for x in qd),), (qd,))
        np.testing.assert_allclose(joint.tangent(*moved), qd, atol=1e-12)
        gradient, power = joint.tangent_transposed(at, qd), np.sum(np.multiply(joint.tangent(at, rate), qd), 0)
        np.testing.assert_allclose(np.sum(np.multiply(gradient, rate), 0), power, atol=1e-12)


@each_type(lambda joint: joint.nq)
def test_bracket_is_that_of_the_fields_that_integrate_follows(joint):
    q, a = samples(joint)
    b = tuple(np.random.default_rng(4).normal(size=(joint.nv, 8)))
    np.testing.assert_allclose(joint.bracket(q, a, b), bracket_by_autodiff(joint, q, a, b), atol=1e-12)


@each_type()
def test_transform_is_rigid_and_neutral_is_near_identity(joint):
    P = parameters("float64")
    q, _ = samples(joint)
    R = np.array([[jnp.broadcast_to(jnp.asarray(x), (8,)) for x in row] for row in joint.transform(P, q).R])
    np.testing.assert_allclose(np.einsum("ijn,kjn->nik", R, R), np.broadcast_to(np.eye(3), (8, 3, 3)), atol=1e-13)
    np.testing.assert_allclose(np.linalg.det(np.moveaxis(R, -1, 0)), 1, atol=1e-13)
    if not isinstance(joint, Mimic):
        X = joint.transform(P, joint.neutral())
        np.testing.assert_allclose(jax.tree.leaves(X), jax.tree.leaves(Transform.identity()), atol=1e-15)


@each_type()
def test_subspace_is_the_derivative_of_the_transform(joint):
    P = parameters("float64")
    q, _ = samples(joint)
    if isinstance(joint, Mimic):  # its column belongs to the coordinate it reads
        joint = _as_its_own(joint)
    for closed, derived in zip(joint.subspace(P, q), subspace_by_autodiff(joint, P, q), strict=True):
        np.testing.assert_allclose(dense(closed), dense(derived), atol=1e-12)


@each_type()
def test_bias_is_the_derivative_of_the_subspace(joint):
    P = parameters("float64")
    q, qd = samples(joint)
    if isinstance(joint, Mimic):
        joint = _as_its_own(joint)
    closed, derived = joint.bias(P, q, qd), bias_by_autodiff(joint, P, q, qd)
    np.testing.assert_allclose(dense(closed), dense(derived), atol=1e-12)


def _as_its_own(mimic):
    """A mimic joint as a joint of one coordinate, the one it reads."""

    class Follower(Joint):
        nq = nv = 1
        transform = staticmethod(mimic.transform)
        subspace = staticmethod(mimic.subspace)
        bias = staticmethod(mimic.bias)

    return Follower()


@each_type()
def test_integrate_and_difference_are_inverse(joint):
    q, qd = samples(joint)
    q, qd = q[: joint.nq], qd[: joint.nv]
    if not joint.nq:
        assert joint.integrate((), ()) == () == joint.difference((), ())
        return
    there = joint.integrate(q, qd)
    np.testing.assert_allclose(joint.difference(q, there), jnp.stack(qd), atol=1e-12)
    np.testing.assert_allclose(joint.difference(q, q), jnp.zeros((joint.nv, 8)), atol=1e-14)
    back = joint.integrate(there, tuple(-x for x in qd))
    P = parameters("float64")
    for a, b in zip(jax.tree.leaves(joint.transform(P, back)), jax.tree.leaves(joint.transform(P, q)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-13)


@each_type(lambda joint: joint.nq)
def test_integrate_follows_the_subspace(joint):
    """To second order in time the pose moves by the twist S qd: the velocity means what it says."""
    P = parameters("float64")
    q, qd = samples(joint)
    h = 1e-4
    ahead, behind = (joint.transform(P, joint.integrate(q, tuple(s * h * x for x in qd))) for s in (1, -1))
    step = (behind.inverse() @ ahead).log()
    S = joint.subspace(P, q)
    twist = dense(combine(S, qd))
    np.testing.assert_allclose(dense(step) / (2 * h), twist, atol=1e-7)


@each_type(lambda joint: joint.nq != joint.nv)  # those with a quaternion
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
def test_ten_thousand_steps_stay_on_the_manifold(joint, dtype, tolerance):
    q, qd = samples(joint, dtype, 4)
    step = lambda q, _: (joint.integrate(q, tuple(0.1 * x for x in qd)), None)
    q = jax.lax.scan(step, q, length=10_000)[0]
    norm = jnp.sqrt(sum(x * x for x in q[:4]))
    assert norm.dtype == dtype
    assert jnp.max(jnp.abs(norm - 1)) < tolerance


@each_type()
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_derivatives_are_finite_at_awkward_points(joint, dtype):
    P = parameters(dtype)
    q, qd = samples(joint, dtype, 5)

    def weighted(flat, case):  # one NaN shows in the sum
        q, qd = tuple(flat[: len(q0)]), tuple(flat[len(q0) :])
        own, rate = q[: joint.nq], qd[: joint.nv]
        others = zip(own, (-x for x in own), half_turn(own), strict=True)
        other = tuple(jnp.where(case == 0, a, jnp.where(case == 1, b, c)) for a, b, c in others)
        gap = joint.difference(own, other)
        values = [joint.transform(P, q), joint.bias(P, q, qd), joint.integrate(own, rate), gap]
        return sum((i + 1) * jnp.asarray(x, dtype) for i, x in enumerate(jax.tree.leaves(values)))

    q0, flat = q, jnp.stack(q + qd, axis=-1) if q + qd else jnp.zeros((5, 0), dtype)
    # A Hessian times a vector without zeros: one NaN in the Hessian shows in the product.
    mixed = lambda x, case: jax.jvp(lambda x: jax.grad(weighted)(x, case), (x,), (1 + jnp.arange(x.size, dtype=dtype),))
    everything = lambda x, case: (weighted(x, case), *mixed(x, case))
    for x in jax.jit(jax.vmap(everything))(jnp.tile(flat, (3, 1)), jnp.repeat(jnp.arange(3), 5)):
        assert x.dtype == dtype
        assert jnp.all(jnp.isfinite(x))


@each_type(lambda joint: 0 < joint.nq == joint.nv)  # rotations have no limits
def test_random_respects_limits(joint):
    full = lambda x: tuple(jnp.full(1000, x) for _ in range(joint.nq))
    u = tuple(jax.random.uniform(jax.random.key(0), (joint.nq, 1000)))
    inside = jnp.stack(joint.random(u, full(-0.2), full(0.3)))
    assert jnp.all((inside >= -0.2) & (inside < 0.3))
    assert float(jnp.std(inside)) == pytest.approx(0.5 / math.sqrt(12), rel=0.1)
    one_sided = jnp.stack(joint.random(u, full(5.0), full(jnp.inf)))
    assert jnp.all((one_sided >= 5.0) & (one_sided < 5.0 + 2 * math.pi))
    other_side = jnp.stack(joint.random(u, full(-jnp.inf), full(5.0)))
    assert jnp.all((other_side >= 5.0 - 2 * math.pi) & (other_side < 5.0))
    assert jnp.all(jnp.isfinite(jnp.stack(joint.random(u, full(-1.7e308), full(1.7e308)))))
    free = jnp.stack(joint.random(u, full(-jnp.inf), full(jnp.inf)))
    assert jnp.all(jnp.abs(free) <= math.pi)
    assert jnp.std(free) > 0.5


def test_random_positions_of_a_free_joint_respect_their_own_limits():
    u = tuple(jax.random.uniform(jax.random.key(0), (7, 1000)))
    lower = tuple(jnp.full(1000, x) for x in (9.0, 9.0, 9.0, 9.0, 0.0, 1.0, 2.0))
    q = jnp.stack(TYPES["free"].random(u, lower, tuple(x + 0.5 for x in lower)))
    for i, start in enumerate((0.0, 1.0, 2.0)):
        assert jnp.all((q[4 + i] >= start) & (q[4 + i] < start + 0.5))


def test_velocities_are_as_many_as_coordinates_unless_a_type_says_otherwise():
    assert type("Two", (Joint,), {"nq": 2}).nv == 2
    assert TYPES["spherical"].nv == 3


def test_random_rotations_are_uniform():
    """Uniform unit quaternions: mean 0, second moments 1/4, fourth moments those of the 3-sphere."""
    joint = TYPES["spherical"]
    u = tuple(jax.random.uniform(jax.random.key(0), (4, 40_000)))
    q = jnp.stack(joint.random(u, u, u), axis=-1)
    np.testing.assert_allclose(jnp.linalg.norm(q, axis=-1), 1, atol=1e-14)
    np.testing.assert_allclose(q.mean(0), 0, atol=0.01)
    np.testing.assert_allclose(q.T @ q / len(q), np.eye(4) / 4, atol=0.01)
    np.testing.assert_allclose((q**4).mean(0), 3 / 24, atol=0.005)
    np.testing.assert_allclose((q[:, 0] ** 2 * q[:, 2] ** 2).mean(), 1 / 24, atol=0.003)


def test_continuous_difference_wraps_and_integrate_does_not():
    joint = TYPES["continuous"]
    (far,) = joint.integrate((jnp.array(3.0),), (jnp.array(10.0),))
    assert far == 13.0
    (gap,) = joint.difference((jnp.array(3.0),), (jnp.array(-3.0),))
    assert gap == pytest.approx(2 * math.pi - 6)


def test_register():
    assert register(VariableScrew) is VariableScrew
    assert JOINT_TYPES["variable_screw"] is VariableScrew
    register(VariableScrew)  # again, as when a module is reloaded
    with pytest.raises(ValueError, match="exists already"):
        register(type("Other", (Joint,), {"type": "revolute"}))
    with pytest.raises(ValueError, match="must be a name"):
        register(type("Nameless", (Joint,), {}))
    del JOINT_TYPES["variable_screw"]


def test_a_type_without_transform_says_so():
    class Empty(Joint):
        nq = nv = 1

    with pytest.raises(NotImplementedError, match="must define transform"):
        Empty().transform(parameters("float64"), (0.0,))


def test_a_type_that_integrates_its_own_way_must_be_able_to_undo_it():
    def define(**methods):
        return type("Ring", (Joint,), {"nq": 2, "nv": 1, "type": "ring", **methods})

    with pytest.raises(TypeError, match="'Ring' defines integrate, and must define its inverse, difference"):
        define(integrate=lambda self, q, dq: q)
    assert define(integrate=lambda self, q, dq: q, difference=lambda self, q0, q1: q1[:1]).nv == 1
