"""Real MJCF models against MuJoCo: a handful always, all of the installed packages' in the long run."""

import importlib.util
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import ModelWarning
from jaxdyn.io import model_from_mujoco, to_mujoco
from jaxdyn.spatial import Mat3, RigidInertia, Sym3, Transform, Vec3

mujoco = pytest.importorskip("mujoco")

PACKAGES = ("gymnasium", "dm_control", "gymnasium_robotics")
HANDFUL = ("ant.xml", "half_cheetah.xml", "humanoid.xml", "inverted_double_pendulum.xml", "pusher.xml")
TOLERANCE, TOLERANCE_F32 = 1e-12, 1e-5


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """MuJoCo writes its log where it stands."""
    monkeypatch.chdir(tmp_path)


def folder(package):
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"the package {package} is not installed")
    return Path(spec.origin).parent


@jax.jit
def all_poses(model, q):
    return jaxdyn.forward_kinematics(model, q), jaxdyn.frame_poses(model, q)


def differences(path, mj_model, samples=2):
    """Return the largest difference of each quantity from MuJoCo's, relative where it is large."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        model = model_from_mujoco(mj_model, source=str(path))
    worst = {}

    def compare(name, ours, theirs):
        ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
        scale = max(1.0, np.abs(theirs).max(initial=0))
        worst[name] = float(np.maximum(worst.get(name, 0.0), np.abs(ours - theirs).max(initial=0) / scale))

    # Mocap bodies are moved by hand, not by the model.
    by_hand = mj_model.body_mocapid[mj_model.body_rootid] >= 0
    moving = (mj_model.body_weldid != 0) & ~by_hand
    compare("mass", model.inertia[:, 0].sum(), mj_model.body_mass[moving].sum())
    for j in range(mj_model.njnt):
        if mj_model.jnt_type[j] < 2 or not mj_model.joint(j).name:
            continue
        name, dof = mj_model.joint(j).name, mj_model.jnt_dofadr[j]
        q, qd = model.q_slice(name), model.qd_slice(name)
        if mj_model.jnt_limited[j]:
            compare("limits", [model.lower[q][0], model.upper[q][0]], mj_model.jnt_range[j])
        compare("armature", model.armature[qd][0], mj_model.dof_armature[dof])
        compare("damping", model.damping[qd][0], mj_model.dof_damping[dof])
        compare("friction", model.friction[qd][0], mj_model.dof_frictionloss[dof])
        compare("stiffness", model.stiffness[qd][0], mj_model.jnt_stiffness[j])

    data = mujoco.MjData(mj_model)
    frames = {name: i for i, name in enumerate(model.frame_names)}
    bodies = np.flatnonzero(~by_hand)[1:]  # [0] is the world
    at = np.array([frames[mj_model.body(b).name or f"body_{b}"] for b in bodies], int)
    for key in jax.random.split(jax.random.key(0), samples):
        q = jaxdyn.random_configuration(model, key)
        data.qpos[:] = to_mujoco(model, mj_model, np.asarray(q))
        mujoco.mj_kinematics(mj_model, data)
        mujoco.mj_comPos(mj_model, data)
        poses, named = all_poses(model, q)
        compare("positions", np.asarray(named.position)[at], data.xpos[bodies])
        compare("rotations", np.asarray(named.rotation)[at], data.xmat[bodies].reshape(-1, 3, 3))
        compare("inertia about the world's origin", *(f(poses, model, mj_model, data, moving) for f in (ours, theirs)))
    _, single = all_poses(model.astype(jnp.float32), q.astype(jnp.float32))
    compare("f32 positions", np.asarray(single.position)[at], data.xpos[bodies])
    compare("f32 rotations", np.asarray(single.rotation)[at], data.xmat[bodies].reshape(-1, 3, 3))
    return worst


def ours(poses, model, mj_model, data, moving):
    """Sum of all bodies' ten parameters in the world's frame."""
    X = Transform(Mat3.from_array(np.asarray(poses.rotation)), Vec3.from_array(np.asarray(poses.position)))
    moved = RigidInertia.from_parameters(np.asarray(model.inertia)).transform(X)
    return np.asarray(moved.to_parameters()).sum(0)


def theirs(poses, model, mj_model, data, moving):
    R = data.ximat[moving].reshape(-1, 3, 3)
    central = np.einsum("nij,nj,nkj->nik", R, mj_model.body_inertia[moving], R)
    com = Vec3.from_array(data.xipos[moving])
    M = RigidInertia.from_com(mj_model.body_mass[moving], com, Sym3.from_array(central))
    return np.asarray(M.to_parameters()).sum(0)


def excess(worst):
    """Return the largest difference as a multiple of what is allowed."""
    return float(np.max([x / (TOLERANCE_F32 if name.startswith("f32") else TOLERANCE) for name, x in worst.items()]))


@pytest.mark.parametrize("name", HANDFUL)
def test_equals_mujoco(name):
    path = folder("gymnasium") / "envs/mujoco/assets" / name
    worst = differences(path, mujoco.MjModel.from_xml_path(str(path)))
    assert excess(worst) <= 1, worst
    assert {"mass", "positions", "rotations", "armature", "inertia about the world's origin"} <= set(worst)


def test_the_comparison_can_fail():
    path = folder("gymnasium") / "envs/mujoco/assets/ant.xml"
    mj_model = mujoco.MjModel.from_xml_path(str(path))
    other = mujoco.MjModel.from_xml_path(str(path))
    for field in ("body_pos", "body_mass", "body_inertia", "dof_damping", "dof_armature", "jnt_range"):
        getattr(other, field)[...] = 1.01 * getattr(mj_model, field)
        good = model_from_mujoco
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(globals(), "model_from_mujoco", lambda _, source: good(mj_model, source=source))
            assert excess(differences(path, other)) > 1e6, field
        getattr(other, field)[...] = getattr(mj_model, field)


@pytest.mark.long
@pytest.mark.parametrize("package", PACKAGES)
def test_every_model_equals_mujoco(package):
    compared, refused, overall = 0, 0, {}
    for path in sorted(folder(package).rglob("*.xml")):
        try:
            mj_model = mujoco.MjModel.from_xml_path(str(path))
        except ValueError:
            refused += 1  # a fragment for inclusion, or a model whose assets are not shipped
            continue
        worst = differences(path, mj_model)
        jax.clear_caches()  # a process cannot hold the compiled code of all models
        assert excess(worst) <= 1, (path, worst)
        overall = {k: max(overall.get(k, 0.0), worst.get(k, 0.0)) for k in overall | worst}
        compared += 1
    print(f"\n{package}: {compared} models equal MuJoCo's, which refuses {refused}; largest differences: {overall}")
    assert compared >= 5
