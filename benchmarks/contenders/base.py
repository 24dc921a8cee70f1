"""What a contender is: a library with one robot, which makes jobs that can be checked and timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measure import compile_function
from benchmarks.robots import Robot, States

QUANTITIES = ("FD", "ID", "CRBA", "Minv")
"""Forward dynamics, inverse dynamics, mass matrix, its inverse."""
CHECKED = 8
"""How many states of a batch are compared with Pinocchio's."""
PEER_OPTIONS = {"xla_cpu_use_fusion_emitters": False}
"""How JAX peers are compiled. With XLA's default MJX compiles a chain of seven bodies for minutes; without the
fusion emitters all three compile faster and, with one small exception, run as fast or faster (MJX on talos:
twice). jaxdyn is compiled with XLA's defaults."""


class Unsupported(Exception):
    """The library cannot do this case; the message says why."""


@dataclass(frozen=True)
class Job:
    """One quantity for a batch of states, in a library's own conventions and ready to run."""

    call: Callable[[], Any]
    """Compute the whole batch, and return when it is there."""
    ours: Callable[[], np.ndarray]
    """Compute it, and return the first CHECKED results in jaxdyn's conventions."""
    compile_seconds: float | None = None
    temporaries: int | None = None
    overhead: Callable[[], Any] | None = None
    """What `call` does besides computing, where that can be told apart."""
    method: str = ""


class Contender(Protocol):
    """A library that has loaded a robot."""

    def __init__(self, robot: Robot): ...

    def job(self, quantity: str, states: States, dtype: Any) -> Job:
        """Make a quantity ready to run; raise Unsupported if there is no way to."""
        ...


def inputs(quantity: str, states: States) -> tuple[np.ndarray, ...]:
    """Return what a quantity is a function of."""
    return {
        "FD": (states.q, states.qd, states.tau),
        "ID": (states.q, states.qd, states.qdd),
        "CRBA": (states.q,),
        "Minv": (states.q,),
    }[quantity]


def jax_job(
    function: Callable[..., Any],
    constants: Sequence[Any],
    batched: Sequence[np.ndarray],
    dtype: Any,
    to_ours: Callable[[np.ndarray], np.ndarray],
    *,
    method: str,
    options: Mapping[str, bool | str] | None = None,
) -> Job:
    """Compile a function of (constants, one state) for a batch; a batch of one is a plain call."""
    batch = len(batched[0])
    arguments = [jnp.asarray(x[0] if batch == 1 else x, dtype) for x in batched]
    if batch > 1:
        function = jax.vmap(function, in_axes=(None,) * len(constants) + (0,) * len(arguments))
    compiled = compile_function(function, *constants, *arguments, options=options)

    def call() -> Any:
        return jax.block_until_ready(compiled.function(*constants, *arguments))

    def ours() -> np.ndarray:
        result = call()
        if result.dtype != np.dtype(dtype):
            raise Unsupported(f"answers in {result.dtype}, not in {np.dtype(dtype)}")
        return to_ours(np.asarray(result, np.float64)[None] if batch == 1 else np.asarray(result[:CHECKED], np.float64))

    return Job(call, ours, compiled.seconds, compiled.temporaries, method=method)
