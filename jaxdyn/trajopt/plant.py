r"""What is to be moved: a robot, or any function :math:`x^+ = f(x, u)`, in steps of time.

The state of a robot is x = (q, qd), an array (nq + nv,). Its changes are in the tangent, (dq, dqd), an array (2 nv,):
`Plant.integrate` adds them to a state, `Plant.difference` finds them between two. Of a function of one's own, both are
plain vectors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._checks import number, suggestion
from jaxdyn._numerics import solve_rows
from jaxdyn.algorithms import forward_dynamics
from jaxdyn.derivatives import integrate_derivatives, inverse_dynamics_derivatives
from jaxdyn.joints import Free, Joint
from jaxdyn.model import Model, difference, integrate
from jaxdyn.recursion import batched
from jaxdyn.simulate import integrators
from jaxdyn.simulate.integrators import Integrator
from jaxdyn.simulate.rollouts import system_of
from jaxdyn.simulate.system import System
from jaxdyn.trajopt.first_order import TILE, FirstOrder, first_order, is_covered

Dynamics = Callable[..., Any]
"""A function (x, u) -> x after a step, or (x, u, params) -> x if there are parameters."""
static: Any = {"static": True}
_solve: Any = batched(lambda M, b: solve_rows(M[:, :, None], b), tile=lambda M, b: TILE)
"""M^-1 b, of the states of a motion together: LAPACK would take one matrix at a time."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Plant:
    """Discrete dynamics, with what they depend on as leaves. Made by `plant_of`."""

    system: System | None
    """The robot with its passive forces; None if a function is given."""
    dt: Any
    """Time step, s."""
    params: Any
    """What is handed to the function."""
    function: Dynamics | None = field(metadata=static)
    """The dynamics, if there is no robot."""
    integrator: Integrator = field(metadata=static)
    """One time step of the robot, as in `rollout`."""
    driven: tuple[int, ...] = field(metadata=static)
    """Degrees of freedom, of qd, on which the inputs act: tau[driven] = u."""
    nx: int = field(metadata=static)
    """Numbers of a state."""
    ndx: int = field(metadata=static)
    """Directions in which a state can change."""
    nu: int = field(metadata=static)
    """Inputs."""
    dense: bool = field(default=False, metadata=static)
    """Whether steps are computed by matrices, which JAX differentiates as they stand."""

    @property
    def differentiable(self) -> Plant:
        """The same in the form in which second derivatives compile most quickly."""
        if self.system is None or not is_covered(self.model) or self.model.dtype != jnp.float64:
            return self
        return dataclasses.replace(self, dense=True)

    @property
    def model(self) -> Model:
        """The robot."""
        if self.system is None:
            raise TypeError("this cost needs a jaxdyn.Model, not a function, as the first argument")
        return self.system.model

    @property
    def is_flat(self) -> bool:
        """Whether states are plain vectors, whose changes are sums and differences."""
        if self.system is None:
            return True
        kinds = [type(group.joint) for group in self.model.topology.own_groups]
        return all(kind.integrate is Joint.integrate and kind.difference is Joint.difference for kind in kinds)

    def split(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return (q, qd) of a state."""
        return x[: self.model.nq], x[self.model.nq :]

    def torque(self, u: jax.Array) -> jax.Array:
        """Return tau, (nv,): the inputs where they act, and zero elsewhere."""
        nv = self.model.nv
        return u if self.driven == tuple(range(nv)) else jnp.zeros(nv, u.dtype).at[np.array(self.driven, int)].set(u)

    def step(self, x: jax.Array, u: jax.Array) -> jax.Array:
        """Return the state after one time step."""
        if self.system is None:
            assert self.function is not None
            return self.function(x, u) if self.params is None else self.function(x, u, self.params)
        q, qd = self.split(x)
        if self.dense and self.integrator is integrators.semi_implicit_euler:
            return self._dense_step(q, qd, u)
        q, qd, _ = self.integrator(self.system, jnp.zeros((), x.dtype), q, qd, self.torque(u), self.dt)
        return jnp.concatenate([q, qd])

    def _dense_step(self, q: jax.Array, qd: jax.Array, u: jax.Array) -> jax.Array:
        """Return the state after a step of semi-implicit Euler, by matrices: its derivatives compile quickly."""
        assert self.system is not None
        damped = dataclasses.replace(self.model, armature=self.model.armature + self.dt * self.model.damping)
        force = self.torque(u) + self.system.joint_forces(q, qd)
        qd = qd + self.dt * forward_dynamics(damped, q, qd, force, form="dense")
        return jnp.concatenate([integrate(self.model, q, self.dt * qd), qd])

    def integrate(self, x: jax.Array, dx: jax.Array) -> jax.Array:
        """Return a state that is changed by dx, (ndx,)."""
        if self.is_flat:
            return x + dx
        (q, qd), nv = self.split(x), self.model.nv
        return jnp.concatenate([integrate(self.model, q, dx[:nv]), qd + dx[nv:]])

    def difference(self, x0: jax.Array, x1: jax.Array) -> jax.Array:
        """Return the change, (ndx,), that leads from x0 to x1."""
        if self.is_flat:
            return x1 - x0
        (q0, qd0), (q1, qd1) = self.split(x0), self.split(x1)
        return jnp.concatenate([difference(self.model, q0, q1), qd1 - qd0])

    def first_order(self, x: jax.Array, after: jax.Array) -> FirstOrder | None:
        """Return what steps and costs need of a robot to first order, between x and the state after a step.

        None if there is no robot, or one of those that are served by recursions alone.
        """
        if self.system is None or not is_covered(self.model):
            return None
        (q, qd), qd_after = self.split(x), self.split(after)[1]
        return first_order(self.model.moving, q, qd, (qd_after - qd) / self.dt)

    def linearize(self, x: jax.Array, u: jax.Array, after: jax.Array, known: FirstOrder | None = None) -> jax.Array:
        """Return the derivatives of a step by x and u, (ndx, ndx + nu), in the tangents of x and of `after`.

        Args:
            x: state, (nx,).
            u: inputs, (nu,).
            after: `step(x, u)`. From it the acceleration is known, so that a step of semi-implicit Euler needs no
                forward dynamics here: derivatives of inverse dynamics in closed form, and the mass matrix's inverse.
            known: `first_order(x, after)`, if it is there.
        """
        if self.system is None or self.integrator is not integrators.semi_implicit_euler:
            return self._linearize_by_autodiff(x, u, after)
        system, model, (q, qd), nv = self.system, self.model, self.split(x), self.model.nv
        qd_after = self.split(after)[1]
        if known is None:
            qdd = (qd_after - qd) / self.dt
            by_q, by_qd, M = inverse_dynamics_derivatives(model, q, qd, qdd)
        else:
            by_q, by_qd, M = known.by_q, known.by_qd, known.M + jnp.diag(model.armature).astype(x.dtype)
        M = M + jnp.diag(self.dt * model.damping).astype(x.dtype)
        if system.only_damping and system.limits is None:
            by_qd = by_qd + jnp.diag(model.damping).astype(x.dtype)
        else:
            passive = lambda dq, qd: system.joint_forces(integrate(model, q, dq), qd)
            force_q, force_qd = jax.jacfwd(passive, argnums=(0, 1))(jnp.zeros_like(qd), qd)
            by_q, by_qd = by_q - force_q, by_qd - force_qd
        acting = jnp.eye(nv, dtype=x.dtype)[:, np.array(self.driven, int)]
        by_z = self.dt * _solve(M, jnp.concatenate([-by_q, -by_qd, acting], axis=1))
        one = jnp.eye(nv, dtype=x.dtype)
        velocity = by_z.at[:, nv : 2 * nv].add(one)
        if self.is_flat:
            configuration = (self.dt * velocity).at[:, :nv].add(one)
        else:
            moved, along = integrate_derivatives(model, q, self.dt * qd_after)
            configuration = (self.dt * along @ velocity).at[:, :nv].add(moved)
        return jnp.concatenate([configuration, velocity])

    def _linearize_by_autodiff(self, x: jax.Array, u: jax.Array, after: jax.Array) -> jax.Array:
        def change(z: jax.Array) -> jax.Array:
            moved = self.step(self.integrate(x, z[: self.ndx]), u + z[self.ndx :])
            return self.difference(after, moved)

        return jax.jacfwd(change)(jnp.zeros(self.ndx + self.nu, x.dtype))


def plant_of(
    model: Model | Dynamics,
    x0: Any,
    us: Any,
    *,
    dt: Any = None,
    integrator: str | Integrator = "semi_implicit_euler",
    driven: Sequence[str] | None = None,
    params: Any = None,
) -> Plant:
    """Return the plant of a robot or of a function, checked.

    Args:
        model: a model, or a function (x, u) -> x after a step, or (x, u, params) -> x where params are given.
        x0: a state, (nx,): of a model (q, qd), one after the other.
        us: inputs, (T, nu).
        dt: time step, s; needed with a model.
        integrator: of a model, as in `jaxdyn.rollout`. Passive forces of the joints are included.
        driven: names of the joints on which the inputs act, in this order; by default all but free ones.
        params: parameters of a function, with respect to which solutions can be differentiated.
    """
    shape, rows = np.shape(x0), np.shape(us)
    if not isinstance(model, Model):
        if not callable(model):
            raise TypeError(f"model must be a jaxdyn.Model or a function (x, u) -> x; got {type(model).__name__}")
        if len(shape) != 1:
            raise ValueError(f"x0 must have shape (nx,); got {shape}")
        if len(rows) != 2:
            raise ValueError(f"us must have shape (T, nu), one row per step; got {rows}")
        steps = jnp.asarray(1.0 if dt is None else dt)
        return Plant(None, steps, params, model, integrators.find("rk4"), (), shape[0], shape[0], rows[1])
    system = system_of(model, None, None, None)
    columns = _driven(model, driven)
    if dt is None:
        raise ValueError("dt must be given with a model: the length of a time step, s")
    if shape != (model.nq + model.nv,):
        hint = "; use jax.vmap for a batch" if len(shape) == 2 else ""
        raise ValueError(f"x0 must have shape ({model.nq + model.nv},), q and then qd; got {shape}{hint}")
    if len(rows) != 2 or rows[1] != len(columns):
        raise ValueError(f"us must have shape (T, {len(columns)}), one row per step, one column per input; got {rows}")
    dtype = jnp.result_type(jnp.asarray(x0), jnp.asarray(us), model.dtype)
    return Plant(
        system,
        number("dt", dt, dtype),
        params,
        None,
        integrators.find(integrator),
        columns,
        model.nq + model.nv,
        2 * model.nv,
        len(columns),
    )


def _driven(model: Model, driven: Sequence[str] | None) -> tuple[int, ...]:
    """Return the degrees of freedom of the joints on which inputs act."""
    if driven is None:
        free = [i for group in model.topology.own_groups if isinstance(group.joint, Free) for i in group.qd.ravel()]
        return tuple(i for i in range(model.nv) if i not in free)
    names = (driven,) if isinstance(driven, str) else tuple(driven)
    for name in names:
        if name not in model.joint_names:
            raise ValueError(f"driven names {name!r}, which is no joint: {suggestion(name, model.joint_names)}")
    return tuple(i for name in names for i in range(model.nv)[model.qd_slice(name)])
