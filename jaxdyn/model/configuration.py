"""Configurations: neutral, random, integrate, difference, and the joints' transforms.

Nothing here walks the tree: each function visits the joints type by type, all joints of a type at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn import _checks
from jaxdyn._numerics import rows
from jaxdyn.joints import Coordinates
from jaxdyn.model.model import Model
from jaxdyn.model.topology import JointGroup, joint_parameters
from jaxdyn.spatial import Transform


def joint_transforms(model: Model, q: jax.Array) -> Transform:
    """Return the pose of every body in its parent at q, as components of shape (nbodies,)."""
    groups = model.topology.groups
    moved = []
    for group in groups:
        parameters = joint_parameters(vars(model), group.bodies, group.joint)
        X = group.joint.transform(parameters, coordinates(q, group.q))
        moved.append(jax.tree.map(partial(_fill, shape=group.bodies.shape, dtype=q.dtype), X))
    if not moved:
        return jax.tree.map(lambda x: jnp.full(0, x, q.dtype), Transform.identity())
    places = np.concatenate([group.bodies for group in groups])
    X_J = jax.tree.map(lambda *parts: in_order(parts, places), *moved)
    return Transform.from_pose(model.placement) @ X_J


def coordinates(q: jax.Array, index: np.ndarray) -> Coordinates:
    """Return the columns of q at index (k, m) as m scalars of shape (k,)."""
    return tuple(rows(q, index[:, i]) for i in range(index.shape[1]))


def _fill(x: Any, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Return a component as an array, also where a joint type gives a plain number."""
    return jnp.broadcast_to(jnp.asarray(x, jnp.result_type(dtype, x)), shape)


def in_order(parts: Sequence[jax.Array], places: np.ndarray) -> jax.Array:
    """Concatenate parts whose rows belong at `places`; the permutation is static and often trivial."""
    whole = parts[0] if len(parts) == 1 else jnp.concatenate(parts)
    order = np.argsort(places).astype(np.int32)
    return whole if np.array_equal(order, np.arange(len(order))) else whole[order]


def _by_joint(model: Model, index: Callable[[JointGroup], np.ndarray], results: Iterable[Coordinates]) -> jax.Array:
    """Put results, one tuple of scalars per own group, where `index` of that group says."""
    parts: list[jax.Array] = []
    places: list[np.ndarray] = []
    for group, values in zip(model.topology.own_groups, results, strict=True):
        parts += values
        places += list(index(group).T)
    if not parts:
        return jnp.zeros(0, model.dtype)
    return in_order(parts, np.concatenate(places))


def neutral(model: Model) -> jax.Array:
    """Return the configuration in which every joint is at zero (unit quaternions, zero angles).

    Limits are not looked at. Shape (nq,).
    """
    values = [x for joint in model.topology.joints for x in joint.neutral()]
    return jnp.asarray(values, model.dtype).reshape(model.nq)


@jax.jit
def random_configuration(model: Model, key: jax.Array) -> jax.Array:
    """Draw a configuration: uniform between the joints' limits, uniform over rotations.

    Without limits an angle is drawn from [-pi, pi) and a displacement from [-1, 1); with one limit, from
    the interval of that length which begins or ends there.

    Args:
        model: the model.
        key: a key of `jax.random`.

    Returns:
        q, shape (nq,).

    Example:
        >>> import jax, jaxdyn
        >>> model = jaxdyn.load("quadruped")
        >>> keys = jax.random.split(jax.random.key(0), 100)
        >>> jax.vmap(jaxdyn.random_configuration, in_axes=(None, 0))(model, keys).shape
        (100, 19)
    """
    u = jax.random.uniform(key, (model.nq,), model.dtype)
    draws = (
        group.joint.random(*(coordinates(x, group.q) for x in (u, model.lower, model.upper)))
        for group in model.topology.own_groups
    )
    return _by_joint(model, lambda group: group.q, draws)


@jax.jit
def integrate(model: Model, q: jax.Array, dq: jax.Array) -> jax.Array:
    r"""Return the configuration reached from q by the constant velocity dq in unit time.

    .. math:: q \oplus dq

    Plain addition for joints with ordinary coordinates; the exponential map for spherical, planar and
    free joints. Derivatives of any function with respect to q "in the tangent" are along
    `integrate(model, q, eps * e_k)`.

    Args:
        model: the model.
        q: configuration, (nq,).
        dq: velocity times time, (nv,).

    Returns:
        The new configuration, (nq,), quaternions of unit length.
    """
    model.require_single(concrete=False)
    q = _checks.vector("q", q, model.nq, "coordinate", model.dtype)
    dq = _checks.vector("dq", dq, model.nv, "degree of freedom", model.dtype)
    dtype = jnp.result_type(q, dq)
    q, dq = q.astype(dtype), dq.astype(dtype)
    moved = (
        group.joint.integrate(coordinates(q, group.q), coordinates(dq, group.qd)) for group in model.topology.own_groups
    )
    return _by_joint(model, lambda group: group.q, moved)


@jax.jit
def difference(model: Model, q0: jax.Array, q1: jax.Array) -> jax.Array:
    r"""Return the velocity that takes q0 to q1 in unit time.

    .. math:: dq = q_1 \ominus q_0, \quad q_0 \oplus dq = q_1

    Rotations go the shorter way: the angle of continuous and planar joints is in [-pi, pi), rotation
    vectors are at most pi long.

    Args:
        model: the model.
        q0: where to start, (nq,).
        q1: where to arrive, (nq,).

    Returns:
        dq, (nv,).
    """
    model.require_single(concrete=False)
    q0 = _checks.vector("q0", q0, model.nq, "coordinate", model.dtype)
    q1 = _checks.vector("q1", q1, model.nq, "coordinate", model.dtype)
    dtype = jnp.result_type(q0, q1)
    q0, q1 = q0.astype(dtype), q1.astype(dtype)
    gaps = (
        group.joint.difference(coordinates(q0, group.q), coordinates(q1, group.q))
        for group in model.topology.own_groups
    )
    return _by_joint(model, lambda group: group.qd, gaps)


def tangent(model: Model, q: jax.Array, rate: jax.Array) -> jax.Array:
    """Return the velocity (nv, ...) at which the coordinates q (nq, ...) change at a rate (nq, ...)."""
    velocities = (
        group.joint.tangent(coordinates(q, group.q), coordinates(rate, group.q)) for group in model.topology.own_groups
    )
    return _by_joint(model, lambda group: group.qd, velocities)


def bracket(model: Model, q: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """Return [a, b] of two directions (nv, ...): what moving along a, then b, differs by from b, then a."""
    found = (
        group.joint.bracket(coordinates(q, group.q), coordinates(a, group.qd), coordinates(b, group.qd))
        for group in model.topology.own_groups
    )
    return _by_joint(model, lambda group: group.qd, found)


def coordinate_gradient(model: Model, q: jax.Array, gradient: jax.Array) -> jax.Array:
    """Return the gradient by coordinates (nq, ...) of what has a gradient (nv, ...) in the tangent."""
    gradient = jnp.broadcast_to(gradient, (len(gradient), *jnp.broadcast_shapes(gradient.shape[1:], q.shape[1:])))
    found = (
        group.joint.tangent_transposed(coordinates(q, group.q), coordinates(gradient, group.qd))
        for group in model.topology.own_groups
    )
    return _by_joint(model, lambda group: group.q, found).astype(q.dtype)
