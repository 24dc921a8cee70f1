"""The command `jaxdyn`: look at a model, check it, simulate it, see it move."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

import jax

from jaxdyn._version import __version__
from jaxdyn.cli import identifying, looking, running, viewing
from jaxdyn.cli.looking import describe as describe
from jaxdyn.cli.tables import table as table

EXIT_CODES = """\
exit codes:
  0  all is well
  1  the model loads, but `check` found something to mend, or `simulate` a state that is not finite
  2  a file cannot be read or written, or the command line is wrong
"""
INTERRUPTED = 130
# A ModelError is a ValueError; the last two are for want of memory.
REFUSALS = (ValueError, OSError, ImportError, MemoryError, jax.errors.JaxRuntimeError)


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
    except REFUSALS as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jaxdyn",
        description="Differentiable rigid-multibody dynamics on JAX: look at robot models, check and simulate them.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"jaxdyn {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    model = argparse.ArgumentParser(add_help=False)
    model.add_argument("file", help="a .urdf, MJCF .xml or saved .npz file, or a bundled model such as arm7")
    model.add_argument("--floating-base", action="store_true", help="put a free joint at the root")
    model.add_argument("--no-mimic", dest="mimic", action="store_false", help="make mimic joints independent")

    looking.add_commands(commands, model, EXIT_CODES)
    running.add_command(commands, model, EXIT_CODES)
    identifying.add_command(commands, model, EXIT_CODES)
    viewing.add_command(commands)
    return parser
