"""Recordings of motion and torque in files: CSV and npz, by the names of their columns."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxdyn._checks import suggestion
from jaxdyn.algorithms import arguments
from jaxdyn.model import Model
from jaxdyn.sysid.terms import dof_names

SPELLINGS = {
    "t": ("t", "time", "timestamp"),
    "q": ("q", "position", "pos"),
    "qd": ("qd", "dq", "velocity", "vel"),
    "tau": ("tau", "torque", "effort"),
}
"""How a file may name what; a column adds the joint's name or its number."""


class Recording(NamedTuple):
    """What a file holds; `prepare(model, *recording)` makes samples of it."""

    t: np.ndarray
    """(samples,) s."""
    q: np.ndarray
    """(samples, nv)."""
    qd: np.ndarray | None
    """(samples, nv); None if the file has no velocities."""
    tau: np.ndarray
    """(samples, nv)."""


def read_recording(path: str | PathLike[str], model: Model, *, columns: Mapping[str, Any] | None = None) -> Recording:
    """Read time, positions, velocities and torques of a robot from a CSV or npz file, by the names of the columns.

    A CSV file has a line of names first, separated by commas, semicolons or tabs. Columns are found by name: `t` or
    `time`; `q_joint1`, `q1`, `q[0]`, `position_joint1`, ...; `qd_...`, `dq_...`, `velocity_...`; `tau_...`,
    `torque_...`, `effort_...`, where joints go by name, or by number from 0 or from 1. An npz file may have them as
    arrays (samples, nv) instead: `t`, `q`, `qd`, `tau`. Velocities may be missing.

    Args:
        path: the file.
        model: the model, whose joints give the names and the order.
        columns: other names, such as {"t": "stamp", "tau": ["m1", "m2"]}.

    Returns:
        The recording.

    Raises:
        ValueError: if a column is missing, with the names that there are; or where a cell is not a number.
    """
    arguments.require_model(model)
    source = Path(fspath(path))
    if not source.is_file():
        raise ValueError(f"{source}: " + ("this is not a file" if source.exists() else "no such file"))
    table = _npz(source) if source.suffix == ".npz" else _csv(source)
    columns = dict(columns or {})
    for key in columns:
        if key not in SPELLINGS:
            raise ValueError(f"columns: unknown quantity {key!r}: {suggestion(key, SPELLINGS)}")
    found = {key: _find(source, table, key, model, columns.get(key)) for key in SPELLINGS}
    for key in ("t", "q", "tau"):
        if found[key] is None:
            wanted = "t" if key == "t" else f"{key}_{dof_names(model)[0]}, {key}_... or {key}1, {key}2, ..."
            raise ValueError(
                f"{source}: no columns for {key}, such as {wanted}; there are {', '.join(list(table)[:40])}. "
                "Other names can be given as columns"
            )
    lengths = {key: len(x) for key, x in found.items() if x is not None}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{source}: all columns must be as long; got {lengths}")
    return Recording(found["t"], found["q"], found["qd"], found["tau"])  # type: ignore[arg-type]


def _find(source: Path, table: dict[str, np.ndarray], key: str, model: Model, given: Any) -> np.ndarray | None:
    """Return one quantity, (samples,) for time and (samples, nv) for others, or None."""
    if given is not None:
        names = [given] if isinstance(given, str) else list(given)
        if len(names) != (1 if key == "t" else model.nv) and not (len(names) == 1 and _is_matrix(table, names[0])):
            raise ValueError(f"columns: {key} needs {1 if key == 't' else model.nv} names; got {len(names)}")
        for name in names:
            if name not in table:
                raise ValueError(f"{source}: no column {name!r}: {suggestion(name, table)}")
        return _joined(source, table, names, key, model)
    for word in SPELLINGS[key]:
        if key == "t" or _is_matrix(table, word):
            if word in table:
                return _joined(source, table, [word], key, model)
            continue
        for names in _spelled(word, model):
            present = [name in table for name in names]
            if all(present):
                return _joined(source, table, names, key, model)
            if sum(present) > 1:
                missing = names[present.index(False)]
                raise ValueError(f"{source}: no column {missing!r}, although there is {names[present.index(True)]!r}")
    return None


def _spelled(word: str, model: Model) -> list[list[str]]:
    joints, numbers = dof_names(model), range(model.nv)
    by_name = [[f"{word}{mark}{joint}" for joint in joints] for mark in ("_", ".", "/", " ")]
    by_number = [[pattern.format(word, k + first) for k in numbers] for first in (1, 0)
                 for pattern in ("{}{}", "{}_{}", "{}[{}]", "{}.{}")]  # fmt: skip
    return by_name + by_number


def _is_matrix(table: dict[str, np.ndarray], name: str) -> bool:
    return name in table and table[name].ndim == 2


def _joined(source: Path, table: dict[str, np.ndarray], names: Sequence[str], key: str, model: Model) -> np.ndarray:
    parts = [table[name] for name in names]
    if key == "t":
        if parts[0].ndim != 1:
            raise ValueError(f"{source}: {names[0]!r} must be one column; got shape {parts[0].shape}")
        return parts[0]
    array = parts[0] if len(parts) == 1 and parts[0].ndim == 2 else np.stack(parts, axis=1)
    if array.ndim != 2 or array.shape[1] != model.nv:
        raise ValueError(f"{source}: {key} must have {model.nv} columns, one per joint; got shape {array.shape}")
    return array


def _npz(source: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(source, allow_pickle=False) as file:
            table = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise ValueError(f"{source}: cannot be read as npz: {error}") from None
    return {name: x.astype(np.float64) for name, x in table.items() if x.dtype.kind in "fiu" and x.ndim in (1, 2)}


def _csv(source: Path) -> dict[str, np.ndarray]:
    try:
        text = source.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{source}: cannot be read as CSV: {error}") from None
    lines = text.splitlines()
    if len(lines) < 2:
        raise ValueError(f"{source}: wanted a line of names and lines of numbers; got {len(lines)} lines")
    mark = max(",;\t", key=lines[0].count)
    names = [name.strip() for name in next(csv.reader([lines[0]], delimiter=mark))]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{source}:1: the column {twice!r} is there twice")
    rows = []
    for number, line in enumerate(csv.reader(lines[1:], delimiter=mark), start=2):
        if not line:
            continue
        if len(line) != len(names):
            raise ValueError(f"{source}:{number}: wanted {len(names)} cells, as in the first line; got {len(line)}")
        try:
            rows.append([float(cell) for cell in line])
        except ValueError:
            bad = next(k for k, cell in enumerate(line) if not _is_number(cell))
            raise ValueError(f"{source}:{number}: {names[bad]!r} must be a number; got {line[bad]!r}") from None
    table = np.array(rows, np.float64).reshape(len(rows), len(names))
    return dict(zip(names, table.T, strict=True))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
