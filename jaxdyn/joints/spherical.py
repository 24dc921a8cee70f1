"""Free rotation about a point."""

from __future__ import annotations

import math

import jax.numpy as jnp

from jaxdyn._numerics import reciprocal_size, safe_reciprocal
from jaxdyn.joints.contract import Coordinates, Joint, JointParameters
from jaxdyn.spatial import Motion, Quaternion, Transform, Vec3

E1, E2, E3 = Vec3(1.0, 0.0, 0.0), Vec3(0.0, 1.0, 0.0), Vec3(0.0, 0.0, 1.0)


class Spherical(Joint):
    """q = quaternion (w, x, y, z), normalised at use; qd = angular velocity in body axes."""

    type = "spherical"
    nq = 4
    nv = 3
    leaves = ()

    def transform(self, parameters: JointParameters, q: Coordinates) -> Transform:
        return Transform(Quaternion(*q).to_matrix(), Vec3.zero())

    def subspace(self, parameters: JointParameters, q: Coordinates) -> tuple[Motion, ...]:
        return tuple(Motion(e, Vec3.zero()) for e in (E1, E2, E3))

    def bias(self, parameters: JointParameters, q: Coordinates, qd: Coordinates) -> Motion:
        return Motion.zero()

    def integrate(self, q: Coordinates, dq: Coordinates) -> Coordinates:
        """Compose with the exponential of dq; the result has unit length."""
        return tuple((Quaternion(*q) @ Quaternion.exp(Vec3(*dq))).normalized())

    def difference(self, q0: Coordinates, q1: Coordinates) -> Coordinates:
        """Return the rotation vector from q0 to q1 in the axes of q0, the shorter way."""
        relative = Quaternion(*q0).conjugate() @ Quaternion(*q1)
        return tuple(relative.normalized().log())

    def tangent(self, q: Coordinates, rate: Coordinates) -> Coordinates:
        """Return 2 Im(q* dq) / |q|^2; a change of length is no motion."""
        size = reciprocal_size(*q)
        scaled = size * Quaternion(*q)
        turn = scaled.conjugate() @ Quaternion(*rate)
        return tuple((2 * size * safe_reciprocal(scaled.norm_squared)) * turn.vector)

    def tangent_transposed(self, q: Coordinates, v: Coordinates) -> Coordinates:
        here, over_length = Quaternion(*q).unit()
        return tuple((2 * over_length) * (here @ Quaternion(0.0, *v)))

    def bracket(self, q: Coordinates, a: Coordinates, b: Coordinates) -> Coordinates:
        return tuple(Vec3(*a).cross(Vec3(*b)))

    def neutral(self) -> tuple[float, ...]:
        return 1.0, 0.0, 0.0, 0.0

    def random(self, u: Coordinates, lower: Coordinates, upper: Coordinates) -> Coordinates:
        """Map three uniform numbers (of four) to uniform rotations (Shoemake 1992); limits do not apply."""
        near, far = jnp.sqrt(1 - u[0]), jnp.sqrt(u[0])
        a, b = 2 * math.pi * u[1], 2 * math.pi * u[2]
        return near * jnp.cos(a), near * jnp.sin(a), far * jnp.cos(b), far * jnp.sin(b)
