"""The robot and its states as MuJoCo wants them; MJX, Brax and frax share its conventions.

The velocity of a free joint is [v of the origin in world axes; omega in body axes], ours [omega; v] in body
axes. With T(q) taking our velocities to theirs (an orthogonal matrix), forces go by T too, and accelerations
by T (qdd + [0; omega x v]), since their linear acceleration is that of the origin.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from benchmarks.contenders.base import CHECKED, Unsupported
from benchmarks.robots import Robot, States
from jaxdyn.io import from_mujoco, to_mjcf, to_mujoco

DISABLED = ("CONSTRAINT", "CONTACT", "ACTUATION", "SENSOR", "EULERDAMP", "WARMSTART")
DEEPEST = 400
"""MuJoCo's XML reader refuses elements that are nested deeper than 500."""


class MujocoConventions:
    """One robot's MuJoCo model, and the way there and back."""

    def __init__(self, robot: Robot):
        if _depth(robot.model.parents) > DEEPEST:
            raise Unsupported("MuJoCo's XML reader refuses bodies nested that deep")
        self.robot = robot
        self.mj_model = mujoco.MjModel.from_xml_string(to_mjcf(robot.model))
        for name in DISABLED:
            self.mj_model.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}"))

    @property
    def joint_names(self) -> list[str]:
        """Names of the joints in MuJoCo's order, without the floating base."""
        names = [self.mj_model.joint(i).name for i in range(self.mj_model.njnt)]
        return names[1:] if self.robot.floating else names

    def theirs(self, states: States) -> States:
        """Convert states."""
        q, qd = to_mujoco(self.robot.model, self.mj_model, states.q, states.qd)
        return States(q, qd, self._turn(states, states.qdd + self._origin(states)), self._turn(states, states.tau))

    def ours(self, quantity: str, states: States, result: np.ndarray) -> np.ndarray:
        """Convert the results of the first states back."""
        states = states.first(CHECKED)
        model = self.robot.model
        if result.ndim == 3:  # M = T* M_theirs T, and so for its inverse
            T = np.stack([self._turn(states, np.broadcast_to(e, states.qd.shape)) for e in np.eye(model.nv)], axis=-1)
            return np.einsum("bji,bjk,bkl->bil", T, result, T)
        q = to_mujoco(model, self.mj_model, states.q)
        vector = from_mujoco(model, self.mj_model, q, result)[1]
        return vector - self._origin(states) if quantity == "FD" else vector

    def _turn(self, states: States, vector: np.ndarray) -> np.ndarray:
        return to_mujoco(self.robot.model, self.mj_model, states.q, vector)[1]

    def _origin(self, states: States) -> Any:
        """Return [0; omega x v] for the floating base."""
        extra = np.zeros_like(states.qd)
        if self.robot.floating:
            extra[:, 3:6] = np.cross(states.qd[:, :3], states.qd[:, 3:6])
        return extra


def _depth(parents: tuple[int, ...]) -> int:
    """Return the number of bodies on the longest way to the world."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 + (depths[parent] if parent >= 0 else 0))
    return max(depths)
