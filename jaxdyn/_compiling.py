"""How the library compiles what is called by itself, outside of any other program.

XLA has two code generators for CPUs. The newer one, its default, makes faster code of batches of recursions. But it
treats every loop as a module of its own: a program with many small ones, such as the dynamics of a single state or a
solver, takes it about half as long again to compile, or twice as long, and the code is no faster. What is called by
itself is mostly of that kind, and waits for the compiler more than for its results: it is left to the older one. A
program of the user's own is compiled as the user says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import jax
from jax.extend.core import get_opaque_trace_state

SMALL_LOOPS = {"xla_cpu_use_fusion_emitters": False}
"""Options of the compiler for programs of many small loops: `jax.jit(f, compiler_options=SMALL_LOOPS)`."""
ONCE = SMALL_LOOPS | {"xla_backend_optimization_level": 0}
"""For programs that run once or so: nearly all of the time is taken by the compiler."""
with jax.core.eval_context():  # also if a program that is being traced imports the library
    _ALONE = get_opaque_trace_state()


def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a function as `jax.jit` does, with its options; where it is called by itself, with `SMALL_LOOPS`.

    Within `jax.jit`, `jax.vmap` or `jax.grad` it is a part of another program, and the options are those of the whole.
    Its `compiled()` counts the ways in which it has been compiled.
    """
    part = cache(lambda: jax.jit(function, **options))  # when it is needed, for the sake of a quick import
    alone = cache(lambda: jax.jit(function, compiler_options=SMALL_LOOPS, **options))

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        is_alone = get_opaque_trace_state() == _ALONE and _are_known(tuple(SMALL_LOOPS))
        return (alone() if is_alone else part())(*args, **kwargs)

    call.compiled = lambda: part()._cache_size() + alone()._cache_size()  # type: ignore[attr-defined]
    return call


@cache
def _are_known(options: tuple[str, ...]) -> bool:
    """Return whether this compiler has these options: it need not be for CPUs, nor of the version that had them."""
    try:
        jax.jit(lambda: 0, compiler_options=dict.fromkeys(options, False)).lower().compile()
    except Exception:
        return False
    return True
