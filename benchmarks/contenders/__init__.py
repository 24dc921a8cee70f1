"""The libraries that are compared, one file each; every one is asked for the same quantities of the same states."""

from __future__ import annotations

import importlib

from benchmarks.contenders.base import QUANTITIES as QUANTITIES
from benchmarks.contenders.base import Contender as Contender
from benchmarks.contenders.base import Job as Job
from benchmarks.contenders.base import Unsupported as Unsupported

MODULES = {
    "Pinocchio": "of_pinocchio",
    "jaxdyn": "of_jaxdyn",
    "MuJoCo": "of_mujoco",
    "MJX": "of_mjx",
    "Brax": "of_brax",
    "frax": "of_frax",
}
JAX_PEERS = ("MJX", "Brax", "frax")


def available() -> tuple[dict[str, type[Contender]], dict[str, str]]:
    """Import the contenders.

    Returns:
        name -> class of those that are here, and name -> reason of those that are not.
    """
    found: dict[str, type[Contender]] = {}
    missing: dict[str, str] = {}
    for name, module in MODULES.items():
        try:
            found[name] = importlib.import_module(f"benchmarks.contenders.{module}").CONTENDER
        except ImportError as error:
            missing[name] = f"skipped: {error}"
    return found, missing
