"""Several processes, for real: the same loss and gradients, an end when one dies, and runs that go on after a kill."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.simulate import checkpointed_rollout, rollout
from jaxdyn.simulate.checkpoints import _digest

HEARTBEAT = 15  # s

# Both do the same and write down what they found; then the second dies, while the first has something else to do.
WORKER = f"""
import json, os, pathlib, sys, time
import jax
jax.config.update("jax_enable_x64", True)
me, port, directory = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
jax.distributed.initialize(f"127.0.0.1:{{port}}", 2, me, heartbeat_timeout_seconds={HEARTBEAT})
import numpy as np, jaxdyn
from jax.experimental import multihost_utils
from jaxdyn.simulate import sharded_rollout
assert (jax.device_count(), jax.local_device_count()) == (4, 2)
model, rng = jaxdyn.load("pendulum"), np.random.default_rng(0)
q, qd, tau = (rng.normal(size=s) for s in ((8, 1), (8, 1), (8, 6, 1)))
def loss(inertia, tau):
    run = sharded_rollout(model.replace(inertia=inertia), q, qd, tau, dt=0.02)
    return (run.q ** 2).sum() + (run.qd[:, -1] ** 3).sum()
both = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
value, (by_inertia, by_tau) = both(model.inertia, tau)
assert not by_tau.is_fully_addressable
whole = multihost_utils.process_allgather(by_tau, tiled=True)
found = directory / f"{{me}}.json"
found.with_suffix(".part").write_text(json.dumps([float(value), np.asarray(by_inertia).tolist(), whole.tolist()]))
found.with_suffix(".part").rename(found)
if me == 1:
    while not (directory / "0.json").exists():
        time.sleep(0.05)
    os._exit(7)
time.sleep(600)
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def start(script, *args, devices=1):
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Return where two processes of two devices wrote, their errors, how they ended, the first's time alone."""
    port, directory = free_port(), tmp_path_factory.mktemp("pair")
    first, second = (start(WORKER, k, port, directory, devices=2) for k in (0, 1))
    try:
        _, last = second.communicate(timeout=300)
        died = time.monotonic()
        _, words = first.communicate(timeout=300)
        return directory, (words, last), (first.returncode, second.returncode), time.monotonic() - died
    finally:
        for process in (first, second):
            process.kill()


def test_loss_and_gradients_are_those_of_one_process(pair):
    directory, errors, codes, _ = pair
    assert codes[1] == 7, errors
    model, rng = jaxdyn.load("pendulum"), np.random.default_rng(0)
    q, qd, tau = (rng.normal(size=s) for s in ((8, 1), (8, 1), (8, 6, 1)))

    def loss(inertia, tau):
        run = jax.vmap(lambda *x: rollout(model.replace(inertia=inertia), *x, dt=0.02))(q, qd, tau)
        return (run.q**2).sum() + (run.qd[:, -1] ** 3).sum()

    value, gradients = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(model.inertia, jnp.asarray(tau))
    for process in (0, 1):
        written = json.loads((directory / f"{process}.json").read_text())
        for found, truth in zip(written, (value, *gradients), strict=True):
            np.testing.assert_allclose(found, truth, rtol=1e-12, atol=1e-12)


def test_a_process_that_dies_ends_the_others(pair):
    """In bounded time, and with a message that says why."""
    _, errors, codes, seconds = pair
    assert codes[0] not in (0, None)
    assert seconds < HEARTBEAT + 30
    assert "another task died" in errors[0]


# Both sum up without end; one of them dies soon.
SUMMING = f"""
import os, sys
import jax
me, port, dies = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
jax.distributed.initialize(f"127.0.0.1:{{port}}", 2, me, heartbeat_timeout_seconds={HEARTBEAT})
import numpy as np, jaxdyn
from jaxdyn.simulate import sharded_rollout
model, x = jaxdyn.load("pendulum"), np.ones((4, 1))
loss = jax.jit(lambda x: (sharded_rollout(model, x, x, np.zeros((4, 6, 1)), dt=0.02).q ** 2).sum())
for k in range(10**9):
    jax.block_until_ready(loss(x))
    if k == 3 and me == dies:
        os._exit(7)
"""


@pytest.mark.long
@pytest.mark.parametrize("dies", [0, 1])
def test_a_process_that_dies_during_a_sum_ends_the_others(dies):
    """Also if it is the first, to which all others are connected: in bounded time, and with a word on why."""
    port = free_port()
    processes = [start(SUMMING, k, port, dies, devices=2) for k in (0, 1)]
    try:
        processes[dies].communicate(timeout=300)
        died = time.monotonic()
        assert processes[dies].returncode == 7
        _, errors = processes[1 - dies].communicate(timeout=300)
        assert time.monotonic() - died < HEARTBEAT + 30
        assert processes[1 - dies].returncode not in (0, None)
        assert "another task died" in errors or "gloo" in errors
    finally:
        for process in processes:
            process.kill()


# ---------------------------------------------------------------------- checkpoints
STEPS, EVERY = 60_000, 2_000

RUN = f"""
import sys, numpy as np, jax
jax.config.update("jax_enable_x64", True)
import jaxdyn
from jaxdyn.simulate import checkpointed_rollout

def swing(directory, model=jaxdyn.load("pendulum"), **options):
    push = lambda t, q, qd, gain: gain * np.sin(1.0) * jax.numpy.sin(3 * t) - 0.1 * qd
    given = dict(dt=1e-3, steps={STEPS}, every={EVERY}, params=0.3, save_every=200, on_nonfinite="stop")
    return checkpointed_rollout(
        model, [[0.3], [1.0]], [[0.0], [0.5]], push, directory=directory, **(given | options)
    )
"""


def test_a_run_that_was_killed_goes_on(tmp_path):
    """Killed in the middle by the system, and called again: bit for bit the result of a run that was not."""
    space = {}
    exec(RUN, space)
    process = start(f"{RUN}\nswing(sys.argv[1])", tmp_path / "killed")
    parts = tmp_path / "killed" / "parts"
    for _ in range(3000):
        done = [path for path in parts.iterdir() if path.name.isdigit()] if parts.exists() else []
        if len(done) >= 2 or process.poll() is not None:
            break
        time.sleep(0.02)
    process.kill()
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    done = [path for path in parts.iterdir() if path.name.isdigit()]
    assert 2 <= len(done) < STEPS // EVERY
    resumed, whole = (space["swing"](tmp_path / name) for name in ("killed", "whole"))
    assert whole.q.shape == (2, STEPS // 200 + 1, 1)
    jax.tree.map(np.testing.assert_array_equal, resumed, whole)
    with pytest.raises(ValueError, match="holds a run with other arguments: params"):
        space["swing"](tmp_path / "whole", params=0.4)


def test_parts_make_a_rollout(tmp_path):
    """What is cut into parts is one rollout, with all that it saves; one robot fails, and stays where it is."""
    model, rng = jaxdyn.load("pendulum"), np.random.default_rng(0)
    q, qd, tau = (rng.normal(size=s) for s in ((2, 1), (2, 1), (2, 6, 1)))
    tau[1, 1] = np.nan
    options = {
        "dt": 0.01, "hold": 2, "save_every": 2, "outputs": ["tau", "energy"], "on_nonfinite": "stop",
        "observables": {"twice": lambda t, q, qd, params: 2 * q + t},
    }  # fmt: skip
    found = checkpointed_rollout(model, q, qd, tau, directory=tmp_path / "run", every=4, **options)
    whole = jax.vmap(lambda *x: rollout(model, *x, **options))(q, qd, tau)
    np.testing.assert_array_equal(found.extras["failed_at"], [-1, 2])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13), found, whole)


def test_functions_are_told_apart_by_what_they_do():
    """By code, defaults and closures, not by name; the same function made again is the same."""

    def made(k):
        return lambda t, q, qd, params, scale=k: -k * qd + scale * q

    assert _digest(made(1.0)) == _digest(made(1.0))
    functions = [
        made(1.0),
        made(2.0),
        lambda t, q, qd, p: q,
        lambda t, q, qd, p: qd,
        partial(made, 1.0),
        partial(made, 2.0),
    ]
    assert len({_digest(f) for f in functions}) == len(functions)
    assert _digest(jax.jit(made(1.0))) == _digest(made(1.0))
    recursive = lambda n: n and recursive(n - 1)
    assert _digest(recursive) == _digest(recursive)
    assert _digest(jnp.sin) != _digest(jnp.cos)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"every": 4}, "every must divide the number of steps, 6.*got 4"),
        ({"every": 0}, "every must be a positive integer"),
        ({"q": np.zeros(1)}, r"q must have shape \(batch, 1\), the batch first; got \(1,\)"),
        ({"qd": np.zeros((3, 1))}, "all inputs must have the batch as first axis"),
    ],
)
def test_bad_input(change, message, tmp_path):
    given = {"q": np.zeros((2, 1)), "qd": np.zeros((2, 1)), "tau": np.zeros((2, 6, 1)), "dt": 0.1, "every": 3} | change
    with pytest.raises(ValueError, match=message):
        checkpointed_rollout(jaxdyn.load("pendulum"), directory=tmp_path, **given)
