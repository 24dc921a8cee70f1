"""Save a model to one file, and load it again, exactly.

The file is a NumPy `.npz` archive: one array per leaf, and the static parts as JSON. Nothing in it is
executed on loading.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdyn._checks import ModelError, ModelWarning, suggestion
from jaxdyn.io.xml import MAX_BYTES, read_bytes
from jaxdyn.joints import JOINT_TYPES, Joint, Mimic
from jaxdyn.model import Model, ModelBuilder
from jaxdyn.model.assembly import cast
from jaxdyn.model.geometry import Geometry, Shapes
from jaxdyn.model.links import problems_of
from jaxdyn.model.topology import Topology

FORMAT = 1
STATIC = "static"
LEAVES = tuple(f.name for f in dataclasses.fields(Model) if f.name not in ("topology", "geometry"))
MAY_BE_INFINITE = ("lower", "upper", "velocity_limit", "effort_limit")


def save(model: Model, path: str | Path) -> None:
    """Write a model to one file (`.npz`), which `jaxdyn.load` reads back exactly.

    A model saved in float64 and loaded without JAX's 64-bit flag is rounded to float32, with a warning.
    Users' own joint types must be made known with `jaxdyn.joints.register`, before saving and before
    loading.
    """
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise ValueError(f"a saved model's file name must end in .npz; got {str(path)!r}")
    model.require_single()
    t = model.topology
    arrays: dict[str, Any] = {name: np.asarray(getattr(model, name)) for name in LEAVES}
    _check_leaves(t, arrays)
    static = {
        "format": FORMAT,
        "topology": {f.name: getattr(t, f.name) for f in dataclasses.fields(t) if f.name != "joints"},
        "joints": [_joint_to_json(joint) for joint in t.joints],
        "geometry": [dataclasses.asdict(shape) for shape in model.geometry],
    }
    arrays[STATIC] = np.frombuffer(json.dumps(static).encode(), np.uint8)
    with path.open("wb") as file:
        np.savez(file, **arrays)


def load_saved(path: str | Path, *, strict: bool = False) -> Model:
    """Load a model that `save` wrote, and check it like any other; see `jaxdyn.load`."""
    source = str(path)
    read_bytes(path)  # refuses what is missing or too large
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > MAX_BYTES:
            raise ModelError(f"unpacks to {unpacked} bytes; more than {MAX_BYTES} are not read")
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
            model = _model(arrays)
            problems = problems_of(model)
    except ModelError as error:
        raise ModelError(error.reason, source=source) from None
    except Exception as error:  # a damaged archive raises whatever its bytes happen to break
        raise ModelError(
            f"not a saved model, or a damaged one: {type(error).__name__}: {error}", source=source
        ) from None
    if arrays["placement"].dtype != model.dtype:
        problems.append(f"rounded from {arrays['placement'].dtype} to {model.dtype}, since jax_enable_x64 is off")
    if strict and problems:
        raise ModelError(f"refused because strict=True: {'; '.join(problems)}", source=source)
    for problem in problems:
        warnings.warn(f"{source}: {problem}", ModelWarning, stacklevel=3)
    return model


def _model(arrays: dict[str, np.ndarray]) -> Model:
    missing = [name for name in (*LEAVES, STATIC) if name not in arrays]
    if missing:
        raise ModelError(f"not a saved model: it lacks {missing[0]!r}")
    static = json.loads(arrays[STATIC].tobytes())
    if static["format"] != FORMAT:
        raise ModelError(f"written in format {static['format']!r}; this version reads format {FORMAT}")
    fields = _hashable(static["topology"])
    topology = Topology(joints=tuple(_joint_from_json(joint) for joint in static["joints"]), **fields)
    _check_topology(topology)
    leaves = {name: arrays[name] for name in LEAVES}
    _check_leaves(topology, leaves)
    geometry = Shapes(_geometry(shape, topology) for shape in static["geometry"])
    dtype = jnp.asarray(leaves["placement"]).dtype  # what JAX's 64-bit flag allows
    return Model(**cast(leaves, dtype), topology=topology, geometry=geometry)


def _check_topology(t: Topology) -> None:
    n, names = t.nbodies, (*t.body_names, *t.frame_names)
    if not len(t.joints) == len(t.body_names) == len(t.joint_names) == len(t.followed) == n:
        raise ModelError("its lists of bodies and joints differ in length")
    if len(t.frame_names) != len(t.frame_parents):
        raise ModelError("its lists of frames differ in length")
    if not all(isinstance(name, str) for name in (t.name, *names, *t.joint_names)):
        raise ModelError("a name in it is not text")
    if len(set(names)) < len(names) or len(set(t.joint_names)) < n:
        raise ModelError("a name occurs twice in it")
    if not all(type(p) is int and -1 <= p < i for i, p in enumerate(t.parents)):
        raise ModelError("a body in it comes before its parent")
    if not all(type(p) is int and -1 <= p < n for p in t.frame_parents):
        raise ModelError("a frame in it hangs on no body")
    for joint, leader in zip(t.joints, t.followed, strict=True):
        if type(leader) is not int or not -1 <= leader < n:
            raise ModelError(f"a joint in it follows {leader!r}, which is no joint")
        if isinstance(joint, Mimic) != (leader >= 0):
            raise ModelError("a joint in it follows another, or does not, against its type")
        if leader >= 0 and not t.joints[leader].nq == joint.mechanism.nq == 1:
            raise ModelError("a mimic joint in it, or the joint it follows, has other than one coordinate")


def _check_leaves(t: Topology, leaves: dict[str, np.ndarray]) -> None:
    n, f, nv, nq = t.nbodies, len(t.frame_names), t.nv, t.nq
    custom = max((len(joint.mechanism.custom_parameters) for joint in t.joints), default=0)
    shapes: dict[str, tuple[int, ...]] = {
        "placement": (n, 7), "axis": (n, 3), "axis2": (n, 3), "pitch": (n,), "ratio": (n,), "offset": (n,),
        "joint_parameters": (n, custom), "inertia": (n, 10), "frame_placement": (f, 7), "gravity": (3,),
        "rest": (nq,), "lower": (nq,), "upper": (nq,),
    }  # fmt: skip
    for name, array in leaves.items():
        wanted = shapes.get(name, (nv,))
        if array.shape != wanted:
            raise ModelError(f"its {name} must have shape {wanted}; got {array.shape}")
        if array.dtype not in (np.float16, np.float32, np.float64) or array.dtype != leaves["placement"].dtype:
            raise ModelError(f"its {name} must be floating-point, all leaves of one type; got {array.dtype}")
        if np.any(np.isnan(array)) or (name not in MAY_BE_INFINITE and not np.all(np.isfinite(array))):
            raise ModelError(f"its {name} must be finite")


def _hashable(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with JSON's lists as tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def _geometry(shape: dict[str, Any], t: Topology) -> Geometry:
    geometry = Geometry(**_hashable(shape))
    t.find_frame(geometry.frame)
    if not isinstance(geometry.mesh, (str, type(None))) or len(geometry.placement) != 7:
        raise ModelError(f"a shape of {geometry.frame!r} in it is damaged")
    ModelBuilder().add_geometry(
        geometry.frame, geometry.shape, geometry.size, colour=geometry.colour, role=geometry.role,
        quaternion=geometry.placement[:4], xyz=geometry.placement[4:],
    )  # fmt: skip
    return geometry


def _joint_to_json(joint: Joint) -> dict[str, Any]:
    if isinstance(joint, Mimic):
        return {"type": "mimic", "inner": _joint_to_json(joint.inner)}
    if JOINT_TYPES.get(joint.type) is not type(joint):
        raise ModelError(f"joint type {type(joint).__name__!r} is not known by name; use jaxdyn.joints.register")
    return {"type": joint.type, **dataclasses.asdict(joint)}


def _joint_from_json(fields: dict[str, Any]) -> Joint:
    fields = dict(fields)
    name = fields.pop("type")
    if name == "mimic":
        return Mimic(_joint_from_json(fields["inner"]))
    if name not in JOINT_TYPES:
        raise ModelError(
            f"it has a joint of the unknown type {name!r}: {suggestion(name, JOINT_TYPES)} "
            "(jaxdyn.joints.register makes a type of your own known)"
        )
    return JOINT_TYPES[name](**fields)
