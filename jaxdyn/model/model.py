"""The model: a frozen pytree. Numbers are leaves, topology and names are static."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn._checks import ModelError, suggestion
from jaxdyn._compiling import Packed
from jaxdyn.model.geometry import Shapes
from jaxdyn.model.topology import Topology


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A tree (or forest) of rigid bodies.

    Made by `jaxdyn.load` or `ModelBuilder`. Every leaf may be differentiated, batched with `jax.vmap` or
    optimised; changing numbers never recompiles. Bodies are numbered base to tip, depth-first; joint i
    carries body i; the body's frame sits at the joint.

    Example:
        >>> import jax, jaxdyn
        >>> model = jaxdyn.load("arm7")
        >>> model.nq, model.nv, model.nbodies
        (7, 7, 7)
        >>> heavier = model.replace(inertia=1.1 * model.inertia)
        >>> q = jaxdyn.neutral(model)
        >>> height = lambda model: jaxdyn.forward_kinematics(model, q).position[-1, 2]
        >>> jax.grad(height)(model).placement.shape
        (7, 7)
    """

    placement: jax.Array
    """(nbodies, 7) pose of each joint in its parent's frame: quaternion w, x, y, z (normalised at use), xyz."""
    axis: jax.Array
    """(nbodies, 3) joint axis in the joint's frame, normalised at use."""
    axis2: jax.Array
    """(nbodies, 3) second axis of universal joints, in the body's frame, normalised at use."""
    pitch: jax.Array
    """(nbodies,) displacement per angle of helical joints, m/rad."""
    ratio: jax.Array
    """(nbodies,) of mimic joints: coordinate = ratio * followed coordinate + offset."""
    offset: jax.Array
    """(nbodies,) see `ratio`."""
    joint_parameters: jax.Array
    """(nbodies, k) parameters of users' own joint types, in the order of `Joint.custom_parameters`."""
    inertia: jax.Array
    """(nbodies, 10) m, m c, Ixx, Ixy, Iyy, Ixz, Iyz, Izz, about the body frame's origin, in its axes."""
    frame_placement: jax.Array
    """(nframes, 7) pose of each named frame in the body that carries it (or in the world)."""
    gravity: jax.Array
    """(3,) acceleration of gravity, world axes."""
    armature: jax.Array
    """(nv,) reflected rotor inertia, part of the mass matrix."""
    damping: jax.Array
    """(nv,) viscous friction coefficient."""
    friction: jax.Array
    """(nv,) Coulomb friction, smoothed: friction * tanh(qd / v_s)."""
    v_s: jax.Array
    """(nv,) speed at which Coulomb friction sets in, see `friction`."""
    stiffness: jax.Array
    """(nv,) of the joints' springs, acting on the difference from `rest`."""
    rest: jax.Array
    """(nq,) configuration in which the joints' springs are relaxed."""
    lower: jax.Array
    """(nq,) lower position limits, -inf where there is none."""
    upper: jax.Array
    """(nq,) upper position limits, inf where there is none."""
    velocity_limit: jax.Array
    """(nv,) inf where there is none."""
    effort_limit: jax.Array
    """(nv,) force or torque limit, inf where there is none."""
    topology: Topology = field(metadata={"static": True})
    """Parents, joint types and names."""
    geometry: Shapes = field(metadata={"static": True}, default=Shapes())
    """Shapes for viewers."""

    @property
    def name(self) -> str:
        """Name of the robot."""
        return self.topology.name

    @property
    def nq(self) -> int:
        """Number of configuration coordinates."""
        return self.topology.nq

    @property
    def nv(self) -> int:
        """Number of velocity coordinates, the degrees of freedom."""
        return self.topology.nv

    @property
    def nbodies(self) -> int:
        """Number of moving bodies."""
        return self.topology.nbodies

    @property
    def body_names(self) -> tuple[str, ...]:
        """Names of the moving bodies."""
        return self.topology.body_names

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints; joint i carries body i."""
        return self.topology.joint_names

    @property
    def joint_types(self) -> tuple[str, ...]:
        """Types of the joints, such as "revolute"."""
        return tuple(joint.type for joint in self.topology.joints)

    @property
    def parents(self) -> tuple[int, ...]:
        """Index of each body's parent, -1 for the world."""
        return self.topology.parents

    @property
    def frame_names(self) -> tuple[str, ...]:
        """Names of the frames other than the bodies' own."""
        return self.topology.frame_names

    @property
    def dtype(self) -> Any:
        """Floating-point type of the leaves."""
        return jnp.result_type(self.placement)

    @cached_property
    def moving(self) -> Self:
        """The model with only those leaves on which its motion depends; the others are None.

        `jit` handles every leaf at every call: the dynamics hands over this part.
        """
        read = {"placement", "inertia", "gravity", "armature", *self.topology.joint_leaves}
        names = {f.name for f in dataclasses.fields(self)} - {"topology", "geometry"}
        without: dict[str, Any] = dict.fromkeys(names - read)
        return dataclasses.replace(self, geometry=Shapes(), **without)

    @cached_property
    def packed(self) -> Packed | None:
        """The model with its leaves in one array, which `jit` hands over in less time than several, if it can be."""
        return Packed.of(self)

    def q_slice(self, joint_name: str) -> slice:
        """Return where a joint's coordinates are in q (empty for a mimic joint)."""
        i = self.topology.joint_index(joint_name)
        return slice(self.topology.q_start[i], self.topology.q_start[i] + self.topology.joints[i].nq)

    def qd_slice(self, joint_name: str) -> slice:
        """Return where a joint's velocities are in qd (empty for a mimic joint)."""
        i = self.topology.joint_index(joint_name)
        return slice(self.topology.qd_start[i], self.topology.qd_start[i] + self.topology.joints[i].nv)

    def body_index(self, name: str) -> int:
        """Return the index of a body, or of the body that carries the named frame; -1 for the world."""
        return self.topology.find_frame(name)[0]

    def replace(self, **leaves: Any) -> Self:
        """Return a copy with some leaves replaced; arrays may have leading batch axes for `jax.vmap`."""
        known = {f.name for f in dataclasses.fields(self)}
        for name, value in leaves.items():
            if name not in known:
                raise ValueError(f"a model has no leaf {name!r}: {suggestion(name, sorted(known))}")
            if name in ("topology", "geometry"):
                continue
            wanted, came = np.shape(getattr(self, name)), np.shape(value)
            if came[len(came) - len(wanted) :] != wanted:
                raise ValueError(f"{name} must have shape {wanted} (after any batch axes); got {came}")
            leaves[name] = self._leaf(name, value)
        if "geometry" in leaves:
            leaves["geometry"] = Shapes(leaves["geometry"])
        return dataclasses.replace(self, **leaves)

    def _leaf(self, name: str, value: Any) -> jax.Array:
        """Return a value for a leaf; only JAX arrays keep a floating-point type of their own."""
        array = value if isinstance(value, jax.Array) else np.asarray(value)
        if jnp.issubdtype(array.dtype, jnp.complexfloating):
            raise ValueError(f"{name} must be real; got {array.dtype}")
        if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jnp.floating):
            return array
        return jnp.asarray(array, getattr(self, name).dtype)

    def require_single(self, *, concrete: bool = True) -> None:
        """Raise a ModelError unless this is one model, not a batch, and (if asked) not traced by jit or grad."""
        for name, leaf in vars(self).items():
            if leaf is None or name not in _AXES:
                continue
            if concrete and isinstance(leaf, jax.core.Tracer):
                raise ModelError("a model with concrete leaves is needed; this one is traced by jit, vmap or grad")
            if np.ndim(leaf) != _AXES[name]:
                raise ModelError(
                    f"one model is needed; this is a batch of them ({name} has shape {np.shape(leaf)}): use jax.vmap"
                )

    def astype(self, dtype: Any) -> Self:
        """Return a copy whose leaves have another floating-point type."""
        wanted = np.dtype(dtype)
        if wanted == np.float64 and not jax.config.read("jax_enable_x64"):
            raise ValueError('float64 is off in JAX; turn it on with jax.config.update("jax_enable_x64", True)')
        if not jnp.issubdtype(wanted, jnp.floating):
            raise ValueError(f"a model's numbers are floating-point; got {wanted.name}")
        return jax.tree.map(lambda x: jnp.asarray(x, wanted), self)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is cached."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def __repr__(self) -> str:
        t = self.topology
        return (
            f"Model({t.name!r}: {t.nbodies} bodies, nq={t.nq}, nv={t.nv}, "
            f"{len(t.frame_names)} frames, {np.dtype(self.dtype).name})"
        )


_MATRICES = ("placement", "axis", "axis2", "joint_parameters", "inertia", "frame_placement")
_AXES = {
    f.name: 2 if f.name in _MATRICES else 1 for f in dataclasses.fields(Model) if f.name not in ("topology", "geometry")
}
"""Number of axes of each leaf of one model."""
