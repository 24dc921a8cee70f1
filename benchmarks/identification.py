"""Identification of a seven-joint arm: a simulated one from a wrong prior, and a real recording if there is one.

`python -m benchmarks.identification`, or with `--data DIR` for a folder with the text files of a recorded Franka
Panda trajectory (`*time.txt`, `*positions.txt`, `*velocity.txt`, `*torques.txt`, one number per line).
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import dispatch_inline, interleave, prepare

SAMPLES = 1000
NOISE = {0.0: 1e-6, 0.01: 0.018, 0.05: 0.092}
"""Noise as a part of each joint's rms torque, and the error on clean torques that is asked for, Nm."""
REGRESSOR_MS = 9.0
REAL = {"least squares": 0.0980, "LMI/SDP": 0.1027, "entropic Newton": 0.1037, "log-Cholesky": 0.1044}
"""Mean test RMSE of other implementations on the real recording, Nm."""
STARTS, REFITS = 10, 64


def run(data: Path | None = None) -> list[dict[str, Any]]:
    """Measure everything, and print it."""
    found = [*regressor(), *simulated()]
    return found if data is None else found + real(data)


def _say(what: str, ours: float, anchor: float, **more: Any) -> dict[str, Any]:
    ratio = ours / anchor
    extra = "".join(f", {name} {value}" for name, value in more.items())
    print(f"{what}: {ours:.4g}, anchor {anchor:.4g}, ratio {ratio:.3g}{extra}", flush=True)
    return {"what": what, "ours": ours, "anchor": anchor, "ratio": ratio} | more


def regressor() -> list[dict[str, Any]]:
    """Compare the regressor with Pinocchio's: values, time for all samples, rank."""
    import jax
    import pinocchio as pin

    from benchmarks.robots import load_robot
    from jaxdyn.derivatives import joint_torque_regressor
    from jaxdyn.sysid import base_parameters

    robot = load_robot("arm")
    model, other, data = robot.model, robot.pin_model, robot.pin_model.createData()
    q, qd, qdd = np.random.default_rng(0).normal(size=(3, SAMPLES, model.nv))
    batched = jax.jit(jax.vmap(joint_torque_regressor, in_axes=(None, 0, 0, 0)))
    ours = lambda: batched(model, q, qd, qdd).block_until_ready()
    theirs = lambda: np.array([pin.computeJointTorqueRegressor(other, data, *s) for s in zip(q, qd, qdd, strict=True)])
    wanted = theirs()
    difference = float(np.abs(np.asarray(ours()) - wanted).max() / np.abs(wanted).max())
    timing = interleave({"jaxdyn": ours, "Pinocchio": theirs})
    mine, anchor = timing["jaxdyn"].cpu * 1e3, timing["Pinocchio"].cpu * 1e3
    return [
        _say("regressor, relative difference from Pinocchio's", difference, 1e-12),
        _say(f"regressor of {SAMPLES} samples, ms CPU (anchor: the bound)", mine, REGRESSOR_MS),
        _say(f"regressor of {SAMPLES} samples, ms CPU (anchor: Pinocchio in a Python loop)", mine, anchor),
        _say("rank of the base parameters of 70", base_parameters(model).rank, 43),
    ]


def wrong_prior(model: Any, seed: int = 0) -> Any:
    """Return the model with masses and inertias wrong by up to 30 % and centres of mass by up to 3 cm."""
    rng, pi = np.random.default_rng(seed), np.asarray(model.inertia)
    made = []
    for m, *rest in pi:
        c, I = np.array(rest[:3]) / m, np.array(rest[3:])
        Io = np.array([[I[0], I[1], I[3]], [I[1], I[2], I[4]], [I[3], I[4], I[5]]])
        Ic = Io - m * (c @ c * np.eye(3) - np.outer(c, c))
        m2, c2 = m * rng.uniform(0.7, 1.3), c + rng.uniform(-0.03, 0.03, 3)
        scale = rng.uniform(0.7, 1.3, (3, 3))
        Ic = Ic * (scale + scale.T) / 2
        I2 = Ic + m2 * (c2 @ c2 * np.eye(3) - np.outer(c2, c2))
        made.append([m2, *(m2 * c2), I2[0, 0], I2[0, 1], I2[1, 1], I2[0, 2], I2[1, 2], I2[2, 2]])
    return model.replace(inertia=np.array(made))


def motion(seed: int, nv: int, samples: int = SAMPLES) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a Fourier series of five harmonics for 10 s, and its derivatives."""
    rng, t, w = np.random.default_rng(seed), np.linspace(0, 10, samples, endpoint=False)[:, None, None], 2 * np.pi / 10
    k = np.arange(1, 6)
    a, b = rng.normal(size=(2, nv, 5)) * 0.3
    s, c = np.sin(w * k * t), np.cos(w * k * t)
    q = (a * s + b * c).sum(-1)
    return q, (w * k * (a * c - b * s)).sum(-1), (-((w * k) ** 2) * (a * s + b * c)).sum(-1)


def simulated() -> list[dict[str, Any]]:
    """Identify a simulated arm from noisy torques and a wrong prior, and judge by clean torques of another motion."""
    import jax

    import jaxdyn
    from benchmarks.robots import load_robot
    from jaxdyn.sysid import identify

    model = load_robot("arm").model
    torque = jax.jit(jax.vmap(jaxdyn.inverse_dynamics, in_axes=(None, 0, 0, 0)))
    train, test = motion(1, model.nv), motion(2, model.nv)
    clean, wanted = np.asarray(torque(model, *train)), np.asarray(torque(model, *test))
    size = np.sqrt((clean**2).mean(0))
    options: dict[str, Any] = {"friction": "none", "rotor_inertia": False, "offset": False}
    rows = []
    for level, bound in NOISE.items():
        tau = clean + level * size * np.random.default_rng(3).normal(size=clean.shape)
        error = {}
        for method in ("least_squares", "entropic"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                start = time.process_time()
                found = identify(model, *train, tau, prior=wrong_prior(model), method=method, **options)
                seconds = time.process_time() - start
            error[method] = float(np.sqrt(((np.asarray(found.predict(*test)) - wanted) ** 2).mean()))
        rows.append(
            _say(
                f"simulated, noise {level:.0%}: RMSE on another motion, Nm (anchor: the bound)",
                error["entropic"],
                bound,
                least_squares=f"{error['least_squares']:.4g}",
                physical=f"{int((found.margins > 0).sum())} of 7",
                status=found.status,
                cpu_s=f"{seconds:.1f}",
            )
        )
    return rows


def read(folder: Path) -> tuple[np.ndarray, ...]:
    """Return time (samples,), positions, velocities, torques (samples, 7)."""
    files = {name: next(iter(sorted(folder.rglob(f"*{name}.txt"))), None)
             for name in ("time", "positions", "velocity", "torques")}  # fmt: skip
    for name, file in files.items():
        if file is None:
            raise SystemExit(f"--data {folder}: there is no file *{name}.txt")
    t, *rest = (np.loadtxt(str(file)) for file in files.values())
    return t, *(x.reshape(len(t), -1) for x in rest)


def real(folder: Path) -> list[dict[str, Any]]:
    """Identify a real arm: two thirds of a recording to learn from, the last third to judge by."""
    from benchmarks.robots import load_robot
    from jaxdyn.model import from_log_cholesky, log_cholesky
    from jaxdyn.sysid import bootstrap, identify
    from jaxdyn.sysid import prepare as prepare_signals

    model = load_robot("arm").model
    train, test = prepare_signals(model, *read(folder), rate=1000, cutoff=8, order=4, every=10).split(2 / 3)
    rows = []
    fits = {}
    for method, anchor in (
        ("least_squares", "least squares"),
        ("log_cholesky", "log-Cholesky"),
        ("entropic", "entropic Newton"),
    ):
        start = time.process_time()
        found = fits[method] = identify(model, *train[1:], method=method)
        seconds = time.process_time() - start
        miss = test.tau - np.asarray(found.predict(*test[1:4]))
        rows.append(
            _say(
                f"real arm, {method}: mean test RMSE, Nm",
                float(np.sqrt((miss**2).mean(0)).mean()),
                REAL[anchor],
                physical=f"{int((found.margins > 0).sum())} of 7",
                gamma=f"{float(found.regularization):.3g}",
                status=found.status,
                cpu_s=f"{seconds:.1f}",
            )
        )
    found, rng = fits["entropic"], np.random.default_rng(4)
    theta, apart = np.asarray(log_cholesky(model.inertia)), 0.0
    for _ in range(STARTS):
        start = from_log_cholesky(theta + 0.3 * rng.normal(size=theta.shape))
        again = identify(model, *train[1:], regularization=found.regularization, start=start)
        apart = max(apart, float((np.abs(again.parameters - found.parameters) / found.deviation).max()))
    rows.append(_say(f"real arm, {STARTS} random starts: furthest apart, standard deviations", apart, 1e-3))
    begin = time.process_time()
    refits = np.asarray(bootstrap(found, REFITS))
    seconds = time.process_time() - begin
    ratio = float(np.median(refits.std(0) / np.asarray(found.deviation)))
    rows.append(_say(f"real arm, {REFITS} bootstrap refits by vmap: s of CPU, compiling included", seconds, 60.0,
                     spread_over_deviation=f"{ratio:.2f}"))  # fmt: skip
    return rows


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.identification", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of a recorded trajectory")
    options = parser.parse_args()
    prepare()
    dispatch_inline(True)
    run(options.data)


if __name__ == "__main__":
    main()
