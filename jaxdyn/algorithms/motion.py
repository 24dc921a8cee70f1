"""How links move: the outward recursions that all of dynamics begins with, and the forces of motion.

Axes are common to a tree, every quantity is about its own link's origin (000 section III): crossing a link
is a shift, no spatial quantity is ever rotated, and where a robot stands does not enter, so that single
precision is as good at 10 km from the world's origin as at home. The axes are the world's; or, for joint
forces and accelerations, in which they do not appear, those of the tree's root: a floating base is then
the identity, and only gravity knows which way it is turned.

Accelerations are derivatives of a link's own components (convention (ii) in docs/theory/004.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import once
from jaxdyn.algorithms.articulation import Articulation, Links, joint_motions
from jaxdyn.joints import combine
from jaxdyn.model import Model
from jaxdyn.recursion import unpacked
from jaxdyn.spatial import Force, Mat3, Motion, RigidInertia, Vec3


class Moving(NamedTuple):
    """A link in motion, in common axes, about its own origin."""

    R: Mat3
    """Rotation from link axes to the common ones."""
    V: Motion
    """Velocity."""
    a: Motion
    """Acceleration."""
    l: Vec3
    """From the parent's origin to the link's."""


class Own(NamedTuple):
    """What a link's inertia makes of a column h of its own joint, worked out in link axes.

    The inertia of a thin link about its own axis is a small number among large ones. Once M is turned into common
    axes, only the digits that they leave remain of it; here it is as the model has it. In double precision there are
    digits enough, and it is left out.
    """

    moment: Vec3
    """Of the force M h, in common axes."""
    D: Any
    """h . M h."""


class Loaded(NamedTuple):
    """A link in motion as the inward sweeps see it, in common axes, about its own origin."""

    M: RigidInertia
    """Inertia."""
    f: Force
    """The force that its motion takes."""
    H: tuple[Motion, ...]
    """The joint's columns, H*(k)."""
    l: Vec3
    """From the parent's origin to the link's."""
    own: tuple[Own, ...]
    """What its inertia makes of each column, if that is wanted and needed."""


class Placed(NamedTuple):
    """A link at rest, in common axes."""

    R: Mat3
    """Rotation from link axes to the common ones."""
    p: Vec3
    """Position of its origin relative to that of the first root link (in root axes: of its tree's base)."""
    l: Vec3
    """From the parent's origin to the link's."""


def _move(inboard: Any, link: Any) -> Any:
    """Cross a joint outward: velocity and acceleration (000 (11)-(15); 004 (3)-(4))."""
    (R, V, a), (X, V_J, a_J) = inboard, link
    l = R @ X.p
    R = R @ X.R
    V_J = V_J.rotate(R)
    V = V.shift(l)
    a = a.shift(l) + V.cross(V_J) + a_J.rotate(R)
    V = V + V_J
    return (R, V, a), Moving(R, V, a, l)


def _move_base(world: Any, link: Any) -> Any:
    """Cross the joint of a floating base, into its own axes."""
    (_, V, a), (X, V_J, a_J) = world, link
    V, a = (_at_base(motion, X) for motion in (V, a))
    a = a + V.cross(V_J) + a_J
    V = V + V_J
    return (Mat3.identity(), V, a), Moving(Mat3.identity(), V, a, X.p)


def _place_base(world: Any, link: Any) -> Any:
    """Cross the joint of a floating base, into its own axes and origin."""
    here = Mat3.identity(), Vec3.zero()
    return here, Placed(*here, link[0].p)


def _place(inboard: Any, link: Any) -> Any:
    """Cross a joint outward: pose."""
    (R, p), (X, origin) = inboard, link
    l = R @ X.p
    R, p = R @ X.R, p + (l - origin)
    return (R, p), Placed(R, p, l)


def arrive(inboard: Any, X: Any) -> Any:
    """Carry what the parent hands on, a rotation and motions, to the link's origin."""
    R, *motions = inboard
    l = R @ X.p
    return R @ X.R, [motion.shift(l) for motion in motions], l


def arrive_at_base(world: Any, X: Any) -> Any:
    """Carry what the world hands on to a floating base, into its own axes."""
    _, *motions = world
    return Mat3.identity(), [_at_base(motion, X) for motion in motions], X.p


def _at_base(motion: Motion, X: Any) -> Motion:
    """Return a motion of the world about a floating base's origin, in its axes; worked out once, for all limbs."""
    leaves, form = jax.tree.flatten(motion.shift(X.p).rotate(X.R.T))
    arrays = [x for x in leaves if type(x) is not float]
    kept = iter(once(*arrays) if arrays else ())
    return jax.tree.unflatten(form, [x if type(x) is float else next(kept) for x in leaves])


def world_in_motion(model: Model, base_motion: Any = None, gravity: bool = True) -> Any:
    """Return what the world hands on: rotation, velocity, acceleration; gravity acts as one upward."""
    up = Vec3(*-model.gravity) if gravity else Vec3.zero()
    V, a = (Motion.zero(), Motion.zero()) if base_motion is None else (_six(x) for x in base_motion)
    return Mat3.identity(), V, a + Motion(Vec3.zero(), up)


def _six(x: jax.Array) -> Motion:
    return Motion(Vec3(*x[:3]), Vec3(*x[3:]))


def moving_links(
    joints: Articulation,
    model: Model,
    links: list[Links],
    q: jax.Array,
    qd: jax.Array,
    qdd: Any,
    world: Any,
    *,
    root_axes: bool = True,
) -> list[Moving]:
    """Return all links in motion; without qdd, accelerations are those of the velocity alone."""
    bodies = relative_motions(joints, model, links, q, qd, qdd)
    return joints.walk.outward(_move, world, bodies, _move_base if root_axes else None)


def relative_motions(joints: Articulation, model: Model, links: list[Links], q: Any, qd: Any, qdd: Any) -> list[Any]:
    """Return of each link its pose, velocity and acceleration relative to its parent."""
    rows = joints.rows(qd)
    V_J = joint_motions(links, rows)
    a_J = [combine(dS, x) for dS, x in zip(joints.subspace_rates(model, q, qd), rows, strict=True)]
    if qdd is not None:
        a_J = [a + b for a, b in zip(a_J, joint_motions(links, joints.rows(qdd)), strict=True)]
    return [(link.X, v, a) for link, v, a in zip(links, V_J, a_J, strict=True)]


def loaded_links(
    joints: Articulation,
    model: Model,
    links: list[Links],
    q: jax.Array,
    qd: jax.Array,
    qdd: Any,
    f_ext: Any,
    base_motion: Any,
    *,
    at_once: bool,
    own: bool = False,
) -> list[Loaded]:
    """Return all links in motion with the forces that this takes; if wanted, also products with their `own` columns.

    The forces are worked out in the sweep itself, `at_once`, or after it for all links together. The first keeps
    less in memory, the second starts fewer operations.
    """
    world, motions = world_in_motion(model, base_motion), relative_motions(joints, model, links, q, qd, qdd)
    forces = [None] * len(links) if f_ext is None else joints.forces(f_ext, links)
    loads = list(zip(joints.inertias(model, links), [link.S for link in links], forces, strict=True))
    if not at_once:
        moved = joints.walk.outward(_move, world, motions, _move_base)
        stages = zip(joints.stages, moved, loads, strict=True)
        return [_loaded(link, load, own and not stage.is_base) for stage, link, load in stages]

    def with_load(step: Any, own: bool) -> Any:
        def loaded_step(inboard: Any, body: Any) -> Any:
            link, load = body
            end, moved = step(inboard, link)
            return end, _loaded(moved, load, own)

        return loaded_step

    bodies = list(zip(motions, loads, strict=True))
    return joints.walk.outward(with_load(_move, own), world, bodies, with_load(_move_base, False))


def _loaded(moved: Moving, load: Any, own: bool) -> Loaded:
    """Bring a link's load into common axes, and find M a + V x* M V - f_ext (000 (16); 004 (5))."""
    M_own, S, f_ext = load
    M = M_own.rotate(moved.R)
    f = M @ moved.a + moved.V.cross_force(M @ moved.V)
    f = f if f_ext is None else f - f_ext.rotate(moved.R)
    H = tuple(s.rotate(moved.R) for s in S)
    return Loaded(M, f, H, moved.l, own_products(M_own, S, moved.R) if own else ())


def own_products(M: RigidInertia, S: tuple[Motion, ...], R: Mat3) -> tuple[Own, ...]:
    """Return what inertias make of columns, both given in link axes; nothing in double precision."""
    if M.m.dtype.itemsize >= 8:
        return ()
    products = [M @ s for s in S]
    return tuple(Own(R @ f.ang, f.dot(s)) for f, s in zip(products, S, strict=True))


def placed_links(joints: Articulation, links: list[Links], *, root_axes: bool = True) -> list[Placed]:
    """Return all links at rest."""
    first = jax.tree.map(lambda x: x[(0,) * (x.ndim - 1)], unpacked(links[0].X).p)
    is_root = np.array(joints.topology.parents) < 0
    origin = [
        jax.tree.map(lambda x: jnp.where(is_root[s.bodies][..., None], x, 0), s.everywhere(first))
        for s in joints.stages
    ]
    bodies = [(link.X, o) for link, o in zip(links, origin, strict=True)]
    return joints.walk.outward(_place, (Mat3.identity(), Vec3.zero()), bodies, _place_base if root_axes else None)


def joint_columns(links: list[Links], moved: Any) -> list[tuple[Motion, ...]]:
    """Return the joints' columns in common axes: H*(k)."""
    return [tuple(S.rotate(m.R) for S in link.S) for link, m in zip(links, moved, strict=True)]


def link_inertias(joints: Articulation, model: Model, links: list[Links], moved: Any) -> list[RigidInertia]:
    """Return the links' inertias in common axes: M(k)."""
    return [M.rotate(m.R) for M, m in zip(joints.inertias(model, links), moved, strict=True)]
