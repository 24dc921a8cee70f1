"""How the library compiles what is called by itself, outside of any other program.

XLA has two code generators for CPUs. The newer one, its default, makes faster code of batches of recursions. But it
treats every loop as a module of its own: a program with many small ones, such as the dynamics of a single state or a
solver, takes it about half as long again to compile, or twice as long, and the code is no faster. What is called by
itself is mostly of that kind, and waits for the compiler more than for its results: it is left to the older one. A
program of the user's own is compiled as the user says.

Besides, JAX takes its time for every array that a program is given, and a model has many. What is called by itself is
handed the numbers of its model in one array.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any

import jax
import numpy as np
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
    Its `compiled()` counts the ways in which it has been compiled. A first argument that has a `packed` form is handed
    over in that form to what is called by itself.
    """

    @wraps(function)
    def unpacking(first: Any, *args: Any, **kwargs: Any) -> Any:
        return function(first.tree() if isinstance(first, Packed) else first, *args, **kwargs)

    part = cache(lambda: jax.jit(function, **options))  # when it is needed, for the sake of a quick import
    alone = cache(lambda: jax.jit(unpacking, compiler_options=_known(tuple(SMALL_LOOPS.items())), **options))

    @wraps(function)
    def call(first: Any, *args: Any, **kwargs: Any) -> Any:
        if get_opaque_trace_state() == _ALONE:
            return alone()(getattr(first, "packed", None) or first, *args, **kwargs)
        return part()(first, *args, **kwargs)

    call.compiled = lambda: part()._cache_size() + alone()._cache_size()  # type: ignore[attr-defined]
    return call


@cache
def _known(options: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Return these options if the compiler has them: it need not be for CPUs, nor of the version that had them."""
    try:
        jax.jit(lambda: 0, compiler_options=dict(options)).lower().compile()
    except Exception:
        return {}
    return dict(options)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Packed:
    """The leaves of a tree in one array."""

    numbers: jax.Array
    structure: Any = field(metadata={"static": True})
    shapes: tuple[tuple[int, ...], ...] = field(metadata={"static": True})

    @classmethod
    def of(cls, tree: Any) -> Packed | None:
        """Pack a tree; return None if its leaves are not JAX arrays of one kind in this computer's own memory."""
        leaves, structure = jax.tree.flatten(tree)
        if not leaves or not all(map(_is_here, leaves)) or len(set(map(_kind, leaves))) > 1:
            return None
        with jax.transfer_guard("allow"):
            numbers = np.concatenate([np.ravel(x) for x in leaves])
            numbers = jax.device_put(numbers, leaves[0].sharding if leaves[0].committed else None)
        if _kind(numbers) != _kind(leaves[0]):  # float64 is off, and was on; or arrays now go to another device
            return None
        return cls(numbers, structure, tuple(x.shape for x in leaves))

    def tree(self) -> Any:
        """Return the tree."""
        ends = list(itertools.accumulate(map(math.prod, self.shapes)))
        parts = zip([0, *ends], ends, self.shapes, strict=False)
        return jax.tree.unflatten(self.structure, [self.numbers[a:b].reshape(shape) for a, b, shape in parts])


def _kind(x: jax.Array) -> tuple[Any, ...]:
    return x.dtype, x.sharding, x.committed


def _is_here(x: Any) -> bool:
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return False
    return len(x.devices()) == 1 and all(device.platform == "cpu" for device in x.devices())
