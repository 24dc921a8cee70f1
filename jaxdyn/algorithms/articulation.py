"""What the algorithms know of a model: its links and joints, in the places where the sweeps want them.

Data is kept in stages, as in `recursion.Walk`: floating bases first, then all other links. Within a stage
all joints have the same number of columns; a joint with fewer has columns of zeros, which move nothing.
If every joint of a stage is revolute, link axes are turned such that the joint's axis is e_z: its zeros
and ones are known when the program is traced, so that such a robot pays nothing for other joint types.

Arrays have one batch axis, the last one, of the batch's size or 1 (see `recursion.batching`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import rows, sin_cos
from jaxdyn.algorithms.hinges import Frames, Hinges
from jaxdyn.joints import Continuous, Free, Joint, JointParameters, Revolute
from jaxdyn.joints.contract import Coordinates, combine
from jaxdyn.model import Model
from jaxdyn.model.topology import Topology, joint_parameters
from jaxdyn.recursion import Packed, Walk, side_by_side, unpacked
from jaxdyn.spatial import Force, Mat3, Motion, RigidInertia, Transform, Turn, Vec3
from jaxdyn.spatial.components import Components, components

Rows = tuple[Any, ...]
"""One row for each column of a stage's joints: velocities, torques."""


@components
class Hinge(Components):
    """The pose of a link on a hinge: its placement, then a turn about e_z."""

    placement: Any
    cos: Any
    sin: Any

    @property
    def R(self) -> Turn:
        """The rotation, in factors."""
        return Turn(self.placement.R, self.cos, self.sin)

    @property
    def p(self) -> Vec3:
        """The position."""
        return self.placement.p


class Links(NamedTuple):
    """The links of one stage, each in its own axes about its own origin, which lies at its inboard joint."""

    X: Transform | Hinge
    """Pose in the parent link's axes."""
    S: tuple[Motion, ...]
    """Columns of the joint; its velocity is the sum of qd_k S_k."""
    hinges: Hinges | None
    """The hinges in whose axes the links are, if these are not the axes of the model's body frames."""


class Slope(NamedTuple):
    """The derivative of a joint's columns along one of them; zero, if they are fixed in the body."""

    S: tuple[Motion, ...]
    """Of each column."""
    velocity: Motion
    """Of the joint's velocity S qd, qd being fixed."""
    acceleration: Motion
    """Of S qdd + (dS/dt) qd."""

    @classmethod
    def zero(cls, width: int) -> Slope:
        """Return that of a joint whose columns are fixed in the body, in plain numbers."""
        return cls((Motion.zero(),) * width, Motion.zero(), Motion.zero())


class Stage:
    """The joints of one stage, by type and by column."""

    def __init__(self, topology: Topology, bodies: np.ndarray, canonical: bool, is_base: bool):
        self.bodies, self.flat = bodies, bodies.ravel()
        self.canonical, self.is_base = canonical, is_base
        """The stage is that of the floating bases."""
        self.groups = []
        for group in topology.groups:
            places = np.flatnonzero(np.isin(self.flat, group.bodies))
            if len(places):
                rows = np.searchsorted(group.bodies, self.flat[places])
                self.groups.append(
                    (places, group._replace(bodies=self.flat[places], q=group.q[rows], qd=group.qd[rows]))
                )
        self.width = max(group.qd.shape[1] for _, group in self.groups)
        self.qd = np.full((self.width, len(self.flat)), -1, np.int32)
        """(columns, bodies) index into qd, -1 where a joint has fewer columns."""
        for places, group in self.groups:
            self.qd[: group.qd.shape[1], places] = group.qd.T
        self.revolute = canonical and all(type(group.joint) in (Revolute, Continuous) for _, group in self.groups)

    def shaped(self, tree: Any) -> Any:
        """Give leaves (bodies of the stage, batch) the stage's shape."""
        return jax.tree.map(lambda x: x if type(x) is float else x.reshape((*self.bodies.shape, *x.shape[1:])), tree)

    def everywhere(self, tree: Any) -> Any:
        """Give leaves (batch,) the stage's axes, of length 1."""
        return jax.tree.map(lambda x: x.reshape((1,) * self.bodies.ndim + x.shape), tree)

    def rows(self, x: jax.Array, nothing: float = 0.0) -> Rows:
        """Return x (nv, ...) as one row per column, with `nothing` where a joint has fewer columns."""
        if np.any(self.qd < 0):
            x = jnp.concatenate([x, jnp.full_like(x[:1], nothing)])
        return self.shaped(tuple(rows(x, index) for index in self.qd))

    def by_type(self, f: Callable[[Joint, JointParameters, Coordinates, Any], Any], leaves: Any, q: jax.Array) -> Any:
        """Return f(joint type, parameters, coordinates, group) of all joints, in the stage's places."""
        parts, places = [], [places for places, _ in self.groups]
        for _, group in self.groups:
            parameters = joint_parameters(leaves, group.bodies, group.joint)
            part = f(group.joint, parameters, tuple(rows(q, index) for index in group.q.T), group)
            parts.append(_with_floats(part))
        return self.shaped(jax.tree.map(lambda *xs: _merged(xs, places, q.dtype), *parts))


class Joints:
    """The static side of a model's links and joints, in stages."""

    def __init__(self, topology: Topology, stages: Sequence[Stage]):
        self.topology, self.stages = topology, stages
        qd = np.concatenate([np.zeros(0, np.int32), *(stage.qd.ravel() for stage in self.stages)])
        body = np.concatenate([np.zeros(0, np.int32), *(np.tile(stage.flat, stage.width) for stage in self.stages)])
        mimic = np.array(topology.followed, np.int32)[body] >= 0
        own, extra = np.flatnonzero((qd >= 0) & ~mimic), np.flatnonzero((qd >= 0) & mimic)
        self._columns = np.concatenate([own[np.argsort(qd[own])], extra]).astype(np.int32)
        self.column_body = body[self._columns]
        """(columns,) the body that each column moves: those of qd in order, then those of mimic joints."""
        self.followed = qd[extra]
        """(mimic joints,) the velocity that each mimic joint follows."""

    @cached_property
    def _on_hinges(self) -> np.ndarray:
        """The bodies whose link axes are turned."""
        return np.concatenate([np.zeros(0, np.int32), *(stage.flat for stage in self.stages if stage.revolute)])

    @cached_property
    def inboard(self) -> np.ndarray:
        """(nbodies + 1, columns) whether a column moves a body; nothing moves the last, the world."""
        parents = self.topology.parents
        above = np.zeros((len(parents) + 1, len(parents)), bool)
        for body, parent in enumerate(parents):
            above[body] = above[parent]
            above[body, body] = True
        return above[:, self.column_body]

    def kth_of_same_body(self, k: int) -> np.ndarray:
        """Return for each column the k-th column of its body, -1 if there is none."""
        places: dict[int, list[int]] = {}
        for column, body in enumerate(self.column_body.tolist()):
            places.setdefault(body, []).append(column)
        return np.array([(places[body] + [-1] * 6)[k] for body in self.column_body.tolist()], np.int32)

    def rows(self, x: jax.Array, nothing: float = 0.0) -> list[Rows]:
        """Return x (nv, ...) by stage and column."""
        return [stage.rows(x, nothing) for stage in self.stages]

    def tree_rows(self, x: jax.Array, nothing: float = 0.0) -> list[Rows]:
        """Return x (columns, ...), in the order of `column_body`, by stage and column: what `columns` puts together."""
        x, result = jnp.concatenate([x, jnp.full_like(x[:1], nothing)]), []
        for stage, index in zip(self.stages, self._places, strict=True):
            result.append(stage.shaped(tuple(rows(x, row) for row in index)))
        return result

    @cached_property
    def _places(self) -> list[np.ndarray]:
        """By stage, (width, bodies): the number of each column; one past the last where a joint has fewer columns."""
        sizes = [stage.qd.size for stage in self.stages]
        place = np.full(sum(sizes), len(self._columns), np.int32)
        place[self._columns] = np.arange(len(self._columns))
        parts = np.split(place, np.cumsum(sizes)[:-1])
        return [part.reshape(stage.qd.shape) for part, stage in zip(parts, self.stages, strict=True)]

    def columns(self, stages: Sequence[Rows], dtype: Any = None) -> jax.Array:
        """Return rows by stage and column as (columns, ...), in the order of `column_body`.

        `dtype` is their type where all of them are known numbers.
        """
        parts = [(x, stage.bodies) for stage, columns in zip(self.stages, stages, strict=True) for x in columns]
        arrays = [x for x, _ in parts if type(x) is not float]
        dtype = jnp.result_type(*arrays) if arrays else dtype
        trail = np.broadcast_shapes((1,), *(x.shape[table.ndim :] for x, table in parts if type(x) is not float))
        flat = [
            jnp.broadcast_to(jnp.asarray(x, dtype), (*table.shape, *trail)).reshape((-1, *trail)) for x, table in parts
        ]
        return rows(flat[0] if len(flat) == 1 else jnp.concatenate(flat), self._columns)

    def fold(self, x: jax.Array, axis: int = 0) -> jax.Array:
        """Add what belongs to mimic joints, along an axis of columns, to what they follow: G* x."""
        nv = self.topology.nv
        own = jax.lax.slice_in_dim(x, 0, nv, axis=axis)
        if not len(self.followed):
            return own
        extra = jnp.moveaxis(jax.lax.slice_in_dim(x, nv, x.shape[axis], axis=axis), axis, 0)
        return jnp.moveaxis(jnp.moveaxis(own, axis, 0).at[self.followed].add(extra), 0, axis)

    def spatial_columns(self, stages: Any, dtype: Any) -> Any:
        """Turn spatial vectors, or other pytrees, by stage and column into one whose components are (columns, ...)."""
        form = jax.tree.structure(stages[0][0])
        leaves = [[jax.tree.leaves(x) for x in columns] for columns in stages]
        count = len(leaves[0][0])
        parts = [self.columns([tuple(x[i] for x in columns) for columns in leaves], dtype) for i in range(count)]
        return jax.tree.unflatten(form, jnp.broadcast_arrays(*parts))

    def collect(self, stages: Sequence[Rows]) -> jax.Array:
        """Return rows by stage and column as (nv, ...)."""
        return self.fold(self.columns(stages))

    def links(self, model: Model, q: jax.Array) -> list[Links]:
        """Return the links of every stage at q (nq, batch)."""
        leaves = _leaves(model)
        frames = Frames(model.placement, model.axis if len(self._on_hinges) else None)
        return [self._hinged(s, frames, q) if s.revolute else _links(s, frames, leaves, q) for s in self.stages]

    def _hinged(self, stage: Stage, frames: Frames, q: jax.Array) -> Links:
        """Return links that turn about their own e_z."""
        parents = np.array(self.topology.parents, np.int32)[stage.flat]
        sine, cosine = sin_cos(rows(q, np.array(self.topology.q_start, np.int32)[stage.flat]))
        turned = frames.hinges(stage.flat, parents, np.isin(parents, self._on_hinges))
        e_z = Motion(Vec3(0.0, 0.0, 1.0), Vec3.zero())
        return Links(stage.shaped(Hinge(turned.placement, cosine, sine)), (e_z,), turned)

    def inertias(self, model: Model, links: Sequence[Links]) -> list[RigidInertia]:
        """Return the links' inertias in link axes."""
        return unpacked(self.packed_inertias(model, links))

    def packed_inertias(self, model: Model, links: Sequence[Links]) -> list[Packed | RigidInertia]:
        """Return the same as data of a sweep, in as few arrays as they are."""
        by_body = lambda x: RigidInertia.from_parameters(jnp.moveaxis(x, -1, 1))
        stages = zip(self.stages, links, strict=True)
        return [
            stage.shaped((link.hinges.inertias if link.hinges else by_body)(rows(model.inertia, stage.flat)))
            for stage, link in stages
        ]

    def subspace_rates(self, model: Model, q: jax.Array, qd: jax.Array) -> list[tuple[Motion, ...]]:
        """Return the rates of the joints' columns, in body components, at the velocity qd (nv, batch)."""
        leaves = _leaves(model)

        def rate(joint: Joint, parameters: JointParameters, x: Coordinates, group: Any) -> tuple[Motion, ...]:
            columns = joint.reads or joint.nv
            v = tuple(rows(qd, index) for index in group.qd.T)
            if all(isinstance(part, (int, float)) for part in jax.tree.leaves(joint.bias(parameters, x, v))):
                return (Motion.zero(),) * width  # columns that are fixed in the body
            still = tuple(jnp.zeros_like(a) for a in v)
            along = lambda dq: _with_floats(joint.subspace(parameters, _advance(joint, parameters, x, dq)))
            rates = jax.tree.map(lambda x: x.astype(q.dtype), jax.jvp(along, (still,), (v,))[1])
            return rates + (Motion.zero(),) * (width - columns)

        rates = []
        for stage in self.stages:
            width = stage.width
            rates.append(stage.by_type(rate, leaves, q))
        return rates

    def subspace_slopes(self, model: Model, q: jax.Array, qd: jax.Array, qdd: jax.Array) -> list[tuple[Slope, ...]]:
        """Return how each column's joint changes along that column, by stage, in body components."""
        leaves = _leaves(model)

        def slopes(joint: Joint, parameters: JointParameters, x: Coordinates, group: Any) -> tuple[Slope, ...]:
            columns = joint.reads or joint.nv
            v, w = (tuple(rows(values, index) for index in group.qd.T) for values in (qd, qdd))
            if all(isinstance(part, (int, float)) for part in jax.tree.leaves(joint.bias(parameters, x, v))):
                return (Slope.zero(width),) * width
            still = tuple(jnp.zeros_like(a) for a in v)

            def at(dq: Coordinates) -> Any:
                here = _advance(joint, parameters, x, dq)
                S = _with_floats(joint.subspace(parameters, here))
                return S, jax.tree.map(jnp.asarray, _with_floats(joint.bias(parameters, here, v)))

            found = []
            for k in range(columns):
                e_k = tuple(jnp.full_like(a, float(i == k)) for i, a in enumerate(v))
                dS, dbias = jax.tree.map(lambda a: a.astype(q.dtype), jax.jvp(at, (still,), (e_k,))[1])
                none = (Motion.zero(),) * (width - columns)
                found.append(Slope(dS + none, combine(dS, v), combine(dS, w) + dbias))
            return (*found, *(Slope.zero(width),) * (width - columns))

        result = []
        for stage in self.stages:
            width = stage.width
            result.append(stage.by_type(slopes, leaves, q))
        return result


class Articulation(Joints):
    """The joints in the stages of a walk through the tree."""

    def __init__(self, topology: Topology, canonical: bool, side_by_side: bool):
        joints, parents = topology.joints, topology.parents
        bases = tuple(i for i, joint in enumerate(joints) if parents[i] < 0 and type(joint) is Free)
        self.walk = Walk(parents, bases, side_by_side=side_by_side)
        tables = enumerate(self.walk.stages)
        stages = [Stage(topology, table, canonical, bool(bases) and k == 0) for k, table in tables]
        limbs = [stage for stage in stages if not stage.is_base]
        turned = all(stage.revolute for stage in limbs)  # the axes of all, or of none: they are one another's parents
        for stage in limbs:
            stage.revolute = turned
        super().__init__(topology, stages)

    def by_body(self, stages: Sequence[Any]) -> Any:
        """Bring results by stage, with the batch axis of any length, into arrays (nbodies, batch)."""
        both = list(zip(self.stages, stages, strict=True))
        arrays = [(stage, x) for stage, results in both for x in jax.tree.leaves(results) if type(x) is not float]
        batch = np.broadcast_shapes(*(x.shape[stage.bodies.ndim :] for stage, x in arrays))
        dtype = jnp.result_type(*(x for _, x in arrays))
        full = [
            jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x, dtype), (*stage.bodies.shape, *batch)), results)
            for stage, results in both
        ]
        return self.walk.join(full)

    def body_rotations(self, links: Sequence[Links], rotations: Sequence[Mat3]) -> list[Mat3]:
        """Return the rotations of the bodies' axes, from those of the links' axes."""
        stages = zip(self.stages, links, rotations, strict=True)
        return [R @ stage.shaped(link.hinges.to_link) if link.hinges else R for stage, link, R in stages]

    def forces(self, f_ext: jax.Array, links: Sequence[Links]) -> list[Force]:
        """Return forces on the bodies, (nbodies, 6, batch) in body axes, in link axes."""
        stages = zip(self.walk.take(Force.from_array(jnp.moveaxis(f_ext, -1, 1))), self.stages, links, strict=True)
        flat = lambda f: jax.tree.map(lambda x: x.reshape((-1, x.shape[-1])), f)
        return [stage.shaped(link.hinges.forces(flat(f))) if link.hinges else f for f, stage, link in stages]


def _with_floats(tree: Any) -> Any:
    """Return a pytree with floating-point numbers in place of plain integers."""
    return jax.tree.map(lambda x: float(x) if type(x) is int else x, tree)


def _advance(joint: Joint, parameters: JointParameters, q: Coordinates, dq: Coordinates) -> Coordinates:
    """Return a joint's coordinates after dq; those that a mimic joint reads are its leader's."""
    if joint.mechanism is joint:
        return joint.integrate(q, dq)
    return joint.mechanism.integrate(q, dq)


def _leaves(model: Model) -> dict[str, jax.Array]:
    """Return the joints' leaves with the batch axis second: (bodies, batch, ...)."""
    return {name: jnp.moveaxis(getattr(model, name), -1, 1) for name in model.topology.joint_leaves}


def _links(stage: Stage, frames: Frames, leaves: dict[str, jax.Array], q: jax.Array) -> Links:
    """Return links in body axes, for joints of any type."""

    def of_type(joint: Joint, parameters: JointParameters, x: Coordinates, group: Any) -> Links:
        S = joint.subspace(parameters, x)
        X = frames.placements(group.bodies) @ joint.transform(parameters, x)
        return Links(X, S + (Motion.zero(),) * (stage.width - len(S)), None)

    return stage.by_type(of_type, leaves, q)


def _merged(xs: Sequence[Any], places: Sequence[np.ndarray], dtype: Any) -> Any:
    """Put components by type, (joints of the type, batch) or plain numbers, in their places."""
    if all(type(x) is float and x == xs[0] for x in xs):
        return xs[0]
    dtype = jnp.result_type(*([x for x in xs if type(x) is not float] or [dtype]))
    batch = max((np.shape(x)[-1] for x in xs if np.ndim(x)), default=1)
    full = [jnp.broadcast_to(jnp.asarray(x, dtype), (len(p), batch)) for x, p in zip(xs, places, strict=True)]
    return rows(
        full[0] if len(full) == 1 else jnp.concatenate(full), np.argsort(np.concatenate(places)).astype(np.int32)
    )


def articulation(topology: Topology, canonical: bool = True) -> Articulation:
    """Return the articulation of a topology; `canonical=False` keeps link axes equal to body axes."""
    return _articulation(topology, canonical, side_by_side())


_articulation = lru_cache(maxsize=256)(Articulation)


def joint_motions(links: Sequence[Links], rows: Sequence[Rows]) -> list[Motion]:
    """Return sum of x_k S_k for every joint, in link axes."""
    return [combine(link.S, x) for link, x in zip(links, rows, strict=True)]


def like_vector(vector: jax.Array, *rest: Any) -> jax.ShapeDtypeStruct:
    """Return the shape of a vector, with the type that results have which depend on it and on the rest."""
    return array_like(vector.shape, vector, *rest)


def array_like(shape: tuple[int, ...], *args: Any) -> jax.ShapeDtypeStruct:
    """Return a shape with the type that results have which depend on these arguments."""
    return jax.ShapeDtypeStruct(shape, jnp.result_type(*jax.tree.leaves(args)))


def matrix_like(model: Model, *args: Any) -> jax.ShapeDtypeStruct:
    """Return the shape of a matrix (nv, nv) that depends on a model and the rest, with its type."""
    return array_like((model.nv, model.nv), model, *args)


def tile_of_rows(
    per_body: int = 45, row: int = 3584, memory: int = 40_000_000, width: Callable[[Model], int] = lambda model: 1
) -> Callable[..., int]:
    """Return a rule for `batched`: the batch with which a kernel's rows and temporaries fit a CPU's caches.

    Longer rows (lanes x batch, times `width`) share the cost of starting an operation among more states;
    those of 3.5 kB still leave room for a dozen in a first-level cache. Rows of 4 kB would all begin at the same place
    of it, and drive each other out: that costs a third more time (measured). The `per_body` rows of all bodies should
    stay within `memory`, in bytes. XLA then sets aside less than 32 MiB, which the system's allocator keeps for the
    next call; larger blocks it gives back, and to get their pages anew takes a sixth of the time of a chain of 512.
    """

    def tile(model: Model, q: jax.Array, *_: Any) -> int:
        bodies = articulation(model.topology).walk.stages[-1]
        lanes, itemsize = bodies.shape[1] if bodies.ndim > 1 else 1, q.dtype.itemsize * width(model)
        most = min(row // (lanes * itemsize), memory // (model.nbodies * per_body * itemsize))
        return max(32 // width(model), 8, most)

    return tile
