"""Random models, for tests and benchmarks: chains, trees and forests with joints of every type.

A body's inertia is that of a random box, randomly placed and turned. That is no restriction: the moments
of boxes fill the whole cone of moments that real bodies can have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxdyn._checks import ModelError, suggestion
from jaxdyn.joints import JOINT_TYPES
from jaxdyn.model.builder import ModelBuilder
from jaxdyn.model.model import Model
from jaxdyn.model.shapes import Solid, lump

MOVING_JOINTS = (
    "revolute", "continuous", "prismatic", "helical", "universal", "cylindrical", "planar", "spherical",
    "translation", "free",
)  # fmt: skip
"""Joint types with coordinates of their own, from which `random_tree` draws by default."""


def random_chain(
    n: int,
    *,
    seed: int = 0,
    joints: Sequence[str] = ("revolute",),
    armature: bool = False,
    passive: bool = False,
) -> Model:
    """Return a random serial chain whose joint types repeat `joints` in the order given.

    Args:
        n: number of bodies.
        seed: equal seeds give equal models.
        joints: names of joint types, see `random_tree`.
        armature: give every joint a random reflected inertia.
        passive: give every joint a random spring, damping and friction.

    Example:
        >>> from jaxdyn.model.random_models import random_chain
        >>> random_chain(4, joints=("revolute", "prismatic")).joint_types
        ('revolute', 'prismatic', 'revolute', 'prismatic')
    """
    rng = np.random.default_rng(seed)
    _check_names(joints)
    kinds = [joints[i % len(joints)] for i in range(n)]
    parents = [i - 1 for i in range(n)]
    return _random_model(f"random_chain_{n}", rng, kinds, parents, armature, passive)


def random_tree(
    n: int,
    *,
    seed: int = 0,
    joints: Sequence[str] = MOVING_JOINTS,
    floating_base: bool = False,
    branching: float = 0.4,
    roots: int = 1,
    armature: bool = False,
    passive: bool = False,
) -> Model:
    """Return a random tree, or with `roots` above one a random forest.

    Args:
        n: number of bodies, the base included.
        seed: equal seeds give equal models.
        joints: names of joint types, each used once, in random order, before any is used again. Any type
            that `ModelBuilder` knows by name and that needs no parameters of its own; also "mimic", a
            revolute joint that follows an earlier joint
            of one coordinate, and "fixed", whose body becomes a frame, so that the model has fewer bodies.
        floating_base: let the first root be a free joint named "root_joint", whatever `joints` says.
        branching: probability in [0, 1] that a body hangs on any earlier one of its tree instead of on the
            last; 0 gives chains.
        roots: number of trees, over which the bodies are spread evenly.
        armature: give every joint a random reflected inertia.
        passive: give every joint a random spring, damping and friction.

    Returns:
        The model. Frames are "frame_0", "frame_1", ... on every third body, and "tip" on the last.

    Example:
        >>> from jaxdyn.model.random_models import random_tree
        >>> forest = random_tree(12, roots=3, joints=("revolute", "spherical"))
        >>> forest.nbodies, forest.parents.count(-1)
        (12, 3)
    """
    if not 1 <= roots <= max(n, 1):
        raise ModelError(f"roots must be between one and the number of bodies, {n}; got {roots}")
    _check_names(joints)
    rng = np.random.default_rng(seed)
    kinds = ["free"] if floating_base else []
    while len(kinds) < n:
        kinds += rng.permutation(list(joints)).tolist()
    parents = []
    for i in range(n):
        tree = range(i % roots, i, roots)  # the earlier bodies of this one's tree
        branches = bool(tree) and rng.random() < branching
        parents.append(int(rng.choice(tree)) if branches else tree[-1] if tree else -1)
    return _random_model(f"random_tree_{n}", rng, kinds[:n], parents, armature, passive, floating_base)


def _random_model(
    name: str,
    rng: np.random.Generator,
    kinds: list[str],
    parents: list[int],
    armature: bool,
    passive: bool,
    floating_base: bool = False,
) -> Model:
    """Return a model with given joint types and parents, all else random."""
    n = len(parents)
    _leaders_first(kinds)
    builder = ModelBuilder(name)
    leaders: list[str] = []
    for i, kind in enumerate(kinds):
        joint_name = "root_joint" if floating_base and i == 0 else f"joint_{i}"
        joint: dict[str, Any] = {"joint": kind}
        if kind == "mimic":
            joint = {
                "joint": "revolute",
                "follows": str(rng.choice(leaders)),
                "ratio": _sign(rng) * rng.uniform(0.5, 2),
                "offset": rng.uniform(-1, 1),
            }
        elif JOINT_TYPES[kind].nq == 1:
            leaders.append(joint_name)
        solid = _random_solid(rng)
        mass, com, inertia = lump([solid])
        builder.add_body(
            f"body_{i}", None if parents[i] < 0 else f"body_{parents[i]}", joint_name=joint_name,
            mass=mass, com=com, inertia=inertia,
            **joint, **_random_pose(rng), **_random_axes(rng), **_random_drive(rng, kind, armature, passive),
        )  # fmt: skip
        builder.add_geometry(
            f"body_{i}", solid.shape, solid.size,
            xyz=solid.centre, quaternion=solid.quaternion, colour=solid.colour,
        )  # fmt: skip
    for k, i in enumerate(range(0, n, 3)):
        builder.add_frame(f"frame_{k}", f"body_{i}", **_random_pose(rng))
    if n:
        builder.add_frame("tip", f"body_{n - 1}", **_random_pose(rng))
    return builder.build(strict=True)


def _check_names(joints: Sequence[str]) -> None:
    if not joints:
        raise ModelError("joints must name at least one joint type; there are none")
    for kind in joints:
        if kind not in JOINT_TYPES:
            raise ModelError(f"joints: unknown joint type {kind!r}: {suggestion(kind, JOINT_TYPES)}")


def _leaders_first(kinds: list[str]) -> None:
    """Bring a joint that can be followed before the first mimic joint, in place."""
    mimics = [i for i, kind in enumerate(kinds) if kind == "mimic"]
    leaders = [i for i, kind in enumerate(kinds) if JOINT_TYPES[kind].nq == 1]
    if mimics and not leaders:
        raise ModelError(
            "joints: a mimic joint needs a joint with one coordinate to follow, such as 'revolute'; "
            f"there are only {', '.join(sorted(set(kinds)))}"
        )
    if mimics and mimics[0] < leaders[0]:
        i, k = mimics[0], leaders[0]
        kinds[i], kinds[k] = kinds[k], kinds[i]


def _random_solid(rng: np.random.Generator) -> Solid:
    """Return a box of 5 to 40 cm and 0.5 to 4 kg."""
    mass = math.exp(rng.uniform(math.log(0.5), math.log(4.0)))
    size, centre = rng.uniform(0.05, 0.40, 3), rng.uniform(-0.2, 0.2, 3)
    colour = (*rng.uniform(0.2, 0.9, 3).tolist(), 1.0)
    return Solid("box", mass, tuple(size.tolist()), tuple(centre.tolist()), _random_quaternion(rng), colour)


def _random_quaternion(rng: np.random.Generator) -> tuple[float, ...]:
    q = rng.normal(size=4)
    return tuple((q / np.linalg.norm(q)).tolist())


def _random_pose(rng: np.random.Generator) -> dict[str, Any]:
    return {"xyz": rng.uniform(-0.4, 0.4, 3), "quaternion": _random_quaternion(rng)}


def _random_axes(rng: np.random.Generator) -> dict[str, Any]:
    """Return two axes 45 to 135 degrees apart, and a pitch that is not small."""
    axis, other = rng.normal(size=(2, 3))
    axis, across = axis / np.linalg.norm(axis), np.cross(axis, other)
    axis2 = across / np.linalg.norm(across) + rng.uniform(-1, 1) * axis
    return {"axis": axis, "axis2": axis2, "pitch": _sign(rng) * rng.uniform(0.05, 0.3)}


def _sign(rng: np.random.Generator) -> float:
    return float(rng.choice((-1.0, 1.0)))


def _random_drive(rng: np.random.Generator, kind: str, armature: bool, passive: bool) -> dict[str, Any]:
    """Return the passive elements of a joint, one number per degree of freedom.

    All are drawn, also those that are not wanted: the rest of the model does not depend on the choice.
    """
    size = JOINT_TYPES[kind].nv
    highest = {"armature": 0.2, "stiffness": 10.0, "damping": 1.0, "friction": 0.5}
    drawn = {name: rng.uniform(0.05 * high, high, size) for name, high in highest.items()}
    return {name: x for name, x in drawn.items() if size and (armature if name == "armature" else passive)}
