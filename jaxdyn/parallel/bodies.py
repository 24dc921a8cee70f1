"""The bodies of a model as arrays: what all parallel algorithms begin with.

Axes are the world's; every quantity is about its own body's origin, so that crossing a body is a shift and where a
robot stands does not enter. Joints have as many columns as the one with most; where a joint has fewer, they are zero.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import rows
from jaxdyn.joints import Joint, JointParameters
from jaxdyn.model import Model
from jaxdyn.model.configuration import coordinates, in_order, joint_transforms
from jaxdyn.model.topology import JointGroup, Topology, joint_parameters
from jaxdyn.parallel.paths import Paths, heavy_paths
from jaxdyn.parallel.sections import ForceSum, MotionSum, Pose, levered, moved, times
from jaxdyn.spatial import ArticulatedInertia, Force, Mat3, Motion, RigidInertia


class Bodies(NamedTuple):
    """All bodies at a configuration."""

    R: jax.Array
    """(nbodies, 3, 3) from body axes to the world's."""
    p: jax.Array
    """(nbodies, 3) position of the origin."""
    l: jax.Array
    """(nbodies, 3) from the parent's origin to the body's."""
    S: jax.Array
    """(nbodies, 6, d) columns of the joint, H*(k)."""
    M: jax.Array
    """(nbodies, 6, 6) inertia."""


class Tables(NamedTuple):
    """What is known of a model before its numbers are."""

    paths: Paths
    columns: np.ndarray
    """(nbodies, d) index into qd, nv where a joint has fewer columns."""
    places: np.ndarray
    """(nv,) of each velocity in (nbodies, d), flat."""

    def spread(self, x: jax.Array, nothing: float = 0.0) -> jax.Array:
        """Bring x (nv,) to (nbodies, d), with `nothing` where a joint has fewer columns."""
        if np.any(self.columns == len(x)):
            x = jnp.concatenate([x, jnp.full_like(x[:1], nothing)])
        return rows(x, self.columns.ravel()).reshape(self.columns.shape)

    def gather(self, x: jax.Array) -> jax.Array:
        """Bring x (nbodies, d) to (nv,)."""
        return rows(x.reshape(-1), self.places)


@lru_cache(maxsize=256)
def tables(topology: Topology) -> Tables:
    """Return the tables of a topology without mimic joints."""
    width = max((joint.nv for joint in topology.joints), default=0)
    columns = np.full((topology.nbodies, width), topology.nv, np.int32)
    for group in topology.groups:
        columns[group.bodies, : group.joint.nv] = group.qd
    places = np.argsort(columns.ravel(), kind="stable")[: topology.nv].astype(np.int32)
    return Tables(heavy_paths(topology.parents), columns, places)


def of_one_type(*trees: Any) -> Any:
    """Return models and arrays as ones of the floating-point type that all of them have a place in."""
    dtype = jnp.result_type(*jax.tree.leaves(trees))
    return jax.tree.map(lambda x: x.astype(dtype), trees)


def poses(model: Model, q: jax.Array) -> tuple[Pose, Pose]:
    """Return the poses of the bodies' parents and of the bodies, in the world."""
    X = joint_transforms(model, q)
    own = Pose(X.R.to_array(), X.p.to_array())

    def sections(at: np.ndarray, entering: Pose | None) -> Pose:
        here = Pose(rows(own.R, at), rows(own.p, at))
        return here if entering is None else entering.then(here)

    world = Pose(jnp.eye(3, dtype=q.dtype), jnp.zeros(3, q.dtype))
    return heavy_paths(model.parents).outward(sections, world)


def bodies(model: Model, q: jax.Array) -> Bodies:
    """Return the bodies at a configuration."""
    parent, body = poses(model, q)
    l = times(parent.R, joint_transforms(model, q).p.to_array())
    width = tables(model.topology).columns.shape[1]

    def subspace(joint: Joint, parameters: JointParameters, q: Any, group: JointGroup) -> jax.Array:
        columns = [_as_rows(V, len(group.bodies), l.dtype) for V in joint.subspace(parameters, q)]
        nothing = [jnp.zeros((len(group.bodies), 6), l.dtype)] * (width - len(columns))
        return jnp.stack(columns + nothing, axis=-1)

    S = by_type(subspace, model, q)
    M = RigidInertia.from_parameters(model.inertia).rotate(Mat3.from_array(body.R))
    matrices = jnp.moveaxis(ArticulatedInertia.from_rigid(M).to_array(), -1, 0)
    return Bodies(body.R, body.p, l, turned(body.R, S), matrices)


def by_type(f: Any, model: Model, q: jax.Array) -> jax.Array:
    """Return f(joint type, parameters, coordinates, group), (joints of the type, ...), of all joints, by body."""
    groups, parts = model.topology.groups, []
    for group in groups:
        parameters = joint_parameters(vars(model), group.bodies, group.joint)
        parts.append(f(group.joint, parameters, coordinates(q, group.q), group))
    return in_order(parts, np.concatenate([group.bodies for group in groups]))


def _as_rows(V: Motion, count: int, dtype: Any) -> jax.Array:
    """Return motions as an array (count, 6), also where a joint type gives plain numbers."""
    return jnp.stack([jnp.broadcast_to(jnp.asarray(x, dtype), (count,)) for x in (*V.ang, *V.lin)], axis=-1)


def turned(R: jax.Array, x: jax.Array) -> jax.Array:
    """Return in world axes spatial vectors (nbodies, 6, k) given in body axes."""
    return (R[:, None] @ x.reshape((len(x), 2, 3, -1))).reshape(x.shape)


def joint_biases(model: Model, q: jax.Array, qd: jax.Array, R: jax.Array) -> jax.Array:
    """Return (dS/dt) qd, the rate of S in body components, in world axes, (nbodies, 6)."""

    def bias(joint: Joint, parameters: JointParameters, x: Any, group: JointGroup) -> jax.Array:
        return _as_rows(joint.bias(parameters, x, coordinates(qd, group.qd)), len(group.bodies), R.dtype)

    return turned(R, by_type(bias, model, q)[..., None])[..., 0]


def sums_outward(paths: Paths, l: jax.Array, own: jax.Array, start: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return V+ = phi* V(parent) and V = V+ + own of all bodies, (nbodies, 6) each."""

    def sections(at: np.ndarray, entering: Any) -> MotionSum:
        arm, value = rows(l, at), rows(own, at)
        return MotionSum(arm, value if entering is None else moved(entering, arm) + value)

    parent, value = paths.outward(sections, start)
    return moved(parent, l), value


def sums_inward(paths: Paths, l: jax.Array, own: jax.Array) -> jax.Array:
    """Return the sums z over children of phi (z + own), (nbodies, 6)."""

    def sections(at: np.ndarray, entering: Any) -> ForceSum:
        arm, value = rows(l, at), rows(own, at)
        return ForceSum(arm, levered(value if entering is None else value + entering, arm))

    return paths.inward(sections)


def forces_of_motion(
    model: Model, b: Bodies, q: jax.Array, qd: jax.Array, qdd: jax.Array | None, f_ext: Any, base_motion: Any
) -> jax.Array:
    """Return M a + V x* M V - f_ext of all bodies, (nbodies, 6); without qdd, at zero acceleration."""
    known = tables(model.topology)
    start, up = jnp.zeros(6, qd.dtype), jnp.concatenate([jnp.zeros(3, qd.dtype), -model.gravity])
    V_0, a_0 = (start, up) if base_motion is None else (base_motion[0], base_motion[1] + up)
    V_J = times(b.S, known.spread(qd))
    V = sums_outward(known.paths, b.l, V_J, V_0)[1]
    own = Motion.from_array(V).cross(Motion.from_array(V_J)).to_array() + joint_biases(model, q, qd, b.R)
    if qdd is not None:
        own = own + times(b.S, known.spread(qdd))
    a = sums_outward(known.paths, b.l, own, a_0)[1]
    momentum = Force.from_array(times(b.M, V))
    f = times(b.M, a) + Motion.from_array(V).cross_force(momentum).to_array()
    return f if f_ext is None else f - turned(b.R, f_ext[..., None])[..., 0]
