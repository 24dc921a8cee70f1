"""What dynamics must obey beyond the laws of one state: operators, closed forms, invariances, precision, derivatives.

One program computes all that is compared on a quadruped, for a batch of models; the witnesses are in NumPy.
"""

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import ModelBuilder, ModelError
from jaxdyn.model.random_models import random_chain, random_tree
from jaxdyn.spatial import Mat3, RigidInertia, Transform, Vec3

# What counts is the time to compile; these options make that quicker, and the code no worse.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
FORMS = ("sweep", "dense")
long = partial(pytest.param, marks=pytest.mark.long)


def quickly(f, **options):
    """Compile a function, and let it return NumPy arrays."""
    compiled = jax.jit(f, compiler_options=QUICK, **options)
    return lambda *args: jax.tree.map(np.asarray, compiled(*args))


def relative(a, b, scale=None):
    """Return max|a - b| / max|b|, or in units of a given scale."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    scale = np.abs(b).max() if scale is None else scale
    assert np.isfinite(scale)
    assert scale > 0
    return np.abs(a.astype(np.float64) - b).max() / scale


def random_state(model, seed=0):
    """Return a state and what acts on it; quaternions are not of length one."""
    normal = np.random.default_rng(seed).normal
    q = np.asarray(jaxdyn.neutral(model)) + normal(size=model.nq)
    qd, qdd, tau = normal(size=(3, model.nv))
    return {"q": q, "qd": qd, "qdd": qdd, "tau": tau, "f_ext": normal(size=(model.nbodies, 6))}


def stacked(trees):
    return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(a) for a in x]), *trees)


def forces(model, s, form="auto", base_motion=None):
    """Return what every form computes."""
    extra = {"f_ext": s["f_ext"], "base_motion": base_motion, "form": form}
    return {
        "tau": jaxdyn.inverse_dynamics(model, s["q"], s["qd"], s["qdd"], **extra),
        "qdd": jaxdyn.forward_dynamics(model, s["q"], s["qd"], s["tau"], **extra),
        "M": jaxdyn.mass_matrix(model, s["q"], form=form),
    }


in_form = {form: quickly(partial(forces, form=form)) for form in FORMS}


# ---------------------------------------------------------------------- a quadruped, and models that are like it
def moved(model):
    """Return the model on another base, with gravity turned along."""
    X = Transform.from_pose(np.array([0.5, -0.1, 0.7, 0.3, 1.0, -2.0, 3.0]))
    placement = np.array(model.placement)
    for body in (i for i, parent in enumerate(model.parents) if parent < 0):
        placement[body] = (X @ Transform.from_pose(placement[body])).to_pose()
    return model.replace(placement=placement, gravity=X.R.to_array() @ np.asarray(model.gravity))


def slid(model, f_ext):
    """Return the model with the frames of bodies moved along the axes that they turn about, and the same forces."""
    placement, inertia, f_ext = np.array(model.placement), np.array(model.inertia), f_ext.copy()
    turning = [body for body, kind in enumerate(model.joint_types) if kind == "revolute"]
    for k, body in enumerate(turning):
        axis = np.asarray(model.axis[body]) / np.linalg.norm(model.axis[body])
        along = (0.1 + 0.05 * k) * axis
        step = Vec3.from_array(along)
        placement[body, 4:] = Transform.from_pose(placement[body]).point(step).to_array()
        inertia[body] = RigidInertia.from_parameters(inertia[body]).shift(-step).to_parameters()
        f_ext[body, :3] -= np.cross(along, f_ext[body, 3:])
        for child in (i for i, parent in enumerate(model.parents) if parent == body):
            X = Transform(Mat3.identity(), -step) @ Transform.from_pose(placement[child])
            placement[child, 4:] = X.p.to_array()
    assert np.abs(inertia - model.inertia).max() > 0.01
    return model.replace(placement=placement, inertia=inertia), f_ext


@pytest.fixture(scope="module")
def quadruped():
    model = jaxdyn.load("quadruped")
    armature = np.concatenate([np.zeros(6), np.random.default_rng(7).uniform(0.1, 0.5, model.nv - 6)])
    return model.replace(gravity=(1.0, 2.0, -9.0), armature=armature)


@pytest.fixture(scope="module")
def cases(quadruped):
    """Return models and states by name."""
    s = random_state(quadruped)
    inner = s["tau"] * (np.arange(quadruped.nv) >= 6)
    on_slid, f_slid = slid(quadruped, s["f_ext"])
    return {
        "as it is": (quadruped, s),
        "moved": (moved(quadruped), s),
        "slid": (on_slid, s | {"f_ext": f_slid}),
        "weightless": (quadruped.replace(gravity=(0, 0, 0)), s | {"tau": inner, "f_ext": 0 * s["f_ext"]}),
        "held by nothing": (quadruped, s | {"tau": inner}),
    }


@pytest.fixture(scope="module")
def found(cases):
    """Return, by name, all that is computed of those models as one batch."""

    def everything(model, s):
        q, qd = s["q"], s["qd"]
        return forces(model, s) | {
            "M_inverse": jaxdyn.mass_matrix_inverse(model, q),
            "poses": jaxdyn.forward_kinematics(model, q),
            "V": jaxdyn.body_velocities(model, q, qd, axes="world"),
            "a": jaxdyn.body_accelerations(model, q, qd, s["qdd"], axes="world"),
            "A_G": jaxdyn.centroidal_momentum_matrix(model, q),
            "h_bias": jaxdyn.centroidal_momentum_bias(model, q, qd),
            "c": jaxdyn.center_of_mass(model, q),
        }

    batch = quickly(jax.vmap(everything))(*map(stacked, zip(*cases.values(), strict=True)))
    return {name: SimpleNamespace(**jax.tree.map(lambda x: x[i], batch)) for i, name in enumerate(cases)}


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_of_models_equals_a_loop(cases, found, form):
    for name, (model, s) in cases.items():
        for key, value in in_form[form](model, s).items():
            assert relative(getattr(found[name], key), value) < 1e-11, (name, key)


@pytest.mark.parametrize("name", ["moved", "slid"])
def test_joint_space_does_not_know_where_frames_are(found, name):
    """Neither where the base stands, if gravity turns with it, nor where a body's frame sits on its joint's axis."""
    for key in ("tau", "qdd", "M", "M_inverse"):
        assert relative(getattr(found[name], key), getattr(found["as it is"], key)) < 1e-11, key
    assert relative(found[name].poses.position, found["as it is"].poses.position) > 1e-2


def test_the_order_of_siblings_does_not_matter(quadruped):
    """Bodies added in another order are numbered otherwise: results are permuted, nothing else."""
    builder = ModelBuilder.from_model(quadruped)
    builder.links.reverse()
    turned = builder.build().replace(gravity=quadruped.gravity)
    assert turned.joint_names != quadruped.joint_names
    there = {"bodies": [turned.joint_names.index(name) for name in quadruped.joint_names]}
    for what, places in (("q", turned.q_slice), ("qd", turned.qd_slice)):
        there[what] = np.concatenate([np.r_[places(name)] for name in quadruped.joint_names])
    s = random_state(quadruped)
    order = {"q": there["q"], "qd": there["qd"], "qdd": there["qd"], "tau": there["qd"], "f_ext": there["bodies"]}
    theirs = in_form["dense"](turned, {name: x[np.argsort(order[name])] for name, x in s.items()})
    ours = in_form["dense"](quadruped, s)
    assert relative(theirs["tau"][there["qd"]], ours["tau"]) < 1e-13
    assert relative(theirs["qdd"][there["qd"]], ours["qdd"]) < 1e-11
    assert relative(theirs["M"][np.ix_(there["qd"], there["qd"])], ours["M"]) < 1e-13


# ---------------------------------------------------------------------- momentum
def test_momentum_is_conserved_without_gravity(cases, found):
    """Whatever the motors of the joints do."""
    (_, s), x = cases["weightless"], found["weightless"]
    assert np.abs(s["tau"]).max() > 1
    assert np.abs(x.A_G @ x.qdd + x.h_bias).max() < 1e-12 * np.abs(x.A_G @ x.qdd).max()


def test_momentum_changes_by_external_forces_and_weight(cases, found):
    (model, s), x = cases["held by nothing"], found["held by nothing"]
    moment, force = (np.einsum("bij,bj->bi", x.poses.rotation, part) for part in np.split(s["f_ext"], 2, axis=1))
    moment = moment + np.cross(x.poses.position - x.c, force)
    weight = np.asarray(model.inertia)[:, 0].sum() * np.asarray(model.gravity)
    given = np.concatenate([moment.sum(0), force.sum(0) + weight])
    assert relative(x.A_G @ x.qdd + x.h_bias, given) < 1e-12


# ---------------------------------------------------------------------- operators
def tilde(v):
    return np.cross(np.eye(3), v)


def shift(l):
    """Return phi of a vector: forces about one point from forces at another."""
    return np.block([[np.eye(3), tilde(l)], [np.zeros((3, 3)), np.eye(3)]])


def operators(model, X):
    """Return H, E, P, M and the shifts to the world's origin, (6 nbodies, ...) in world axes, by loops over bodies.

    E takes forces from a body's origin to its parent's; P is that of 004 (29): ones, and minus ones where a body
    meets its parent, in which all is about the world's origin.
    """
    n = model.nbodies
    H, (E, P, M, to_world) = np.zeros((model.nv, 6 * n)), np.zeros((4, 6 * n, 6 * n))
    numbers, axes = np.asarray(model.inertia), np.asarray(model.axis)
    for k, (name, kind, parent) in enumerate(zip(model.joint_names, model.joint_types, model.parents, strict=True)):
        assert kind in ("free", "revolute")
        R, p, here = X.rotation[k], X.position[k], slice(6 * k, 6 * k + 6)
        rows = np.eye(6) if kind == "free" else np.concatenate([axes[k] / np.linalg.norm(axes[k]), np.zeros(3)])[None]
        H[model.qd_slice(name), here] = np.hstack([rows[:, :3] @ R.T, rows[:, 3:] @ R.T])
        m, h, (xx, xy, yy, xz, yz, zz) = numbers[k, 0], R @ numbers[k, 1:4], numbers[k, 4:]
        J = R @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ R.T
        M[here, here] = np.block([[J, tilde(h)], [-tilde(h), m * np.eye(3)]])
        to_world[here, here], P[here, here] = shift(p), np.eye(6)
        if parent >= 0:
            inboard = slice(6 * parent, 6 * parent + 6)
            E[inboard, here], P[here, inboard] = shift(p - X.position[parent]), -np.eye(6)
    return H, E, P, M, to_world


@pytest.fixture(scope="module")
def dense(quadruped, found):
    return operators(quadruped, found["as it is"].poses)


def test_mass_matrix_is_the_product_of_operators(quadruped, found, dense):
    """M = H phi M phi* H* + armature, with phi = (1 - E)^-1."""
    H, E, _, M, _ = dense
    phi = np.linalg.inv(np.eye(len(E)) - E)
    assert relative(found["as it is"].M, H @ phi @ M @ phi.T @ H.T + np.diag(quadruped.armature)) < 1e-12


def test_mass_matrix_about_one_point(quadruped, found, dense):
    """S = P^-1 H*, of 004 (29) about the world's origin, and M = S* M S + armature (004 (24), (26))."""
    H, _, P, M, to_world = dense
    S = np.linalg.inv(P) @ np.linalg.inv(to_world).T @ H.T
    about_origin = to_world @ M @ to_world.T
    assert relative(found["as it is"].M, S.T @ about_origin @ S + np.diag(quadruped.armature)) < 1e-12


def test_mass_matrix_factors_by_articulated_bodies(quadruped, found, dense):
    """M = (1 + H phi K) D (1 + H phi K)*, M^-1 = (1 - H psi K)* D^-1 (1 - H psi K): K, D of the Riccati equation."""
    H, E, _, M, _ = dense
    one, identity = np.eye(len(E)), np.eye(quadruped.nv)
    joint = np.concatenate([np.full(j.nv, k) for k, j in enumerate(quadruped.topology.joints)])
    Pi = M
    for _ in range(quadruped.nbodies):  # Pi = M + E (1 - G H) Pi E*, from the tips inward
        D = np.where(joint[:, None] == joint, H @ Pi @ H.T, 0) + np.diag(quadruped.armature)
        G = Pi @ H.T @ np.linalg.inv(D)
        Pi = M + E @ (Pi - G @ H @ Pi) @ E.T
    K = E @ G
    factor = identity + H @ np.linalg.inv(one - E) @ K
    whitener = identity - H @ np.linalg.inv(one - (E - K @ H)) @ K
    assert relative(found["as it is"].M, factor @ D @ factor.T) < 1e-12
    assert relative(found["as it is"].M_inverse, whitener.T @ np.linalg.inv(D) @ whitener) < 1e-11


def test_accelerations_solve_one_linear_equation(cases, found, dense):
    """P a = H* qdd + (d/dt H*) qd, with spatial accelerations about the world's origin (004 (29)); h' = v x h."""
    (_, s), x = cases["as it is"], found["as it is"]
    H, _, P, _, to_world = dense
    about_origin = lambda motions: np.linalg.inv(to_world).T @ motions
    spatial = x.a - np.hstack([np.zeros_like(x.V[:, :3]), np.cross(x.V[:, :3], x.V[:, 3:])])
    a, V, S = about_origin(spatial.reshape(-1)), about_origin(x.V.reshape(-1)), about_origin(H.T)
    (w, v), (w_J, v_J) = (np.split(y.reshape(-1, 6), 2, axis=1) for y in (V, S @ s["qd"]))
    turning = np.hstack([np.cross(w, w_J), np.cross(v, w_J) + np.cross(w, v_J)])
    assert relative(P @ a, S @ s["qdd"] + turning.reshape(-1)) < 1e-12


# ---------------------------------------------------------------------- closed forms
@pytest.mark.parametrize("form", FORMS)
def test_double_pendulum(form):
    """M, Coriolis and gravity terms of two uniform rods, from any textbook; angles from straight down."""
    model = jaxdyn.load("double_pendulum")
    s = random_state(model) | {"f_ext": np.zeros((2, 6))}
    (q, qd, qdd), g, I = (s["q"], s["qd"], s["qdd"]), 9.81, (1 + 3 * 0.02**2) / 12 + 1 / 4  # about the rod's end
    c2, s2 = np.cos(q[1]), np.sin(q[1])
    M = np.array([[2 * I + 1 + c2, I + c2 / 2], [I + c2 / 2, I]])
    C = s2 / 2 * np.array([[-qd[1], -qd[0] - qd[1]], [qd[0], 0]])
    G = g * np.array([1.5 * np.sin(q[0]) + 0.5 * np.sin(q[0] + q[1]), 0.5 * np.sin(q[0] + q[1])])
    tau = M @ qdd + C @ qd + G
    x = in_form[form](model, s | {"tau": tau})
    assert relative(x["tau"], tau) < 1e-13
    assert relative(x["M"], M) < 1e-13
    assert relative(x["qdd"], qdd) < 1e-12
    if form == "sweep":
        assert relative(quickly(jaxdyn.coriolis_matrix)(model, q, qd), C) < 1e-13


@pytest.mark.parametrize("form", FORMS)
def test_a_free_rigid_body_obeys_newton_and_euler(form):
    m, c, I = 2.0, np.array([0.1, -0.2, 0.3]), np.array([[0.3, 0.02, 0.01], [0.02, 0.2, -0.03], [0.01, -0.03, 0.25]])
    model = ModelBuilder().add_body("stone", joint="free", mass=m, com=c, inertia=I).build()
    s = random_state(model)
    (w, v), (moment, force) = np.split(s["qd"], 2), np.split(s["tau"] + s["f_ext"][0], 2)
    R = Transform.from_pose(s["q"]).R.to_array()
    wd = np.linalg.solve(I, moment - np.cross(c, force) - np.cross(w, I @ w))
    of_centre = force / m + R.T @ np.array([0, 0, -9.81])
    of_origin = of_centre - np.cross(wd, c) - np.cross(w, np.cross(w, c))
    qdd = np.concatenate([wd, of_origin - np.cross(w, v)])  # the rate of v in turning axes
    x = in_form[form](model, s | {"qdd": qdd})
    assert relative(x["qdd"], qdd) < 1e-13
    assert relative(x["tau"], s["tau"]) < 1e-12


# ---------------------------------------------------------------------- a moving base
@pytest.fixture(scope="module")
def grove():
    """Two trees of joints with quasi-velocities and armature, on the ground."""
    joints = ("spherical", "revolute")
    return random_tree(3, seed=3, joints=joints, roots=2, armature=True).replace(gravity=(1.0, 2.0, -9.0))


def carried(model):
    """Return the model on a free body without inertia."""
    builder = ModelBuilder.from_model(model)
    builder.links = [replace(link, parent=link.parent or "base") for link in builder.links]
    return builder.add_body("base", joint="free", joint_name="base_joint").build().replace(gravity=model.gravity)


def test_a_moving_base_is_a_free_joint_that_moves_like_it(grove):
    """Forces in both forms, accelerations of bodies and frames."""
    free, s, (v0, a0) = carried(grove), random_state(grove), np.random.default_rng(5).normal(size=(2, 6))
    assert free.joint_names == ("base_joint", *grove.joint_names)
    join = lambda base, rest: np.concatenate([base, rest])
    still, point = np.array([1.0, 0, 0, 0, 0, 0, 0]), np.array([0.1, 0.2, 0.3])
    on_free_body = {
        "q": join(still, s["q"]), "qd": join(v0, s["qd"]), "qdd": join(a0, s["qdd"]),
        "f_ext": join(np.zeros((1, 6)), s["f_ext"]),
    }  # fmt: skip

    @partial(quickly, static_argnums=2)
    def motion(model, s, on_base):
        q, qd, qdd, moving = s["q"], s["qd"], s["qdd"], {"base_motion": (v0, a0) if on_base else None}
        forms = FORMS if on_base else ("dense",)
        forces = {f: jaxdyn.inverse_dynamics(model, q, qd, qdd, f_ext=s["f_ext"], form=f, **moving) for f in forms}
        return forces | {
            "a": jaxdyn.body_accelerations(model, q, qd, qdd, **moving),
            "a of frame": jaxdyn.frame_acceleration(model, q, qd, qdd, "tip", point, **moving),
        }

    truth, ours = motion(free, on_free_body, False), motion(grove, s, True)
    tau = truth["dense"][6:]
    truth = truth | {"dense": tau, "sweep": tau, "a": truth["a"][1:]}
    for key, value in ours.items():
        assert relative(value, truth[key]) < 1e-12, key
    fd = quickly(partial(jaxdyn.forward_dynamics, f_ext=s["f_ext"], base_motion=(v0, a0), form="sweep"))
    assert relative(fd(grove, s["q"], s["qd"], tau), s["qdd"]) < 1e-11


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
        r"'tool'": lambda: jaxdyn.frame_velocity(model, x, x, "tool"),
        r"one model is needed; this is a batch .*: use jax.vmap": lambda: jaxdyn.mass_matrix(
            stacked([model, model]), x
        ),
    }.items():
        with pytest.raises(ValueError, match=text):
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
