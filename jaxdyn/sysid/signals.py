"""From what a robot's controller writes down to samples that can be identified from: NumPy, outside of jit."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from jaxdyn.algorithms import arguments
from jaxdyn.model import Model

SETTLING = 4.0
"""Periods of the cutoff frequency after which a zero-phase filter has forgotten where a signal began, to 1e-4."""


class Samples(NamedTuple):
    """Motion and torque at the same instants, as `identify` takes them: `identify(model, *samples[1:])`."""

    t: np.ndarray
    """(samples,) time, s."""
    q: np.ndarray
    """(samples, nq)."""
    qd: np.ndarray
    """(samples, nv)."""
    qdd: np.ndarray
    """(samples, nv)."""
    tau: np.ndarray
    """(samples, nv)."""

    def split(self, fraction: float) -> tuple[Samples, Samples]:
        """Return the first part, this fraction of all samples, and the rest."""
        if not 0 < fraction < 1:
            raise ValueError(f"fraction must lie between 0 and 1; got {fraction}")
        k = int(fraction * len(self.t))
        return Samples(*(x[:k] for x in self)), Samples(*(x[k:] for x in self))


def resample(t: Any, x: Any, *, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate a signal at equal intervals, linearly.

    Instants that repeat or go back are dropped, and so are rows that repeat the one before in all columns: a logger
    that was faster than the robot wrote them twice.

    Args:
        t: time, (samples,), s.
        x: signal, (samples,) or (samples, columns).
        rate: samples per second.

    Returns:
        Time (n,) and signal (n, ...).

    Example:
        >>> from jaxdyn.sysid import resample
        >>> resample([0.0, 0.1, 0.1, 0.3], [0.0, 1.0, 1.0, 3.0], rate=10)[1].round(3).tolist()
        [0.0, 1.0, 2.0, 3.0]
    """
    rate = _positive("rate", rate)
    t, x = _finite("t", t, 1), _finite("x", x)
    if len(t) != len(x):
        raise ValueError(f"t and x must have as many rows; got {len(t)} and {len(x)}")
    rows = x.reshape(len(x), -1)
    late = t > np.concatenate([[-np.inf], np.maximum.accumulate(t)[:-1]])
    t, rows = t[late], rows[late]
    fresh = np.concatenate([[True], (np.diff(rows, axis=0) != 0).any(1)]) if len(rows) else np.zeros(0, bool)
    fresh[-1:] = True
    t, rows = t[fresh], rows[fresh]
    if len(t) < 2:
        raise ValueError(f"t must have at least two different instants; got {len(t)}")
    times = t[0] + np.arange(int(np.floor((t[-1] - t[0]) * rate * (1 + 1e-12))) + 1) / rate
    columns = [np.interp(times, t, column) for column in rows.T]
    return times, np.stack(columns, axis=1).reshape(len(times), *x.shape[1:])


def lowpass(x: Any, *, rate: float, cutoff: float, order: int = 4) -> np.ndarray:
    """Filter a signal forward and backward by a Butterworth low-pass: no phase shift. Needs scipy, as JAX does.

    Args:
        x: signal at equal intervals, (samples,) or (samples, columns).
        rate: samples per second.
        cutoff: frequency at which the amplitude has fallen to a half, Hz.
        order: of the filter, each way.

    Returns:
        The filtered signal, of the same shape.
    """
    signal = import_module("scipy.signal")
    rate, cutoff, x = _positive("rate", rate), _positive("cutoff", cutoff), _finite("x", x)
    if cutoff >= rate / 2:
        raise ValueError(f"cutoff must be below half the rate, {rate / 2:g} Hz; got {cutoff:g}")
    sections = signal.butter(order, cutoff, fs=rate, output="sos")
    shortest = 3 * (2 * len(sections) + 1) + 1
    if len(x) < shortest:
        raise ValueError(f"x must have at least {shortest} samples for a filter of order {order}; got {len(x)}")
    return signal.sosfiltfilt(sections, x, axis=0)


def differentiate(x: Any, *, rate: float) -> np.ndarray:
    """Return the rate of a signal at equal intervals, by central differences of the fourth order.

    One-sided near the ends, of the second order. Shape as x, (samples,) or (samples, columns).
    """
    rate, x = _positive("rate", rate), _finite("x", x)
    if len(x) < 3:
        raise ValueError(f"x must have at least 3 samples; got {len(x)}")
    slope = np.gradient(x, 1 / rate, axis=0, edge_order=2)
    if len(x) >= 5:
        slope[2:-2] = rate * (8 * (x[3:-1] - x[1:-3]) - (x[4:] - x[:-4])) / 12
    return slope


def prepare(
    model: Model,
    t: Any,
    q: Any,
    qd: Any,
    tau: Any,
    *,
    rate: float = 1000.0,
    cutoff: float = 8.0,
    order: int = 4,
    every: int = 10,
    trim: float | None = None,
) -> Samples:
    """Make samples for `identify` of a recording: resample, filter motion and torque alike, differentiate, thin out.

    Args:
        model: the model; the joints' coordinates must be plain numbers (nq = nv), since quaternions cannot be filtered.
        t: time, (samples,), s; irregular, with repetitions, as it comes.
        q: positions, (samples, nq).
        qd: velocities, (samples, nv); None differentiates the filtered positions.
        tau: torques, (samples, nv).
        rate: at which to resample, Hz.
        cutoff: of the low-pass, Hz: above what the motion contains, below what the torques' noise does.
        order: of the low-pass, each way.
        every: keep every so many-th sample, since filtered ones are alike.
        trim: seconds to leave out at both ends, where the filter has not settled; by default four periods of the
            cutoff frequency.

    Returns:
        The samples.
    """
    arguments.require_model(model)
    if model.nq != model.nv:
        raise ValueError(
            f"prepare works on joints whose coordinates are plain numbers; {model.name!r} has nq = {model.nq} and "
            f"nv = {model.nv}. Give identify samples of your own"
        )
    t = _finite("t", t, 1)
    parts = [_finite(name, x, 2) for name, x in (("q", q), ("qd", qd), ("tau", tau)) if x is not None]
    for name, x in zip(("q", "qd", "tau") if qd is not None else ("q", "tau"), parts, strict=True):
        if x.shape != (len(t), model.nv):
            raise ValueError(f"{name} must have shape ({len(t)}, {model.nv}), as t and the joints; got {x.shape}")
    if not isinstance(every, int) or every < 1:
        raise ValueError(f"every must be a positive integer; got {every!r}")
    times, rows = resample(t, np.concatenate(parts, axis=1), rate=rate)
    smooth = np.split(lowpass(rows, rate=rate, cutoff=cutoff, order=order), len(parts), axis=1)
    q, tau = smooth[0], smooth[-1]
    qd = smooth[1] if qd is not None else differentiate(q, rate=rate)
    qdd = differentiate(qd, rate=rate)
    skip = round((SETTLING / cutoff if trim is None else trim) * rate)
    if skip < 0 or 2 * skip >= len(times):
        raise ValueError(f"trim leaves nothing of {times[-1] - times[0]:.3g} s; got {skip / rate:.3g} s at both ends")
    chosen = slice(skip, len(times) - skip, every)
    return Samples(*(x[chosen] for x in (times, q, qd, qdd, tau)))


def _finite(name: str, x: Any, axes: int | None = None) -> np.ndarray:
    try:
        array = np.asarray(x, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of numbers; got {type(x).__name__}") from None
    if array.ndim == 0 or (axes is not None and array.ndim != axes):
        raise ValueError(f"{name} must have {axes or 'one or two'} axes, samples first; got shape {array.shape}")
    bad = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(1))
    if len(bad):
        raise ValueError(f"{name} must be finite; {len(bad)} of {len(array)} rows are not, the first being {bad[0]}")
    return array


def _positive(name: str, x: float) -> float:
    if not (np.isfinite(x) and x > 0):
        raise ValueError(f"{name} must be a positive number; got {x}")
    return float(x)
