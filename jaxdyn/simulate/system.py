"""What moves: a model with all forces that act on it, as a function of time and state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.algorithms import forward_dynamics
from jaxdyn.joints import Joint
from jaxdyn.model import Model
from jaxdyn.simulate.passive import passive_force

OfState = Callable[[Any, jax.Array, jax.Array, Any], Any]
"""A function (t, q, qd, params) of time, state and parameters."""


class JointLimits(NamedTuple):
    r"""Smooth springs at the ends of the joints' ranges, the model's leaves `lower` and `upper`.

    With p the way past the limit, the force is zero for p < 0, and else

    .. math:: -k\, s(p) - d\, s'(p)\, \dot q, \qquad s(p) = p^2 / 2w \ (p < w), \quad p - w / 2 \ (p \ge w),

    continuous with its derivative. Joints with several coupled coordinates (spherical, planar, free) have no limits.
    """

    stiffness: Any = 1e3
    """k, N/m or N m/rad: a number, or (nv,)."""
    damping: Any = 1e1
    """d, N s/m or N m s/rad: a number, or (nv,)."""
    width: Any = 1e-2
    """w, m or rad, over which the force sets in."""


def limit_force(model: Model, limits: JointLimits, q: jax.Array, qd: jax.Array) -> jax.Array:
    """Return the forces of the springs at the joints' limits, (nv,)."""
    joints = [g for g in model.topology.own_groups if type(g.joint).integrate is Joint.integrate]
    at_q, at_qd = (
        np.concatenate([np.zeros(0, np.int32), *(getattr(g, n).ravel() for g in joints)]) for n in ("q", "qd")
    )
    force = jnp.zeros_like(qd)
    k, d = (jnp.broadcast_to(jnp.asarray(x, qd.dtype), qd.shape)[at_qd] for x in (limits.stiffness, limits.damping))
    width = jnp.asarray(limits.width, qd.dtype)
    for end, sign in ((model.upper, 1), (model.lower, -1)):
        there = jnp.isfinite(end[at_q])
        past = jnp.where(there, sign * (q[at_q] - jnp.where(there, end[at_q], 0)), 0)
        depth = jnp.clip(past, 0, width)
        s = depth * depth / (2 * width) + jnp.maximum(past - width, 0)
        force = force.at[at_qd].add(-sign * k * s - d * (depth / width) * qd[at_qd])
    return force


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class System:
    """A model with the forces that act on it. Leaves may be differentiated and batched, as those of a model."""

    model: Model
    params: Any = None
    """What is handed to the user's functions."""
    limits: JointLimits | None = None
    """Springs at the joints' limits."""
    f_ext: Any = None
    """Constant force on each body, (nbodies, 6), as in `forward_dynamics`."""
    f_ext_of_state: OfState | None = field(default=None, metadata={"static": True})
    """The same as a function of (t, q, qd, params)."""
    only_damping: bool = field(default=False, metadata={"static": True})
    """The model is known to have neither springs nor Coulomb friction."""

    def joint_forces(self, q: jax.Array, qd: jax.Array) -> jax.Array:
        """Return the passive forces of the joints and those of their limits, (nv,)."""
        model = self.model
        force = -model.damping * qd if self.only_damping else passive_force(model, q, qd)
        return force if self.limits is None else force + limit_force(model, self.limits, q, qd)

    @property
    def has_no_forces(self) -> bool:
        """Whether no external forces act."""
        return self.f_ext is None and self.f_ext_of_state is None

    def forces(self, t: Any, q: jax.Array, qd: jax.Array) -> Any:
        """Return the external force on each body, (nbodies, 6), or None."""
        f_ext = self.f_ext if self.f_ext_of_state is None else self.f_ext_of_state(t, q, qd, self.params)
        return None if f_ext is None else jnp.asarray(f_ext).astype(q.dtype)

    def acceleration(self, t: Any, q: jax.Array, qd: jax.Array, tau: jax.Array, *, damped_for: Any = None) -> jax.Array:
        r"""Return qdd at a state, with all forces.

        .. math:: (M + h D)\, \ddot q + b(q, \dot q) = \tau + \tau_{passive} + \tau_{limits} + J^T f_{ext}

        Args:
            t: time.
            q: configuration, (nq,).
            qd: velocity, (nv,).
            tau: joint forces, (nv,).
            damped_for: the time h for which damping is treated implicitly; D is the model's damping.
        """
        model, force = self.model, tau + self.joint_forces(q, qd)
        f_ext = self.forces(t, q, qd)
        if damped_for is not None:
            model = dataclasses.replace(model, armature=model.armature + damped_for * model.damping)
        return forward_dynamics(model, q, qd, force, f_ext=f_ext)


def has_only_damping(model: Model) -> bool:
    """Return whether a model is known to have neither springs nor friction: its numbers are, and are zero."""
    leaves = (model.stiffness, model.friction)
    return not any(isinstance(x, jax.core.Tracer) or np.any(np.asarray(x)) for x in leaves)
