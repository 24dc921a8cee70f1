"""The bundled robots: what they are made of, where they stand, and the solids their inertias come from."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.algorithms.kinematics import forward_kinematics
from jaxdyn.model import ModelBuilder, neutral
from jaxdyn.model.bundled import BUNDLED, planar_chain
from jaxdyn.model.shapes import Solid, box, capsule, cylinder, lump, sphere
from jaxdyn.spatial import RigidInertia

LEGS = ("front_left", "front_right", "rear_left", "rear_right")
EXPECTED = {
    # nq, nv, bodies, mass, frames
    "pendulum": (1, 1, 1, 1.0, ("tip",)),
    "double_pendulum": (2, 2, 2, 2.0, ("tip",)),
    "planar_chain": (4, 4, 4, 4.0, ("tip",)),
    "cartpole": (2, 2, 2, 1.2, ("rail", "tip")),
    "gantry": (3, 3, 3, 80.0, ("base", "tool")),
    "puma560": (6, 6, 6, 13.0 + 17.4 + 4.8 + 0.82 + 0.34 + 0.09, ("base", "tool")),
    "arm7": (7, 7, 7, 18.0, ("base", "tool")),
    "quadruped": (19, 18, 13, 12.98, tuple(f"{leg}_foot" for leg in LEGS)),
    "humanoid": (38, 37, 32, 70.0, ("left_sole", "right_sole", "eyes", "left_palm", "right_palm")),
}
LEGGED = ("quadruped", "humanoid")


@pytest.fixture(scope="module")
def models():
    return {name: make() for name, make in BUNDLED.items()}


def configuration(model, angles):
    """Neutral, but for the joints in `angles`."""
    q = np.array(neutral(model))
    for joint, angle in angles.items():
        q[model.q_slice(joint)] = angle
    return jnp.asarray(q)


def position(model, q, frame):
    """Where a body or a frame on one is; by the bodies' poses, so that one compilation serves all."""
    poses = forward_kinematics(model, jnp.asarray(q))
    body, number = model.topology.find_frame(frame)
    offset = np.zeros(3) if number < 0 else np.asarray(model.frame_placement)[number, 4:]
    return np.asarray(poses.position[body]) + np.asarray(poses.rotation[body]) @ offset


def between_limits(model, rng):
    """A random configuration with every free joint at neutral."""
    limited = np.isfinite(model.lower)
    lower, upper = (np.where(limited, x, 0.0) for x in (model.lower, model.upper))
    return np.where(limited, rng.uniform(lower, upper), neutral(model))


def test_registry_is_complete():
    assert set(BUNDLED) == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
class TestEveryModel:
    def test_size(self, models, name):
        model = models[name]
        nq, nv, bodies, mass, frames = EXPECTED[name]
        assert (model.name, model.nq, model.nv, model.nbodies) == (name, nq, nv, bodies)
        assert model.frame_names == frames
        np.testing.assert_allclose(np.sum(model.inertia[:, 0]), mass, rtol=1e-12)

    def test_builds_again_strictly(self, models, name):
        again = ModelBuilder.from_model(models[name]).build(strict=True)
        assert again.body_names == models[name].body_names
        assert again.parents == models[name].parents

    def test_bodies_could_be_real(self, models, name):
        for pi in np.asarray(models[name].inertia):
            mass, _, central = RigidInertia.from_parameters(pi).central()
            moments = np.linalg.eigvalsh(central.to_array())
            assert mass > 0
            assert moments[0] > 0
            assert moments[0] + moments[1] > moments[2] * (1 - 1e-9)

    def test_every_body_is_shown_in_colour(self, models, name):
        model = models[name]
        assert set(model.body_names) <= {shape.frame for shape in model.geometry}
        assert all(shape.colour is not None and min(shape.size) > 0 for shape in model.geometry)

    def test_limits(self, models, name):
        model = models[name]
        lower, upper = np.asarray(model.lower), np.asarray(model.upper)
        assert np.all(lower < upper)
        if name in ("puma560", "arm7", "gantry", *LEGGED):
            for joint, kind in zip(model.joint_names, model.joint_types, strict=True):
                if kind == "free":
                    continue
                q, qd = model.q_slice(joint), model.qd_slice(joint)
                assert np.all(np.isfinite([lower[q], upper[q], model.effort_limit[qd]]))
                assert np.all(np.asarray([model.armature[qd], model.damping[qd], model.friction[qd]]) > 0)


# ------------------------------------------------------------------ names and poses
def test_arm7_and_quadruped_names(models):
    arm, quadruped = models["arm7"], models["quadruped"]
    assert arm.body_names == tuple(f"link{k}" for k in range(1, 8))
    assert arm.joint_names == tuple(f"joint{k}" for k in range(1, 8))
    assert arm.body_index("base") == -1
    parts = [f"{leg}_{part}" for leg in LEGS for part in ("hip", "thigh", "shank")]
    assert quadruped.body_names == ("trunk", *parts)
    assert quadruped.joint_names == ("root_joint", *(f"{part}_joint" for part in parts))
    assert models["humanoid"].joint_names[0] == "root_joint"


def test_joints_turn_about_the_axes_that_their_names_say(models):
    x, y, z = np.eye(3)
    np.testing.assert_array_equal(models["arm7"].axis, [z, y, z, y, z, y, z])
    np.testing.assert_array_equal(models["quadruped"].axis[1:], [x, y, y] * 4)
    humanoid = models["humanoid"]
    turns = {"yaw": z, "roll": x, "pitch": y, "knee": y, "elbow": y}
    for joint, axis in zip(humanoid.joint_names[1:], humanoid.axis[1:], strict=True):
        np.testing.assert_array_equal(axis, turns[joint.rsplit("_", 1)[-1]], err_msg=joint)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_planar_chain_tip(n, rng):
    length = 0.7
    model = planar_chain(n, length=length)
    q = rng.uniform(-3, 3, n)
    theta = np.cumsum(q)
    tip = -length * np.array([np.sum(np.sin(theta)), 0.0, np.sum(np.cos(theta))])
    np.testing.assert_allclose(position(model, q, "tip"), tip, atol=1e-14)


def test_planar_chain_links_are_rods():
    model = planar_chain(3, length=2.0, mass=3.0, radius=0.1)
    J = 3.0 * (3 * 0.1**2 + 2.0**2) / 12 + 3.0 * 1.0**2
    np.testing.assert_allclose(model.inertia[:, 6], J, rtol=1e-14)  # Iyy about the joint
    np.testing.assert_allclose(model.inertia[:, :4], [[3.0, 0.0, 0.0, -3.0]] * 3, atol=1e-14)
    with pytest.raises(ValueError, match="n must be at least one link; got 0"):
        planar_chain(0)


def test_cartpole_is_upright_and_falls_forward(models):
    model = models["cartpole"]
    assert model.joint_names == ("slider", "hinge")
    np.testing.assert_allclose(position(model, [0.0, 0.0], "tip"), [0, 0, 1], atol=1e-15)
    fallen = [0.4 + np.sin(0.3), 0, np.cos(0.3)]
    np.testing.assert_allclose(position(model, [0.4, 0.3], "tip"), fallen, atol=1e-15)


def test_gantry_moves_its_tool_along_the_axes(models):
    model = models["gantry"]
    np.testing.assert_allclose(position(model, [0.1, -0.2, 0.3], "tool"), [0.1, -0.2, 1.0], atol=1e-15)


def mdh(alpha, a, theta, d):
    """Craig's matrix of modified Denavit-Hartenberg parameters."""
    ca, sa, ct, st = np.cos(alpha), np.sin(alpha), np.cos(theta), np.sin(theta)
    return np.array([[ct, -st, 0, a], [st * ca, ct * ca, -sa, -d * sa], [st * sa, ct * sa, ca, d * ca], [0, 0, 0, 1]])


def test_puma560_against_a_product_of_matrices(models, rng):
    model = models["puma560"]
    half = np.pi / 2
    alpha, a = (0, -half, 0, half, -half, half), (0, 0, 0.4318, -0.0203, 0, 0)
    d = (0, 0.2435, -0.0934, 0.4331, 0, 0)
    for q in rng.uniform(-3, 3, (5, 6)):
        poses = forward_kinematics(model, jnp.asarray(q))
        T = np.eye(4)
        for k in range(6):
            T = T @ mdh(alpha[k], a[k], q[k], d[k])
            np.testing.assert_allclose(poses.rotation[k], T[:3, :3], atol=1e-14)
            np.testing.assert_allclose(poses.position[k], T[:3, 3], atol=1e-14)
        np.testing.assert_allclose(position(model, q, "tool"), T[:3, 3] + 0.0563 * T[:3, 2], atol=1e-14)


def test_puma560_gravity_as_published(models):
    # Gravity constants of Armstrong, Khatib, Burdick (1986), given to three digits; the torques on joints 2
    # and 3 are g1 C2 + g3 S2 + t and t = g2 S23 + g4 C23 + g5 S23, with a straight wrist.
    g1, g2, g3, g4, g5 = -37.2, -8.44, 1.02, 0.249, -0.0282
    model = models["puma560"]

    def potential(q):
        poses = forward_kinematics(model, jnp.asarray(q))
        m, first = model.inertia[:, 0], model.inertia[:, 1:4]
        return 9.81 * jnp.sum(m * poses.position[:, 2] + jnp.sum(poses.rotation[:, 2] * first, -1))

    half, step = np.pi / 2, 1e-5 * np.eye(6)
    cases = {
        (0, 0): (g1 + g4, g4),
        (0, half): (g1 + g2 + g5, g2 + g5),
        (half, -half): (g3 + g4, g4),
    }
    for (q2, q3), wanted in cases.items():
        q = np.array([0.3, q2, q3, 0, 0, 0])
        torques = [(potential(q + step[k]) - potential(q - step[k])) / 2e-5 for k in (1, 2)]
        np.testing.assert_allclose(torques, wanted, rtol=0.01)


def test_arm7_has_a_spherical_shoulder_and_wrist(models, rng):
    model = models["arm7"]
    shoulder = np.array([0, 0, 0.33])
    for _ in range(5):
        q = between_limits(model, rng)
        elbow, wrist = (position(model, q, body) for body in ("link4", "link6"))
        angle = float(q[3])
        span = np.sqrt(0.42**2 + 0.40**2 + 2 * 0.42 * 0.40 * np.cos(angle))  # law of cosines
        np.testing.assert_allclose(np.linalg.norm(elbow - shoulder), 0.42, rtol=1e-12)
        np.testing.assert_allclose(np.linalg.norm(wrist - shoulder), span, rtol=1e-12)
        np.testing.assert_allclose(np.linalg.norm(position(model, q, "tool") - wrist), 0.18, rtol=1e-12)


def test_quadruped_stands_on_its_feet(models):
    model = models["quadruped"]
    stance = {f"{leg}_thigh_joint": 0.8 for leg in LEGS} | {f"{leg}_shank_joint": -1.6 for leg in LEGS}
    q = configuration(model, stance | {"root_joint": [1, 0, 0, 0, 0, 0, 0.315]})
    feet = np.array([position(model, q, f"{leg}_foot") for leg in LEGS])
    np.testing.assert_allclose(feet[:, 2], 0.022, atol=1e-3)  # on balls of 22 mm
    np.testing.assert_allclose(feet[:, 0], [0.19, 0.19, -0.19, -0.19], atol=1e-12)  # below the hips
    np.testing.assert_allclose(feet[:, 1], [0.135, -0.135, 0.135, -0.135], atol=1e-12)
    assert np.all((model.lower[7:] < q[7:]) & (q[7:] < model.upper[7:]))


def test_humanoid_stands_upright(models):
    model = models["humanoid"]
    q = configuration(model, {"root_joint": [1, 0, 0, 0, 0, 0, 0.98]})
    np.testing.assert_allclose(position(model, q, "left_sole"), [0.03, 0.09, 0.0], atol=1e-12)
    np.testing.assert_allclose(position(model, q, "right_sole"), [0.03, -0.09, 0.0], atol=1e-12)
    head = next(shape for shape in model.geometry if shape.frame == "head" and shape.shape == "capsule")
    crown = position(model, q, "head")[2] + head.placement[6] + head.size[1] / 2 + head.size[0]
    assert 1.65 < crown < 1.75


# ------------------------------------------------------------------ left and right
def mirrored(name):
    return name.replace("left", "right")


@pytest.mark.parametrize("name", LEGGED)
def test_right_limbs_mirror_left_ones(models, name):
    model = models[name]
    signs = np.array([1, 1, -1, 1, 1, -1, 1, 1, -1, 1])  # of the ten parameters when y changes sign
    left = [i for i, body in enumerate(model.body_names) if "left" in body]
    right = [model.body_names.index(mirrored(model.body_names[i])) for i in left]
    assert len(left) == {"quadruped": 6, "humanoid": 13}[name]
    inertia = np.asarray(model.inertia)
    np.testing.assert_allclose(inertia[right], signs * inertia[left], atol=1e-15)
    for i, j in zip(left, right, strict=True):
        about_y = bool(model.axis[i][1])
        a, b = model.q_slice(model.joint_names[i]), model.q_slice(model.joint_names[j])
        limits = np.array([model.lower[a], model.upper[a]])
        wanted = limits if about_y else -limits[::-1]
        np.testing.assert_array_equal(np.array([model.lower[b], model.upper[b]]), wanted)
        np.testing.assert_array_equal(model.axis[i], model.axis[j])


@pytest.mark.parametrize("name", LEGGED)
def test_mirrored_pose_has_mirrored_centres_of_mass(models, name, rng):
    model = models[name]
    q = between_limits(model, rng)
    left = [i for i, body in enumerate(model.body_names) if "left" in body]
    for i in left:
        joint = model.joint_names[i]
        sign = 1 if model.axis[i][1] else -1
        q[model.q_slice(mirrored(joint))] = sign * q[model.q_slice(joint)]
    for joint in ("waist_yaw", "waist_roll", "neck_yaw"):
        if joint in model.joint_names:
            q[model.q_slice(joint)] = 0.0
    poses = forward_kinematics(model, jnp.asarray(q))
    com = model.inertia[:, 1:4] / model.inertia[:, :1]
    centres = np.asarray(poses.position + jnp.einsum("bij,bj->bi", poses.rotation, com))
    right = [model.body_names.index(mirrored(model.body_names[i])) for i in left]
    np.testing.assert_allclose(centres[right], centres[left] * [1, -1, 1], atol=1e-13)
    whole = np.average(centres, axis=0, weights=np.asarray(model.inertia[:, 0]))
    assert abs(whole[1]) < 1e-13


# ------------------------------------------------------------------ solids
def gauss(a, b, order=8):
    x, w = np.polynomial.legendre.leggauss(order)
    return (a + b) / 2 + (b - a) / 2 * x, (b - a) / 2 * w


def moments_of_points(mass, x, y, z, weights):
    density = mass / np.sum(weights)
    squares = np.array([y * y + z * z, x * x + z * z, x * x + y * y])
    return density * np.sum(squares * weights, axis=-1)


def round_points(pieces):
    """Quadrature points of a solid of revolution: (from, to, radius(z)) for each piece along z."""
    points = []
    for start, end, radius in pieces:
        for z, wz in zip(*gauss(start, end), strict=True):
            for r, wr in zip(*gauss(0.0, radius(z)), strict=True):
                for phi in np.arange(8) * np.pi / 4:
                    points.append((r * np.cos(phi), r * np.sin(phi), z, wz * wr * r * np.pi / 4))
    return np.array(points).T


def test_box_by_quadrature():
    size = (0.3, 0.5, 0.7)
    (x, wx), (y, wy), (z, wz) = (gauss(-s / 2, s / 2) for s in size)
    x, y, z = (p.ravel() for p in np.meshgrid(x, y, z, indexing="ij"))
    weights = np.einsum("i,j,k->ijk", wx, wy, wz).ravel()
    np.testing.assert_allclose(box(2.0, size), moments_of_points(2.0, x, y, z, weights), rtol=1e-13)


def test_round_solids_by_quadrature():
    r, length = 0.2, 0.7
    half = length / 2

    def ball(centre):
        return lambda z: np.sqrt(r * r - (z - centre) ** 2)

    cases = {
        cylinder(3.0, r, length): [(-half, half, lambda z: r)],
        sphere(3.0, r): [(-r, r, ball(0.0))],
        capsule(3.0, r, length): [
            (-half - r, -half, ball(-half)), (-half, half, lambda z: r), (half, half + r, ball(half)),
        ],
    }  # fmt: skip
    for moments, pieces in cases.items():
        np.testing.assert_allclose(moments, moments_of_points(3.0, *round_points(pieces)), rtol=1e-13)


def test_a_body_of_solids_weighs_what_its_points_weigh():
    start, end = np.array([0.1, -0.2, 0.3]), np.array([0.4, 0.1, -0.2])
    rod = Solid.cylinder(2.0, 0.05, start, end)
    ball = Solid.sphere(1.0, 0.1, (0.5, 0.2, 0.0))
    mass, com, inertia = lump([rod, ball])

    # The cylinder's points in its own frame, carried along any two normals of its axis.
    length = np.linalg.norm(end - start)
    axis = (end - start) / length
    normal = np.cross(axis, [1.0, 0.0, 0.0])
    normal /= np.linalg.norm(normal)
    x, y, z, w = round_points([(0.0, length, lambda z: 0.05)])
    binormal = np.cross(axis, normal)
    rod_points = start[:, None] + np.outer(normal, x) + np.outer(binormal, y) + np.outer(axis, z)
    a, b, c, v = round_points([(-0.1, 0.1, lambda z: np.sqrt(0.01 - z * z))])
    ball_points = np.array([a + 0.5, b + 0.2, c])
    points = np.concatenate([rod_points, ball_points], axis=1)
    masses = np.concatenate([2.0 * w / w.sum(), 1.0 * v / v.sum()])

    centre = points @ masses / 3.0
    p = points - centre[:, None]
    wanted = np.sum(masses * np.sum(p * p, 0)) * np.eye(3) - (p * masses) @ p.T
    assert mass == pytest.approx(3.0)
    np.testing.assert_allclose(com, centre, rtol=1e-13)
    np.testing.assert_allclose(inertia, wanted, atol=1e-14)


def test_mirror_image_of_a_solid():
    solid = Solid.cylinder(2.0, 0.05, (0.1, 0.2, 0.3), (0.4, -0.1, -0.2))
    _, com, inertia = lump([solid])
    _, com_mirrored, inertia_mirrored = lump([solid.mirrored()])
    flip = np.diag([1.0, -1.0, 1.0])
    np.testing.assert_allclose(com_mirrored, flip @ com, atol=1e-16)
    np.testing.assert_allclose(inertia_mirrored, flip @ inertia @ flip, atol=1e-16)
