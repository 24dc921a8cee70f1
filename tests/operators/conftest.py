"""Robots whose spatial operators are compared: the library's, as matrices, and NumPy's, from poses and definitions."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.operators import by_numpy
from helpers.states import long, quickly

import jaxdyn
from jaxdyn.model.random_models import random_chain, random_tree
from jaxdyn.operators.mechanism import Mechanism
from jaxdyn.recursion import batched

# Few bodies, since compiling is what costs; between them they have every joint type and kind of walk.
ROBOTS = {
    "tree on a floating base": lambda: random_tree(
        6, seed=2, joints=("revolute", "prismatic", "spherical", "universal"), floating_base=True, armature=True
    ),
    "chain": lambda: random_chain(4, seed=5, joints=("cylindrical", "helical", "planar", "translation"), armature=True),
}
NAMES = "H phi psi E_phi E_psi M P P_plus D D^-1 L L^-1 G K tau_bar A m m^-1".split()
OUT_OF_JOINTS = {"D", "D^-1", "L", "L^-1", "G", "K", "A", "m", "m^-1"}


def _all_operators(model, q):
    """Return the matrices of all operators and of their transposes, (rows, columns, batch), by their own sweeps."""
    robot = Mechanism(model, q, root_axes=False, columns=True)
    found = {}
    for name in NAMES:
        ends = (
            "joint" if name in {"H", *OUT_OF_JOINTS} - {"G", "K"} else "body",
            "joint" if name in OUT_OF_JOINTS else "body",
        )
        for transposed in (False, True):
            out, into = ends[::-1] if transposed else ends
            size = model.nv if into == "joint" else 6 * model.nbodies
            x = robot.take(into, jnp.eye(size, dtype=q.dtype)[..., None])
            found[name + ".T" * transposed] = robot.give(out, robot.apply(name, transposed, x))
    found["Omega"] = robot.joints.by_body(Mechanism(model, q, root_axes=False, columns=False).Omega()).to_array()
    return found


class Case:
    """A robot with and without armature, at a random state."""

    def __init__(self, model):
        rng = np.random.default_rng(3)
        self.model, nv = model, model.nv
        self.q = np.asarray(jaxdyn.neutral(model)) + rng.normal(size=model.nq)
        self.qd, self.qdd, self.tau = rng.normal(size=(3, nv))
        armatures = np.stack([np.asarray(model.armature), np.zeros(nv)])
        of_state = batched(_all_operators, tile=lambda *args: 8)

        def everything(armature):
            robot = model.replace(armature=armature)
            return of_state(robot.moving, self.q) | {"mass matrix": jaxdyn.mass_matrix(robot, self.q)}

        both = quickly(jax.vmap(everything))(armatures)
        names = model.body_names
        poses = quickly(
            lambda q: (
                jaxdyn.forward_kinematics(model, q),
                jnp.stack([jaxdyn.jacobian(model, q, name) for name in names]),
            )
        )
        (rotation, position), jacobians = poses(self.q)
        self.found, self.truth, self.mass_matrix, self.Omega = [], [], [], []
        for k in range(2):
            one = {name: x[k] for name, x in both.items()}
            self.mass_matrix.append(one.pop("mass matrix"))
            self.Omega.append(np.moveaxis(one.pop("Omega"), 2, 0))
            self.found.append(one)
            self.truth.append(by_numpy(model, position, rotation, jacobians, armatures[k]))

    def operators(self, armature):
        """Return the operators' matrices by their letters, and identities."""
        letters = {
            name.replace("^-1", "_inverse"): X for name, X in self.found[not armature].items() if ".T" not in name
        }
        return SimpleNamespace(
            **letters, I=np.eye(6 * self.model.nbodies), one=np.eye(self.model.nv), MM=self.mass_matrix[not armature],
            Omega=self.Omega[not armature], model=self.model,
        )  # fmt: skip


@pytest.fixture(scope="session", params=["tree on a floating base", long("chain")])
def case(request):
    return Case(ROBOTS[request.param]())
