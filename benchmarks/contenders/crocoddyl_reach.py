"""The reaching problem of `trajopt.py` solved by Crocoddyl, in a process of its own: `trajopt.py` starts it.

Crocoddyl's packages ask for other versions of Pinocchio than the rest of the benchmarks, so that it lives in an
environment of its own; nothing but Crocoddyl and Pinocchio is imported here. The problem comes as JSON, the first
argument. For every line on the standard input the problem is solved from its start once, and a line of JSON is
written: cost, iterations and CPU seconds.
"""

import json
import sys
import time
from typing import Any

import crocoddyl
import numpy as np
import pinocchio as pin


def main() -> None:
    """Answer one line with one solution, until the input ends."""
    solver, xs, us = _problem(json.loads(sys.argv[1]))
    for _ in sys.stdin:
        start = time.process_time()
        solver.solve(xs, us, 100, False)
        seconds = time.process_time() - start
        print(json.dumps({"cost": solver.cost, "iterations": solver.iter, "cpu": seconds}), flush=True)


def _problem(given: dict[str, Any]) -> Any:
    """Return the solver, and the states and inputs that it begins with."""
    model = pin.buildModelFromUrdf(given["urdf"])
    model = pin.buildReducedModel(model, [model.getJointId(name) for name in given["locked"]], pin.neutral(model))
    model.armature[:] = 0
    q0, target, steps = np.array(given["q0"]), np.array(given["target"]), given["steps"]
    x0 = np.concatenate([q0, np.zeros(model.nv)])
    state = crocoddyl.StateMultibody(model)
    torques = crocoddyl.ActuationModelFull(state)
    weights = crocoddyl.ActivationModelWeightedQuad(np.repeat([0.1, 1.0], model.nv))

    def action(near: float, still: float, held: float, dt: float) -> Any:
        tool = crocoddyl.ResidualModelFrameTranslation(state, model.getFrameId(given["frame"]), target)
        costs = crocoddyl.CostModelSum(state)
        costs.addCost("near", crocoddyl.CostModelResidual(state, tool), near)
        rest = crocoddyl.CostModelResidual(state, weights, crocoddyl.ResidualModelState(state, x0))
        costs.addCost("still", rest, still)
        if held:
            gravity = crocoddyl.ResidualModelControlGrav(state)
            costs.addCost("held", crocoddyl.CostModelResidual(state, gravity), held)
        dynamics = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, torques, costs)
        return crocoddyl.IntegratedActionModelEuler(dynamics, dt)

    running, terminal = action(0.1, 0.1, 1e-4, given["dt"]), action(1e3, 1.0, 0.0, 0.0)
    problem = crocoddyl.ShootingProblem(x0, [running] * steps, terminal)
    problem.nthreads = 1
    hold = pin.computeGeneralizedGravity(model, model.createData(), q0)
    return crocoddyl.SolverFDDP(problem), [x0] * (steps + 1), [hold] * steps


if __name__ == "__main__":
    main()
