"""MJCF: models from MuJoCo's files, read by MuJoCo's own compiler (the extra `mjcf` installs it).

A body that MJCF moves by several joints becomes as many moving bodies, all but the last without mass; each
is named `body/joint` and has its frame at the joint's anchor, in the axes of the MJCF body. The MJCF body's
own frame keeps its name, as a named frame. What this library does not model is left out with a warning.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxdyn._checks import ModelError, ModelWarning
from jaxdyn.io.xml import parse_xml, read_bytes
from jaxdyn.model import Model, ModelBuilder
from jaxdyn.spatial import Quaternion, Transform, Vec3

if TYPE_CHECKING:
    import mujoco

JOINTS = ("free", "spherical", "prismatic", "revolute")
"""Our joint types in the order of MuJoCo's mjtJoint."""
SIZES = {"free": (7, 6), "spherical": (4, 3), "prismatic": (1, 1), "revolute": (1, 1)}
"""Their numbers of coordinates and velocities, the same here and in MuJoCo."""
SHAPES = {0: "plane", 2: "sphere", 3: "capsule", 4: "ellipsoid", 5: "cylinder", 6: "box", 7: "mesh"}
"""Our shapes by MuJoCo's mjtGeom."""
DEFAULT_COLOUR = (0.5, 0.5, 0.5, 1.0)

FREE_Q = [3, 4, 5, 6, 0, 1, 2]
"""Where MuJoCo keeps our coordinates of a free joint: quaternion, then position."""
FREE_QD = [3, 4, 5, 0, 1, 2]
"""Where MuJoCo keeps our velocities of a free joint: angular, then linear."""


def load_mjcf(path: str | os.PathLike[str], *, floating_base: bool = False, strict: bool = False) -> Model:
    """Load a model from an MJCF file.

    Args:
        path: the file; what it includes is found as MuJoCo finds it.
        floating_base: put a free joint named `root_joint` under the only body that the world carries.
        strict: refuse inconsistent models instead of warning of them.

    Returns:
        The model; its q is MuJoCo's qpos up to the order within free joints (see `to_mujoco`).
    """
    name = os.fspath(path)
    parse_xml(read_bytes(name), name)  # refuses bad files by the same rules and words as for URDF
    mj_model = _compile(_mujoco().MjModel.from_xml_path, name, name)
    return model_from_mujoco(mj_model, source=name, floating_base=floating_base, strict=strict)


def parse_mjcf(xml: str, *, source: str = "<string>", floating_base: bool = False, strict: bool = False) -> Model:
    """Make a model from the text of an MJCF file; see `load_mjcf`.

    Args:
        xml: the text.
        source: what error messages call it.
        floating_base: as for `load_mjcf`.
        strict: as for `load_mjcf`.

    Returns:
        The model.
    """
    parse_xml(xml, source)
    mj_model = _compile(_mujoco().MjModel.from_xml_string, xml, source)
    return model_from_mujoco(mj_model, source=source, floating_base=floating_base, strict=strict)


def model_from_mujoco(
    mj_model: mujoco.MjModel, *, source: str | None = None, floating_base: bool = False, strict: bool = False
) -> Model:
    """Make a model from a compiled MuJoCo model.

    Args:
        mj_model: a `mujoco.MjModel`.
        source: what messages call it.
        floating_base: as for `load_mjcf`.
        strict: as for `load_mjcf`.

    Returns:
        The model.
    """
    try:
        notes = list(left_out(mj_model))
        builder = _Reader(mj_model, source, floating_base).builder
    except ModelError as error:
        raise ModelError(error.reason, source=source) from None
    for note in notes:
        place = "" if source is None else f"{source}: "
        warnings.warn(f"{place}not modelled and left out: {note}", ModelWarning, stacklevel=3)
    return builder.build(strict=strict)


def body_names(mj_model: mujoco.MjModel) -> list[str]:
    """Return the names of MuJoCo's bodies by id; one without a name is `body_3`."""
    return _names(mj_model, "body", "body")


def joint_names(mj_model: mujoco.MjModel) -> list[str]:
    """Return the names of MuJoCo's joints by id; one without a name is `joint_2`."""
    return _names(mj_model, "jnt", "joint")


def _mujoco() -> ModuleType:
    try:
        import mujoco
    except ImportError:
        raise ImportError("MJCF files are read by MuJoCo's compiler: pip install 'jaxdyn[mjcf]'") from None
    return mujoco


def _compile(compiler: Any, argument: str, source: str) -> Any:
    try:
        return compiler(argument)
    except Exception as error:  # of whatever kind: the message is the compiler's, the place is ours
        reason = " ".join(str(error).split())
        raise ModelError(f"MuJoCo cannot compile it: {reason}", source=source) from error


def _names(m: Any, field: str, kind: str) -> list[str]:
    """Return the names of all elements of a kind by id; one without a name is `kind_3`."""
    text = m.names
    names = [_string(text, start) for start in getattr(m, f"name_{field}adr")]
    taken = {name for name in names if name}
    return [name or _unused(f"{kind}_{i}", taken) for i, name in enumerate(names)]


def _string(text: bytes, start: int) -> str:
    """Return the zero-terminated string that begins at `start`."""
    try:
        return text[start : text.index(b"\0", start)].decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"a name in it is not UTF-8: {error.object!r}") from None


def _unused(name: str, taken: set[str]) -> str:
    """Return the name, or the first of name_2, name_3, ... that is free, and take it."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate


class _Reader:
    """Takes a compiled model into a builder, body by body."""

    def __init__(self, mj_model: Any, source: str | None, floating_base: bool):
        self.m = mj_model
        self.bodies, self.joints = body_names(mj_model), joint_names(mj_model)
        self.taken = set(self.bodies)
        self.taken_joints = set(self.joints)
        gravity: Any = np.zeros(3) if self._disabled("GRAVITY") else mj_model.opt.gravity
        self.builder = ModelBuilder(_string(mj_model.names, 0), gravity=gravity, source=source)
        root = self._floating_root() if floating_base else None
        if np.any(mj_model.geom_bodyid == 0):
            self.builder.add_frame(self.bodies[0])
        for body in range(1, mj_model.nbody):
            self._add_body(body, floats=body == root)
        for geom in range(mj_model.ngeom):
            self._add_geometry(geom)

    def _disabled(self, *names: str) -> bool:
        """Tell whether one of some forces is switched off; not every version of MuJoCo knows each name."""
        bits = [getattr(_mujoco().mjtDisableBit, f"mjDSBL_{name}", 0) for name in names]
        return any(self.m.opt.disableflags & int(bit) for bit in bits)

    def _floating_root(self) -> int:
        """Return the id of the body that floats, or say why none can."""
        m = self.m
        roots = [i for i in range(1, m.nbody) if m.body_parentid[i] == 0]
        if len(roots) != 1:
            carried = _quoted(self.bodies[i] for i in roots) if roots else "none"
            raise ModelError(
                f"floating_base=True needs exactly one body on the world; there are {carried}",
                source=self.builder.source,
            )
        name, joints = self.bodies[roots[0]], self._joints_of(roots[0])
        for j in joints:
            if JOINTS[m.jnt_type[j]] == "free":
                raise ModelError(
                    f"floating_base=True, but body {name!r} floats already, by its free joint {self.joints[j]!r}",
                    source=self.builder.source,
                )
        if "root_joint" in self.taken_joints:
            raise ModelError(
                "floating_base=True adds a joint named 'root_joint', and there is one already",
                source=self.builder.source,
            )
        if joints and np.any(m.dof_armature[m.body_dofadr[roots[0]] :][: m.body_dofnum[roots[0]]] == 0):
            self.builder.warn(
                f"floating_base=True: body {name!r} hangs by joint {self.joints[joints[0]]!r} on a "
                "floating base without mass: the mass matrix is singular unless the joint has armature"
            )
        return roots[0]

    def _joints_of(self, body: int) -> range:
        start = int(self.m.body_jntadr[body])
        return range(start, start + int(self.m.body_jntnum[body]))

    def _add_body(self, body: int, floats: bool) -> None:
        m, name = self.m, self.bodies[body]
        parent = self.bodies[m.body_parentid[body]] if m.body_parentid[body] else None
        joints = [self._joint(j) for j in self._joints_of(body)]
        if floats:
            joints.insert(0, {"joint": "free", "joint_name": "root_joint", "anchor": np.zeros(3)})
        quaternion, xyz = m.body_quat[body], m.body_pos[body]
        if not joints:
            self.builder.add_body(
                name, parent, "fixed", joint_name=_unused(f"{name}_fixed", self.taken_joints),
                quaternion=quaternion, xyz=xyz, **self._inertia(body, np.zeros(3)),
            )  # fmt: skip
            return
        for k, joint in enumerate(joints):
            anchor, zero = joint.pop("anchor"), joint.pop("zero", 0.0)
            turn, shift = _at_zero(joint, zero)
            if joint["joint"] == "free":  # qpos is the pose in the world, wherever the file puts the body
                quaternion, xyz = np.array([1.0, 0, 0, 0]), np.zeros(3)
            moving = _unused(f"{name}/{joint['joint_name']}", self.taken)
            X = Transform.from_pose(np.concatenate([quaternion, xyz]))
            self.builder.add_body(
                moving, parent, **joint,
                quaternion=(Quaternion.from_array(quaternion) @ turn).to_array(),
                xyz=X.point(Vec3.from_array(anchor + shift)).to_array(),
                **(self._inertia(body, anchor) if k == len(joints) - 1 else {}),
            )  # fmt: skip
            parent, quaternion, xyz = moving, np.array([1.0, 0, 0, 0]), -anchor
        self.builder.add_frame(name, parent, xyz=xyz)

    def _inertia(self, body: int, origin: np.ndarray) -> dict[str, Any]:
        """Return the inertial arguments of `add_body` for a frame at a point of the MJCF body."""
        m = self.m
        R = Quaternion.from_array(m.body_iquat[body]).to_matrix().to_array()
        inertia = (R * m.body_inertia[body]) @ R.T
        com = m.body_ipos[body] - origin
        return {"mass": m.body_mass[body], "com": com, "inertia": (inertia + inertia.T) / 2}

    def _joint(self, j: int) -> dict[str, Any]:
        """Return the arguments of `add_body` that describe a joint, with its anchor and its zero."""
        m, kind = self.m, JOINTS[self.m.jnt_type[j]]
        nq, nv = SIZES[kind]
        q, qd = m.jnt_qposadr[j] + np.arange(nq), m.jnt_dofadr[j] + np.arange(nv)
        if kind == "free":
            q, qd = q[FREE_Q], qd[FREE_QD]
        joint: dict[str, Any] = {
            "joint": kind,
            "joint_name": self.joints[j],
            "anchor": np.array(m.jnt_pos[j]),
            "armature": m.dof_armature[qd],
            "rest": m.qpos_spring[q],
            "effort_limit": np.abs(m.jnt_actfrcrange[j]).max() if m.jnt_actfrclimited[j] else np.inf,
        }
        if not self._disabled("SPRING", "PASSIVE"):
            joint["stiffness"] = m.jnt_stiffness[j]
        if not self._disabled("DAMPER", "PASSIVE"):
            joint["damping"] = m.dof_damping[qd]
        if not self._disabled("FRICTIONLOSS"):
            joint["friction"] = m.dof_frictionloss[qd]
        if kind in ("revolute", "prismatic"):
            joint |= {"axis": m.jnt_axis[j], "zero": m.qpos0[q[0]]}
            if m.jnt_limited[j]:
                joint["lower"], joint["upper"] = m.jnt_range[j]
        return joint

    def _add_geometry(self, geom: int) -> None:
        m, shape = self.m, SHAPES.get(int(self.m.geom_type[geom]))
        if shape is None:
            return
        X = Transform.from_pose(np.concatenate([m.geom_quat[geom], m.geom_pos[geom]]))
        size, mesh, data = m.geom_size[geom], None, m.geom_dataid[geom]
        if shape == "mesh":  # the compiler has moved its vertices into the axes of its inertia
            X = X @ Transform.from_pose(np.concatenate([m.mesh_quat[data], m.mesh_pos[data]])).inverse()
            size, mesh = m.mesh_scale[data], _mesh_file(m, data)
        pose = X.to_pose()
        rgba, material = m.geom_rgba[geom], m.geom_matid[geom]
        if material >= 0 and tuple(rgba) == DEFAULT_COLOUR:
            rgba = m.mat_rgba[material]
        collides = m.geom_contype[geom] or m.geom_conaffinity[geom]
        self.builder.add_geometry(
            self.bodies[m.geom_bodyid[geom]],
            shape,
            _full_size(shape, size),
            quaternion=pose[:4],
            xyz=pose[4:],
            colour=rgba,
            mesh=mesh,
            role="collision" if collides else "visual",
        )


def _at_zero(joint: dict[str, Any], zero: float) -> tuple[Quaternion, np.ndarray]:
    """Return a joint's rotation and displacement at q = 0; the file gives the body's pose at q = zero."""
    if joint["joint"] == "revolute":
        return Quaternion.exp(Vec3.from_array(-zero * joint["axis"])), np.zeros(3)
    return Quaternion.identity(), -zero * joint["axis"] if joint["joint"] == "prismatic" else np.zeros(3)


def _full_size(shape: str, size: np.ndarray) -> Any:
    """Return our size of a shape; MuJoCo's boxes, planes, cylinders and capsules are half as long."""
    return {
        "plane": 2 * size[:2],
        "sphere": size[:1],
        "capsule": size[:2] * (1, 2),
        "cylinder": size[:2] * (1, 2),
        "box": 2 * size,
    }.get(shape, size)


def _mesh_file(m: Any, mesh: int) -> str:
    """Return the path at which MuJoCo found a mesh, or its name if it has no file."""
    start = int(m.mesh_pathadr[mesh])
    return _string(m.paths, start) if start >= 0 else _names(m, "mesh", "mesh")[mesh]


def left_out(m: Any) -> Iterator[str]:
    """Yield what changes a MuJoCo model's motion and is not in ours, one note per kind."""
    bodies, joints = body_names(m), joint_names(m)

    def joints_where(flags: Any) -> list[str]:
        return [joints[j] for j in np.flatnonzero(flags)]

    def nonzero(field: str) -> Any:
        """Return which rows of an array are not zero; older versions of MuJoCo lack some arrays."""
        array = np.asarray(getattr(m, field, []))
        return array.any(axis=1) if array.ndim > 1 else array != 0

    ball, free = m.jnt_type == JOINTS.index("spherical"), m.jnt_type == JOINTS.index("free")
    sprung = m.jnt_stiffness > 0
    limited, unequal = np.asarray(m.jnt_actfrclimited, bool), m.jnt_actfrcrange.sum(axis=1) != 0
    damped = np.unique(m.dof_jntid[np.flatnonzero(nonzero("dof_dampingpoly"))])
    kinds = {
        "tendons": _names(m, "tendon", "tendon"),
        "equality constraints": _names(m, "eq", "equality"),
        "actuators, with their armature and damping": _names(m, "actuator", "actuator"),
        "shapes (height fields and the like) of bodies": [
            bodies[m.geom_bodyid[g]] for g in range(m.ngeom) if int(m.geom_type[g]) not in SHAPES
        ],
        "flexible bodies": _names(m, "flex", "flex"),
        "skins": _names(m, "skin", "skin"),
        "plugins": _names(m, "plugin", "plugin"),
        "gravity compensation of bodies": [bodies[b] for b in np.flatnonzero(m.body_gravcomp)],
        "motion of mocap bodies": [bodies[b] for b in np.flatnonzero(m.body_mocapid >= 0)],
        "nonlinear stiffness of joints": joints_where(nonzero("jnt_stiffnesspoly")),
        "nonlinear damping of joints": [joints[j] for j in damped],
        "yielding springs of joints": joints_where(nonzero("jnt_springyield")),
        "limits of ball joints": joints_where(ball & np.asarray(m.jnt_limited, bool)),
        "world axes of springs of free joints (body axes are used)": joints_where(free & sprung),
        "unequal effort limits of joints (the larger one is used)": joints_where(limited & unequal),
    }
    yield from (f"{kind} {_quoted(names)}" for kind, names in kinds.items() if names)
    if m.opt.density or m.opt.viscosity:
        yield f"the fluid of density {m.opt.density:g} and viscosity {m.opt.viscosity:g}"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
