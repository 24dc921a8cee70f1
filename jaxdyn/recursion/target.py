"""For which devices programs are made: the rule that chooses between the ways to run a recursion.

A CPU wants few operations to start, rows that fit its caches, and little to compile: batches are cut into tiles, and a
branched tree is crossed body after body. A GPU wants few steps that follow one another: a batch is one tile, and equal
limbs go side by side. Results are the same up to rounding.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import jax

_context: Any = jax.make_user_context(default_value=None)


def target() -> str:
    """Return the platform for which programs are made: that of `compile_for`, or of JAX's default device."""
    return _context.value or jax.default_backend()


def compile_for(platform: str) -> AbstractContextManager[Any]:
    """Make programs for another platform, "cpu", "cuda", "rocm" or "tpu", than that of JAX's default device.

    Of use to export a program from a machine that has no such device. Trace and lower within it:

        with compile_for("cuda"):
            exported = jax.export.export(jax.jit(f), platforms=["cuda"])(*arguments)
    """
    if platform not in ("cpu", "gpu", "cuda", "rocm", "tpu"):
        raise ValueError(f'platform must be "cpu", "gpu", "cuda", "rocm" or "tpu"; got {platform!r}')
    return _context(platform)


def in_tiles() -> bool:
    """Return whether large batches are cut into tiles."""
    return target() == "cpu"


def side_by_side() -> bool:
    """Return whether the equal limbs of a tree go side by side, whatever the rest of it is."""
    return target() != "cpu"
