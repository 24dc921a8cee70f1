"""What dynamics must obey beyond the laws of one state: operators, closed forms, invariances.

One program computes all that is compared on a quadruped, for a batch of models; the witnesses are in NumPy.
"""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from helpers.states import FORMS, forces, in_form, quickly, random_state, relative, stacked

import jaxdyn
from jaxdyn import ModelBuilder
from jaxdyn.algorithms import plain
from jaxdyn.model.random_models import random_tree
from jaxdyn.spatial import Mat3, RigidInertia, Transform, Vec3


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


def with_nothing_else(model):
    """Return the model with NaN in all leaves that its motion does not depend on."""
    unknown = [name for name, leaf in vars(model.moving).items() if leaf is None]
    assert {"damping", "rest", "upper", "frame_placement"} < set(unknown)
    return model.replace(**{name: np.full_like(getattr(model, name), np.nan) for name in unknown})


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
        "known in part": (with_nothing_else(quadruped), s),
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


def test_motion_depends_on_nothing_but_the_moving_part_of_a_model(found):
    jax.tree.map(np.testing.assert_array_equal, vars(found["known in part"]), vars(found["as it is"]))


def test_every_joint_type_equals_its_plain_twin(forest):
    """Three trees, one of them floating, with all joint types, mimic joints too."""
    s = random_state(forest)
    twins = quickly(lambda s: plain_forces(forest, s))(s)
    for form in FORMS:
        for key, value in in_form[form](forest, s).items():
            assert relative(value, twins[key]) < 1e-11, (form, key)


def plain_forces(model, s):
    """Return what `forces` does, by the plain twins."""
    q, qd, f_ext = s["q"], s["qd"], s["f_ext"]
    return {
        "tau": plain.inverse_dynamics(model, q, qd, s["qdd"], f_ext=f_ext),
        "M": plain.mass_matrix(model, q),
        "qdd": plain.forward_dynamics(model, q, qd, s["tau"], f_ext=f_ext),
    }


@pytest.mark.parametrize("form", FORMS)
def test_the_order_of_siblings_does_not_matter(quadruped, form):
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
    theirs = in_form[form](turned, {name: x[np.argsort(order[name])] for name, x in s.items()})
    ours = in_form[form](quadruped, s)
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
    """Forces in both forms, velocities and accelerations of bodies and frames."""
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
            "V": jaxdyn.body_velocities(model, q, qd, **moving),
            "V of frame": jaxdyn.frame_velocity(model, q, qd, "tip", point, **moving),
            "a": jaxdyn.body_accelerations(model, q, qd, qdd, **moving),
            "a of frame": jaxdyn.frame_acceleration(model, q, qd, qdd, "tip", point, **moving),
        }

    truth, ours = motion(free, on_free_body, False), motion(grove, s, True)
    tau = truth["dense"][6:]
    truth = truth | {"dense": tau, "sweep": tau, "V": truth["V"][1:], "a": truth["a"][1:]}
    for key, value in ours.items():
        assert relative(value, truth[key]) < 1e-12, key
    fd = quickly(partial(jaxdyn.forward_dynamics, f_ext=s["f_ext"], base_motion=(v0, a0), form="sweep"))
    assert relative(fd(grove, s["q"], s["qd"], tau), s["qdd"]) < 1e-11
