"""`jaxdyn simulate`: let a robot move, say how it went, and write down the run."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.algorithms import gravity_force, kinetic_energy, mass_matrix, potential_energy
from jaxdyn.cli.plotting import plot_run, require_picture
from jaxdyn.cli.recordings import Run, save_run
from jaxdyn.cli.sources import lasting_name, load_quietly, require_writable, warn
from jaxdyn.cli.viewing import write_page
from jaxdyn.model import Model, difference, integrate, neutral, random_configuration
from jaxdyn.simulate import INTEGRATORS, Trajectory, rollout
from jaxdyn.simulate.progress import bar, show

CONTROLLERS = ("none", "gravity-comp", "pd")
SPREAD = 0.05
"""Standard deviation of the copies' start from the first, in the tangent: rad, m."""
RATE = 5.0
"""Natural frequency of the PD controller, rad/s, for a joint that alone moves."""
CHUNKS = 20
"""A run is about so many calls of one compiled program; the progress is shown between them."""
MAX_BYTES, MAX_STEPS = 2**32, 10**9
"""What a run may take: memory for its states, steps."""

DESCRIPTION = f"""\
Simulate a robot from rest, with its passive forces, in float64. There are no contacts.

controllers, which act on all degrees of freedom, those of a floating base included:
  none          no forces but gravity and the passive ones
  gravity-comp  the forces that balance gravity
  pd            these, and a spring and a damper to the start configuration at every joint:
                kp = {RATE**2:g} m, kd = {2 * RATE:g} m, where m is the joint's entry on the
                diagonal of the mass matrix at the start
"""


def add_command(commands: Any, model: argparse.ArgumentParser, epilog: str) -> None:
    """Add `simulate` to the command line."""
    simulate = commands.add_parser(
        "simulate",
        parents=[model],
        help="let a robot move; write the run, a page that shows it, a plot",
        description=DESCRIPTION,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = simulate.add_argument
    add("--duration", metavar="S", type=_positive, default=5.0, help="simulated time, s (default: 5)")
    add("--dt", metavar="S", type=_positive, default=1e-3, help="time step, s (default: 0.001)")
    add("--integrator", choices=INTEGRATORS, default="semi_implicit_euler", help="(default: semi_implicit_euler)")
    add("--controller", choices=CONTROLLERS, default="none", help="see above (default: none)")
    add("--q0", choices=("neutral", "random"), default="neutral",
        help="start configuration: neutral, or random within the joints' limits (default: neutral)")  # fmt: skip
    add("--batch", metavar="N", type=_count, default=1,
        help=f"simulate N copies; all but the first start off by {SPREAD} rad or m (standard deviation) in every "
        "degree of freedom")  # fmt: skip
    add("--seed", metavar="K", type=_seed, default=0, help="of all that is random (default: 0)")
    add("--save-every", metavar="K", type=_count, default=1, help="keep every K-th state only (default: 1)")
    add("--energy", action="store_true", help="keep the energy of every state, too")
    add("--out", metavar="FILE", type=Path, help="write the run to a .npz file: t, q, qd; `jaxdyn view` shows it")
    add("--html", metavar="FILE", type=Path, help="write a page that shows the run")
    add("--plot", metavar="FILE", type=Path, help="write a plot of the run, such as run.png (needs the extra 'plot')")
    simulate.set_defaults(run=_simulate)


def _simulate(options: argparse.Namespace) -> int:
    _check_files(options)
    model, found = load_quietly(options.file, options.floating_base, options.mimic)
    if found:
        warn(f"the model has {len(found)} doubtful places; `jaxdyn check {options.file}` lists them")
    rows = _saved_rows(options, model)
    q0 = neutral(model) if options.q0 == "neutral" else random_configuration(model, jax.random.key(options.seed))
    policy = controller(model, options.controller, q0, options.dt)
    motion = _move(model, policy, starts(model, q0, options.batch, options.seed), rows, options)

    wanted = options.energy or options.plot is not None
    ends = slice(None) if wanted else [0, -1]
    energy = energies(model, motion.q[..., ends, :], motion.qd[..., ends, :])
    t = options.dt * options.save_every * np.arange(rows + 1)
    run = Run(t, motion.q, motion.qd, energy if wanted else None, _about(model, options))
    _summarise(model, run, energy, motion, options)
    if options.out is not None:
        save_run(run, options.out)
        print(f"wrote {options.out}")
    if options.html is not None:
        write_page(model, run, options.file, options.html)
    if options.plot is not None:
        plot_run(model, run.t, run.q, run.qd, run.energy, options.plot)
        print(f"wrote {options.plot}")
    return _failures(motion.failed_at)


# ---------------------------------------------------------------------- what moves
def starts(model: Model, q0: jax.Array, copies: int, seed: int) -> jax.Array:
    """Return start configurations (copies, nq): q0, and others near it."""
    away = SPREAD * np.random.default_rng(seed).normal(size=(copies, model.nv))
    away[0] = 0
    return jax.vmap(integrate, in_axes=(None, None, 0))(model, q0, jnp.asarray(away))


def controller(model: Model, name: str, q0: jax.Array, dt: float) -> Callable[..., jax.Array]:
    """Return a policy (t, q, qd, params) by its name; q0 is the configuration that `pd` holds."""
    if name == "none":
        return lambda t, q, qd, params: jnp.zeros_like(qd)
    if name == "gravity-comp":
        return lambda t, q, qd, params: gravity_force(model, q)
    M = np.asarray(mass_matrix(model, q0))
    m = np.diag(M)
    # A held force is an explicit step: the damper of the fastest mode is stable for kd dt < 2.
    fastest = 2 * RATE * np.linalg.eigvals(np.linalg.solve(M, np.diag(m))).real.max()
    if dt * fastest > 2:
        warn(f"the PD controller is not stable with --dt {dt:g} on this robot; take less than {2 / fastest:.2g}")

    def hold(t: Any, q: jax.Array, qd: jax.Array, params: Any) -> jax.Array:
        return gravity_force(model, q) + m * (RATE**2 * difference(model, q, q0) - 2 * RATE * qd)

    return hold


def energies(model: Model, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
    """Return kinetic and potential energy of states with any leading axes."""
    energy = lambda q, qd: kinetic_energy(model, q, qd) + potential_energy(model, q)
    flat = jax.jit(jax.vmap(energy))(q.reshape(-1, model.nq), qd.reshape(-1, model.nv))
    return np.asarray(flat).reshape(q.shape[:-1])


# ---------------------------------------------------------------------- the run
class Motion(NamedTuple):
    """What came of a simulation; with several copies, a batch axis is in front of q and qd."""

    q: np.ndarray
    """(rows + 1, nq)."""
    qd: np.ndarray
    """(rows + 1, nv)."""
    failed_at: np.ndarray
    """(copies,) the step after which a copy was not finite any more, -1 if there is none."""
    compiling: float
    """Time that the compiler took, s."""
    running: float
    """Time that the steps took, s."""


def _move(
    model: Model, policy: Callable[..., jax.Array], q: jax.Array, rows: int, options: argparse.Namespace
) -> Motion:
    """Simulate all copies, in equal calls of one program; what the last call does past the end is cut off."""
    rows_per_call = math.ceil(rows / CHUNKS)
    calls, steps = math.ceil(rows / rows_per_call), rows_per_call * options.save_every

    def some_steps(q: jax.Array, qd: jax.Array) -> Trajectory:
        return rollout(
            model, q, qd, policy, dt=options.dt, steps=steps, integrator=options.integrator,
            save_every=options.save_every, on_nonfinite="stop",
        )  # fmt: skip

    one = options.batch == 1
    q_now = np.asarray(q[0] if one else q)
    state = q_now, np.zeros((*q_now.shape[:-1], model.nv))
    _show("compiling ...")
    start = time.perf_counter()
    program = jax.jit(some_steps if one else jax.vmap(some_steps)).lower(*state).compile()
    compiled = time.perf_counter()
    parts, failed_at = [tuple(x[..., None, :] for x in state)], np.full(options.batch, -1)
    for call in range(calls):
        after = jax.tree.map(np.asarray, program(*state))
        failed = np.atleast_1d(after.extras["failed_at"])
        failed_at = np.where((failed_at < 0) & (failed >= 0), call * steps + failed, failed_at)
        parts.append((after.q[..., 1:, :], after.qd[..., 1:, :]))
        state = after.q[..., -1, :], after.qd[..., -1, :]
        _show(bar(call + 1, calls, time.perf_counter() - compiled))
    seconds = time.perf_counter() - compiled
    _show("")
    q_rows, qd_rows = (np.concatenate(x, axis=-2)[..., : rows + 1, :] for x in zip(*parts, strict=True))
    failed_at = np.where(failed_at < rows * options.save_every, failed_at, -1)
    return Motion(q_rows, qd_rows, failed_at, compiled - start, seconds)


def _about(model: Model, options: argparse.Namespace) -> dict[str, Any]:
    """Return what finds the robot again, and how it moved."""
    return {
        "robot": lasting_name(options.file),
        "floating_base": options.floating_base,
        "mimic": options.mimic,
        "joint_names": list(model.joint_names),
        "dt": options.dt,
        "integrator": options.integrator,
        "controller": options.controller,
    }


def _show(text: str) -> None:
    """Put a line in the place of the last one, on a terminal only."""
    if sys.stderr.isatty():
        show(text)


# ---------------------------------------------------------------------- what is said
def _summarise(model: Model, run: Run, energy: np.ndarray, motion: Motion, options: argparse.Namespace) -> None:
    many = options.batch > 1
    steps = (len(run.t) - 1) * options.save_every
    rate = steps * options.batch / motion.running
    print(f"{model.name}: {steps} steps{f' of {options.batch} copies' if many else ''}, {run.t[-1]:g} s of motion")
    print(f"compiled in {motion.compiling:.2f} s, ran in {motion.running:.3g} s: {rate:,.0f} steps/s")
    first, last = energy[..., 0].mean(), energy[..., -1].mean()
    mean = ", mean of the copies" if many else ""
    print(f"energy: {first:.6g} J at the start, {last:.6g} J at the end{mean}")
    speeds = np.abs(run.qd).reshape(-1, len(run.t), model.nv)
    copy, row, k = np.unravel_index(speeds.argmax(), speeds.shape)
    joint = next(j for j in model.joint_names if model.qd_slice(j).start <= k < model.qd_slice(j).stop)
    where = f"{joint!r} after {run.t[row]:.4g} s{f', copy {copy}' if many else ''}"
    print(f"largest joint speed: {speeds[copy, row, k]:.4g} rad/s or m/s, of {where}")
    if not speeds.max() > 1e-9 and options.q0 == "neutral":
        print("nothing moves: the robot starts in equilibrium; --q0 random starts elsewhere")


def _failures(failed_at: np.ndarray) -> int:
    """Return the exit code, after a warning of copies whose state was not finite any more."""
    failed = np.flatnonzero(failed_at >= 0)
    if not len(failed):
        return 0
    which = f"copy {failed[0]}, as {len(failed)} of {len(failed_at)}," if len(failed_at) > 1 else "the robot"
    warn(f"{which} is not finite after step {failed_at[failed[0]]}, and stays where it was; try a shorter --dt")
    return 1


# ---------------------------------------------------------------------- options
def _positive(text: str) -> float:
    with suppress(ValueError):
        if 0 < (value := float(text)) < math.inf:
            return value
    raise argparse.ArgumentTypeError(f"must be a positive number; got {text!r}")


def _count(text: str) -> int:
    with suppress(ValueError):
        if (value := int(text)) > 0:
            return value
    raise argparse.ArgumentTypeError(f"must be a positive integer; got {text!r}")


def _seed(text: str) -> int:
    with suppress(ValueError):
        if 0 <= (value := int(text)) < 2**32:
            return value
    raise argparse.ArgumentTypeError(f"must be an integer from 0 to 2^32 - 1; got {text!r}")


def _check_files(options: argparse.Namespace) -> None:
    """Raise before work is spent on what cannot be written."""
    for name in ("out", "html", "plot"):
        if (path := getattr(options, name)) is not None:
            require_writable(path, f"--{name}")
    if options.out is not None and options.out.suffix.lower() != ".npz":
        raise ValueError(f"--out {options.out}: the file name must end in .npz")
    if options.plot is not None:
        require_picture(options.plot)


def _saved_rows(options: argparse.Namespace, model: Model) -> int:
    """Return how many states are saved after the first one."""
    if model.nv == 0:
        raise ValueError(f"{options.file} has no degree of freedom: there is nothing to simulate")
    if options.duration / options.dt > MAX_STEPS:
        raise ValueError(
            f"--duration {options.duration:g} takes more than {MAX_STEPS:g} steps of --dt {options.dt:g}; shorten the "
            "one, or lengthen the other"
        )
    steps = round(options.duration / options.dt)
    if steps == 0:
        raise ValueError(f"--duration {options.duration:g} is shorter than one step, --dt {options.dt:g}")
    if steps % options.save_every:
        raise ValueError(f"--save-every {options.save_every} must divide the number of steps, {steps}")
    saved = steps // options.save_every
    size = 8 * saved * options.batch * (model.nq + model.nv)
    if size > MAX_BYTES:
        raise ValueError(
            f"{saved} states of {options.batch} robots take {size / 1e9:.3g} GB, more than {MAX_BYTES / 1e9:.2g}; "
            "use --save-every, or a smaller --batch"
        )
    return saved
