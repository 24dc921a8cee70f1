"""The command `jaxdyn`: look at a model, check it."""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Sequence

import jax
import numpy as np

from jaxdyn._checks import ModelError, ModelWarning
from jaxdyn._version import __version__
from jaxdyn.derivatives.verification import HEADER, line_of, verify
from jaxdyn.io import load
from jaxdyn.model import Model
from jaxdyn.model.consistency import inertia_problems, joint_inertias
from jaxdyn.spatial import RigidInertia

EXIT_CODES = """\
exit codes:
  0  all is well
  1  the model loads, but `check` found something to mend
  2  the file cannot be loaded, or the command line is wrong
"""
# Diagonal entries of the mass matrix that differ by more than this lose all digits of float32.
WIDE_SPREAD = 1e7


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names may have letters that the terminal has not
    try:
        with jax.enable_x64(True):  # a file's numbers are judged, not their rounding
            code = int(options.run(options))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jaxdyn",
        description="Differentiable rigid-multibody dynamics on JAX: look at robot models and check them.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"jaxdyn {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    model = argparse.ArgumentParser(add_help=False)
    model.add_argument("file", help="a .urdf, MJCF .xml or saved .npz file, or a bundled model such as arm7")
    model.add_argument("--floating-base", action="store_true", help="put a free joint at the root")
    model.add_argument("--no-mimic", dest="mimic", action="store_false", help="make mimic joints independent")

    info = commands.add_parser("info", parents=[model], help="print the bodies, joints, limits and frames of a model",
                               description="Print tables of a model's bodies, joints and frames.")  # fmt: skip
    info.set_defaults(run=_info)
    check = commands.add_parser(
        "check",
        parents=[model],
        help="validate a model: structure, physical consistency, conditioning",
        description="Load a model, report everything doubtful about it, and say so by the exit code.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument(
        "--derivatives",
        action="store_true",
        help="also compare every derivative with automatic differentiation and central differences; takes minutes",
    )
    check.set_defaults(run=_check)
    return parser


def _load(options: argparse.Namespace) -> tuple[Model | None, list[str]]:
    """Return the model, or None after printing why not, and the warnings it came with."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ModelWarning)
        try:
            model = load(options.file, floating_base=options.floating_base, mimic=options.mimic)
        except (ModelError, ImportError) as error:
            print(f"error: {error}", file=sys.stderr)
            return None, []
    return model, [str(w.message) for w in caught if issubclass(w.category, ModelWarning)]


def _info(options: argparse.Namespace) -> int:
    model, found = _load(options)
    if model is None:
        return 2
    print(describe(model))
    if found:
        print(f"\nwarnings: {len(found)}; `jaxdyn check {options.file}` lists them")
    return 0


def _check(options: argparse.Namespace) -> int:
    model, found = _load(options)
    if model is None:
        return 2
    print(f"{model.name}: {model.nbodies} bodies, {model.nv} degrees of freedom, {_total_mass(model):.6g} kg\n")
    rows = []
    for name, pi in zip(model.body_names, np.asarray(model.inertia, np.float64), strict=True):
        mass, com, moments, verdict = _verdict(pi)
        rows.append((name, f"{mass:.4g}", _row(com), _row(moments), verdict))
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
        bodies.append((str(i), name, names[t.parents[i]], f"{mass:.4g}", _row(com)))
        q, qd = model.q_slice(t.joint_names[i]), model.qd_slice(t.joint_names[i])
        kind = t.joints[i].type
        if t.followed[i] >= 0:
            kind = f"mimic {t.joint_names[t.followed[i]]}"
        span = f"{_row(lower[q])} .. {_row(upper[q])}" if np.any(np.isfinite([lower[q], upper[q]])) else "-"
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


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows of text under a header, columns aligned; nothing for no rows."""
    if not rows:
        return ""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * w for w in widths], *rows]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _total_mass(model: Model) -> float:
    return float(np.sum(np.asarray(model.inertia, np.float64)[:, 0]))


def _row(numbers: np.ndarray) -> str:
    return " ".join(f"{x:.4g}" for x in numbers)


def _bound(numbers: np.ndarray) -> str:
    return _row(numbers) if np.any(np.isfinite(numbers)) else "-"


def _span(s: slice) -> str:
    if s.stop == s.start:
        return "-"
    return str(s.start) if s.stop - s.start == 1 else f"{s.start}:{s.stop}"
