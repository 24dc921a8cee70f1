"""frax: reads URDF, and holds the robot's numbers as constants of the compiled function."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jax.numpy as jnp

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of JAX versions and of flags when imported
    import frax

from benchmarks.contenders.base import PEER_OPTIONS, Job, Unsupported, inputs, jax_job
from benchmarks.contenders.mujoco_conventions import MujocoConventions
from benchmarks.robots import Robot, States

GRAVITY = (0.0, 0.0, 9.81, 0.0, 0.0, 0.0)
LARGEST = 128
"""Bodies up to which it is tried: its matrices over pairs of bodies grow with the square."""


class Frax:
    """Joints in MuJoCo's order, so that its conventions are MuJoCo's throughout."""

    def __init__(self, robot: Robot):
        if robot.urdf is None:
            raise Unsupported("reads URDF, which has no such joints")
        if robot.model.nbodies > LARGEST:
            raise Unsupported(f"not tried beyond {LARGEST} bodies")
        self.conventions = MujocoConventions(robot)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "robot.urdf"
            path.write_text(_with_root_inertia(robot.urdf), encoding="utf-8")
            self.robot = frax.Robot(
                str(path),
                joint_ordering=self.conventions.joint_names,
                floating_base="quaternion" if robot.floating else None,
            )

    def job(self, quantity: str, states: States, dtype: Any) -> Job:
        """Make a quantity ready to run."""
        robot = self.robot
        function = {
            "FD": lambda q, qd, tau: robot.forward_dynamics(q, qd, tau, None),
            "ID": lambda q, qd, qdd: robot.rnea(q, qd, qdd, jnp.array(GRAVITY), None),
            "CRBA": robot.mass_matrix,
            "Minv": lambda q: robot.mass_matrix_inverse(robot.mass_matrix(q)),
        }[quantity]
        ours = lambda result: self.conventions.ours(quantity, states, result)
        theirs = inputs(quantity, self.conventions.theirs(states))
        return jax_job(function, [], theirs, dtype, ours, method="vmap of its public functions", options=PEER_OPTIONS)


def _with_root_inertia(urdf: str) -> str:
    """Give a massless root link some mass: frax asks for it, and on the world it changes nothing."""
    tree = ElementTree.fromstring(urdf)
    children = {joint.find("child").get("link") for joint in tree.iter("joint") if joint.find("child") is not None}
    root = next(link for link in tree.iter("link") if link.get("name") not in children)
    if root.find("inertial") is None:
        inertial = ElementTree.SubElement(root, "inertial")
        ElementTree.SubElement(inertial, "mass", value="1")
        ElementTree.SubElement(inertial, "inertia", ixx="1", ixy="0", ixz="0", iyy="1", iyz="0", izz="1")
    return ElementTree.tostring(tree, encoding="unicode")


CONTENDER = Frax
