"""Long runs that survive: what is done so far is on disk, and a run that was killed goes on from there."""

from __future__ import annotations

import hashlib
import json
import os
from functools import partial
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from types import CellType, CodeType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdyn.model import Model
from jaxdyn.simulate.progress import Bar
from jaxdyn.simulate.rollouts import Begun, Options, Trajectory, options_of, system_of
from jaxdyn.simulate.sharding import all_devices, batch_of, run_sharded
from jaxdyn.simulate.system import JointLimits, System


def checkpointed_rollout(
    model: Model,
    q: Any,
    qd: Any,
    tau: Any,
    *,
    dt: Any,
    directory: str | os.PathLike[str],
    every: int,
    mesh: Mesh | None = None,
    params: Any = None,
    t0: Any = 0.0,
    f_ext: Any = None,
    limits: JointLimits | None = None,
    progress: bool = False,
    **options: Any,
) -> Trajectory:
    """Simulate a batch of robots for long, and write what is done to disk. Needs orbax: `pip install jaxdyn[dist]`.

    The run is cut into parts of `every` steps. After each, its rows and the last state are written. Called again with
    the same arguments, after it was killed or not, it goes on after the last part that was written to its end: the
    result is the same, bit for bit. It is not to be differentiated, nor called within `jax.jit`.

    Args:
        model: the model, for all of the batch.
        q: initial configurations, (batch, nq).
        qd: initial velocities, (batch, nv).
        tau: joint forces, (batch, T, nv), or a policy as in `rollout`.
        dt: time step, s.
        directory: of this run alone; made if it is not there. On several hosts, one that all of them see.
        every: steps between checkpoints, a divisor of T and a multiple of `hold` and of `save_every`.
        mesh: see `sharded_rollout`; also what several hosts need.
        params: see `rollout`.
        t0: see `rollout`.
        f_ext: see `rollout`.
        limits: see `rollout`.
        progress: show on stderr how far the run is, after each part.
        options: further arguments of `rollout`. With `on_nonfinite`, a robot that failed stays where it is.

    Returns:
        The trajectories, as those of `sharded_rollout`.
    """
    mesh = all_devices(mesh)
    q, qd, tau = batch_of(model, q, qd, tau, mesh)
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((model, q, qd, params))):
        raise TypeError("checkpointed_rollout writes files: call it outside of jit, grad and vmap")
    whole = options_of(model, tau if callable(tau) else tau[0], **options)
    _check_length(every, whole)
    system = system_of(model, f_ext, limits, params)
    tau = None if whole.policy else tau
    arguments = {"model": model, "q": q, "qd": qd, "tau": tau, "dt": dt, "t0": t0, "params": params, "f_ext": f_ext}
    arguments |= {"limits": limits, "every": every, "mesh": mesh.devices.size}
    store = _Store(Path(directory).absolute(), _described(arguments, whole), mesh)
    bar = Bar(whole.steps) if progress and jax.process_index() == 0 else None
    try:
        return _all_parts(store, system, q, qd, tau, dt, t0, whole, every, mesh, bar)
    finally:
        store.close()


def _all_parts(
    store: _Store, system: System, q: Any, qd: Any, tau: Any, dt: Any, t0: Any, options: Options, every: int,
    mesh: Mesh, bar: Bar | None,
) -> Trajectory:  # fmt: skip
    """Run the parts that are not there yet, and return all of them joined."""
    part, rows_of_tau = options._replace(steps=every), every // options.hold
    failed_at = jnp.where(jnp.isfinite(q).all(1) & jnp.isfinite(qd).all(1), -1, 0)
    state, parts = (q, qd, failed_at), []
    for k in range(options.steps // every):
        if bar is not None:
            bar.update(k * every)

        def compute() -> Trajectory:
            here = None if tau is None else tau[:, k * rows_of_tau : (k + 1) * rows_of_tau]
            return run_sharded(system, *state[:2], here, dt, t0, part, mesh, Begun(np.int32(k * every), state[2]))

        done = store.part(k, compute)
        parts.append(done)
        state = done.q[:, -1], done.qd[:, -1], done.extras.get("failed_at", failed_at)
    if bar is not None:
        bar.update(options.steps)
    return _joined(parts)


def _joined(parts: list[Trajectory]) -> Trajectory:
    """Return one trajectory; a part begins with the row that the one before it ends with."""
    join = lambda skip, *xs: jax.tree.map(
        lambda first, *others: jnp.concatenate([first, *(x[:, skip:] for x in others)], axis=1), *xs
    )
    extras = {
        name: part if name == "failed_at" else join(int(name not in ("qdd", "tau")), *(p.extras[name] for p in parts))
        for name, part in parts[-1].extras.items()
    }
    t, q, qd = (join(1, *(getattr(p, name) for p in parts)) for name in ("t", "q", "qd"))
    return Trajectory(t, q, qd, extras)


def _check_length(every: int, options: Options) -> None:
    if not isinstance(every, (int, np.integer)) or isinstance(every, bool) or every < 1:
        raise ValueError(f"every must be a positive integer; got {every!r}")
    if options.steps % every or every % options.hold or every % options.save_every or not options.steps:
        raise ValueError(
            f"every must divide the number of steps, {options.steps}, and be a multiple of hold, {options.hold}, and "
            f"of save_every, {options.save_every}; got {every}"
        )


# ---------------------------------------------------------------------- on disk
class _Store:
    """The parts of a run in a directory: one checkpoint each, and a file that says whose they are."""

    def __init__(self, directory: Path, about: dict[str, str], mesh: Mesh):
        ocp = self._ocp = _orbax()
        file, self._sharding = directory / "run.json", NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        if file.exists():
            written = json.loads(file.read_text(encoding="utf-8"))
            if other := [name for name, value in about.items() if written.get(name) != value]:
                raise ValueError(
                    f"directory {str(directory)!r} holds a run with other arguments: {', '.join(other)}; give this one "
                    "another directory, or remove it"
                )
        elif jax.process_index() == 0:
            directory.mkdir(parents=True, exist_ok=True)
            new = file.with_suffix(".new")
            new.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
            new.replace(file)  # at once: a file that is there is whole
        choices = ocp.CheckpointManagerOptions(max_to_keep=None, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(directory / "parts", options=choices)
        self._there = set(self._manager.all_steps())

    def part(self, k: int, compute: Any) -> Trajectory:
        """Return part k: as it was written, or computed and written."""
        if k in self._there:
            like = jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self._sharding), jax.eval_shape(compute)
            )
            return Trajectory(**self._manager.restore(k, args=self._ocp.args.StandardRestore(like._asdict())))
        done = compute()
        self._manager.save(k, args=self._ocp.args.StandardSave(done._asdict()))
        return done

    def close(self) -> None:
        """End what writes."""
        self._manager.close()


def _orbax() -> Any:
    try:
        return import_module("orbax.checkpoint")
    except ImportError as error:
        raise ImportError(
            "checkpointed_rollout needs the package orbax-checkpoint: pip install jaxdyn[dist]"
        ) from error


def _described(arguments: dict[str, Any], options: Options) -> dict[str, str]:
    """Return what tells one run from another, by argument. Arrays of other hosts count by shape."""
    about = {name: _digest(value) for name, value in arguments.items()}
    return about | {name: _digest(value) for name, value in options._asdict().items() if name != "progress"}


def _digest(value: Any, inside: tuple[Any, ...] = ()) -> str:
    """Return a short text that is another for other numbers, and for functions of other code or closures."""
    leaves, form = jax.tree.flatten(value)
    found = hashlib.sha256(str(form).encode() if len(leaves) != 1 else b"")
    for x in leaves:
        if isinstance(x, (str, bool)):
            found.update(str(x).encode())
        elif callable(x):
            for part in () if any(x is f for f in inside) else _parts_of_function(x):
                found.update(_digest(part, (*inside, x)).encode())
        elif not isinstance(x, (int, float, complex, np.ndarray, np.generic, jax.Array)):
            found.update(type(x).__qualname__.encode())
        else:
            found.update(f"{np.shape(x)} {jnp.result_type(x)}".encode())
            if not isinstance(x, jax.Array) or x.is_fully_addressable:
                found.update(np.asarray(x).tobytes())
    return found.hexdigest()[:16]


def _parts_of_function(f: Any) -> tuple[Any, ...]:
    """Return the name of a function, and what else it is made of: code, defaults, and what it closes over."""
    f = unwrap(f)  # of `jax.jit`
    if isinstance(f, partial):
        return "partial", f.func, f.args, f.keywords
    name, code = getattr(f, "__qualname__", type(f).__qualname__), getattr(f, "__code__", None)
    if code is None:
        return (name, getattr(f, "__func__", None), getattr(f, "__self__", None))
    cells = [cell.cell_contents for cell in f.__closure__ or () if cell != CellType()]
    return name, _text_of_code(code), f.__defaults__, f.__kwdefaults__, cells


def _text_of_code(code: CodeType) -> str:
    """Return what a function does as a text, the same in every process."""

    def text(x: Any) -> str:
        if isinstance(x, CodeType):
            return _text_of_code(x)
        return str(sorted(map(repr, x))) if isinstance(x, frozenset) else repr(x)  # sets have no order

    return f"{code.co_code.hex()} {list(map(text, code.co_consts))} {code.co_names}"
