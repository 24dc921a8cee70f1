"""How a product of operators runs: in passes, one sweep over the bodies for every change of direction.

Operators that follow one another and go the same way share a sweep, and those without memory go along. So does what
is not known yet of the bodies: their poses, if the sweep goes outward, and the filter, if it goes inward. What one
operator hands to the next then never leaves a step: few arrays cross memory, and a body of a long robot costs about
as much as one of a short robot. H phi M phi* H* is two passes, as the recursive Newton-Euler algorithm is; m^-* m^-1
is three, as the articulated-body algorithm is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxdyn.algorithms.articulation import Rows
from jaxdyn.operators.expressions import Atom
from jaxdyn.operators.steps import (
    BASE_SWEEPS,
    BODY_BY_BODY,
    SWEEPS,
    Base,
    Factor,
    Placed,
    factor_base_step,
    factor_step,
    place_base_step,
    place_step,
)
from jaxdyn.spatial import ArticulatedInertia, Force, Mat3, Motion

PLACE, FILTER = Atom("place"), Atom("filter")
"""What a pass finds of the bodies, in the places of operators."""
RIGID = {"H", "phi", "E_phi", "M", "A", "B", "place"}
"""Operators that do not need the filter."""
PARTS = {"E_psi": ("E_phi", "tau_bar"), "K": ("E_phi", "G")}


class Body(NamedTuple):
    """What operators see of a body; None where they need it not, or are yet to find it."""

    link: Any = None
    """Pose on the parent, columns and inertia in its own axes."""
    placed: Any = None
    """`Placed`."""
    armature: Rows | None = None
    noise: Rows | None = None
    """Armature for the filter."""
    factor: Any = None
    """`Factor`."""


class Result(NamedTuple):
    """What a pass leaves at a body."""

    found: Placed | Factor | None
    x: Any


class Pass(NamedTuple):
    """Operators that run together, in the order in which they are applied."""

    atoms: tuple[Atom, ...]

    @property
    def outward(self) -> bool | None:
        """Which way the sweep goes; None if there is nothing to sweep."""
        return next((way for way in map(_goes_outward, self.atoms) if way is not None), None)

    @property
    def needs(self) -> set[str]:
        """What it must be given of the bodies, fields of `Body`."""
        names = {atom.name for atom in self.atoms}
        needs = {"link"} if PLACE in self.atoms else {"placed"}
        needs |= {"noise"} if FILTER in self.atoms else set() if names <= RIGID else {"factor"}
        return needs | ({"armature"} if "A" in names else set())

    @property
    def start(self) -> tuple[Any, ...]:
        """What the world, or the body at a tip, is handed."""
        special = {PLACE: Mat3.identity(), FILTER: ArticulatedInertia.zero()}
        vector = Motion.zero() if self.outward else Force.zero()
        return tuple(special.get(atom, vector) for atom in self.atoms if _goes_outward(atom) is not None)

    def step(self, handed_on: Any, data: tuple[Body, Any]) -> tuple[tuple[Any, ...], Result]:
        """Apply the operators at one body."""
        return self._cross(place_step, factor_step, handed_on, *data)

    def base_step(self, factor: Any, *, root_axes: bool) -> Callable[[Any, Any], Any]:
        """Return the step for floating bases, given what the filter left at them; if root_axes, into their own axes."""

        def step(handed_on: Any, data: tuple[Body, Any]) -> Any:
            body, x = data
            place = place_base_step if root_axes else place_step
            return self._cross(place, factor_base_step, handed_on, body._replace(factor=factor), x)

        return step

    def _cross(self, place: Any, filter: Any, handed_on: Any, body: Body, x: Any) -> Any:
        arrived, ends, found = iter(handed_on), [], None
        for atom in self.atoms:
            if atom == PLACE:
                end, found = place(next(arrived), body.link)
                body = body._replace(placed=found)
            elif atom == FILTER:
                at = body.placed
                end, found = filter(next(arrived), (at.M, at.H, at.l, body.noise, at.own))
                body = body._replace(factor=found)
            elif atom.name in SWEEPS:
                end, x = _swept(atom, next(arrived), body, x)
            else:
                x = _alone(atom, body, x)
                continue
            ends.append(end)
        return tuple(ends), Result(found, x)


def _swept(atom: Atom, handed_on: Any, body: Body, x: Any) -> Any:
    """Cross a body with an operator that couples bodies."""
    step = SWEEPS[atom.name][atom.transposed]
    if atom.name in RIGID:
        return step(handed_on, ((body.placed.l,), x))
    if isinstance(body.factor.gains, Base):
        return BASE_SWEEPS[atom.name][atom.transposed](body.factor.gains, handed_on, x)
    return step(handed_on, ((body.placed.H, body.placed.l, body.factor.gains), x))


def _alone(atom: Atom, body: Body, x: Any) -> Any:
    """Apply an operator without memory."""
    function = BODY_BY_BODY[atom.name][atom.transposed]
    if atom.name == "A":
        return function(body.armature, x)
    if atom.name in RIGID:
        return function(getattr(body.placed, atom.name), x)
    return function(body.placed.H, body.factor, x)


# ---------------------------------------------------------------------- from products to passes
def passes(atoms: Sequence[Atom]) -> list[Pass]:
    """Cut a product into passes; atoms in the order in which they are applied, without B."""
    found: list[Pass] = []
    run: tuple[Atom, ...] = ()
    for atom in _in_parts(atoms):
        if {_goes_outward(atom), Pass(run).outward} == {True, False}:
            end = _best_end(run)
            found, run = [*found, Pass(run[:end])], run[end:]
        run = (*run, atom)
    return [*found, Pass(run)]


def _in_parts(atoms: Sequence[Atom]) -> list[Atom]:
    """Write E_psi = E_phi tau_bar, K = E_phi G."""
    parts = []
    for atom in atoms:
        names = PARTS.get(atom.name, (atom.name,))
        parts += [Atom(name, transposed=atom.transposed) for name in (names if atom.transposed else names[::-1])]
    return parts


def _goes_outward(atom: Atom) -> bool | None:
    """Return which way an operator sweeps; None if it does not."""
    if atom in (PLACE, FILTER):
        return atom == PLACE
    return atom.transposed if atom.name in SWEEPS else None


def _best_end(run: Sequence[Atom]) -> int:
    """Return where a pass had better end, after its last sweep: in joint space, where vectors are short."""
    last = max(k for k, atom in enumerate(run) if _goes_outward(atom) is not None)
    ends = range(last + 1, len(run) + 1)
    return next((end for end in ends if run[end - 1].spaces[0] == "joint"), len(run))
