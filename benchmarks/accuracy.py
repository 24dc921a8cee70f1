"""Which is more accurate on ill-conditioned chains, ABA or CRBA + Cholesky.

Two families: chains that get longer, and a chain whose last body gets heavier. The error is that of the
accelerations, relative to the largest, against a reference in fifty digits that starts from the same rounded
model and state; so it is the algorithm's alone.
"""

from __future__ import annotations

import statistics
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from benchmarks import reference
from benchmarks.dynamics import relative_error
from benchmarks.report import say
from benchmarks.robots import load_robot, random_states
from benchmarks.scaling import aba, crba_cholesky

LENGTHS = (8, 32, 128, 512)
HEAVY_CHAIN = 16
TIP_FACTORS = (1.0, 1e2, 1e4, 1e6)
STATES = 3


def run() -> list[dict[str, Any]]:
    """Measure both families in both precisions; one row per chain and precision."""
    if not hasattr(jaxdyn, "forward_dynamics"):
        say("accuracy: missing: jaxdyn.forward_dynamics")
        return []
    chains = [("long", n, load_robot(f"chain{n}").model) for n in LENGTHS]
    chains += [("heavy tip", factor, _heavy_tip(factor)) for factor in TIP_FACTORS]
    rows = []
    for family, value, model in chains:
        for precision in ("float32", "float64"):
            row = {"family": family, "value": value, "bodies": model.nbodies, "precision": precision}
            with jax.enable_x64(precision == "float64"):
                row |= _errors(model.astype(precision))
            rows.append(row)
            say(
                f"accuracy, {family} {value:g}, {precision}: ABA {row['aba']:.1e}, "
                f"CRBA + Cholesky {row['crba']:.1e} (condition {row['condition']:.0e})"
            )
    return rows


def _errors(model: jaxdyn.Model) -> dict[str, Any]:
    """Return the median errors over a few states, and the condition number of M."""
    states = random_states(model, STATES)
    given = [jnp.asarray(x, model.dtype) for x in (states.q, states.qd, states.tau)]
    truth = [reference.forward_dynamics(model, *row) for row in zip(*map(np.asarray, given), strict=True)]
    row: dict[str, Any] = {}
    for name, function in (("aba", aba), ("crba", crba_cholesky)):
        results = np.asarray(jax.jit(jax.vmap(function, in_axes=(None, 0, 0, 0)))(model, *given), np.float64)
        row[name] = statistics.median(map(relative_error, results, truth))
    matrices = jax.jit(jax.vmap(jaxdyn.mass_matrix, in_axes=(None, 0)))(model, given[0])
    return row | {"condition": float(np.linalg.cond(np.asarray(matrices, np.float64)).max())}


def _heavy_tip(factor: float) -> jaxdyn.Model:
    """Return a chain whose last body has `factor` times its inertia."""
    model = load_robot(f"chain{HEAVY_CHAIN}").model
    return model.replace(inertia=model.inertia.at[-1].multiply(factor))
