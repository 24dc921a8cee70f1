"""What the runs say: progress, Markdown tables, the figures that are asked for, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Rows = Sequence[Mapping[str, Any]]

RESULTS = Path(__file__).parent / "results"
CONTENDERS = ("jaxdyn", "MuJoCo", "MJX", "Brax", "frax")
MAIN_ROBOTS = ("arm", "anymal", "talos")


def say(line: str) -> None:
    """Show progress at once."""
    print(line, flush=True)


def write_json(results: Mapping[str, Any], path: Path) -> None:
    """Write everything that was measured; numbers that are not finite become null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_finite(results), indent=1) + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(x) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(x) for x in value]
    if isinstance(value, float) and abs(value) == float("inf"):
        return None
    return value


def markdown(results: Mapping[str, Any]) -> str:
    """Return the report: where, the table of ratios, the figures."""
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    parts = [f"One core of {machine['cpu']}, {machine['system']}, Python {machine['python']}; {versions}."]
    if results.get("dynamics"):
        parts.append(ratio_table(results["dynamics"], batch=1024))
    if results.get("derivatives"):
        parts.append(derivative_table(results["derivatives"]))
    figures = list(_figures(results))
    if figures:
        parts.append(_table(("measure", "figure"), figures))
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------------- the table of ratios
def ratio_table(rows: Rows, batch: int) -> str:
    """Return CPU time per evaluation as a ratio to Pinocchio's: float64 / float32, below 1 is faster."""
    chosen = [row for row in rows if row["batch"] == batch]
    names = [name for name in CONTENDERS if any(row["contender"] == name for row in chosen)]
    lines = []
    for quantity, robot in dict.fromkeys((row["quantity"], row["robot"]) for row in chosen):
        base = find(chosen, quantity=quantity, robot=robot, contender="Pinocchio", precision="float64")
        microseconds = f"{base['cpu_us']:.2f} µs" if base and "cpu_us" in base else "-"
        cells = [_cell(chosen, quantity, robot, name) for name in names]
        lines.append((f"{quantity} {robot}", microseconds, *cells))
    head = (f"B = {batch}", "Pinocchio", *names)
    return _table(head, sorted(lines, key=lambda line: ("FD", "ID", "CRBA", "Minv").index(line[0].split()[0])))


def _cell(rows: Rows, quantity: str, robot: str, name: str) -> str:
    texts = []
    for precision in ("float64", "float32"):
        row = find(rows, quantity=quantity, robot=robot, contender=name, precision=precision)
        if row is not None:
            texts.append(_ratio_or_status(row))
    return " / ".join(texts) or "-"


def _ratio_or_status(row: Mapping[str, Any]) -> str:
    return f"{row['ratio']:.2f}" if "ratio" in row else row["status"].split(":")[0]


def derivative_table(rows: Rows) -> str:
    """Return CPU times of derivatives as ratios; below 1 is faster."""
    robots = list(dict.fromkeys(row["robot"] for row in rows))
    lines = []
    for what, to, batch in dict.fromkeys((row["what"], row["to"], row["batch"]) for row in rows):
        found = [find(rows, what=what, to=to, robot=robot) for robot in robots]
        lines.append((what, str(batch), to, *("-" if row is None else _ratio_or_status(row) for row in found)))
    return _table(("derivatives, float64", "B", "ratio to", *robots), lines)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def find(rows: Rows, **wanted: Any) -> Mapping[str, Any] | None:
    """Return the first row with these values."""
    return next((row for row in rows if all(row.get(key) == value for key, value in wanted.items())), None)


# ---------------------------------------------------------------------- the figures
def _figures(results: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the figures that the project promises, as far as they were measured."""
    rows = results.get("dynamics", [])
    yield from _throughput(rows)
    large = results.get("large_batch", [])
    if large:
        values = " / ".join(f"{row['ratio_per_evaluation']:.2f}" for row in large)
        yield f"FD per evaluation, B = 8192 against B = 1024, float64: {_robots(large)}", values
    yield from _latency(results.get("latency", []))
    yield from _compile(rows, results.get("compile", []))
    yield from _compile_derivatives(results.get("derivatives", []))
    links = results.get("cost_per_link", [])
    first, last = (find(links, bodies=n) for n in (8, 512))
    if first and last:
        ratio = last["jaxdyn_us_per_body"] / first["jaxdyn_us_per_body"]
        theirs = last["Pinocchio_us_per_body"] / first["Pinocchio_us_per_body"]
        yield "cost per link, N = 512 against N = 8, float64", f"{ratio:.2f} (Pinocchio {theirs:.2f})"
    yield from _operators(results.get("operators", []))
    yield from _parallel(results.get("parallel", []))
    yield from _papers(results)


def _operators(rows: Rows) -> Iterable[tuple[str, str]]:
    for name in dict.fromkeys(row["expression"] for row in rows):
        beside = [row for row in rows if row["expression"] == name and "ratio" in row]
        if beside:
            values = " / ".join(f"{row['ratio']:.2f}" for row in beside)
            yield f"{name}, ratio to {beside[0]['beside']}: {_robots(beside)}", values
        first, last = (find(rows, expression=name, bodies=n) for n in (8, 512))
        if first and last:
            yield f"{name}, cost per link, N = 512 against N = 8", f"{last['us_per_body'] / first['us_per_body']:.2f}"


def _parallel(rows: Rows) -> Iterable[tuple[str, str]]:
    for quantity, precision in dict.fromkeys((row["quantity"], row["precision"]) for row in rows):
        chosen = [row for row in rows if (row["quantity"], row["precision"]) == (quantity, precision)]
        links = " / ".join(str(row["bodies"]) for row in chosen)
        values = " / ".join(f"{row['ratio']:.2f}" for row in chosen)
        yield f"{quantity} in logarithmic depth, B = 1, {precision}, ratio to sweeps: N = {links}", values


def _throughput(rows: Rows) -> Iterable[tuple[str, str]]:
    for quantity in ("FD", "ID", "CRBA", "Minv"):
        for precision in ("float64", "float32"):
            cell = _of_robots(rows, "ratio", quantity=quantity, batch=1024, precision=precision, contender="jaxdyn")
            if cell:
                yield f"{quantity}, B = 1024, {precision}, ratio to Pinocchio: {_names()}", cell
    key = "ratio_without_python_calls"
    for quantity in ("CRBA", "Minv"):
        cell = _of_robots(rows, key, quantity=quantity, batch=1024, precision="float64", contender="jaxdyn")
        if cell:
            yield f"{quantity}, the same, Pinocchio's Python calls subtracted: {_names()}", cell
    for precision in ("float64", "float32"):
        wanted = {"robot": "talos", "quantity": "FD", "batch": 1024, "precision": precision}
        ours = find(rows, contender="jaxdyn", **wanted)
        peers = [row for name in CONTENDERS[2:] if (row := find(rows, contender=name, **wanted)) and "cpu_us" in row]
        if peers:
            fastest = min(peers, key=lambda row: row["cpu_us"])
            text = f"{fastest['contender']} at {fastest['ratio']:.2f} of Pinocchio"
            if ours and "cpu_us" in ours:
                text += f": jaxdyn is {fastest['cpu_us'] / ours['cpu_us']:.1f} times faster"
            yield f"fastest JAX peer, FD talos, B = 1024, {precision}", text


def _latency(rows: Rows) -> Iterable[tuple[str, str]]:
    for robot, precision in dict.fromkeys((row["robot"], row["precision"]) for row in rows):
        parts = [
            f"{label} {row['ratio']:.1f}"
            for way, label in (
                ("jaxdyn call", "per call"),
                ("jaxdyn call in a jit", "in a jit"),
                ("jaxdyn call in a jit, model closed over", "model closed over"),
                ("JAX adding two vectors", "JAX adding two vectors"),
                ("jaxdyn loop step", "per step in a loop"),
                ("MuJoCo rollout step", "MuJoCo's step"),
            )
            if (row := find(rows, robot=robot, precision=precision, way=way)) and "ratio" in row
        ]
        if parts:
            yield f"FD, B = 1, {robot}, {precision}, ratio to Pinocchio's Python call", ", ".join(parts)


def _compile(table: Rows, rows: Rows) -> Iterable[tuple[str, str]]:
    wanted = {"contender": "jaxdyn", "quantity": "FD", "batch": 1024, "precision": "float64"}
    names = dict.fromkeys(row["robot"] for row in table)
    found = [row for name in names if (row := find(table, robot=name, **wanted)) and row.get("compile_s")]
    seconds = {row["robot"]: row["compile_s"] for row in [*found, *rows]}
    shown: Callable[[Iterable[str]], str] = lambda names: " / ".join(f"{seconds[name]:.1f}" for name in names)
    for group in (MAIN_ROBOTS, ("romeo", "tiago_dual", "tree100")):
        here = [name for name in group if name in seconds]
        if here:
            yield f"compile FD, CPU s: {' / '.join(here)}", shown(here)
    if "chain512" in seconds and "chain7" in seconds:
        yield "compile FD, chain512 against chain7", f"{seconds['chain512'] / seconds['chain7']:.2f}"
    set_aside = {row["robot"]: row["temporaries_bytes"] for row in [*found, *rows]}
    here = [name for name in (*MAIN_ROBOTS, "chain512") if name in set_aside]
    if here:
        values = " / ".join(f"{set_aside[name] / 1e6:.1f}" for name in here)
        yield f"temporaries of FD, B = 1024, float64, MB: {' / '.join(here)}", values


def _compile_derivatives(rows: Rows) -> Iterable[tuple[str, str]]:
    for what in ("VJP of FD", "dFD", "second derivatives of ID", "jax.hessian"):
        key, name = ("to_compile_s", "to") if what == "jax.hessian" else ("compile_s", "what")
        found = [row for robot in MAIN_ROBOTS if (row := find(rows, robot=robot, **{name: what})) and row.get(key)]
        if found:
            label = "jax.hessian of ID" if what == "jax.hessian" else what
            yield f"compile {label}, CPU s: {_robots(found)}", " / ".join(f"{row[key]:.1f}" for row in found)


def _papers(results: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the answers to the papers' own claims."""
    from benchmarks.scaling import wins_from

    rows = results.get("crossover", [])
    for precision, batch in dict.fromkeys((row["precision"], row["batch"]) for row in rows):
        chosen = [row for row in rows if (row["precision"], row["batch"]) == (precision, batch)]
        kinds = dict.fromkeys(row["kind"] for row in chosen)
        rivals = {"ratio": "CRBA + Cholesky"} | ({"ratio_to_matrices": "jaxdyn's matrices"} if batch == 1 else {})
        for key, rival in rivals.items():
            cells = [
                str(wins_from([row for row in chosen if row["kind"] == kind], key) or "never here") for kind in kinds
            ]
            yield f"ABA beats {rival} from N, B = {batch}, {precision}: {' / '.join(kinds)}", " / ".join(cells)
    for row in results.get("accuracy", []):
        label = f"error, {row['family']} {row['value']:g}, {row['precision']} (condition {row['condition']:.0e})"
        yield label, f"ABA {row['aba']:.1e}, CRBA + Cholesky {row['crba']:.1e}"


def _of_robots(rows: Rows, key: str, **wanted: Any) -> str:
    found = [find(rows, robot=robot, **wanted) for robot in MAIN_ROBOTS]
    return " / ".join(f"{row[key]:.2f}" if row and key in row else "-" for row in found) if any(found) else ""


def _robots(rows: Rows) -> str:
    return " / ".join(row["robot"] for row in rows)


def _names() -> str:
    return " / ".join(MAIN_ROBOTS)
