"""Mesh files: where they are, and the triangles in them (read by trimesh, the extra `mesh`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Colour = tuple[float, ...] | None

LEVELS = 6
"""How many folders above a given one may hold the package that `package://` names."""


class Part(NamedTuple):
    """Triangles of one colour."""

    vertices: np.ndarray
    """(n, 3) float32."""
    faces: np.ndarray
    """(m, 3) uint32, indices of vertices."""
    colour: Colour
    """Red, green, blue, alpha in [0, 1], if the file has one."""


def find_mesh(name: str, folders: Sequence[Path]) -> Path | None:
    """Return the file that a model means by a mesh's name, or None.

    `package://robot/meshes/arm.stl` is looked for as `robot/meshes/arm.stl` and as `meshes/arm.stl`, in the
    folders and in those above them.
    """
    scheme, separator, rest = name.partition("://")
    if not separator:
        return next((folder / name for folder in folders if (folder / name).is_file()), None)
    names = [rest] if scheme == "file" else [rest, rest.partition("/")[2]]
    roots = [root for folder in folders for root in (folder, *list(folder.resolve().parents)[:LEVELS])]
    return next((root / name for root in roots for name in names if name and (root / name).is_file()), None)


def read_mesh(path: Path, scale: Sequence[float]) -> list[Part]:
    """Return the triangles of a mesh file by colour.

    Raises:
        ImportError: without trimesh, or without what it needs for this kind of file.
        ValueError: the file cannot be read, or has no triangles.
    """
    import trimesh

    try:
        scene = trimesh.load_scene(path)
    except ImportError:
        raise
    except Exception as error:  # whatever the readers of a dozen formats raise
        raise ValueError(f"{type(error).__name__}: {error}") from error
    parts: dict[Colour, list[tuple[np.ndarray, np.ndarray]]] = {}
    for node in scene.graph.nodes_geometry:
        pose, name = scene.graph[node]
        mesh = scene.geometry[name]
        if isinstance(mesh, trimesh.Trimesh) and len(mesh.faces):
            scaling = np.diag([*(_metres(mesh) * np.asarray(scale)), 1.0])
            parts.setdefault(_colour(mesh.visual), []).append(_placed(mesh, scaling @ pose))
    if not parts:
        raise ValueError("it has no triangles that trimesh can read")
    return [_merged(pieces, colour) for colour, pieces in parts.items()]


def _metres(mesh: Any) -> float:
    """Return how long a mesh's unit is; only COLLADA files say so, and trimesh notes it as "0.001 * meters"."""
    number, times, _ = str(mesh.metadata.get("units", "")).partition(" * meters")
    return float(number) if times else 1.0


def _placed(mesh: Any, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    vertices = np.asarray(mesh.vertices) @ matrix[:3, :3].T + matrix[:3, 3]
    mirrored = np.linalg.det(matrix[:3, :3]) < 0  # turns the faces inside out
    return vertices, np.asarray(mesh.faces)[:, ::-1] if mirrored else np.asarray(mesh.faces)


def _merged(pieces: Sequence[tuple[np.ndarray, np.ndarray]], colour: Colour) -> Part:
    """Return pieces as one, in which no vertex is there twice."""
    starts = np.cumsum([0, *(len(vertices) for vertices, _ in pieces)])
    vertices = np.concatenate([vertices for vertices, _ in pieces]).astype(np.float32)
    faces = np.concatenate([faces + start for (_, faces), start in zip(pieces, starts, strict=False)])
    distinct, index = np.unique(vertices, axis=0, return_inverse=True)
    return Part(distinct, index.reshape(-1)[faces].astype(np.uint32), colour)


def _colour(visual: Any) -> Colour:
    """Return the colour of a material, or the mean of the faces' colours, if the file has any."""
    if visual.kind == "texture":
        rgba = getattr(visual.material, "main_color", None)
    else:
        rgba = visual.face_colors.mean(0) if visual.kind in ("face", "vertex") else None
    return None if rgba is None else tuple((np.asarray(rgba, float)[:4] / 255).round(4).tolist())
