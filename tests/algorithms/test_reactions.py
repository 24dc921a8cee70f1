"""What joints carry, and Gibbs' function: against Newton and Euler for each body alone, and against dynamics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.states import KINDS, in_single, quickly, random_state, relative

import jaxdyn
from jaxdyn.algorithms.gibbs import gibbs_function
from jaxdyn.algorithms.reactions import reaction_forces
from jaxdyn.model.random_models import random_tree

MODELS = {
    "mimic": KINDS["mimic"],
    "forest": lambda: random_tree(
        5, seed=4, joints=("helical", "universal", "cylindrical"), roots=2, floating_base=True, armature=True
    ),
}  # fmt: skip


def everything(model, s):
    q, qd, tau, f = s["q"], s["qd"], s["tau"], {"f_ext": s["f_ext"]}
    qdd = jaxdyn.forward_dynamics(model, q, qd, tau, **f, form="sweep")
    n, one = model.nv, jnp.eye(model.nv)
    around = jnp.concatenate([0 * one[:1], one, -one, (one[:, None] + one[None]).reshape(n * n, n)])
    return {
        "body": reaction_forces(model, q, qd, tau, **f),
        "world": reaction_forces(model, q, qd, tau, **f, axes="world"),
        "qdd": qdd,
        "poses": jaxdyn.forward_kinematics(model, q),
        "V": jaxdyn.body_velocities(model, q, qd, axes="world"),
        "a": jaxdyn.body_accelerations(model, q, qd, qdd, axes="world"),
        "gibbs": jax.vmap(lambda x: gibbs_function(model, q, qd, s["qdd"] + x, **f))(around),
        "id": jaxdyn.inverse_dynamics(model, q, qd, s["qdd"], **f, form="sweep"),
        "mass": jaxdyn.mass_matrix(model, q, form="sweep"),
        "J": jax.vmap(lambda v: jaxdyn.body_velocities(model, q, v, axes="world"), out_axes=-1)(one),
    }


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    model = MODELS[request.param]()
    s = random_state(model, seed=3)
    return model, s, quickly(everything)(model, s)


def turned(R, f):
    return np.concatenate([np.einsum("kij,kj->ki", R, x) for x in np.split(f, 2, axis=1)], axis=1)


def test_every_body_alone_obeys_newton_and_euler(case):
    """m a_c = sum of forces; J w' + w x J w = sum of moments about the centre of mass."""
    model, s, x = case
    R, p = x["poses"]
    f_ext, total = turned(R, s["f_ext"]), x["world"].total
    newton, euler, size = [], [], np.abs(total).max()
    for k in range(model.nbodies):
        m, *rest = np.asarray(model.inertia[k])
        c, (xx, xy, yy, xz, yz, zz) = R[k] @ rest[:3] / m, rest[3:]
        J = R[k] @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ R[k].T
        J = J - m * (c @ c * np.eye(3) - np.outer(c, c))
        w, dw, dv = x["V"][k, :3], x["a"][k, :3], x["a"][k, 3:]
        a_c = dv + np.cross(dw, c) + np.cross(w, np.cross(w, c))
        children = [j for j in range(model.nbodies) if model.parents[j] == k]
        acting = [(total[k], 0 * c), (f_ext[k], 0 * c)] + [(-total[j], p[j] - p[k]) for j in children]
        force = sum(f[3:] for f, _ in acting) + m * np.asarray(model.gravity)
        moment = sum(f[:3] + np.cross(r - c, f[3:]) for f, r in acting)
        newton.append(force - m * a_c)
        euler.append(moment - (J @ dw + np.cross(w, J @ w)))
    assert np.abs(newton).max() < 1e-11 * size
    assert np.abs(euler).max() < 1e-11 * size


def test_the_actuator_feels_the_torque_and_the_constraint_does_no_work(case):
    model, s, x = case
    size = np.abs(x["world"].total).max()
    for k, name in enumerate(model.joint_names):
        own, parent = range(model.nv)[model.qd_slice(name)], model.parents[k]
        if not len(own):  # a mimic joint moves with another one
            own = range(model.nv)[model.qd_slice(model.joint_names[model.topology.followed[k]])]
        columns = x["J"][k][:, own]
        if parent >= 0:
            l = x["poses"].position[k] - x["poses"].position[parent]
            carried = x["J"][parent][:, own]
            columns = columns - np.concatenate([carried[:3], carried[3:] + np.cross(carried[:3].T, l).T])
        assert np.abs(columns.T @ x["world"].constraint[k]).max() < 1e-11 * size
        felt = s["tau"][own] - np.asarray(model.armature)[own] * x["qdd"][own]
        if not model.topology.mimic_names:
            assert relative(columns.T @ x["world"].actuator[k], felt, scale=size) < 1e-11
        assert np.linalg.matrix_rank(np.column_stack([columns, x["world"].actuator[k]]), tol=1e-9 * size) == len(own)
    assert relative(x["world"].actuator + x["world"].constraint, x["world"].total) < 1e-14


def test_virtual_work_of_all_joints_is_that_of_the_torques(case):
    """Mimic joints included: what their gears transmit comes from the joints that they follow."""
    model, s, x = case
    work = np.zeros(model.nv)
    for k, parent in enumerate(model.parents):
        relative_motion = x["J"][k].copy()
        if parent >= 0:
            l, carried = x["poses"].position[k] - x["poses"].position[parent], x["J"][parent]
            relative_motion -= np.concatenate([carried[:3], carried[3:] + np.cross(carried[:3].T, l).T])
        work += relative_motion.T @ x["world"].total[k]
    assert relative(work, s["tau"] - np.asarray(model.armature) * x["qdd"]) < 1e-11


def test_axes_of_bodies_and_of_the_world(case):
    _, _, x = case
    for a, b in zip(x["body"], x["world"], strict=True):
        assert relative(turned(x["poses"].rotation, a), b, scale=np.abs(x["world"].total).max()) < 1e-13


def test_003_v_the_gradient_of_gibbs_function_is_inverse_dynamics_and_its_hessian_the_mass_matrix(case):
    """By differences, which are exact for a quadratic function."""
    model, _, x = case
    n = model.nv
    here, ahead, behind, both = np.split(x["gibbs"], [1, 1 + n, 1 + 2 * n])
    assert relative((ahead - behind) / 2, x["id"]) < 1e-11
    assert relative(both.reshape(n, n) - ahead[:, None] - ahead[None] + here, x["mass"]) < 1e-11


@pytest.mark.long
def test_003_v_the_same_by_automatic_differentiation():
    model = KINDS["mimic"]()
    s = random_state(model)
    args = s["q"], s["qd"], s["qdd"]
    of = lambda f: quickly(f(lambda qdd: gibbs_function(model, *args[:2], qdd)))(args[2])
    assert relative(of(jax.grad), jaxdyn.inverse_dynamics(model, *args)) < 1e-12
    assert relative(of(jax.hessian), jaxdyn.mass_matrix(model, args[0])) < 1e-12


def test_gibbs_function_of_particles():
    """Of a pendulum with its mass in one point: half the mass times the squared acceleration relative to free fall."""
    m, l, g = 2.0, 0.7, 9.81
    builder = jaxdyn.ModelBuilder("particle")
    builder.add_body("bob", axis=(0, 1, 0), mass=m, com=(0, 0, -l), inertia=(1, 1, 1))
    model = builder.build()
    model = model.replace(inertia=model.inertia.at[0, jnp.array([4, 6, 9])].add(-1.0))

    def of_particle(q, qd, qdd):
        place = lambda q: -l * jnp.array([jnp.sin(q), 0, jnp.cos(q)])
        velocity = lambda q, qd: jax.jvp(place, (q,), (qd,))[1]
        a = jax.jvp(velocity, (q, qd), (qd, qdd))[1]
        return 0.5 * m * jnp.sum((a + jnp.array([0, 0, g])) ** 2)

    change = lambda f, *x: f(*x, 3.0) - f(*x, -1.0)
    of_model = lambda q, qd, qdd: gibbs_function(model, jnp.array([q]), jnp.array([qd]), jnp.array([qdd]))
    assert relative(change(of_model, 0.4, 1.3), change(of_particle, 0.4, 1.3)) < 1e-12


def test_a_pendulum_pulls_at_its_bearing():
    """Along the rod m (g cos q + l qd^2), across it m (g sin q + l qdd), no moment but the motor's."""
    m, l, J, g, q, qd = 2.0, 0.7, 0.3, 9.81, 0.4, 3.0
    builder = jaxdyn.ModelBuilder("pendulum")
    builder.add_body("rod", axis=(0, 1, 0), mass=m, com=(0, 0, -l), inertia=(0.2, J, 0.2))
    model = builder.build()
    about_bearing = J + m * l * l
    found = reaction_forces(model, [q], [qd], [0.0])
    qdd = -m * g * l * np.sin(q) / about_bearing
    along, across = m * (g * np.cos(q) + l * qd**2), -m * (g * np.sin(q) + l * qdd)
    assert relative(found.total[0], np.array([0, 0, 0, across, 0, along])) < 1e-12
    assert np.abs(found.actuator).max() < 1e-12 * along


def test_a_free_body_carries_nothing():
    model = random_tree(1, seed=1, floating_base=True)
    s = random_state(model)
    found = reaction_forces(model, s["q"], s["qd"], s["tau"], f_ext=s["f_ext"])
    assert relative(found.total[0], s["tau"]) < 1e-11
    assert np.abs(found.constraint).max() < 1e-14 * np.abs(found.total).max()


def test_batches_derivatives_and_single_precision():
    model = random_tree(2, seed=1, joints=("revolute",), armature=True)
    s = random_state(model)
    load = lambda model, q, qd, tau: reaction_forces(model, q, qd, tau).constraint
    args, direction = (s["q"], s["qd"], s["tau"]), np.array([1.0, -2.0])
    along = lambda q: load(model, q, s["qd"], s["tau"])
    here, slope = quickly(lambda q: jax.jvp(along, (q,), (direction,)))(s["q"])
    low, middle, high = quickly(jax.vmap(along))(np.stack([s["q"] + h * direction for h in (-1e-5, 0, 1e-5)]))
    assert relative(middle, here) < 1e-13
    assert relative(slope, (high - low) / 2e-5) < 1e-6
    by_model = quickly(jax.grad(lambda model: (load(model, *args) ** 2).sum()))(model)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(by_model))
    assert np.abs(by_model.inertia).max() > 0
    single = quickly(load)(model.astype(np.float32), *in_single(args))
    assert single.dtype == np.float32
    assert relative(single, here) < 1e-4


def test_no_bodies_and_bad_arguments():
    none, nothing = jaxdyn.ModelBuilder("nothing").build(), jnp.zeros(0)
    assert reaction_forces(none, nothing, nothing, nothing).total.shape == (0, 6)
    assert float(gibbs_function(none, nothing, nothing, nothing)) == 0
    pendulum = jaxdyn.load("pendulum")
    with pytest.raises(ValueError, match='axes must be "body" or "world"; got \'link\''):
        reaction_forces(pendulum, [0.0], [0.0], [0.0], axes="link")
    with pytest.raises(ValueError, match=r"tau must have shape \(1,\)"):
        reaction_forces(pendulum, [0.0], [0.0], [0.0, 1.0])
    with pytest.raises(ValueError, match=r"f_ext must have shape \(1, 6\)"):
        gibbs_function(pendulum, [0.0], [0.0], [0.0], f_ext=np.zeros((2, 6)))
    with pytest.raises(TypeError, match="model must be a jaxdyn.Model"):
        reaction_forces("pendulum", [0.0], [0.0], [0.0])
