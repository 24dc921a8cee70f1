"""Rollouts of a batch on many devices."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from jaxdyn.model import Model
from jaxdyn.simulate.rollouts import Trajectory, rollout


def sharded_rollout(
    model: Model, q: Any, qd: Any, tau: Any, *, mesh: Mesh | None = None, params: Any = None, **options: Any
) -> Trajectory:
    """Simulate a batch of robots, split over all devices.

    Every device runs its part of the batch, without communication. On several hosts call
    `jax.distributed.initialize` first, and run the same program on each: `jax.devices()` are then those of all hosts,
    and arrays are global.

    Args:
        model: the model, for all of the batch.
        q: initial configurations, (batch, nq).
        qd: initial velocities, (batch, nv).
        tau: joint forces, (batch, T, nv), or a policy as in `rollout`.
        mesh: the devices, all of whose axes the batch is split over; all devices of JAX if None.
        params: see `rollout`; for all of the batch.
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
    mesh = Mesh(np.array(jax.devices()), ("batch",)) if mesh is None else Mesh(mesh.devices, mesh.axis_names)
    policy = tau if callable(tau) else None
    inputs = (q, qd) if policy else (q, qd, tau)
    sizes = {name: np.shape(x)[:1] for name, x in zip(("q", "qd", "tau"), inputs, strict=False)}
    if len(set(sizes.values())) != 1 or not np.shape(q):
        raise ValueError(f"all inputs must have the batch as first axis; got {sizes}")
    batch = np.shape(q)[0]
    if batch % mesh.size:
        raise ValueError(f"the batch must be a multiple of the number of devices, {mesh.size}; got {batch}")

    def on_device(model: Model, params: Any, *inputs: Any) -> Trajectory:
        one = lambda q, qd, tau=policy: rollout(model, q, qd, tau, params=params, **options)
        return jax.vmap(one)(*inputs)

    split = PartitionSpec(mesh.axis_names)
    in_specs = (PartitionSpec(), PartitionSpec(), *(split for _ in inputs))
    run = jax.shard_map(on_device, mesh=mesh, in_specs=in_specs, out_specs=split, check_vma=False)
    return jax.jit(run)(model, params, *inputs)
