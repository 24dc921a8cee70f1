"""A run in one file (`.npz`): what moved, and how to find the robot that did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FORMAT = 1
NEEDED = {"robot": str, "floating_base": bool, "mimic": bool, "joint_names": list}
"""What `about` says at least."""


class Run(NamedTuple):
    """A simulated motion. With several copies, q, qd and energy have a batch axis in front."""

    t: np.ndarray
    """(rows,) time, s."""
    q: np.ndarray
    """(rows, nq) configurations."""
    qd: np.ndarray
    """(rows, nv) velocities."""
    energy: np.ndarray | None
    """(rows,) kinetic and potential energy, J, if it was asked for."""
    about: dict[str, Any]
    """What moved: robot (the name of a bundled model, or a path), floating_base, mimic, joint_names; and how."""


def save_run(run: Run, path: Path) -> None:
    """Write a run. The file has the arrays t, q, qd, perhaps energy; and `about`, JSON."""
    arrays = {"t": run.t, "q": run.q, "qd": run.qd, "about": np.array(json.dumps({"format": FORMAT, **run.about}))}
    if run.energy is not None:
        arrays["energy"] = run.energy
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_run(path: Path) -> Run:
    """Read a run that `save_run` wrote, or raise a ValueError that says what is wrong with the file."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    with path.open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except Exception as error:  # a damaged archive raises whatever its bytes happen to break
            raise ValueError(f"{path}: not a run, or a damaged one: {type(error).__name__}: {error}") from None
    missing = [name for name in ("t", "q", "qd", "about") if name not in arrays]
    if missing:
        raise ValueError(f"{path}: not a run that `jaxdyn simulate --out` wrote: it lacks {missing[0]!r}")
    try:
        about = dict(json.loads(str(arrays["about"])))
    except (TypeError, ValueError):
        raise ValueError(f"{path}: not a run, or a damaged one: 'about' is no JSON") from None
    if about.get("format") != FORMAT:
        raise ValueError(f"{path}: written in format {about.get('format')!r}; this version reads format {FORMAT}")
    for name, kind in NEEDED.items():
        if not isinstance(about.get(name), kind):
            raise ValueError(f"{path}: a damaged run: 'about' lacks {name!r}, a {kind.__name__}")
    return Run(arrays["t"], arrays["q"], arrays["qd"], arrays.get("energy"), about)
