"""The passive forces of joints, at the price of those that a model has.

`jaxdyn.passive_force` in another form: springs on the rotations of spherical and free joints, and Coulomb friction, are
dear for a batch of states, and most models have none. Whether there are any is looked up when the program runs, once
for a whole batch, because a model's numbers are not known before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._numerics import cot_defect, rows, safe_reciprocal
from jaxdyn.joints import Coordinates, Free, Joint, Planar, Spherical
from jaxdyn.model import Model
from jaxdyn.model.configuration import coordinates, in_order
from jaxdyn.model.topology import Topology
from jaxdyn.recursion import Ruled, batched, tiled

Kernel = Callable[..., Any]


def passive_force(model: Model, q: jax.Array, qd: jax.Array) -> jax.Array:
    """Return the forces of the joints' springs, damping and friction at one state, (nv,)."""
    springs = _force_of_springs(model.topology)(model.stiffness, model.rest.astype(q.dtype), q)
    friction = _force_of_friction(model.friction, model.v_s, qd)
    return springs + friction - model.damping * qd


def _unless_zero(force: Kernel, size: Callable[[Any], int] = len) -> Kernel:
    """Return a kernel force(k, ...), linear in k, as a function of one state that costs nothing where k is zero.

    Its derivatives leave nothing out: those by k, and the mixed ones, do not vanish with k. `size` of k is the number
    of forces.
    """
    nothing = lambda k, *rest: jnp.zeros_like(jax.eval_shape(force, k, *rest))
    kernel = lambda *args: jax.lax.cond((args[0] != 0).any(), force, nothing, *args)
    like = lambda *args: jax.ShapeDtypeStruct((size(args[0]),), jnp.result_type(*args))
    options: Any = {"tile": lambda *args: 2**30, "like": like}
    short, whole = tiled(kernel, **options), batched(force, **options)

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
    is_plain = lambda group: type(group.joint).integrate is Joint.integrate
    groups = topology.own_groups
    plain, curved = [g for g in groups if is_plain(g)], [g for g in groups if not is_plain(g)]

    def of_plain(k: Any, rest: Any, q: Any) -> jax.Array:
        """Return -k (q - rest), of joints whose coordinates are plain numbers."""
        return _gathered(-rows(k, at.qd[:, i]) * x for at in plain for i, x in enumerate(_stretch(at, rest, q)))

    @partial(_unless_zero, size=lambda _: sum(at.qd.size for at in curved))
    def of_curved(k: Any, rest: Any, q: Any) -> jax.Array:
        """Return minus the derivative of the energy along `integrate`, of the other joints."""
        forces = [
            (spring_force if type(at.joint) in GROUPS else spring_force_by_autodiff)(
                at.joint, coordinates(k, at.qd), coordinates(rest, at.q), coordinates(q, at.q)
            )
            for at in curved
        ]
        return _gathered(f.reshape((-1, f.shape[-1])) for f in forces).astype(jnp.result_type(k, rest, q))

    def force(k: jax.Array, rest: jax.Array, q: jax.Array) -> jax.Array:
        parts, places = [], []
        for kind, of_kind in ((plain, of_plain), (curved, of_curved)):
            if kind:
                parts.append(of_kind(k, rest, q))
                places += [column for at in kind for column in at.qd.T]
        return in_order(parts, np.concatenate(places)) if parts else 0 * k

    return force


# ---------------------------------------------------------------------- springs of joints that turn
GROUPS = (Spherical, Planar, Free)
"""Joint types whose configurations are a group: what follows is written for them."""


def spring_force(joint: Joint, k: Coordinates, rest: Coordinates, q: Coordinates) -> jax.Array:
    r"""Return the force of springs along s = difference(rest, q), arrays (directions, joints, batch).

    .. math:: -B^T K s, \qquad \dot s = B \dot q

    By few operations on small matrices: scalars, as elsewhere, would take longer to compile than all else in a rollout.
    """
    s = _stretch_of_group(joint, rest, q)
    return -_Slope.at(joint, s).transposed(jnp.stack(jnp.broadcast_arrays(*k)) * s)


def spring_force_by_autodiff(joint: Joint, k: Coordinates, rest: Coordinates, q: Coordinates) -> jax.Array:
    """Return the same from the energy of the springs, for joints of any type."""

    def energy(dq: Coordinates) -> jax.Array:
        stretch = joint.difference(rest, joint.integrate(q, dq))
        return 0.5 * sum((c * s * s).sum() for c, s in zip(k, stretch, strict=True))

    still = tuple(jnp.zeros(jnp.broadcast_shapes(*(x.shape for x in (*k, *rest, *q))), q[0].dtype) for _ in k)
    return -jnp.stack(jax.grad(energy)(still))


class _Slope(NamedTuple):
    r"""The derivative B of s = difference(rest, q) by q, a function of s alone.

    .. math:: B = 1 + \tfrac12 A + \alpha A^2 + \beta A^4, \qquad A\,v = [s, v]

    A has the eigenvalues 0 and :math:`\pm i x`, x the angle of s, at most twice each: with c the function `cot_defect`
    of :math:`t = x^2` its series ends there, :math:`\alpha = c - t c'`, :math:`\beta = -c'`.
    """

    A: jax.Array
    """(directions, directions, joints, batch)."""
    alpha: jax.Array
    """(joints, batch)."""
    beta: jax.Array

    @classmethod
    def at(cls, joint: Joint, s: jax.Array) -> _Slope:
        C = _brackets(joint)
        n, twice = len(s), -float(np.einsum("ij,ji->", C[:, 0], C[:, 0]))
        A = (jnp.asarray(C.transpose(0, 2, 1).reshape(n * n, n), s.dtype) @ s.reshape(n, -1)).reshape(
            n, n, *s.shape[1:]
        )
        t = -(A * A.swapaxes(0, 1)).sum((0, 1)) / twice
        c, dc = cot_defect(t), cot_defect(t, 1)
        return cls(A, c - t * dc, -dc)

    def times(self, v: jax.Array, sign: float = 1.0) -> jax.Array:
        """Return B v; with the other sign of s, if it is -1."""
        return self._series(lambda v: (self.A * v[None]).sum(1), v, sign)

    def transposed(self, v: jax.Array) -> jax.Array:
        """Return B* v."""
        return self._series(lambda v: (self.A * v[:, None]).sum(0), v, 1.0)

    def _series(self, A: Callable[[jax.Array], jax.Array], v: jax.Array, sign: float) -> jax.Array:
        once = A(v)
        twice = A(once)
        return v + 0.5 * sign * once + self.alpha[None] * twice + self.beta[None] * A(A(twice))


@lru_cache
def _brackets(joint: Joint) -> np.ndarray:
    """Return C, [a, b]_i = sum of C[i, j, k] a_j b_k, of a joint whose configurations are a group."""
    one, q = np.eye(joint.nv), joint.neutral()
    return np.array([[joint.bracket(q, tuple(a), tuple(b)) for b in one] for a in one], float).transpose(2, 0, 1)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _stretch_of_group(joint: Joint, rest: Coordinates, q: Coordinates) -> jax.Array:
    """Return difference(rest, q), (directions, joints, batch)."""
    return jnp.stack(jnp.broadcast_arrays(*joint.difference(rest, q)))


@_stretch_of_group.defjvp
def _stretch_moves(joint: Joint, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    (rest, q), (by_rest, by_q) = primals, tangents
    s = _stretch_of_group(joint, rest, q)
    B, velocity = _Slope.at(joint, s), lambda *x: jnp.stack(jnp.broadcast_arrays(*joint.tangent(*x)))
    return s, B.times(velocity(q, by_q)) - B.times(velocity(rest, by_rest), sign=-1.0)


# ---------------------------------------------------------------------- details
def _stretch(at: Any, rest: Any, q: Any) -> Any:
    return at.joint.difference(coordinates(rest, at.q), coordinates(q, at.q))


def _gathered(parts: Any) -> jax.Array:
    parts = list(parts)
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)
