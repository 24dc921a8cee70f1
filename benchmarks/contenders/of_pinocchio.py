"""Pinocchio, the yardstick: float64 only.

Batches of forward and inverse dynamics run in C++ on one thread (`abaInParallel(1, ...)`). The mass matrix and
its inverse have no such form: they are called from Python state by state, and nothing is subtracted. What the
calls themselves cost is estimated by the same loop over a robot of one joint; that is a little too much, so
that the difference bounds Pinocchio's own time from below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pinocchio as pin

from benchmarks.contenders.base import CHECKED, Job, inputs
from benchmarks.robots import Robot, States
from jaxdyn.io import from_pinocchio, to_pinocchio

PARALLEL = {"FD": pin.abaInParallel, "ID": pin.rneaInParallel}
SINGLE: dict[str, Callable[..., Any]] = {
    "FD": pin.aba,
    "ID": pin.rnea,
    "CRBA": pin.crba,
    "Minv": pin.computeMinverse,
}


class Pinocchio:
    """Pinocchio's own reader made the model, if there was a file."""

    def __init__(self, robot: Robot):
        self.robot, self.pin_model = robot, robot.pin_model

    def job(self, quantity: str, states: States, dtype: Any) -> Job:
        """Make a quantity ready to run."""
        arrays = self.theirs(quantity, states)
        ours = lambda: self._ours(quantity, states)
        if quantity in PARALLEL and len(states.q) > 1:
            pool = pin.ModelPool(self.pin_model, 1)
            columns = [np.asfortranarray(x.T) for x in arrays]
            out = np.zeros((self.pin_model.nv, len(states.q)), order="F")
            function = PARALLEL[quantity]
            return Job(lambda: function(1, pool, *columns, out), ours, method=f"{function.__name__}(1, ...)")
        call = loop(SINGLE[quantity], self.pin_model, arrays)
        method = f"Python loop over {SINGLE[quantity].__name__}"
        if len(states.q) == 1:
            return Job(call, ours, method=f"one call of {SINGLE[quantity].__name__}")
        tiny = _one_joint()
        return Job(call, ours, overhead=loop(SINGLE[quantity], tiny, [x[:, : tiny.nq] for x in arrays]), method=method)

    def theirs(self, quantity: str, states: States) -> list[np.ndarray]:
        """Return what a quantity is a function of, in Pinocchio's conventions."""
        q, *rest = inputs(quantity, states)
        convert = lambda vector: to_pinocchio(self.robot.model, self.pin_model, q, vector)[1]
        arrays = [to_pinocchio(self.robot.model, self.pin_model, q), *map(convert, rest)]
        return [np.ascontiguousarray(x) for x in arrays]

    @property
    def places(self) -> np.ndarray:
        """Where our velocities are among Pinocchio's."""
        q, order = pin.neutral(self.pin_model), np.arange(self.pin_model.nv)
        return from_pinocchio(self.robot.model, self.pin_model, q, order)[1].astype(int)

    def _ours(self, quantity: str, states: States) -> np.ndarray:
        """Compute the first results one by one, and convert them; velocities only change places."""
        states = states.first(CHECKED)
        data, arrays = self.pin_model.createData(), self.theirs(quantity, states)
        rows = [np.array(SINGLE[quantity](self.pin_model, data, *row)) for row in zip(*arrays, strict=True)]
        places, result = self.places, np.stack(rows)
        return result[:, places] if result.ndim == 2 else result[:, places[:, None], places]


def loop(function: Callable[..., Any], model: Any, arrays: list[np.ndarray]) -> Callable[[], Any]:
    """Return a function that calls another for every state."""
    data, rows = model.createData(), list(zip(*arrays, strict=True))

    def call() -> None:
        for row in rows:
            function(model, data, *row)

    return call


def _one_joint() -> Any:
    model = pin.Model()
    model.addJoint(0, pin.JointModelRZ(), pin.SE3.Identity(), "joint")
    model.appendBodyToJoint(1, pin.Inertia.Random(), pin.SE3.Identity())
    return model


CONTENDER = Pinocchio
