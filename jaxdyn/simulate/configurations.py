"""Configurations in time: `jaxdyn.integrate` and its derivatives, at the price that a rollout can pay.

The derivative keeps where a step began and where it ended, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.algorithms.implicit import unchanged
from jaxdyn.joints import Coordinates, Joint
from jaxdyn.model import Model
from jaxdyn.model.configuration import coordinates, in_order
from jaxdyn.model.topology import JointGroup, Topology
from jaxdyn.recursion import Ruled, batched, tiled
from jaxdyn.simulate import turning
from jaxdyn.spatial import Quaternion


def moved(model: Model, q: jax.Array, dq: jax.Array) -> jax.Array:
    """Return the configuration (nq,) reached from q by the constant velocity dq (nv,) in unit time."""
    dtype = jnp.result_type(q, dq)
    q, dq = q.astype(dtype), dq.astype(dtype)
    return q + dq if _all_plain(model) else _moved(model.topology)(q, dq)


def normalised(model: Model, q: jax.Array) -> jax.Array:
    """Return q (nq,) with quaternions of length one."""

    def of_group(at: JointGroup) -> Coordinates:
        x = coordinates(q, at.q)
        if type(at.joint) in turning.WITH_QUATERNION:
            return *Quaternion(*x[:4]).normalized(), *x[4:]
        return x if is_plain(at.joint) else at.joint.integrate(x, (jnp.zeros_like(x[0]),) * at.joint.nv)

    return q if _all_plain(model) else joined(model.topology, map(of_group, model.topology.own_groups))


def _all_plain(model: Model) -> bool:
    return all(is_plain(at.joint) for at in model.topology.own_groups)


def is_plain(joint: Joint) -> bool:
    """Return whether coordinates of a joint are plain numbers, whose rates are its velocities."""
    return type(joint).integrate is Joint.integrate


@lru_cache(maxsize=256)
def _moved(topology: Topology) -> Any:
    def kernel(q: Any, dq: Any) -> jax.Array:
        def of_group(at: JointGroup) -> Coordinates:
            has_quaternion = type(at.joint) in turning.WITH_QUATERNION
            move = partial(turning.moved, at.joint) if has_quaternion else at.joint.integrate
            return move(coordinates(q, at.q), coordinates(dq, at.qd))

        return joined(topology, map(of_group, topology.own_groups))

    def rate(q: Any, dq: Any, after: Any, q_rate: Any, dq_rate: Any) -> jax.Array:
        """Return the rate of `after`; it is linear in those of q and dq."""

        def of_group(at: JointGroup) -> Coordinates:
            here = coordinates(q, at.q), coordinates(dq, at.qd)
            rates = coordinates(q_rate, at.q), coordinates(dq_rate, at.qd)
            if type(at.joint) in turning.WITH_QUATERNION:
                return turning.rate_of_moved(at.joint, *here, coordinates(after, at.q), *rates)
            batch = jnp.broadcast_shapes(*(x[0].shape for x in (*here, *rates)))
            wide = lambda xs: tuple(jnp.broadcast_to(x, batch) for x in xs)
            return jax.jvp(at.joint.integrate, tuple(map(wide, here)), tuple(map(wide, rates)))[1]

        return joined(topology, map(of_group, topology.own_groups))

    def pull_back(wanted: Any, x: Any, q: Any, dq: Any, after: Any, *_: Any) -> Any:
        """Return what belongs to the rates of q and dq, of which one at least is wanted, and nothing else."""

        def of_group(at: JointGroup) -> tuple[Coordinates, Coordinates]:
            here, bar = (coordinates(q, at.q), coordinates(dq, at.qd)), coordinates(x, at.q)
            if is_plain(at.joint):
                return bar, bar
            if type(at.joint) in turning.WITH_QUATERNION:
                return turning.pull_back_of_moved(at.joint, *here, coordinates(after, at.q), bar)
            wide = tuple(tuple(jnp.broadcast_to(x, bar[0].shape) for x in xs) for xs in here)
            return jax.linear_transpose(lambda *rates: jax.jvp(at.joint.integrate, wide, rates)[1], *wide)(bar)

        by_q, by_dq = zip(*map(of_group, topology.own_groups), strict=True)
        return q, dq, after, joined(topology, by_q), joined(topology, by_dq, "qd")

    options: Any = {"tile": lambda *_: 2**30, "like": lambda q, *_: jax.ShapeDtypeStruct(q.shape, q.dtype)}
    along = batched(rate, pull_back=pull_back, **options).along

    def derivative(primals: Any, tangents: Any) -> Any:
        q, dq = primals
        after: Any = function(q, dq)
        at = q, dq, after, jnp.zeros_like(q), jnp.zeros_like(dq)
        return after, along(at, (*unchanged(at[:3]), *tangents), after)

    function = Ruled(tiled(kernel, **options), derivative)
    return function


def joined(topology: Topology, of_groups: Iterable[Coordinates], index: str = "q") -> jax.Array:
    """Put together rows of one array from what belongs to the joints of each type."""
    places = [column for at in topology.own_groups for column in getattr(at, index).T]
    return in_order(of_one_width(of_groups), np.concatenate(places))


def of_one_width(of_groups: Iterable[Coordinates]) -> list[jax.Array]:
    """Return all components, with all of a batch, the last axis, where one of them has it."""
    parts = [x for group in of_groups for x in group]
    batch = jnp.broadcast_shapes(*(x.shape[1:] for x in parts))
    return [jnp.broadcast_to(x, (len(x), *batch)) for x in parts]
