"""Curvature of the mass matrix and flat coordinates (002 section 2)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.runge_kutta import runge_kutta
from helpers.states import geared, long, quickly, relative

import jaxdyn
from jaxdyn.algorithms import curvature, sensitivity
from jaxdyn.diagonal import flatness
from jaxdyn.model.random_models import random_chain, random_tree

pytestmark = pytest.mark.filterwarnings("ignore:.*inertia is not positive definite")

Builder = jaxdyn.ModelBuilder
BOX = {"mass": 1.3, "com": (0.2, -0.1, 0.3), "inertia": (0.3, 0.4, 0.5)}
LENGTH, MASS, COM, SPIN = 0.8, (1.0, 0.7), (0.4, 0.3), (0.1, 0.05)


def two_links(com=COM[1]):
    builder = Builder("two links").add_body("a", mass=MASS[0], com=(COM[0], 0, 0), inertia=(0.1, 0.1, SPIN[0]))
    second = {"xyz": (LENGTH, 0, 0), "mass": MASS[1], "com": (com, 0, 0), "inertia": (0.05, 0.05, SPIN[1])}
    return builder.add_body("b", "a", **second).build()


def polar(mass=1.3):
    """A point mass by angle and distance."""
    builder = Builder("polar").add_body("a")
    return builder.add_body("b", "a", joint="prismatic", axis=(1, 0, 0), mass=mass, lower=0.5, upper=2.0).build()


def gantry():
    builder = Builder("gantry")
    for k, axis in enumerate(((1, 0.2, 0), (0, 1, 0.3), (0.1, 0, 1))):
        parent = f"slide {k - 1}" if k else None
        builder.add_body(f"slide {k}", parent, "prismatic", rpy=(0.3, 0.4, 0.5), axis=axis, mass=1.0 + k)
    return builder.build()


def body_on(joint, **options):
    return Builder(f"body on {joint}").add_body("a", joint=joint, **(BOX | options)).build()


def slider():
    """A geared pair of slides: one degree of freedom of two bodies, and a turntable on it."""
    builder = Builder("slider").add_body("a", joint="prismatic", joint_name="first", axis=(1, 0, 0), mass=1.0)
    builder.add_body("b", "a", "prismatic", axis=(0, 1, 0), follows="first", ratio=0.5, mass=2.0)
    return builder.add_body("c", "b", mass=1.0, inertia=(0.1, 0.1, 0.2)).build()


def configurations(model, count, seed=0):
    return jax.vmap(jaxdyn.random_configuration, (None, 0))(model, jax.random.split(jax.random.key(seed), count))


riemann = quickly(jax.vmap(curvature.riemann_symbols, (None, 0)))
MODELS = {
    "chain": lambda: random_chain(3, seed=1, joints=("revolute", "prismatic", "helical"), armature=True),
    "tree on a floating base": lambda: random_tree(
        3, seed=2, joints=("revolute", "spherical"), floating_base=True, armature=True
    ),
    "mimic": geared,
    "columns that turn in the body": lambda: random_chain(3, seed=3, joints=("universal", "revolute", "planar")),
}
IN_COORDINATES = ("chain", "mimic")


@pytest.fixture(scope="module", params=[name if name == "chain" else long(name) for name in MODELS])
def curved(request):
    """A model, configurations of it, and the Riemann symbols there."""
    model = MODELS[request.param]()
    q = configurations(model, 4)
    return request.param, model, q, riemann(model, q)


# ---------------------------------------------------------------------- the symbols
def test_symmetries_of_the_riemann_symbols(curved):
    *_, R = curved
    scale = np.abs(R).max()
    turned = lambda *order: R.transpose(0, *(1 + np.array(order)))
    assert np.abs(R + turned(0, 1, 3, 2)).max() == 0
    assert np.abs(R + turned(1, 0, 2, 3)).max() < 1e-12 * scale
    assert np.abs(R - turned(2, 3, 0, 1)).max() < 1e-12 * scale
    assert np.abs(R + turned(0, 2, 3, 1) + turned(0, 3, 1, 2)).max() < 1e-12 * scale  # Bianchi


def test_the_printed_formula_in_coordinates(curved):
    """002 (2.5), by second derivatives of the mass matrix."""
    name, model, q, R = curved
    if name not in IN_COORDINATES:
        pytest.skip("its velocities are not derivatives of coordinates")
    M_of = partial(jaxdyn.mass_matrix, model, form="dense")
    of_state = quickly(jax.vmap(lambda q: (M_of(q), jax.jacfwd(M_of)(q), jax.jacfwd(jax.jacfwd(M_of))(q))))
    for M, dM, ddM, found in zip(*of_state(q), R, strict=True):
        first = (dM.transpose(2, 0, 1) + dM.transpose(0, 2, 1) - dM) / 2  # [ij, k]
        second = np.einsum("ijk,kl->lij", first, np.linalg.inv(M))  # {l; ij}
        slopes = np.einsum("hkij->hijk", ddM) + np.einsum("ijhk->hijk", ddM)
        slopes -= np.einsum("hjik->hijk", ddM) + np.einsum("ikhj->hijk", ddM)
        products = np.einsum("lij,hkl->hijk", second, first) - np.einsum("lik,hjl->hijk", second, first)
        assert relative(found, slopes / 2 + products, np.abs(R).max()) < 1e-11


@pytest.mark.long
def test_number_of_independent_symbols():
    """N^2 (N^2 - 1) / 12, which is 6 for three joints."""
    model = random_chain(3, seed=5)
    q = configurations(model, 20)
    size = np.linalg.svd(riemann(model, q).reshape((20, 81)), compute_uv=False)
    assert size[5] > 1e-6 * size[0]
    assert size[6] < 1e-12 * size[0]


def test_the_connection_is_that_of_the_closed_form(curved):
    """Christoffel symbols by automatic differentiation, against those in closed form, and armature's."""
    name, model, q, _ = curved

    def both(q):
        M, symbols = curvature.connection(model, q)
        c = jnp.einsum("il,ljk->ijk", M, curvature.structure_constants(model, q))
        return symbols, sensitivity.christoffel_symbols(model, q), curvature.armature_symbols(model, q), c

    found, closed, of_armature, brackets = quickly(both)(q[0])
    assert relative(found, closed + of_armature) < 1e-12
    assert relative(found - found.transpose(0, 2, 1), brackets, 1.0) < 1e-12  # no torsion
    assert np.any(of_armature) == (name == "tree on a floating base")


# ---------------------------------------------------------------------- known curvature
def test_gaussian_curvature_of_two_links():
    """K = b cos(q2) (I1 I2 - b^2) / (I1 I2 - b^2 cos^2 q2)^2, by Brioschi's formula in absolute angles.

    The scalar curvature of a surface is twice as much.
    """
    model = two_links()
    q = np.array([[0.3, 0.0], [0.1, 0.7], [-0.4, np.pi / 2], [1.0, 2.0], [0.0, np.pi]])
    I_1 = SPIN[0] + MASS[0] * COM[0] ** 2 + MASS[1] * LENGTH**2
    I_2, b = SPIN[1] + MASS[1] * COM[1] ** 2, MASS[1] * LENGTH * COM[1]
    cos = np.cos(q[:, 1])
    K = b * cos * (I_1 * I_2 - b**2) / (I_1 * I_2 - b**2 * cos**2) ** 2
    e = np.eye(2)
    of_plane = lambda q: curvature.sectional_curvature(model, q, e[0], e[1] - 0.3 * e[0])
    found, scalar = quickly(jax.vmap(lambda q: (of_plane(q), curvature.scalar_curvature(model, q))))(q)
    assert relative(found, K) < 1e-12
    assert relative(scalar, 2 * K) < 1e-12
    assert abs(found[2]) < 1e-14 * abs(found[0])  # at a right angle


def milnor(J):
    """Sectional curvatures of a body that turns about its mass centre, of the planes 23, 31, 12 of its main axes."""
    lam = J / np.sqrt(np.prod(J))
    mu = lam.sum() / 2 - lam
    return np.array([lam[k] * mu[k] - mu[(k + 1) % 3] * mu[(k + 2) % 3] for k in range(3)])


@quickly
def planes(model, q):
    """Return the sectional curvatures of these planes."""
    e = jnp.eye(3)
    of_pair = lambda a, b: curvature.sectional_curvature(model, q, a, b)
    return jax.vmap(of_pair)(jnp.roll(e, -1, 0), jnp.roll(e, -2, 0))


def test_rotations_are_curved():
    """Milnor's formula for a left-invariant metric; 1 / 4J of an isotropic body; armature is inertia too."""
    for J, A in (((2.0, 2.0, 2.0), 0.0), ((0.3, 0.4, 0.5), 0.0), ((0.3, 0.4, 0.5), (0.2, 0.1, 0.3))):
        model = body_on("spherical", com=(0, 0, 0), inertia=J, armature=A)
        q = configurations(model, 1)[0]
        assert relative(planes(model, q), milnor(np.array(J) + A)) < 1e-13
    assert relative(milnor(np.full(3, 2.0)), np.full(3, 1 / 8)) < 1e-15


def test_a_free_body_is_curved_by_its_rotations_alone():
    """Also where its mass centre is not at the origin of its frame, so that its mass matrix has no zero blocks."""
    centred, beside = body_on("free", com=(0, 0, 0)), body_on("free")
    q = configurations(centred, 2)
    J = np.array(BOX["inertia"])
    K = milnor(J)
    expected = np.zeros((6,) * 4)
    for k in range(3):
        i, j = (k + 1) % 3, (k + 2) % 3
        value = K[k] * J[i] * J[j]
        expected[i, j, i, j] = expected[j, i, j, i] = value
        expected[i, j, j, i] = expected[j, i, i, j] = -value
    assert relative(riemann(centred, q), np.stack([expected] * 2)) < 1e-13
    for model in (centred, beside):
        inverse = np.linalg.inv(jaxdyn.mass_matrix(model, q[0], form="dense"))  # it does not depend on q
        scalar = np.einsum("nlijk,lj,ik->n", riemann(model, q), inverse, inverse)
        assert relative(scalar, np.full(2, 2 * K.sum())) < 1e-12


def in_order(*joints, hand=True):
    """A body that turns in every direction by some joints without mass, and perhaps another on it."""
    builder, axes = Builder(", ".join(joints)), iter(((0, 0, 1), (1, 0, 0), (0, 1, 0)))
    for k, joint in enumerate(joints):
        own = BOX if k == len(joints) - 1 else {}
        axis = {"axis": next(axes)}
        axis |= {"axis2": next(axes)} if joint == "universal" else {}
        builder.add_body(f"body {k}", f"body {k - 1}" if k else None, joint, **axis, **own)
    if hand:
        box = {"mass": 0.5, "com": (0.1, 0.2, 0), "inertia": (0.1, 0.2, 0.15), "xyz": (0.3, 0, 0.4), "axis": (1, 2, 0)}
        builder.add_body("hand", f"body {len(joints) - 1}", **box)
    return builder.build()


@quickly
@partial(jax.vmap, in_axes=(None, 0))
def invariants(model, q):
    """Return the scalar curvature and the square of the Riemann symbols."""
    R, inverse = curvature.riemann_symbols(model, q), jnp.linalg.inv(jaxdyn.mass_matrix(model, q, form="dense"))
    raised = jnp.einsum("lijk,la,ib,jc,kd->abcd", R, *[inverse] * 4)
    return jnp.stack([jnp.einsum("lijk,lj,ik", R, inverse, inverse), jnp.sum(R * raised)])


def test_a_universal_joint_and_one_more_are_curved_like_a_spherical_joint():
    """2 sum K and 4 sum K^2 of Milnor's K, for the inertia about the centre of the joints, everywhere the same."""
    com = np.array(BOX["com"])
    about = np.diag(BOX["inertia"]) + BOX["mass"] * (com @ com * np.eye(3) - np.outer(com, com))
    K = milnor(np.linalg.eigvalsh(about))
    found = invariants(in_order("universal", "revolute", hand=False), np.array([[0.3, 0.8, -0.4], [-1.1, 0.4, 0.9]]))
    assert relative(found, np.array([[2 * K.sum(), 4 * (K**2).sum()]] * 2)) < 1e-11


@pytest.mark.long
def test_curvature_does_not_depend_on_the_coordinates():
    """One mechanism with a spherical joint, with three revolute joints, and with a universal joint and one more."""
    angles = np.array([[0.3, 0.8, -0.4, 0.6], [-1.1, 0.4, 0.9, -0.7]])
    by_angles = in_order("revolute", "revolute", "revolute")
    found = invariants(by_angles, angles)
    assert relative(invariants(in_order("universal", "revolute"), angles), found) < 1e-11
    R = np.asarray(jax.vmap(jaxdyn.frame_pose, (None, 0, None))(by_angles, angles, "body 2").rotation)
    w = np.sqrt(1 + np.trace(R, axis1=1, axis2=2)) / 2
    v = np.stack([R[:, 2, 1] - R[:, 1, 2], R[:, 0, 2] - R[:, 2, 0], R[:, 1, 0] - R[:, 0, 1]], axis=1) / (4 * w[:, None])
    q = np.concatenate([w[:, None], v, angles[:, 3:]], axis=1)
    assert relative(invariants(in_order("spherical"), q), found) < 1e-11


# ---------------------------------------------------------------------- flat or not
FLAT = {
    "gantry": (gantry, True),
    "two links": (two_links, False),
    "two links, the second balanced": (partial(two_links, 0.0), True),
    "two links, the second almost balanced": (partial(two_links, 1e-5), False),
    "point mass in polar coordinates": (polar, True),
    "body in a plane": (partial(body_on, "planar"), True),
    "body in a plane, its angle geared": (partial(body_on, "planar", armature=(0.2, 0, 0)), True),
    "body in a plane, its sides geared": (partial(body_on, "planar", armature=(0, 0.1, 0.1)), False),
    "isotropic body on a spherical joint": (partial(body_on, "spherical", com=(0, 0, 0), inertia=[0.4] * 3), False),
    "geared slides": (slider, True),
    "bolted": (lambda: Builder("bolted").build(), True),
}


MORE = {"gantry", "isotropic body on a spherical joint", "geared slides"}


@pytest.mark.parametrize("name", [long(name) if name in MORE else name for name in FLAT])
def test_which_mechanisms_are_globally_diagonalizable(name):
    make, flat = FLAT[name]
    assert flatness.is_globally_diagonalizable(make(), jax.random.key(1)) is flat


@pytest.mark.parametrize(("length", "mass"), [(1e-3, 1e3), (1e3, 1e-3)])
def test_units_do_not_matter(length, mass):
    """The same two links in other units: inertial parameters m, m c and I are of orders 0, 1 and 2 in length."""
    powers = np.array([0, 1, 1, 1, *[2] * 6])
    for com, flat in ((0.0, True), (1e-5, False)):
        model = two_links(com)
        placement = np.array(model.placement)
        placement[:, 4:] *= length
        other = model.replace(inertia=model.inertia * (mass * length**powers)[None], placement=jnp.asarray(placement))
        assert flatness.is_globally_diagonalizable(other, jax.random.key(0)) is flat


def test_one_pose_does_not_do():
    """The curvature of two links vanishes where they are at right angles."""
    model = two_links().replace(lower=jnp.array([0, np.pi / 2]), upper=jnp.array([1, np.pi / 2]))
    assert flatness.is_globally_diagonalizable(model, jax.random.key(0))


def test_float32_is_judged_by_its_own_rounding(float32):
    key = jax.random.key(0)
    model = two_links(1e-9)
    assert model.dtype == float32
    assert flatness.is_globally_diagonalizable(model, key)
    assert not flatness.is_globally_diagonalizable(model, key, tolerance=1e-12)
    assert not flatness.is_globally_diagonalizable(two_links(), key)


# ---------------------------------------------------------------------- flat coordinates
def positions(model, q):
    """Coordinates of which the kinetic energy is half the square of the speed, by hand."""
    name = model.topology.name
    if name == "polar":
        return np.sqrt(1.3) * q[:, 1:] * np.stack([np.cos(q[:, 0]), np.sin(q[:, 0])], axis=1)
    if name == "two links":
        I_1, I_2 = SPIN[0] + MASS[0] * COM[0] ** 2 + MASS[1] * LENGTH**2, SPIN[1]
        return np.stack([np.sqrt(I_1) * q[:, 0], np.sqrt(I_2) * q.sum(1)], axis=1)
    if name == "body on planar":
        x, y, _ = BOX["com"]
        angle = q[:1, 0] + (q[:, 0] - q[0, 0] + np.pi) % (2 * np.pi) - np.pi  # the shorter way from the origin
        cos, sin = np.cos(angle), np.sin(angle)
        com = q[:, 1:] + np.stack([cos * x - sin * y, sin * x + cos * y], axis=1)
        return np.concatenate([np.sqrt(BOX["mass"]) * com, np.sqrt(BOX["inertia"][2]) * angle[:, None]], axis=1)
    axes = np.asarray(jax.vmap(lambda q: jaxdyn.forward_kinematics(model, q).position)(q))
    return (np.sqrt(np.arange(1.0, 4))[:, None] * axes).reshape((len(q), 9))


@pytest.fixture(scope="module", params=[long("gantry"), long("balanced"), "polar", long("planar")])
def flat(request):
    """A flat mechanism, states of it, and its flat coordinates there."""
    make = {"gantry": gantry, "balanced": partial(two_links, 0.0), "polar": polar, "planar": partial(body_on, "planar")}
    model = make[request.param]()
    q = configurations(model, 5)
    qd, tau = np.random.default_rng(0).normal(size=(2, 5, model.nv))

    def of_state(q, qd, tau):
        """Return y, J, both sides of y' = J qd and of y'' = J^-* (tau - g), and M."""
        on_the_way = lambda t: flatness.flat_coordinates(model, jaxdyn.integrate(model, q, t * qd), origin=q_0)
        (y, J), (yd, Jd) = jax.jvp(on_the_way, (0.0,), (1.0,))
        ydd = Jd @ qd + J @ jaxdyn.forward_dynamics(model, q, qd, tau, form="dense")
        push = jnp.linalg.solve(J.T, tau - jaxdyn.gravity_force(model, q))
        return {"y": y, "J": J, "yd": (yd, J @ qd), "ydd": (ydd, push), "M": jaxdyn.mass_matrix(model, q, form="dense")}

    q_0 = q[0]
    return model, q, quickly(jax.vmap(of_state))(q, qd, tau)


def test_the_jacobian_is_a_factor_of_the_mass_matrix(flat):
    *_, found = flat
    J = found["J"]
    assert relative(J.transpose(0, 2, 1) @ J, found["M"]) < 1e-12
    assert relative(*found["yd"]) < 1e-12  # it is the derivative of y, here in random directions


def test_the_equations_of_motion_decouple(flat):
    """002 Lemma 2.1: y'' = eps, with the factor J* of the mass matrix in place of m."""
    *_, found = flat
    assert relative(*found["ydd"]) < 1e-11


def test_distances_are_those_of_the_flat_space(flat):
    """Flat coordinates agree with those found by hand, but for a rotation and a shift."""
    model, q, found = flat
    y = found["y"]
    apart = lambda x: np.linalg.norm(x[:, None] - x[None], axis=-1)
    assert np.abs(y[0]).max() == 0
    assert relative(apart(y), apart(positions(model, np.asarray(q)))) < 1e-11


def test_at_the_origin_they_are_the_total_joint_rates(flat):
    model, q, found = flat
    if max(joint.nv for joint in model.topology.joints) > 1:
        pytest.skip("the factor is another one")
    assert relative(found["J"][0], jaxdyn.operators.innovations_factor(model, q[0]).T.as_matrix()) < 1e-13


@pytest.mark.long
def test_a_free_motion_is_a_straight_line():
    """A point mass in polar coordinates, simulated there, moves evenly on a line."""
    model, steps, h = polar().replace(gravity=jnp.zeros(3)), 200, 0.005
    rate = lambda x: jnp.concatenate([x[2:], jaxdyn.forward_dynamics(model, x[:2], x[2:], jnp.zeros(2), form="dense")])

    start = jnp.array([0.2, 1.0, 0.7, -0.4])
    path = quickly(lambda x: runge_kutta(rate, x, h, steps))(start)
    at = np.array([50, 100, 150, 200])
    y_of = quickly(jax.vmap(lambda q: flatness.flat_coordinates(model, q, origin=start[:2])))
    velocity = y_of(start[None, :2]).J[0] @ start[2:]
    assert relative(y_of(path[at, :2]).y, h * at[:, None] * velocity[None]) < 1e-9


@pytest.mark.long
def test_flat_coordinates_in_float32(float32):
    model = two_links(0.0)
    q = jnp.array([0.7, -0.4], float32)
    y, J = flatness.flat_coordinates(model, q)
    assert y.dtype == J.dtype == float32
    assert relative(J.T @ J, jaxdyn.mass_matrix(model, q)) < 1e-5


# ---------------------------------------------------------------------- what is refused
def test_what_is_refused():
    key, q = jax.random.key(0), np.ones(2)
    with pytest.raises(ValueError, match="'two links' has no flat coordinates"):
        flatness.flat_coordinates(two_links(), q)
    with pytest.raises(ValueError, match="origin: the mass matrix of 'polar' is singular"):
        flatness.flat_coordinates(polar(), q)
    with pytest.raises(ValueError, match=r"origin must have shape \(2,\)"):
        flatness.flat_coordinates(polar(), q, origin=np.ones(3))
    with pytest.raises(ValueError, match="steps must be a positive integer; got 0"):
        flatness.flat_coordinates(polar(), q, steps=0)
    with pytest.raises(ValueError, match="samples must be a positive integer; got 0"):
        flatness.is_globally_diagonalizable(two_links(), key, samples=0)
    with pytest.raises(TypeError, match=r"model must be a jaxdyn\.Model"):
        curvature.riemann_symbols("arm7", q)
    massless = Builder("bare").add_body("a")
    with pytest.warns(jaxdyn.ModelWarning):
        bare = massless.build()
    with pytest.raises(jaxdyn.ModelError, match="inertia"):
        curvature.riemann_symbols(bare, np.ones(1))
