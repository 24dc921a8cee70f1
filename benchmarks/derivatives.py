"""What derivatives cost: as ratios to the function itself, to Pinocchio's derivatives, to automatic differentiation.

All in float64. Before anything is timed it is compared: with Pinocchio's derivatives where it has them, else with the
twin by automatic differentiation, and the gradient of a rollout with differences of its ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin

import jaxdyn
from benchmarks.contenders.base import CHECKED, PEER_OPTIONS
from benchmarks.contenders.of_pinocchio import Pinocchio, loop
from benchmarks.dynamics import relative_error
from benchmarks.measure import compile_function, forget_compiled, interleave
from benchmarks.report import say
from benchmarks.robots import Robot, States, load_robot, random_states
from jaxdyn import derivatives

ROBOTS = ("arm", "anymal", "talos")
STEPS, DT = 100, 1e-3
"""Of the rollout."""
TOLERANCE = 1e-6
"""Of results, relative to the largest number in them."""
EPSILON = 1e-5
"""Half the distance between the ends of a difference."""


@dataclass(frozen=True)
class Entry:
    """Something to time."""

    call: Callable[[], Any]
    """Compute the whole batch, and return when it is there."""
    error: float
    compile_seconds: float | None = None


Entries = dict[str, Callable[[], Entry]]
"""By name, in the order in which they are to be made; nothing is compiled before it is asked for."""


@dataclass(frozen=True)
class Ratio:
    """A line of the table."""

    what: str
    to: str
    short: tuple[str, ...] = ()
    """The robots for which it is in the short form."""


@dataclass(frozen=True)
class Question:
    """Entries that take turns, and how they are compared."""

    batch: int
    entries: Callable[[Robot, int], Entries]
    ratios: tuple[Ratio, ...]


def run(robots: Sequence[str], short: bool, rounds: int) -> list[dict[str, Any]]:
    """Check and time all questions; one row per robot and ratio."""
    rows = []
    for name in robots:
        try:
            robot = load_robot(name)
        except Exception as error:  # of readers and of missing files
            say(f"derivatives {name} skipped: {type(error).__name__}: {error}")
            continue
        for question in QUESTIONS:
            ratios = [ratio for ratio in question.ratios if not short or name in ratio.short]
            if ratios:
                forget_compiled()
                start = time.perf_counter()
                new = _run(question, robot, ratios, rounds)
                rows += new
                say(f"derivatives {name} ({time.perf_counter() - start:.0f} s): {'; '.join(map(_line, new))}")
    return rows


def _run(question: Question, robot: Robot, ratios: Sequence[Ratio], rounds: int) -> list[dict[str, Any]]:
    wanted = {name for ratio in ratios for name in (ratio.what, ratio.to)}
    made: dict[str, Entry] = {}
    why: dict[str, str] = {}
    for name, make in question.entries(robot, question.batch).items():
        if name in wanted:
            try:
                made[name] = make()
            except ImportError as error:
                why[name] = f"skipped: {error}"
            except Exception as error:  # what fails is reported, and the others go on
                why[name] = f"failed: {type(error).__name__}: {str(error)[:200]}"
    why |= {name: f"wrong: error {entry.error:.1e}" for name, entry in made.items() if not entry.error <= TOLERANCE}
    calls = {name: entry.call for name, entry in made.items() if name not in why}
    timings = interleave(calls, rounds=rounds) if calls else {}
    rows = []
    for ratio in ratios:
        row: dict[str, Any] = {"robot": robot.name, "what": ratio.what, "to": ratio.to, "batch": question.batch}
        row["status"] = why.get(ratio.what) or why.get(ratio.to) or "timed"
        for prefix, name in (("", ratio.what), ("to_", ratio.to)):
            if name in made:
                row |= {f"{prefix}error": made[name].error, f"{prefix}compile_s": made[name].compile_seconds}
            if name in timings:
                timing = timings[name]
                row |= {f"{prefix}cpu_us": 1e6 * timing.cpu / question.batch, f"{prefix}spread": timing.spread}
        if ratio.what in timings and ratio.to in timings:
            row["ratio"], row["ratio_wall"] = timings[ratio.what].ratio(timings[ratio.to])
        rows.append(row)
    return rows


def _line(row: Mapping[str, Any]) -> str:
    shown = f"{row['ratio']:.2f}" if "ratio" in row else row["status"]
    return f"{row['what']} / {row['to']} {shown}"


def _entry(
    function: Callable[..., Any], given: Sequence[Any], error: Callable[[Any], float], options: Any = None
) -> Entry:
    """Compile a function of a batch, and compare its result."""
    compiled = compile_function(function, *given, options=options)
    call = lambda: jax.block_until_ready(compiled.function(*given))
    return Entry(call, error(call()), compiled.seconds)


def _largest_error(results: Sequence[Any], truths: Sequence[Any]) -> float:
    return max(relative_error(np.asarray(a)[: len(b)], np.asarray(b)) for a, b in zip(results, truths, strict=True))


def _arrays(*given: np.ndarray) -> tuple[jax.Array, ...]:
    return tuple(jnp.asarray(x) for x in given)


# ---------------------------------------------------------------------- Pinocchio's derivatives
def _slopes(robot: Robot, function: Callable[..., Any], quantity: str, states: States) -> list[np.ndarray]:
    """Return the matrices of the first states, by q, qd and qdd or tau, in our conventions."""
    pinocchio, data = Pinocchio(robot), robot.pin_model.createData()
    arrays, places = pinocchio.theirs(quantity, states.first(CHECKED)), pinocchio.places
    rows = [[np.array(m) for m in function(robot.pin_model, data, *row)] for row in zip(*arrays, strict=True)]
    return [np.stack(matrices)[:, places[:, None], places] for matrices in zip(*rows, strict=True)]


def _regressors(robot: Robot, states: States) -> np.ndarray:
    """Return the torque regressors, (batch, nv, nbodies, 10), in our conventions."""
    pinocchio, model, data = Pinocchio(robot), robot.pin_model, robot.pin_model.createData()
    rows = zip(*pinocchio.theirs("ID", states), strict=True)
    Y = np.stack([np.array(pin.computeJointTorqueRegressor(model, data, *row)) for row in rows])
    Y = Y.reshape((len(Y), model.nv, -1, 10))[:, pinocchio.places]
    joint_of = np.repeat(np.arange(model.njoints), model.nvs)  # of Pinocchio's velocities
    first = [robot.model.qd_slice(name).start for name in robot.model.joint_names]
    return Y[:, :, joint_of[pinocchio.places[first]] - 1]


def _loop_entry(robot: Robot, function: Callable[..., Any], quantity: str, states: States) -> Callable[[], Entry]:
    return lambda: Entry(loop(function, robot.pin_model, Pinocchio(robot).theirs(quantity, states)), 0.0)


# ---------------------------------------------------------------------- the questions
def _products(robot: Robot, batch: int) -> Entries:
    """Make products of derivatives of forward dynamics with vectors."""
    model, states = robot.model, random_states(robot.model, batch)
    q, qd, c, tau = _arrays(*states)  # c is what is multiplied with
    still = jnp.zeros_like(qd)
    batched = jax.vmap(jaxdyn.forward_dynamics, (None, 0, 0, 0))
    by_q, by_qd, by_tau = _slopes(robot, pin.computeABADerivatives, "FD", states)
    some = states.qdd[:CHECKED]
    pulled = [np.einsum("bi,bij->bj", some, slope) for slope in (by_q, by_qd, by_tau)]
    pushed = np.einsum("bij,bj->bi", by_q + by_qd + by_tau, some)
    moved = jax.vmap(lambda q, d: jaxdyn.integrate(model, q, d))

    def vjp(model: jaxdyn.Model, q: Any, qd: Any, tau: Any, c: Any) -> Any:
        return jax.vjp(lambda *state: batched(model, *state), q, qd, tau)[1](c)

    def vjp_with_inertia(model: jaxdyn.Model, q: Any, qd: Any, tau: Any, c: Any) -> Any:
        f = lambda inertia, *state: batched(model.replace(inertia=inertia), *state)
        return jax.vjp(f, model.inertia, q, qd, tau)[1](c)

    def jvp(model: jaxdyn.Model, q: Any, qd: Any, tau: Any, dq: Any, c: Any) -> Any:
        return jax.jvp(lambda *state: batched(model, *state), (q, qd, tau), (dq, c, c))[1]

    def error_of_vjp(result: Any) -> float:
        along = jax.vjp(lambda d: moved(q, d), still)[1](result[0])[0]
        return _largest_error((along, *result[1:]), pulled)

    def error_of_inertia(result: Any) -> float:
        """Compare with - c* Minv Y, summed over the batch."""
        pinocchio = Pinocchio(robot)
        qdd = np.asarray(batched(model, q, qd, tau))
        data, places = robot.pin_model.createData(), pinocchio.places
        Minv = np.stack(
            [np.array(pin.computeMinverse(robot.pin_model, data, x)) for x in pinocchio.theirs("CRBA", states)[0]]
        )
        x = np.einsum("bij,bj->bi", Minv[:, places[:, None], places], states.qdd)
        truth = -np.einsum("bi,binp->np", x, _regressors(robot, states._replace(qdd=qdd)))
        return max(error_of_vjp(result[1:]), relative_error(np.asarray(result[0]), truth))

    given, aba = (model, q, qd, tau), Pinocchio(robot).job("FD", states, np.float64)
    direction = lambda: jax.jvp(lambda d: moved(q, d), (still,), (c,))[1]
    return {
        "Pinocchio's ABA": lambda: Entry(aba.call, 0.0),
        "VJP of FD": lambda: _entry(vjp, (*given, c), error_of_vjp),
        "FD": lambda: _entry(batched, given, lambda x: relative_error(np.asarray(x[:CHECKED]), aba.ours())),
        "VJP of FD, inertias too": lambda: _entry(vjp_with_inertia, (*given, c), error_of_inertia),
        "JVP of FD": lambda: _entry(jvp, (*given, direction(), c), lambda x: relative_error(x[:CHECKED], pushed)),
        "frax's gradient of FD": lambda: _frax_gradient(robot, states, pulled[2]),
    }


def _frax_gradient(robot: Robot, states: States, by_tau: np.ndarray) -> Entry:
    """Return frax's gradient of c . FD by q, qd and tau; the last is compared."""
    from benchmarks.contenders.of_frax import Frax

    frax = Frax(robot)
    q, qd, _, tau = frax.conventions.theirs(states)
    c = frax.conventions.theirs(states._replace(tau=states.qdd)).tau
    value = lambda q, qd, tau, c: c @ frax.robot.forward_dynamics(q, qd, tau, None)
    error = lambda x: relative_error(frax.conventions.ours("ID", states, np.asarray(x[2][:CHECKED])), by_tau)
    return _entry(jax.vmap(jax.grad(value, argnums=(0, 1, 2))), _arrays(q, qd, tau, c), error, PEER_OPTIONS)


def _matrices(robot: Robot, batch: int) -> Entries:
    """Make all derivatives by the state."""
    states = random_states(robot.model, batch)
    q, qd, qdd, tau = _arrays(*states)

    def ours(function: Any, last: jax.Array, theirs: Any, quantity: str) -> Callable[[], Entry]:
        error = lambda x: _largest_error(x, _slopes(robot, theirs, quantity, states))
        return lambda: _entry(jax.vmap(function, (None, 0, 0, 0)), (robot.model, q, qd, last), error)

    dFD, dID = derivatives.forward_dynamics_derivatives, derivatives.inverse_dynamics_derivatives
    return {
        "dFD": ours(dFD, tau, pin.computeABADerivatives, "FD"),
        "dID": ours(dID, qdd, pin.computeRNEADerivatives, "ID"),
        "Pinocchio's dFD": _loop_entry(robot, pin.computeABADerivatives, "FD", states),
        "Pinocchio's dID": _loop_entry(robot, pin.computeRNEADerivatives, "ID", states),
    }


def _sensitivities(robot: Robot, batch: int) -> Entries:
    """Make the derivative of the mass matrix."""
    given = robot.model, *_arrays(random_states(robot.model, batch).q)
    functions = derivatives.mass_matrix_sensitivity, derivatives.mass_matrix_sensitivity_autodiff
    ours, twin = (jax.vmap(f, (None, 0)) for f in functions)
    return _with_twin("dM/dq", ours, "jacfwd of CRBA", twin, given, lambda x: [x])


def _second(robot: Robot, batch: int) -> Entries:
    """Make second derivatives of x . ID; the twin's result is a table of 3 x 3 matrices."""
    states = random_states(robot.model, batch)

    def hessian(model: jaxdyn.Model, q: Any, qd: Any, qdd: Any, x: Any) -> Any:
        value = lambda dq, qd, qdd: x @ jaxdyn.inverse_dynamics(model, jaxdyn.integrate(model, q, dq), qd, qdd)
        return jax.hessian(value, argnums=(0, 1, 2))(jnp.zeros_like(qd), qd, qdd)

    functions = derivatives.inverse_dynamics_second_derivatives, hessian
    ours, twin = (jax.vmap(f, (None, 0, 0, 0, 0)) for f in functions)
    parts = lambda H: [H[0][0], H[0][1], H[1][1], H[0][2]]
    return _with_twin("second derivatives of ID", ours, "jax.hessian", twin, (robot.model, *_arrays(*states)), parts)


def _with_twin(name: str, ours: Any, twin_name: str, twin: Any, given: Any, parts: Callable[[Any], Any]) -> Entries:
    """Return a function and its twin, of which `parts` are what the function returns; the twin is the truth."""
    results: dict[str, Any] = {}

    def first() -> Entry:
        entry = _entry(ours, given, lambda x: 0.0)
        results["ours"] = jax.tree.leaves(entry.call())
        return entry

    def second() -> Entry:
        return _entry(twin, given, lambda x: _largest_error(results["ours"], parts(x)))

    return {name: first, twin_name: second}


def _torque_regressor(robot: Robot, batch: int) -> Entries:
    """Make the regressor of joint torques."""
    states = random_states(robot.model, batch)
    q, qd, qdd, _ = _arrays(*states)
    ours = jax.vmap(derivatives.joint_torque_regressor, (None, 0, 0, 0))
    truth = lambda shape: _regressors(robot, states.first(CHECKED)).reshape((-1, *shape[1:]))
    return {
        "torque regressor": lambda: _entry(
            ours, (robot.model, q, qd, qdd), lambda x: relative_error(np.asarray(x[:CHECKED]), truth(x.shape))
        ),
        "Pinocchio's regressor": _loop_entry(robot, pin.computeJointTorqueRegressor, "ID", states),
    }


def _rollout(robot: Robot, batch: int) -> Entries:
    """Make semi-implicit Euler steps under a constant force, and the gradient of the last velocity's square, halved."""
    model, states = robot.model, random_states(robot.model, batch)
    q, qd, direction, tau = _arrays(*states)

    def last_velocity(remember: bool) -> Callable[..., jax.Array]:
        def one(model: jaxdyn.Model, q: Any, qd: Any, tau: Any) -> jax.Array:
            def step(state: Any, _: None) -> Any:
                q, qd = state
                qd = qd + DT * jaxdyn.forward_dynamics(model, q, qd, tau)
                return (jaxdyn.integrate(model, q, DT * qd), qd), None

            return jax.lax.scan(step if remember else jax.checkpoint(step), (q, qd), length=STEPS)[0][1]

        return jax.vmap(one, (None, 0, 0, 0))

    run = last_velocity(True)

    def gradient(remember: bool) -> Callable[..., Any]:
        value = lambda *args: 0.5 * (last_velocity(remember)(*args) ** 2).sum()
        return jax.grad(value, argnums=(1, 2, 3))

    def error(result: Any) -> float:
        """Compare with the difference of two rollouts that start apart, in every state of the batch."""
        moved = jax.vmap(lambda q, d: jaxdyn.integrate(model, q, d))
        ends = [(moved(q, e * direction), qd + e * direction, tau + e * direction) for e in (EPSILON, -EPSILON)]
        values = [0.5 * (jax.jit(run)(model, *end) ** 2).sum(1) for end in ends]
        slopes = sum(((a - b) * g).sum(1) for a, b, g in zip(*ends, result, strict=True))
        return relative_error(np.asarray(slopes), np.asarray(values[0] - values[1]))

    given = model, q, qd, tau
    return {
        "the steps": lambda: _entry(run, given, lambda x: 0.0),
        f"gradient of {STEPS} steps": lambda: _entry(gradient(True), given, error),
        "the same, jax.checkpoint": lambda: _entry(gradient(False), given, error),
    }


QUESTIONS = (
    Question(
        1024,
        _products,
        (
            Ratio("VJP of FD", "Pinocchio's ABA", ROBOTS),
            Ratio("VJP of FD", "FD", ROBOTS),
            Ratio("VJP of FD, inertias too", "FD", ("arm",)),
            Ratio("JVP of FD", "FD", ("arm",)),
            Ratio("frax's gradient of FD", "VJP of FD", ("arm",)),
        ),
    ),
    Question(
        256,
        _matrices,
        (Ratio("dFD", "Pinocchio's dFD", ("arm",)), Ratio("dID", "Pinocchio's dID", ("arm",))),
    ),
    Question(64, _sensitivities, (Ratio("dM/dq", "jacfwd of CRBA", ("arm",)),)),
    Question(1000, _torque_regressor, (Ratio("torque regressor", "Pinocchio's regressor", ("arm",)),)),
    Question(64, _second, (Ratio("second derivatives of ID", "jax.hessian"),)),
    Question(
        64,
        _rollout,
        (Ratio(f"gradient of {STEPS} steps", "the steps"), Ratio("the same, jax.checkpoint", "the steps")),
    ),
)
