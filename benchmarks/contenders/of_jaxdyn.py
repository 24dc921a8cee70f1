"""jaxdyn: the public functions, with the model as an argument, batched by `jax.vmap`."""

from __future__ import annotations

from typing import Any

import jaxdyn
from benchmarks.contenders.base import Job, Unsupported, inputs, jax_job
from benchmarks.robots import Robot, States

FUNCTIONS = {
    "FD": "forward_dynamics",
    "ID": "inverse_dynamics",
    "CRBA": "mass_matrix",
    "Minv": "mass_matrix_inverse",
}


class Jaxdyn:
    """The library at hand."""

    def __init__(self, robot: Robot):
        self.model = robot.model

    def job(self, quantity: str, states: States, dtype: Any) -> Job:
        """Make a quantity ready to run."""
        name = FUNCTIONS[quantity]
        if not hasattr(jaxdyn, name):
            raise Unsupported(f"missing: jaxdyn.{name}")
        model = self.model.astype(dtype)
        return jax_job(
            getattr(jaxdyn, name), [model], inputs(quantity, states), dtype, lambda x: x, method=f"vmap of {name}"
        )


CONTENDER = Jaxdyn
