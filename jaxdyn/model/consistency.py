"""Physical consistency of inertias and joints: what a loader warns of and `jaxdyn check` reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxdyn._checks import ModelError
from jaxdyn.joints import Mimic
from jaxdyn.model.topology import Topology, joint_parameters
from jaxdyn.spatial import Motion, RigidInertia, Transform

if TYPE_CHECKING:
    from jaxdyn.model.model import Model

# Files print few digits: a thin plate, for which the triangle inequality is an equality, may seem to
# break it by a rounding error of that size.
TRIANGLE_SLACK = 1e-5


def inertia_problems(mass: float, inertia: np.ndarray) -> Iterator[str]:
    """Yield what is wrong with a mass and a rotational inertia (3, 3) about the centre of mass.

    A real body's inertia is positive definite and its principal moments obey the triangle inequality
    I1 + I2 >= I3. Without mass and inertia there is no body, and nothing to say; without mass and with one
    principal moment alone it is the spin of a rotor, whose rest was measured with the link that holds it.
    """
    if mass == 0 and not np.any(inertia):
        return
    moments = _eigenvalues(inertia)
    if mass == 0 and np.all(np.abs(moments[:2]) <= 1e-12 * moments[2]):
        return
    numbers = f"principal moments {', '.join(f'{m:.4g}' for m in moments)} kg m^2, mass {mass:.4g} kg"
    if mass == 0:
        yield f"has rotational inertia but no mass ({numbers})"
    if moments[0] <= 1e-12 * moments[2]:
        yield f"inertia is not positive definite ({numbers})"
    elif moments[0] + moments[1] < moments[2] * (1 - TRIANGLE_SLACK):
        yield f"inertia breaks the triangle inequality ({numbers})"


def _eigenvalues(symmetric: np.ndarray) -> np.ndarray:
    """Return the eigenvalues, ascending, of any finite matrix, however large its numbers."""
    size = np.abs(symmetric).max()
    return size * np.linalg.eigvalsh(symmetric / size) if size > 0 else np.zeros(len(symmetric))


def massless_joints(topology: Topology, numbers: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return (body, message) for every joint that moves no inertia, so that the mass matrix is singular.

    A joint is one if its own block D = S* I S + armature of the mass matrix is singular both with all
    joints at zero and with all joints turned.
    """
    singular = [ratio <= 1e-14 for _, ratio in _least_inertias(topology, numbers, 0.0)]
    if any(singular):  # a mass may lie on an axis by chance: look again with all joints turned
        turned = _least_inertias(topology, numbers, 0.7)
        singular = [was and ratio <= 1e-14 for was, (_, ratio) in zip(singular, turned, strict=True)]
    for i, leader in enumerate(topology.followed):
        if leader >= 0 and not singular[i] and numbers["ratio"][i] != 0:
            singular[leader] = False  # it moves what its followers move
    return [
        (i, f"joint {topology.joint_names[i]!r} moves no inertia: forward dynamics needs armature on it, or lock it")
        for i, joint in enumerate(topology.joints)
        if singular[i] and not isinstance(joint, Mimic)
    ]


def massless_joints_of(model: Model) -> list[tuple[int, str]]:
    """Return what `massless_joints` says of a model."""
    return massless_joints(model.topology, _numbers_of(model))


def joint_inertias(model: Model) -> list[float]:
    """Return for each joint the least inertia it moves (kg or kg m^2), with all joints at zero."""
    return [least for least, _ in _least_inertias(model.topology, _numbers_of(model), 0.0)]


def _numbers_of(model: Model) -> dict[str, np.ndarray]:
    names = ("inertia", "placement", "axis", "axis2", "pitch", "ratio", "offset", "joint_parameters", "armature")
    return {name: np.asarray(getattr(model, name), np.float64) for name in names}


@jax.enable_x64(True)  # joints of users' own types are differentiated by JAX
def _least_inertias(topology: Topology, numbers: Mapping[str, Any], at: float) -> list[tuple[float, float]]:
    """Return for each joint the least eigenvalue of D, and its ratio to the size of the inertia it carries."""
    composite = [RigidInertia.from_parameters(pi) for pi in numbers["inertia"]]
    least = [(0.0, 0.0)] * topology.nbodies
    for i in reversed(range(topology.nbodies)):
        joint, parent = topology.joints[i], topology.parents[i]
        own = joint.mechanism
        parameters = joint_parameters(numbers, i, joint)
        q = own.integrate(tuple(np.float64(x) for x in own.neutral()), (np.float64(at),) * own.nv)
        if parent >= 0:
            X = Transform.from_pose(numbers["placement"][i]) @ own.transform(parameters, q)
            composite[parent] = composite[parent] + composite[i].transform(X)
        least[i] = _least_eigenvalue(topology, i, composite[i], own.subspace(parameters, q), numbers["armature"])
    return least


def _least_eigenvalue(
    topology: Topology, i: int, I: RigidInertia, S: Sequence[Motion], armature: np.ndarray
) -> tuple[float, float]:
    """Return the least eigenvalue of D = S* I S + armature of joint i, and its ratio to the size of I."""
    if not S:
        return np.inf, np.inf
    D = np.array([[float((I @ b).dot(a)) for b in S] for a in S])
    if not isinstance(topology.joints[i], Mimic):
        start = topology.qd_start[i]
        D = D + np.diag(armature[start : start + len(S)])
    if not np.all(np.isfinite(D)) or not np.isfinite(I.J.trace):
        raise ModelError(f"joint {topology.joint_names[i]!r} carries an inertia that is not finite: it is too large")
    smallest = float(_eigenvalues(D)[0])
    size = max(float(I.m), float(I.J.trace), float(np.max(D)))
    return smallest, smallest / size if size > 0 else 0.0
