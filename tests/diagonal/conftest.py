"""Robots in motion whose spatial operators, and derivatives of these by JAX, are compared in NumPy."""

from types import SimpleNamespace

import numpy as np
import pytest
from helpers.in_motion import state
from helpers.states import long, quickly, random_state

import jaxdyn
from jaxdyn.diagonal.articulated import articulated, bodies, matrices
from jaxdyn.diagonal.filter_rates import rates_autodiff
from jaxdyn.diagonal.operator_sensitivities import sensitivities_autodiff
from jaxdyn.model.random_models import random_chain, random_tree

SINGLE = {
    "turning": lambda: random_tree(4, seed=3, joints=("revolute",), armature=True),
    "sliding": lambda: random_tree(5, seed=2, joints=("revolute", "prismatic", "helical"), armature=True),
}
"""Trees whose joints have one column each: joints that turn, as in the paper, and joints of all such types."""


GENERAL = {
    "tree on a floating base": lambda: random_tree(
        4, seed=2, joints=("universal", "spherical", "prismatic"), floating_base=True, armature=True
    ),
    "chain": lambda: random_chain(4, seed=5, joints=("universal", "planar", "cylindrical", "helical"), armature=True),
}
"""Robots with joints of several columns, also such that turn in their body."""


@pytest.fixture(scope="session", params=[long("turning"), "sliding"])
def both(request):
    """States with armature and without, [0] and [1], of one robot; compiled once."""
    turning = request.param == "turning"
    model = SINGLE[request.param]().replace(gravity=np.zeros(3))
    s = random_state(model)
    q, qd = s["q"], s["qd"]

    def everything(armature):
        robot = model.replace(armature=armature)
        links = bodies(robot.moving, q)
        found = {
            "operators": matrices(robot.moving, links, articulated(robot.parents, links))._asdict(),
            "theta": sensitivities_autodiff(robot, q)._asdict(),
            "bias": jaxdyn.bias_force(robot, q, qd),
        }
        return found if turning else found | {"local": rates_autodiff(robot, q, qd, seen_from="body")._asdict()}

    found = quickly(everything)
    states = [state(model, q, qd, found(armature)) for armature in (model.armature, np.zeros(model.nv))]
    for one in states:
        one.turning = turning
    return states


@pytest.fixture(scope="session", params=list(GENERAL))
def general(request):
    """A robot in motion, with its operators and their derivatives by JAX."""
    model = GENERAL[request.param]()
    s = random_state(model)

    def everything(q):
        links = bodies(model.moving, q)
        operators = matrices(model.moving, links, articulated(model.parents, links))
        return operators._asdict(), sensitivities_autodiff(model, q)._asdict()

    operators, theta = (SimpleNamespace(**x) for x in quickly(everything)(s["q"]))
    return SimpleNamespace(model=model, **s, operators=operators, theta=theta)
