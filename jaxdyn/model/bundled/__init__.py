"""Bundled models: small robots for examples and tests, written as tables."""

from collections.abc import Callable

from jaxdyn.model.bundled.arms import arm7 as arm7
from jaxdyn.model.bundled.arms import puma560 as puma560
from jaxdyn.model.bundled.legged import humanoid as humanoid
from jaxdyn.model.bundled.legged import quadruped as quadruped
from jaxdyn.model.bundled.machines import cartpole as cartpole
from jaxdyn.model.bundled.machines import double_pendulum as double_pendulum
from jaxdyn.model.bundled.machines import gantry as gantry
from jaxdyn.model.bundled.machines import pendulum as pendulum
from jaxdyn.model.bundled.machines import planar_chain as planar_chain
from jaxdyn.model.model import Model

BUNDLED: dict[str, Callable[[], Model]] = {
    make.__name__: make
    for make in (
        pendulum, double_pendulum, planar_chain, cartpole, gantry, puma560, arm7, quadruped, humanoid,
    )
}  # fmt: skip
"""The bundled models by name, as `jaxdyn.load` knows them."""
