"""Rigid-body inertia (ten numbers) and articulated-body inertia (a symmetric 6x6 in three blocks)."""

from __future__ import annotations

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import Scalar
from jaxdyn.spatial.components import Components, components, stack
from jaxdyn.spatial.linear import Mat3, Sym3, Vec3, cross_rows, outer, skew, symmetric_outer
from jaxdyn.spatial.transform import Transform
from jaxdyn.spatial.vectors import Force, Motion


@components
class RigidInertia(Components):
    r"""The inertia of a rigid body about the origin of its frame.

    .. math:: M = \begin{pmatrix} J & \tilde h \\ -\tilde h & m \end{pmatrix}, \quad h = m c
    """

    m: Scalar
    """Mass."""
    h: Vec3
    """First moment, mass times the vector from the origin to the centre of mass."""
    J: Sym3
    """Rotational inertia about the origin."""

    @classmethod
    def from_parameters(cls, pi: Any) -> Self:
        """Read an array (..., 10): m, m c, Ixx, Ixy, Iyy, Ixz, Iyz, Izz, about the origin."""
        m, hx, hy, hz, xx, xy, yy, xz, yz, zz = (pi[..., i] for i in range(10))
        return cls(m, Vec3(hx, hy, hz), Sym3(xx, xy, xz, yy, yz, zz))

    def to_parameters(self) -> Any:
        """Return an array (..., 10): m, m c, Ixx, Ixy, Iyy, Ixz, Iyz, Izz, about the origin."""
        J = self.J
        return stack([self.m, *self.h, J.xx, J.xy, J.yy, J.xz, J.yz, J.zz])

    @classmethod
    def from_com(cls, mass: Scalar, com: Vec3, inertia: Sym3) -> Self:
        """Build from mass, centre of mass and rotational inertia about the centre of mass."""
        return cls(mass, mass * com, inertia + parallel_axis(mass, com))

    def central(self) -> tuple[Scalar, Vec3, Sym3]:
        """Return mass, centre of mass and rotational inertia about it; the mass must not be zero."""
        com = (1 / self.m) * self.h
        return self.m, com, self.J - parallel_axis(self.m, com)

    def __matmul__(self, V: Motion) -> Force:
        """Return the momentum M V."""
        return Force(self.J @ V.ang + self.h.cross(V.lin), self.m * V.lin - self.h.cross(V.ang))

    def to_array(self) -> Any:
        """Return the matrix, an array (6, 6, ...)."""
        gathered = lambda parts, places: (
            np.sign(places).reshape((6, 6) + (1,) * jnp.ndim(parts[0])) * jnp.stack(parts)[np.abs(places) - 1]
        )
        *J, m, x, y, z = jnp.broadcast_arrays(*self.J, self.m, *self.h)
        return gathered(J, _ROTATIONAL) + gathered((m, x, y, z), _OTHER)

    def rotate(self, R: Mat3) -> RigidInertia:
        """Return the same inertia in other axes, about the same point."""
        return RigidInertia(self.m, R @ self.h, R.congruence(self.J))

    def shift(self, l: Vec3) -> RigidInertia:
        """Return phi M phi*: the same inertia about a point that lies l before."""
        h = self.h + self.m * l
        # J + (h.l + l.h) 1 - (h l* + l h*) + m (l.l 1 - l l*), grouped as products with h and h + m l
        J = self.J + Sym3.scalar(l.dot(self.h + h)) - (outer(l, self.h) + outer(h, l)).upper
        return RigidInertia(self.m, h, J)

    def transform(self, X_a_b: Transform) -> RigidInertia:
        """Return in frame a an inertia given in frame b (congruence)."""
        return self.rotate(X_a_b.R).shift(X_a_b.p)


@components
class Moments(Components):
    """A rigid body's inertia by its second moments, which a shift takes fewer operations to change than J."""

    m: Scalar
    """Mass."""
    h: Vec3
    """First moment."""
    S: Sym3
    """Second moments, the sum of m r r* over all points: J = tr(S) 1 - S. Of a slender body J loses digits."""

    @classmethod
    def of(cls, M: RigidInertia) -> Self:
        """Return the moments of a rigid body's inertia."""
        return cls(M.m, M.h, Sym3.scalar(0.5 * M.J.trace) - M.J)

    @property
    def inertia(self) -> RigidInertia:
        """The inertia that has these moments."""
        S = self.S
        return RigidInertia(self.m, self.h, Sym3(S.yy + S.zz, -S.xy, -S.xz, S.xx + S.zz, -S.yz, S.xx + S.yy))

    def rotate(self, R: Mat3) -> Moments:
        """Return the same moments in other axes, about the same point."""
        return Moments(self.m, R @ self.h, R.congruence(self.S))

    def shift(self, l: Vec3) -> Moments:
        """Return the moments about a point that lies l before: S + h l* + l (h + m l)*."""
        h = self.h + self.m * l
        return Moments(self.m, h, self.S + (outer(self.h, l) + outer(l, h)).upper)


def parallel_axis(m: Scalar, c: Vec3) -> Sym3:
    """Return the rotational inertia m (c.c 1 - c c*) of a point mass at c."""
    return m * (Sym3.scalar(c.dot(c)) - symmetric_outer(c, c))


@components
class ArticulatedInertia(Components):
    """A symmetric 6x6 matrix [[A, B], [B*, C]] that takes motions to forces."""

    A: Sym3
    B: Mat3
    C: Sym3

    @classmethod
    def zero(cls) -> Self:
        """Return the zero inertia, in plain numbers."""
        return cls(Sym3.zero(), Mat3.zero(), Sym3.zero())

    @classmethod
    def from_rigid(cls, M: RigidInertia) -> Self:
        """Return a rigid body's inertia as a 6x6."""
        return cls(M.J, skew(M.h), Sym3.scalar(M.m))

    def __matmul__(self, V: Motion) -> Force:
        """Return the force P V."""
        return Force(self.A @ V.ang + self.B @ V.lin, self.B.T @ V.ang + self.C @ V.lin)

    def to_array(self) -> Any:
        """Return the matrix, an array (6, 6, ...)."""
        return jnp.stack(jnp.broadcast_arrays(*jax.tree.leaves(self)))[_ARTICULATED]

    @classmethod
    def from_array(cls, array: Any) -> Self:
        """Read the upper triangle of a symmetric matrix, an array (6, 6, ...)."""
        block = lambda i, j: Mat3(*(Vec3(*(array[i + a, j + b] for b in range(3))) for a in range(3)))
        return cls(block(0, 0).upper, block(0, 3), block(3, 3).upper)

    def minus_pair(self, a: Any, b: Any) -> ArticulatedInertia:
        """Return P - (a b* + b a*)."""
        return ArticulatedInertia(
            self.A - (outer(a.ang, b.ang) + outer(b.ang, a.ang)).upper,
            self.B - (outer(a.ang, b.lin) + outer(b.ang, a.lin)),
            self.C - (outer(a.lin, b.lin) + outer(b.lin, a.lin)).upper,
        )

    def shift_dual(self, l: Vec3) -> ArticulatedInertia:
        """Return phi* X phi, of a matrix that takes forces to motions: the same about a point further by l."""
        turned = ArticulatedInertia(self.C, self.B.T, self.A).shift(-l)
        return ArticulatedInertia(turned.C, turned.B.T, turned.A)

    def plus_rigid(self, M: RigidInertia) -> ArticulatedInertia:
        """Return P + M."""
        return self + ArticulatedInertia.from_rigid(M)

    def downdate(self, G: Force) -> ArticulatedInertia:
        """Return P - G G*."""
        return ArticulatedInertia(
            self.A - symmetric_outer(G.ang, G.ang), self.B - outer(G.ang, G.lin), self.C - symmetric_outer(G.lin, G.lin)
        )

    def moved(self, V: Motion) -> ArticulatedInertia:
        """Return V x* P - P V x: the change of an inertia that moves by V."""
        X, Y = cross_rows(V.ang, self.A.full) + cross_rows(V.lin, self.B.T), cross_rows(V.ang, self.C.full)
        B = cross_rows(V.ang, self.B) + cross_rows(V.ang, self.B.T).T + cross_rows(V.lin, self.C.full)
        return ArticulatedInertia((X + X.T).upper, B, (Y + Y.T).upper)

    def rotate(self, R: Mat3) -> ArticulatedInertia:
        """Return the same inertia in other axes, about the same point."""
        return ArticulatedInertia(R.congruence(self.A), R @ self.B @ R.T, R.congruence(self.C))

    def shift(self, l: Vec3) -> ArticulatedInertia:
        """Return phi P phi*: B + l~ C, and A + l~ B* + (l~ B*)* + l~ C l~*."""
        lC = cross_rows(l, self.C.full)
        X, Y = cross_rows(l, self.B.T), cross_rows(l, lC.T)
        return ArticulatedInertia(self.A + (X + X.T + Y).upper, self.B + lC, self.C)

    def transform(self, X_a_b: Transform) -> ArticulatedInertia:
        """Return in frame a an inertia given in frame b (congruence)."""
        return self.rotate(X_a_b.R).shift(X_a_b.p)


def _matrix(A: Sym3, B: Mat3, C: Sym3) -> np.ndarray:
    """Return the 6x6 matrix [[A, B], [B*, C]] of plain numbers."""
    top, bottom = zip(A.full, B, strict=True), zip(B.T, C.full, strict=True)
    return np.array([[*a, *b] for a, b in (*top, *bottom)], np.int32)


# Matrices are gathered from their components: written out entry by entry, they are long to compile.
_ARTICULATED = _matrix(Sym3(*range(6)), Mat3(*(Vec3(*range(i, i + 3)) for i in (6, 9, 12))), Sym3(*range(15, 21)))
"""Which component of an `ArticulatedInertia` each entry of its matrix is."""
_ROTATIONAL = _matrix(Sym3(*range(1, 7)), Mat3.zero(), Sym3.zero())
_OTHER = _matrix(Sym3.zero(), skew(Vec3(2, 3, 4)), Sym3.scalar(1))
"""The same for a `RigidInertia`, J and (m, h), counted from 1 and with signs; 0 where there is none."""
