"""`jaxdyn.load`: one door for files and bundled models."""

from __future__ import annotations

import os
from pathlib import Path

from jaxdyn._checks import ModelError, suggestion
from jaxdyn.io.mjcf import load_mjcf
from jaxdyn.io.save import load_saved
from jaxdyn.io.urdf import load_urdf
from jaxdyn.io.xml import parse_xml, read_bytes
from jaxdyn.model import Model
from jaxdyn.model.bundled import BUNDLED


def load(
    source: str | os.PathLike[str],
    *,
    floating_base: bool = False,
    strict: bool = False,
    mimic: bool = True,
    outside_meshes: bool = False,
) -> Model:
    """Load a model.

    Args:
        source: path of a URDF file, an MJCF file (needs the extra `mjcf`) or a saved model (`.npz`); or the
            name of a bundled model: "pendulum", "double_pendulum", "cartpole", "planar_chain", "gantry",
            "puma560", "arm7", "quadruped", "humanoid".
        floating_base: put a free joint, `root_joint`, between the world and the root of the file's tree.
        strict: refuse what is doubtful, instead of reporting it as a `ModelWarning`: inertias that no real
            body can have, joints that move no inertia, whatever had to be repaired. What is left out because
            it has no place in a model (meshes outside of the folder, tendons, ...) is a warning all the same.
        mimic: couple mimic joints to those they follow; False makes them independent.
        outside_meshes: keep meshes whose path leads out of a URDF file's folder.

    Returns:
        The model, in JAX's default floating-point type.

    Raises:
        ModelError: a ValueError that names file, line and element, what came and what was wanted.

    Example:
        >>> import jaxdyn
        >>> jaxdyn.load("arm7")
        Model('arm7': 7 bodies, nq=7, nv=7, 2 frames, float32)
    """
    name = os.fspath(source)
    if name in BUNDLED or not Path(name).suffix:
        if name not in BUNDLED and not _exists(name):
            raise ModelError(f"there is no file and no bundled model named {name!r}: {suggestion(name, BUNDLED)}")
        if name not in BUNDLED:
            raise ModelError("cannot tell what this file is: its name should end in .urdf, .xml or .npz", source=name)
        return _finished(BUNDLED[name](), name, floating_base, mimic)
    suffix = Path(name).suffix.lower()
    if suffix == ".npz":
        return _finished(load_saved(name, strict=strict), name, floating_base, mimic)
    if suffix == ".xacro":
        raise ModelError(
            "this is a xacro file; expand it first, for example with `xacro robot.xacro > robot.urdf`", source=name
        )
    if suffix not in (".urdf", ".xml", ".mjcf"):
        raise ModelError(
            f"unknown kind of file {suffix!r}: wanted .urdf, .xml (MJCF) or .npz (a saved model)", source=name
        )
    if parse_xml(read_bytes(name), name).tag == "mujoco":
        return load_mjcf(name, floating_base=floating_base, strict=strict)
    return load_urdf(name, floating_base=floating_base, strict=strict, mimic=mimic, outside_meshes=outside_meshes)


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # too long, or with a null character
        return False


def _finished(model: Model, name: str, floating_base: bool, mimic: bool) -> Model:
    """Return a model that is built already, if the options ask nothing more of it."""
    if floating_base and "free" not in model.joint_types:
        raise ModelError(f"floating_base=True is for URDF and MJCF files; {name!r} is a finished model on a fixed base")
    if not mimic and model.topology.mimic_names:
        raise ModelError(
            f"mimic=False is for URDF files; {name!r} is a finished model with mimic joints "
            f"{', '.join(model.topology.mimic_names)}"
        )
    return model
