"""Rollouts of a batch on many devices, of one process or of several."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from jaxdyn.model import Model
from jaxdyn.simulate.rollouts import Begun, Options, Trajectory, inputs_of, options_of, run, system_of
from jaxdyn.simulate.system import JointLimits, System


def sharded_rollout(
    model: Model,
    q: Any,
    qd: Any,
    tau: Any,
    *,
    dt: Any,
    mesh: Mesh | None = None,
    params: Any = None,
    t0: Any = 0.0,
    f_ext: Any = None,
    limits: JointLimits | None = None,
    **options: Any,
) -> Trajectory:
    """Simulate a batch of robots, split over all devices.

    Every device runs its part of the batch, without communication. On several hosts call
    `jax.distributed.initialize` first, and run the same program on each: `jax.devices()` are then those of all hosts,
    and results are global arrays, of which every process holds its part. Inputs are global arrays, or ordinary ones
    that are the same in every process. What comes after, such as a loss and its gradient, is summed up over all hosts
    by JAX. When a process dies, JAX ends the others with a message that says which, after
    `jax.distributed.initialize(heartbeat_timeout_seconds=...)` at the latest; on CPUs, those that are in the middle of
    a sum over hosts are ended at once, with a message of gloo, which does the sums.

    Args:
        model: the model, for all of the batch.
        q: initial configurations, (batch, nq).
        qd: initial velocities, (batch, nv).
        tau: joint forces, (batch, T, nv), or a policy as in `rollout`.
        dt: time step, s.
        mesh: the devices, all of whose axes the batch is split over; all devices of JAX if None.
        params: see `rollout`; for all of the batch.
        t0: see `rollout`.
        f_ext: see `rollout`; for all of the batch.
        limits: see `rollout`.
        options: further arguments of `rollout`.

    Returns:
        The trajectories, every array with the batch as its first axis, split over the devices.

    Example:
        >>> import jax.numpy as jnp, jaxdyn
        >>> from jaxdyn.simulate import sharded_rollout
        >>> model = jaxdyn.load("pendulum")
        >>> q, qd, tau = jnp.ones((8, 1)), jnp.zeros((8, 1)), jnp.zeros((8, 10, 1))
        >>> sharded_rollout(model, q, qd, tau, dt=0.01).q.shape
        (8, 11, 1)
    """
    mesh = all_devices(mesh)
    q, qd, tau = batch_of(model, q, qd, tau, mesh)
    chosen = options_of(model, tau if callable(tau) else tau[0], **options)
    system = system_of(model, f_ext, limits, params)
    return run_sharded(system, q, qd, None if callable(tau) else tau, dt, t0, chosen, mesh)


@partial(jax.jit, static_argnames=("options", "mesh"))
def run_sharded(
    system: System,
    q: Any,
    qd: Any,
    tau: Any,
    dt: Any,
    t0: Any,
    options: Options,
    mesh: Mesh,
    begun: Begun | None = None,
) -> Trajectory:
    """Return the trajectories of a batch; what a run that was begun before has is by robot, too, but for `steps`."""
    steps, failed_at = (None, None) if begun is None else begun
    options = options._replace(progress=options.progress and len(mesh.local_devices))

    def on_device(system: System, dt: Any, t0: Any, steps: Any, *batch: Any) -> Trajectory:
        def one(q: Any, qd: Any, tau: Any, failed_at: Any) -> Trajectory:
            return run(system, q, qd, tau, dt, t0, options, None if steps is None else Begun(steps, failed_at))

        return jax.vmap(one)(*batch)

    split, whole = PartitionSpec(mesh.axis_names), PartitionSpec()
    specs = (whole, whole, whole, whole, split, split, split, split)
    spread = jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False)
    return spread(system, dt, t0, steps, q, qd, tau, failed_at)


def all_devices(mesh: Mesh | None) -> Mesh:
    """Return a mesh over whose axes, taken together, a batch is split; all devices if None."""
    if mesh is None:
        return Mesh(np.array(jax.devices()), ("batch",))
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be a jax.sharding.Mesh or None; got {type(mesh).__name__}")
    return Mesh(mesh.devices, mesh.axis_names)


def batch_of(model: Model, q: Any, qd: Any, tau: Any, mesh: Mesh) -> tuple[Any, Any, Any]:
    """Return (q, qd, tau), checked: all but a policy are arrays whose first axis the devices can share."""
    wanted = {"q": f"(batch, {model.nq})", "qd": f"(batch, {model.nv})", "tau": f"(batch, T, {model.nv})"}
    given = {name: inputs_of(name, x, wanted[name]) for name, x in (("q", q), ("qd", qd), ("tau", tau))}
    arrays = {name: np.shape(x) for name, x in given.items() if not callable(x)}
    for name, shape in arrays.items():
        if len(shape) != (3 if name == "tau" else 2):
            raise ValueError(f"{name} must have shape {wanted[name]}, the batch first; got {shape}")
    sizes = {name: shape[0] for name, shape in arrays.items()}
    if len(set(sizes.values())) != 1:
        raise ValueError(f"all inputs must have the batch as first axis; got {sizes}")
    if sizes["q"] % mesh.size or not sizes["q"]:
        raise ValueError(f"the batch must be a multiple of the number of devices, {mesh.size}; got {sizes['q']}")
    return given["q"], given["qd"], given["tau"]
