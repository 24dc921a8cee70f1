"""What a joint is: the contract that every joint type fulfils.

A joint connects a frame fixed in the parent (the *inboard* frame, at the joint's placement) with the
frame of the body it carries. A new type needs `nq` and `transform` and no more: motion subspace, bias,
integration and difference follow from it by automatic differentiation. Types that give these in closed
form, or whose velocity is not the derivative of q, override them, and one test checks every override
against what follows from the transform.

Coordinates are tuples of scalars (see `jaxdyn.spatial`), so that one call serves all joints of a type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn._numerics import Scalar
from jaxdyn.spatial import Mat3, Motion, Transform, Vec3

Coordinates = tuple[Scalar, ...]

LEAVES = ("axis", "axis2", "pitch", "ratio", "offset", "joint_parameters")
"""The leaves of a model that belong to its joints."""


class JointParameters(NamedTuple):
    """The numbers of a joint that a model holds as leaves; None, if its type does not name them in `Joint.leaves`."""

    axis: Any = None
    """`Vec3`, unit axis in the inboard frame (and in the body: the joint does not move it)."""
    axis2: Any = None
    """`Vec3`, unit second axis of a universal joint, in the body."""
    pitch: Any = None
    """Displacement per angle of a helical joint, m/rad."""
    ratio: Any = None
    """Of a mimic joint: its coordinate is ratio * q_ref + offset."""
    offset: Any = None
    """See `ratio`."""
    custom: Coordinates = ()
    """The parameters that a user's own type names in `custom_parameters`."""


@dataclass(frozen=True)
class Joint:
    r"""A joint type. Instances are hashable and equal by value: they are static parts of a model.

    With X(q) the pose of the body in the inboard frame, the twist of the body relative to its parent, in
    body axes about the body's origin, is :math:`V_J = S(q)\,\dot q`.

    Example:
        A screw whose pitch grows with the angle, given by its transform alone:

        >>> import jaxdyn
        >>> from jaxdyn.joints import Joint
        >>> from jaxdyn.spatial import Transform, axis_angle
        >>> class Wormscrew(Joint):
        ...     type = "wormscrew"
        ...     nq = 1
        ...
        ...     def transform(self, parameters, q):
        ...         travel = 0.01 * q[0] + 0.002 * q[0] * q[0]
        ...         return Transform(axis_angle(parameters.axis, q[0]), travel * parameters.axis)
        >>> builder = jaxdyn.ModelBuilder("press")
        >>> _ = builder.add_body("ram", joint=Wormscrew(), mass=1.0, inertia=(0.1, 0.1, 0.1))
        >>> builder.build().nq
        1
    """

    type: ClassVar[str] = ""
    """Name of the type, as in files and tables."""
    nq: ClassVar[int] = 0
    """Number of configuration coordinates."""
    nv: ClassVar[int] = 0
    """Number of velocity coordinates; `nq` if a type does not say."""
    reads: ClassVar[int | None] = None
    """Number of coordinates that `transform` reads; `nq`, except for a mimic joint."""
    unbounded: ClassVar[float] = math.pi
    """`random` draws a coordinate without limits from [-unbounded, unbounded)."""
    custom_parameters: ClassVar[tuple[str, ...]] = ()
    """Names of further parameters, kept in the model's leaf `joint_parameters`."""
    leaves: ClassVar[tuple[str, ...]] = ()
    """The leaves of a model that the methods read; all those of a joint, if a type does not say."""

    def __init_subclass__(cls) -> None:
        """Let a type that says nothing of nv have as many velocities as coordinates, and read every leaf."""
        if cls.integrate is not Joint.integrate and cls.difference is Joint.difference:
            raise TypeError(f"joint type {cls.__name__!r} defines integrate, and must define its inverse, difference")
        if "nq" in vars(cls) and "nv" not in vars(cls):
            cls.nv = cls.nq
        if "leaves" not in vars(cls):
            cls.leaves = LEAVES
        elif cls.custom_parameters and "joint_parameters" not in cls.leaves:
            cls.leaves = (*cls.leaves, "joint_parameters")

    @property
    def mechanism(self) -> Joint:
        """The joint whose transform moves the body: this one, or the one that a mimic joint gears."""
        return self

    def transform(self, parameters: JointParameters, q: Coordinates) -> Transform:
        """Return the pose X(q) of the body in the inboard frame."""
        raise NotImplementedError(f"joint type {type(self).__name__!r} must define transform(parameters, q)")

    def subspace(self, parameters: JointParameters, q: Coordinates) -> tuple[Motion, ...]:
        """Return the columns of S(q), in body axes about the body's origin."""
        return subspace_by_autodiff(self, parameters, q)

    def bias(self, parameters: JointParameters, q: Coordinates, qd: Coordinates) -> Motion:
        """Return (dS/dt) qd, the rate of S taken in body components."""
        return bias_by_autodiff(self, parameters, q, qd)

    def integrate(self, q: Coordinates, dq: Coordinates) -> Coordinates:
        """Return the configuration reached from q by the constant velocity dq in unit time."""
        return tuple(a + b for a, b in zip(q, dq, strict=True))

    def difference(self, q0: Coordinates, q1: Coordinates) -> Coordinates:
        """Return the velocity that takes q0 to q1 in unit time; inverse of `integrate`."""
        return tuple(b - a for a, b in zip(q0, q1, strict=True))

    @property
    def has_tangent(self) -> bool:
        """Whether `transform` is known to depend on what `tangent` sees of a change of q, and on nothing else."""
        return type(self).integrate is Joint.integrate or type(self).tangent is not Joint.tangent

    def tangent(self, q: Coordinates, rate: Coordinates) -> Coordinates:
        """Return the velocity at which the coordinates q change at the given rate.

        A type that gives it in closed form promises that its transform does not change where this is zero: that
        quaternions of any length do, for example.
        """
        return rate if type(self).integrate is Joint.integrate else tangent_by_autodiff(self, q, rate)

    def tangent_transposed(self, q: Coordinates, v: Coordinates) -> Coordinates:
        """Return the transposed product of `tangent` with v: a gradient by coordinates from one in the tangent."""
        if type(self).integrate is Joint.integrate:
            return v
        return linear_transposed(lambda rate: self.tangent(q, rate), v, q)

    def bracket(self, q: Coordinates, a: Coordinates, b: Coordinates) -> Coordinates:
        """Return [a, b]: by how much, to second order, moving along a and then b differs from b and then a."""
        if type(self).integrate is Joint.integrate:
            return tuple(0.0 * x for x in a)
        return bracket_by_autodiff(self, q, a, b)

    def neutral(self) -> tuple[float, ...]:
        """Return the configuration in which X is the identity, or as near to it as the type can be."""
        return (0.0,) * self.nq

    def random(self, u: Coordinates, lower: Coordinates, upper: Coordinates) -> Coordinates:
        """Map numbers u, uniform in [0, 1), to configurations, uniform between limits (see `unbounded`)."""
        return tuple(uniform(*numbers, self.unbounded) for numbers in zip(u, lower, upper, strict=True))


def uniform(u: Scalar, lower: Scalar, upper: Scalar, unbounded: float) -> jax.Array:
    """Map u in [0, 1) to [lower, upper); a missing (infinite) limit lies 2 * unbounded from the other one."""
    has_lower, has_upper = jnp.isfinite(lower), jnp.isfinite(upper)
    a = jnp.where(has_lower, lower, jnp.where(has_upper, upper - 2 * unbounded, -unbounded))
    b = jnp.where(has_upper, upper, jnp.where(has_lower, lower + 2 * unbounded, unbounded))
    return a * (1 - u) + b * u


def _twist(R: Mat3, dX: Transform) -> Motion:
    """Return the body twist of a pose with rotation R that changes at the rate dX: [vee(R* dR); R* dp]."""
    W = R.T @ dX.R
    return Motion(Vec3((W.r3.y - W.r2.z) / 2, (W.r1.z - W.r3.x) / 2, (W.r2.x - W.r1.y) / 2), R.T @ dX.p)


def subspace_by_autodiff(joint: Joint, parameters: JointParameters, q: Coordinates) -> tuple[Motion, ...]:
    """Return the columns of S(q) from the transform: one derivative along `integrate` per column."""
    q = tuple(jnp.asarray(x) for x in q)
    rest = tuple(jnp.zeros_like(q[0]) for _ in range(joint.nv))
    columns = []
    for k in range(joint.nv):
        e_k = tuple(jnp.full_like(q[0], float(i == k)) for i in range(joint.nv))
        X, dX = jax.jvp(lambda dq: joint.transform(parameters, joint.integrate(q, dq)), (rest,), (e_k,))
        columns.append(_twist(X.R, dX))
    return tuple(columns)


def bias_by_autodiff(joint: Joint, parameters: JointParameters, q: Coordinates, qd: Coordinates) -> Motion:
    """Return (dS/dt) qd from the subspace: one derivative along the motion."""
    if joint.nv == 0:
        return Motion.zero()
    q, qd = tuple(jnp.asarray(x) for x in q), tuple(jnp.asarray(x) for x in qd)
    rest = tuple(jnp.zeros_like(x) for x in qd)

    def twist(dq: Coordinates) -> Motion:
        columns = joint.subspace(parameters, joint.integrate(q, dq))
        return jax.tree.map(jnp.asarray, combine(columns, qd))

    return jax.jvp(twist, (rest,), (qd,))[1]


def tangent_by_autodiff(joint: Joint, q: Coordinates, rate: Coordinates) -> Coordinates:
    """Return the velocity at which q changes at a rate, from the difference."""
    return jax.jvp(lambda x: joint.difference(q, x), (q,), (rate,))[1]


def bracket_by_autodiff(joint: Joint, q: Coordinates, a: Coordinates, b: Coordinates) -> Coordinates:
    """Return [a, b] as that of vector fields, from the integration: (dE/dq b) E a - (dE/dq a) E b = E [a, b]."""
    rest = tuple(jnp.zeros_like(x) for x in a)
    q = joint.integrate(q, rest)  # quaternions of length one
    E = lambda q, v: jax.jvp(lambda dq: joint.integrate(q, dq), (rest,), (v,))[1]
    along = lambda a, b: jax.jvp(lambda q: E(q, b), (q,), (E(q, a),))[1]
    return joint.tangent(q, tuple(x - y for x, y in zip(along(a, b), along(b, a), strict=True)))


def combine(columns: tuple[Motion, ...], qd: Coordinates) -> Motion:
    """Return S qd."""
    total = Motion.zero()
    for rate, column in zip(qd, columns, strict=True):
        total = total + rate * column
    return total


def linear_transposed(linear: Callable[[Coordinates], Coordinates], y: Coordinates, like: Coordinates) -> Coordinates:
    """Return the transposed product with y of a linear function of components like others."""
    like, y = (tuple(jnp.broadcast_arrays(*xs, *also)[: len(xs)]) for xs, also in ((like, y), (y, like)))
    return jax.linear_transpose(linear, like)(y)[0]
