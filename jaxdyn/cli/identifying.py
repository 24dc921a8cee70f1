"""`jaxdyn identify`: a robot's inertias and friction from a recording, back into its file, with a page of plots."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import Any

from jaxdyn._checks import suggestion
from jaxdyn.cli.identification_page import write_page
from jaxdyn.cli.sources import caught, load_quietly, require_writable, warn
from jaxdyn.io import save, update_urdf
from jaxdyn.model import Model, lock_joints

METHODS = ("entropic", "log_cholesky", "least_squares")
FRICTION = ("viscous+coulomb", "viscous", "coulomb", "none")

DESCRIPTION = """\
Identify link inertias, rotor inertias, friction and offsets from recorded positions, velocities and torques.
Every link comes out physical. The recording is resampled, low-pass filtered without phase shift and differentiated.

A CSV file has a line of names first: t or time; q_<joint>, q1 or q[0], ...; likewise qd (may be missing) and tau.
An npz file may have arrays t, q, qd, tau instead.
"""


def add_command(commands: Any, model: argparse.ArgumentParser, epilog: str) -> None:
    """Add `identify` to the command line."""
    parser = commands.add_parser(
        "identify",
        parents=[model],
        help="identify inertias and friction from a recording; write a URDF and a report",
        description=DESCRIPTION,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("data", metavar="DATA", help="the recording, .csv or .npz")
    add("--out", metavar="FILE", type=Path,
        help="write the identified robot: .urdf (the given file with other inertias and friction) or .npz")  # fmt: skip
    add("--report", metavar="FILE", type=Path, help="write a page with plots and tables, .html")
    add("--lock", metavar="JOINT=Q", action="append", default=[], help="weld a joint at a position; may be repeated")
    add("--method", choices=METHODS, default="entropic", help="(default: entropic)")
    add("--friction", choices=FRICTION, default="viscous+coulomb", help="(default: viscous+coulomb)")
    add("--no-rotor-inertia", dest="rotor_inertia", action="store_false", help="keep the model's armature")
    add("--no-offset", dest="offset", action="store_false", help="identify no constant torques")
    add("--regularization", metavar="G", type=float, help="weight of the prior, in observations (default: chosen)")
    add("--rate", metavar="HZ", type=float, default=1000.0, help="at which to resample (default: 1000)")
    add("--cutoff", metavar="HZ", type=float, default=8.0, help="of the low-pass filter (default: 8)")
    add("--every", metavar="K", type=int, default=10, help="keep every K-th sample (default: 10)")
    add("--train", metavar="PART", type=float, default=0.7,
        help="part of the recording to learn from; the rest validates (default: 0.7)")  # fmt: skip
    add("--verbose", action="store_true", help="print the iterations")
    parser.set_defaults(run=_identify)


def _identify(options: argparse.Namespace) -> int:
    from jaxdyn.sysid import identify, prepare, read_recording

    _check_files(options)
    model, found_in_file = load_quietly(options.file, options.floating_base, options.mimic)
    if found_in_file:
        warn(f"the model has {len(found_in_file)} doubtful places; `jaxdyn check {options.file}` lists them")
    model = _locked(model, options.lock)
    recording = read_recording(options.data, model)
    samples = prepare(model, *recording, rate=options.rate, cutoff=options.cutoff, every=options.every)
    train, test = samples.split(options.train)
    with caught() as doubts:
        found = identify(
            model, *train[1:], friction=options.friction, rotor_inertia=options.rotor_inertia, offset=options.offset,
            method=options.method, regularization=options.regularization, verbose=options.verbose,
        )  # fmt: skip
    for doubt in doubts:
        warn(doubt)
    print(found.summary())
    predicted = found.predict(*test[1:4])
    error = ((predicted - test.tau) ** 2).mean(0) ** 0.5
    print(f"\nvalidation on the last {len(test.t)} of {len(samples.t)} samples, rms error per joint: "
          + ", ".join(f"{x:.4g}" for x in error))  # fmt: skip
    if options.out is not None:
        _write(found.model, options)
    if options.report is not None:
        write_page(found, train, test, options.report, source=Path(options.data).name)
        print(f"wrote {options.report}")
    if not found.success:
        warn(found.message)
    return 0 if found.success else 1


def _check_files(options: argparse.Namespace) -> None:
    """Refuse what cannot be written before work is spent on it."""
    for path, option in ((options.out, "--out"), (options.report, "--report")):
        if path is not None:
            require_writable(path, option)
    if options.out is not None:
        kind = options.out.suffix.lower()
        if kind not in (".urdf", ".npz"):
            raise ValueError(f"--out {options.out}: wanted a name that ends with .urdf or .npz")
        if kind == ".urdf" and Path(options.file).suffix.lower() != ".urdf":
            raise ValueError(f"--out {options.out}: a URDF is written for URDF input only; use .npz for {options.file}")


def _locked(model: Model, places: list[str]) -> Model:
    """Return the model with joints welded as "joint=position" says."""
    positions = {}
    for text in places:
        name, _, value = text.partition("=")
        if name not in model.joint_names:
            raise ValueError(f"--lock {text}: no joint {name!r}: {suggestion(name, model.joint_names)}")
        with suppress(ValueError):
            positions[name] = float(value)
        if name not in positions:
            raise ValueError(f"--lock {text}: wanted JOINT=Q, such as {name}=0")
    return lock_joints(model, positions) if positions else model


def _write(model: Model, options: argparse.Namespace) -> None:
    with caught() as lost:
        if options.out.suffix.lower() == ".urdf":
            update_urdf(options.file, model, options.out)
        else:
            save(model, options.out)
    for doubt in lost:
        warn(doubt)
    print(f"wrote {options.out}")
