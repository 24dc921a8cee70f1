"""Loops over time, with a choice of what reverse mode keeps and what it computes again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

Remat = Literal["none", "steps", "sqrt"]
REMATS = ("none", "steps", "sqrt")
Body = Callable[[Any, Any], tuple[Any, Any]]

again = lambda f: jax.checkpoint(f, prevent_cse=False)  # inside of a scan nothing is merged across the checkpoint


def loop(step: Body, carry: Any, xs: Any, every: int, remat: Remat) -> tuple[Any, Any]:
    """Scan a step over the rows of xs, and return the last carry and the rows of every k-th step.

    Args:
        step: (carry, x) -> (carry, (what holds after the step, what holds during it)).
        carry: what the first step gets.
        xs: arrays (T, ...).
        every: k, a divisor of T. Kept are the first of every k rows of what holds during a step, and the last of what
            holds after it.
        remat: what is kept for reverse mode. "none": all that it needs; "steps": the carries, from which a step is
            computed again; "sqrt": every sqrt(T)-th carry, from which the steps until the next are.
    """
    steps = jax.tree.leaves(xs)[0].shape[0]
    root = math.sqrt(max(steps, 1))
    if every == 1:
        return _scan(step, carry, xs, remat, root)
    few = remat == "sqrt" and every > 2 * root  # few rows: all are kept, and what is between them is cut
    inner, outer = {"none": ("none", "none"), "steps": ("steps", "none"), "sqrt": ("none", "sqrt")}[remat]
    inner, outer = ("sqrt", "steps") if few else (inner, outer)

    def row(carry: Any, xs: Any) -> Any:
        carry, (after, during) = _scan(step, carry, xs, inner, math.sqrt(every))
        return carry, (jax.tree.map(lambda x: x[-1], after), jax.tree.map(lambda x: x[0], during))

    xs = jax.tree.map(lambda x: x.reshape((steps // every, every, *x.shape[1:])), xs)
    return _scan(row, carry, xs, outer, root / every)


def _scan(step: Body, carry: Any, xs: Any, remat: str, length: float) -> tuple[Any, Any]:
    """Scan a step over the rows of xs; with "sqrt", in segments of about the given length."""
    if remat != "sqrt":
        return jax.lax.scan(again(step) if remat == "steps" else step, carry, xs)

    def segment(carry: Any, xs: Any) -> Any:
        return jax.lax.scan(step, carry, xs)

    rows = jax.tree.leaves(xs)[0].shape[0]
    size = divisor_near(rows, length)
    whole = rows // size * size
    cut = jax.tree.map(lambda x: x[:whole].reshape((whole // size, size, *x.shape[1:])), xs)
    carry, ys = jax.lax.scan(again(segment), carry, cut)
    ys = jax.tree.map(lambda y: y.reshape((whole, *y.shape[2:])), ys)
    if whole < rows:
        carry, rest = again(segment)(carry, jax.tree.map(lambda x: x[whole:], xs))
        ys = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), ys, rest)
    return carry, ys


def divisor_near(n: int, length: float) -> int:
    """Return the divisor of n nearest to a length, within a factor of two; the length itself, if there is none."""
    found = [d for d in range(1, int(2 * length) + 1) if n % d == 0 and length <= 2 * d]
    return min(found, key=lambda d: abs(math.log(d / length)), default=max(round(length), 1))
