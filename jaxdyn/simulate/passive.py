"""The passive forces of joints, at the price of those that a model has.

`jaxdyn.passive_force` in another form: springs on the rotations of spherical and free joints, and Coulomb friction, are
dear for a batch of states, and most models have none. Whether there are any is looked up when the program runs, once
for a whole batch, because a model's numbers are not known before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from jaxdyn._numerics import rows, safe_reciprocal
from jaxdyn.joints import Joint
from jaxdyn.model import Model
from jaxdyn.model.configuration import coordinates, in_order
from jaxdyn.model.topology import Topology
from jaxdyn.recursion import Ruled, batched


def passive_force(model: Model, q: jax.Array, qd: jax.Array) -> jax.Array:
    """Return the forces of the joints' springs, damping and friction at one state, (nv,)."""
    springs = _force_of_springs(model.topology)(model.stiffness, model.rest.astype(q.dtype), q)
    friction = _force_of_friction(model.friction, model.v_s, qd)
    return springs + friction - model.damping * qd


def _unless_zero(force: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return a kernel force(k, ...), linear in k, as a function of one state that costs nothing where k is zero.

    Its derivative by k does not vanish with k: where it is wanted, nothing is left out.
    """
    nothing = lambda k, *rest: jnp.zeros_like(jax.eval_shape(force, k, *rest))
    kernel = lambda *args: jax.lax.cond((args[0] != 0).any(), force, nothing, *args)
    whole: Any = batched(force, tile=lambda *args: 2**30)
    short: Any = batched(kernel, tile=lambda *args: 2**30)

    def derivative(primals: Any, tangents: Any) -> Any:
        out = function(*primals)
        by_k = not isinstance(tangents[0], SymbolicZero)
        return out, (whole if by_k else short).along(primals, tangents, out)

    function = Ruled(short, derivative)
    return function


@_unless_zero
def _force_of_friction(friction: Any, v_s: Any, qd: Any) -> jax.Array:
    return -friction * jnp.tanh(qd * safe_reciprocal(v_s))


def _force_of_springs(topology: Topology) -> Callable[..., jax.Array]:
    """Return the forces of springs, a function of (stiffness, rest, q) at one state."""
    is_plain = lambda group: type(group.joint).integrate is Joint.integrate
    groups = topology.own_groups
    plain, curved = [g for g in groups if is_plain(g)], [g for g in groups if not is_plain(g)]

    def of_plain(k: Any, rest: Any, q: Any) -> jax.Array:
        """Return -k (q - rest), of joints whose coordinates are plain numbers."""
        return _gathered(-rows(k, at.qd[:, i]) * x for at in plain for i, x in enumerate(_stretch(at, rest, q)))

    @_unless_zero
    def of_curved(k: Any, rest: Any, q: Any) -> jax.Array:
        """Return minus the derivative of the energy along `integrate`, of the other joints."""
        parts: list[jax.Array] = []
        for at in curved:
            x, k_here = coordinates(q, at.q), coordinates(k, at.qd)
            still = tuple(jnp.zeros_like(x[0]) for _ in k_here)

            def energy(dq: Any) -> jax.Array:
                stretch = at.joint.difference(coordinates(rest, at.q), at.joint.integrate(x, dq))
                return 0.5 * sum((c * s * s).sum() for c, s in zip(k_here, stretch, strict=True))

            parts += [-g for g in jax.grad(energy)(still)]
        return _gathered(parts)

    def force(k: jax.Array, rest: jax.Array, q: jax.Array) -> jax.Array:
        parts, places = [], []
        for kind, of_kind in ((plain, of_plain), (curved, of_curved)):
            if kind:
                parts.append(of_kind(k, rest, q))
                places += [column for at in kind for column in at.qd.T]
        return in_order(parts, np.concatenate(places)) if parts else 0 * k

    return force


def _stretch(at: Any, rest: Any, q: Any) -> Any:
    return at.joint.difference(coordinates(rest, at.q), coordinates(q, at.q))


def _gathered(parts: Any) -> jax.Array:
    parts = list(parts)
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)
