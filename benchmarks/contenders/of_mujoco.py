"""MuJoCo in C: float64 only, constraints, contacts, actuators and sensors off.

A batch of forward dynamics is one `mujoco.rollout` of one step on one thread, which loops in C; with a time
step of one second the change of velocity is the acceleration. It pays for an integration that the others do
not do, which is less than a Python loop over `mj_forward` costs. A single state is `mj_forward`. The rest has
no loop in C: the parts that are needed are called from Python state by state.
"""

from __future__ import annotations

from typing import Any

import mujoco
import mujoco.rollout
import numpy as np

from benchmarks.contenders.base import CHECKED, Job
from benchmarks.contenders.mujoco_conventions import MujocoConventions
from benchmarks.robots import Robot, States


class Mujoco:
    """MuJoCo's own model, compiled from our MJCF."""

    def __init__(self, robot: Robot):
        self.conventions = MujocoConventions(robot)
        self.mj_model = self.conventions.mj_model
        self.mj_model.opt.timestep = 1.0
        self.data = mujoco.MjData(self.mj_model)

    def job(self, quantity: str, states: States, dtype: Any) -> Job:
        """Make a quantity ready to run."""
        theirs = self.conventions.theirs(states)
        first = theirs.first(CHECKED)
        if quantity == "FD" and len(states.q) > 1:
            call, one, method = self._rollout(theirs), None, "mujoco.rollout, one step, one thread"
        else:
            one = getattr(self, f"_{quantity.lower()}")
            call = lambda: [one(*row) for row in zip(*theirs, strict=True)][:0]
            method = "Python loop over " + ("mj_forward" if quantity == "FD" else "the parts needed")

        def ours() -> np.ndarray:
            if one is None:
                result = call()[:CHECKED] - first.qd
            else:
                result = np.stack([np.array(one(*row)) for row in zip(*first, strict=True)])
            return self.conventions.ours(quantity, states, result)

        return Job(call, ours, method=method)

    def _rollout(self, theirs: States) -> Any:
        start = np.concatenate([np.zeros((len(theirs.q), 1)), theirs.q, theirs.qd], axis=1)  # time, qpos, qvel
        force, spec = theirs.tau[:, None], int(mujoco.mjtState.mjSTATE_QFRC_APPLIED)
        roll = mujoco.rollout.Rollout(nthread=0)

        def call() -> np.ndarray:
            end, _ = roll.rollout([self.mj_model], [self.data], start, control=force, control_spec=spec, nstep=1)
            return end[:, 0, -self.mj_model.nv :]

        return call

    def _fd(self, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray, tau: np.ndarray) -> np.ndarray:
        data = self.data
        data.qpos, data.qvel, data.qfrc_applied = q, qd, tau
        mujoco.mj_forward(self.mj_model, data)
        return data.qacc

    def _id(self, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray, tau: np.ndarray) -> np.ndarray:
        model, data = self.mj_model, self.data
        data.qpos, data.qvel, data.qacc = q, qd, qdd
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_comVel(model, data)
        mujoco.mj_rne(model, data, 1, data.qfrc_inverse)
        return data.qfrc_inverse

    def _composite(self, q: np.ndarray) -> None:
        self.data.qpos = q
        mujoco.mj_kinematics(self.mj_model, self.data)
        mujoco.mj_comPos(self.mj_model, self.data)
        mujoco.mj_crb(self.mj_model, self.data)

    def _crba(self, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray, tau: np.ndarray) -> np.ndarray:
        self._composite(q)
        matrix = np.zeros((self.mj_model.nv, self.mj_model.nv))
        mujoco.mj_fullM(self.mj_model, self.data, matrix)
        return matrix

    def _minv(self, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray, tau: np.ndarray) -> np.ndarray:
        self._composite(q)
        mujoco.mj_factorM(self.mj_model, self.data)
        inverse = np.zeros((self.mj_model.nv, self.mj_model.nv))
        mujoco.mj_solveM(self.mj_model, self.data, inverse, np.eye(self.mj_model.nv))
        return inverse


CONTENDER = Mujoco
