"""Spatial operators as things to compute with: sums, products, transposes, inverses, and application in O(N)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._compiling import jit
from jaxdyn.algorithms.aba import require_regular
from jaxdyn.algorithms.articulation import tile_of_rows
from jaxdyn.model import Model
from jaxdyn.operators import expressions
from jaxdyn.operators.expressions import Atom, Expression, Space
from jaxdyn.operators.mechanism import Mechanism
from jaxdyn.operators.passes import RIGID
from jaxdyn.operators.steps import Frames
from jaxdyn.recursion import batched
from jaxdyn.spatial import Force


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Source:
    """A robot at a configuration."""

    model: Model
    q: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Operator:
    """A linear operator between joint space, body space and the space of frames.

    Made by `spatial_operators`, and by `+`, `-`, `@`, `.T`, `.inv()` and scalar multiples of what is there.
    `A @ x` applies it, to a vector or to the columns of a matrix, in time proportional to the number of bodies; no
    matrix is formed but by `as_matrix`.
    """

    sources: tuple[Source, ...]
    """Robots and configurations that it depends on."""
    scalars: tuple[jax.Array, ...]
    frames: tuple[Frames, ...]
    expression: Expression = field(metadata={"static": True})

    # NumPy arrays must leave `array @ operator` and `array * operator` to us.
    __array_ufunc__ = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns. The identity by itself is that of body space."""
        out, into = self._spaces
        return self._size(out), self._size(into)

    @property
    def dtype(self) -> Any:
        """Type of its numbers."""
        return jnp.result_type(*jax.tree.leaves((self.sources, self.scalars)))

    @property
    def T(self) -> Operator:
        """The transpose."""
        return self._with(self.expression.T)

    def inv(self) -> Operator:
        r"""Return the inverse, where the algebra has one that is applied in O(N) too.

        .. math:: \phi^{-1} = I - E_\phi, \quad (I + H\phi K)^{-1} = I - H\psi K, \quad
            M^{-1} = (I - H\psi K)^* D^{-1} (I - H\psi K)

        also of psi, D, L, the innovations factor, and of products and multiples of such.
        """
        self._require_single()
        sign, scalars, expression = self._scale
        if (bare := self._without_armature(expression)) is not None:
            found = bare.inv()
        else:
            inverse = expression.inverse()
            if inverse is None:
                self._require_one_source(expression)
                raise ValueError(
                    f"{self} has no inverse in the algebra. It is known of phi, psi, I - E_phi, I - E_psi, D, L, m, "
                    "I + H @ phi @ K, I - H @ psi @ K, H @ phi @ M @ phi.T @ H.T + A, of products of such, and of "
                    "H @ phi @ M @ phi.T @ H.T by itself"
                )
            found = self._with(inverse)
        for i in scalars:
            found = (1 / self.scalars[i]) * found
        return found if sign > 0 else -found

    def solve(self, x: Any) -> jax.Array:
        """Return the inverse applied to a vector or to the columns of a matrix."""
        return self.inv() @ x

    def logdet(self) -> jax.Array:
        """Return the logarithm of the absolute value of the determinant, in O(N), where the algebra has it."""
        self._require_single()
        _, scalars, expression = self._scale
        if (bare := self._without_armature(expression)) is not None:
            of_roots = bare.logdet()
        else:
            power, used = _power_of_roots(expression), sorted(expression.sources)
            if power is None or len(used) > 1:
                self._require_one_source(expression)
                raise ValueError(
                    f"the determinant of {self} is not known; it is of phi, psi, D, L, m, the mass matrix and "
                    "H @ phi @ M @ phi.T @ H.T, and of products of the first five"
                )
            source = self.sources[used[0] if used else 0]
            of_roots = jnp.zeros((), self.dtype)
            if power and source.model.nv:
                require_regular(source.model)
                of_roots = power * _sum_of_log_roots(Source(source.model.moving, source.q))
        return of_roots + self.shape[0] * sum(jnp.log(jnp.abs(self.scalars[i])) for i in scalars)

    def as_matrix(self) -> jax.Array:
        """Return the dense matrix."""
        return self @ jnp.eye(self.shape[1], dtype=self.dtype)

    def __matmul__(self, other: Any) -> Any:
        """Return the product with an operator, a vector, or a matrix of columns."""
        if isinstance(other, Operator):
            into, out = self._known_spaces[1], other._known_spaces[0]
            if into and out and (_kind(into) != _kind(out) or self._size(into) != other._size(out)):
                raise ValueError(
                    f"{self} takes {self._named(into)}, but {other} gives {other._named(out)}: there is no product"
                )
            return self._combined(other, lambda a, b: a @ b)
        self._require_single()
        x = jnp.asarray(other)
        rows, columns = self.shape
        if self._known_spaces == (None, None) and x.ndim and len(x) == self._size("joint"):
            rows = columns = len(x)  # the identity fits any space
        if x.ndim not in (1, 2) or len(x) != columns:
            raise ValueError(
                f"{self} takes a vector ({columns},) of {self._named(self._spaces[1])}, or a matrix ({columns}, k); "
                f"got shape {x.shape}"
            )
        x = x.astype(jnp.result_type(self.dtype, x))
        if self._known_spaces == (None, None):
            return sum(t.sign * _product([self.scalars[i] for i in t.scalars]) * x for t in self.expression.terms)
        if not rows * columns * x.size:
            return jnp.zeros((rows, *x.shape[1:]), x.dtype)
        if not self.expression.names <= RIGID:
            for source in self.sources:
                require_regular(source.model)
        sources = tuple(Source(source.model.moving, source.q) for source in self.sources)
        return _applied(sources, self.scalars, self.frames, x, self.expression)

    def __rmatmul__(self, x: Any) -> jax.Array:
        """Return x A of a vector, or of the rows of a matrix."""
        return (self.T @ jnp.asarray(x).T).T

    def __add__(self, other: Operator) -> Operator:
        return self._sum(other, lambda a, b: a + b)

    def __radd__(self, other: Any) -> Operator:
        """Let `sum` begin with zero."""
        return self if isinstance(other, int) and other == 0 else self._sum(other, lambda a, b: a + b)

    def __sub__(self, other: Operator) -> Operator:
        return self._sum(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Operator:
        """Refuse what is not an operator."""
        return self._sum(other, lambda a, b: b - a)

    def __neg__(self) -> Operator:
        return self._with(-self.expression)

    def __mul__(self, scalar: Any) -> Operator:
        if isinstance(scalar, Operator):
            return NotImplemented
        scalar = jnp.asarray(scalar, jnp.result_type(scalar, self.dtype))
        if scalar.ndim:
            raise ValueError(f"{self} can be multiplied by a scalar; got an array of shape {scalar.shape}")
        expression = self.expression.scaled(len(self.scalars))
        return Operator(self.sources, (*self.scalars, scalar), self.frames, expression)

    __rmul__ = __mul__

    def __truediv__(self, scalar: Any) -> Operator:
        return self * (1 / scalar)

    def __repr__(self) -> str:
        return str(self.expression)

    # ------------------------------------------------------------------
    def _require_single(self) -> None:
        """Raise a ValueError for a batch that nobody takes apart."""
        for source in self.sources:
            source.model.require_single(concrete=False)
        if any(source.q.ndim != 1 for source in self.sources) or any(c.ndim for c in self.scalars):
            raise ValueError(f"{self} is a batch of operators: take it apart with jax.vmap")

    def _with(self, expression: Expression) -> Operator:
        return Operator(self.sources, self.scalars, self.frames, expression)

    @property
    def _known_spaces(self) -> tuple[Space | None, Space | None]:
        return self.expression.spaces

    @property
    def _spaces(self) -> tuple[Space, Space]:
        out, into = self._known_spaces
        return out or "body", into or "body"

    def _size(self, space: Space) -> int:
        if space.startswith("frame:"):
            return 6 * len(self.frames[int(space.removeprefix("frame:"))].body)
        model = self.sources[0].model
        return model.nv if space == "joint" else 6 * model.nbodies

    def _named(self, space: Space) -> str:
        return f"{_kind(space)} space ({self._size(space)})"

    @property
    def _scale(self) -> tuple[int, tuple[int, ...], Expression]:
        """Return sign and scalars of a single product, and the product without them."""
        if len(self.expression.terms) > 1:
            return 1, (), self.expression
        term = self.expression.terms[0]
        return term.sign, term.scalars, Expression.of(*term.factors)

    def _without_armature(self, expression: Expression) -> Operator | None:
        """Return H phi M phi* H* as the mass matrix of a robot without armature, whose filter is the one for it."""
        source = min(expression.sources, default=0)
        if expression != expressions.newton_euler(source):
            return None
        model, q = self.sources[source].model, self.sources[source].q
        bare = Source(model.replace(armature=jnp.zeros_like(model.armature)), q)
        return Operator((bare,), (), (), expressions.mass_matrix())

    def _require_one_source(self, expression: Expression) -> None:
        """Raise a ValueError where an inverse or determinant would be known if all operators came from one call."""
        count = len(expression.sources)
        if count < 2:
            return
        alike = expression.moved((0,) * len(self.sources), 0, 0)
        if alike == expressions.newton_euler() or alike.inverse() is not None:
            raise ValueError(
                f"{self} is known to the algebra, but its operators come from {count} different calls of "
                "spatial_operators, or went into jit one by one, and may belong to different configurations: take them "
                "all from what one call returns, and hand that to jit as one argument"
            )

    def _sum(self, other: Any, join: Any) -> Operator:
        if not isinstance(other, Operator):
            raise TypeError(f"{self} can be added to another operator; got {type(other).__name__}")
        mine, theirs = self._known_spaces, other._known_spaces
        square = mine if theirs == (None, None) else theirs if mine == (None, None) else None
        if square is not None and square[0] != square[1] and mine != theirs:
            raise ValueError(f"{self} and {other} cannot be added: the identity needs a square operator beside it")
        if square is None and ([*map(_kind, mine)] != [*map(_kind, theirs)] or self.shape != other.shape):
            raise ValueError(
                f"{self} takes {self._named(self._spaces[1])} to {self._named(self._spaces[0])}, but {other} takes "
                f"{other._named(other._spaces[1])} to {other._named(other._spaces[0])}: there is no sum"
            )
        return self._combined(other, join)

    def _combined(self, other: Operator, join: Any) -> Operator:
        """Join two expressions; robots and configurations that are the same object count once."""
        one, two = self.sources[0].model.topology, other.sources[0].model.topology
        if one is not two and one != two:
            raise ValueError(f"{self} and {other} belong to robots of different structure: {one.name}, {two.name}")
        sources, numbers = list(self.sources), []
        for source in other.sources:
            known = [i for i, s in enumerate(sources) if s is source or (s.model is source.model and s.q is source.q)]
            numbers.append(known[0] if known else len(sources))
            sources += [] if known else [source]
        theirs = other.expression.moved(tuple(numbers), len(self.scalars), len(self.frames))
        return Operator(
            tuple(sources), self.scalars + other.scalars, self.frames + other.frames, join(self.expression, theirs)
        )


def _kind(space: Space | None) -> str | None:
    """Return what kind of space it is: joint, body or frame."""
    return space and space.partition(":")[0]


def _product(numbers: Sequence[Any]) -> Any:
    return np.prod(np.array(numbers)) if not numbers else jnp.prod(jnp.stack(numbers))


# ---------------------------------------------------------------------- application
def _evaluate(expression: Expression, sources: Any, scalars: Any, frames: Any, x: jax.Array) -> jax.Array:
    """Apply an expression to x (n, batch) or (n, columns, batch): from the right, what belongs to a robot at once."""
    spaces = expression.spaces
    # Axes of the base will do where no others are seen: not those of another configuration, nor the world's.
    root_axes = len(sources) == 1 and spaces == ("joint", "joint") and "B" not in expression.names
    robots = [Mechanism(s.model, s.q, root_axes=root_axes, columns=x.ndim > 2) for s in sources]

    def brought(x: Any, space: Any, here: int, there: int) -> Any:
        """Return a vector in the stages of another robot."""
        return x if here == there else robots[there].take(space, robots[here].give(space, x))

    def applied(expression: Expression, x: Any, space: Any, at: int) -> tuple[Any, Any, int]:
        """Return the sum of the terms' results, the space that it is in, and whose stages."""
        total, total_at = None, at
        for term in expression.terms:
            y, y_space, y_at = x, space, at
            for source, factors in groupby(reversed(term.factors), lambda factor: getattr(factor, "source", None)):
                if source is None:
                    for inner in factors:
                        y, y_space, y_at = applied(cast(Expression, inner), y, y_space, y_at)
                    continue
                y, y_at, atoms = brought(y, y_space, y_at, source), source, cast(list[Atom], list(factors))
                y, y_space = robots[y_at].product(atoms, y, frames), atoms[-1].spaces[0]
            for i in term.scalars:
                y = _times(scalars[i], y)
            y = y if term.sign > 0 else jax.tree.map(lambda part: -part, y)
            if total is None:
                total, total_at = y, y_at
            else:
                total = _plus(total, brought(y, y_space, y_at, total_at), y_space)
        return total, y_space, total_at

    y, space, at = applied(expression, robots[0].take(spaces[1], x), spaces[1], 0)
    return robots[at].give(space, y)


def _times(scalar: Any, x: Any) -> Any:
    """Return a vector in stages times a scalar (batch,)."""

    def one(part: Any) -> Any:
        if type(part) is float and part == 0.0:
            return part
        return scalar.reshape((1,) * (np.ndim(part) - 1) + scalar.shape) * part

    return jax.tree.map(one, x)


def _plus(x: Any, y: Any, space: Any) -> Any:
    if space == "joint":
        return [tuple(a + b for a, b in zip(*both, strict=True)) for both in zip(x, y, strict=True)]
    if space == "body":
        return [Force(a.ang + b.ang, a.lin + b.lin) for a, b in zip(x, y, strict=True)]
    return x + y


@lru_cache(maxsize=512)
def _kernel(expression: Expression, rows: int, columns: int) -> Any:
    in_rows = tile_of_rows()
    like = lambda sources, scalars, frames, x: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype)
    tile = lambda sources, scalars, frames, x: max(in_rows(sources[0].model, sources[0].q) // columns, 8)
    return batched(partial(_evaluate, expression), tile=tile, like=like)


@partial(jit, static_argnames=("expression",))
def _applied(sources: Any, scalars: Any, frames: Any, x: jax.Array, expression: Expression) -> jax.Array:
    rows = Operator(sources, scalars, frames, expression).shape[0]
    return _kernel(expression, rows, x[0].size)(sources, scalars, frames, x)


# ---------------------------------------------------------------------- determinants
def _power_of_roots(expression: Expression) -> int | None:
    """Return which power of the product of L's diagonal the determinant is, or None."""
    if expression.inverse() is not None and len(expression.terms) > 1:
        return 2 if expression.spaces == ("joint", "joint") and "A" in expression.names else 0
    if len(expression.terms) > 1 or expression.terms[0].scalars:
        return None
    powers = {"phi": 0, "psi": 0, "D": 2, "D^-1": -2, "L": 1, "L^-1": -1, "m": 1, "m^-1": -1}
    found = [
        _power_of_roots(factor) if isinstance(factor, Expression) else powers.get(factor.name)
        for factor in expression.terms[0].factors
    ]
    return None if any(power is None for power in found) else sum(power for power in found if power is not None)


def _log_roots(source: Source) -> jax.Array:
    robot = Mechanism(source.model, source.q, root_axes=True, columns=False)
    return robot.joints.collect([tuple(jnp.log(root) for root in roots) for roots in robot.roots]).sum(0)


_log_roots_of_state = batched(
    _log_roots,
    tile=lambda source: tile_of_rows()(source.model, source.q),
    like=lambda source: jax.ShapeDtypeStruct((), jnp.result_type(*jax.tree.leaves(source))),
)
_sum_of_log_roots = jit(_log_roots_of_state)
