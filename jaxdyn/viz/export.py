"""`export_html`: a robot that moves, in one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import html
import json
import os
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from jaxdyn.algorithms.arguments import require_model
from jaxdyn.model import Model
from jaxdyn.viz.recording import Recording, read_trajectory, thin_out, track_of
from jaxdyn.viz.scene import Scene, scene_of

SCRIPTS = ("algebra.js", "solids.js", "renderer.js", "plots.js", "viewer.js")
"""The page's program, in the order in which its files build on each other."""


def export_html(
    model: Model,
    trajectory: Any,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    dt: float | None = None,
    fps: float = 60.0,
    max_frames: int = 2000,
    max_runs: int = 12,
    meshes: bool = True,
    mesh_folders: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = ".",
) -> Path:
    """Write a page that shows a robot moving: one HTML file, opened from disk, without a network.

    It can be played, paused, slowed down and looked at from all sides, and plots the coordinates and velocities
    of the joints under the scene. Further runs of a batch are drawn as ghosts.

    Args:
        model: the model. Its `geometry` is drawn; if it has none, capsules from joint to joint are.
        trajectory: an object with `t` (T,), `q` (T, nq) or (batch, T, nq), and perhaps `qd` (T, nv) or
            (batch, T, nv); a mapping with these keys; a tuple (t, q) or (t, q, qd); or, with `dt`, q alone.
        path: the file to write.
        title: heading of the page; the model's name if None.
        dt: time between rows of q, s, for a trajectory without times.
        fps: the page gets at most so many rows of the trajectory a second, and interpolates.
        max_frames: the page gets at most so many rows.
        max_runs: of a larger batch so many runs are shown, evenly chosen.
        meshes: draw mesh files too (needs the extra `mesh`); False leaves them out.
        mesh_folders: folder or folders in which mesh files are looked for, such as the model file's own.

    Returns:
        The path of the file.

    Raises:
        ValueError: the trajectory does not fit the model, or is not finite.

    Example:
        >>> import jaxdyn, numpy as np, tempfile
        >>> from jaxdyn.viz import export_html
        >>> model = jaxdyn.load("pendulum")
        >>> t = np.linspace(0.0, 2.0, 101)
        >>> q = np.sin(np.pi * t)[:, None]
        >>> export_html(model, (t, q), tempfile.mkdtemp() + "/swing.html").name
        'swing.html'
    """
    require_model(model)
    model.require_single()
    for name, value, least in (("fps", fps, 0), ("max_frames", max_frames, 1), ("max_runs", max_runs, 0)):
        if not (np.ndim(value) == 0 and np.isfinite(value) and value > least):
            raise ValueError(f"{name} must be a number greater than {least}; got {value!r}")
    everything = read_trajectory(model, trajectory, dt)
    recording = thin_out(everything, float(fps), int(max_frames), int(max_runs))
    if isinstance(mesh_folders, (str, os.PathLike)):
        mesh_folders = [mesh_folders]
    scene = scene_of(model, meshes, [Path(folder) for folder in mesh_folders])
    heading = model.name if title is None else str(title)
    data = page_data(model, recording, scene) | {"title": heading, "runs": len(everything.q)}
    path = Path(path)
    path.write_text(_page(heading, data), encoding="utf-8")
    return path


def page_data(model: Model, recording: Recording, scene: Scene) -> dict[str, Any]:
    """Return what the page's program reads, ready for JSON."""
    track = track_of(model, recording.q)
    return {
        "model": model.name,
        "bodies": model.body_names,
        "joints": [
            {"name": name, "type": joint.type, "q": [q, joint.nq], "qd": [qd, joint.nv]}
            for name, joint, q, qd in zip(
                model.joint_names, model.topology.joints, model.topology.q_start, model.topology.qd_start, strict=True
            )
        ],
        "t": encode(recording.t, "f8"),
        "poses": encode(track.poses, "f4"),
        "com": encode(track.com, "f4"),
        "q": encode(recording.q, "f4"),
        "qd": None if recording.qd is None else encode(recording.qd, "f4"),
        "shapes": [shape._asdict() for shape in scene.shapes],
        "meshes": [
            {"vertices": encode(part.vertices, "f4"), "faces": encode(part.faces, "u4")} for part in scene.meshes
        ],
    }


def encode(array: np.ndarray, kind: str) -> dict[str, Any]:
    """Return an array as text: its type ("f4", "f8" or "u4", little-endian), its shape, its bytes in base 64."""
    raw = np.ascontiguousarray(array, dtype=f"<{kind}")
    return {"type": kind, "shape": raw.shape, "data": base64.b64encode(raw.tobytes()).decode("ascii")}


def _page(heading: str, data: dict[str, Any]) -> str:
    """Return the page: the template with style, program and data put in."""
    # Names come from files: nothing in them may end the script element.
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    text = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    program = "\n".join(_resource(name) for name in SCRIPTS)
    parts = {"title": html.escape(heading), "style": _resource("style.css"), "program": program, "data": text}
    pieces = _resource("page.html").split("@@")  # text, name, text, name, ..., text
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def _resource(name: str) -> str:
    return files("jaxdyn.viz").joinpath(name).read_text(encoding="utf-8")
