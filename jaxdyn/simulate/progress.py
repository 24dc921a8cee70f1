"""How far a run is, shown while it runs: one bar, whatever the batch."""

from __future__ import annotations

import sys
import threading
import time
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np

UPDATES, SPACING = 100, 50
"""Most updates of the bar in a run, and fewest steps between them: an update takes about a millisecond."""


def bar(done: int, total: int, seconds: float) -> str:
    """Return a line that shows how much is done, given how long it took."""
    left = seconds * (total - done) / max(done, 1)
    return f"[{'#' * (40 * done // total):.<40}] {100 * done // total:3d} %, {left:.0f} s left"


def show(text: str) -> None:
    """Put a line in the place of the last one on stderr; an empty one removes it."""
    print(f"\r{text:<70}\r{text}", end="", file=sys.stderr, flush=True)


@lru_cache(maxsize=256)
class Bar:
    """The bar of runs of some length on so many devices; one run at a time."""

    def __init__(self, steps: int, devices: int = 1):
        self.steps, self.devices = steps, devices
        self.every = max(SPACING, -(-steps // UPDATES))
        self._lock, self._begun, self._done, self._start = threading.Lock(), devices, steps, 0.0

    def update(self, step: Any) -> None:
        """Show that a step begins. Several devices say so of one step: it counts once."""
        step = int(np.max(step))
        with self._lock:
            if step == 0:
                if self._begun == self.devices:  # as many as there are have begun the run before: this is another
                    self._begun, self._done, self._start = 0, -1, time.perf_counter()
                self._begun += 1
            if step <= self._done:
                return
            self._done = step
            last = step + self.every >= self.steps
            show("" if last else bar(step, self.steps, time.perf_counter() - self._start))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def ticked(bar: Bar, step: jax.Array, x: jax.Array) -> jax.Array:
    """Return x, and show the step now and then; not where x is differentiated."""
    jax.lax.cond(step % bar.every == 0, lambda: jax.debug.callback(bar.update, step), lambda: None)
    return x


@ticked.defjvp
def _(bar: Bar, step: jax.Array, primals: Any, tangents: Any) -> Any:
    return primals[0], tangents[0]
