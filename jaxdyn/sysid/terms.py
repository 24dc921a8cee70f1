"""What a joint's torque is made of: link inertias, rotor inertia, friction and offset, as one linear model.

The parameters stand in one vector, in this order: ten for each body (those of `inertial_parameters`), then, each with
one number per degree of freedom and only if asked for, rotor inertia, viscous friction, Coulomb friction and offset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._checks import suggestion
from jaxdyn._compiling import jit
from jaxdyn._numerics import safe_reciprocal
from jaxdyn.algorithms import arguments, passive_force
from jaxdyn.derivatives import joint_torque_regressor
from jaxdyn.model import Model

INERTIAL = ("m", "mx", "my", "mz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")
"""Names of a body's parameters: mass, first moment m c, moments about the body frame's origin."""
LEAVES = {"rotor": "armature", "viscous": "damping", "coulomb": "friction"}
"""Where a model keeps the parameters of each kind; it has no place for offsets."""
FRICTION = ("viscous+coulomb", "viscous", "coulomb", "none")


@dataclass(frozen=True)
class Terms:
    """Which parameters are sought beside those of the links; made by `terms_of`."""

    kinds: tuple[str, ...] = ()
    """Some of "rotor", "viscous", "coulomb", "offset", in this order."""

    def size(self, model: Model) -> int:
        """Return the number of parameters."""
        return 10 * model.nbodies + len(self.kinds) * len(driven(model))

    def place(self, model: Model, kind: str) -> slice:
        """Return where the parameters of a kind are in the vector: one for each of the `driven`."""
        count = len(driven(model))
        start = 10 * model.nbodies + self.kinds.index(kind) * count
        return slice(start, start + count)

    def names(self, model: Model) -> tuple[str, ...]:
        """Return the names of all parameters, such as "link3.Ixx" and "joint2.viscous"."""
        of_bodies = [f"{body}.{name}" for body in model.body_names for name in INERTIAL]
        joints = [dof_names(model)[k] for k in driven(model)]
        return (*of_bodies, *(f"{joint}.{kind}" for kind in self.kinds for joint in joints))


def terms_of(friction: str | None, rotor_inertia: bool, offset: bool) -> Terms:
    """Return the terms that are meant by the options of `identify`."""
    name = "none" if friction is None else friction
    if name not in FRICTION:
        raise ValueError(f"friction must be one of {', '.join(map(repr, FRICTION))}; got {friction!r}: "
                         f"{suggestion(str(friction), FRICTION)}")  # fmt: skip
    chosen = [("rotor", rotor_inertia), ("viscous", "viscous" in name), ("coulomb", "coulomb" in name)]
    return Terms(tuple(kind for kind, wanted in [*chosen, ("offset", offset)] if wanted))


def dof_names(model: Model) -> list[str]:
    """Return a name for each degree of freedom: the joint's, with an index if it has several."""
    names = [""] * model.nv
    for joint in model.joint_names:
        part = model.qd_slice(joint)
        count = part.stop - part.start
        names[part] = [joint] if count == 1 else [f"{joint}[{k}]" for k in range(count)]
    return names


def regressor_of_state(model: Model, q: Any, qd: Any, qdd: Any, terms: Terms) -> jax.Array:
    """Return the regressor (nv, n) of one state, see `torque_regressor`."""
    return _regressor(replace(model.moving, v_s=model.v_s), q, qd, qdd, terms)


def driven(model: Model) -> np.ndarray:
    """Return the degrees of freedom that have rotors and friction: all but those of free joints."""
    free = [
        model.qd_slice(name) for name, kind in zip(model.joint_names, model.joint_types, strict=True) if kind == "free"
    ]
    return np.setdiff1d(np.arange(model.nv), [k for part in free for k in range(part.start, part.stop)])


@partial(jit, static_argnames="terms")
def _regressor(model: Model, q: Any, qd: Any, qdd: Any, terms: Terms) -> jax.Array:
    q, qd, qdd = arguments.vectors(model, q=q, qd=qd, qdd=qdd)
    columns = {
        "rotor": lambda: jnp.diag(qdd),
        "viscous": lambda: jnp.diag(qd),
        "coulomb": lambda: jnp.diag(jnp.tanh(qd * safe_reciprocal(model.v_s.astype(qd.dtype)))),
        "offset": lambda: jnp.eye(model.nv, dtype=qd.dtype),
    }
    of_joints = [columns[k]()[:, driven(model)] for k in terms.kinds]
    return jnp.concatenate([joint_torque_regressor(model, q, qd, qdd), *of_joints], axis=1)


def torque_regressor(
    model: Model,
    q: Any,
    qd: Any,
    qdd: Any,
    *,
    friction: str | None = "viscous+coulomb",
    rotor_inertia: bool = True,
    offset: bool = True,
) -> jax.Array:
    r"""Compute the matrix that takes all parameters of `identify` to joint torques, at one state.

    .. math:: \tau = Y \pi + I_a \ddot q + f_v \dot q + f_c \tanh(\dot q / v_s) + o
        = W\, (\pi, I_a, f_v, f_c, o)

    Args:
        model: the model; its inertias, armature and friction do not enter.
        q: configuration, (nq,).
        qd: velocity, (nv,).
        qdd: acceleration, (nv,).
        friction: "viscous+coulomb", "viscous", "coulomb" or "none".
        rotor_inertia: whether there are columns for the rotors' reflected inertia.
        offset: whether there are columns for constant torques.

    Returns:
        W, (nv, n); `parameter_names` says what its columns belong to.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.sysid import torque_regressor
        >>> torque_regressor(jaxdyn.load("arm7"), jnp.ones(7), jnp.ones(7), jnp.ones(7)).shape
        (7, 98)
    """
    arguments.require_model(model)
    return regressor_of_state(model, q, qd, qdd, terms_of(friction, rotor_inertia, offset))


def parameter_names(
    model: Model, *, friction: str | None = "viscous+coulomb", rotor_inertia: bool = True, offset: bool = True
) -> tuple[str, ...]:
    """Return the names of the parameters of `identify`, in the order of the columns of `torque_regressor`.

    Example:
        >>> import jaxdyn
        >>> from jaxdyn.sysid import parameter_names
        >>> parameter_names(jaxdyn.load("pendulum"), rotor_inertia=False)[8:]
        ('link1.Iyz', 'link1.Izz', 'joint1.viscous', 'joint1.coulomb', 'joint1.offset')
    """
    arguments.require_model(model)
    return terms_of(friction, rotor_inertia, offset).names(model)


def stacked_regressor(model: Model, q: Any, qd: Any, qdd: Any, terms: Terms) -> jax.Array:
    """Return the regressors of samples (samples, ...), as (samples, nv, n)."""
    return _stacked(replace(model.moving, v_s=model.v_s), q, qd, qdd, terms)


@partial(jit, static_argnames="terms")
def _stacked(model: Model, q: Any, qd: Any, qdd: Any, terms: Terms) -> jax.Array:
    return jax.vmap(partial(_regressor, terms=terms), in_axes=(None, 0, 0, 0))(model, q, qd, qdd)


def parameters_of(model: Model, terms: Terms) -> jax.Array:
    """Return the parameters that a model has; its offsets are zero."""
    parts = [getattr(model, LEAVES[k]) if k in LEAVES else 0 * model.damping for k in terms.kinds]
    return jnp.concatenate([model.inertia.ravel(), *(x[driven(model)] for x in parts)])


def with_parameters(model: Model, parameters: jax.Array, terms: Terms) -> Model:
    """Return the model with these parameters; offsets have no place in it."""
    new = lambda leaf, kind: getattr(model, leaf).at[driven(model)].set(parameters[terms.place(model, kind)])
    leaves = {LEAVES[k]: new(LEAVES[k], k) for k in terms.kinds if k in LEAVES}
    return model.replace(inertia=parameters[: 10 * model.nbodies].reshape(-1, 10), **leaves)


@partial(jit, static_argnames="terms")
def known_torque(model: Model, q: Any, qd: Any, qdd: Any, terms: Terms) -> jax.Array:
    """Return, of samples, the torques of what a model has and is not sought: springs; friction and rotors if left out.

    Shape (samples, nv).
    """
    rest = model.replace(
        **{LEAVES[k]: getattr(model, LEAVES[k]).at[driven(model)].set(0) for k in terms.kinds if k in LEAVES}
    )
    one = lambda q, qd, qdd: rest.armature * qdd - passive_force(rest, q, qd)
    return jax.vmap(one)(q, qd, qdd)
