"""What solvers return: a solution, why they stopped, and how they got there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.simulate import Trajectory


class Status(IntEnum):
    """Why a solver stopped. In results it is an integer array, of any batch shape; compare with `==`."""

    CONVERGED = 0
    """A local optimum, to the tolerance that was asked for."""
    MAX_ITERATIONS = 1
    """The iterations were used up before that. The solution is the best so far."""
    STALLED = 2
    """No step makes progress any more, however short: rounding, or a cost with kinks. The best so far."""
    NOT_FINITE = 3
    """Start, cost or dynamics are not finite where the solver began: there is no solution. What is returned is the
    start, with what is not finite in it replaced by zero."""
    INFEASIBLE = 4
    """Constraints are not met. The solution is the one that violates them least."""

    @property
    def text(self) -> str:
        """What it means, in a sentence."""
        return _TEXTS[self]


_TEXTS = {
    Status.CONVERGED: "converged",
    Status.MAX_ITERATIONS: "the iterations were used up; raise max_iterations, or begin nearer to the solution",
    Status.STALLED: "no step makes progress any more: rounding, or a cost with kinks",
    Status.NOT_FINITE: "start, cost or dynamics are not finite where the solver began: there is no solution",
    Status.INFEASIBLE: "the constraints are not met",
}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Solution:
    """A solution. Everything is a leaf: a batch of problems has a batch of solutions.

    Always finite; whether it is a solution, `status` says.
    """

    xs: jax.Array
    """(T + 1, nx) states; of a model (q, qd)."""
    us: jax.Array
    """(T, nu) inputs."""
    cost: jax.Array
    """() cost of them."""
    status: jax.Array
    """() integer, one of `Status`."""
    iterations: jax.Array
    """() integer, how many were taken."""
    history: dict[str, jax.Array]
    """name -> (max_iterations,) what every iteration found, in order; rows from `iterations` on are zero."""
    t: jax.Array
    """(T + 1,) time of every state, s."""
    extras: dict[str, Any]
    """What else a solver has to say; see there."""

    @property
    def success(self) -> jax.Array:
        """Whether it converged."""
        return self.status == Status.CONVERGED

    @property
    def message(self) -> str:
        """Why the solver stopped, in a sentence; of a batch, how often for which reason."""
        statuses, counts = np.unique(np.asarray(self.status), return_counts=True)
        if np.ndim(self.status) == 0:
            return Status(int(statuses[0])).text
        found = zip(statuses, counts, strict=True)
        return "; ".join(f"{n} of {np.size(self.status)}: {Status(int(s)).text}" for s, n in found)

    def trajectory(self, model: Any) -> Trajectory:
        """Return the motion of a model as `rollout` does, for the viewer and others."""
        return Trajectory(self.t, self.xs[..., : model.nq], self.xs[..., model.nq :], {"tau": self.us})

    def table(self) -> str:
        """Return the history of one problem as a table, a line per iteration."""
        if np.ndim(self.status):
            raise ValueError(f"table is of one problem; this is a batch of {np.shape(self.status)}: use jax.tree.map")
        names = list(self.history)
        rows = np.stack([np.asarray(self.history[name]) for name in names], 1)[: int(self.iterations)]
        lines = [header(names), *(line(i, row) for i, row in enumerate(rows))]
        return "\n".join([*lines, f"{self.message} (cost {float(self.cost):.10g})"])


def header(names: Sequence[str]) -> str:
    """Return the head of a table of progress."""
    return "iteration" + "".join(f"{name:>16}" for name in names)


def line(iteration: Any, row: Any) -> str:
    """Return one line of a table of progress."""
    return f"{int(iteration):9d}" + "".join(f"{float(x):16.8g}" for x in row)


def report(verbose: bool, names: Sequence[str], iteration: Any, row: Any, active: Any = True) -> None:
    """Print a line of progress, also from inside of compiled loops; nothing unless `verbose` and `active`."""
    if not verbose:
        return

    def show(i: Any, row: Any, active: Any) -> None:
        if np.all(active):
            if int(np.ravel(i)[0]) == 0:
                print(header(names))
            print(line(i, row))

    jax.debug.callback(show, iteration, jnp.stack([jnp.asarray(x, jnp.result_type(float)) for x in row]), active)


def finite_or_zero(tree: Any) -> Any:
    """Return arrays with zero in place of what is not finite."""
    return jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x)), tree)
