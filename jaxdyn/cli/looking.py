"""`jaxdyn info` and `jaxdyn check`: what is in a model, and what is doubtful about it."""

from __future__ import annotations

import argparse
from typing import Any

import jax
import numpy as np

from jaxdyn.cli.sources import load_quietly
from jaxdyn.cli.tables import row_of, table
from jaxdyn.derivatives.verification import HEADER, line_of, verify
from jaxdyn.model import Model
from jaxdyn.model.consistency import inertia_problems, joint_inertias
from jaxdyn.spatial import RigidInertia

# Diagonal entries of the mass matrix that differ by more than this lose all digits of float32.
WIDE_SPREAD = 1e7


def add_commands(commands: Any, model: argparse.ArgumentParser, epilog: str) -> None:
    """Add `info` and `check` to the command line."""
    info = commands.add_parser("info", parents=[model], help="print the bodies, joints, limits and frames of a model",
                               description="Print tables of a model's bodies, joints and frames.")  # fmt: skip
    info.set_defaults(run=_info)
    check = commands.add_parser(
        "check",
        parents=[model],
        help="validate a model: structure, physical consistency, conditioning",
        description="Load a model, report everything doubtful about it, and say so by the exit code.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument(
        "--derivatives",
        action="store_true",
        help="also compare every derivative with automatic differentiation and central differences; takes minutes",
    )
    check.set_defaults(run=_check)


def _info(options: argparse.Namespace) -> int:
    model, found = load_quietly(options.file, options.floating_base, options.mimic)
    print(describe(model))
    if found:
        print(f"\nwarnings: {len(found)}; `jaxdyn check {options.file}` lists them")
    return 0


def _check(options: argparse.Namespace) -> int:
    model, found = load_quietly(options.file, options.floating_base, options.mimic)
    print(f"{model.name}: {model.nbodies} bodies, {model.nv} degrees of freedom, {_total_mass(model):.6g} kg\n")
    rows = []
    for name, pi in zip(model.body_names, np.asarray(model.inertia, np.float64), strict=True):
        mass, com, moments, verdict = _verdict(pi)
        rows.append((name, f"{mass:.4g}", row_of(com), row_of(moments), verdict))
    print(table(("body, lumped", "mass kg", "com m", "principal moments kg m^2", "verdict"), rows))
    found += _conditioning(model)
    print()
    for message in found:
        print(f"warning: {message}")
    doubtful = sum(row[-1] != "ok" and row[-1] != "massless" for row in rows)
    wrong = _derivatives(model) if options.derivatives else 0
    if not (found or doubtful or wrong):
        print("all is well")
        return 0
    print(f"warnings: {len(found)}; bodies with doubtful inertia: {doubtful}", end="")
    print(f"; functions whose derivatives differ: {wrong}" if options.derivatives else "")
    return 1


def _derivatives(model: Model) -> int:
    """Print a table of the derivatives' differences as it grows; return the number of functions that fail."""
    if not model.nv:
        print("there are no derivatives to check: the robot cannot move\n")
        return 0
    print(f"largest relative differences between analytic derivatives and others:\n\n{HEADER}")
    found = verify(model, jax.random.key(0), progress=lambda row: print(line_of(row), flush=True))
    print()
    return sum(not row.ok for row in found.rows)


def _verdict(pi: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, str]:
    """Return mass, centre of mass, principal moments and a word on them."""
    M = RigidInertia.from_parameters(pi)
    if M.m == 0 and not np.any(pi):
        return 0.0, np.zeros(3), np.zeros(3), "massless"
    mass, com, central = M.central() if M.m > 0 else (M.m, M.h, M.J)
    I = np.asarray(central.to_array())
    problems = [p.split(" (")[0] for p in inertia_problems(float(mass), I)]
    return float(mass), com.to_array(), np.linalg.eigvalsh(I), "; ".join(problems) or "ok"


def _conditioning(model: Model) -> list[str]:
    """Warn if joints carry inertias of very different size: the mass matrix is then ill conditioned."""
    D = joint_inertias(model)
    moving = [(d, name) for d, name in zip(D, model.joint_names, strict=True) if d > 0]
    if not moving:
        return []
    (least, light), (most, heavy) = min(moving), max(moving)
    if most / least < WIDE_SPREAD:
        return []
    return [
        f"the mass matrix is ill conditioned: joint {light!r} moves an inertia of {least:.2g}, joint {heavy!r} one "
        f"of {most:.2g}, a factor of {most / least:.1g}; use float64, or give {light!r} armature"
    ]


def describe(model: Model) -> str:
    """Return tables of a model's bodies, joints and frames."""
    t = model.topology
    names = (*t.body_names, "world")
    lower, upper = (np.asarray(x, np.float64) for x in (model.lower, model.upper))
    velocity, effort = (np.asarray(x, np.float64) for x in (model.velocity_limit, model.effort_limit))
    inertia = np.asarray(model.inertia, np.float64)
    bodies, joints = [], []
    for i, name in enumerate(t.body_names):
        mass, com, _, _ = _verdict(inertia[i])
        bodies.append((str(i), name, names[t.parents[i]], f"{mass:.4g}", row_of(com)))
        q, qd = model.q_slice(t.joint_names[i]), model.qd_slice(t.joint_names[i])
        kind = t.joints[i].type
        if t.followed[i] >= 0:
            kind = f"mimic {t.joint_names[t.followed[i]]}"
        span = f"{row_of(lower[q])} .. {row_of(upper[q])}" if np.any(np.isfinite([lower[q], upper[q]])) else "-"
        joints.append((str(i), t.joint_names[i], kind, _span(q), _span(qd), span,
                       _bound(velocity[qd]), _bound(effort[qd])))  # fmt: skip
    frames = [(name, names[p]) for name, p in zip(t.frame_names, t.frame_parents, strict=True)]
    summary = (
        f"{model.name}: {model.nbodies} bodies, nq = {model.nq}, nv = {model.nv}, "
        f"mass {_total_mass(model):.6g} kg, {len(frames)} frames, {len(model.geometry)} shapes"
    )
    parts = [
        summary,
        table(("#", "body", "parent", "mass kg", "com m"), bodies),
        table(("#", "joint", "type", "q", "qd", "limits rad, m", "speed", "effort"), joints),
        table(("frame", "on"), frames),
    ]
    return "\n\n".join(part for part in parts if part)


def _total_mass(model: Model) -> float:
    return float(np.sum(np.asarray(model.inertia, np.float64)[:, 0]))


def _bound(numbers: np.ndarray) -> str:
    return row_of(numbers) if np.any(np.isfinite(numbers)) else "-"


def _span(s: slice) -> str:
    if s.stop == s.start:
        return "-"
    return str(s.start) if s.stop - s.start == 1 else f"{s.start}:{s.stop}"
