"""What spatial operators do at one body: the steps of their sweeps, and those that have none.

A floating base is eliminated in a loop over whole 6x6 matrices; all other joints column by column.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import cholesky_rows
from jaxdyn.algorithms.articulation import Rows
from jaxdyn.algorithms.filtering import Gain, corrected, gains_of, gains_with_link, innovations_of, smooth, whiten
from jaxdyn.algorithms.motion import Own, own_products
from jaxdyn.joints import combine
from jaxdyn.spatial import ArticulatedInertia, Force, Mat3, Motion, RigidInertia, Vec3


class Placed(NamedTuple):
    """A body of a stage in common axes, about its own origin."""

    R: Mat3
    """Rotation from link axes."""
    H: tuple[Motion, ...]
    """Columns of the joint, H*(k)."""
    l: Vec3
    """From the parent's origin to the body's."""
    M: RigidInertia
    """Inertia."""
    own: tuple[Own, ...] = ()
    """What it makes of the columns, in single precision."""


class Factor(NamedTuple):
    """What the filter leaves at the bodies of a stage."""

    P: ArticulatedInertia
    """Articulated inertia."""
    handed_on: ArticulatedInertia
    """What the parent is handed: phi P+ phi*."""
    gains: tuple[Gain, ...] | Base
    """Of each column: P H* L^-*, and the diagonal of L, the lower Cholesky factor of D = H P H* + A."""


class Base(NamedTuple):
    """The same of floating bases, as whole matrices (6, 6, ...)."""

    H: jax.Array | None
    """None for the identity: a base in its own axes."""
    U: jax.Array
    """P H*."""
    L: jax.Array
    L_inverse: jax.Array

    @property
    def G(self) -> jax.Array:
        """P H* L^-*."""
        return (self.U[:, None] * self.L_inverse[None]).sum(2)

    @property
    def L_inverse_H(self) -> jax.Array:
        """L^-1 H."""
        return self.L_inverse if self.H is None else (self.L_inverse[:, :, None] * self.H[None]).sum(1)

    def felt(self, f: Any) -> Rows:
        """Return H f of a spatial vector."""
        return (*f.ang, *f.lin) if self.H is None else _times(self.H, f)

    def moved(self, x: Any) -> Motion:
        """Return H* x of six rows."""
        return as_motion(six(x if self.H is None else _times(_T(self.H), x)))


class Frames(NamedTuple):
    """Points of bodies."""

    body: jax.Array
    """(frames, batch) number of the body; -1: the world."""
    point: jax.Array
    """(frames, 3, batch) in body coordinates."""


def six(parts: Any) -> Force:
    """Return six components as a spatial vector."""
    a, b, c, d, e, f = parts
    return Force(Vec3(a, b, c), Vec3(d, e, f))


def as_motion(x: Any) -> Motion:
    """Read a vector of body space as a motion."""
    return Motion(x.ang, x.lin)


def as_force(x: Any) -> Force:
    """Read a vector of body space as a force."""
    return Force(x.ang, x.lin)


# ---------------------------------------------------------------------- poses
def place_step(R: Mat3, link: Any) -> Any:
    """Cross a joint outward with the rotation; the link's data is in its own axes."""
    X, S, M = link
    l = R @ X.p
    R = R @ X.R
    return R, Placed(R, tuple(s.rotate(R) for s in S), l, M.rotate(R), own_products(M, S, R))


def place_base_step(world: Mat3, link: Any) -> Any:
    """Cross the joint of a floating base, into its own axes."""
    X, S, M = link
    return Mat3.identity(), Placed(Mat3.identity(), S, X.p, M)


def move_step(inboard: Any, body: Any) -> Any:
    """Cross a joint outward with rotation and velocity, given the joint's own in link axes."""
    (R, V), (link, V_J) = inboard, body
    R, placed = place_step(R, link)
    V = V.shift(placed.l) + V_J.rotate(R)
    return (R, V), (placed, V)


def move_base_step(world: Any, body: Any) -> Any:
    """Cross the joint of a floating base, into its own axes."""
    link, V = body
    R, placed = place_base_step(world[0], link)
    return (R, V), (placed, V)


# ---------------------------------------------------------------------- the filter (000 (36)-(41))
def factor_step(outboard: ArticulatedInertia, body: Any) -> Any:
    """Add the body to what is outboard, and eliminate its joint's columns."""
    M, H, l, noise, own = body
    P = outboard.plus_rigid(M) if isinstance(M, RigidInertia) else outboard + M
    gains = gains_with_link(outboard, M, own, H, noise) if own else gains_of(P, H, noise)
    handed_on = corrected(P, gains, l)
    return handed_on, Factor(P, handed_on, gains)


def factor_base_step(outboard: ArticulatedInertia, body: Any) -> Any:
    """Cross the joint of a floating base, which hands nothing on; its six columns are eliminated in a loop."""
    M, H, _, noise, _ = body
    P = outboard.plus_rigid(M) if isinstance(M, RigidInertia) else outboard + M
    if all(type(x) is float for x in jax.tree.leaves(H)):
        H_array, D = None, (U := P.to_array())
    else:
        U = jnp.stack([jnp.stack(jnp.broadcast_arrays(*f.ang, *f.lin)) for f in (P @ h for h in H)], axis=1)
        like = lambda x: jnp.broadcast_to(jnp.asarray(x, U.dtype), U.shape[2:])
        H_array = jnp.stack([jnp.stack([like(x) for x in (*h.ang, *h.lin)]) for h in H])
        D = (H_array[:, :, None] * U[None]).sum(1)
    one = jnp.asarray(np.eye(6), U.dtype)[(..., *(None,) * (U.ndim - 2))]
    L, L_inverse = cholesky_rows(D + one * jnp.stack(noise)[None])
    nothing = ArticulatedInertia.zero()
    return nothing, Factor(P, nothing, Base(H_array, U, L, L_inverse))


# ---------------------------------------------------------------------- sweeps
def _phi(outboard: Force, body: Any) -> Any:
    """Add up inward: phi x."""
    (l,), x = body
    y = outboard + as_force(x)
    return y.shift(l), y


def _phi_T(inboard: Motion, body: Any) -> Any:
    """Add up outward: phi* x."""
    (l,), x = body
    y = inboard.shift(l) + as_motion(x)
    return y, y


def _E_phi(outboard: Force, body: Any) -> Any:
    """Bring each body's to its parent: E_phi x."""
    (l,), x = body
    return as_force(x).shift(l), outboard


def _E_phi_T(inboard: Motion, body: Any) -> Any:
    """Bring each body's to its children: E_phi* x."""
    (l,), x = body
    return as_motion(x), inboard.shift(l)


def _psi(outboard: Force, body: Any) -> Any:
    """Add up inward through joints that give way: psi x; y - G H y crosses them."""
    (H, l, gains), x = body
    y = outboard + as_force(x)
    return innovations_of(y, H, gains, (0.0,) * len(H))[0].shift(l), y


def _psi_T(inboard: Motion, body: Any) -> Any:
    """Add up outward through joints that give way: psi* x; V - H* G* V crosses them."""
    (H, l, gains), x = body
    y = _given_way(inboard.shift(l), H, gains)[0] + as_motion(x)
    return y, y


def _m(outboard: Force, body: Any) -> Any:
    """Apply (I + H phi K) L."""
    (H, l, gains), x = body
    y = []
    for h, (G, root), e in zip(H, gains, x, strict=True):
        y.append(root * e + outboard.dot(h))
        outboard = outboard + e * G
    return outboard.shift(l), tuple(y)


def _m_T(inboard: Motion, body: Any) -> Any:
    """Apply L* (I + H phi K)*."""
    (H, l, gains), x = body
    V = inboard.shift(l)
    y: list[Any] = []
    for h, (G, root), v in zip(reversed(H), reversed(gains), reversed(x), strict=True):
        y.insert(0, root * v + G.dot(V))
        V = V + v * h
    return V, tuple(y)


def omega_step(inboard: ArticulatedInertia, body: Any) -> Any:
    """Find Omega(k) = psi* Omega psi + H* D^-1 H (001 5.2), column by column."""
    H, l, gains = body
    X = inboard.shift_dual(l)
    for h, (G, root) in zip(reversed(H), reversed(gains), strict=True):
        g = G / root
        u = as_motion(X @ as_motion(g))
        X = X.minus_pair(h, u - (0.5 * (g.dot(u) + 1 / (root * root))) * h)
    return X, X


def omega_base_step(base: Base, world: Any, H: Any) -> Any:
    """Find H* D^-1 H of a floating base."""
    half = base.L_inverse_H
    X = ArticulatedInertia.from_array((half[:, :, None] * half[:, None]).sum(0))
    return X, X


def gram_step(inboard: ArticulatedInertia, body: Any) -> Any:
    """As Omega, with phi for psi and 1 for D."""
    H, l = body
    X = inboard.shift_dual(l)
    for h in H:
        X = X.minus_pair(h, -0.5 * h)
    return X, X


SWEEPS = {
    "phi": (_phi, _phi_T),
    "E_phi": (_E_phi, _E_phi_T),
    "psi": (_psi, _psi_T),
    "m": (_m, _m_T),
    "m^-1": (whiten, smooth),
}
"""The steps of operators that couple bodies: inward, and outward for the transpose."""


# Floating bases stand on the world, which does not move, and hand nothing on to it.
def _base_psi(base: Base, outboard: Force, x: Any) -> Any:
    return Force.zero(), outboard + as_force(x)


def _base_psi_T(base: Base, world: Motion, x: Any) -> Any:
    return as_motion(x), as_motion(x)


def _base_m(base: Base, outboard: Force, x: Any) -> Any:
    return Force.zero(), tuple(a + b for a, b in zip(_times(base.L, x), base.felt(outboard), strict=True))


def _base_m_T(base: Base, world: Motion, x: Any) -> Any:
    return base.moved(x), _times(_T(base.L), x)


def _base_whiten(base: Base, outboard: Force, x: Any) -> Any:
    rest = tuple(a - b for a, b in zip(x, base.felt(outboard), strict=True))
    return Force.zero(), _times(base.L_inverse, rest)


def _base_smooth(base: Base, world: Motion, x: Any) -> Any:
    rates = _times(_T(base.L_inverse), x)
    return base.moved(rates), rates


BASE_SWEEPS = {
    "psi": (_base_psi, _base_psi_T),
    "m": (_base_m, _base_m_T),
    "m^-1": (_base_whiten, _base_smooth),
}
"""The steps of floating bases, where they differ."""


def _times(matrix: jax.Array, x: Any) -> Rows:
    """Return a matrix (6, 6, ...) times six rows, or times a spatial vector."""
    parts = x if isinstance(x, tuple) else (*x.ang, *x.lin)
    shape = np.broadcast_shapes(matrix.shape[2:], *(np.shape(part) for part in parts))
    rows = jnp.stack([jnp.broadcast_to(jnp.asarray(part, matrix.dtype), shape) for part in parts])
    return tuple((matrix * rows[None]).sum(1))


def _T(matrix: jax.Array) -> jax.Array:
    return jnp.swapaxes(matrix, 0, 1)


# ---------------------------------------------------------------------- body by body
def _given_way(V: Motion, H: Any, gains: Any) -> tuple[Motion, Rows]:
    """Return V - H* G* V, and -G* V."""
    rates: list[Any] = []
    for h, (G, root) in zip(reversed(H), reversed(gains), strict=True):
        rates.insert(0, -(G.dot(V) / root))
        V = V + rates[0] * h
    return V, tuple(rates)


def _L(H: Any, part: Factor, x: Any) -> Rows:
    if isinstance(part.gains, Base):
        return _times(part.gains.L, x)
    y, before = [], Force.zero()
    for h, (G, root), e in zip(H, part.gains, x, strict=True):
        y.append(root * e + before.dot(h))
        before = before + e * G
    return tuple(y)


def _L_T(H: Any, part: Factor, x: Any) -> Rows:
    if isinstance(part.gains, Base):
        return _times(_T(part.gains.L), x)
    y: list[Any] = []
    after = Motion.zero()
    for h, (G, root), v in zip(reversed(H), reversed(part.gains), reversed(x), strict=True):
        y.insert(0, root * v + G.dot(after))
        after = after + v * h
    return tuple(y)


def _L_inverse(H: Any, part: Factor, x: Any) -> Rows:
    if isinstance(part.gains, Base):
        return _times(part.gains.L_inverse, x)
    return innovations_of(Force.zero(), H, part.gains, x)[1]


def _L_inverse_T(H: Any, part: Factor, x: Any) -> Rows:
    if isinstance(part.gains, Base):
        return _times(_T(part.gains.L_inverse), x)
    y: list[Any] = []
    after = Motion.zero()
    for h, (G, root), v in zip(reversed(H), reversed(part.gains), reversed(x), strict=True):
        y.insert(0, (v - G.dot(after)) / root)
        after = after + y[0] * h
    return tuple(y)


def _G(H: Any, part: Factor, x: Any) -> Force:
    if isinstance(part.gains, Base):
        return six(_times(part.gains.G, _times(part.gains.L_inverse, x)))
    return innovations_of(Force.zero(), H, part.gains, x)[0]


def _G_T(H: Any, part: Factor, x: Any) -> Rows:
    if isinstance(part.gains, Base):
        return _times(_T(part.gains.L_inverse), _times(_T(part.gains.G), x))
    return tuple(-rate for rate in _given_way(as_motion(x), H, part.gains)[1])


def _tau_bar(H: Any, part: Factor, x: Any) -> Force:
    if isinstance(part.gains, Base):
        return as_force(x) - _G(H, part, part.gains.felt(x))
    return innovations_of(as_force(x), H, part.gains, (0.0,) * len(H))[0]


def _tau_bar_T(H: Any, part: Factor, x: Any) -> Motion:
    if isinstance(part.gains, Base):
        return as_motion(x) - part.gains.moved(_G_T(H, part, x))
    return _given_way(as_motion(x), H, part.gains)[0]


def _P_plus(H: Any, part: Factor, x: Any) -> Force:
    y = part.P @ as_motion(x)
    if isinstance(part.gains, Base):
        return y - six(_times(part.gains.G, _times(_T(part.gains.G), x)))
    for G, _ in part.gains:
        y = y - G.dot(as_motion(x)) * G
    return y


def _both(function: Any) -> tuple[Any, Any]:
    """Return a symmetric operator and its transpose."""
    return function, function


BODY_BY_BODY: dict[str, tuple[Any, Any]] = {
    "H": (lambda H, f: tuple(as_force(f).dot(h) for h in H), lambda H, x: combine(H, x)),
    "M": _both(lambda M, x: M @ as_motion(x)),
    "A": _both(lambda A, x: tuple(a * b for a, b in zip(A, x, strict=True))),
    "P": _both(lambda H, part, x: part.P @ as_motion(x)),
    "P_plus": _both(_P_plus),
    "D": _both(lambda H, part, x: _L(H, part, _L_T(H, part, x))),
    "D^-1": _both(lambda H, part, x: _L_inverse_T(H, part, _L_inverse(H, part, x))),
    "L": (_L, _L_T),
    "L^-1": (_L_inverse, _L_inverse_T),
    "G": (_G, _G_T),
    "tau_bar": (_tau_bar, _tau_bar_T),
}
"""Operators without memory, and their transposes: of a body's H, M or A, or of (H, what the filter left), and x."""
