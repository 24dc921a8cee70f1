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

mujoco = pytest.importorskip("mujoco")

PACKAGES = ("gymnasium", "dm_control", "gymnasium_robotics")
HANDFUL = ("ant.xml", "half_cheetah.xml", "humanoid.xml", "inverted_double_pendulum.xml", "pusher.xml")
TOLERANCE = 1e-12


def folder(package):
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"the package {package} is not installed")
    return Path(spec.origin).parent


@jax.jit
def all_poses(model, q):
    return jaxdyn.forward_kinematics(model, q), jaxdyn.frame_poses(model, q)


def differences(path, mj_model, samples=2):
    """Return the largest difference of each quantity from MuJoCo's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        model = model_from_mujoco(mj_model, source=str(path))
    moving = mj_model.body_weldid != 0
    worst = {"mass": abs(float(model.inertia[:, 0].sum()) - mj_model.body_mass[moving].sum())}
    limited = {mj_model.joint(j).name: mj_model.jnt_range[j] for j in range(mj_model.njnt)
               if mj_model.jnt_limited[j] and mj_model.jnt_type[j] >= 2 and mj_model.joint(j).name}  # fmt: skip
    for name, (lower, upper) in limited.items():
        (a,), (b,) = model.lower[model.q_slice(name)], model.upper[model.q_slice(name)]
        worst["limits"] = max(worst.get("limits", 0.0), abs(float(a) - lower), abs(float(b) - upper))
    data = mujoco.MjData(mj_model)
    frames = {name: i for i, name in enumerate(model.frame_names)}
    for key in jax.random.split(jax.random.key(0), samples):
        q = jaxdyn.random_configuration(model, key)
        data.qpos[:] = to_mujoco(model, mj_model, np.asarray(q))
        mujoco.mj_kinematics(mj_model, data)
        mujoco.mj_comPos(mj_model, data)
        bodies, named = all_poses(model, q)
        for body in range(1, mj_model.nbody):
            name = mj_model.body(body).name or f"body_{body}"
            if mj_model.body_mocapid[mj_model.body_rootid[body]] >= 0:
                continue  # moved by hand, not by the model
            scale = max(1.0, np.abs(data.xpos[body]).max())
            at = np.abs(np.asarray(named.position[frames[name]]) - data.xpos[body]).max() / scale
            turn = np.abs(np.asarray(named.rotation[frames[name]]).ravel() - data.xmat[body]).max()
            worst["poses"] = max(worst.get("poses", 0.0), float(at), float(turn))
        mass = mj_model.body_mass[moving].sum()
        if mass > 0:
            com = (mj_model.body_mass[moving] @ data.xipos[moving]) / mass
            m, h = model.inertia[:, :1], model.inertia[:, 1:4]
            ours = (m * bodies.position + jnp.einsum("nij,nj->ni", bodies.rotation, h)).sum(0) / m.sum()
            worst["com"] = max(worst.get("com", 0.0), float(np.abs(ours - com).max() / max(1.0, np.abs(com).max())))
    return worst


@pytest.mark.parametrize("name", HANDFUL)
def test_equals_mujoco(name):
    path = folder("gymnasium") / "envs/mujoco/assets" / name
    worst = differences(path, mujoco.MjModel.from_xml_path(str(path)))
    assert max(worst.values()) <= TOLERANCE, worst
    assert {"mass", "poses", "com"} <= set(worst)


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
        assert max(worst.values()) <= TOLERANCE, (path, worst)
        overall = {k: max(overall.get(k, 0.0), worst.get(k, 0.0)) for k in overall | worst}
        compared += 1
    print(f"\n{package}: {compared} models equal MuJoCo's, which refuses {refused}; largest differences: {overall}")
    assert compared >= 5
