"""How spatial operators run on a robot at a configuration: phi and psi as sweeps, all others body by body.

A vector of joint space is by stage and column, as in `algorithms.articulation`; one of body space is by stage, six
components about each body's own origin. Arrays have the batch as last axis, and before it, if there is one, an
axis of columns: an operator applied to a matrix.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxdyn.algorithms.articulation import Rows, articulation
from jaxdyn.algorithms.motion import joint_columns, link_inertias, moving_links, placed_links, world_in_motion
from jaxdyn.model import Model
from jaxdyn.operators.steps import (
    BASE_SWEEPS,
    BODY_BY_BODY,
    SWEEPS,
    Base,
    Factor,
    Frames,
    as_force,
    as_motion,
    factor_base_step,
    factor_step,
    gram_step,
    omega_base_step,
    omega_step,
    six,
)
from jaxdyn.spatial import ArticulatedInertia, Force, Motion, Vec3

Stages = list[Any]


class Mechanism:
    """The bodies of a robot at a configuration, in axes common to all, each about its own origin."""

    def __init__(self, model: Model, q: jax.Array, *, root_axes: bool, columns: bool = False, qd: Any = None):
        """Place the bodies.

        Args:
            model: the model, leaves (..., batch).
            q: configuration, (nq, batch).
            root_axes: take the axes of floating bases; of use where neither bodies nor frames are seen from outside.
            columns: vectors have an axis of columns before the batch.
            qd: velocity, (nv, batch), if the bodies' own are wanted.
        """
        self.joints = articulation(model.topology)
        self._model, self._columns = model, columns
        self._links = self.joints.links(model, q)
        self._placed: Stages
        if qd is None:
            self._placed = placed_links(self.joints, self._links, root_axes=root_axes)
        else:
            at_rest = world_in_motion(model, gravity=False)
            self._placed = moving_links(self.joints, model, self._links, q, qd, None, at_rest, root_axes=root_axes)
            self.V: Stages = [m.V for m in self._placed]
            """Velocities."""
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

    def column_rates(self, q: jax.Array, qd: jax.Array) -> Stages:
        """Return the rates of the joints' columns at a velocity, seen from the bodies."""
        rates = self.joints.subspace_rates(self._model, q, qd)
        return [tuple(x.rotate(m.R) for x in columns) for columns, m in zip(rates, self._placed, strict=True)]

    def loads(self, f_ext: jax.Array | None) -> Stages:
        """Return gravity, in world axes, and forces on bodies, (nbodies, 6, batch) in their own axes."""
        down = [stage.everywhere(Vec3(*self._model.gravity)) for stage in self.joints.stages]
        weights = [M @ Motion(Vec3.zero(), g) for M, g in zip(self.M, down, strict=True)]
        if f_ext is None:
            return weights
        stages = zip(weights, self.joints.forces(f_ext, self._links), self._placed, strict=True)
        return [weight + f.rotate(m.R) for weight, f, m in stages]

    @cached_property
    def armature(self) -> list[Rows]:
        """Armature of each column."""
        return self._spread(self.joints.rows(self._model.armature))

    @cached_property
    def factor(self) -> list[Factor]:
        """Articulated inertias and gains."""
        H, l = joint_columns(self._links, self._placed), [m.l for m in self._placed]
        return self._spread(self.filtered(self._inertias, H, l, self.noise))

    @property
    def noise(self) -> list[Rows]:
        """Armature of each column, for the filter: a column that is not there moves nothing."""
        return self.joints.rows(self._model.armature, nothing=1.0)

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
        return self.joints.walk.inward(factor_step, ArticulatedInertia.zero(), bodies, factor_base_step)[1]

    def Omega(self, *, rigid: bool = False) -> Stages:
        """Return the bodies' inverse inertias in the assembled robot, phi* H* M^-1 H phi on the diagonal (001 5.2).

        If rigid, joints do not give way and D is 1: phi* H* H phi (001 section 2).
        """
        nothing = ArticulatedInertia.zero()
        if rigid:
            return self.joints.walk.outward(gram_step, nothing, list(zip(self.H, self.l, strict=True)))
        data: Stages = list(zip(self.H, self.l, [f.gains for f in self.factor], strict=True))
        base_step = None
        if isinstance(base := self.factor[0].gains, Base):
            data[0], base_step = self.H[0], partial(omega_base_step, base)
        return self.joints.walk.outward(omega_step, nothing, data, base_step)

    # ------------------------------------------------------------------ vectors
    def take(self, space: str | None, x: jax.Array) -> Any:
        """Bring a vector into its stages."""
        if space == "joint":
            return self.joints.rows(x)
        if space != "body":
            return x
        parts = x.reshape((self._model.nbodies, 6, *x.shape[1:]))
        return self.joints.walk.take(six(parts[:, i] for i in range(6)))

    def give(self, space: str | None, x: Any) -> jax.Array:
        """Bring a vector back from its stages."""
        if space == "joint":
            return self.joints.collect(x)
        if space != "body":
            return x
        whole = self.joints.by_body([as_force(v) for v in x])
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
            f = six(x[6 * k + i] for i in range(6))
            parts = zip(total, self.joints.stages, self.points(frames, k), strict=True)
            total = [t + here * stage.everywhere(f).shift(r) for t, stage, (here, r) in parts]
        return total

    def _from_bodies(self, frames: Any, x: Stages) -> jax.Array:
        """Return the motions of frames from those of the bodies: B* V."""
        parts = []
        for k in range(len(frames.body)):
            V = [here * as_motion(v).shift(r) for v, (here, r) in zip(x, self.points(frames, k), strict=True)]
            axes = [tuple(range(stage.bodies.ndim)) for stage in self.joints.stages]
            for i in range(6):
                parts.append(sum((*v.ang, *v.lin)[i].sum(axis) for v, axis in zip(V, axes, strict=True)))
        return jnp.stack(jnp.broadcast_arrays(*parts))
