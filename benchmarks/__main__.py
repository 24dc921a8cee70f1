"""Run the benchmarks: `python -m benchmarks --short`, or without it everything."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.measure import dispatch_inline, machine, prepare

PARTS = (
    "dynamics", "large_batch", "latency", "compile", "cost_per_link", "derivatives", "operators",
    "diagonal", "crossover", "accuracy", "parallel", "rollouts", "gpu",
    "trajopt", "identification",
)  # fmt: skip
SHORT_PARTS = PARTS[:6]


def main() -> None:
    """Measure, print the report and write the JSON."""
    options = _options()
    if importlib.util.find_spec("pinocchio") is None:
        raise SystemExit("all ratios are to Pinocchio, which is not installed: pip install pin, or -e '.[bench]'")
    core = prepare(options.core)  # before anything imports JAX
    dispatch_inline(options.dispatch == "inline")
    warnings.filterwarnings("ignore", module="brax|frax|mujoco")

    from benchmarks import report
    from benchmarks.contenders.base import PEER_OPTIONS

    if options.peers_as_they_come:
        PEER_OPTIONS.clear()
    start = time.perf_counter()
    results: dict[str, Any] = {"machine": machine(core, options.dispatch), "form": "short" if options.short else "long"}
    results["peers compiled with"] = PEER_OPTIONS or "XLA's defaults"
    report.say(f"core {core} of {results['machine']['cpu']}; CPU time per evaluation, ratios to Pinocchio")
    path = options.output or report.RESULTS / f"{results['form']}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    for part in options.only:
        results[part] = _run(part, options)
        results |= {"wall_s": time.perf_counter() - start, "cpu_s": time.process_time()}
        report.write_json(results, path)
    print(f"\n{report.markdown(results)}")
    report.say(f"{results['wall_s']:.0f} s ({results['cpu_s']:.0f} s of CPU); all figures are in {path}")


def _run(part: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run one part in its short or its long form; what it needs is imported only then."""
    short, rounds = options.short, options.rounds
    if part == "dynamics":
        from benchmarks import dynamics

        cases = dynamics.short_cases() if short else dynamics.all_cases()
        return dynamics.run(_chosen(cases, options), rounds)
    if part == "latency":
        from benchmarks import latency

        return latency.run(("float64",) if short else ("float64", "float32"), rounds)
    if part == "compile":
        from benchmarks import compile_time

        return compile_time.run(*((compile_time.SHORT_ROBOTS, 1) if short else (compile_time.ROBOTS, 3)))
    if part == "derivatives":
        from benchmarks import derivatives

        robots = [name for name in derivatives.ROBOTS if name in (options.robots or derivatives.ROBOTS)]
        return derivatives.run(robots, short, rounds)
    if part == "operators":
        from benchmarks import operators

        sizes = operators.SHORT_ROBOTS, operators.SHORT_LINKS
        return operators.run(*(sizes if short else (operators.ROBOTS, operators.LINKS)), rounds)
    if part == "diagonal":
        from benchmarks import diagonal

        sizes = diagonal.SHORT_ROBOTS, diagonal.SHORT_LINKS
        return diagonal.run(*(sizes if short else (diagonal.ROBOTS, diagonal.LINKS)), rounds)
    if part == "accuracy":
        from benchmarks import accuracy

        return accuracy.run()
    if part == "parallel":
        from benchmarks import parallel

        return parallel.run(parallel.SHORT_LINKS if short else parallel.LINKS, ("float64", "float32"), rounds)
    if part == "rollouts":
        from benchmarks import rollouts

        return rollouts.run(short, rounds)
    if part == "gpu":
        from benchmarks import gpu

        return gpu.run()
    if part == "trajopt":
        from benchmarks import trajopt

        return trajopt.run(trajopt.SHORT_STARTS if short else trajopt.STARTS, rounds, options.crocoddyl)
    if part == "identification":
        from benchmarks import identification

        return identification.run()
    from benchmarks import scaling

    if part == "large_batch":
        return scaling.large_batch(scaling.LARGE_ROBOTS, rounds)
    if part == "cost_per_link":
        return scaling.cost_per_link(scaling.SHORT_LINKS if short else scaling.LINKS, rounds)
    return scaling.crossover(scaling.CROSSOVER_BATCHES, ("float64", "float32"), rounds)


def _chosen(cases: list[Any], options: argparse.Namespace) -> list[Any]:
    """Leave out the cases and contenders that were not asked for; Pinocchio stays."""
    kept = []
    for case in cases:
        if options.robots and case.robot not in options.robots:
            continue
        names = tuple(n for n in case.contenders if n == "Pinocchio" or n in (options.contenders or case.contenders))
        kept.append(dataclasses.replace(case, contenders=names))
    return kept


def _options() -> argparse.Namespace:
    words = lambda text: tuple(text.split(","))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--short", action="store_true", help="what fits in ten minutes")
    parser.add_argument("--only", type=words, help=f"parts, separated by commas: {', '.join(PARTS)}")
    parser.add_argument("--robots", type=words, help="of dynamics and derivatives: arm,anymal,talos,chain7,...")
    parser.add_argument("--contenders", type=words, help="of the table: jaxdyn,MuJoCo,MJX,Brax,frax")
    parser.add_argument("--rounds", type=int, default=9, help="samples of which the median is taken (9)")
    parser.add_argument("--core", type=int, help="to run on; by default the first allowed")
    parser.add_argument(
        "--dispatch",
        choices=("inline", "async"),
        default="inline",
        help="of JAX's calls: in the calling thread, or not",
    )
    parser.add_argument(
        "--peers-as-they-come",
        action="store_true",
        help="compile JAX peers with XLA's defaults, as their users do; MJX then takes minutes to compile",
    )
    parser.add_argument("--crocoddyl", metavar="PYTHON", help="of an environment with Crocoddyl, beside trajopt")
    parser.add_argument("--output", type=Path, help="the JSON file; by default in benchmarks/results")
    options = parser.parse_args()
    options.only = options.only or (SHORT_PARTS if options.short else PARTS)
    for part in options.only:
        if part not in PARTS:
            parser.error(f"no part {part!r}; there are {', '.join(PARTS)}")
    return options


if __name__ == "__main__":
    main()
