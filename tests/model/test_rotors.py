"""Rotors: their kinetic energy by Lagrange's equations, and the closed forms of textbooks."""

import warnings
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import ModelBuilder, ModelError, ModelWarning, Rotor, add_rotors
from jaxdyn.algorithms import plain
from jaxdyn.model.random_models import random_chain
from jaxdyn.spatial import Transform

quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False})
J, N = 2e-4, -50.0


def assert_close(a, b, tolerance=1e-12):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max())


def normal(*shape):
    return np.random.default_rng(5).normal(size=shape)


@quickly
def dynamics(model, q, qd, qdd):
    return plain.inverse_dynamics(model, q, qd, qdd), plain.mass_matrix(model, q)


# ---------------------------------------------------------------------- Lagrange
ROTORS = {
    "joint_0": Rotor(ratio=30.0, inertia=1e-3, axis=(1, 2, 3), mass=0.5, position=(0.1, 0.2, 0.3)),
    "joint_1": Rotor(ratio=100.0, inertia=2e-4),
    "joint_2": Rotor(ratio=-400.0, inertia=1e-4, mass=0.4, position=(-0.1, 0.0, 0.2), transverse=3e-2),
}


def rotors_lagrangian(model, q, qd):
    """Kinetic less potential energy of the rotors, from the poses of the bodies that carry their stators."""
    poses, rates = jax.jvp(lambda q: jaxdyn.forward_kinematics(model, q), (q,), (qd,))
    L = 0.0
    for i, rotor in enumerate(ROTORS.values()):
        parent, inboard = model.parents[i], Transform.from_pose(model.placement[i])
        at = lambda x, world: x[parent] if parent >= 0 else world
        R, p = at(poses.rotation, jnp.eye(3)), at(poses.position, jnp.zeros(3))
        dR, dp = at(rates.rotation, jnp.zeros((3, 3))), at(rates.position, jnp.zeros(3))
        W = R.T @ dR
        w = jnp.array([W[2, 1], W[0, 2], W[1, 0]])
        axis = model.axis[i] if rotor.axis is None else jnp.array(rotor.axis)
        a = inboard.R.to_array() @ axis / jnp.linalg.norm(axis)
        centre = inboard.p.to_array() + inboard.R.to_array() @ jnp.array(rotor.position or (0.0, 0.0, 0.0))
        v, across = dp + dR @ centre, w - (a @ w) * a
        L += rotor.inertia / 2 * (rotor.ratio * qd[i] + a @ w) ** 2 + rotor.transverse / 2 * across @ across
        L += rotor.mass / 2 * v @ v + rotor.mass * model.gravity @ (p + R @ centre)
    return L


@quickly
def added_by_rotors(model, q, qd, qdd):
    """Return tau and M of the rotors alone: Lagrange's equations by automatic differentiation."""
    L = partial(rotors_lagrangian, model)
    momentum = jax.grad(L, argnums=1)
    rate = jax.jvp(momentum, (q, qd), (qd, qdd))[1]
    return rate - jax.grad(L)(q, qd), jax.jacfwd(momentum, argnums=1)(q, qd)


def test_rotors_obey_lagranges_equations():
    """On the world and on bodies; of a revolute and a prismatic joint; with axis, mass and place of their own."""
    model = random_chain(3, seed=4, joints=("revolute", "revolute", "prismatic"))
    geared = add_rotors(model, ROTORS)
    assert (geared.nbodies, geared.nq, geared.nv) == (6, 3, 3)
    assert {geared.body_names[i] for i, p in enumerate(geared.parents) if p < 0} == {"body_0", "joint_0_rotor"}
    motion = tuple(jnp.array(3 * normal(3, 3)))
    tau, M = dynamics(geared, *motion)
    tau_bare, M_bare = dynamics(model, *motion)
    tau_rotors, M_rotors = added_by_rotors(model, *motion)
    assert_close(tau, tau_bare + tau_rotors)
    assert_close(M, M_bare + M_rotors)
    coasting, _ = added_by_rotors(model, motion[0], motion[1], 0 * motion[2])
    assert abs(coasting[2]) > 1e-4  # the slider's motor feels its stator tumble


# ---------------------------------------------------------------------- closed forms
def test_planar_arm_of_two_links():
    """The elbow's rotor couples the joints: J [[1, n], [n, n^2]]; the shoulder's, on the world, only reflects n^2 J."""
    model, q = jaxdyn.load("double_pendulum"), jnp.array([0.3, 0.4])
    geared = add_rotors(model, {"joint2": Rotor(ratio=N, inertia=J), "joint1": Rotor(ratio=20, inertia=3 * J)})

    @quickly
    @partial(jax.value_and_grad, has_aux=True)
    def value_and_slope(model):
        M = plain.mass_matrix(model, q)
        return M[1, 1], M

    (_, M_bare), _ = value_and_slope(model)
    (_, M), by_model = value_and_slope(geared)
    shoulder = np.diag([20**2 * 3 * J, 0])
    assert_close(M - M_bare, J * np.array([[1, N], [N, N**2]]) + shoulder)
    # Ratio and inertia are leaves.
    i = geared.body_names.index("joint2_rotor")
    assert float(by_model.ratio[i]) == pytest.approx(2 * N * J)
    assert float(by_model.inertia[i, 6]) == pytest.approx(N**2)  # Iyy: the joints turn about y


def test_a_rotor_on_the_world_is_armature():
    model = random_chain(2, seed=1, joints=("helical", "universal"))
    geared = add_rotors(model, {"joint_0": Rotor(ratio=N, inertia=J, axis=(1, 1, 0), position=(1, 2, 3))})
    reflecting = model.replace(armature=model.armature.at[0].set(N**2 * J))
    motion = normal(3, 3)
    for ours, truth in zip(*(dynamics(m, *motion) for m in (geared, reflecting)), strict=True):
        assert_close(ours, truth)


def test_gyroscopic_moment():
    """At constant velocities a rotor exacts w x a J (n qd + a . w) from its stator, and nothing from its joint."""
    solid = {"mass": 1.0, "com": (0.1, 0.2, 0.3), "inertia": (0.1, 0.2, 0.25)}
    builder = ModelBuilder().add_body("gimbal", joint="spherical", **solid)
    builder.add_body("wheel", "gimbal", joint_name="spin", axis=(1, 2, -2), xyz=(1, 2, 3), rpy=(0.1, 0.2, 0.3), **solid)
    model = builder.build()
    geared = add_rotors(model, {"spin": Rotor(ratio=N, inertia=J)})
    a = np.asarray(Transform.from_pose(model.placement[1]).R.to_array() @ model.axis[1])
    q, w = normal(5), normal(3)
    moment = {}
    for speed in (0.0, 100.0):
        tau, bare = (dynamics(m, q, np.array([*w, speed]), np.zeros(4))[0] for m in (geared, model))
        moment[speed] = np.asarray(tau - bare)
        np.testing.assert_allclose(moment[speed][:3], J * (N * speed + a @ w) * np.cross(w, a), atol=1e-11)
        assert abs(moment[speed][3]) < 1e-11
    assert_close((moment[100.0] - moment[0.0])[:3], J * N * 100 * np.cross(w, a), 1e-10)


def test_a_locked_rotor_rides_along():
    model = jaxdyn.load("double_pendulum")
    geared = add_rotors(model, {"joint2": Rotor(ratio=N, inertia=J)})
    bare, locked = (jaxdyn.lock_joints(m, {"joint2": 0.3}) for m in (model, geared))
    assert locked.nbodies == 1
    np.testing.assert_allclose(locked.inertia - bare.inertia, [[0, 0, 0, 0, 0, 0, J, 0, 0, 0]], atol=1e-15)


# ---------------------------------------------------------------------- structure
def test_coordinates_stay_and_bodies_are_numbered_depth_first(tmp_path):
    model = jaxdyn.load("quadruped")
    model = model.replace(armature=0 * model.armature)
    names = [n for n, kind in zip(model.joint_names, model.joint_types, strict=True) if kind == "revolute"]
    physical = Rotor(ratio=9.0, inertia=J, mass=0.3, transverse=2 * J)
    geared = add_rotors(model, dict.fromkeys(reversed(names), physical))
    t = geared.topology
    assert (geared.nq, geared.nv, geared.nbodies) == (model.nq, model.nv, 2 * model.nbodies - 1)
    assert tuple(n for n in t.joint_names if not n.endswith("_rotor")) == model.joint_names
    for name in names:
        rotor, body = t.joint_index(f"{name}_rotor"), t.joint_index(name)
        assert t.body_names[rotor] == f"{name}_rotor"
        assert (t.parents[rotor], t.followed[rotor]) == (t.parents[body], body)
    for i, parent in enumerate(t.parents[1:], 1):  # depth-first: the parent is on the way from the last body inward
        inward = [i - 1]
        while inward[-1] >= 0:
            inward.append(t.parents[inward[-1]])
        assert parent in inward
    for leaf in ("armature", "damping", "friction", "lower", "upper", "rest", "effort_limit", "gravity"):
        np.testing.assert_array_equal(getattr(geared, leaf), getattr(model, leaf))
    kept = [t.body_names.index(name) for name in model.body_names]
    for leaf in ("placement", "inertia", "axis"):
        np.testing.assert_allclose(getattr(geared, leaf)[jnp.array(kept)], getattr(model, leaf), atol=1e-15)
    assert geared.geometry == model.geometry
    jaxdyn.save(geared, tmp_path / "geared.npz")
    again = jaxdyn.load(tmp_path / "geared.npz", strict=True)
    assert again.topology == t
    chex.assert_trees_all_equal(again, geared)


def test_a_chain_keeps_its_numbers():
    arm = jaxdyn.load("arm7")
    geared = add_rotors(arm.replace(armature=0 * arm.armature), {n: Rotor(ratio=N, inertia=J) for n in arm.joint_names})
    assert geared.body_names[:7] == arm.body_names
    assert set(geared.body_names[7:]) == {f"{n}_rotor" for n in arm.joint_names}


def test_no_rotors_change_nothing_and_precision_is_kept(forest):
    same = add_rotors(forest, {})
    assert same.topology == forest.topology
    chex.assert_trees_all_close(same, forest, atol=1e-15)
    single = jaxdyn.load("double_pendulum").astype(jnp.float32)
    assert add_rotors(single, {"joint1": Rotor(ratio=N, inertia=J)}).dtype == jnp.float32


def test_a_joint_with_armature_and_rotor_is_reported():
    model = jaxdyn.load("double_pendulum").replace(armature=[0.0, 0.6])
    with pytest.warns(
        ModelWarning, match=r"'joint2' reflects 0.5 besides the joint's armature, 0.6: .* set it to zero"
    ):
        add_rotors(model, {"joint1": Rotor(ratio=N, inertia=J), "joint2": Rotor(ratio=N, inertia=J)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        add_rotors(model, {"joint2": Rotor(ratio=N, inertia=0.0, mass=1.0)})


def test_a_rotor_is_inertia_enough_for_its_joint():
    with pytest.warns(ModelWarning, match="'joint_0' moves no inertia"):
        model = ModelBuilder().add_body("pointer").build()
    geared = add_rotors(model, {"joint_0": Rotor(ratio=N, inertia=J)})
    np.testing.assert_allclose(plain.mass_matrix(geared, [0.5]), [[N**2 * J]], rtol=1e-14)


# ---------------------------------------------------------------------- errors
@pytest.fixture(scope="module")
def machine():
    solid = {"mass": 1.0, "inertia": (1, 1, 1)}
    builder = ModelBuilder().add_body("a", joint="free", joint_name="root", **solid)
    builder.add_body("b", "a", joint_name="elbow", **solid).add_body(
        "c", "b", joint_name="hand", follows="elbow", **solid
    )
    return builder.add_frame("tip", "c").build()


@pytest.mark.parametrize(
    ("rotors", "message"),
    [
        ({"elbw": Rotor(ratio=1, inertia=1)}, "no joint named 'elbw': did you mean 'elbow'"),
        ({"tip": Rotor(ratio=1, inertia=1)}, "no joint named 'tip'"),
        ({"root": Rotor(ratio=1, inertia=1)}, "'root': only a joint with one coordinate .* a free joint has 7"),
        ({"hand": Rotor(ratio=1, inertia=1)}, "'hand': it mimics 'elbow'; give that joint the rotor"),
        ({"elbow": Rotor(ratio=0, inertia=1)}, "'elbow': ratio must not be zero; 1 is a direct drive"),
        ({"elbow": Rotor(ratio=np.nan, inertia=1)}, "'elbow': ratio must be finite; got nan"),
        ({"elbow": Rotor(ratio="fast", inertia=1)}, "'elbow': ratio must be one number; got 'fast'"),
        ({"elbow": Rotor(ratio=1, inertia=-1)}, "'elbow': inertia must not be negative; got -1"),
        ({"elbow": Rotor(ratio=1, inertia=np.inf)}, "'elbow': inertia must be finite"),
        ({"elbow": Rotor(ratio=1, inertia=(1, 1, 1))}, "'elbow': inertia must be one number"),
        ({"elbow": Rotor(ratio=1, inertia=1, mass=-2)}, "'elbow': mass must not be negative"),
        ({"elbow": Rotor(ratio=1, inertia=1, transverse=-2)}, "'elbow': transverse must not be negative"),
        ({"elbow": Rotor(ratio=1, inertia=1, axis=(0, 0, 0))}, "'elbow': axis must not be zero"),
        ({"elbow": Rotor(ratio=1, inertia=1, axis=(1, 0))}, "'elbow': axis must be 3 numbers"),
        ({"elbow": Rotor(ratio=1, inertia=1, position=(1, 0, np.nan))}, "'elbow': position must be finite"),
        ({"elbow": 100.0}, "'elbow': wanted a jaxdyn.Rotor; got 100.0"),
        (["elbow"], "rotors must map joint names to Rotors"),
    ],
)
def test_refuses_bad_input(machine, rotors, message):
    with pytest.raises(ModelError, match=message):
        add_rotors(machine, rotors)


def test_refuses_a_second_rotor_and_traced_models(machine):
    rotor = {"elbow": Rotor(ratio=1, inertia=1)}
    with pytest.raises(ModelError, match="two bodies or frames are named 'elbow_rotor'"):
        add_rotors(add_rotors(machine, rotor), rotor)
    with pytest.raises(ModelError, match="traced by jit"):
        jax.jit(lambda m: add_rotors(m, rotor).inertia)(machine)


def test_the_spin_of_a_rotor_is_nothing_to_warn_of(tmp_path):
    """Neither where it is added nor where the model is loaded again."""
    model = jaxdyn.load("arm7")
    model = model.replace(armature=0 * model.armature)
    geared = add_rotors(model, {name: Rotor(ratio=80.0, inertia=2e-5) for name in model.joint_names})
    jaxdyn.save(geared, tmp_path / "geared.npz")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = jaxdyn.load(tmp_path / "geared.npz")
    assert again.body_names == geared.body_names


@pytest.mark.parametrize("ratio", [0.0, 2.0])
def test_a_follower_lends_its_leader_inertia_unless_it_never_moves(ratio):
    builder = ModelBuilder("idle")
    builder.add_body("leader", joint="revolute", joint_name="j")
    builder.add_body("follower", follows="j", ratio=ratio, mass=1.0, inertia=(1, 1, 1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        builder.build()
    assert [w.category for w in caught] == ([] if ratio else [ModelWarning])
    assert all("joint 'j' moves no inertia" in str(w.message) for w in caught)
