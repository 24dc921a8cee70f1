r"""When the mass matrix is that of a flat space, and the coordinates of that space (002 section 2).

A factor M = J* J of the mass matrix whose rows are gradients, J = dy/dq, makes the equations of motion y'' = J^-* tau:
in the coordinates y the robot is a point mass in Euclidean space. There is such a factor if and only if the curvature
is zero everywhere (002 Lemmas 2.1 and 2.2), which few robots have. Then its rows are covectors that stay parallel to
themselves, J' = J M^-1 C(q, q') along any path: C is the Coriolis matrix.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple
from weakref import WeakSet

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular

from jaxdyn import _checks
from jaxdyn._compiling import ONCE, jit
from jaxdyn.algorithms import arguments
from jaxdyn.algorithms.aba import require_regular
from jaxdyn.algorithms.crba import mass_matrix
from jaxdyn.algorithms.curvature import armature_symbols, connection, curvature_terms
from jaxdyn.algorithms.velocities import body_velocities
from jaxdyn.model import Model, difference, integrate, neutral, random_configuration


class FlatCoordinates(NamedTuple):
    """Coordinates in which the mass matrix is the unit matrix."""

    y: jax.Array
    """(nv,) the coordinates."""
    J: jax.Array
    """(nv, nv) their derivatives in the tangent: y' = J qd, and J* J is the mass matrix."""


# ---------------------------------------------------------------------- is there such a thing
def is_globally_diagonalizable(model: Model, key: jax.Array, *, samples: int = 8, tolerance: Any = None) -> bool:
    r"""Say whether the mass matrix is constant in some coordinates: whether its curvature is zero (002 Lemma 2.2).

    A gantry has such coordinates, and so does a planar arm of two links whose second one is balanced about its joint.
    Most robots do not, an isotropic body on a spherical joint among them, although its mass matrix is constant: its
    velocities are not derivatives of coordinates.

    The curvature is looked at in an orthonormal basis, at random configurations, in float64 whatever the model has.
    It counts as zero if all its components are less than `tolerance` times the largest of

    - the terms of which it is a sum,
    - the square of the angular velocity that a kinetic energy of 1/2 can give to a body,

    neither of which depends on units. Armature of a joint whose velocities are not derivatives of coordinates is
    inertia without its Coriolis forces in the equations of motion: then they are not those of any coordinates.

    Args:
        model: the model, with concrete numbers. All joints must move inertia.
        key: a key of `jax.random`.
        samples: number of configurations, drawn by `random_configuration`. One may not do: the curvature of a planar
            arm of two links vanishes where they are at right angles.
        tolerance: what counts as zero; if not given, the root of the rounding error of the model's numbers.

    Returns:
        A Python bool.

    Example:
        >>> import jax, jaxdyn
        >>> jaxdyn.diagonal.is_globally_diagonalizable(jaxdyn.load("double_pendulum"), jax.random.key(0))
        False
    """
    arguments.require_model(model)
    model.require_single()
    require_regular(model)
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ValueError(f"samples must be a positive integer; got {samples!r}")
    if not model.nv:
        return True
    tolerance = float(np.sqrt(np.finfo(model.dtype).eps)) if tolerance is None else float(tolerance)
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        found = np.asarray(_relative_curvatures(model.astype(np.float64), jax.random.split(key, samples)))
    return bool(found.max() <= tolerance)  # NaN is not


@partial(jax.jit, compiler_options=ONCE)
def _relative_curvatures(model: Model, keys: jax.Array) -> jax.Array:
    return jax.vmap(lambda key: _relative_curvature(model, random_configuration(model, key)))(keys)


def _relative_curvature(model: Model, q: jax.Array) -> jax.Array:
    """Return the largest component of the curvature, relative to what it is made of."""
    one = jnp.eye(model.nv, dtype=q.dtype)
    M, parts = curvature_terms(model, q)
    E = solve_triangular(jnp.linalg.cholesky(M), one, lower=True)  # rows: an orthonormal basis
    terms = [jnp.einsum("lijk,al,bi,cj,dk", T, E, E, E, E) for T in parts]
    spins = jax.vmap(lambda v: body_velocities(model, q, v)[:, :3])(E)
    scale = jnp.max(jnp.stack([jnp.max(jnp.sum(spins**2, (0, 2))), *(jnp.max(jnp.abs(T)) for T in terms)]))
    scale = jnp.where(scale > 0, scale, 1)
    unaccounted = jnp.einsum("ijk,ai,bj,ck", armature_symbols(model, q), E, E, E)
    return jnp.maximum(jnp.max(jnp.abs(sum(terms))) / scale, jnp.max(jnp.abs(unaccounted)) / jnp.sqrt(scale))


_flat: WeakSet[Model] = WeakSet()


def _require_flat(model: Model) -> None:
    """Raise a ValueError if a model is curved; it is looked at once, and not while it is traced."""
    if model in _flat or any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(model)):
        return
    with jax.ensure_compile_time_eval():
        flat = is_globally_diagonalizable(model, jax.random.key(0))
    if not flat:
        raise ValueError(
            f"{model.topology.name!r} has no flat coordinates: the curvature of its mass matrix is not zero "
            "(see is_globally_diagonalizable)"
        )
    _flat.add(model)


# ---------------------------------------------------------------------- the coordinates
def flat_coordinates(model: Model, q: Any, *, origin: Any = None, steps: int = 16) -> FlatCoordinates:
    r"""Compute coordinates in which the mass matrix is the unit matrix (002 Lemma 2.1).

    .. math:: \dot y = J \dot q, \quad M = J^* J, \qquad \ddot y = J^{-*} (\tau - g)

    y is found along the shortest way in joint space from an origin to q,

    .. math:: q(s) = q_0 \oplus s\,d, \quad \frac{dJ}{ds} = J M^{-1} C(q, d), \quad \frac{dy}{ds} = J d,
              \qquad y(q_0) = 0

    by Gauss-Legendre collocation of order ten. Since there is no curvature, another way would give the same. Any
    other such coordinates differ from these by a constant rotation and a shift. At the origin J is the innovations
    factor m* of a robot with joints of one degree of freedom, so that y' is nu there; elsewhere they differ by a
    rotation.

    Args:
        model: the model; a `ValueError` is raised if it is not flat. Inside `jit`, with a traced model, the caller
            sees to that.
        q: configuration, (nq,).
        origin: configuration where y is zero, (nq,), `neutral(model)` if not given. The mass matrix must not be
            singular there, nor on the way.
        steps: number of steps on the way. 16 do for a turn of a revolution; more are of use near configurations where
            the mass matrix is singular.

    Returns:
        y and J. As `difference` goes the shorter way around, y jumps where a continuous joint is half a turn from
        the origin.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> slide = {"joint": "prismatic", "mass": 2.0, "inertia": (0.1, 0.1, 0.1)}
        >>> gantry = jaxdyn.ModelBuilder("gantry").add_body("x", axis=(1, 0, 0), **slide)
        >>> gantry = gantry.add_body("z", "x", axis=(0, 0, 1), **slide).build()
        >>> y, J = jaxdyn.diagonal.flat_coordinates(gantry, jnp.array([0.5, 1.0]))
        >>> [round(float(x), 3) for x in y]
        [1.0, 1.414]
    """
    arguments.require_model(model)
    require_regular(model)
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps must be a positive integer; got {steps!r}")
    (q,) = arguments.vectors(model, q=q)
    start = neutral(model) if origin is None else _checks.vector("origin", origin, model.nq, "coordinate", model.dtype)
    _require_flat(model)
    found = _flat_coordinates(model.moving, q, start.astype(q.dtype), steps)
    if not isinstance(found.J, jax.core.Tracer) and not np.all(np.isfinite(found.J)):
        raise ValueError(
            f"origin: the mass matrix of {model.topology.name!r} is singular there, or on the way to q; "
            "give an origin in the same region as q"
        )
    return found


def _gauss_legendre(stages: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return nodes, matrix and weights of Gauss' collocation on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(stages)
    c, power = (1 + x) / 2, np.arange(stages)
    powers = c[:, None] ** power
    return c, c[:, None] * powers / (power + 1) @ np.linalg.inv(powers), w / 2


@partial(jit, static_argnums=3)
def _flat_coordinates(model: Model, q: jax.Array, origin: jax.Array, steps: int) -> FlatCoordinates:
    d, one = difference(model, origin, q), jnp.eye(model.nv, dtype=q.dtype)
    if not model.nv:
        return FlatCoordinates(d, one)
    c, A, b = (jnp.asarray(x, q.dtype) for x in _gauss_legendre(5))
    h = 1 / steps

    def slope(s: jax.Array) -> jax.Array:
        M, symbols = connection(model, integrate(model, origin, s * d))
        return cho_solve(cho_factor(M), jnp.einsum("ijk,j->ik", symbols, d))  # M^-1 C(q, d)

    def step(S: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return by what a step multiplies J, and what it adds to y where J = 1; slopes S (stages, nv, nv)."""
        size = b.size * model.nv
        coupled = jnp.eye(size, dtype=q.dtype) - h * jnp.einsum("ij,jab->jaib", A, S).reshape((size, size))
        Z = jnp.linalg.solve(coupled.T, jnp.tile(one, (b.size, 1))).T  # J at the stages, side by side
        Z = Z.reshape((model.nv, b.size, model.nv))
        return one + h * jnp.einsum("j,ajb,jbc->ac", b, Z, S), h * jnp.einsum("j,ajb,b->a", b, Z, d)

    def advance(state: FlatCoordinates, part: Any) -> tuple[FlatCoordinates, None]:
        factor, shift = part
        return FlatCoordinates(state.y + state.J @ shift, state.J @ factor), None

    at = h * (jnp.arange(steps, dtype=q.dtype)[:, None] + c[None])
    parts = jax.vmap(step)(jax.vmap(jax.vmap(slope))(at))
    M = mass_matrix(model, origin, form="dense")
    J = jnp.linalg.cholesky(M[::-1, ::-1])[::-1, ::-1].T
    return jax.lax.scan(advance, FlatCoordinates(jnp.zeros_like(d), J), parts)[0]
