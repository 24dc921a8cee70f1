r"""A constrained problem along a chain of knots: its terms, their values, and their derivatives as banded matrices.

.. math:: \min_{z, s}\ \sum_i w_i\, \phi(y_i) \quad \text{with} \quad c_i = 0 \ \text{or} \ c_i \le 0

where every (y, w, c) is a function of one knot or of two neighbours, and of unknowns s that all share.
`trajopt.constrained` solves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from jaxdyn.trajopt.banded import Banded, Vector

Span = Literal["each", "pairs", "last"]


class Local(NamedTuple):
    """What a term says at one place."""

    y: jax.Array
    """(ny,): what its cost is a function of."""
    weight: jax.Array
    """The cost's weight."""
    c: jax.Array
    """(nc,): constraints."""
    shown: Any = None
    """What else the caller wants to know of the solution."""


class Part(NamedTuple):
    """Places of a term: all knots, all pairs of neighbours, or the last knot."""

    span: Span
    point: Callable[[Any, jax.Array, tuple[Any, ...], jax.Array], Any]
    """(theta, index of the place, its knots, what all share) -> what the term asks for there, any arrays."""


class Term(NamedTuple):
    """A function of what is at its places. It may be costly: it is evaluated for the places of all parts at once."""

    parts: tuple[Part, ...]
    local: Callable[[Any, jax.Array, Any], Local]
    """(theta, index, point)."""
    cost: Callable[[Any, jax.Array, jax.Array], jax.Array]
    """phi(theta, index, y): a number. Gauss-Newton steps take it to be convex."""
    constraints: tuple[tuple[str, int, bool], ...]
    """What the rows of c are: (name, number of rows, whether c <= 0 rather than c = 0)."""

    @property
    def inequality(self) -> jax.Array:
        """Which components of c are inequalities, (1, nc)."""
        kinds = (np.full(n, kind) for _, n, kind in self.constraints)
        return jnp.asarray(np.concatenate([np.zeros(0, bool), *kinds])[None])


@dataclass(frozen=True)
class Problem:
    """Terms along a chain, and how its unknowns move."""

    terms: tuple[Term, ...]
    retract: Callable[[Any, Any, jax.Array], Any]
    """(theta, knot, change (n,)) -> knot."""
    place: Callable[[Any, Any], Any]
    """(theta, knots) -> knots, in which what is given is set to its values."""
    free: tuple[np.ndarray, np.ndarray]
    """(K, n) and (m,): 1 for what is unknown, 0 for what is given."""


# ---------------------------------------------------------------------- places along the chain
_ROWS: dict[Span, list[slice]] = {
    "each": [slice(None)],
    "pairs": [slice(-1), slice(1, None)],
    "last": [slice(-1, None)],
}


def _knots(span: Span, z: Any) -> tuple[Any, ...]:
    """Return what a term's places see of the chain: one or two arrays of knots."""
    return tuple(jax.tree.map(lambda x, rows=rows: x[rows], z) for rows in _ROWS[span])


def gather(span: Span, x: Vector) -> jax.Array:
    """Return a change of all unknowns as each place sees it, (places, size)."""
    along = _knots(span, x[0])
    return jnp.concatenate([*along, jnp.broadcast_to(x[1], (len(along[0]), len(x[1])))], 1)


def _scatter(span: Span, local: jax.Array, like: Vector) -> Vector:
    """Return the sum over places: the transpose of `gather`."""
    return jax.linear_transpose(lambda x: gather(span, x), like)(local)[0]


def _points(
    term: Term, theta: Any, z: Any, s: Any, function: Callable[..., Any], rows: list[Any] | None = None
) -> list[Any]:
    """Return function(k, knots, point, *row) at all places, by part; point is the part's function of (knots, s)."""

    def of(part: Part, *rows: Any) -> Any:
        def flat(k: Any, zs: Any, s: Any) -> jax.Array:
            return ravel_pytree(part.point(theta, k, zs, s))[0]

        zs = _knots(part.span, z)
        k = jnp.arange(len(jax.tree.leaves(zs)[0]))
        return jax.vmap(lambda k, zs, *row: function(k, zs, partial(flat, k), *row))(k, zs, *rows)

    return [of(*each) for each in (zip(term.parts, rows, strict=True) if rows else zip(term.parts))]


def joined(rows: list[Any]) -> Any:
    """Return the rows of all parts as one array."""
    return jax.tree.map(lambda *x: jnp.concatenate(x), *rows)


def _parted(term: Term, z: Any, rows: Any) -> list[Any]:
    """Return rows of all parts as one array each."""
    K = len(jax.tree.leaves(z)[0])
    ends = np.cumsum([{"each": K, "pairs": K - 1, "last": 1}[part.span] for part in term.parts])
    return [jax.tree.map(lambda x, a=a, b=b: x[a:b], rows) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def _flat_local(term: Term, theta: Any, z: Any, s: Any) -> Callable[[Any, jax.Array], Local]:
    """Return the term's function of a flat point."""
    part = term.parts[0]
    point: Callable[..., Any] = part.point
    like = jax.eval_shape(lambda z, s: point(theta, jnp.zeros((), int), *_first(part, z), s), z, s)
    restore = ravel_pytree(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like))[1]
    return lambda k, p: term.local(theta, k, restore(p))


def _first(part: Part, z: Any) -> Any:
    return (tuple(jax.tree.map(lambda x: x[0], zs) for zs in _knots(part.span, z)),)


# ---------------------------------------------------------------------- values
def estimates_of(problem: Problem, values: Any, multipliers: Any, penalty: Any) -> tuple[jax.Array, ...]:
    """Return the multipliers that the constraints' values speak for."""
    moved = [m + penalty * c for c, m in zip(values, multipliers, strict=True)]
    return tuple(jnp.where(t.inequality, jnp.maximum(m, 0), m) for t, m in zip(problem.terms, moved, strict=True))


def evaluate(problem: Problem, theta: Any, z: Any, s: Any) -> tuple[jax.Array, tuple[jax.Array, ...], list[Any]]:
    """Return the cost, and by term the constraints' values; and by term and part what is shown."""
    cost, values, shown = jnp.zeros((), s.dtype), [], []
    for term in problem.terms:
        local = _flat_local(term, theta, z, s)

        def place(k: Any, p: Any, term: Term = term, local: Any = local) -> Any:
            at = local(k, p)
            return at.weight * term.cost(theta, k, at.y), at.c, at.shown

        k, p = joined(_points(term, theta, z, s, lambda k, zs, point: (k, point(zs, s))))
        costs, c, seen = jax.vmap(place)(k, p)
        cost = cost + costs.sum()
        values.append(c)
        shown.append(_parted(term, z, seen))
    return cost, tuple(values), shown


def augmented(problem: Problem, cost: jax.Array, values: Any, multipliers: Any, penalty: Any) -> jax.Array:
    """Return the augmented Lagrangian."""
    estimates = estimates_of(problem, values, multipliers, penalty)
    squares = [(e**2).sum() - (m**2).sum() for e, m in zip(estimates, multipliers, strict=True)]
    return cost + sum(squares) / (2 * penalty)


def violations(problem: Problem, values: tuple[jax.Array, ...]) -> dict[str, jax.Array]:
    """Return the largest error of every kind of constraint, by name."""
    found: dict[str, list[jax.Array]] = {}
    for term, c in zip(problem.terms, values, strict=True):
        start = 0
        for name, size, kind in term.constraints:
            rows = c[:, start : start + size]
            start += size
            found.setdefault(name, []).append((rows if kind else jnp.abs(rows)).max(initial=0))
    return {name: jnp.stack(parts).max() for name, parts in found.items()}


def moved_by(problem: Problem, theta: Any, z: Any, s: Any, by: Vector) -> tuple[Any, jax.Array]:
    """Return knots and shared unknowns, moved by a change of what is free."""
    along, shared = (f * x for f, x in zip(problem.free, by, strict=True))
    return jax.vmap(lambda z, w: problem.retract(theta, z, w))(z, along), s + shared


# ---------------------------------------------------------------------- to first and second order
class Slopes(NamedTuple):
    """A term to first order; rows are the places of all parts."""

    k: jax.Array
    at: Local
    phi: jax.Array
    slope: jax.Array
    """Of phi, by y."""
    curvature: jax.Array
    p: jax.Array
    by_p: Local
    """Derivatives by the point p: another last axis."""
    p_by: list[jax.Array]
    """By part: derivatives of the point by changes of its unknowns, (places, P, size)."""

    def rows(self, by: jax.Array) -> list[jax.Array]:
        """Return derivatives by p as such by the unknowns, by part."""
        ends = np.cumsum([len(p) for p in self.p_by])
        return [by[a:b] @ p for a, b, p in zip([0, *ends[:-1]], ends, self.p_by, strict=True)]


def _moving_point(problem: Problem, theta: Any, zs: Any, s: Any, point: Any) -> Callable[[jax.Array], jax.Array]:
    """Return a point as a function of a change of its unknowns, (size,)."""
    n = problem.free[0].shape[1]

    def moved(w: jax.Array) -> jax.Array:
        knots = tuple(problem.retract(theta, z, w[i * n : (i + 1) * n]) for i, z in enumerate(zs))
        return point(knots, s + w[len(zs) * n :])

    return moved


def _at_rest(problem: Problem, zs: Any, s: Any) -> jax.Array:
    return jnp.zeros(len(zs) * problem.free[0].shape[1] + len(s), s.dtype)


def _directions(f: Callable[[jax.Array], Any], at: jax.Array) -> Any:
    """Return f and its derivatives, with forward mode."""
    return jax.vmap(lambda e: jax.jvp(f, (at,), (e,)), out_axes=(None, -1))(jnp.eye(at.size, dtype=at.dtype))


def slopes_of(problem: Problem, theta: Any, z: Any, s: Any) -> list[Slopes]:
    """Return all terms to first order."""

    def of(term: Term) -> Slopes:
        def inner(k: Any, zs: Any, point: Any) -> Any:
            return k, *_directions(_moving_point(problem, theta, zs, s, point), _at_rest(problem, zs, s))

        def outer(k: Any, p: jax.Array) -> Any:
            at, by_p = _directions(partial(local, k), p)
            cost = partial(term.cost, theta, k)
            return at, by_p, cost(at.y), jax.grad(cost)(at.y), jax.hessian(cost)(at.y)

        local = _flat_local(term, theta, z, s)
        parts = _points(term, theta, z, s, inner)
        k, p = joined([(k, p) for k, p, _ in parts])
        at, by_p, phi, slope, curvature = jax.vmap(outer)(k, p)
        return Slopes(k, at, phi, slope, curvature, p, by_p, [by for _, _, by in parts])

    return [of(term) for term in problem.terms]


def gradient_of(problem: Problem, slopes: list[Slopes], estimates: Any) -> Vector:
    """Return the gradient of the Lagrangian at given multipliers."""
    total: Any = tuple(jnp.zeros(x.shape, x.dtype) for x in problem.free)
    for term, x, m in zip(problem.terms, slopes, estimates, strict=True):
        parts = x.rows(_by_point(x, m)[:, None])
        for part, local in zip(term.parts, parts, strict=True):
            total = jax.tree.map(jnp.add, total, _scatter(part.span, local[:, 0], total))
    return tuple(f * x for f, x in zip(problem.free, total, strict=True))


def _by_point(x: Slopes, m: jax.Array) -> jax.Array:
    """Return the gradient of a term's Lagrangian by its points, (rows, P)."""
    of_cost = x.at.weight[:, None] * jnp.einsum("iyp,iy->ip", x.by_p.y, x.slope) + x.phi[:, None] * x.by_p.weight
    return of_cost + jnp.einsum("icp,ic->ip", x.by_p.c, m)


def assembled(problem: Problem, blocks: list[list[jax.Array]]) -> Banded:
    """Return the sum of all places' matrices, (places, size, size) by term and part."""
    (K, n), (m,) = (x.shape for x in problem.free)
    dtype = problem.free[0].dtype
    D, E, B, C = (jnp.zeros(shape, dtype) for shape in ((K, n, n), (K - 1, n, n), (K, n, m), (m, m)))
    for part, H in (
        (p, h) for t, hs in zip(problem.terms, blocks, strict=True) for p, h in zip(t.parts, hs, strict=True)
    ):
        for i, rows in enumerate(_ROWS[part.span]):
            here = slice(i * n, (i + 1) * n)
            D, B = D.at[rows].add(H[:, here, here]), B.at[rows].add(H[:, here, -m:])
        if part.span == "pairs":
            E = E + H[:, :n, n : 2 * n]
        C = C + H[:, -m:, -m:].sum(0)
    return Banded(D, E, B, C).restricted(problem.free)


def congruent(x: Slopes, by_p: jax.Array) -> list[jax.Array]:
    """Return second derivatives by points as such by unknowns, by part."""
    ends = np.cumsum([len(p) for p in x.p_by])
    pieces = zip([0, *ends[:-1]], ends, x.p_by, strict=True)
    return [jnp.swapaxes(p, 1, 2) @ by_p[a:b] @ p for a, b, p in pieces]


def of_penalty(x: Slopes, active: jax.Array, penalty: Any) -> jax.Array:
    """Return the second derivatives of the penalty by points, but for those of c, (rows, P, P)."""
    return penalty * jnp.einsum("icp,ic,icr->ipr", x.by_p.c, active.astype(x.p.dtype), x.by_p.c)


def gauss_newton_blocks(slopes: list[Slopes], active: Any, penalty: Any) -> list[list[jax.Array]]:
    """Return the second derivatives of the augmented Lagrangian, but for those of y and c, by term and part."""
    of_cost = (jnp.einsum("i,iyp,iyx,ixr->ipr", x.at.weight, x.by_p.y, x.curvature, x.by_p.y) for x in slopes)
    by_point = (H + of_penalty(x, on, penalty) for H, x, on in zip(of_cost, slopes, active, strict=True))
    return [congruent(x, H) for x, H in zip(slopes, by_point, strict=True)]


def newton_blocks(
    problem: Problem, theta: Any, z: Any, s: Any, slopes: list[Slopes], multipliers: Any, active: Any, penalty: Any
) -> list[list[jax.Array]]:
    """Return all second derivatives of the augmented Lagrangian, by term and part."""

    def of(term: Term, x: Slopes, m: jax.Array, on: jax.Array) -> list[jax.Array]:
        local = _flat_local(term, theta, z, s)

        def hessian(k: Any, p: jax.Array, m: jax.Array) -> jax.Array:
            def lagrangian(p: jax.Array) -> jax.Array:
                at = local(k, p)
                return at.weight * term.cost(theta, k, at.y) + at.c @ m

            return jax.hessian(lagrangian)(p)

        def bend(k: Any, zs: Any, point: Any, slope: jax.Array) -> jax.Array:
            moved = _moving_point(problem, theta, zs, s, point)
            return jax.hessian(lambda w: moved(w) @ slope)(_at_rest(problem, zs, s))

        by_point = jax.vmap(hessian)(x.k, x.p, m) + of_penalty(x, on, penalty)
        bends = _points(term, theta, z, s, bend, _parted(term, z, _by_point(x, m)))
        return [H + b for H, b in zip(congruent(x, by_point), bends, strict=True)]

    return [of(*each) for each in zip(problem.terms, slopes, multipliers, active, strict=True)]
