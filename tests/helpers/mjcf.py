"""A model with everything that MJCF has and we take, and what models do, in plain NumPy."""

import dataclasses
from typing import NamedTuple

import jax
import mujoco
import numpy as np

from jaxdyn.joints import JointParameters, combine
from jaxdyn.spatial import RigidInertia, Transform, Vec3

EVERYTHING = """
<mujoco model="everything">
  <compiler angle="radian"/>
  <option gravity="0.1 -0.2 -9.7"/>
  <asset>
    <material name="red" rgba="1 0 0 1"/>
    <mesh name="wedge" scale="2 2 2" vertex="0 0 0  1 0 0  0 2 0  0 0 3.5"/>
  </asset>
  <worldbody>
    <geom type="plane" size="0 3 1"/>
    <body name="base" pos="0 0 1" quat="1 0.2 0 0.3">
      <freejoint name="root"/>
      <inertial pos="0.1 0.2 -0.1" quat="1 1 0 0.5" mass="3" diaginertia="0.3 0.2 0.15"/>
      <geom type="box" size="0.1 0.2 0.3" material="red" mass="0"/>
      <body name="shoulder" pos="0.3 0.1 0" quat="0.7 0.1 0.7 0">
        <joint name="lift" type="slide" axis="1 2 0" pos="0.1 0 0.4" ref="0.3" range="-0.5 0.8" armature="0.2"
               damping="0.4"/>
        <joint name="yaw" axis="0 1 2" pos="0.2 0.3 -0.1" ref="0.7" range="-2 1.5" stiffness="4"
               springref="0.2" frictionloss="0.6" armature="0.1" actuatorfrcrange="-7 7"/>
        <joint name="pitch" axis="1 0 0.1" pos="-0.1 0.3 0.2" ref="-0.4" damping="0.3"/>
        <geom type="capsule" size="0.05 0.2" pos="0 0 0.2" mass="1.2" contype="0" conaffinity="0"
              rgba="0 1 0 0.5"/>
        <body name="bracket" pos="0 0.1 0.2" quat="1 0 1 0">
          <geom type="cylinder" size="0.05 0.1" mass="0.4"/>
          <body pos="0.1 0 0">
            <geom type="ellipsoid" size="0.1 0.2 0.3" mass="0.3"/>
            <body name="wrist" pos="0 0 0.2" quat="1 0 0 1">
              <joint name="ball" type="ball" pos="0.05 -0.1 0.2" damping="0.2" stiffness="1.5"/>
              <geom type="mesh" mesh="wedge" pos="0.1 0.2 0.3" quat="1 0.5 0 0.2" mass="0.5"/>
            </body>
          </body>
        </body>
      </body>
    </body>
    <body name="rail" pos="0 5 0">
      <geom type="sphere" size="0.2"/>
      <body name="cart"><joint type="slide" axis="0 0 1"/><geom size="0.1" mass="0.7"/></body>
    </body>
  </worldbody>
</mujoco>
"""


def one_body(joint='<joint name="j"/>', more="", body=""):
    return f"""<mujoco>{more}<worldbody>
      <body name="b">{joint}<geom name="g" size="0.1"/>{body}</body></worldbody></mujoco>"""


def random_state(mj_model, rng, batch=8):
    """Return qpos and qvel; qpos reaches every configuration space with unit quaternions."""
    qpos = np.tile(mj_model.qpos0, (batch, 1))
    for q in qpos:
        mujoco.mj_integratePos(mj_model, q, rng.normal(size=mj_model.nv), 1.0)
    return qpos, rng.normal(size=(batch, mj_model.nv))


def mujoco_data(mj_model, qpos, qvel=None):
    for i, q in enumerate(qpos):
        data = mujoco.MjData(mj_model)
        data.qpos[:] = q
        if qvel is not None:
            data.qvel[:] = qvel[i]
        mujoco.mj_forward(mj_model, data)
        yield data


class Motions(NamedTuple):
    """What a model does at some states, by names of bodies and frames; from the joints alone, in NumPy."""

    poses: dict[str, Transform]
    centre: np.ndarray
    energy: np.ndarray

    def position(self, name):
        return self.poses[name].p.to_array()

    def rotation(self, name):
        return self.poses[name].R.to_array()


def motions(model, q, qd=None):
    """Return poses, centre of mass and kinetic energy at configurations (k, nq) and velocities (k, nv)."""
    q, numbers, t = np.asarray(q), fields(model), model.topology
    qd = np.zeros((len(q), model.nv)) if qd is None else np.asarray(qd)
    energy, moment = np.sum(numbers["armature"] * qd**2, axis=-1) / 2, np.zeros((len(q), 3))
    poses, twists = [], []
    for i, joint in enumerate(t.joints):
        name = t.joint_names[i]
        own_q, own_qd = q[:, model.q_slice(name)].T, qd[:, model.qd_slice(name)].T
        axis, axis2 = (Vec3.from_array(numbers[n][i]) for n in ("axis", "axis2"))
        parameters = JointParameters(axis, axis2, 0.0, 1.0, 0.0)
        X = Transform.from_pose(numbers["placement"][i]) @ joint.transform(parameters, tuple(own_q))
        V = combine(joint.subspace(parameters, tuple(own_q)), tuple(own_qd))
        if t.parents[i] >= 0:
            V, X = V + X.inverse().motion(twists[t.parents[i]]), poses[t.parents[i]] @ X
        poses.append(X)
        twists.append(V)
        I = RigidInertia.from_parameters(numbers["inertia"][i])
        energy, moment = energy + (I @ V).dot(V) / 2, moment + (I.m * X.p + X.R @ I.h).to_array()
    frames = [Transform.from_pose(pose) for pose in numbers["frame_placement"]]
    frames = [poses[p] @ X if p >= 0 else X for p, X in zip(t.frame_parents, frames, strict=True)]
    whole = jax.tree.map(lambda x: np.broadcast_to(x, len(q)), poses + frames)
    names = dict(zip(t.body_names + t.frame_names, whole, strict=True))
    return Motions(names, moment / max(numbers["inertia"][:, 0].sum(), 1e-300), energy)


def fields(model):
    names = [f.name for f in dataclasses.fields(model) if f.name not in ("topology", "geometry")]
    return {name: np.asarray(getattr(model, name)) for name in names}


def assert_same(a, b, tolerance=1e-12):
    assert a.topology == b.topology
    for name, value in fields(a).items():
        np.testing.assert_allclose(fields(b)[name], value, atol=tolerance, rtol=tolerance, err_msg=name)
    assert len(a.geometry) == len(b.geometry)
    for x, y in zip(a.geometry, b.geometry, strict=True):
        assert (x.frame, x.shape, x.mesh, x.role) == (y.frame, y.shape, y.mesh, y.role)
        for field in ("size", "placement", "colour"):
            np.testing.assert_allclose(getattr(x, field), getattr(y, field), atol=tolerance)
