"""The plain twins against closed forms, Pinocchio, and the principle of virtual power on 3x4 matrices.

`virtual_power` is the witness for joints of every type: it knows poses and what particles are, and no spatial vectors,
subspaces, cross products or recursions.
"""

import warnings
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.pinocchio_oracle import both
from helpers.states import long

import jaxdyn
from jaxdyn import ModelBuilder, ModelWarning
from jaxdyn.algorithms import plain
from jaxdyn.io import to_pinocchio, to_urdf
from jaxdyn.joints import Joint
from jaxdyn.model.random_models import random_chain, random_tree
from jaxdyn.model.topology import joint_parameters
from jaxdyn.spatial import Transform

# Unrolled loops over bodies compile slowly; these options make that five times quicker, and the code no worse.
quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False})
MULTI = ("universal", "spherical", "helical", "planar", "revolute", "cylindrical")


def assert_close(a, b, tolerance=1e-11):
    """max|a - b| is small against max|b|."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    scale = np.abs(b).max(initial=0)
    assert np.all(np.isfinite(b))
    assert scale > 0
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)


def state(model, seed=0):
    """Return (q, qd, qdd), forces on all bodies, and a motion of the base, all random; quaternions are not of length 1."""
    normal = np.random.default_rng(seed).normal
    q = np.asarray(jaxdyn.neutral(model)) + normal(size=model.nq)
    return (q, *normal(size=(2, model.nv))), normal(size=(model.nbodies, 6)), tuple(normal(size=(2, 6)))


def all_three(model, q, qd, qdd, f_ext, base_motion):
    """Return tau of a motion, the mass matrix, and the acceleration that tau causes."""
    options = {"f_ext": f_ext, "base_motion": base_motion}
    tau = plain.inverse_dynamics(model, q, qd, qdd, **options)
    return tau, plain.mass_matrix(model, q), plain.forward_dynamics(model, q, qd, tau, **options)


dynamics = quickly(all_three)


# ---------------------------------------------------------------------- virtual power
def poses(model, q, dq):
    """Return [R p] of all bodies at q + dq, (batch, nbodies, 3, 4), for dq (batch, nv): products in plain NumPy."""
    t, moved, X_w_b = model.topology, np.zeros((len(dq), model.nq)), [Transform.identity()]
    leaves = {name: np.asarray(x) for name, x in vars(model).items() if isinstance(x, jax.Array)}
    for name, joint in zip(model.joint_names, t.joints, strict=True):
        at, along = model.q_slice(name), dq[:, model.qd_slice(name)]
        if joint.nq:
            moved[:, at] = np.stack(joint.integrate(tuple(q[at]), tuple(along.T)), axis=1)
    for i, joint in enumerate(t.joints):
        read = moved[:, t.q_start[i] :][:, : joint.mechanism.nq]
        X_J = joint.transform(joint_parameters(leaves, i, joint), tuple(read.T))
        X_w_b.append(X_w_b[t.parents[i] + 1] @ Transform.from_pose(leaves["placement"][i]) @ X_J)
    dense = np.zeros((len(dq), model.nbodies, 3, 4))
    for i, X in enumerate(X_w_b[1:]):
        dense[:, i, :, :3], dense[:, i, :, 3] = X.R.to_array(), X.p.to_array()
    return dense


def derivatives_of(f, h=0.01):
    """Return the first and second derivative of f at zero, by central differences of order eight."""
    first, second = (np.array(c) for c in ([4 / 5, -1 / 5, 4 / 105, -1 / 280], [8 / 5, -1 / 5, 8 / 315, -1 / 560]))
    steps = h * np.arange(-4, 5)
    values = f(steps)
    apply = lambda weights: np.tensordot(weights, values, axes=1)
    return apply([*-first[::-1], 0, *first]) / h, apply([*second[::-1], -205 / 72, *second]) / h**2


def virtual_power(model, q, qd, qdd, f_ext):
    r"""Return tau, M and the kinetic energy from the poses X = [R p] of the bodies and their derivatives.

    A particle r of a body is at X (r, 1). The power of (acceleration - gravity) times mass, summed over all particles,
    on the virtual velocity dX/dq_k (r, 1) is that of the motors and the external forces.
    """
    X = poses(model, q, np.zeros((1, model.nv)))[0]
    V, A = derivatives_of(lambda t: poses(model, q, np.outer(t, qd) + np.outer(t**2 / 2, qdd)))
    J = np.stack([derivatives_of(lambda t: poses(model, q, np.outer(t, e)))[0] for e in np.eye(model.nv)], axis=-1)
    pi, armature = pseudo_inertia(np.asarray(model.inertia)), np.asarray(model.armature)
    A[:, :, 3] -= np.asarray(model.gravity)
    tau = np.einsum("bijk,bjl,bil->k", J, pi, A)
    turns = np.einsum("bji,bjlk->bilk", X[:, :, :3], J[:, :, :3])  # R* dR/dq_k, skew
    moves = np.einsum("bji,bjk->bik", X[:, :, :3], J[:, :, 3])
    twists = np.concatenate([turns[:, [2, 0, 1], [1, 2, 0]], moves], axis=1)
    tau -= np.einsum("bik,bi->k", twists, f_ext)
    M = np.einsum("bijk,bjl,bilm->km", J, pi, J)
    return tau + armature * qdd, M + np.diag(armature), np.einsum("bij,bjl,bil->", V, pi, V) / 2


def pseudo_inertia(parameters):
    """(nbodies, 4, 4): the sum over a body's particles of m (r, 1) (r, 1)*."""
    m, hx, hy, hz, xx, xy, yy, xz, yz, zz = parameters.T
    half = (xx + yy + zz) / 2
    rows = [[half - xx, -xy, -xz, hx], [-xy, half - yy, -yz, hy], [-xz, -yz, half - zz, hz], [hx, hy, hz, m]]
    return np.array(rows).transpose(2, 0, 1)


@pytest.fixture(scope="module")
def on_forest(forest):
    """What the twins and the witness say of the forest at one state."""

    @quickly
    def everything(model, q, qd, qdd, f_ext):
        tau, M, back = all_three(model, q, qd, qdd, f_ext, None)
        force = lambda a: plain.inverse_dynamics(model, q, jnp.zeros(model.nv), a)
        columns = jax.vmap(force, out_axes=1)(jnp.eye(model.nv)) - force(jnp.zeros(model.nv))[:, None]
        return {"tau": tau, "M": M, "back": back, "columns": columns}

    forest = forest.replace(armature=jnp.linspace(0.1, 0.5, forest.nv), gravity=(1.0, 2.0, -9.0))
    motion, f_ext, _ = state(forest)
    found = everything(forest, *motion, f_ext) | {"motion": motion, "armature": np.asarray(forest.armature)}
    return found | {"witness": virtual_power(forest, *motion, f_ext)}


def test_the_forest_has_what_it_should(forest):
    types = set(forest.joint_types)
    assert types >= {"free", "mimic", "universal", "spherical", "planar", "helical", "cylindrical", "translation"}
    assert forest.parents.count(-1) == 3


def test_inverse_dynamics_is_the_principle_of_virtual_power(on_forest):
    assert_close(on_forest["tau"], on_forest["witness"][0])


def test_mass_matrix_is_that_of_all_particles(on_forest):
    assert_close(on_forest["M"], on_forest["witness"][1])


def test_kinetic_energy_is_that_of_all_bodies(on_forest):
    (_, qd, _), energy = on_forest["motion"], on_forest["witness"][2]
    rotors = on_forest["armature"] @ qd**2 / 2
    assert_close(qd @ on_forest["M"] @ qd / 2, energy + rotors)


def test_mass_matrix_is_symmetric_and_its_columns_are_forces_of_unit_accelerations(on_forest):
    M = on_forest["M"]
    assert_close(M, M.T, 1e-14)
    assert_close(M, on_forest["columns"])


def test_forward_dynamics_inverts_inverse_dynamics_with_mimic_joints(on_forest):
    assert_close(on_forest["back"], on_forest["motion"][2], 1e-10)  # the condition number of M is 1e4


# ---------------------------------------------------------------------- the base
@pytest.fixture(scope="module")
def grove():
    """Two trees of joints with several degrees of freedom, and armature: the articulated-body algorithm's part."""
    return random_tree(6, seed=3, joints=MULTI, roots=2, armature=True).replace(gravity=(1.0, 2.0, -9.0))


@pytest.fixture(scope="module")
def on_grove(grove):
    motion, f_ext, base_motion = state(grove)
    return dynamics(grove, *motion, f_ext, base_motion)


def test_forward_dynamics_inverts_inverse_dynamics_on_a_moving_base(grove, on_grove):
    assert not grove.topology.mimic_names
    assert grove.parents.count(-1) == 2
    assert_close(on_grove[2], state(grove)[0][2])


def carried(model):
    """Return the model on a free body without inertia."""
    builder = ModelBuilder.from_model(model)
    builder.links = [replace(link, parent=link.parent or "base") for link in builder.links]
    builder.add_body("base", joint="free", joint_name="base_joint")
    return builder.build()


def test_a_moving_base_is_a_free_joint_that_carries_all(grove, on_grove):
    free = carried(grove)
    (q, qd, qdd), f_ext, (v0, a0) = state(grove)
    still = np.array([1.0, 0, 0, 0, 0, 0, 0])
    motion = np.concatenate([still, q]), np.concatenate([v0, qd]), np.concatenate([a0, qdd])
    assert free.joint_names == ("base_joint", *grove.joint_names)
    tau, M, back = dynamics(free, *motion, np.concatenate([np.zeros((1, 6)), f_ext]), None)
    assert_close(on_grove[0], tau[6:])
    assert_close(on_grove[1], M[6:, 6:])
    assert_close(back, motion[2], 1e-10)


# ---------------------------------------------------------------------- other libraries
def compare_with_pinocchio(model, other):
    import pinocchio

    (q, qd, qdd), f_ext, _ = state(model)
    tau, M, back = dynamics(model, q, qd, qdd, f_ext, None)
    velocity = lambda x: to_pinocchio(model, other, q, np.asarray(x))[1]
    their_q, to_theirs = to_pinocchio(model, other, q), np.stack([velocity(e) for e in np.eye(model.nv)])
    forces = [pinocchio.Force.Zero() for _ in range(other.njoints)]
    for name, f in zip(model.joint_names, f_ext, strict=True):
        forces[other.getJointId(name)] = pinocchio.Force(f[3:], f[:3])
    other.armature = velocity(model.armature)
    data = other.createData()
    truth = pinocchio.rnea(other, data, their_q, velocity(qd), velocity(qdd), forces)
    assert_close(tau, to_theirs @ truth)
    upper = np.triu(pinocchio.crba(other, data, their_q))
    assert_close(M, to_theirs @ (upper + np.triu(upper, 1).T) @ to_theirs.T)
    assert_close(back, to_theirs @ pinocchio.aba(other, data, their_q, velocity(qd), velocity(tau), forces), 1e-10)


@pytest.mark.parametrize("name", ["arm7", long("quadruped")])
def test_equals_pinocchio_on_bundled_robots(name):
    pinocchio = pytest.importorskip("pinocchio")
    model = jaxdyn.load(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        text = to_urdf(model)
    assert jnp.all(model.armature[-7:] > 0)
    compare_with_pinocchio(model, pinocchio.buildModelFromXML(text))


def test_equals_pinocchio_on_a_real_robot_that_floats(robot_data):
    pytest.importorskip("pinocchio")
    model, other = both(robot_data / "panda_description/urdf/panda.urdf", floating_base=True)
    assert {"free", "revolute", "prismatic"} <= set(model.joint_types)
    compare_with_pinocchio(model, other)


# ---------------------------------------------------------------------- closed forms
def test_double_pendulum():
    """M, Coriolis and gravity terms of two uniform rods, from any textbook; angles from straight down."""
    model = jaxdyn.load("double_pendulum")
    (q, qd, qdd), _, _ = state(model)
    g, I = 9.81, (1 + 3 * 0.02**2) / 12 + 1 / 4  # about the rod's end
    c2, s2 = np.cos(q[1]), np.sin(q[1])
    M = np.array([[2 * I + 1 + c2, I + c2 / 2], [I + c2 / 2, I]])
    C = s2 / 2 * np.array([-qd[1] * (2 * qd[0] + qd[1]), qd[0] ** 2])
    G = g * np.array([1.5 * np.sin(q[0]) + 0.5 * np.sin(q[0] + q[1]), 0.5 * np.sin(q[0] + q[1])])
    for ours, truth in zip(dynamics(model, q, qd, qdd, None, None), (M @ qdd + C + G, M, qdd), strict=True):
        assert_close(ours, truth, 1e-13)


def test_free_rigid_body():
    """Newton's law for the centre of mass, Euler's equation about it."""
    m, c, I = 2.0, np.array([0.1, -0.2, 0.3]), np.array([[0.3, 0.02, 0.01], [0.02, 0.2, -0.03], [0.01, -0.03, 0.25]])
    model = ModelBuilder().add_body("stone", joint="free", mass=m, com=c, inertia=I).build()
    (q, qd, tau), f_ext, _ = state(model)
    (w, v), (moment, force) = np.split(qd, 2), np.split(tau + f_ext[0], 2)
    R = Transform.from_pose(q).R.to_array()
    wd = np.linalg.solve(I, moment - np.cross(c, force) - np.cross(w, I @ w))
    of_centre = force / m + R.T @ np.array([0, 0, -9.81])
    of_origin = of_centre - np.cross(wd, c) - np.cross(w, np.cross(w, c))
    qdd = np.concatenate([wd, of_origin - np.cross(w, v)])  # the rate of v in turning axes
    ours, _, back = dynamics(model, q, qd, qdd, f_ext, None)
    assert_close(ours, tau, 1e-13)
    assert_close(back, qdd, 1e-13)


# ---------------------------------------------------------------------- couplings
def test_mimic_joints_are_a_projection_of_the_tree(tmp_path):
    """With q_tree = G q + offset: M = G* M_tree G, tau = G* tau_tree."""
    path = tmp_path / "geared.urdf"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        to_urdf(random_tree(6, seed=1, joints=("mimic", "revolute", "prismatic", "mimic")), path)
        model, tree = jaxdyn.load(path), jaxdyn.load(path, mimic=False)
    assert 1 < model.nv < tree.nv
    assert model.joint_names == tree.joint_names
    t = model.topology
    G = np.zeros((tree.nv, model.nv))
    G[np.arange(tree.nv), t.qd_start] = model.ratio
    assert np.any(np.count_nonzero(G, axis=0) > 1)
    (q, qd, qdd), f_ext, base_motion = state(model)
    tau, M, back = dynamics(model, q, qd, qdd, f_ext, base_motion)
    motion = G @ q + model.offset, G @ qd, G @ qdd
    tau_tree, M_tree, _ = dynamics(tree, *motion, f_ext, base_motion)
    assert_close(tau, G.T @ tau_tree)
    assert_close(M, G.T @ M_tree @ G)
    assert_close(back, qdd)


class Weld(Joint):
    """A type of one's own, without freedom, turned and moved."""

    type = "weld"
    nq = 0

    def transform(self, parameters, q):
        return Transform.from_pose(np.array([0.8, 0.0, 0.6, 0.0, 0.1, 0.2, 0.3]))


def test_a_joint_without_freedom_is_a_rigid_connection():
    models = []
    for joint, pose in ((Weld(), {}), ("fixed", {"quaternion": (0.8, 0.0, 0.6, 0.0), "xyz": (0.1, 0.2, 0.3)})):
        solid = {"mass": 2.0, "com": (0.1, 0.2, 0.3), "inertia": (0.1, 0.2, 0.25)}
        builder = ModelBuilder().add_body("a", axis=(1, 0, 0), **solid).add_body("b", "a", joint, **pose, **solid)
        models.append(builder.add_body("c", "b", xyz=(0, 0, 1), axis=(0, 1, 0), **solid).build())
    welded, merged = models
    assert (welded.nbodies, merged.nbodies, welded.nv) == (3, 2, 2)
    motion, _, base_motion = state(merged)
    for ours, truth in zip(*(dynamics(m, *motion, None, base_motion) for m in models), strict=True):
        assert_close(ours, truth, 1e-13)


def test_models_without_degrees_of_freedom():
    empty = ModelBuilder().build()
    still = ModelBuilder().add_body("a", joint=Weld(), mass=1.0, inertia=(1, 1, 1)).build()
    for model in (empty, still):
        none = jnp.zeros(0)
        tau, M, qdd = dynamics(model, none, none, none, jnp.ones((model.nbodies, 6)), None)
        assert tau.shape == qdd.shape == (0,)
        assert M.shape == (0, 0)


# ---------------------------------------------------------------------- derivatives, types, errors
def test_derivatives_with_respect_to_forces_accelerations_and_inertias():
    """d tau / d qdd = M, d qdd / d tau = M^-1, and tau is linear in the inertias: reverse and forward mode."""
    model = random_chain(2, seed=1, joints=("universal", "spherical"))
    (q, qd, qdd), _, _ = state(model)

    @quickly
    def derivatives(model):
        by_qdd = jax.jacrev(plain.inverse_dynamics, argnums=3)(model, q, qd, qdd)
        by_tau = jax.jacrev(plain.forward_dynamics, argnums=3)(model, q, qd, qdd)
        f = lambda inertia: plain.inverse_dynamics(model.replace(inertia=inertia), q, qd, qdd)
        return plain.mass_matrix(model, q), by_qdd, by_tau, *jax.jvp(f, (model.inertia,), (model.inertia,))

    M, by_qdd, by_tau, tau, along_inertia = derivatives(model)
    assert_close(by_qdd, M, 1e-13)
    assert_close(by_tau @ M, np.eye(model.nv))
    assert_close(along_inertia, tau, 1e-13)


def test_single_precision_stays_single():
    model = jaxdyn.load("double_pendulum").astype(jnp.float32)
    x, force = jnp.array([0.3, -0.4], jnp.float32), jnp.ones((2, 6))
    types = lambda *arguments: {leaf.dtype for leaf in jax.eval_shape(all_three, model, *arguments)}
    assert types(x, x, x, None, None) == types([0.3, -0.4], [0, 0], [0, 0], None, None) == {jnp.dtype("float32")}
    assert types(x, x, x, force.astype(jnp.float32), None) == {jnp.dtype("float32")}
    assert jax.eval_shape(plain.inverse_dynamics, model, x, x, x.astype(jnp.float64)).dtype == jnp.float64


def test_arguments_are_checked():
    model = jaxdyn.load("double_pendulum")
    x = jnp.zeros(2)
    with pytest.raises(ValueError, match=r"qdd must have shape \(2,\).*got \(3,\)"):
        plain.inverse_dynamics(model, x, x, jnp.zeros(3))
    with pytest.raises(ValueError, match=r"f_ext must have shape \(2, 6\).*got \(6,\)"):
        plain.forward_dynamics(model, x, x, x, f_ext=jnp.zeros(6))
    with pytest.raises(ValueError, match=r"a0 of base_motion must have shape \(6,\).*got \(3,\)"):
        plain.inverse_dynamics(model, x, x, x, base_motion=(jnp.zeros(6), jnp.zeros(3)))
    with pytest.raises(ValueError, match=r"base_motion must be a pair \(v0, a0\).*got 6"):
        plain.inverse_dynamics(model, x, x, x, base_motion=jnp.zeros(6))
