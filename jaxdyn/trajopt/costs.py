r"""Costs: sums of weighted squares of residuals, and functions of one's own.

.. math:: l(x, u) = \sum_k \tfrac{1}{2}\, r_k^T W_k\, r_k

A cost is made of terms by `+` and by multiplication with numbers, `0.1 * frame_position("tool", p) + state(x)`, and is
a pytree: weights and targets are leaves, to be batched and differentiated. What a solver asks of it:

- `cost.value(plant, x, u, i)`: the cost of one state and input, at step i of time;
- `cost.residuals(plant, x, u, i)`: all residuals of it, times the roots of their weights, (m,): value is half their
  square, if no term is a plain function (`cost.is_least_squares`);
- `cost.expansion(plant, x, u, i)`: value, gradient and Gauss-Newton Hessian by (dx, du), in the tangent of x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.trajopt.first_order import FirstOrder
from jaxdyn.trajopt.plant import Plant, static


class Knot(NamedTuple):
    """Where a cost is asked for: one state, and the inputs that follow it."""

    plant: Plant
    x: jax.Array
    """(nx,)."""
    u: jax.Array
    """(nu,); zero after the last step."""
    known: FirstOrder | None = None
    """What has been computed of the robot at this state, to be shared between terms."""

    @property
    def q(self) -> jax.Array:
        """Configuration, (nq,)."""
        return self.plant.split(self.x)[0]

    @property
    def qd(self) -> jax.Array:
        """Velocity, (nv,)."""
        return self.plant.split(self.x)[1]


class Kind:
    """What a term measures. Subclasses are frozen dataclasses of what is known at compile time, such as a frame."""

    of_inputs = False
    """Whether it is about u: then it has no place in a terminal cost."""
    is_scalar = False
    """Whether `residual` is a cost itself, a number, and no residual to be squared."""

    def check(self, plant: Plant, term: Term) -> None:
        """Raise an error if the target does not fit."""

    def residual(self, at: Knot, target: Any) -> jax.Array:
        """Return r, (m,)."""
        raise NotImplementedError

    def coordinates(self, plant: Plant) -> int | None:
        """Return the first of the components of (dx, du) that r consists of, up to a constant; None if it does not."""
        return None

    def slopes(self, at: Knot, target: Any) -> jax.Array:
        """Return the derivatives of r by (dx, du), (m, ndx + nu), in the tangent; by default with forward mode."""
        plant = at.plant
        along = lambda z: self.residual(_moved(at, z), target)
        return jax.jacfwd(along)(jnp.zeros(plant.ndx + plant.nu, at.x.dtype))


def _moved(at: Knot, z: jax.Array) -> Knot:
    plant = at.plant
    return Knot(plant, plant.integrate(at.x, z[: plant.ndx]), at.u + z[plant.ndx :])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Term:
    """One term: a residual with its target and its weights."""

    weight: Any
    """W, a number or (m,)."""
    target: Any
    """What the residual is measured from; any pytree."""
    kind: Kind = field(metadata=static)
    varying: bool = field(default=False, metadata=static)
    """Whether weight and target have a row for every step of time."""

    def at(self, i: Any) -> Term:
        """Return the term as it is at step i."""
        if not self.varying:
            return self
        weight, target = jax.tree.map(lambda x: jnp.asarray(x)[i], (self.weight, self.target))
        return Term(weight, target, self.kind)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cost:
    """A sum of terms."""

    terms: tuple[Term, ...] = ()

    def __add__(self, other: Any) -> Cost:
        if isinstance(other, (int, float)) and other == 0:  # sum() begins with it
            return self
        return Cost(self.terms + other.terms) if isinstance(other, Cost) else NotImplemented

    __radd__ = __add__

    def __mul__(self, factor: Any) -> Cost:
        scaled = lambda term: Term(factor * jnp.asarray(term.weight), term.target, term.kind, term.varying)
        return Cost(tuple(map(scaled, self.terms)))

    __rmul__ = __mul__
    __array_ufunc__ = None  # numpy's numbers leave multiplication to this class

    @property
    def is_least_squares(self) -> bool:
        """Whether all terms are squares of residuals."""
        return not any(term.kind.is_scalar for term in self.terms)

    def check(self, plant: Plant, *, terminal: bool, steps: int) -> None:
        """Raise an error that names the term if one does not fit the plant."""
        for term in self.terms:
            name = type(term.kind).__name__
            if terminal and (term.kind.of_inputs or term.varying):
                what = "of the inputs" if term.kind.of_inputs else "with a row for every step"
                raise ValueError(f"terminal_cost has a term {name} {what}, which there are none of at the end")
            if term.varying:
                rows = {np.shape(x)[:1] for x in jax.tree.leaves((term.weight, term.target))}
                if rows != {(steps,)}:
                    raise ValueError(f"{name} varies: weight and target must have {steps} rows; got {sorted(rows)}")
            term.kind.check(plant, term)

    def value(self, plant: Plant, x: jax.Array, u: jax.Array, i: Any) -> jax.Array:
        """Return the cost of one state and input, at step i."""
        total, at = jnp.zeros((), x.dtype), Knot(plant, x, u)
        for term in (term.at(i) for term in self.terms):
            r, w = term.kind.residual(at, term.target), jnp.asarray(term.weight, x.dtype)
            total = total + (w * r if term.kind.is_scalar else 0.5 * (w * r * r).sum())
        return total

    def residuals(self, plant: Plant, x: jax.Array, u: jax.Array, i: Any) -> jax.Array:
        """Return the residuals of one state and input times the roots of their weights, (m,)."""
        parts, at = [jnp.zeros(0, x.dtype)], Knot(plant, x, u)
        for term in (term.at(i) for term in self.terms if not term.kind.is_scalar):
            parts.append(jnp.sqrt(jnp.asarray(term.weight, x.dtype)) * term.kind.residual(at, term.target))
        return jnp.concatenate(parts)

    def expansion(
        self, plant: Plant, x: jax.Array, u: jax.Array, i: Any, known: FirstOrder | None = None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return value (), gradient (n,) and Hessian (n, n) by z = (dx, du), without second derivatives of residuals.

        `known` is what has been computed of the robot at x, by `Plant.first_order`.
        """
        at, n = Knot(plant, x, u, known), plant.ndx + plant.nu
        value, gradient, diagonal, hessian = (jnp.zeros(shape, x.dtype) for shape in ((), (n,), (n,), (n, n)))
        rows, weighted, errors = [], [], []
        for term in (term.at(i) for term in self.terms):
            w, kind, target = jnp.asarray(term.weight, x.dtype), term.kind, term.target
            if kind.is_scalar:
                along = lambda z: kind.residual(_moved(at, z), target)
                still = jnp.zeros(n, x.dtype)
                value = value + w * along(still)
                gradient = gradient + w * jax.grad(along)(still)
                hessian = hessian + w * jax.hessian(along)(still)
                continue
            r, first = kind.residual(at, target), kind.coordinates(plant)
            value = value + 0.5 * (w * r * r).sum()
            if first is not None:  # slopes are rows of the unit matrix
                spread = lambda x: jnp.pad(x, (first, n - first - len(x)))
                gradient, diagonal = gradient + spread(w * r), diagonal + spread(jnp.broadcast_to(w, r.shape))
                continue
            slopes = kind.slopes(at, target)
            rows.append(slopes)
            weighted.append(jnp.broadcast_to(w, r.shape)[:, None] * slopes)
            errors.append(r)
        if rows:
            R, WR, r = jnp.concatenate(rows), jnp.concatenate(weighted), jnp.concatenate(errors)
            gradient, hessian = gradient + r @ WR, hessian + R.T @ WR
        return value, gradient, hessian + jnp.diag(diagonal)


@dataclass(frozen=True)
class Function(Kind):
    """A function of one's own (x, u) or (x, u, params), of a terminal cost (x) or (x, params)."""

    function: Callable[..., Any]
    is_scalar: bool
    with_inputs: bool = True

    def residual(self, at: Knot, target: Any) -> jax.Array:
        """Call the function."""
        args = (at.x, at.u) if self.with_inputs else (at.x,)
        result = jnp.asarray(self.function(*args) if target is None else self.function(*args, target))
        if self.is_scalar and result.ndim:
            raise ValueError(f"a function that is a cost must return a number; got {result.shape}: use residual(...)")
        return result if self.is_scalar else jnp.atleast_1d(result)


def residual(function: Callable[..., Any], *, weight: Any = 1.0, params: Any = None) -> Cost:
    """Make a cost of a function that returns a residual, half the square of which is the cost.

    Args:
        function: (x, u) -> (m,), or (x, u, params) -> (m,) if params are given; u is zero after the last step. Keep
            hold of it: a new function is compiled anew.
        weight: a number, or (m,).
        params: any pytree, with respect to which solutions can be differentiated.
    """
    return Cost((Term(weight, params, Function(function, False)),))


def cost(function: Callable[..., Any], *, weight: Any = 1.0, params: Any = None) -> Cost:
    """Make a cost of a function that returns a number; second derivatives are its own, found by JAX.

    Args:
        function: (x, u) -> number, or (x, u, params) -> number if params are given; u is zero after the last step.
        weight: a factor.
        params: as in `residual`.
    """
    return Cost((Term(weight, params, Function(function, True)),))


def cost_of(name: str, given: Any, *, terminal: bool) -> Cost:
    """Return a cost as it is, a plain function (x, u), of a terminal cost (x), as a cost, and None as none."""
    if given is None:
        return Cost()
    if isinstance(given, Cost):
        return given
    if callable(given):
        return Cost((Term(1.0, None, Function(given, True, not terminal)),))
    raise TypeError(f"{name} must be a Cost, such as state(...), a function, or None; got {type(given).__name__}")
