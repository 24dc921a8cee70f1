"""Theorems of spatial algebra, on random values, in the component form and in its dense matrices."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.spatial import (
    ArticulatedInertia,
    Force,
    Mat3,
    Moments,
    Motion,
    MotionRows,
    Quaternion,
    RigidInertia,
    Sym3,
    Transform,
    Vec3,
    align_z,
    axis_angle,
    left_jacobian,
    left_jacobian_inverse,
    matrix_of,
    skew,
)

TIGHT = {"rtol": 0, "atol": 1e-12}

number = st.floats(-10, 10, allow_nan=False, width=64)
motions = st.lists(number, min_size=6, max_size=6).map(lambda x: Motion.from_array(np.array(x)))
forces = st.lists(number, min_size=6, max_size=6).map(lambda x: Force.from_array(np.array(x)))
vectors = st.lists(number, min_size=3, max_size=3).map(lambda x: Vec3.from_array(np.array(x)))
transforms = st.builds(lambda w, p: Transform(Quaternion.exp(w).to_matrix(), p), vectors, vectors)
inertias = st.builds(
    lambda m, c, points: RigidInertia.from_com(m, c, _inertia_of(points)),
    st.floats(0.1, 10),
    vectors,
    st.lists(st.lists(number, min_size=3, max_size=3), min_size=4, max_size=6),
)


def _inertia_of(points):
    """Rotational inertia of unit masses: physically consistent by construction."""
    x = np.array(points)
    S = x.T @ x
    return Sym3.from_array(np.trace(S) * np.eye(3) - S)


def assert_close(a, b, scale=1.0):
    a, b = (np.asarray(x.to_array()) if hasattr(x, "to_array") else np.asarray(x) for x in (a, b))
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * max(1.0, scale, np.abs(b).max(initial=0)))


@hypothesis.given(motions, motions)
def test_motion_cross_product_is_antisymmetric(a, b):
    assert_close(a.cross(b), -b.cross(a))


@hypothesis.given(motions, motions, motions)
def test_motion_cross_product_satisfies_jacobi(a, b, c):
    total = a.cross(b.cross(c)) + b.cross(c.cross(a)) + c.cross(a.cross(b))
    assert_close(total, np.zeros(6), scale=1e4)


@hypothesis.given(motions, motions, forces)
def test_force_cross_product_is_minus_the_transpose_of_the_motion_one(a, b, f):
    assert float(a.cross_force(f).dot(b)) == pytest.approx(-float(f.dot(a.cross(b))), abs=1e-10)


@hypothesis.given(transforms, motions, forces)
def test_power_is_the_same_in_every_frame(X, V, f):
    assert float(X.force(f).dot(X.motion(V))) == pytest.approx(float(f.dot(V)), abs=1e-9)


@hypothesis.given(transforms, motions, motions)
def test_transforms_preserve_the_cross_product(X, a, b):
    assert_close(X.motion(a).cross(X.motion(b)), X.motion(a.cross(b)), scale=1e4)


@hypothesis.given(motions, vectors, motions)
def test_cross_matrix_of_a_shifted_motion(V, l, X):
    """002 B.8: (phi* V)~ = phi* V~ phi*^-1, with phi* the shift by l."""
    assert_close(V.shift(l).cross(X), V.cross(X.shift(-l)).shift(l), scale=1e4)


@hypothesis.given(motions, forces, vectors)
def test_shifts_of_motion_and_force_are_dual(V, f, l):
    assert float(f.shift(l).dot(V)) == pytest.approx(float(f.dot(V.shift(l))), abs=1e-9)


@hypothesis.given(transforms, transforms, motions)
def test_composition_and_inverse(X, Y, V):
    assert_close((X @ Y).motion(V), X.motion(Y.motion(V)), scale=1e3)
    assert_close((X @ X.inverse()).p, np.zeros(3), scale=1e2)
    assert_close((X @ X.inverse()).R, np.eye(3))


@hypothesis.given(inertias, transforms, motions)
def test_congruence_of_rigid_inertia_keeps_momentum(M, X, V):
    """X* M X^-1: the momentum of the transformed body is the transformed momentum."""
    assert_close(M.transform(X) @ X.motion(V), X.force(M @ V), scale=1e6)


@hypothesis.given(inertias, transforms)
def test_articulated_inertia_of_a_rigid_body_transforms_alike(M, X):
    moved = ArticulatedInertia.from_rigid(M).transform(X)
    again = ArticulatedInertia.from_rigid(M.transform(X))
    for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(again), strict=True):
        assert_close(a, b, scale=1e4)


@hypothesis.given(inertias, motions, forces)
def test_downdate_is_a_rank_one_change(M, V, G):
    P = ArticulatedInertia.from_rigid(M)
    assert_close(P.downdate(G) @ V, (P @ V) - G.dot(V) * G, scale=1e7)


@hypothesis.given(inertias, motions)
def test_matrix_of_an_articulated_inertia(M, V):
    P = ArticulatedInertia.from_rigid(M)
    assert_close(Force.from_array(P.to_array() @ V.to_array()), P @ V, scale=1e7)


@hypothesis.given(inertias)
def test_ten_parameters_in_and_out(M):
    again = RigidInertia.from_parameters(M.to_parameters())
    assert again == M
    m, c, I = M.central()
    assert_close(RigidInertia.from_com(m, c, I).to_parameters(), M.to_parameters(), scale=1e3)


def test_parameter_order_is_pinocchios():
    pinocchio = pytest.importorskip("pinocchio")
    Y = pinocchio.Inertia.Random()
    M = RigidInertia.from_com(Y.mass, Vec3.from_array(Y.lever), Sym3.from_array(Y.inertia))
    np.testing.assert_allclose(M.to_parameters(), Y.toDynamicParameters(), **TIGHT)


def test_dense_matrices_are_the_textbooks(rng):
    w, v, l = (Vec3.from_array(jnp.array(x)) for x in rng.normal(size=(3, 3)))
    V = Motion(w, v)
    wx, vx, lx, O, I = *(np.asarray(skew(x).to_array()) for x in (w, v, l)), np.zeros((3, 3)), np.eye(3)
    crm = np.block([[wx, O], [vx, wx]])
    phi = np.block([[I, lx], [O, I]])
    np.testing.assert_allclose(matrix_of(V.cross, Motion, 6), crm, **TIGHT)
    np.testing.assert_allclose(matrix_of(V.cross_force, Force, 6), -crm.T, **TIGHT)
    np.testing.assert_allclose(matrix_of(lambda f: f.shift(l), Force, 6), phi, **TIGHT)
    np.testing.assert_allclose(matrix_of(lambda X: X.shift(l), Motion, 6), phi.T, **TIGHT)
    M = RigidInertia(2.0, v, Sym3.from_array(jnp.array(rng.normal(size=(3, 3)))))
    dense = matrix_of(M.__matmul__, Motion, 6)
    np.testing.assert_allclose(dense, np.block([[M.J.to_array(), vx], [-vx, 2 * I]]), **TIGHT)
    np.testing.assert_allclose(M.to_array(), dense, **TIGHT)
    np.testing.assert_allclose(matrix_of(M.shift(l).__matmul__, Motion, 6), phi @ dense @ phi.T, **TIGHT)
    X = Transform(axis_angle(w.normalized(), 0.7), l)
    R = X.R.to_array()
    np.testing.assert_allclose(matrix_of(X.motion, Motion, 6), np.block([[R, O], [lx @ R, R]]), **TIGHT)


# ---------------------------------------------------------------- rotations
@hypothesis.given(vectors)
def test_exponential_and_logarithm_are_inverse(w):
    angle = np.sqrt(w.dot(w))
    hypothesis.assume(angle < np.pi - 1e-6)
    assert_close(Quaternion.exp(w).log(), w)


@hypothesis.given(motions)
def test_rigid_exponential_and_logarithm_are_inverse(V):
    hypothesis.assume(np.sqrt(V.ang.dot(V.ang)) < np.pi - 1e-3)
    assert_close(Transform.exp(V).log(), V, scale=1e3)


def test_rotation_exponential_is_the_matrix_exponential(rng):
    from scipy.linalg import expm

    for w in rng.normal(size=(5, 3)):
        v = Vec3.from_array(w)
        np.testing.assert_allclose(Quaternion.exp(v).to_matrix().to_array(), expm(skew(v).to_array()), **TIGHT)
        V = Motion(v, Vec3(0.3, -1.0, 2.0))
        dense = np.zeros((4, 4))
        dense[:3, :3], dense[:3, 3] = skew(v).to_array(), V.lin.to_array()
        X = Transform.exp(V)
        np.testing.assert_allclose(X.R.to_array(), expm(dense)[:3, :3], **TIGHT)
        np.testing.assert_allclose(X.p.to_array(), expm(dense)[:3, 3], **TIGHT)


@hypothesis.given(vectors, vectors)
def test_left_jacobian_and_its_inverse(w, v):
    hypothesis.assume(np.sqrt(w.dot(w)) < 2 * np.pi - 0.1)
    assert_close(left_jacobian_inverse(w, left_jacobian(w, v)), v, scale=1e3)


@hypothesis.given(vectors)
def test_quaternion_of_matrix(w):
    q = Quaternion.exp(w)
    again = Quaternion.from_matrix(q.to_matrix())
    assert_close(again.to_matrix(), q.to_matrix())
    assert float(again.norm_squared) == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize("axis", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0.6, 0.8, 0), (-0.6, 0, 0.8)])
def test_half_turns(axis):
    R = axis_angle(Vec3.from_array(np.array(axis, float)), np.pi)
    w = Quaternion.from_matrix(R).log().to_array()
    assert np.linalg.norm(w) == pytest.approx(np.pi, abs=1e-12)
    sign = np.sign(np.dot(w, axis))  # either sense is right
    np.testing.assert_allclose(sign * w / np.pi, axis, atol=1e-12)


@pytest.mark.parametrize("pitch", [0.3, -1.2, np.pi / 2, -np.pi / 2, np.pi / 2 - 1e-9, np.pi / 2 - 1e-12])
def test_roll_pitch_yaw(pitch):
    q = Quaternion.from_rpy(0.4, pitch, -2.1)
    Rx, Ry, Rz = (axis_angle(Vec3.from_array(np.eye(3)[i]), a).to_array() for i, a in enumerate((0.4, pitch, -2.1)))
    np.testing.assert_allclose(q.to_matrix().to_array(), Rz @ Ry @ Rx, atol=1e-15)
    again = Quaternion.from_rpy(*q.to_rpy())
    np.testing.assert_allclose(again.to_matrix().to_array(), q.to_matrix().to_array(), atol=2e-15)


@hypothesis.given(vectors)
def test_align_z_is_a_rotation_that_takes_z_to_the_axis(v):
    hypothesis.assume(v.dot(v) > 1e-6)
    R = align_z(v.normalized())
    assert_close(R @ R.T, np.eye(3))
    assert np.linalg.det(R.to_array()) == pytest.approx(1)
    assert_close(R @ Vec3(0.0, 0.0, 1.0), v.normalized())


# ---------------------------------------------------------------- never NaN
def _exponentials(w):
    w = Vec3.from_array(w)
    X = Transform.exp(Motion(w, Vec3(1.0, 2.0, 3.0)))
    return [*jax.tree.leaves(X), *left_jacobian_inverse(w, Vec3(1.0, 2.0, 3.0))]


def _logarithm(q):
    return [*Quaternion.from_array(q).normalized().log(), *Quaternion.from_array(q).to_rpy()]


def _from_matrix(w):
    return list(Quaternion.from_matrix(Mat3.identity() + skew(Vec3.from_array(w))))


def _lengths(v):
    v = Vec3.from_array(v)
    q = Quaternion(v.x, v.y, v.z, 0 * v.x)
    return [*v.normalized(), *q.normalized(), *jax.tree.leaves(q.to_matrix())]


QUATERNIONS = [[1, 0, 0, 0], [-1, 0, 0, 0], [0, 1, 0, 0], [0, 0.6, 0, 0.8], [1, 1e-12, 0, 0], [0, 0, 0, 0]]
UPRIGHT = [2**-0.5, 0, 2**-0.5, 0]  # pitch of a quarter turn


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("f", "points"),
    [
        (_exponentials, [[0, 0, 0], [1e-30, 0, 0], [1e-8, 1e-9, 0], [0.5, 0.5, 0.5], [np.pi, 0, 0], [0, 0, -np.pi]]),
        (_logarithm, [*QUATERNIONS, UPRIGHT]),
        (_from_matrix, [[0, 0, 0], [1e-9, 0, 0]]),
        (_lengths, [[0, 0, 0], [1e-15, 0, 0], [0, -1e-12, 1e-8], [1, 0, 0], [0, 1e-3, 2], [1e18, 1e18, 0]]),
    ],
    ids=["exp", "log", "from_matrix", "lengths"],
)
def test_values_gradients_and_hessians_are_finite(f, points, dtype):
    weighted = lambda x: sum((i + 1) * jnp.asarray(y, dtype) for i, y in enumerate(f(x)))  # one NaN shows in the sum
    # A Hessian times a vector without zeros: one NaN in the Hessian shows in the product.
    mixed = lambda x: jax.jvp(jax.grad(weighted), (x,), (1 + jnp.arange(x.size, dtype=dtype),))
    everything = lambda x: (weighted(x), *mixed(x))
    for values in jax.jit(jax.vmap(everything))(jnp.array(points, dtype)):
        assert values.dtype == dtype
        assert jnp.all(jnp.isfinite(values))


def test_gradient_at_zero_rotation_is_the_limit():
    """The derivative at 0 equals that of the smooth map, identity for log(exp(w))."""
    f = lambda w: Quaternion.exp(Vec3.from_array(w)).log().to_array()
    slope, curvature = jax.jit(lambda w: (jax.jacfwd(f)(w), jax.hessian(f)(w)))(jnp.zeros(3))
    np.testing.assert_allclose(slope, np.eye(3), atol=1e-15)
    np.testing.assert_allclose(curvature, np.zeros((3, 3, 3)), atol=1e-15)


def test_numpy_in_numpy_out():
    """Models are built in float64 whatever JAX's flag says, by the same formulas."""
    X = Transform.exp(Motion.from_array(np.arange(6.0)))
    assert all(isinstance(x, (np.ndarray, np.generic, float)) for x in jax.tree.leaves(X))
    assert X.log().to_array().dtype == np.float64
    assert isinstance(np.float64(2) * X.p, Vec3)
    assert isinstance(jnp.float64(2) * X.p, Vec3)


def test_matrix_products(rng):
    A, B = rng.normal(size=(2, 4, 3, 3))
    S, v = A + np.swapaxes(A, -1, -2), rng.normal(size=(4, 3))
    a, b, s = Mat3.from_array(A), Mat3.from_array(B), Sym3.from_array(S)
    np.testing.assert_allclose((a @ b).to_array(), A @ B, **TIGHT)
    np.testing.assert_allclose((a @ Vec3.from_array(v)).to_array(), np.einsum("nij,nj->ni", A, v), **TIGHT)
    np.testing.assert_allclose((s @ Vec3.from_array(v)).to_array(), np.einsum("nij,nj->ni", S, v), **TIGHT)
    np.testing.assert_allclose(b.congruence(s).to_array(), B @ S @ np.swapaxes(B, -1, -2), **TIGHT)


# ---------------------------------------------------------------------- other forms
@hypothesis.given(st.lists(st.lists(number, min_size=3, max_size=3), min_size=4, max_size=6), vectors)
def test_second_moments_are_sums_over_points(points, h):
    S = Moments.of(RigidInertia(1.0, h, _inertia_of(points))).S
    x = np.array(points)
    assert_close(S, x.T @ x, scale=(x * x).sum())


@hypothesis.given(inertias, transforms)
def test_moments_turn_and_shift_as_the_inertia_does(M, X):
    moved = M.rotate(X.R).shift(X.p)
    again = Moments.of(M).rotate(X.R).shift(X.p).inertia
    assert_close(again.h, moved.h, scale=M.m)
    assert_close(again.J, moved.J, scale=M.J.trace + 100 * M.m)


@pytest.mark.parametrize("lead", [(), (4,)])
def test_a_motion_in_rows_is_that_motion(lead):
    """Sums, multiples and shifts, with and without an axis of lanes before the rows."""
    x = np.random.default_rng(0).normal(size=(4, 6, *lead, 5))
    (V, W), l, s = (Motion(Vec3(*a[:3]), Vec3(*a[3:])) for a in x[:2]), Vec3(*x[2, :3]), x[3, 0]
    V_rows, W_rows = (MotionRows.of(X, jnp.zeros(V.ang.x.shape)) for X in (V, W))
    assert V_rows.array.shape == (*lead, 6, 5)
    pairs = [(V_rows, V), (V_rows + W_rows, V + W), (s * V_rows, s * V), (V_rows.shift(l), V.shift(l))]
    for rows, motion in pairs:
        for a, b in zip((*rows.ang, *rows.lin), (*motion.ang, *motion.lin), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-15, atol=1e-15)


def test_known_numbers_become_rows():
    sliding = MotionRows.of(Motion(Vec3.zero(), Vec3(jnp.ones(3), 0.0, 1.0)), jnp.zeros(3))
    np.testing.assert_array_equal(sliding.array, [[0] * 3, [0] * 3, [0] * 3, [1] * 3, [0] * 3, [1] * 3])
    assert sliding.shift(Vec3.zero()) is sliding
    assert not MotionRows.zero(jnp.float32).array.any()
