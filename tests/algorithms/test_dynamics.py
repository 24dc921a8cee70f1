"""Dynamics: both fast forms against their plain twins, and against the laws that any mechanics must obey.

Derivatives in time are central differences of order eight along the motion, so that each law needs no more than the
functions it is about. Every function is compiled once for each model; by default the laws are put to a quadruped,
whose base has quasi-velocities, and in the long run to joints of all types.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import ModelBuilder, plain
from jaxdyn.model.random_models import random_tree
from jaxdyn.spatial import Mat3, RigidInertia, Transform, Vec3

# What counts is the time to compile; these options make that several times quicker, and the code no worse.
quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False})
long = partial(pytest.param, marks=pytest.mark.long)


def close(a, b, tolerance=1e-11, scale=None):
    """max|a - b| is small against max|b|, or against a given scale."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    assert np.all(np.isfinite(b))
    scale = np.abs(b).max(initial=0) if scale is None else scale
    assert scale > 0
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)


# ---------------------------------------------------------------------- models and states
BUILT = {
    # no mimic joints; a floating base, moving axes, quasi-velocities; branches
    "grove": lambda: random_tree(7, seed=8, roots=2, floating_base=True, joints=("universal", "spherical")),
    "arm": lambda: jaxdyn.load("arm7"),
    "quadruped": lambda: jaxdyn.load("quadruped"),
    "tree": lambda: random_tree(24, seed=5, joints=("revolute",), branching=0.5),
    "gantry": lambda: jaxdyn.load("gantry"),
    "double_pendulum": lambda: jaxdyn.load("double_pendulum"),
}


@pytest.fixture(scope="module")
def build(forest):
    """Return a model by name, with gravity aslant, and a motor, a spring, damping and friction at every joint."""

    @cache
    def dressed(name):
        model = forest if name == "forest" else BUILT[name]()
        rng = np.random.default_rng(7)
        numbers = {n: rng.uniform(0.1, 0.5, model.nv) for n in ("armature", "stiffness", "damping", "friction")}
        if model.joint_types[0] == "free":
            numbers["armature"][:6] = 0  # nothing turns a floating base
        rest = jaxdyn.neutral(model) + 0.1 * rng.normal(size=model.nq)
        return model.replace(gravity=(1.0, 2.0, -9.0), rest=rest, **numbers)

    return dressed


@pytest.fixture(scope="module", params=["quadruped", *map(long, ("forest", "grove", "arm", "tree"))])
def model(request, build):
    return build(request.param)


class State:
    """A random state of a model; quaternions are not of length one."""

    def __init__(self, model, seed=0):
        normal = np.random.default_rng(seed).normal
        self.q = np.asarray(jaxdyn.neutral(model)) + normal(size=model.nq)
        self.qd, self.qdd, self.tau, self.w = normal(size=(4, model.nv))
        self.f_ext = normal(size=(model.nbodies, 6))
        self.base_motion = tuple(normal(size=(2, 6)))
        self.zero = np.zeros(model.nv)
        self.free, self.still = np.zeros_like(self.f_ext), (np.zeros(6), np.zeros(6))


@pytest.fixture(scope="module")
def at(model):
    return State(model)


# ---------------------------------------------------------------------- compiled once for each model
def inverse_dynamics(model, q, qd, qdd, f_ext, base_motion, form="auto"):
    return jaxdyn.inverse_dynamics(model, q, qd, qdd, f_ext=f_ext, base_motion=base_motion, form=form)


def forward_dynamics(model, q, qd, tau, f_ext, base_motion, form="auto"):
    return jaxdyn.forward_dynamics(model, q, qd, tau, f_ext=f_ext, base_motion=base_motion, form=form)


ID, FD, M = map(quickly, (inverse_dynamics, forward_dynamics, jaxdyn.mass_matrix))
M_inverse, C, C_product = map(quickly, (jaxdyn.mass_matrix_inverse, jaxdyn.coriolis_matrix, jaxdyn.coriolis_product))
gravity_force, kinetic, potential = map(quickly, (jaxdyn.gravity_force, jaxdyn.kinetic_energy, jaxdyn.potential_energy))
passive_force, poses, integrate = map(quickly, (jaxdyn.passive_force, jaxdyn.forward_kinematics, jaxdyn.integrate))
power = quickly(lambda model, q, qd, tau, f_ext: jaxdyn.power(model, q, qd, tau, f_ext=f_ext))
A, momentum, A_bias = map(
    quickly, (jaxdyn.centroidal_momentum_matrix, jaxdyn.centroidal_momentum, jaxdyn.centroidal_momentum_bias)
)
center, center_jacobian = map(quickly, (jaxdyn.center_of_mass, jaxdyn.center_of_mass_jacobian))
POINT = np.array([0.1, -0.2, 0.3])
frame_of = lambda model: model.frame_names[-1]
pose_of_frame = quickly(lambda model, q: jaxdyn.frame_pose(model, q, frame_of(model), POINT))
jacobian = quickly(lambda model, q: jaxdyn.jacobian(model, q, frame_of(model), POINT))
frame_velocity = quickly(
    lambda model, q, qd, base: jaxdyn.frame_velocity(model, q, qd, frame_of(model), POINT, base_motion=base)
)
frame_acceleration = quickly(
    lambda model, q, qd, qdd, base: jaxdyn.frame_acceleration(
        model, q, qd, qdd, frame_of(model), POINT, base_motion=base
    )
)
velocities = quickly(jaxdyn.body_velocities, static_argnames="axes")
accelerations = quickly(jaxdyn.body_accelerations, static_argnames="axes")


def difference_quotient(f, h=0.02):
    """Return the derivative of f at zero, by a central difference of order eight."""
    terms = zip((4 / 5, -1 / 5, 4 / 105, -1 / 280), h * np.arange(1, 5), strict=True)
    part = lambda c, t: jax.tree.map(lambda a, b: c / h * (np.asarray(a) - np.asarray(b)), f(t), f(-t))
    return jax.tree.map(lambda *parts: sum(parts), *(part(c, t) for c, t in terms))


def rate(f, model, at, qdd=None):
    """Return the derivative in time of f(model, q, qd), or of f(model, q), at the motion (q, qd, qdd)."""
    place = lambda t: integrate(model, at.q, t * at.qd)
    if qdd is None:
        return difference_quotient(lambda t: f(model, place(t)))
    return difference_quotient(lambda t: f(model, place(t), at.qd + t * qdd))


def slopes(f, model, q):
    """Return the derivatives of f(q) along the unit velocities, as the last axis."""
    along = [difference_quotient(lambda t: f(model, integrate(model, q, t * e))) for e in np.eye(model.nv)]
    return jax.tree.map(lambda *parts: np.stack(parts, axis=-1), *along)


def vee(W):
    """Return the vector of a skew matrix (3, 3, ...)."""
    return np.stack([W[2, 1] - W[1, 2], W[0, 2] - W[2, 0], W[1, 0] - W[0, 1]]) / 2


# ---------------------------------------------------------------------- forms and twins
def on_states(f, form, mapped):
    """Return f(model, state) in one form: sweeps on a batch of states, matrices one after the other."""
    if form == "sweep":
        batch = quickly(jax.vmap(partial(f, form=form), (None, *mapped)))
        return lambda model, rows: np.asarray(batch(model, *jax.tree.map(lambda *x: np.stack(x), *rows)))
    one = quickly(partial(f, form=form))
    return lambda model, rows: np.stack([one(model, *row) for row in rows])


FORMS = ("sweep", "dense")
ids, fds = ({form: on_states(f, form, (0,) * 5) for form in FORMS} for f in (inverse_dynamics, forward_dynamics))
mass_matrices = {form: on_states(jaxdyn.mass_matrix, form, (0,)) for form in FORMS}
plain_ids, plain_fds = (
    quickly(lambda model, q, qd, x, f_ext, base_motion: f(model, q, qd, x, f_ext=f_ext, base_motion=base_motion))
    for f in (plain.inverse_dynamics, plain.forward_dynamics)
)
plain_mass_matrix = quickly(plain.mass_matrix)

by_default = [("grove", "sweep"), ("gantry", "sweep"), ("forest", "dense")]
others = [(n, f) for n in ("forest", "grove", "gantry", "arm", "quadruped", "tree") for f in FORMS]
in_form = pytest.mark.parametrize(
    ("name", "form"), [*by_default, *(long(*case) for case in others if case not in by_default)]
)


def states(model):
    return [State(model, seed) for seed in range(3)]


@in_form
def test_inverse_dynamics_equals_its_plain_twin(build, name, form):
    """With forces on all bodies, on a moving base."""
    model = build(name)
    rows = [(s.q, s.qd, s.qdd, s.f_ext, s.base_motion) for s in states(model)]
    close(ids[form](model, rows), np.stack([plain_ids(model, *row) for row in rows]), 1e-12)


@in_form
def test_mass_matrix_equals_its_plain_twin(build, name, form):
    model = build(name)
    rows = [(s.q,) for s in states(model)]
    close(mass_matrices[form](model, rows), np.stack([plain_mass_matrix(model, *row) for row in rows]), 1e-12)


@in_form
def test_forward_dynamics_inverts_inverse_dynamics(build, name, form):
    """FD(q, qd, ID(q, qd, qdd)) = qdd, with forces on all bodies, on a moving base; ID is the plain twin."""
    model = build(name)
    rows = [(s.q, s.qd, s.qdd, s.f_ext, s.base_motion) for s in states(model)]
    given = [(q, qd, plain_ids(model, q, qd, *rest), *rest[1:]) for q, qd, *rest in rows]
    close(fds[form](model, given), np.stack([row[2] for row in rows]), 1e-10)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["forest", "grove", "gantry", "arm", "quadruped", "tree"])
def test_forward_dynamics_equals_its_plain_twin(build, name, form):
    model = build(name)
    rows = [(s.q, s.qd, s.tau, s.f_ext, s.base_motion) for s in states(model)]
    close(fds[form](model, rows), np.stack([plain_fds(model, *row) for row in rows]), 1e-11)


def test_coriolis_product_with_moving_axes_and_quasi_velocities(build):
    """C(v) v = bias - gravity, and w M' w = 2 w C(v) w for every w: M' - 2C is skew."""
    model = build("grove")
    at = State(model)
    bias = plain_ids(model, at.q, at.qd, at.zero, at.free, at.still)
    gravity = plain_ids(model, at.q, at.zero, at.zero, at.free, at.still)
    close(C_product(model, at.q, at.qd, at.qd), bias - gravity, 1e-12)
    M_rate = rate(plain_mass_matrix, model, at)
    for w in np.random.default_rng(0).normal(size=(5, model.nv)):
        close(2 * w @ C_product(model, at.q, at.qd, w), w @ M_rate @ w, 1e-10)


@pytest.mark.parametrize("name", ["double_pendulum", *map(long, ("forest", "grove", "quadruped", "tree"))])
def test_coriolis_product_is_the_matrix_times_a_vector(build, name):
    model = build(name)
    at = State(model)
    close(C_product(model, at.q, at.qd, at.w), C(model, at.q, at.qd) @ at.w, 1e-12)


# ---------------------------------------------------------------------- the mass matrix
def test_columns_of_the_mass_matrix_are_forces_of_unit_accelerations(model, at):
    """M e_i = ID(q, 0, e_i) - ID(q, 0, 0) (004 3.2); also at any velocity."""
    for qd in (at.zero, at.qd):
        force = lambda qdd: np.asarray(ID(model, at.q, qd, qdd, at.free, at.still))
        close(np.stack([force(e) - force(at.zero) for e in np.eye(model.nv)], axis=1), M(model, at.q), 1e-12)


def test_mass_matrix_is_symmetric_and_positive(model, at):
    found = np.asarray(M(model, at.q))
    close(found, found.T, 1e-15)
    assert np.linalg.eigvalsh(found).min() > 0


def test_mass_matrix_is_that_of_the_kinetic_energy(model, at):
    close(kinetic(model, at.q, at.qd), at.qd @ M(model, at.q) @ at.qd / 2, 1e-13)


def test_inverse_of_the_mass_matrix(model, at):
    close(M_inverse(model, at.q) @ M(model, at.q), np.eye(model.nv), 1e-11)


def test_forward_dynamics_is_newtons_law(model, at):
    """M qdd + bias = tau + J* f_ext, on a moving base."""
    qdd = FD(model, at.q, at.qd, at.tau, at.f_ext, at.base_motion)
    close(ID(model, at.q, at.qd, qdd, at.f_ext, at.base_motion), at.tau, 1e-11)
    bias = ID(model, at.q, at.qd, at.zero, at.f_ext, at.base_motion)
    close(M(model, at.q) @ qdd, at.tau - bias, 1e-11)


# ---------------------------------------------------------------------- energy
def test_power_is_the_rate_of_energy(model, at):
    """d/dt (T + V_gravity) = tau . qd + sum f_ext . V."""
    loose = model.replace(stiffness=0 * model.stiffness)
    qdd = FD(loose, at.q, at.qd, at.tau, at.f_ext, at.still)
    total = rate(kinetic, loose, at, qdd) + rate(potential, loose, at)
    close(total, power(loose, at.q, at.qd, at.tau, at.f_ext), 1e-10)


def test_passive_forces_store_and_dissipate(model, at):
    """d/dt (T + V_gravity + V_springs) = tau . qd - damping qd^2 - friction tanh(qd / v_s) qd."""
    tau = at.tau + passive_force(model, at.q, at.qd)
    qdd = FD(model, at.q, at.qd, tau, at.free, at.still)
    lost = model.damping * at.qd**2 + model.friction * np.tanh(at.qd / model.v_s) * at.qd
    assert np.all(lost > 0)
    total = rate(kinetic, model, at, qdd) + rate(potential, model, at)
    close(total, at.tau @ at.qd - lost.sum(), 1e-10)


def test_springs_pull_down_their_energy(model, at):
    """The passive force at rest is minus the gradient of the springs' energy."""
    weightless = model.replace(gravity=jnp.zeros(3))
    close(passive_force(weightless, at.q, at.zero), -slopes(potential, weightless, at.q), 1e-10)
    assert float(potential(weightless, model.rest)) == pytest.approx(0, abs=1e-28)


def test_gravity_force_is_the_gradient_of_the_potential_energy(model, at):
    """Along `integrate`, and it is ID(q, 0, 0)."""
    loose = model.replace(stiffness=0 * model.stiffness)
    force = gravity_force(loose, at.q)
    close(force, slopes(potential, loose, at.q), 1e-10)
    close(force, ID(loose, at.q, at.zero, at.zero, at.free, at.still), 1e-12)


def test_coriolis_matrix(model, at):
    """C qd = bias - gravity; M' - 2C is skew, for quasi-velocities too."""
    found = np.asarray(C(model, at.q, at.qd))
    bias = ID(model, at.q, at.qd, at.zero, at.free, at.still)
    close(found @ at.qd, bias - gravity_force(model, at.q), 1e-11)
    skew = rate(M, model, at) - 2 * found
    close(skew, -skew.T, 1e-10, scale=np.abs(found).max())


# ---------------------------------------------------------------------- frames and bodies
def test_jacobian_is_the_derivative_of_the_pose(model, at):
    pose, change = pose_of_frame(model, at.q), slopes(pose_of_frame, model, at.q)
    turning = vee(np.einsum("ijk,lj->ilk", change.rotation, pose.rotation))
    close(jacobian(model, at.q), np.concatenate([turning, change.position]), 1e-10)


def test_frame_velocity_and_acceleration(model, at):
    """V = J qd; its derivative along the motion is the acceleration, J qdd + J' qd."""
    J, at_rest = jacobian(model, at.q), lambda model, q, qd: frame_velocity(model, q, qd, at.still)
    close(at_rest(model, at.q, at.qd), J @ at.qd, 1e-12)
    found = frame_acceleration(model, at.q, at.qd, at.qdd, at.still)
    close(found, rate(at_rest, model, at, at.qdd), 1e-10)
    without = frame_acceleration(model, at.q, at.qd, at.zero, at.still)
    close(found, J @ at.qdd + without, 1e-12)
    close(without, rate(jacobian, model, at) @ at.qd, 1e-10)


@pytest.mark.parametrize("axes", ["body", "world"])
def test_body_velocities_and_accelerations(model, at, axes):
    """Velocities are the rates of poses; accelerations those of velocities, in the same axes."""
    R, change = poses(model, at.q).rotation, rate(poses, model, at)
    found = velocities(model, at.q, at.qd, axes=axes, base_motion=at.still)
    turning, moving = vee(np.einsum("bij,blj->ilb", change.rotation, R)).T, change.position
    if axes == "body":
        turning, moving = (np.einsum("bji,bj->bi", R, x) for x in (turning, moving))
    close(found, np.concatenate([turning, moving], axis=1), 1e-10)
    f = lambda model, q, qd: velocities(model, q, qd, axes=axes, base_motion=at.still)
    found = accelerations(model, at.q, at.qd, at.qdd, axes=axes, base_motion=at.still)
    close(found, rate(f, model, at, at.qdd), 1e-10)


def test_a_moving_base_adds_by_the_theorem_of_coriolis(model, at):
    """v = v0 + w0 x p + v', a = a0 + wd0 x p + w0 x (w0 x p) + 2 w0 x v' + a', in world axes."""
    (w0, v0), (wd0, vd0) = (np.split(x, 2) for x in at.base_motion)
    a0 = vd0 + np.cross(w0, v0)  # the base's components are in its own, turning axes
    on_rest, on_base = (
        [
            (velocities(model, at.q, at.qd, axes="world", base_motion=b), frame_velocity(model, at.q, at.qd, b)),
            (
                accelerations(model, at.q, at.qd, at.qdd, axes="world", base_motion=b),
                frame_acceleration(model, at.q, at.qd, at.qdd, b),
            ),
        ]
        for b in (at.still, at.base_motion)
    )
    (V, A), (V_on_base, A_on_base) = ([np.vstack(pair) for pair in both] for both in (on_rest, on_base))
    p = np.vstack([poses(model, at.q).position, pose_of_frame(model, at.q).position])
    (w, v), (wd, vd) = (np.split(x, 2, axis=1) for x in (V, A))
    lin = v0 + np.cross(w0, p) + v
    close(V_on_base, np.hstack([w0 + w, lin]), 1e-12)
    lin = a0 + np.cross(wd0, p) + np.cross(w0, np.cross(w0, p)) + 2 * np.cross(w0, v) + vd
    close(A_on_base, np.hstack([wd0 + wd + np.cross(w0, w), lin]), 1e-12)


# ---------------------------------------------------------------------- momentum
def test_centre_of_mass_and_momentum(model, at):
    """h = A qd; its linear part is the mass times the rate of the centre of mass; its rate is A qdd + A' qd."""
    matrix, h, mass = A(model, at.q), momentum(model, at.q, at.qd), model.inertia[:, 0].sum()
    close(matrix @ at.qd, h, 1e-12)
    close(center_jacobian(model, at.q), slopes(center, model, at.q), 1e-10)
    close(h[3:], mass * rate(center, model, at), 1e-10)
    close(matrix @ at.qdd + A_bias(model, at.q, at.qd), rate(momentum, model, at, at.qdd), 1e-10)


def test_momentum_changes_by_external_forces_alone(build):
    """Of a robot that nothing holds: whatever the joints do, also motors and springs. Free fall keeps the spin."""
    model = build("quadruped")
    at = State(model)
    inner = np.concatenate([np.zeros(6), at.tau[6:]])
    X, c, mass = poses(model, at.q), center(model, at.q), float(model.inertia[:, 0].sum())
    moment, force = (np.einsum("bij,bj->bi", X.rotation, x) for x in (at.f_ext[:, :3], at.f_ext[:, 3:]))
    moment = moment + np.cross(X.position - c, force)
    weight = np.concatenate([np.zeros(3), mass * model.gravity])
    for f_ext, given in ((at.f_ext, np.hstack([moment, force]).sum(0)), (at.free, np.zeros(6))):
        qdd = FD(model, at.q, at.qd, inner, f_ext, at.still)
        found = rate(momentum, model, at, qdd)
        close(found, given + weight, 1e-10)
        close(A(model, at.q) @ qdd + A_bias(model, at.q, at.qd), given + weight, 1e-10)


# ---------------------------------------------------------------------- operators
def tilde(v):
    return np.cross(np.eye(3), v)


def operators(model, q):
    """Return H, E, P as in the operator algebra and M(k) by body, in NumPy: world axes, own origins.

    P is that of 004 (29): ones, and minus ones where a body meets its parent; there all is about the world's origin.
    """
    X, n = jax.tree.map(np.asarray, poses(model, q)), model.nbodies
    H, E, P, inertia, to_world = np.zeros((model.nv, 6 * n)), *np.zeros((4, 6 * n, 6 * n))
    for k, (name, kind, parent) in enumerate(zip(model.joint_names, model.joint_types, model.parents, strict=True)):
        R, p, at = X.rotation[k], X.position[k], slice(6 * k, 6 * k + 6)
        rows = np.eye(6) if kind == "free" else np.concatenate([model.axis[k], np.zeros(3)])[None]
        assert kind in ("free", "revolute")
        H[model.qd_slice(name), at] = np.hstack([rows[:, :3] @ R.T, rows[:, 3:] @ R.T])
        m, h, J = model.inertia[k, 0], R @ model.inertia[k, 1:4], model.inertia[k, 4:]
        J = R @ np.array([[J[0], J[1], J[3]], [J[1], J[2], J[4]], [J[3], J[4], J[5]]]) @ R.T
        inertia[at, at] = np.block([[J, tilde(h)], [-tilde(h), m * np.eye(3)]])
        to_world[at, at] = np.block([[np.eye(3), tilde(p)], [np.zeros((3, 3)), np.eye(3)]])
        P[at, at] = np.eye(6)
        if parent >= 0:
            inboard = slice(6 * parent, 6 * parent + 6)
            l = p - X.position[parent]
            E[inboard, at] = np.block([[np.eye(3), tilde(l)], [np.zeros((3, 3)), np.eye(3)]])
            P[at, inboard] = -np.eye(6)
    return H, E, P, inertia, to_world


@pytest.mark.parametrize("name", ["quadruped", long("tree")])
def test_operator_factorisations(build, name):
    """M = H phi M phi* H* + A; M^-1 = (1 - H psi K)* D^-1 (1 - H psi K) with the Riccati equation's D and K."""
    model = build(name)
    at, A = State(model), np.diag(model.armature)
    H, E, P, inertia, to_world = operators(model, at.q)
    one = np.eye(len(E))
    phi = np.linalg.inv(one - E)
    close(M(model, at.q), H @ phi @ inertia @ phi.T @ H.T + A, 1e-12)

    # 004 (29), (24), (26): P a = H* qdd + ... about the world's origin, so that S = P^-1 H*.
    S = np.linalg.inv(P) @ np.linalg.inv(to_world).T @ H.T
    close(M(model, at.q), S.T @ to_world @ inertia @ to_world.T @ S + A, 1e-12)

    Pi = inertia
    for _ in range(model.nbodies):  # P = M + E tb P E*, from the tips inward
        D = H @ Pi @ H.T * block_diagonal(model) + A
        G = Pi @ H.T @ np.linalg.inv(D)
        Pi = inertia + E @ (Pi - G @ H @ Pi) @ E.T
    K = E @ G
    psi = np.linalg.inv(one - (E - K @ H))
    factor = np.eye(model.nv) - H @ psi @ K
    close(M_inverse(model, at.q), factor.T @ np.linalg.inv(D) @ factor, 1e-11)
    close((np.eye(model.nv) + H @ phi @ K) @ D @ (np.eye(model.nv) + H @ phi @ K).T, M(model, at.q), 1e-11)


def block_diagonal(model):
    """Return ones where two velocities belong to one joint."""
    joint = np.concatenate([np.full(j.nv, k) for k, j in enumerate(model.topology.joints)])
    return (joint[:, None] == joint[None]).astype(float)


def test_accelerations_by_004_29(build):
    """P a = H* qdd + (d/dt H*) qd, with spatial accelerations about the world's origin; h' = v x h."""
    model = build("quadruped")
    at = State(model)
    H, _, P, _, to_world = operators(model, at.q)
    to_own = to_world.T
    V, a = (
        x.reshape(-1)
        for x in (
            np.asarray(velocities(model, at.q, at.qd, axes="world", base_motion=at.still)),
            np.asarray(accelerations(model, at.q, at.qd, at.qdd, axes="world", base_motion=at.still)),
        )
    )
    a = a.reshape(-1, 6)
    a[:, 3:] -= np.cross(V.reshape(-1, 6)[:, :3], V.reshape(-1, 6)[:, 3:])  # spatial, not classical
    a, V, H_0 = (np.linalg.inv(to_own) @ x for x in (a.reshape(-1), V, H.T))
    V_J = (H_0 @ at.qd).reshape(-1, 6)
    w, v = np.split(V.reshape(-1, 6), 2, axis=1)
    turning = np.hstack([np.cross(w, V_J[:, :3]), np.cross(v, V_J[:, :3]) + np.cross(w, V_J[:, 3:])])
    close(P @ a, H_0 @ at.qdd + turning.reshape(-1), 1e-11)


# ---------------------------------------------------------------------- closed forms
def test_double_pendulum(build):
    """M, Coriolis and gravity terms of two uniform rods, from any textbook; angles from straight down."""
    model = jaxdyn.load("double_pendulum")
    at = State(model)
    (q, qd, qdd), g, I = (at.q, at.qd, at.qdd), 9.81, (1 + 3 * 0.02**2) / 12 + 1 / 4  # about the rod's end
    c2, s2 = np.cos(q[1]), np.sin(q[1])
    mass = np.array([[2 * I + 1 + c2, I + c2 / 2], [I + c2 / 2, I]])
    coriolis = s2 / 2 * np.array([[-qd[1], -qd[0] - qd[1]], [qd[0], 0]])
    gravity = g * np.array([1.5 * np.sin(q[0]) + 0.5 * np.sin(q[0] + q[1]), 0.5 * np.sin(q[0] + q[1])])
    tau = mass @ qdd + coriolis @ qd + gravity
    at_rest = (at.free, at.still)
    for form in FORMS:
        close(ids[form](model, [(q, qd, qdd, *at_rest)])[0], tau, 1e-13)
        close(mass_matrices[form](model, [(q,)])[0], mass, 1e-13)
        close(fds[form](model, [(q, qd, tau, *at_rest)])[0], qdd, 1e-13)
    close(C(model, q, qd), coriolis, 1e-13)


@pytest.mark.parametrize("form", FORMS)
def test_a_free_rigid_body_obeys_newton_and_euler(form):
    m, c, I = 2.0, np.array([0.1, -0.2, 0.3]), np.array([[0.3, 0.02, 0.01], [0.02, 0.2, -0.03], [0.01, -0.03, 0.25]])
    model = ModelBuilder().add_body("stone", joint="free", mass=m, com=c, inertia=I).build()
    at = State(model)
    (w, v), (moment, force) = np.split(at.qd, 2), np.split(at.tau + at.f_ext[0], 2)
    R = Transform.from_pose(at.q).R.to_array()
    wd = np.linalg.solve(I, moment - np.cross(c, force) - np.cross(w, I @ w))
    of_centre = force / m + R.T @ np.array([0, 0, -9.81])
    of_origin = of_centre - np.cross(wd, c) - np.cross(w, np.cross(w, c))
    qdd = np.concatenate([wd, of_origin - np.cross(w, v)])  # the rate of v in turning axes
    close(fds[form](model, [(at.q, at.qd, at.tau, at.f_ext, at.still)])[0], qdd, 1e-13)


# ---------------------------------------------------------------------- invariances
def same_joint_space(model, other, at):
    """Torques and mass matrix of two models agree at a state, without forces on bodies."""
    close(ID(other, at.q, at.qd, at.qdd, at.free, at.still), ID(model, at.q, at.qd, at.qdd, at.free, at.still), 1e-12)
    close(M(other, at.q), M(model, at.q), 1e-12)


def test_where_the_base_stands_does_not_matter(model, at):
    """If gravity is turned with it."""
    X = Transform.from_pose(np.array([0.5, -0.1, 0.7, 0.3, 1.0, -2.0, 3.0]))
    roots = [body for body, parent in enumerate(model.parents) if parent < 0]
    placement = np.asarray(model.placement).copy()
    for body in roots:
        placement[body] = (X @ Transform.from_pose(placement[body])).to_pose()
    moved = model.replace(placement=placement, gravity=X.R.to_array() @ model.gravity)
    same_joint_space(model, moved, at)


def test_where_a_body_frame_sits_on_its_axis_does_not_matter(model, at):
    """Moving the frame of a body along the axis that it turns about changes nothing in joint space."""
    placement, inertia = np.asarray(model.placement).copy(), np.asarray(model.inertia).copy()
    turning = [body for body, kind in enumerate(model.joint_types) if kind in ("revolute", "continuous")]
    assert turning
    for k, body in enumerate(turning):
        axis = np.asarray(model.axis[body]) / np.linalg.norm(model.axis[body])
        along = Vec3.from_array((0.1 + 0.05 * k) * axis)
        X = Transform.from_pose(placement[body])
        placement[body, 4:] = X.point(along).to_array()
        inertia[body] = RigidInertia.from_parameters(inertia[body]).shift(-along).to_parameters()
        back = Transform(Mat3.identity(), -along)
        for child in (i for i, parent in enumerate(model.parents) if parent == body):
            placement[child, 4:] = (back @ Transform.from_pose(placement[child])).p.to_array()
    assert np.abs(inertia - model.inertia).max() > 0.01
    same_joint_space(model, model.replace(placement=placement, inertia=inertia), at)


def test_the_order_of_siblings_does_not_matter():
    """Bodies added in another order are numbered otherwise: results are permuted, nothing else."""
    builder = ModelBuilder.from_model(random_tree(6, seed=4, joints=("revolute",), branching=0.9))
    model = builder.build()
    builder.links.reverse()
    turned = builder.build()
    assert turned.parents != model.parents
    order = [turned.joint_names.index(name) for name in model.joint_names]
    at = State(model)
    back = np.argsort(order)
    found = mass_matrices["sweep"](turned, [(at.q[back],)])[0]
    close(found[np.ix_(order, order)], mass_matrices["sweep"](model, [(at.q,)])[0], 1e-13)
