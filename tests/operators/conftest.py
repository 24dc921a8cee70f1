"""Robots whose spatial operators are compared: the library's, as matrices, and NumPy's, from poses and definitions."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
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


def _cross(v):
    return np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])


def by_numpy(model, position, rotation, jacobians, armature):
    """Return the same as dense matrices, from the definitions (001 sections 2-3), body after body."""
    n, nv = model.nbodies, model.nv
    own = [model.qd_slice(name) for name in model.joint_names]
    at = [slice(6 * k, 6 * k + 6) for k in range(n)]
    H, E, M, P = np.zeros((nv, 6 * n)), *np.zeros((3, 6 * n, 6 * n))
    A, D, G = np.diag(armature), np.zeros((nv, nv)), np.zeros((6 * n, nv))
    for k, parent in enumerate(model.parents):
        H[own[k], at[k]] = jacobians[k][:, own[k]].T
        m, h, I = model.inertia[k, 0], model.inertia[k, 1:4], model.inertia[k, 4:]
        J = rotation[k] @ np.array([[I[0], I[1], I[3]], [I[1], I[2], I[4]], [I[3], I[4], I[5]]]) @ rotation[k].T
        h = _cross(rotation[k] @ h)
        M[at[k], at[k]] = np.block([[J, h], [-h, m * np.eye(3)]])
        if parent >= 0:
            E[at[parent], at[k]] = np.block(
                [[np.eye(3), _cross(position[k] - position[parent])], [np.zeros((3, 3)), np.eye(3)]]
            )
    P[:] = M
    for k, parent in reversed(list(enumerate(model.parents))):
        h, p = H[own[k], at[k]], P[at[k], at[k]]
        D[own[k], own[k]] = h @ p @ h.T + A[own[k], own[k]]
        G[at[k], own[k]] = p @ h.T @ np.linalg.inv(D[own[k], own[k]])
        if parent >= 0:
            phi = E[at[parent], at[k]]
            P[at[parent], at[parent]] += phi @ (p - G[at[k], own[k]] @ h @ p) @ phi.T
    I, L = np.eye(6 * n), np.linalg.cholesky(D)
    tau_bar, K = I - G @ H, E @ G
    phi, psi = np.linalg.inv(I - E), np.linalg.inv(I - E @ tau_bar)
    m = (np.eye(nv) + H @ phi @ K) @ L
    dense = {
        "H": H, "phi": phi, "psi": psi, "E_phi": E, "E_psi": E @ tau_bar, "M": M, "P": P, "P_plus": tau_bar @ P, "D": D,
        "D^-1": np.linalg.inv(D), "L": L, "L^-1": np.linalg.inv(L), "G": G, "K": K, "tau_bar": tau_bar, "A": A, "m": m,
        "m^-1": np.linalg.inv(m),
    }  # fmt: skip
    return dense | {f"{name}.T": X.T for name, X in dense.items()}


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
