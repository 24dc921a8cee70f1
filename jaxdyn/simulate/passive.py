"""The passive forces of joints, at the price of those that a model has.

`jaxdyn.passive_force` in another form: springs on the rotations of spherical and free joints, and Coulomb friction, are
dear for a batch of states, and most models have none. Whether there are any is looked up when the program runs, once
for a whole batch, because a model's numbers are not known before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import rows, safe_reciprocal
from jaxdyn.joints import Coordinates, Joint
from jaxdyn.model import Model
from jaxdyn.model.configuration import coordinates, in_order
from jaxdyn.model.topology import JointGroup, Topology
from jaxdyn.recursion import Ruled, batched, tiled
from jaxdyn.simulate.configurations import is_plain, joined, of_one_width
from jaxdyn.simulate.turning import GROUPS, pull_back_of_springs, spring_force

Kernel = Callable[..., Any]


def passive_force(model: Model, q: jax.Array, qd: jax.Array) -> jax.Array:
    """Return the forces of the joints' springs, damping and friction at one state, (nv,)."""
    springs = _force_of_springs(model.topology)(model.stiffness, model.rest.astype(q.dtype), q)
    friction = _force_of_friction(model.friction, model.v_s, qd)
    return springs + friction - model.damping * qd


def _unless_zero(force: Kernel, size: Callable[[Any], int] = len, pull_back: Kernel | None = None) -> Kernel:
    """Return a kernel force(k, ...), linear in k, as a function of one state that costs nothing where k is zero.

    So do its derivatives by the rest. Those by k, and the mixed ones, which do not vanish with k, leave nothing out.
    `size` of k is the number of forces; `pull_back` is as in `recursion.batched`.
    """
    nothing = lambda k, *rest: jnp.zeros_like(jax.eval_shape(force, k, *rest))
    kernel = lambda *args: jax.lax.cond((args[0] != 0).any(), force, nothing, *args)
    like = lambda *args: jax.ShapeDtypeStruct((size(args[0]),), jnp.result_type(*args))
    options: Any = {"tile": lambda *args: 2**30, "like": like}
    short, whole = tiled(kernel, **options), batched(force, factor=0, pull_back=pull_back, **options)

    def derivative(primals: Any, tangents: Any) -> Any:
        out = function(*primals)
        return out, whole.along(primals, tangents, out)

    function = Ruled(short, derivative)
    return function


@_unless_zero
def _force_of_friction(friction: Any, v_s: Any, qd: Any) -> jax.Array:
    return -friction * jnp.tanh(qd * safe_reciprocal(v_s))


def _force_of_springs(topology: Topology) -> Kernel:
    """Return the forces of springs, a function of (stiffness, rest, q) at one state."""
    groups = topology.own_groups
    plain, curved = [g for g in groups if is_plain(g.joint)], [g for g in groups if not is_plain(g.joint)]

    def of_plain(k: Any, rest: Any, q: Any) -> jax.Array:
        """Return -k (q - rest), of joints whose coordinates are plain numbers."""
        return _gathered(-rows(k, at.qd[:, i]) * x for at in plain for i, x in enumerate(_stretch(at, rest, q)))

    def pull_back(wanted: Any, x: Any, k: Any, rest: Any, q: Any) -> Any:
        """Return the transposed product with x of the derivative of `of_curved` by q."""
        if wanted != (False, False, True) or not all(type(at.joint) in GROUPS for at in curved):
            return NotImplemented
        columns = iter(jnp.split(x, np.cumsum([len(at.bodies) for at in curved for _ in at.qd.T])[:-1]))

        def of_group(at: JointGroup) -> Coordinates:
            here = coordinates(q, at.q)
            if is_plain(at.joint):
                return tuple(0 * row for row in here)
            numbers = coordinates(k, at.qd), coordinates(rest, at.q), here
            return pull_back_of_springs(at.joint, *numbers, tuple(islice(columns, at.joint.nv)))

        return k, rest, joined(topology, map(of_group, groups))

    @partial(_unless_zero, size=lambda _: sum(at.qd.size for at in curved), pull_back=pull_back)
    def of_curved(k: Any, rest: Any, q: Any) -> jax.Array:
        """Return minus the derivative of the energy along `integrate`, of the other joints."""
        forces = [
            (spring_force if type(at.joint) in GROUPS else spring_force_by_autodiff)(
                at.joint, coordinates(k, at.qd), coordinates(rest, at.q), coordinates(q, at.q)
            )
            for at in curved
        ]
        return jnp.concatenate(of_one_width(forces)).astype(jnp.result_type(k, rest, q))

    def force(k: jax.Array, rest: jax.Array, q: jax.Array) -> jax.Array:
        kinds = [
            (np.concatenate([column for at in kind for column in at.qd.T]), of_kind)
            for kind, of_kind in ((plain, of_plain), (curved, of_curved))
            if kind
        ]
        kinds.sort(key=lambda kind: kind[0][0])  # often this is all that it takes to have them in order
        parts = [of_kind(k, rest, q) for _, of_kind in kinds]
        return in_order(parts, np.concatenate([places for places, _ in kinds])) if parts else 0 * k

    return force


def spring_force_by_autodiff(joint: Joint, k: Coordinates, rest: Coordinates, q: Coordinates) -> Coordinates:
    """Return what `turning.spring_force` does from the energy of the springs, for joints of any type."""

    def energy(dq: Coordinates) -> jax.Array:
        stretch = joint.difference(rest, joint.integrate(q, dq))
        return 0.5 * sum((c * s * s).sum() for c, s in zip(k, stretch, strict=True))

    still = tuple(jnp.zeros(jnp.broadcast_shapes(*(x.shape for x in (*k, *rest, *q))), q[0].dtype) for _ in k)
    return tuple(-f for f in jax.grad(energy)(still))


# ---------------------------------------------------------------------- details
def _stretch(at: Any, rest: Any, q: Any) -> Any:
    return at.joint.difference(coordinates(rest, at.q), coordinates(q, at.q))


def _gathered(parts: Any) -> jax.Array:
    parts = list(parts)
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)
