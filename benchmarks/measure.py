"""How everything here is measured, in one place.

One core; warm; blocked on the result; contenders interleaved, so that a drifting machine hits all alike;
medians of CPU and wall time per call. Compile time is the CPU time of tracing, lowering and compiling with
empty caches. This module imports JAX only inside functions: `prepare` comes first.
"""

from __future__ import annotations

import gc
import importlib.metadata
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGES = ("jaxdyn", "jax", "jaxlib", "numpy", "pin", "mujoco", "mujoco-mjx", "brax", "frax", "example-robot-data")
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": "1",
    "JAX_ENABLE_COMPILATION_CACHE": "0",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
LONGEST = 30.0
"""Seconds that the rounds of one comparison may take, unless FEWEST rounds take longer."""
FEWEST = 3


def prepare(core: int | None = None) -> int:
    """Pin this process to one core and every library to one thread; before JAX or a BLAS is imported.

    Args:
        core: which; by default the first that this process may use.

    Returns:
        The core.
    """
    os.environ.update(ENVIRONMENT)
    core = min(os.sched_getaffinity(0)) if core is None else core
    os.sched_setaffinity(0, {core})
    return core


@dataclass(frozen=True)
class Timing:
    """Time per call, in seconds."""

    cpu: float
    """Median over the rounds, all threads of the process."""
    wall: float
    """Median over the rounds."""
    spread: float
    """Half the distance between the quartiles of the CPU time, as a fraction of its median."""
    calls: int
    """Calls in each round."""
    samples: tuple[tuple[float, float], ...]
    """(CPU, wall) of each round."""

    def ratio(self, base: Timing) -> tuple[float, float]:
        """Return (CPU, wall) in units of another of the same run: the median over rounds of the ratio in each.

        The machine may drift from round to round; both are hit alike.
        """
        pairs = list(zip(self.samples, base.samples, strict=True))
        cpu, wall = (statistics.median(mine[k] / other[k] for mine, other in pairs) for k in range(2))
        return cpu, wall


def interleave(calls: Mapping[str, Callable[[], Any]], *, rounds: int = 9, sample: float = 0.02) -> dict[str, Timing]:
    """Time several functions in turns.

    Args:
        calls: name -> function of no arguments that returns when its result is there.
        rounds: each visits every function, in an order that rotates; fewer if they would take LONGEST.
        sample: seconds that a visit should take at least; short functions are called often enough for that.

    Returns:
        name -> timing.
    """
    once = {name: _once(call) for name, call in calls.items()}
    repeats = {name: max(1, math.ceil(sample / seconds)) for name, seconds in once.items()}
    rounds = max(min(rounds, int(LONGEST / sum(repeats[name] * once[name] for name in once))), FEWEST)
    names = list(calls)
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    gc.collect()
    gc.disable()
    try:
        for k in range(rounds):
            shift = k % len(names)
            for name in names[shift:] + names[:shift]:
                call, n = calls[name], repeats[name]
                cpu_start, wall_start = time.process_time(), time.perf_counter()
                for _ in range(n):
                    call()
                cpu, wall = time.process_time() - cpu_start, time.perf_counter() - wall_start
                samples[name].append((cpu / n, wall / n))
    finally:
        gc.enable()
    return {name: _timing(samples[name], repeats[name]) for name in names}


def _once(call: Callable[[], Any]) -> float:
    """Warm a function up, and return how long a call takes, roughly."""
    seconds = 0.0
    for _ in range(3):
        start = time.perf_counter()
        call()
        seconds = max(time.perf_counter() - start, 1e-7)
        if seconds > 1:
            break
    return seconds


def _timing(samples: list[tuple[float, float]], calls: int) -> Timing:
    cpu, wall = ([sample[k] for sample in samples] for k in range(2))
    return Timing(statistics.median(cpu), statistics.median(wall), _spread(cpu), calls, tuple(samples))


def _spread(values: list[float]) -> float:
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return (high - low) / (2 * middle) if middle else 0.0


@dataclass(frozen=True)
class Compiled:
    """A function that has been compiled for arguments of given shapes."""

    function: Callable[..., Any]
    """The jitted function, whose calls take JAX's fast path."""
    seconds: float
    """CPU time of trace + lower + compile."""
    temporaries: int
    """Bytes that XLA sets aside for intermediate results."""


def dispatch_inline(inline: bool) -> None:
    """Let JAX compute in the calling thread, or hand each call over to another one; before JAX computes anything."""
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", not inline)


def forget_compiled() -> None:
    """Empty JAX's caches, so that the next compilation starts from nothing.

    All functions compiled so far would compile again: call it before a case, not between its contenders.
    """
    import jax

    jax.clear_caches()
    gc.collect()


def compile_function(
    function: Callable[..., Any], *args: Any, options: Mapping[str, bool | str] | None = None
) -> Compiled:
    """Trace, lower and compile a function for these arguments, and time it; `options` are XLA's."""
    import jax

    jitted = jax.jit(function, compiler_options=dict(options) if options else None)
    start = time.process_time()
    compiled = jitted.trace(*args).lower().compile()
    seconds = time.process_time() - start
    memory = compiled.memory_analysis()
    return Compiled(jitted, seconds, int(getattr(memory, "temp_size_in_bytes", 0)))


def machine(core: int, dispatch: str) -> dict[str, Any]:
    """Describe where the figures come from."""
    return {
        "dispatch": dispatch,
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "core_used": core,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
        "environment": ENVIRONMENT,
    }


def _cpu_name() -> str:
    """Return the processor's name, with its family and model where the name says little."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    fields = dict(reversed([[part.strip() for part in line.split(":", 1)] for line in lines if ":" in line]))
    name = fields.get("model name", "unknown")
    return f"{name} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')})"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
