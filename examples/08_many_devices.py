"""Many devices: one script for one process or several, and a long run that goes on after it was stopped.

python examples/08_many_devices.py               # all devices of this machine
python examples/08_many_devices.py 0 2 &         # two processes that work together, here on one machine;
python examples/08_many_devices.py 1 2           # on several, give the address of the first
"""

import importlib.util
import os
import sys
import tempfile

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")  # where there is no GPU, pretend to have two CPUs

import jax
import numpy as np

if len(sys.argv) > 2:
    jax.distributed.initialize("127.0.0.1:9876", int(sys.argv[2]), int(sys.argv[1]), heartbeat_timeout_seconds=20)

import jaxdyn
from jaxdyn.simulate import checkpointed_rollout, sharded_rollout

model, rng = jaxdyn.load("pendulum"), np.random.default_rng(0)
print(f"process {jax.process_index()} of {jax.process_count()}, {jax.device_count()} devices in all")

# Inputs are the same in every process; each device simulates its part of the batch.
q, qd, tau = (rng.normal(size=shape).astype(np.float32) for shape in ((64, 1), (64, 1), (64, 50, 1)))


@jax.jit
@jax.value_and_grad
def loss(inertia):
    run = sharded_rollout(model.replace(inertia=inertia), q, qd, tau, dt=0.01)
    return (run.q[:, -1] ** 2).mean()  # over the batch of all processes


value, gradient = loss(model.inertia)
length = jax.numpy.linalg.norm(gradient)
print(f"loss {value:.4f}, its gradient by the inertia has length {length:.4f}: the same in every process")

# A long run is written down every 500 steps. What is there is not computed again.
if jax.process_count() == 1 and importlib.util.find_spec("orbax"):
    with tempfile.TemporaryDirectory() as directory:
        for attempt in ("first", "second"):
            run = checkpointed_rollout(
                model, q, qd, lambda t, q, qd, params: -0.1 * qd, dt=1e-3, steps=2000, save_every=100,
                directory=f"{directory}/run", every=500,
            )  # fmt: skip
            print(f"{attempt} call: the first pendulum ends at {run.q[0, -1, 0]:.6f} rad")
