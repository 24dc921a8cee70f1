"""What a page plays: a trajectory, checked and thinned out, and the poses that belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.algorithms import forward_kinematics
from jaxdyn.model import Model
from jaxdyn.spatial import Mat3, Quaternion


class Recording(NamedTuple):
    """A few runs of one model at common times."""

    t: np.ndarray
    """(T,) increasing, s."""
    q: np.ndarray
    """(B, T, nq)."""
    qd: np.ndarray | None
    """(B, T, nv), or None if the trajectory has none."""


class Track(NamedTuple):
    """Where everything is, in world axes."""

    poses: np.ndarray
    """(B, T, nbodies, 7) quaternion w, x, y, z, then position."""
    com: np.ndarray
    """(B, T, 3) centre of mass of all bodies."""


def read_trajectory(model: Model, trajectory: Any, dt: float | None = None) -> Recording:
    """Return a trajectory as NumPy arrays with a batch axis, or raise a ValueError that says what is wrong.

    Args:
        model: the model that it moves.
        trajectory: an object with `t`, `q` and perhaps `qd`; a mapping with these keys; a tuple (t, q) or
            (t, q, qd); or, with `dt`, q alone.
        dt: time between rows of q, for a trajectory without times.
    """
    t, q, qd = _parts(trajectory)
    q = _array("q", q)
    if q.ndim not in (2, 3) or q.shape[-1] != model.nq or 0 in q.shape[:-1]:
        raise ValueError(
            f"trajectory.q must have shape (T, {model.nq}), or (batch, T, {model.nq}) for several runs; got {q.shape}"
        )
    q = q if q.ndim == 3 else q[None]
    _finite("q", q)
    if qd is not None:
        qd, wanted = _array("qd", qd), (*q.shape[:2], model.nv)
        if qd.shape not in (wanted, wanted[1:]) or qd.size != np.prod(wanted):
            raise ValueError(f"trajectory.qd must go with q, of shape {q.shape}: wanted {wanted}; got {qd.shape}")
        qd = qd.reshape(wanted)
        _finite("qd", qd)
    return Recording(_times(t, dt, *q.shape[:2]), q, qd)


def thin_out(recording: Recording, fps: float, max_frames: int, max_runs: int) -> Recording:
    """Return at most `fps` rows a second, `max_frames` rows and `max_runs` runs, the first and last among them."""
    runs, count = recording.q.shape[:2]
    t = recording.t
    wanted = min(count, max_frames, int(np.ceil((t[-1] - t[0]) * fps * (1 - 1e-9))) + 1)
    rows = np.arange(count)
    if wanted < count:
        times = np.linspace(t[0], t[-1], wanted)
        after = np.clip(np.searchsorted(t, times), 1, count - 1)
        rows = np.unique(np.where(times - t[after - 1] < t[after] - times, after - 1, after))
    chosen = np.unique(np.linspace(0, runs - 1, min(runs, max_runs)).round().astype(int))
    pick = lambda x: x[chosen][:, rows]
    return Recording(t[rows], pick(recording.q), None if recording.qd is None else pick(recording.qd))


def track_of(model: Model, q: np.ndarray) -> Track:
    """Return poses and centres of mass at configurations (B, T, nq)."""
    flat = jnp.asarray(q.reshape(q.shape[0] * q.shape[1], model.nq), model.dtype)
    R, p = map(np.asarray, jax.vmap(forward_kinematics, in_axes=(None, 0))(model, flat))
    poses = np.concatenate([Quaternion.from_matrix(Mat3.from_array(R)).to_array(), p], axis=-1)
    mass, moment = np.asarray(model.inertia[:, 0]), np.asarray(model.inertia[:, 1:4])
    com = (np.einsum("tkij,kj->ti", R, moment) + np.einsum("k,tki->ti", mass, p)) / (mass.sum() or 1)
    return Track(poses.reshape(*q.shape[:2], model.nbodies, 7), com.reshape(*q.shape[:2], 3))


def _parts(trajectory: Any) -> tuple[Any, Any, Any]:
    """Return t (or None), q and qd (or None) of whatever a trajectory is."""
    if hasattr(trajectory, "q"):
        return getattr(trajectory, "t", None), trajectory.q, getattr(trajectory, "qd", None)
    if isinstance(trajectory, Mapping):
        if "q" not in trajectory:
            raise ValueError(f"trajectory needs 'q'; got the keys {', '.join(map(repr, trajectory)) or 'none'}")
        return trajectory.get("t"), trajectory["q"], trajectory.get("qd")
    if isinstance(trajectory, tuple):
        if len(trajectory) not in (2, 3):
            raise ValueError(f"trajectory as a tuple must be (t, q) or (t, q, qd); got {len(trajectory)} entries")
        return (*trajectory, None)[:3]
    if isinstance(trajectory, (np.ndarray, jax.Array)):
        return None, trajectory, None
    raise ValueError(
        "trajectory must have the attributes t and q, or be a mapping with these keys, a tuple (t, q), or an array q; "
        f"got {type(trajectory).__name__}"
    )


def _array(name: str, value: Any) -> np.ndarray:
    try:
        raw = np.asarray(value)
        array = raw if raw.dtype.kind == "c" else raw.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"trajectory.{name} must be an array of numbers; got {type(value).__name__}") from None
    if raw.dtype.kind not in "fiuV":  # V: JAX's own types
        raise ValueError(f"trajectory.{name} must be real numbers; got {raw.dtype}")
    return array


def _finite(name: str, array: np.ndarray) -> None:
    bad = np.argwhere(~np.isfinite(array).all(-1))
    if len(bad):
        run, row = bad[0]
        raise ValueError(
            f"trajectory.{name} must be finite; {len(bad)} of its rows are not, the first being row {row} of run {run}"
        )


def _times(t: Any, dt: float | None, runs: int, count: int) -> np.ndarray:
    """Return the times (count,) that all runs share."""
    if t is None:
        if dt is None:
            raise ValueError("trajectory has no times: give t, or dt=..., the time between rows of q")
        if not (np.ndim(dt) == 0 and np.isfinite(dt) and dt > 0):
            raise ValueError(f"dt must be a positive number of seconds; got {dt!r}")
        return float(dt) * np.arange(count)
    if dt is not None:
        raise ValueError("trajectory has times of its own: leave out dt")
    t = _array("t", t)
    if t.shape == (runs, count) and runs and (t == t[:1]).all():
        t = t[0]  # what jax.vmap makes of the times
    elif t.shape == (runs, count):
        raise ValueError("trajectory.t must be the same in all runs: the page shows them at one time")
    if t.shape != (count,):
        raise ValueError(f"trajectory.t must have shape ({count},), one time per row of q; got {t.shape}")
    if not (np.isfinite(t).all() and (np.diff(t) > 0).all()):
        raise ValueError("trajectory.t must be finite and increase from row to row")
    return t
