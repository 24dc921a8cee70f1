r"""Joints that turn: motion along a velocity, springs, and the derivatives of both, with little to compile.

What `Joint.integrate` and `difference` say of spherical, planar and free joints, on tuples of components as there. XLA
compiles one kernel for each array that is kept, so each function here has few: functions of the angle, which are dozens
of operations, are worked out `once`, and all else goes into the kernel of the result.

Configurations of these joints are a group. With :math:`A\,v = [s, v]` and J the right Jacobian of its exponential,

.. math:: q' = q \oplus s: \quad v' = v + J(s)\,(\dot s - A v), \qquad
    s = q \ominus q_0: \quad \dot s = J(s)^{-1} v - J(-s)^{-1} v_0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn._numerics import arctan_over, cot_defect, once, stumpff
from jaxdyn.joints import Coordinates, Free, Joint, Planar, Spherical, linear_transposed
from jaxdyn.recursion import side_by_side
from jaxdyn.spatial import Quaternion, Vec3, left_jacobian_inverse

GROUPS = (Spherical, Planar, Free)
"""Joint types whose configurations are a group: what follows is written for them."""
WITH_QUATERNION = (Spherical, Free)
"""Those among them whose coordinates begin with a quaternion, and directions with an angular velocity."""


# ---------------------------------------------------------------------- one step
def moved(joint: Joint, q: Coordinates, dq: Coordinates) -> Coordinates:
    """Return q + dq of joints with a quaternion, of unit length."""
    here, w = Quaternion(*q[:4]).unit()[0], Vec3(*dq[:3])
    t = w.dot(w) / 4  # of half the angle
    c2, c3 = once(stumpff(2, t), stumpff(3, t))
    c0, c1 = 1 - t * c2, 1 - t * c3
    turned = Quaternion(*once(*(here @ Quaternion(c0, *(c1 / 2 * w)))))
    turned = (1.5 - 0.5 * turned.norm_squared) * turned  # its length is one to rounding: now to the last place
    if type(joint) is Spherical:
        return tuple(turned)
    v = Vec3(*dq[3:])
    wv = w.cross(v)
    along = v + (c1 * c1 / 2) * wv + ((c2 + c0 * c3) / 4) * w.cross(wv)  # c2 and c3 of the whole angle
    return once(*turned, *(Vec3(*q[4:]) + here.turn(Vec3(*once(*along)))))


def rate_of_moved(
    joint: Joint, q: Coordinates, dq: Coordinates, after: Coordinates, q_rate: Coordinates, dq_rate: Coordinates
) -> Coordinates:
    """Return the rate of after = q + dq, of joints with a quaternion, from those of q and dq."""
    v, J = joint.tangent(q, q_rate), right_jacobian(joint, dq)
    v = _sum(v, J.times(_sum(dq_rate, joint.bracket(q, dq, v), -1)))
    there = Quaternion(*after[:4])
    turn = there @ Quaternion(0.0, *(0.5 * Vec3(*v[:3])))
    return tuple(turn) if type(joint) is Spherical else (*turn, *there.turn(Vec3(*v[3:])))


def pull_back_of_moved(
    joint: Joint, q: Coordinates, dq: Coordinates, after: Coordinates, x: Coordinates
) -> tuple[Coordinates, Coordinates]:
    """Return the transposed product of the derivative of after = q + dq with x: what belongs to q, and to dq."""
    back, J = Quaternion(*after[:4]).conjugate(), right_jacobian(joint, dq)
    turn = 0.5 * (back @ Quaternion(*x[:4])).vector
    v = once(*turn) if type(joint) is Spherical else once(*turn, *back.turn(Vec3(*x[4:])))
    by_dq = once(*J.transposed(v))
    return joint.tangent_transposed(q, _sum(v, J.bracket_transposed(by_dq), -1)), by_dq


# ---------------------------------------------------------------------- springs
def spring_force(joint: Joint, k: Coordinates, rest: Coordinates, q: Coordinates) -> Coordinates:
    r"""Return the force of springs along s = difference(rest, q).

    .. math:: -B^T K s, \qquad B = J(s)^{-1}, \qquad \dot s = B \dot q
    """
    s = stretch(joint, rest, q)
    return right_jacobian_inverse(joint, s, once).transposed(tuple(-a * b for a, b in zip(k, s, strict=True)))


def pull_back_of_springs(joint: Joint, k: Coordinates, rest: Coordinates, q: Coordinates, x: Coordinates) -> Any:
    """Return the transposed product of the derivative of springs' forces by q with x."""
    s = stretch(joint, rest, q)

    def power(s: Coordinates) -> jax.Array:
        rates = right_jacobian_inverse(joint, s).times(x)
        return -sum(a * b * c for a, b, c in zip(k, s, rates, strict=True))

    value, pull = jax.vjp(power, s)
    by_s = once(*pull(jnp.ones_like(value))[0])
    return joint.tangent_transposed(q, right_jacobian_inverse(joint, s, once).transposed(by_s))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def stretch(joint: Joint, rest: Coordinates, q: Coordinates) -> Coordinates:
    """Return difference(rest, q), rotations the shorter way."""
    if type(joint) not in WITH_QUATERNION:
        return once(*joint.difference(rest, q))
    back = Quaternion(*rest[:4]).unit()[0].conjugate()
    relative = back @ Quaternion(*q[:4]).unit()[0]
    sign = jnp.where(relative.w < 0, -1, 1).astype(relative.w.dtype)
    k = sign / (1 + sign * relative.w)  # see Quaternion.log
    (factor,) = once(4 * k * arctan_over(0, k * k * relative.vector.dot(relative.vector)))
    w = Vec3(*once(*(factor * relative.vector)))
    if type(joint) is Spherical:
        return tuple(w)
    along = Vec3(*once(*back.turn(Vec3(*q[4:]) - Vec3(*rest[4:]))))
    return once(*w, *left_jacobian_inverse(w, along))


@stretch.defjvp
def _stretch_moves(joint: Joint, primals: Any, tangents: Any) -> tuple[Coordinates, Coordinates]:
    (rest, q), (by_rest, by_q) = primals, tangents
    s = stretch(joint, rest, q)
    B = right_jacobian_inverse(joint, s)
    return s, _sum(B.times(joint.tangent(q, by_q)), B.reversed().times(joint.tangent(rest, by_rest)), -1)


# ---------------------------------------------------------------------- derivatives of the exponential
class Series(NamedTuple):
    r"""A function of A, :math:`1 + c_1 A + c_2 A^2 + c_3 A^3 + c_4 A^4`, where :math:`A\,v = [s, v]`.

    A has the eigenvalues 0 and :math:`\pm i x`, x the angle of s, the latter at most twice each: any series in A ends
    there, and value and slope at :math:`t = x^2` of its even and of its odd part say which it is.
    """

    joint: Joint
    s: Coordinates
    c: Coordinates
    """The four coefficients."""

    def times(self, v: Coordinates) -> Coordinates:
        """Return the product with v."""
        return self._sum(Series.bracket, v)

    def transposed(self, v: Coordinates) -> Coordinates:
        """Return the product of the transpose with v."""
        return self._sum(Series.bracket_transposed, v)

    def bracket(self, v: Coordinates) -> Coordinates:
        """Return A v."""
        return self.joint.bracket((), self.s, v)

    def bracket_transposed(self, v: Coordinates) -> Coordinates:
        """Return A* v."""
        return linear_transposed(self.bracket, v, self.s)

    def reversed(self) -> Series:
        """Return the same for -s."""
        return self._replace(s=tuple(-x for x in self.s))

    def _sum(self, A: Callable[[Series, Coordinates], Coordinates], v: Coordinates) -> Coordinates:
        """Sum up by Horner's rule, on a CPU in a loop: a sum that is written out takes long to compile."""
        parts = iter(jnp.broadcast_arrays(*self.s, *v, 1.0, *self.c))
        take = lambda n: jnp.stack([next(parts) for _ in range(n)])
        s, x, c = take(len(v)), take(len(v)), take(5)

        @jax.checkpoint  # for derivatives whole arrays are kept, not each of their components
        def add(carry: Any, c: jax.Array) -> Any:
            s, total = carry
            return (s, c[None] * x + jnp.stack(A(self._replace(s=tuple(s)), tuple(total)))), None

        return tuple(jax.lax.scan(add, (s, jnp.zeros_like(x)), c, reverse=True, unroll=side_by_side())[0][1])


def right_jacobian(joint: Joint, s: Coordinates) -> Series:
    r"""Return :math:`J(s) = (1 - e^{-A}) A^{-1}`, the velocity at the end of s by rates of s."""
    t = _angle_squared(joint, s)
    c4, c5 = once(stumpff(4, t), stumpff(5, t))
    c2, c3 = 1 / 2 - t * c4, 1 / 6 - t * c5
    slope_2, slope_3 = c4 - c3 / 2, 3 / 2 * c5 - c4 / 2
    return Series(joint, s, (t * slope_2 - c2, c3 - t * slope_3, slope_2, -slope_3))


def right_jacobian_inverse(joint: Joint, s: Coordinates, kept: Callable[..., Any] = lambda *xs: xs) -> Series:
    """Return the inverse of J(s), for angles below a whole turn."""
    t = _angle_squared(joint, s)
    c, slope = kept(cot_defect(t), cot_defect(t, 1))
    return Series(joint, s, (0.5, c - t * slope, 0.0, -slope))


def _angle_squared(joint: Joint, s: Coordinates) -> Any:
    return sum(x * x for x in s[: 3 if type(joint) in WITH_QUATERNION else 1])


# ---------------------------------------------------------------------- details
def _sum(a: Coordinates, b: Coordinates, sign: int = 1) -> Coordinates:
    return tuple(x + y if sign > 0 else x - y for x, y in zip(a, b, strict=True))
