"""Integration in diagonalising coordinates: a step that keeps the energy, and Algorithm 8.1 of 002."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._checks import number
from jaxdyn._compiling import jit
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.articulation import like_vector
from jaxdyn.diagonal import two_sweeps
from jaxdyn.diagonal.equations import TILE, prepared
from jaxdyn.diagonal.momentum import accelerations
from jaxdyn.model import Model, integrate
from jaxdyn.recursion import batched

OfState = Callable[[jax.Array, jax.Array], Any]


class State(NamedTuple):
    """A state in total joint rates."""

    q: jax.Array
    nu: jax.Array


class XiState(NamedTuple):
    """A state in total joint rates that are not normalised, with the velocity that belongs to it."""

    q: jax.Array
    xi: jax.Array
    qd: jax.Array


# ---------------------------------------------------------------------- kernels, arrays (..., batch)
def _middle(model: Model, q: Any, nu: Any, v: Any, eps: Any, tau: Any, f_ext: Any, h: Any) -> Any:
    """Return the total joint rates after a time h at the motion (q, v), and the velocity that they are."""
    robot, found = accelerations(model, q, None, qd=v, world_axes=True)
    rows, collect = robot.joints.rows, robot.joints.collect
    loads = robot.apply("H", False, robot.apply("phi", False, robot.loads(f_ext)))
    torques = rows(collect(loads) if tau is None else tau + collect(loads))
    acting = nu + h[None] * (eps + collect(robot.apply("m^-1", False, torques)))
    after = _turned(-collect(found), collect(robot.apply("m", True, rows(v))), acting, h)
    return jnp.stack([after, collect(robot.apply("m^-1", True, rows(after)))])


def _turned(C: jax.Array, b: jax.Array, r: jax.Array, h: jax.Array) -> jax.Array:
    """Return x with x + h S x = r, for the skew S = (C b* - b C*) / b*b, which turns b to C: S b = C."""
    dot = lambda x, y: (x * y).sum(0)
    size = dot(b, b)
    size_or_one = jnp.where(size > 0, size, 1)
    u, w = b, (h / size_or_one)[None] * C  # h S = w u* - u w*
    w = w - (dot(u, w) / size_or_one)[None] * u  # u* w = 0, to the last digit
    along = (dot(u, r) + dot(w, r) * size) / (1 + dot(w, w) * size)  # u* x
    across = dot(w, r) - dot(w, w) * along  # w* x
    return r - along[None] * w + across[None] * u


def _like_two(model: Model, q: Any, x: Any, *rest: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((2, model.nv), like_vector(x, model, q, rest).dtype)


_middle_of_state, _after_xi_of_state = (
    batched(kernel, tile=TILE, like=_like_two) for kernel in (_middle, two_sweeps.after)
)


# ---------------------------------------------------------------------- functions of one state
def step(
    model: Model,
    q: Any,
    nu: Any,
    eps: Any = None,
    *,
    dt: Any,
    tau: Any = None,
    f_ext: Any = None,
    iterations: int = 50,
) -> State:
    r"""Advance a robot by one step that keeps its kinetic energy where no forces act.

    .. math:: \bar\nu = \nu + \tfrac h2 [\epsilon + m^{-1}(\tau - g) - S \bar\nu], \quad
        v = m^{-*}(\bar q)\, \bar\nu, \quad \bar q = q \oplus \tfrac h2 v, \quad
        \nu' = 2\bar\nu - \nu, \quad q' = q \oplus h v

    with the skew matrix :math:`S = (C \bar\nu^* - \bar\nu C^*) / \bar\nu^* \bar\nu`, for which :math:`S \bar\nu` is the
    Coriolis term at the middle of the step: it turns nu in the plane of nu and C. Without forces

    .. math:: \nu' = (I + \tfrac h2 S)^{-1} (I - \tfrac h2 S)\, \nu

    is Cayley's transform, and nu* nu / 2 is kept to rounding. With forces, its change is the work that they do at the
    velocity v. The step is of second order and reversible: a step of -h leads back. The velocity v is found by
    iteration to rounding; a step that is too long for that is less accurate, but keeps the energy all the same.
    Derivatives are those of the equation that v solves.

    Args:
        model: the model, without mimic joints. Its gravity acts; its passive forces do not.
        q: configuration, (nq,).
        nu: total joint rates, (nv,), as of `to_nu`.
        eps: working moments, (nv,), held during the step.
        dt: length of the step.
        tau: joint forces, (nv,), held during the step; or a function (q, qd) -> tau, taken in its middle. A new
            function is compiled anew: hand over the same one again, or compile what calls the step.
        f_ext: force on each body, (nbodies, 6), or a function (q, qd) -> f_ext.
        iterations: the most iterations, at least 1; they end when nothing changes any more.

    Returns:
        q and nu after the step.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn import diagonal
        >>> model = jaxdyn.load("arm7")
        >>> model = model.replace(gravity=jnp.zeros(3))
        >>> q, nu = jnp.ones(7), jnp.arange(7.0) / 7
        >>> after = diagonal.step(model, q, nu, dt=0.1)
        >>> bool(jnp.isclose(after.nu @ after.nu, nu @ nu, rtol=1e-5))
        True
    """
    model = prepared(model)
    if not isinstance(iterations, (int, np.integer)) or iterations < 1:
        raise ValueError(f"iterations must be a positive integer; got {iterations!r}")
    forces = {name: x for name, x in (("tau", tau), ("f_ext", f_ext)) if x is not None and not callable(x)}
    of_state = tuple((name, x) for name, x in (("tau", tau), ("f_ext", f_ext)) if callable(x))
    return _step(model, q, nu, eps, dt, forces, of_state, iterations)


@partial(jit, static_argnums=(6, 7))
def _step(
    model: Model, q: Any, nu: Any, eps: Any, dt: Any, forces: Any, of_state: tuple[tuple[str, OfState], ...], most: int
) -> State:
    eps = jnp.zeros(model.nv, model.dtype) if eps is None else eps
    q, nu, eps = arguments.vectors(model, q=q, nu=nu, eps=eps)
    if not model.nv:
        return State(q, nu)
    dtype = jnp.result_type(q, model.dtype, *jax.tree.leaves(forces))
    q, nu, eps = (x.astype(dtype) for x in (q, nu, eps))
    h = number("dt", dt, dtype) / 2

    def middle(v: jax.Array) -> Any:
        at = integrate(model, q, h * v)
        acting = forces | {name: f(at, v) for name, f in of_state}
        tau, f_ext = acting.get("tau"), arguments.forces(model, acting.get("f_ext"))
        tau = None if tau is None else arguments.vectors(model, tau=tau)[0].astype(dtype)
        f_ext = None if f_ext is None else f_ext.astype(dtype)
        return _middle_of_state(model, at, nu, v, eps, tau, f_ext, h)

    def solve(_: Any, v: jax.Array) -> jax.Array:
        enough = 2 * jnp.finfo(v.dtype).eps

        def going(state: Any) -> jax.Array:
            _, change, size, count = state
            return (count < most) & (change > enough * size)

        def iterate(state: Any) -> Any:
            v, _, _, count = state
            new = middle(v)[1]
            return new, jnp.abs(new - v).max(), jnp.abs(new).max(), count + 1

        return jax.lax.while_loop(going, iterate, (v, jnp.ones((), v.dtype), jnp.zeros((), v.dtype), 0))[0]

    def solve_linear(linear: Any, y: jax.Array) -> jax.Array:
        return jnp.linalg.solve(jax.jacfwd(linear)(y), y)

    v = jax.lax.custom_root(lambda v: v - middle(v)[1], jnp.zeros_like(nu), solve, solve_linear)
    return State(integrate(model, q, 2 * h * v), 2 * middle(v)[0] - nu)


def step_xi(model: Model, q: Any, xi: Any, qd: Any, tau: Any, *, dt: Any, f_ext: Any = None) -> XiState:
    r"""Advance a robot by one step of Algorithm 8.1 of 002: a sweep inward for xi', one outward for the velocity.

    .. math:: \xi' = \xi + h\, D^{-1} [\tau - H \psi \zeta], \qquad \dot q' = (I - H\psi K)^* \xi', \qquad
        q' = q \oplus h\, \dot q'

    The forces of motion are inside the sweep inward; there is no sweep of inverse dynamics before it, and none for
    accelerations. Of first order.

    Args:
        model: the model, without mimic joints. Its gravity acts; its passive forces do not.
        q: configuration, (nq,).
        xi: total joint rates, (nv,), as of `to_xi`.
        qd: velocity, (nv,): what the step before returned; at first `from_xi(model, q, xi)`.
        tau: joint forces, (nv,).
        dt: length of the step.
        f_ext: force on each body, (nbodies, 6).

    Returns:
        q, xi and qd after the step.
    """
    return _step_xi(prepared(model), q, xi, qd, tau, dt, f_ext)


@jit
def _step_xi(model: Model, q: Any, xi: Any, qd: Any, tau: Any, dt: Any, f_ext: Any) -> XiState:
    q, xi, qd, tau = arguments.vectors(model, q=q, xi=xi, qd=qd, tau=tau)
    if not model.nv:
        return XiState(q, xi, qd)
    h = number("dt", dt, xi.dtype)
    xi, qd = _after_xi_of_state(model, q, xi, qd, tau, arguments.forces(model, f_ext), h)
    return XiState(integrate(model, q, h * qd), xi, qd)
