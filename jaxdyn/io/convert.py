"""Configurations and velocities in the conventions of Pinocchio and MuJoCo, joints matched by name.

NumPy in, NumPy out, with any leading batch axes. Neither library is imported: their models are asked for
names, sizes and places only. The same joint must carry the same body frame on both sides, as it does when
both models come from one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxdyn._checks import ModelError, suggestion
from jaxdyn.io.mjcf import FREE_Q, FREE_QD, JOINTS, SIZES, joint_names
from jaxdyn.model import Model
from jaxdyn.spatial import Quaternion

State = Any
"""q alone, or (q, qd) if a velocity was given."""

XYZW = [3, 0, 1, 2]
"""Where Pinocchio keeps our w, x, y, z."""


class Place(NamedTuple):
    """Where another library keeps a joint's coordinates and velocities."""

    q: np.ndarray
    qd: np.ndarray


class Pair(NamedTuple):
    """A joint on both sides."""

    type: str
    ours: Place
    theirs: Place


class Codec(NamedTuple):
    """How the coordinates of one pair are rewritten; velocities may depend on our configuration."""

    q_out: Callable[[np.ndarray], np.ndarray]
    q_in: Callable[[np.ndarray], np.ndarray]
    qd_out: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """(our q, our qd) -> their qd."""
    qd_in: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """(our q, their qd) -> our qd."""


def to_pinocchio(model: Model, pin_model: Any, q: Any, qd: Any = None) -> State:
    """Convert a configuration, and a velocity if given, to Pinocchio's conventions.

    Args:
        model: the model.
        pin_model: the `pinocchio.Model` with the same joints by name.
        q: configuration, (..., nq).
        qd: velocity, (..., nv).

    Returns:
        Pinocchio's q, (..., pin_model.nq); with qd, the pair (q, v).
    """
    return _outward(model, pin_model, _pinocchio_pairs(model, pin_model), _pinocchio_codec, q, qd)


def from_pinocchio(model: Model, pin_model: Any, q: Any, v: Any = None) -> State:
    """Convert a configuration, and a velocity if given, from Pinocchio's conventions.

    Args:
        model: the model.
        pin_model: the `pinocchio.Model` with the same joints by name.
        q: Pinocchio's configuration, (..., pin_model.nq).
        v: its velocity, (..., pin_model.nv).

    Returns:
        Our q, (..., nq), unbounded angles in [-pi, pi]; with v, the pair (q, qd).
    """
    return _inward(model, pin_model, _pinocchio_pairs(model, pin_model), _pinocchio_codec, q, v)


def to_mujoco(model: Model, mj_model: Any, q: Any, qd: Any = None) -> State:
    """Convert a configuration, and a velocity if given, to MuJoCo's qpos and qvel.

    A joint that `to_mjcf` writes as several MuJoCo joints is found under their names `joint/1`, `joint/2`.

    Args:
        model: the model.
        mj_model: the `mujoco.MjModel` with the same joints by name.
        q: configuration, (..., nq).
        qd: velocity, (..., nv).

    Returns:
        qpos, (..., mj_model.nq); with qd, the pair (qpos, qvel).
    """
    return _outward(model, mj_model, _mujoco_pairs(model, mj_model), _mujoco_codec, q, qd)


def from_mujoco(model: Model, mj_model: Any, qpos: Any, qvel: Any = None) -> State:
    """Convert MuJoCo's qpos, and qvel if given, to our conventions.

    Args:
        model: the model.
        mj_model: the `mujoco.MjModel` with the same joints by name.
        qpos: MuJoCo's configuration, (..., mj_model.nq).
        qvel: its velocity, (..., mj_model.nv).

    Returns:
        Our q, (..., nq); with qvel, the pair (q, qd).
    """
    return _inward(model, mj_model, _mujoco_pairs(model, mj_model), _mujoco_codec, qpos, qvel)


# ---------------------------------------------------------------------- the loop over joints
def _outward(model: Model, other: Any, pairs: list[Pair], codec: Any, q: Any, qd: Any) -> State:
    q, qd = _arrays(q, qd, model.nq, model.nv)
    out_q = np.zeros((*q.shape[:-1], other.nq))
    out_qd = None if qd is None else np.zeros((*q.shape[:-1], other.nv))
    for pair in pairs:
        convert, mine = codec(pair), q[..., pair.ours.q]
        out_q[..., pair.theirs.q] = convert.q_out(mine)
        if qd is not None and out_qd is not None:
            out_qd[..., pair.theirs.qd] = convert.qd_out(mine, qd[..., pair.ours.qd])
    return out_q if out_qd is None else (out_q, out_qd)


def _inward(model: Model, other: Any, pairs: list[Pair], codec: Any, q: Any, qd: Any) -> State:
    q, qd = _arrays(q, qd, other.nq, other.nv)
    out_q = np.zeros((*q.shape[:-1], model.nq))
    out_qd = None if qd is None else np.zeros((*q.shape[:-1], model.nv))
    for pair in pairs:
        convert = codec(pair)
        mine = out_q[..., pair.ours.q] = convert.q_in(q[..., pair.theirs.q])
        if qd is not None and out_qd is not None:
            out_qd[..., pair.ours.qd] = convert.qd_in(mine, qd[..., pair.theirs.qd])
    return out_q if out_qd is None else (out_q, out_qd)


def _arrays(q: Any, qd: Any, nq: int, nv: int) -> tuple[np.ndarray, np.ndarray | None]:
    q = np.asarray(q, np.float64)
    if q.shape[-1:] != (nq,):
        raise ValueError(f"the configuration must have shape (..., {nq}); got {q.shape}")
    if qd is None:
        return q, None
    qd = np.asarray(qd, np.float64)
    if qd.shape != (*q.shape[:-1], nv):
        raise ValueError(f"the velocity must have shape {(*q.shape[:-1], nv)}; got {qd.shape}")
    return q, qd


# ---------------------------------------------------------------------- matching by name
def _pinocchio_pairs(model: Model, pin_model: Any) -> list[Pair]:
    theirs = {}
    for name, joint in list(zip(pin_model.names, pin_model.joints, strict=True))[1:]:  # [0] is the universe
        theirs[name] = Place(joint.idx_q + np.arange(joint.nq), joint.idx_v + np.arange(joint.nv))
    for name, kind, axis in zip(model.joint_names, model.joint_types, np.asarray(model.axis), strict=True):
        if kind == "planar" and not np.allclose(axis / np.linalg.norm(axis), (0, 0, 1), atol=1e-12):
            raise ModelError(f"joint {name!r}: Pinocchio's planar joints move in the x-y plane; its axis is {axis}")
    found = {name: [name] for name in model.joint_names}
    sizes = {"spherical": (4, 3), "free": (7, 6), "planar": (4, 3)}
    return _pairs(model, found, theirs, "Pinocchio", lambda kind, nq, nv, place: (
        (place.q.size, place.qd.size) == sizes.get(kind, (nq, nv))
        or (kind in ("revolute", "continuous") and (place.q.size, place.qd.size) == (2, 1))
    ))  # fmt: skip


def _mujoco_pairs(model: Model, mj_model: Any) -> list[Pair]:
    theirs = {}
    for j, name in enumerate(joint_names(mj_model)):
        nq, nv = SIZES[JOINTS[mj_model.jnt_type[j]]]
        theirs[name] = Place(mj_model.jnt_qposadr[j] + np.arange(nq), mj_model.jnt_dofadr[j] + np.arange(nv))
    found = {}
    for name, joint in zip(model.joint_names, model.topology.joints, strict=True):
        parts = [f"{name}/{k + 1}" for k in range(joint.nq)]
        split = joint.nq > 1 and name not in theirs and all(part in theirs for part in parts)
        found[name] = parts if split else [name]
    return _pairs(model, found, theirs, "MuJoCo", lambda kind, nq, nv, place: (
        kind != "planar" and (place.q.size, place.qd.size) == (nq, nv)
    ))  # fmt: skip


def _pairs(
    model: Model, found: Mapping[str, Iterable[str]], theirs: Mapping[str, Place], library: str, fits: Any
) -> list[Pair]:
    """Return the joints of both sides, or say which has no partner that fits."""
    unpaired, pairs = dict(theirs), []
    for name, joint in zip(model.joint_names, model.topology.joints, strict=True):
        for part in found[name]:
            if part not in theirs:
                raise ModelError(f"joint {name!r} is not in the {library} model: {suggestion(name, theirs)}")
            unpaired.pop(part)
        parts = [theirs[part] for part in found[name]]
        place = Place(np.concatenate([part.q for part in parts]), np.concatenate([part.qd for part in parts]))
        if not fits(joint.type, joint.nq, joint.nv, place):
            raise ModelError(
                f"joint {name!r}: a {joint.type} joint with nq = {joint.nq}, nv = {joint.nv} here, "
                f"but the {library} model gives it nq = {place.q.size}, nv = {place.qd.size}"
            )
        q, qd = model.q_slice(name), model.qd_slice(name)
        ours = Place(np.arange(q.start, q.stop), np.arange(qd.start, qd.stop))
        pairs.append(Pair(joint.type, ours, place))
    for name in unpaired:
        known = suggestion(name, model.joint_names)
        raise ModelError(f"joint {name!r} of the {library} model is not in this one: {known}")
    return pairs


# ---------------------------------------------------------------------- the conventions
_PLAIN = Codec(lambda q: q, lambda q: q, lambda q, qd: qd, lambda q, qd: qd)


def _pinocchio_codec(pair: Pair) -> Codec:
    """Return the rules for one joint: quaternion x, y, z, w; some angles as (cos, sin); linear first."""
    if pair.type == "spherical":
        return _PLAIN._replace(q_out=lambda q: _scatter(_unit(q), XYZW), q_in=lambda q: _unit(q[..., XYZW]))
    if pair.type == "free":
        order = [6, 3, 4, 5, 0, 1, 2]  # their places of our quaternion and position
        return Codec(
            lambda q: _scatter(_unit(q), order),
            lambda q: _unit(q[..., order]),
            lambda q, qd: _scatter(qd, FREE_QD),
            lambda q, qd: qd[..., FREE_QD],
        )
    if pair.type == "planar":
        return Codec(
            lambda q: np.concatenate([q[..., 1:], _cos_sin(q[..., :1])], axis=-1),
            lambda q: np.concatenate([_angle(q[..., 2:]), q[..., :2]], axis=-1),
            lambda q, qd: np.roll(qd, -1, axis=-1),
            lambda q, qd: np.roll(qd, 1, axis=-1),
        )
    if pair.theirs.q.size == 2 and pair.theirs.qd.size == 1:
        return _PLAIN._replace(q_out=_cos_sin, q_in=_angle)
    return _PLAIN


def _mujoco_codec(pair: Pair) -> Codec:
    """Return the rules for one joint: position before quaternion, linear velocity first and in world axes."""
    if pair.type == "spherical":
        return _PLAIN._replace(q_out=_unit, q_in=_unit)
    if pair.type == "free":
        return Codec(
            lambda q: _scatter(_unit(q), FREE_Q),
            lambda q: _unit(q[..., FREE_Q]),
            lambda q, qd: np.concatenate([_turn(_rotation(q), qd[..., 3:]), qd[..., :3]], axis=-1),
            lambda q, qd: np.concatenate([qd[..., 3:], _turn_back(_rotation(q), qd[..., :3])], axis=-1),
        )
    return _PLAIN


def _scatter(values: np.ndarray, places: list[int]) -> np.ndarray:
    """Return an array whose `places` hold the values; inverse of indexing by `places`."""
    return values[..., np.argsort(places)]


def _unit(q: np.ndarray) -> np.ndarray:
    """Return q with its quaternion, the first four numbers, normalised."""
    return np.concatenate([Quaternion.from_array(q[..., :4]).normalized().to_array(), q[..., 4:]], axis=-1)


def _cos_sin(angle: np.ndarray) -> np.ndarray:
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=-1)


def _angle(cos_sin: np.ndarray) -> np.ndarray:
    return np.arctan2(cos_sin[..., 1:], cos_sin[..., :1])


def _rotation(q: np.ndarray) -> np.ndarray:
    """Return R_w_b, (..., 3, 3)."""
    return Quaternion.from_array(q[..., :4]).to_matrix().to_array()


def _turn(R: np.ndarray, v: np.ndarray) -> np.ndarray:
    return (R @ v[..., None])[..., 0]


def _turn_back(R: np.ndarray, v: np.ndarray) -> np.ndarray:
    return (v[..., None, :] @ R)[..., 0, :]
