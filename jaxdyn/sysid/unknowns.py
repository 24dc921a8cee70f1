"""Which numbers of a model are sought, and coordinates in which every step keeps the model physical."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._checks import ModelWarning, suggestion
from jaxdyn._numerics import stumpff
from jaxdyn.model import Model, from_log_cholesky, log_cholesky, physical_margins, project_physical

INITIAL_STATE = "initial_state"
KINDS = {
    "inertia": "log_cholesky",
    "armature": "nonnegative",
    "damping": "nonnegative",
    "friction": "nonnegative",
    "stiffness": "nonnegative",
    "v_s": "positive",
    "gravity": "plain",
    "gravity_direction": "direction",
    "rest": "plain",
    "placement": "plain",
    "axis": "plain",
    "axis2": "plain",
    "pitch": "plain",
    "ratio": "plain",
    "offset": "plain",
    "joint_parameters": "plain",
}
"""What may be sought, by name, and its coordinates: see `Part.kind`."""
_OF_JOINTS = ("armature", "damping", "friction", "stiffness", "v_s", "rest")
_LOG_CHOLESKY = ("alpha", "d1", "d2", "d3", "s12", "s23", "s13", "t1", "t2", "t3")

Params = Sequence[str] | Mapping[str, Any]


class Part(NamedTuple):
    """Some rows of one leaf of a model."""

    name: str
    leaf: str
    kind: str
    """"log_cholesky": of inertias. "nonnegative": the numbers, bounded by zero. "positive": their logarithms. "plain":
    the numbers. "direction": the two angles by which a vector is turned."""
    rows: tuple[int, ...]
    labels: tuple[str, ...]
    """Names of the coordinates."""


class Unknowns(NamedTuple):
    """All that is sought; hashable, so that it is known when a program is compiled."""

    parts: tuple[Part, ...]
    initial_state: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates, in order."""
        return tuple(label for part in self.parts for label in part.labels)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.names)

    def split(self, theta: jax.Array) -> list[jax.Array]:
        """Return the coordinates of each part."""
        ends = np.cumsum([len(part.labels) for part in self.parts])
        return jnp.split(theta, ends[:-1]) if self.parts else []

    def lower_bounds(self) -> np.ndarray:
        """Return the least values of the coordinates."""
        bounds = {"nonnegative": 0.0}
        return np.array([bounds.get(part.kind, -np.inf) for part in self.parts for _ in part.labels])

    def sizes(self, model: Model) -> jax.Array:
        """Return by how much coordinates change at most in one step, (size,); it is also what makes them comparable."""
        parts = [_sizes(part, getattr(model, part.leaf)[np.array(part.rows, int)]) for part in self.parts]
        return jnp.concatenate(parts) if parts else jnp.zeros(0, model.dtype)

    def coordinates(self, model: Model) -> jax.Array:
        """Return the coordinates of a model, (size,)."""
        parts = [_coordinates(part, getattr(model, part.leaf)[np.array(part.rows, int)]) for part in self.parts]
        return jnp.concatenate(parts) if parts else jnp.zeros(0, model.dtype)

    def leaves(self, model: Model, theta: jax.Array) -> dict[str, jax.Array]:
        """Return the leaves that have these coordinates; directions are turned away from those of `model`."""
        leaves: dict[str, jax.Array] = {}
        for part, x in zip(self.parts, self.split(theta), strict=True):
            leaf, rows = leaves.get(part.leaf, getattr(model, part.leaf)), np.array(part.rows, int)
            leaves[part.leaf] = leaf.at[rows].set(_values(part, x, leaf[rows]))
        return leaves

    def model(self, model: Model, theta: jax.Array) -> Model:
        """Return the model that has these coordinates."""
        leaves: dict[str, Any] = dict(self.leaves(model, theta))
        return dataclasses.replace(model, **leaves)

    def values(self, model: Model) -> dict[str, jax.Array]:
        """Return the numbers of a model that are sought, by name."""
        return {part.name: getattr(model, part.leaf)[np.array(part.rows, int)] for part in self.parts}


def _coordinates(part: Part, value: jax.Array) -> jax.Array:
    if part.kind == "log_cholesky":
        return log_cholesky(value).ravel()
    if part.kind == "direction":
        return jnp.zeros(2, value.dtype)
    return (jnp.log(value) if part.kind == "positive" else value).ravel()


def _sizes(part: Part, value: jax.Array) -> jax.Array:
    """Return one for logarithms and angles, a body's own size for its lengths, and the largest of other numbers."""
    if part.kind == "log_cholesky":
        logs = jnp.ones((len(value), 4), value.dtype)
        length = jnp.exp(log_cholesky(value)[:, 1:4]).max(1, keepdims=True)
        return jnp.concatenate([logs, jnp.tile(length, (1, 6))], axis=1).ravel()
    if part.kind in ("positive", "direction"):
        return jnp.ones(len(part.labels), value.dtype)
    return jnp.full(len(part.labels), jnp.maximum(jnp.abs(value).max(), 1))


def _values(part: Part, x: jax.Array, before: jax.Array) -> jax.Array:
    if part.kind == "log_cholesky":
        return from_log_cholesky(x.reshape(-1, 10))
    if part.kind == "direction":
        return _turned(before, x)
    return (jnp.exp(x) if part.kind == "positive" else x).reshape(before.shape)


def _turned(g: jax.Array, x: jax.Array) -> jax.Array:
    """Return a vector (3,) turned by the angle |x| about an axis across it; of the same length."""
    length = jnp.linalg.norm(g)
    aside = jnp.eye(3, dtype=g.dtype)[jnp.argmin(jnp.abs(g))]
    first = jnp.cross(g, aside)
    first = first / jnp.linalg.norm(first)
    second = jnp.cross(g / length, first)
    t = x @ x
    return stumpff(0, t) * g + stumpff(1, t) * length * (x[0] * first + x[1] * second)


# ---------------------------------------------------------------------- arguments
def unknowns_of(model: Model, params: Params) -> tuple[Unknowns, Model]:
    """Return what is meant by `params`, and the model with inertias that have coordinates."""
    if isinstance(params, str):
        params = (params,)
    chosen = dict(params) if isinstance(params, Mapping) else dict.fromkeys(params)
    known = [*KINDS, INITIAL_STATE]
    for name in chosen:
        if name not in known:
            raise ValueError(f"params has {name!r}, which cannot be fitted: {suggestion(name, known)}")
    if not chosen:
        raise ValueError(f"params must name what to fit, some of {', '.join(known)}")
    if "gravity" in chosen and "gravity_direction" in chosen:
        raise ValueError("params has both 'gravity' and 'gravity_direction': choose one")
    parts = []
    for name, names in chosen.items():
        if name == "inertia":
            rows, model = _bodies_with_mass(model, names)
        elif name != INITIAL_STATE:
            rows = _rows(model, name, names)
        if name != INITIAL_STATE:
            parts.append(_part(model, name, rows))
    return Unknowns(tuple(part for part in parts if part.rows), INITIAL_STATE in chosen), model


def _part(model: Model, name: str, rows: Sequence[int]) -> Part:
    kind, leaf = KINDS[name], "gravity" if name == "gravity_direction" else name
    if leaf == "gravity":
        labels = [f"{name}[{i}]" for i in range(2 if kind == "direction" else 3)]
        if kind == "direction" and not isinstance(model.gravity, jax.core.Tracer) and not np.any(model.gravity):
            raise ValueError("params has 'gravity_direction', but the model's gravity is zero: it has no direction")
    elif leaf in _OF_JOINTS:
        of_rows = _names_of_rows(model, leaf == "rest")
        labels = [f"{of_rows[i]}.{name}" for i in rows]
    elif kind == "log_cholesky":
        labels = [f"{model.body_names[i]}.{x}" for i in rows for x in _LOG_CHOLESKY]
    else:
        width = int(np.prod(np.shape(getattr(model, leaf))[1:]))
        labels = [
            f"{model.joint_names[i]}.{name}" + (f"[{k}]" if width > 1 else "") for i in rows for k in range(width)
        ]
    return Part(name, leaf, kind, tuple(rows), tuple(labels))


def _rows(model: Model, name: str, names: Any) -> list[int]:
    """Return which rows of a leaf are meant by names of joints or bodies; None is all."""
    if name.startswith("gravity"):
        if names is not None:
            raise ValueError(f"params[{name!r}] must be None: gravity belongs to no joint; got {names!r}")
        return [0, 1, 2]
    count = len(getattr(model, name))
    if names is None:
        return list(range(count))
    bodies = _indices(model, name, names)
    if name not in _OF_JOINTS:
        return bodies
    place = model.q_slice if name == "rest" else model.qd_slice
    return [i for body in bodies for i in range(count)[place(model.joint_names[body])]]


def _indices(model: Model, name: str, names: Any) -> list[int]:
    """Return the indices of bodies, which are those of their joints."""
    names = [names] if isinstance(names, str) else list(names)
    known = {**{n: i for i, n in enumerate(model.joint_names)}, **{n: i for i, n in enumerate(model.body_names)}}
    for one in names:
        if one not in known:
            raise ValueError(f"params[{name!r}] has {one!r}, no joint or body: {suggestion(str(one), known)}")
    return sorted({known[one] for one in names})


def _bodies_with_mass(model: Model, names: Any) -> tuple[list[int], Model]:
    """Return which bodies have coordinates (massless ones have none), and the model with inertias that have them."""
    rows = list(range(model.nbodies)) if names is None else _indices(model, "inertia", names)
    if isinstance(model.inertia, jax.core.Tracer) or np.ndim(model.inertia) != 2:
        return rows, model
    inertia = np.asarray(model.inertia)
    massless = [i for i in rows if not inertia[i].any()]
    if massless and names is not None:
        raise ValueError(f"params['inertia'] has {model.body_names[massless[0]]!r}, a body without mass")
    rows = [i for i in rows if i not in massless]
    if not rows:
        raise ValueError("params has 'inertia', but no body of the model has mass")
    unphysical = [i for i in rows if np.isfinite(inertia[i]).all() and not np.asarray(physical_margins(model))[i] > 0]
    if not unphysical:
        return rows, model
    listed = ", ".join(repr(model.body_names[i]) for i in unphysical)
    warnings.warn(f"the inertia of {listed} is not physical; the fit starts from the nearest that is", ModelWarning,
                  stacklevel=4)  # fmt: skip
    margin = 1e-3 * np.maximum(np.abs(inertia[unphysical, 4:]).max(-1), 1e-4 * inertia[unphysical, 0])
    projected = project_physical(model.inertia[np.array(unphysical)], margin=margin)
    return rows, model.replace(inertia=model.inertia.at[np.array(unphysical)].set(projected))


def _names_of_rows(model: Model, of_q: bool) -> list[str]:
    names = [""] * (model.nq if of_q else model.nv)
    for joint in model.joint_names:
        part = model.q_slice(joint) if of_q else model.qd_slice(joint)
        count = part.stop - part.start
        names[part] = [joint] if count == 1 else [f"{joint}[{k}]" for k in range(count)]
    return names
