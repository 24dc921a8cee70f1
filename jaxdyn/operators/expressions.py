"""Expressions in spatial operators: what they are made of, without any numbers.

An expression is a sum of products, such as I - H psi K. It is known when a program is traced, and says how the
operator runs: factor by factor, from right to left. The identity is the product of no factors, so that it fits
every space.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

Space = str
"""joint, body, or frame:k for the k-th set of frames of an operator."""

SPACES: dict[str, tuple[Space, Space]] = {
    "H": ("joint", "body"),
    "phi": ("body", "body"),
    "psi": ("body", "body"),
    "E_phi": ("body", "body"),
    "E_psi": ("body", "body"),
    "M": ("body", "body"),
    "P": ("body", "body"),
    "P_plus": ("body", "body"),
    "D": ("joint", "joint"),
    "D^-1": ("joint", "joint"),
    "L": ("joint", "joint"),
    "L^-1": ("joint", "joint"),
    "G": ("body", "joint"),
    "K": ("body", "joint"),
    "tau_bar": ("body", "body"),
    "A": ("joint", "joint"),
    "m": ("joint", "joint"),
    "m^-1": ("joint", "joint"),
    "B": ("body", "frame"),
}
"""Of each operator the space of its results and that of its arguments."""
SYMMETRIC = {"M", "P", "P_plus", "D", "D^-1", "A"}
DIAGONAL_INVERSES = {"D": "D^-1", "D^-1": "D", "L": "L^-1", "L^-1": "L", "m": "m^-1", "m^-1": "m"}


@dataclass(frozen=True)
class Atom:
    """One of the operators of a robot at a configuration."""

    name: str
    source: int = 0
    """Which of an operator's robots and configurations it belongs to."""
    transposed: bool = False
    frames: int = 0
    """Of B: which of the operator's sets of frames."""

    @property
    def T(self) -> Atom:
        """The transpose."""
        return self if self.name in SYMMETRIC else replace(self, transposed=not self.transposed)

    @property
    def spaces(self) -> tuple[Space | None, Space | None]:
        """Space of the results, and that of the arguments."""
        out, into = SPACES[self.name]
        into = f"frame:{self.frames}" if into == "frame" else into
        return (into, out) if self.transposed else (out, into)

    def __str__(self) -> str:
        return self.name + (".T" if self.transposed else "")


@dataclass(frozen=True)
class Term:
    """A product of factors, times some of the operator's scalars, with a sign."""

    factors: tuple[Atom | Expression, ...] = ()
    sign: int = 1
    scalars: tuple[int, ...] = ()
    space: Space | None = None
    """Of an identity that is left of a product: where it stands."""

    @property
    def T(self) -> Term:
        """The transpose."""
        return replace(self, factors=tuple(factor.T for factor in reversed(self.factors)))

    @property
    def spaces(self) -> tuple[Space | None, Space | None]:
        """Space of the results, and that of the arguments; None: any."""
        known = [spaces for factor in self.factors if (spaces := factor.spaces)[0]]  # sums of identities fit anywhere
        return (known[0][0], known[-1][1]) if known else (self.space, self.space)

    def __str__(self) -> str:
        parts = [f"({factor})" if isinstance(factor, Expression) else str(factor) for factor in self.factors]
        return " * ".join([*(f"s{i}" for i in self.scalars), *([" @ ".join(parts)] if parts else ["I"])])


@dataclass(frozen=True)
class Expression:
    """A sum of products."""

    terms: tuple[Term, ...]

    @classmethod
    def of(cls, *factors: Atom | Expression) -> Expression:
        """Return a product as an expression; of no factors, the identity."""
        return cls((Term(tuple(factors)),))

    @property
    def T(self) -> Expression:
        """The transpose."""
        return Expression(tuple(term.T for term in self.terms))

    @property
    def spaces(self) -> tuple[Space | None, Space | None]:
        """Space of the results, and that of the arguments; None: any."""
        return next((spaces for term in self.terms if (spaces := term.spaces)[0]), (None, None))

    def __str__(self) -> str:
        text = ""
        for term in self.terms:
            sign = "-" if term.sign < 0 else "+"
            text += f" {sign} {term}" if text else f"{'-' if term.sign < 0 else ''}{term}"
        return text or "0"

    def __add__(self, other: Expression) -> Expression:
        return Expression(self.terms + other.terms)

    def __neg__(self) -> Expression:
        return Expression(tuple(replace(term, sign=-term.sign) for term in self.terms))

    def __sub__(self, other: Expression) -> Expression:
        return self + -other

    def __matmul__(self, other: Expression) -> Expression:
        """Return the product; what stands beside its own inverse goes."""
        left, right = self._as_term, other._as_term
        space = left.spaces[0] or right.spaces[0]
        factors = list(left.factors)
        for factor in right.factors:
            if factors and _inverse_of_factor(factors[-1]) == factor:
                factors.pop()
            else:
                factors.append(factor)
        sign, scalars = left.sign * right.sign, left.scalars + right.scalars
        return Expression((Term(tuple(factors), sign, scalars, None if factors else space),))

    def scaled(self, scalar: int) -> Expression:
        """Return the expression times a scalar of the operator's."""
        term = self._as_term
        return Expression((replace(term, scalars=(*term.scalars, scalar)),))

    def moved(self, sources: tuple[int, ...], scalars: int, frames: int) -> Expression:
        """Return the expression with other numbers of sources, and later ones of scalars and frames."""

        def factor(f: Atom | Expression) -> Atom | Expression:
            if isinstance(f, Expression):
                return f.moved(sources, scalars, frames)
            return replace(f, source=sources[f.source], frames=f.frames + frames if f.name == "B" else 0)

        def term(t: Term) -> Term:
            return replace(t, factors=tuple(map(factor, t.factors)), scalars=tuple(i + scalars for i in t.scalars))

        return Expression(tuple(map(term, self.terms)))

    @property
    def _as_term(self) -> Term:
        return self.terms[0] if len(self.terms) == 1 else Term((self,))

    @property
    def names(self) -> set[str]:
        """Names of all operators in it."""
        return {
            name
            for term in self.terms
            for factor in term.factors
            for name in (factor.names if isinstance(factor, Expression) else {factor.name})
        }

    @property
    def sources(self) -> set[int]:
        """Numbers of the sources of all operators in it."""
        return {
            source
            for term in self.terms
            for factor in term.factors
            for source in (factor.sources if isinstance(factor, Expression) else {factor.source})
        }

    def inverse(self) -> Expression | None:
        """Return the inverse, where the algebra gives one without solving: by known operators.

        phi^-1 = I - E_phi, psi^-1 = I - E_psi, (I + H phi K)^-1 = I - H psi K (001 (12)), and products of what
        has an inverse; M^-1 = (I - H psi K)* D^-1 (I - H psi K) (001 (13)).
        """
        if len(self.terms) == 1 and not self.terms[0].scalars:
            result: Expression | None = Expression.of()
            for factor in reversed(self.terms[0].factors):
                inverse = _inverse_of_factor(factor)
                if inverse is None or result is None:
                    result = None
                else:
                    result = result @ (inverse if isinstance(inverse, Expression) else Expression.of(inverse))
            if result is not None:
                return result if self.terms[0].sign > 0 else -result
        found = _inverse_of_sum(self) or _transposed(_inverse_of_sum(self.T))
        if found is None:
            found = _inverse_of_sum(-self) or _transposed(_inverse_of_sum((-self).T))
            found = None if found is None else -found
        return found


def _transposed(expression: Expression | None) -> Expression | None:
    return None if expression is None else expression.T


def _inverse_of_factor(factor: Atom | Expression) -> Atom | Expression | None:
    if isinstance(factor, Expression):
        inverse = factor.inverse()
        alone = [] if inverse is None else [f for t in inverse.terms for f in t.factors if inverse == Expression.of(f)]
        return alone[0] if alone else inverse
    if factor.name in DIAGONAL_INVERSES:
        return replace(factor, name=DIAGONAL_INVERSES[factor.name])
    if factor.name in ("phi", "psi"):
        inverse = Expression.of() - Expression.of(Atom(f"E_{factor.name}", factor.source))
        return inverse.T if factor.transposed else inverse
    return None


def _inverse_of_sum(expression: Expression) -> Expression | None:
    """Return the inverse of a sum whose pattern is known."""
    sources = {factor.source for t in expression.terms for factor in t.factors if isinstance(factor, Atom)}
    if len(sources) != 1:
        return None
    source = sources.pop()
    I, at = Expression.of(), lambda *names: Expression.of(*(Atom(name, source) for name in names))
    innovations = I - at("H", "psi", "K")
    inverses = {
        _as_set(I - at("E_phi")): at("phi"),
        _as_set(I - at("E_psi")): at("psi"),
        _as_set(I + at("H", "phi", "K")): innovations,
        _as_set(innovations): I + at("H", "phi", "K"),
        _as_set(mass_matrix(source)): Expression.of(innovations.T, Atom("D^-1", source), innovations),
    }
    return inverses.get(_as_set(expression))


def _as_set(expression: Expression) -> frozenset[tuple[Term, int]]:
    """Return the terms in no order, each with how often it stands there."""
    return frozenset(Counter(replace(term, space=None) for term in expression.terms).items())


def newton_euler(source: int = 0) -> Expression:
    """Return H phi M phi* H* (001 (3))."""
    H, phi, M = (Atom(name, source) for name in ("H", "phi", "M"))
    return Expression.of(H, phi, M, phi.T, H.T)


def mass_matrix(source: int = 0) -> Expression:
    """Return the mass matrix with armature."""
    return newton_euler(source) + Expression.of(Atom("A", source))
