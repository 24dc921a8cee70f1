"""Why a solver stopped, and tables of its progress."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Status(IntEnum):
    """Why a solver stopped. In results it is an integer array, of any batch shape; compare with `==`."""

    CONVERGED = 0
    """A local optimum, to the tolerance that was asked for."""
    MAX_ITERATIONS = 1
    """The iterations were used up before that. The solution is the best so far."""
    STALLED = 2
    """No step makes progress any more, however short. The solution is the best so far."""
    NOT_FINITE = 3
    """Data or model are not finite, or a simulation with the model as it came is not. What is returned is the start."""
    INFEASIBLE = 4
    """The limits cannot be met. What is returned does not meet them."""
    NO_INFORMATION = 5
    """The data do not depend on any of the parameters sought. What is returned is the start."""

    @property
    def text(self) -> str:
        """What it means, in a sentence."""
        return _TEXTS[self]


_TEXTS = {
    Status.CONVERGED: "converged",
    Status.MAX_ITERATIONS: "the iterations were used up; raise max_iterations, or begin nearer to the solution",
    Status.STALLED: "no step makes progress any more, however short",
    Status.NOT_FINITE: "data, model, or the simulation with the model as it came are not finite: there is no solution",
    Status.INFEASIBLE: "the limits cannot be met",
    Status.NO_INFORMATION: "the data do not depend on any of the parameters sought",
}
RUNNING = -1
"""The status of a solver that has not stopped."""


def message(status: Any) -> str:
    """Return why a solver stopped, in a sentence; of a batch, how often for which reason."""
    statuses, counts = np.unique(np.asarray(status), return_counts=True)
    if np.ndim(status) == 0:
        return Status(int(statuses[0])).text
    found = zip(statuses, counts, strict=True)
    return "; ".join(f"{n} of {np.size(status)}: {Status(int(s)).text}" for s, n in found)


def progress(history: dict[str, Any], iterations: int) -> str:
    """Return a history as a table, a line per iteration."""
    rows = np.stack([np.asarray(column) for column in history.values()], 1)[:iterations]
    return "\n".join([_header(list(history)), *(_line(i, row) for i, row in enumerate(rows))])


def show(names: Sequence[str], iteration: jax.Array, row: Sequence[Any]) -> None:
    """Print a line of progress, also from inside of compiled loops."""

    def write(i: Any, row: Any) -> None:
        if int(i) == 0:
            print(_header(names))
        print(_line(i, row))

    jax.debug.callback(write, iteration, jnp.stack([jnp.asarray(x, jnp.result_type(float)) for x in row]))


def finite_or_zero(tree: Any) -> Any:
    """Return arrays with zero in place of what is not finite."""
    return jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x)), tree)


def _header(names: Sequence[str]) -> str:
    return "iteration" + "".join(f"{name:>14}" for name in names)


def _line(iteration: Any, row: Any) -> str:
    return f"{int(iteration):9d}" + "".join(f"{float(x):14.6g}" for x in row)
