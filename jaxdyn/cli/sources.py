"""Where a model comes from: loaded with its warnings caught, and how a run names it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jaxdyn._checks import ModelWarning
from jaxdyn.io import load
from jaxdyn.model import Model
from jaxdyn.model.bundled import BUNDLED


def load_quietly(source: str, floating_base: bool, mimic: bool) -> tuple[Model, list[str]]:
    """Return a model, and the warnings it came with."""
    with caught() as found:
        model = load(source, floating_base=floating_base, mimic=mimic)
    return model, found


@contextmanager
def caught() -> Iterator[list[str]]:
    """Collect the text of the `ModelWarning`s that are given meanwhile; it is there at the end."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ModelWarning)
        yield messages
    messages += [str(w.message) for w in found if issubclass(w.category, ModelWarning)]


def warn(message: str) -> None:
    """Say what is doubtful, where it does not mix with results."""
    print(f"warning: {message}", file=sys.stderr)


def lasting_name(source: str) -> str:
    """Return what finds a model from any folder: the name of a bundled one, or an absolute path."""
    return source if source in BUNDLED else os.path.abspath(source)


def mesh_folder(source: str) -> Path:
    """Return the folder in which the meshes of a model are looked for."""
    return Path(".") if source in BUNDLED else Path(source).parent


def require_writable(path: Path, option: str) -> None:
    """Raise an OSError unless a file can be written there, before work is spent on what goes into it."""
    folder = path.parent
    if not folder.is_dir():
        raise OSError(f"{option} {path}: there is no folder {str(folder)!r}")
    if path.is_dir():
        raise OSError(f"{option} {path}: this is a folder; wanted the name of a file")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise OSError(f"{option} {path}: no permission to write there")
