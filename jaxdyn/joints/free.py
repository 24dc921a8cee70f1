"""All six degrees of freedom: a floating base."""

from __future__ import annotations

from jaxdyn.joints.contract import Coordinates, Joint, JointParameters
from jaxdyn.joints.spherical import E1, E2, E3, Spherical
from jaxdyn.spatial import Motion, Quaternion, Transform, Vec3, left_jacobian, left_jacobian_inverse


class Free(Joint):
    """q = quaternion (w, x, y, z), then position (x, y, z); qd = body twist [angular; linear], body axes."""

    type = "free"
    nq = 7
    nv = 6
    leaves = ()
    unbounded = 1.0

    def transform(self, parameters: JointParameters, q: Coordinates) -> Transform:
        return Transform(Quaternion(*q[:4]).to_matrix(), Vec3(*q[4:]))

    def subspace(self, parameters: JointParameters, q: Coordinates) -> tuple[Motion, ...]:
        angular = tuple(Motion(e, Vec3.zero()) for e in (E1, E2, E3))
        return angular + tuple(Motion(Vec3.zero(), e) for e in (E1, E2, E3))

    def bias(self, parameters: JointParameters, q: Coordinates, qd: Coordinates) -> Motion:
        return Motion.zero()

    def integrate(self, q: Coordinates, dq: Coordinates) -> Coordinates:
        """Return T exp(dq), the exponential of SE(3); the quaternion has unit length."""
        w, v = Vec3(*dq[:3]), Vec3(*dq[3:])
        turned = Spherical().integrate(q[:4], dq[:3])
        moved = Vec3(*q[4:]) + Quaternion(*q[:4]).to_matrix() @ left_jacobian(w, v)
        return *turned, *moved

    def difference(self, q0: Coordinates, q1: Coordinates) -> Coordinates:
        """Return the logarithm of T0^-1 T1, the rotation the shorter way."""
        w = Spherical().difference(q0[:4], q1[:4])
        p = Quaternion(*q0[:4]).to_matrix().T @ (Vec3(*q1[4:]) - Vec3(*q0[4:]))
        return *w, *left_jacobian_inverse(Vec3(*w), p)

    def tangent(self, q: Coordinates, rate: Coordinates) -> Coordinates:
        """Return the twist in body axes."""
        return *Spherical().tangent(q[:4], rate[:4]), *(Quaternion(*q[:4]).to_matrix().T @ Vec3(*rate[4:]))

    def tangent_transposed(self, q: Coordinates, v: Coordinates) -> Coordinates:
        here, over_length = Quaternion(*q[:4]).unit()
        return *((2 * over_length) * (here @ Quaternion(0.0, *v[:3]))), *here.turn(Vec3(*v[3:]))

    def bracket(self, q: Coordinates, a: Coordinates, b: Coordinates) -> Coordinates:
        twist = Motion(Vec3(*a[:3]), Vec3(*a[3:])).cross(Motion(Vec3(*b[:3]), Vec3(*b[3:])))
        return *twist.ang, *twist.lin

    def neutral(self) -> tuple[float, ...]:
        return 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0

    def random(self, u: Coordinates, lower: Coordinates, upper: Coordinates) -> Coordinates:
        """Map to uniform rotations, and to positions between limits."""
        rotation = Spherical().random(u[:4], lower[:4], upper[:4])
        return *rotation, *super().random(u[4:], lower[4:], upper[4:])
