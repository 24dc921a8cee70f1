r"""Simulations beside recordings: residuals, and their normal equations.

The Jacobian is by forward mode through the simulations, all columns at once as one batch. Measured against
sensitivities from the matrices of all steps, :math:`S_{i+1} = A_i S_i + F_i`, it takes longer to run and less to
compile, and it serves every integrator and every number of a model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.model import Model, difference, integrate
from jaxdyn.simulate import rollout
from jaxdyn.simulate.integrators import Integrator
from jaxdyn.sysid.unknowns import Unknowns


class Windows(NamedTuple):
    """Recordings, cut into B windows of L steps."""

    q: jax.Array
    """(B, L + 1, nq)."""
    qd: jax.Array
    """(B, L + 1, nv)."""
    tau: jax.Array
    """(B, L, nv)."""
    weights: jax.Array
    """(B, L + 1, 2 nv) factors of the residuals; zero where nothing was recorded."""
    dt: jax.Array
    """(B,)."""


class Point(NamedTuple):
    """Coordinates of the model, and the states in which simulations start."""

    theta: jax.Array
    q0: jax.Array
    qd0: jax.Array


class Normal(NamedTuple):
    """Normal equations H x = -g in the model's coordinates (p) and in the starts of the windows (s), one block each."""

    H_pp: jax.Array
    H_ps: jax.Array
    H_ss: jax.Array
    g_p: jax.Array
    g_s: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Problem:
    """Which recordings to follow, and with what."""

    model: Model
    windows: Windows
    start: Point
    prior: jax.Array
    """Weight with which theta is held at its start."""
    unknowns: Unknowns = field(metadata={"static": True})
    integrator: Integrator = field(metadata={"static": True})

    @property
    def count(self) -> jax.Array:
        """Number of residuals."""
        return (self.windows.weights > 0).sum()

    def simulate(self, point: Point, *, remat: Any = "none") -> jax.Array:
        """Return the residuals of the simulations, (B, L + 1, 2 nv), zero where nothing was recorded."""
        model = self.unknowns.model(self.model, point.theta)

        def one(q0: Any, qd0: Any, w: Windows) -> jax.Array:
            run = rollout(model, q0, qd0, w.tau, dt=w.dt, integrator=self.integrator, remat=remat)
            dq = jax.vmap(lambda recorded, q: difference(model, recorded, q))(w.q, run.q)
            return jnp.where(w.weights > 0, jnp.concatenate([dq, run.qd - w.qd], axis=1), 0)

        return _each(one)(point.q0, point.qd0, self.windows)

    def cost(self, point: Point, residuals: jax.Array) -> jax.Array:
        """Return half the sum of squares."""
        away = self.prior * (point.theta - self.start.theta)
        return 0.5 * squared(self.windows.weights * residuals) + 0.5 * squared(away)

    def linearize(self, point: Point) -> tuple[jax.Array, Normal]:
        """Return the residuals at a point, and their normal equations."""
        n, nv, B, weights = self.unknowns.size, self.model.nv, len(point.q0), self.windows.weights

        def residuals(x: jax.Array) -> jax.Array:
            """Return the residuals for a change of theta, and the same change of state at the start of each window."""
            theta = point.theta + x[:n]
            if not self.unknowns.initial_state:
                return self.simulate(Point(theta, point.q0, point.qd0))
            q0 = jax.vmap(lambda q: integrate(self.model, q, x[n : n + nv]))(point.q0)
            return self.simulate(Point(theta, q0, point.qd0 + x[None, n + nv :]))

        columns = jnp.eye(n + 2 * nv * self.unknowns.initial_state, dtype=point.theta.dtype)
        along = jax.vmap(lambda v: jax.jvp(residuals, (jnp.zeros_like(v),), (v,)), out_axes=(None, 0))
        r, S = along(columns)
        J = jnp.where(weights[None] > 0, weights[None] * S, 0).reshape(len(columns), B, -1)
        H = jnp.einsum("ibk,jbk->bij", J, J, precision="highest")
        g = jnp.einsum("ibk,bk->bi", J, (weights * r).reshape(B, -1), precision="highest")
        held = self.prior**2
        return r, Normal(
            H[:, :n, :n].sum(0) + held * jnp.eye(n, dtype=H.dtype),
            H[:, :n, n:],
            H[:, n:, n:],
            g[:, :n].sum(0) + held * (point.theta - self.start.theta),
            g[:, n:],
        )

    def move(self, point: Point, step: Point) -> Point:
        """Return a point further on; a step's q0 and qd0 are in the tangent."""
        theta = jnp.maximum(point.theta + step.theta, self.unknowns.lower_bounds().astype(point.theta.dtype))
        if not self.unknowns.initial_state:
            return Point(theta, point.q0, point.qd0)
        q0 = jax.vmap(lambda q, dq: integrate(self.model, q, dq))(point.q0, step.q0)
        return Point(theta, q0, point.qd0 + step.qd0)


def squared(x: jax.Array) -> jax.Array:
    """Return the sum of squares, as a product, of which XLA has the code at hand."""
    return jnp.vdot(x, x, precision="highest")


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function over windows; a single one goes without a batch, which is faster."""

    def call(*args: Any) -> Any:
        if np.shape(jax.tree.leaves(args)[0])[0] > 1:
            return jax.vmap(function)(*args)
        result = function(*jax.tree.map(lambda x: x[0], args))
        return jax.tree.map(lambda x: x[None], result)

    return call
