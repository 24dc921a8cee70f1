"""`jaxdyn view`: a recorded run as a page in the browser."""

from __future__ import annotations

import argparse
import os
import webbrowser
from pathlib import Path
from typing import Any

from jaxdyn._checks import ModelError
from jaxdyn.cli.recordings import Run, read_run
from jaxdyn.cli.sources import caught, load_quietly, mesh_folder, require_writable, warn
from jaxdyn.model import Model
from jaxdyn.viz import export_html


def add_command(commands: Any) -> None:
    """Add `view` to the command line."""
    view = commands.add_parser(
        "view",
        help="show a recorded run in the browser",
        description="Write a page that shows a run of `jaxdyn simulate --out`, and open it in the browser.",
    )
    view.add_argument("recording", metavar="RUN", type=Path, help="the .npz file of a run")
    view.add_argument("--html", metavar="FILE", type=Path, help="the page to write; by default beside the run")
    view.add_argument("--robot", metavar="FILE", help="where the robot is now, if it has moved since")
    view.add_argument("--no-browser", dest="browser", action="store_false", help="only write the page")
    view.set_defaults(run=_view)


def _view(options: argparse.Namespace) -> int:
    path = options.html or options.recording.with_suffix(".html")
    require_writable(path, "--html")
    run = read_run(options.recording)
    robot = options.robot or run.about["robot"]
    write_page(_robot_of(run, robot, options.recording), run, robot, path)
    if options.browser and not webbrowser.open(path.resolve().as_uri()):
        warn("no browser was found; open the page yourself")
    return 0


def _robot_of(run: Run, robot: str, recording: Path) -> Model:
    """Return the model that moved in a run."""
    try:
        model, _ = load_quietly(robot, run.about["floating_base"], run.about["mimic"])
    except ModelError as error:
        raise ValueError(f"the robot of {recording} does not load; --robot FILE says where it is: {error}") from None
    names = run.about["joint_names"]
    if list(model.joint_names) != names:
        raise ValueError(f"{robot} is not the robot of {recording}: {_difference(list(model.joint_names), names)}")
    return model


def _difference(found: list[str], wanted: list[str]) -> str:
    if len(found) != len(wanted):
        return f"it has {len(found)} joints, the run {len(wanted)}"
    a, b = next((a, b) for a, b in zip(found, wanted, strict=True) if a != b)
    return f"it has a joint {a!r} where the run has {b!r}"


def write_page(model: Model, run: Run, robot: str | os.PathLike[str], path: Path) -> None:
    """Write the page of a run, and say so."""
    with caught() as found:
        export_html(model, (run.t, run.q, run.qd), path, mesh_folders=mesh_folder(os.fspath(robot)))
    for message in found:
        warn(message)
    print(f"wrote {path}")
