"""Dynamics of real MJCF models against MuJoCo's: a handful always, all of the installed packages' in the long run.

Contacts, limits, tendons, actuators and whatever else jaxdyn leaves out with a warning are switched off in MuJoCo.
"""

import importlib.util
import itertools
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers.dynamics_oracle import GRAVITY, SAMPLES, Robot, assert_small, differences, one_frame, random_state
from helpers.mjcf import EVERYTHING

from jaxdyn import ModelWarning
from jaxdyn.io import model_from_mujoco, to_mujoco
from jaxdyn.io.mjcf import body_names

mujoco = pytest.importorskip("mujoco")

PACKAGES = ("gymnasium", "dm_control", "gymnasium_robotics")
HANDFUL = ("ant.xml", "half_cheetah.xml", "humanoid.xml", "pusher.xml")
TOLERANCE, TOLERANCE_F32 = 1e-10, 1e-3
FUNCTIONS = {
    "mass_matrix", "bias_force", "inverse_dynamics", "forward_dynamics", "passive_force", "kinetic_energy",
    "potential_energy", "center_of_mass", "centroidal_momentum", "jacobian",
}  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """MuJoCo writes its log where it stands."""
    monkeypatch.chdir(tmp_path)


def folder(package):
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"the package {package} is not installed")
    return Path(spec.origin).parent


def robot(mj_model, label, seed=0) -> Robot:
    """Read a compiled model, and ask MuJoCo."""
    disable(mj_model, "CONSTRAINT", "ACTUATION", only=True)
    mj_model.opt.gravity[:] = GRAVITY
    mj_model.opt.density = mj_model.opt.viscosity = 0
    for field in ("body_gravcomp", "tendon_stiffness", "tendon_damping", "tendon_armature", "actuator_armature",
                  "actuator_damping", "jnt_stiffnesspoly", "dof_dampingpoly", "dof_frictionloss"):  # fmt: skip
        getattr(mj_model, field, np.zeros(0))[...] = 0
    free = mj_model.jnt_type == mujoco.mjtJoint.mjJNT_FREE
    mj_model.jnt_stiffness[free] = 0  # their springs act in world axes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        model = one_frame(model_from_mujoco(mj_model, source=label))
    state = random_state(model, seed)
    state = state._replace(f_ext=np.zeros_like(state.f_ext))
    points = np.stack([np.zeros(3), np.random.default_rng(seed).normal(size=3).astype(np.float32)])
    frames = (model.frame_names[0],) * 2
    return Robot(label, model, state, frames, points, truth(model, mj_model, state, frames[0], points[1]))


def disable(mj_model, *names, only=False):
    bits = sum(int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}")) for name in names)
    mj_model.opt.disableflags = bits if only else mj_model.opt.disableflags | bits


def truth(model, m, state, frame, point):
    """Return MuJoCo's answers in our conventions. Its velocities are T(q) qd, its accelerations T qdd + T' qd."""
    body = body_names(m).index(frame)
    by_hand = m.body_mocapid[m.body_rootid] >= 0  # moved by hand, not by the model
    moving = (m.body_weldid != 0) & ~by_hand
    mass = m.body_mass[moving]
    free = [m.jnt_dofadr[j] for j in np.flatnonzero(m.jnt_type == mujoco.mjtJoint.mjJNT_FREE)]
    found = {}

    def keep(name, value):
        found.setdefault(name, []).append(np.array(value))

    for s in range(SAMPLES):
        data = mujoco.MjData(m)
        data.qpos[:], data.qvel[:] = to_mujoco(model, m, state.q[s], state.qd[s])
        _, rows = to_mujoco(model, m, np.tile(state.q[s], (model.nv, 1)), np.eye(model.nv))
        T, drift = rows.T, np.zeros(m.nv)
        mujoco.mj_fwdPosition(m, data)
        mujoco.mj_fwdVelocity(m, data)
        for at in free:  # linear velocity in world axes, angular in the body's: d(R v)/dt = R (v' + w x v)
            w = data.xmat[m.dof_bodyid[at]].reshape(3, 3) @ data.qvel[at + 3 : at + 6]
            drift[at : at + 3] = np.cross(w, data.qvel[at : at + 3])

        columns = np.zeros((m.nv, m.nv))
        for column, unit in zip(columns, np.eye(m.nv), strict=True):
            mujoco.mj_mulM(m, data, column, unit)
        M = columns.T
        keep("mass_matrix", T.T @ M @ T)
        tau = np.zeros(m.nv)
        mujoco.mj_rne(m, data, 0, tau)
        keep("bias_force", T.T @ (tau + M @ drift))
        data.qacc[:] = T @ state.qdd[s] + drift
        mujoco.mj_rne(m, data, 1, tau)
        keep("inverse_dynamics", T.T @ (tau + m.dof_armature * data.qacc))
        keep("passive_force", T.T @ (data.qfrc_spring + data.qfrc_damper))

        mujoco.mj_energyPos(m, data)
        mujoco.mj_energyVel(m, data)
        still = -m.body_mass[~moving] @ data.xipos[~moving] @ m.opt.gravity
        keep("potential_energy", data.energy[0] - still)
        keep("kinetic_energy", data.energy[1])
        mujoco.mj_subtreeVel(m, data)
        momentum, center = m.body_subtreemass[0] * data.subtree_linvel[0], mass @ data.xipos[moving] / mass.sum()
        keep("center_of_mass", center)
        arm = data.subtree_com[0] - center  # MuJoCo's includes what stands still
        keep("centroidal_momentum", [*(data.subtree_angmom[0] + np.cross(arm, momentum)), *momentum])

        J, at_point = np.zeros((2, 3, m.nv)), np.zeros((2, 3, m.nv))
        mujoco.mj_jacBody(m, data, J[1], J[0], body)
        world_point = data.xpos[body] + data.xmat[body].reshape(3, 3) @ point
        mujoco.mj_jac(m, data, at_point[1], at_point[0], world_point, body)
        keep("jacobian", [J.reshape(6, -1) @ T, at_point.reshape(6, -1) @ T])

        flags = m.opt.disableflags
        disable(m, "SPRING", "DAMPER")
        data.qfrc_applied[:] = T @ state.tau[s]
        mujoco.mj_forward(m, data)
        m.opt.disableflags = flags
        keep("forward_dynamics", T.T @ (data.qacc_smooth - drift))
    return {name: np.array(values) for name, values in found.items()}


@pytest.fixture(scope="module")
def handful():
    """Return models with all of MJCF's joint types, armature, damping, springs and anchors off the body's origin."""
    assets = folder("gymnasium") / "envs/mujoco/assets"
    models = [(mujoco.MjModel.from_xml_path(str(assets / name)), name) for name in HANDFUL]
    models.append((mujoco.MjModel.from_xml_string(EVERYTHING), "everything"))
    robots = [robot(model, label, seed) for seed, (model, label) in enumerate(models)]
    assert {"free", "spherical", "prismatic", "revolute"} == set(
        itertools.chain(*(r.model.joint_types for r in robots))
    )
    assert all(
        sum(np.any(getattr(r.model, leaf)) for r in robots) >= 2 for leaf in ("armature", "damping", "stiffness")
    )
    return robots


def test_dynamics_equal_mujocos(handful):
    """Five models in one world, with slanting gravity."""
    assert_small(differences(handful), TOLERANCE, FUNCTIONS)


def test_the_comparison_can_fail(handful):
    """A thousandth off in any number of a model that dynamics uses shows in that model, and in no other."""
    dynamics = {"mass_matrix", "forward_dynamics", "inverse_dynamics", "kinetic_energy"}
    weight = {"bias_force", "center_of_mass", "centroidal_momentum", "potential_energy"}
    for leaf, functions in {
        "inertia": dynamics | weight,
        "placement": FUNCTIONS - {"passive_force"},
        "armature": dynamics,
        "damping": {"passive_force"},
        "stiffness": {"passive_force", "potential_energy"},
    }.items():
        one = handful[-1]
        spoilt = one._replace(model=one.model.replace(**{leaf: np.asarray(getattr(one.model, leaf)) + 1e-3}))
        worst = differences([*handful[:-1], spoilt])
        wrong = {label: {n for n, d in found.items() if not d <= 1e-7} for label, found in worst.items()}
        assert wrong.pop(one.label) == functions, (leaf, worst[one.label])
        assert not any(wrong.values()), (leaf, wrong)


@pytest.mark.long
@pytest.mark.parametrize("package", PACKAGES)
def test_every_model_equals_mujoco(package):
    """All models of a package, in worlds of some hundred degrees of freedom."""
    robots, refused = [], 0
    for path in sorted(folder(package).rglob("*.xml")):
        try:
            mj_model = mujoco.MjModel.from_xml_path(str(path))
        except ValueError:
            refused += 1  # a fragment for inclusion, or a model whose assets are not shipped
            continue
        if mj_model.nv and not mj_model.nflex:
            robots.append(robot(mj_model, f"{path.parent.name}/{path.name}", seed=len(robots)))
    worlds, worst = [[]], {"float64": {}, "float32": {}}
    for one in robots:
        if sum(r.model.nv for r in worlds[-1]) + one.model.nv > 500:
            worlds.append([])
        worlds[-1].append(one)
    for dtype, tolerance in (("float64", TOLERANCE), ("float32", TOLERANCE_F32)):
        for world in worlds:
            worst[dtype] |= differences(world, dtype)
            jax.clear_caches()  # a process cannot hold the compiled code of all models
        assert_small(worst[dtype], tolerance, FUNCTIONS, f"{package} in {dtype}, {refused} refused by MuJoCo: ")
    assert len(robots) >= 5
