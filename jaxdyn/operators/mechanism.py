"""How spatial operators run on a robot at a configuration: in passes over the bodies (see `passes`).

A vector of joint space is by stage and column, as in `algorithms.articulation`; one of body space is by stage, six
components about each body's own origin. Arrays have the batch as last axis, and before it, if there is one, an
axis of columns: an operator applied to a matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.algorithms.articulation import Rows, articulation, joint_motions
from jaxdyn.model import Model
from jaxdyn.operators.expressions import Atom
from jaxdyn.operators.passes import FILTER, PLACE, Body, Pass, passes
from jaxdyn.operators.steps import (
    Base,
    Factor,
    Frames,
    Placed,
    as_force,
    as_motion,
    factor_base_step,
    factor_step,
    gram_step,
    move_base_step,
    move_step,
    omega_base_step,
    omega_step,
    six,
)
from jaxdyn.spatial import ArticulatedInertia, Force, Mat3, Motion, Vec3

Stages = list[Any]


class Mechanism:
    """The bodies of a robot at a configuration, in axes common to all, each about its own origin.

    Poses and the filter are found when they are first asked for: by a pass that applies operators, on its way, or by
    one of their own.
    """

    def __init__(self, model: Model, q: jax.Array, *, root_axes: bool, columns: bool = False, qd: Any = None):
        """Take a robot.

        Args:
            model: the model, leaves (..., batch).
            q: configuration, (nq, batch).
            root_axes: take the axes of floating bases; of use where neither bodies nor frames are seen from outside.
            columns: vectors have an axis of columns before the batch.
            qd: velocity, (nv, batch), if the bodies' own are wanted.
        """
        self.joints = articulation(model.topology)
        self._model, self._columns, self._root_axes, self._states = model, columns, root_axes, q.shape[-1]
        self._links = self.joints.links(model, q)
        self._found: dict[Atom, Stages] = {}
        """What is known of the bodies: `Placed`, and `Factor`."""
        if qd is not None:
            V_J = joint_motions(self._links, self.joints.rows(qd))
            bodies = list(zip(self._in_link_axes(), V_J, strict=True))
            start = Mat3.identity(), Motion.zero()
            moved = self.joints.walk.outward(move_step, start, bodies, move_base_step if root_axes else None)
            self._found[PLACE] = [placed for placed, _ in moved]
            self.V: Stages = [V for _, V in moved]
            """Velocities."""

    def _in_link_axes(self) -> Stages:
        """Return pose on the parent, columns and inertia of the links in their own axes."""
        inertias = self.joints.inertias(self._model, self._links)
        return [(link.X, link.S, M) for link, M in zip(self._links, inertias, strict=True)]

    def _spread(self, tree: Any) -> Any:
        """Give data of the bodies the axis of columns."""
        if not self._columns:
            return tree
        return jax.tree.map(lambda x: x if type(x) is float else x[..., None, :], tree)

    def _find(self, what: Atom) -> Stages:
        """Return what is known of the bodies; if it is not known yet, find it by a pass of its own."""
        if what not in self._found:
            self._run(Pass((what,)), [()] * len(self._links))
        return self._found[what]

    @property
    def _placed(self) -> list[Placed]:
        return self._find(PLACE)

    @cached_property
    def _bodies(self) -> list[Placed]:
        return self._spread(self._placed)

    @property
    def H(self) -> Stages:
        """Columns of the joints, H*(k)."""
        return [body.H for body in self._bodies]

    @property
    def l(self) -> Stages:  # noqa: E743 -- the papers' letter
        """From the parent's origin to the body's."""
        return [body.l for body in self._bodies]

    @property
    def M(self) -> Stages:
        """Inertias."""
        return [body.M for body in self._bodies]

    @property
    def own(self) -> Stages:
        """What inertias make of the columns of their own joints, in single precision."""
        return [body.own for body in self._bodies]

    @cached_property
    def R(self) -> Stages:
        """Rotations from the bodies' own axes."""
        return self._spread(self.joints.body_rotations(self._links, [m.R for m in self._placed]))

    def column_rates(self, q: jax.Array, qd: jax.Array) -> Stages:
        """Return the rates of the joints' columns at a velocity, seen from the bodies."""
        rates = self.joints.subspace_rates(self._model, q, qd)
        return [tuple(x.rotate(m.R) for x in columns) for columns, m in zip(rates, self._placed, strict=True)]

    @property
    def down(self) -> list[Vec3]:
        """Gravity, in world axes."""
        return [stage.everywhere(Vec3(*self._model.gravity)) for stage in self.joints.stages]

    def forces(self, f_ext: jax.Array) -> Stages:
        """Return forces on bodies, (nbodies, 6, batch) in their own axes."""
        stages = zip(self.joints.forces(f_ext, self._links), self._placed, strict=True)
        return [f.rotate(m.R) for f, m in stages]

    def loads(self, f_ext: jax.Array | None) -> Stages:
        """Return gravity, in world axes, and forces on bodies, (nbodies, 6, batch) in their own axes."""
        weights = [M @ Motion(Vec3.zero(), g) for M, g in zip(self.M, self.down, strict=True)]
        if f_ext is None:
            return weights
        return [weight + f for weight, f in zip(weights, self.forces(f_ext), strict=True)]

    @property
    def falling(self) -> list[Rows]:
        """Return what gravity adds to the rates of nu: G* g, in world axes."""
        return [_falling(part.gains, g) for part, g in zip(self.factor, self.down, strict=True)]

    @cached_property
    def armature(self) -> list[Rows]:
        """Armature of each column."""
        return self._spread(self.joints.rows(self._model.armature))

    @cached_property
    def factor(self) -> list[Factor]:
        """Articulated inertias and gains."""
        return self._spread(self._find(FILTER))

    @property
    def noise(self) -> list[Rows]:
        """Armature of each column, for the filter: a column that is not there moves nothing."""
        return self.joints.rows(self._model.armature, nothing=1.0)

    def use(self, factor: list[Factor]) -> None:
        """Take other articulated inertias and gains than the robot's own."""
        self._found[FILTER] = factor

    @property
    def roots(self) -> list[Rows]:
        """Diagonal of L by column."""
        diagonal = lambda g: tuple(g.L[k, k] for k in range(6)) if isinstance(g, Base) else tuple(x.root for x in g)
        return [diagonal(part.gains) for part in self.factor]

    def filtered(self, M: Stages, H: Stages, l: Stages, noise: list[Rows]) -> list[Factor]:
        """Return articulated inertias and gains for any inertias of the bodies."""
        bodies = [(*body, ()) for body in zip(M, H, l, noise, strict=True)]
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
    def apply(self, name: str, transposed: bool, x: Any) -> Any:
        """Apply an operator, or its transpose, to a vector in stages."""
        return self.product((Atom(name, transposed=transposed),), x)

    def product(self, atoms: Sequence[Atom], x: Any, frames: Sequence[Frames] = ()) -> Any:
        """Apply a product of operators to a vector in stages; atoms in the order in which they are applied."""
        for is_B, run in groupby(atoms, lambda atom: atom.name == "B"):
            if is_B:
                for atom in run:
                    x = (self._from_bodies if atom.transposed else self._to_bodies)(frames[atom.frames], x)
            else:
                for one in passes(tuple(run)):
                    x = self._run(self._finding(one, x), x)
        return x

    def _finding(self, one: Pass, x: Stages) -> Pass:
        """Let a pass find poses or the filter on its way, if they are missing.

        Not where there are several columns or states to a configuration: they would be found for each of them.
        """
        states = max((np.shape(leaf)[-1] for leaf in jax.tree.leaves(x) if np.ndim(leaf)), default=1)
        if self._columns or states > self._states:
            return one
        if one.outward and PLACE not in self._found and "factor" not in one.needs:
            return Pass((PLACE, *one.atoms))
        if one.outward is False and FILTER not in self._found and "factor" in one.needs:
            return Pass((FILTER, *one.atoms))
        return one

    def _run(self, one: Pass, x: Stages) -> Stages:
        """Run a pass on a vector in stages, and keep what it finds of the bodies."""
        finds = [what for what in (PLACE, FILTER) if what in one.atoms]
        bodies = self._data(one.needs, columns=not finds)
        if one.outward is None:
            return [one.step((), both)[1].x for both in zip(bodies, x, strict=True)]
        base_step = None
        if self.joints.stages[0].is_base:
            base_step = one.base_step(bodies[0].factor, root_axes=self._root_axes)
            bodies[0] = bodies[0]._replace(factor=None)  # whole matrices: not for sweeps
        data, walk = list(zip(bodies, x, strict=True)), self.joints.walk
        if one.outward:
            results = walk.outward(one.step, one.start, data, base_step)
        else:
            results = walk.inward(one.step, one.start, data, base_step)[1]
        for what in finds:
            self._found[what] = [result.found for result in results]
        return [result.x for result in results]

    def _data(self, needs: set[str], *, columns: bool) -> list[Body]:
        """Return what a pass needs of the bodies."""
        parts: dict[str, Stages] = {}
        if "link" in needs:
            parts["link"] = self._in_link_axes()
        if "placed" in needs:
            parts["placed"] = self._bodies if columns else self._placed
        if "armature" in needs:
            parts["armature"] = self.armature
        if "noise" in needs:
            parts["noise"] = self.noise
        if "factor" in needs:
            parts["factor"] = self.factor
        stages = range(len(self._links))
        return [Body(**{name: part[k] for name, part in parts.items()}) for k in stages]

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
        total: Stages = [Force.zero()] * len(self._links)
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


def _falling(gains: Any, g: Vec3) -> Rows:
    if isinstance(gains, Base):
        return tuple((gains.G[3:] * jnp.stack(list(g))[:, None]).sum(0))
    return tuple(G.lin.dot(g) for G, _ in gains)
