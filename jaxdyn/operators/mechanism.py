"""How spatial operators run on a robot at a configuration: phi and psi as sweeps, all others body by body.

A vector of joint space is by stage and column, as in `algorithms.articulation`; one of body space is by stage, six
components about each body's own origin. Arrays have the batch as last axis, and before it, if there is one, an
axis of columns: an operator applied to a matrix.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import eliminate_rows
from jaxdyn.algorithms.aba import Gain, corrected, gains_of, innovations_of, smooth, whiten
from jaxdyn.algorithms.articulation import Rows, articulation
from jaxdyn.algorithms.motion import joint_columns, link_inertias, placed_links
from jaxdyn.joints import combine
from jaxdyn.model import Model
from jaxdyn.spatial import ArticulatedInertia, Force, Motion, RigidInertia, Vec3

Stages = list[Any]


class Factor(NamedTuple):
    """What the filter leaves at the bodies of a stage."""

    P: ArticulatedInertia
    """Articulated inertia."""
    gains: tuple[Gain, ...] | Base
    """Of each column: P H* L^-*, and the diagonal of L, the lower Cholesky factor of D = H P H* + A."""


class Base(NamedTuple):
    """The same of floating bases, as whole matrices (6, 6, ...)."""

    H: jax.Array
    G: jax.Array
    """P H* L^-*."""
    L: jax.Array
    L_inverse: jax.Array


class Frames(NamedTuple):
    """Points of bodies."""

    body: jax.Array
    """(frames, batch) number of the body; -1: the world."""
    point: jax.Array
    """(frames, 3, batch) in body coordinates."""


class Mechanism:
    """The bodies of a robot at a configuration, in axes common to all, each about its own origin."""

    def __init__(self, model: Model, q: jax.Array, *, root_axes: bool, columns: bool):
        """Place the bodies.

        Args:
            model: the model, leaves (..., batch).
            q: configuration, (nq, batch).
            root_axes: take the axes of floating bases; of use where neither bodies nor frames are seen from outside.
            columns: vectors have an axis of columns before the batch.
        """
        self.joints = articulation(model.topology)
        self._model, self._columns = model, columns
        self._links = self.joints.links(model, q)
        self._placed = placed_links(self.joints, self._links, root_axes=root_axes)
        self.H: Stages = self._spread(joint_columns(self._links, self._placed))
        """Columns of the joints, H*(k)."""
        self.l: Stages = self._spread([m.l for m in self._placed])
        """From the parent's origin to the body's."""

    def _spread(self, tree: Any) -> Any:
        """Give data of the bodies the axis of columns."""
        if not self._columns:
            return tree
        return jax.tree.map(lambda x: x if type(x) is float else x[..., None, :], tree)

    @cached_property
    def M(self) -> Stages:
        """Inertias."""
        return self._spread(self._inertias)

    @cached_property
    def _inertias(self) -> Stages:
        return link_inertias(self.joints, self._model, self._links, self._placed)

    @cached_property
    def R(self) -> Stages:
        """Rotations from the bodies' own axes."""
        return self._spread(self.joints.body_rotations(self._links, [m.R for m in self._placed]))

    @cached_property
    def armature(self) -> list[Rows]:
        """Armature of each column."""
        return self._spread(self.joints.rows(self._model.armature))

    @cached_property
    def factor(self) -> list[Factor]:
        """Articulated inertias and gains."""
        H, l = joint_columns(self._links, self._placed), [m.l for m in self._placed]
        noise = self.joints.rows(self._model.armature, nothing=1.0)  # a column that is not there moves nothing
        return self._spread(self.filtered(self._inertias, H, l, noise))

    def use(self, factor: list[Factor]) -> None:
        """Take other articulated inertias and gains than the robot's own."""
        self.__dict__["factor"] = self._spread(factor)

    @property
    def roots(self) -> list[Rows]:
        """Diagonal of L by column."""
        diagonal = lambda g: tuple(g.L[k, k] for k in range(6)) if isinstance(g, Base) else tuple(x.root for x in g)
        return [diagonal(part.gains) for part in self.factor]

    def filtered(self, M: Stages, H: Stages, l: Stages, noise: list[Rows]) -> list[Factor]:
        """Return articulated inertias and gains for any inertias of the bodies."""
        bodies = list(zip(M, H, l, noise, strict=True))
        return self.joints.walk.inward(_factor, ArticulatedInertia.zero(), bodies, _factor_of_base)[1]

    def Omega(self, *, rigid: bool = False) -> Stages:
        """Return the bodies' inverse inertias in the assembled robot, phi* H* M^-1 H phi on the diagonal (001 5.2).

        If rigid, joints do not give way and D is 1: phi* H* H phi (001 section 2).
        """
        nothing = ArticulatedInertia.zero()
        if rigid:
            return self.joints.walk.outward(_gram, nothing, list(zip(self.H, self.l, strict=True)))
        data: Stages = list(zip(self.H, self.l, [f.gains for f in self.factor], strict=True))
        base_step = None
        if isinstance(base := self.factor[0].gains, Base):
            data[0], base_step = self.H[0], partial(_base_omega, base)
        return self.joints.walk.outward(_omega, nothing, data, base_step)

    # ------------------------------------------------------------------ vectors
    def take(self, space: str | None, x: jax.Array) -> Any:
        """Bring a vector into its stages."""
        if space == "joint":
            return self.joints.rows(x)
        if space != "body":
            return x
        parts = x.reshape((self._model.nbodies, 6, *x.shape[1:]))
        return self.joints.walk.take(_six(parts[:, i] for i in range(6)))

    def give(self, space: str | None, x: Any) -> jax.Array:
        """Bring a vector back from its stages."""
        if space == "joint":
            return self.joints.collect(x)
        if space != "body":
            return x
        whole = self.joints.by_body([_force(v) for v in x])
        parts = jnp.stack([*whole.ang, *whole.lin], axis=1)
        return parts.reshape((-1, *parts.shape[2:]))

    # ------------------------------------------------------------------ operators
    def apply(self, name: str, transposed: bool, x: Any, frames: Frames | None = None) -> Any:
        """Apply an operator, or its transpose, to a vector in stages."""
        if name == "B":
            return (self._from_bodies if transposed else self._to_bodies)(frames, x)
        if name in ("E_psi", "K"):  # E_psi = E_phi tau_bar, K = E_phi G
            inner = "tau_bar" if name == "E_psi" else "G"
            order = ("E_phi", inner) if transposed else (inner, "E_phi")
            for part in order:
                x = self.apply(part, transposed, x)
            return x
        if name in SWEEPS:
            step, base_step = SWEEPS[name][transposed], None
            data = [self.l] if name in ("phi", "E_phi") else [self.H, self.l, [f.gains for f in self.factor]]
            bodies = list(zip(zip(*data, strict=True), x, strict=True))
            if name in BASE_SWEEPS and isinstance(base := self.factor[0].gains, Base):
                bodies[0], base_step = x[0], partial(BASE_SWEEPS[name][transposed], base)
            if transposed:
                return self.joints.walk.outward(step, Motion.zero(), bodies, base_step)
            return self.joints.walk.inward(step, Force.zero(), bodies, base_step)[1]
        function = BODY_BY_BODY[name][transposed]
        if name in ("H", "M", "A"):
            data = {"H": self.H, "M": self.M, "A": self.armature}[name]
            return [function(body, v) for body, v in zip(data, x, strict=True)]
        return [function(H, part, v) for H, part, v in zip(self.H, self.factor, x, strict=True)]

    def points(self, frames: Frames, k: int) -> list[tuple[jax.Array, Vec3]]:
        """Return by stage where frame k is (1) or is not (0), and its point relative to every body's origin."""
        found = []
        for stage, R in zip(self.joints.stages, self.R, strict=True):
            body, point = stage.everywhere(self._spread((frames.body[k], Vec3(*frames.point[k]))))
            bodies = stage.bodies.reshape(stage.bodies.shape + (1,) * (body.ndim - stage.bodies.ndim))
            found.append(((bodies == body).astype(point.x.dtype), R @ point))
        return found

    def _to_bodies(self, frames: Any, x: jax.Array) -> Stages:
        """Return forces on bodies from forces at frames: B f."""
        total: Stages = [Force.zero()] * len(self.H)
        for k in range(len(frames.body)):
            f = _six(x[6 * k + i] for i in range(6))
            parts = zip(total, self.joints.stages, self.points(frames, k), strict=True)
            total = [t + here * stage.everywhere(f).shift(r) for t, stage, (here, r) in parts]
        return total

    def _from_bodies(self, frames: Any, x: Stages) -> jax.Array:
        """Return the motions of frames from those of the bodies: B* V."""
        parts = []
        for k in range(len(frames.body)):
            V = [here * _motion(v).shift(r) for v, (here, r) in zip(x, self.points(frames, k), strict=True)]
            axes = [tuple(range(stage.bodies.ndim)) for stage in self.joints.stages]
            for i in range(6):
                parts.append(sum((*v.ang, *v.lin)[i].sum(axis) for v, axis in zip(V, axes, strict=True)))
        return jnp.stack(jnp.broadcast_arrays(*parts))


def _six(parts: Any) -> Force:
    a, b, c, d, e, f = parts
    return Force(Vec3(a, b, c), Vec3(d, e, f))


def _motion(x: Any) -> Motion:
    return Motion(x.ang, x.lin)


def _force(x: Any) -> Force:
    return Force(x.ang, x.lin)


# ---------------------------------------------------------------------- the filter (000 (36)-(41))
def _factor(outboard: ArticulatedInertia, body: Any) -> Any:
    M, H, l, noise = body
    P = outboard.plus_rigid(M) if isinstance(M, RigidInertia) else outboard + M
    gains = gains_of(P, H, noise)
    return corrected(P, gains, l), Factor(P, gains)


def _factor_of_base(outboard: ArticulatedInertia, body: Any) -> Any:
    """Cross the joint of a floating base, which hands nothing on; its six columns are eliminated in a loop."""
    M, H, _, noise = body
    P = outboard.plus_rigid(M) if isinstance(M, RigidInertia) else outboard + M
    U = jnp.stack([jnp.stack(jnp.broadcast_arrays(*f.ang, *f.lin)) for f in (P @ h for h in H)], axis=1)
    like = lambda x: jnp.broadcast_to(jnp.asarray(x, U.dtype), U.shape[2:])
    H_array = jnp.stack([jnp.stack([like(x) for x in (*h.ang, *h.lin)]) for h in H])
    one = jnp.broadcast_to(jnp.asarray(np.eye(6), U.dtype)[(..., *(None,) * (U.ndim - 2))], U.shape)
    D = (H_array[:, :, None] * U[None]).sum(1) + one * jnp.stack(noise)[None]
    L, both = eliminate_rows(D, jnp.concatenate([U, one]))
    G, L_inverse = jnp.moveaxis(both[:, :6], 0, 1), both[:, 6:]  # the columns of L^-* are the rows of L^-1
    return ArticulatedInertia.zero(), Factor(P, Base(H_array, G, jnp.moveaxis(L, 0, 1), L_inverse))


# ---------------------------------------------------------------------- sweeps
def _phi(outboard: Force, body: Any) -> Any:
    """Add up inward: phi x."""
    (l,), x = body
    y = outboard + _force(x)
    return y.shift(l), y


def _phi_T(inboard: Motion, body: Any) -> Any:
    """Add up outward: phi* x."""
    (l,), x = body
    y = inboard.shift(l) + _motion(x)
    return y, y


def _E_phi(outboard: Force, body: Any) -> Any:
    """Bring each body's to its parent: E_phi x."""
    (l,), x = body
    return _force(x).shift(l), outboard


def _E_phi_T(inboard: Motion, body: Any) -> Any:
    """Bring each body's to its children: E_phi* x."""
    (l,), x = body
    return _motion(x), inboard.shift(l)


def _psi(outboard: Force, body: Any) -> Any:
    """Add up inward through joints that give way: psi x; y - G H y crosses them."""
    (H, l, gains), x = body
    y = outboard + _force(x)
    return innovations_of(y, H, gains, (0.0,) * len(H))[0].shift(l), y


def _psi_T(inboard: Motion, body: Any) -> Any:
    """Add up outward through joints that give way: psi* x; V - H* G* V crosses them."""
    (H, l, gains), x = body
    y = _given_way(inboard.shift(l), H, gains)[0] + _motion(x)
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


def _omega(inboard: ArticulatedInertia, body: Any) -> Any:
    """Find Omega(k) = psi* Omega psi + H* D^-1 H (001 5.2), column by column."""
    H, l, gains = body
    X = inboard.shift_dual(l)
    for h, (G, root) in zip(reversed(H), reversed(gains), strict=True):
        g = G / root
        u = _motion(X @ _motion(g))
        X = X.minus_pair(h, u - (0.5 * (g.dot(u) + 1 / (root * root))) * h)
    return X, X


def _base_omega(base: Base, world: Any, H: Any) -> Any:
    half = (base.L_inverse[:, :, None] * base.H[None]).sum(1)  # L^-1 H
    X = ArticulatedInertia.from_array((half[:, :, None] * half[:, None]).sum(0))
    return X, X


def _gram(inboard: ArticulatedInertia, body: Any) -> Any:
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
    return Force.zero(), outboard + _force(x)


def _base_psi_T(base: Base, world: Motion, x: Any) -> Any:
    return _motion(x), _motion(x)


def _base_m(base: Base, outboard: Force, x: Any) -> Any:
    return Force.zero(), tuple(a + b for a, b in zip(_times(base.L, x), _times(base.H, outboard), strict=True))


def _base_m_T(base: Base, world: Motion, x: Any) -> Any:
    return _motion(_six(_times(_T(base.H), x))), _times(_T(base.L), x)


def _base_whiten(base: Base, outboard: Force, x: Any) -> Any:
    rest = tuple(a - b for a, b in zip(x, _times(base.H, outboard), strict=True))
    return Force.zero(), _times(base.L_inverse, rest)


def _base_smooth(base: Base, world: Motion, x: Any) -> Any:
    rates = _times(_T(base.L_inverse), x)
    return _motion(_six(_times(_T(base.H), rates))), rates


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
        return _six(_times(part.gains.G, _times(part.gains.L_inverse, x)))
    return innovations_of(Force.zero(), H, part.gains, x)[0]


def _G_T(H: Any, part: Factor, x: Any) -> Rows:
    if isinstance(part.gains, Base):
        return _times(_T(part.gains.L_inverse), _times(_T(part.gains.G), x))
    return tuple(-rate for rate in _given_way(_motion(x), H, part.gains)[1])


def _tau_bar(H: Any, part: Factor, x: Any) -> Force:
    if isinstance(part.gains, Base):
        return _force(x) - _G(H, part, _times(part.gains.H, x))
    return innovations_of(_force(x), H, part.gains, (0.0,) * len(H))[0]


def _tau_bar_T(H: Any, part: Factor, x: Any) -> Motion:
    if isinstance(part.gains, Base):
        return _motion(x) - _motion(_six(_times(_T(part.gains.H), _G_T(H, part, x))))
    return _given_way(_motion(x), H, part.gains)[0]


def _P_plus(H: Any, part: Factor, x: Any) -> Force:
    y = part.P @ _motion(x)
    if isinstance(part.gains, Base):
        return y - _six(_times(part.gains.G, _times(_T(part.gains.G), x)))
    for G, _ in part.gains:
        y = y - G.dot(_motion(x)) * G
    return y


def _both(function: Any) -> tuple[Any, Any]:
    """Return a symmetric operator and its transpose."""
    return function, function


BODY_BY_BODY: dict[str, tuple[Any, Any]] = {
    "H": (lambda H, f: tuple(_force(f).dot(h) for h in H), lambda H, x: combine(H, x)),
    "M": _both(lambda M, x: M @ _motion(x)),
    "A": _both(lambda A, x: tuple(a * b for a, b in zip(A, x, strict=True))),
    "P": _both(lambda H, part, x: part.P @ _motion(x)),
    "P_plus": _both(_P_plus),
    "D": _both(lambda H, part, x: _L(H, part, _L_T(H, part, x))),
    "D^-1": _both(lambda H, part, x: _L_inverse_T(H, part, _L_inverse(H, part, x))),
    "L": (_L, _L_T),
    "L^-1": (_L_inverse, _L_inverse_T),
    "G": (_G, _G_T),
    "tau_bar": (_tau_bar, _tau_bar_T),
}
"""Operators without memory, and their transposes: of a body's H, M or A, or of (H, what the filter left), and x."""
