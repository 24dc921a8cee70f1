"""Dynamics of real MJCF models against MuJoCo's: a handful always, all of the installed packages' in the long run.

Contacts, limits, tendons, actuators and whatever else jaxdyn leaves out with a warning are switched off in MuJoCo.
"""

import contextlib
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
from jaxdyn.io.mjcf import body_names, joint_names

mujoco = pytest.importorskip("mujoco")

PACKAGES = ("gymnasium", "dm_control", "gymnasium_robotics")
HANDFUL = ("ant.xml", "half_cheetah.xml", "humanoid.xml", "pusher.xml")
TOLERANCE, TOLERANCE_F32 = 1e-10, 1e-3
INERTIAL = {"mass_matrix", "mass_matrix_inverse", "inverse_dynamics", "forward_dynamics", "kinetic_energy"}
WEIGHTY = {
    "bias_force", "gravity_force", "coriolis_matrix", "coriolis_matrix @ qd", "potential_energy", "center_of_mass",
    "center_of_mass_jacobian", "centroidal_momentum", "centroidal_momentum_matrix", "centroidal_momentum_bias",
}  # fmt: skip
BODIES = {"body_velocities", "body_velocities, world", "body_accelerations", "body_accelerations, world"}
FRAMES = {"jacobian", "jacobian_bias", "frame_velocity", "frame_acceleration"}
FUNCTIONS = INERTIAL | WEIGHTY | BODIES | FRAMES | {"passive_force"}


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
    points = np.stack([np.zeros(3), np.random.default_rng(seed).normal(size=3).astype(np.float32)])
    frames = (model.frame_names[0],) * 2
    return Robot(label, model, state, frames, points, truth(model, mj_model, state, frames[0], points[1]))


def disable(mj_model, *names, only=False):
    bits = sum(int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}")) for name in names)
    mj_model.opt.disableflags = bits if only else mj_model.opt.disableflags | bits


@contextlib.contextmanager
def without(mj_model, *names):
    flags = mj_model.opt.disableflags
    disable(mj_model, *names)
    yield
    mj_model.opt.disableflags = flags


def truth(model, m, state, frame, point):
    """Return MuJoCo's answers in our conventions. Its velocities are T(q) qd, its accelerations T qdd + T' qd."""
    body = body_names(m).index(frame)
    by_hand = m.body_mocapid[m.body_rootid] >= 0  # moved by hand, not by the model
    moving = (m.body_weldid != 0) & ~by_hand
    mass = m.body_mass[moving]
    free = [m.jnt_dofadr[j] for j in np.flatnonzero(m.jnt_type == mujoco.mjtJoint.mjJNT_FREE)]
    data, held, found = mujoco.MjData(m), mujoco.MjData(m), {}

    def keep(name, value):
        found.setdefault(name, []).append(np.array(value))

    for s in range(SAMPLES):
        mujoco.mj_resetData(m, data)
        data.qpos[:], data.qvel[:] = to_mujoco(model, m, state.q[s], state.qd[s])
        _, rows = to_mujoco(model, m, np.tile(state.q[s], (model.nv, 1)), np.eye(model.nv))
        T, dT = rows.T, np.zeros((m.nv, model.nv))
        mujoco.mj_fwdPosition(m, data)
        mujoco.mj_fwdVelocity(m, data)
        for at in free:  # linear velocity in world axes, angular in the body's: d(R v)/dt = R (v' + w x v)
            w = data.xmat[m.dof_bodyid[at]].reshape(3, 3) @ data.qvel[at + 3 : at + 6]
            dT[at : at + 3] = skew(w) @ T[at : at + 3]
        drift = dT @ state.qd[s]
        qacc = T @ state.qdd[s] + drift

        columns, inverse = np.zeros((m.nv, m.nv)), np.zeros((m.nv, m.nv))
        for column, unit in zip(columns, np.eye(m.nv), strict=True):
            mujoco.mj_mulM(m, data, column, unit)
        M = columns.T
        mujoco.mj_solveM(m, data, inverse, np.eye(m.nv))
        keep("mass_matrix", T.T @ M @ T)
        keep("mass_matrix_inverse", T.T @ inverse @ T)
        bias, weight, swing, tau = np.zeros((4, m.nv))
        mujoco.mj_rne(m, data, 0, bias)
        keep("bias_force", T.T @ (bias + M @ drift))
        at_rest(m, held, data.qpos)
        mujoco.mj_rne(m, held, 0, weight)
        keep("gravity_force", T.T @ weight)
        keep("coriolis_matrix", coriolis_matrix(m, data, np.flatnonzero(moving), T, dT))
        with without(m, "GRAVITY"):
            mujoco.mj_rne(m, data, 0, swing)
        swing += M @ drift
        if np.abs(swing).max() < np.finfo(float).eps * np.abs(bias).max():
            swing[:] = 0  # no velocity changes such a mechanism's inertia: it is MuJoCo's rounding
        keep("coriolis_matrix @ qd", T.T @ swing)
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
        linear, angular = np.zeros((2, 3, m.nv))
        mujoco.mj_jacSubtreeCom(m, data, linear, 0)
        mujoco.mj_angmomMat(m, data, angular, 0)
        linear *= m.body_subtreemass[0]
        keep("center_of_mass_jacobian", linear @ T / mass.sum())
        keep("centroidal_momentum_matrix", np.concatenate([angular + skew(arm) @ linear, linear]) @ T)

        places = [data.xpos[body] + data.xmat[body].reshape(3, 3) @ x for x in (np.zeros(3), point)]
        J, dJ = zip(*(jacobian_and_rate(m, data, body, x) for x in places), strict=True)
        keep("jacobian", J @ T)
        keep("jacobian_bias", dJ @ data.qvel + J @ drift)
        with without(m, "GRAVITY"):
            data.qacc[:] = drift
            mujoco.mj_rnePostConstraint(m, data)
            roots = np.flatnonzero(m.body_parentid[1:] == 0) + 1
            moments, forces = np.split(data.cfrc_int[roots], 2, axis=1)  # about the centre of each root's subtree
            moments = moments + np.cross(data.subtree_com[roots] - center, forces)
            keep("centroidal_momentum_bias", np.concatenate([moments, forces], axis=1).sum(0))
            data.qacc[:] = qacc
            mujoco.mj_rnePostConstraint(m, data)
            velocities, accelerations = zip(*(motion(m, data, body, x)[1] for x in (np.zeros(3), point)), strict=True)
            keep("frame_velocity", velocities)
            keep("frame_acceleration", accelerations)

        bodies, pushed = [], np.zeros(m.nv)
        for name, (*moment, x, y, z) in zip(model.joint_names, state.f_ext[s], strict=True):
            joint = joint_names(m).index(name)
            own, anchor = m.jnt_bodyid[joint], m.jnt_pos[joint]
            later = hold(m, held, data, joint)
            with without(m, "GRAVITY"):
                mujoco.mj_rnePostConstraint(m, held)
                bodies.append(motion(m, held, own, anchor))
            R, push = held.xmat[own].reshape(3, 3), np.zeros(m.nv)
            force, torque, origin = R @ (x, y, z), R @ moment, held.xpos[own] + R @ anchor
            mujoco.mj_applyFT(m, held, force, torque, origin, own, push)
            push[later] = 0
            pushed += push
            if later.any():
                data.qfrc_applied += push
            else:
                data.xfrc_applied[own] = [*force, *(torque + np.cross(origin - data.xipos[own], force))]
        in_body, in_world = zip(*bodies, strict=True)
        for axes, motions in (("", in_body), (", world", in_world)):
            velocities, accelerations = zip(*motions, strict=True)
            keep(f"body_velocities{axes}", velocities)
            keep(f"body_accelerations{axes}", accelerations)

        mujoco.mj_rne(m, data, 1, tau)
        keep("inverse_dynamics", T.T @ (tau + m.dof_armature * qacc - pushed))
        data.qfrc_applied += T @ state.tau[s]
        with without(m, "SPRING", "DAMPER"):
            mujoco.mj_forward(m, data)
        keep("forward_dynamics", T.T @ (data.qacc_smooth - drift))
    return {name: np.array(values) for name, values in found.items()}


def skew(v):
    return np.cross(v, np.eye(3), axisb=0, axisc=0)


def at_rest(m, data, qpos):
    mujoco.mj_resetData(m, data)
    data.qpos[:] = qpos
    move(m, data)


def hold(m, held, data, joint):
    """Move as `data` does, with the joints that follow on the same body held at zero: it is our body of this joint.

    Returns:
        which degrees of freedom are held.
    """
    later = (m.dof_bodyid == m.jnt_bodyid[joint]) & (m.dof_jntid > joint)
    held.qpos[:], held.qvel[:], held.qacc[:] = data.qpos, data.qvel, data.qacc
    starts = [*m.jnt_qposadr, m.nq]
    for k in np.unique(m.dof_jntid[later]):
        at = slice(starts[k], starts[k + 1])
        held.qpos[at] = m.qpos0[at]
    held.qvel[later] = held.qacc[later] = 0
    move(m, held)
    return later


def move(m, data):
    mujoco.mj_kinematics(m, data)
    mujoco.mj_comPos(m, data)
    mujoco.mj_comVel(m, data)


def motion(m, data, body, point):
    """Return velocity and acceleration of a point of a body, in its axes and in the world's; derivatives in those."""
    found = []
    for local in (True, False):
        v, a = np.zeros((2, 6))
        mujoco.mj_objectVelocity(m, data, mujoco.mjtObj.mjOBJ_XBODY, body, v, local)
        mujoco.mj_objectAcceleration(m, data, mujoco.mjtObj.mjOBJ_XBODY, body, a, local)
        w, r = v[:3], point if local else data.xmat[body].reshape(3, 3) @ point
        v[3:] += np.cross(w, r)
        a[3:] += np.cross(a[:3], r) + np.cross(w, np.cross(w, r))
        if local:  # MuJoCo's is the acceleration of the point, whose components change with the axes too
            a[3:] -= np.cross(w, v[3:])
        found.append((v, a))
    return found


def jacobian_and_rate(m, data, body, point):
    """Return J and J' at a point of a body, given in the world; (6, nv), angular first."""
    J, dJ = np.zeros((2, 2, 3, m.nv))
    mujoco.mj_jac(m, data, J[1], J[0], point, body)
    mujoco.mj_jacDot(m, data, dJ[1], dJ[0], point, body)
    return J.reshape(6, -1), dJ.reshape(6, -1)


def coriolis_matrix(m, data, bodies, T, dT):
    """Return the sum of J^T (I J' + B J) over the centres of mass, where B w = w x I w and I' - 2 B is skew."""
    C = np.zeros((T.shape[1],) * 2)
    for body in bodies:
        J, dJ = jacobian_and_rate(m, data, body, data.xipos[body])
        w, R, I, B = J[:3] @ data.qvel, data.ximat[body].reshape(3, 3), np.zeros((6, 6)), np.zeros((6, 6))
        turning = I[:3, :3] = R * m.body_inertia[body] @ R.T
        I[3:, 3:] = m.body_mass[body] * np.eye(3)
        B[:3, :3] = (skew(w) @ turning - turning @ skew(w) - skew(turning @ w)) / 2
        C += (J @ T).T @ (I @ (dJ @ T + J @ dT) + B @ J @ T)
    return C


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
    """A thousandth off in any number that dynamics uses shows in that model's functions of it, and in no other."""
    one = handful[-1]
    off = lambda x: np.asarray(x) + 1e-3
    spoilt = {
        leaf: (one._replace(model=one.model.replace(**{leaf: off(getattr(one.model, leaf))})), functions)
        for leaf, functions in {
            "inertia": INERTIAL | WEIGHTY,
            "placement": FUNCTIONS - {"passive_force"},
            "frame_placement": FRAMES,
            "armature": INERTIAL,
            "damping": {"passive_force"},
            "stiffness": {"passive_force", "potential_energy"},
        }.items()
    }
    accelerations = {name for name in FUNCTIONS if "accelerations" in name} | {"frame_acceleration"}
    spoilt |= {
        field: (one._replace(state=one.state._replace(**{field: off(getattr(one.state, field))})), functions)
        for field, functions in {
            "qdd": accelerations | {"inverse_dynamics"},
            "tau": {"forward_dynamics"},
            "f_ext": {"inverse_dynamics", "forward_dynamics"},
        }.items()
    }
    for number, (robot, functions) in spoilt.items():
        worst = differences([*handful[:-1], robot])
        wrong = {label: {n for n, d in found.items() if not d <= 1e-7} for label, found in worst.items()}
        assert wrong.pop(one.label) == functions, (number, worst[one.label])
        assert not any(wrong.values()), (number, wrong)


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
