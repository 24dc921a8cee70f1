"""A page about an identification: torques, residuals and parameters with intervals, as one file without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from jaxdyn.sysid import Identification, Samples
from jaxdyn.sysid.terms import INERTIAL, dof_names

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 520, 170, 58, 24, 8, 26
MAX_POINTS = 1200
MEASURED, PREDICTED, RESIDUAL, PRIOR = "#a8b3c4", "#c2410c", "#1d4ed8", "#047857"

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1f2328; max-width: 1120px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; } .grid { display: flex; flex-wrap: wrap; gap: 8px; }
figure { margin: 0; } figcaption { font-weight: 600; font-size: .9em; } svg { background: #fff; }
svg text { font: 11px system-ui, sans-serif; fill: #57606a; } table { border-collapse: collapse; font-size: .9em;
  margin-bottom: 1em; }
td, th { padding: 2px 10px; text-align: right; border-bottom: 1px solid #e5e7eb; }
td:first-child, th:first-child { text-align: left; } .key { font-size: .9em; }
.bad { color: #b91c1c; font-weight: 600; }
li { font-size: .85em; font-family: ui-monospace, monospace; }
"""


def write_page(found: Identification, train: Samples, test: Samples, path: Path, *, source: str) -> None:
    """Write the page.

    Args:
        found: what was identified from `train`.
        train: the samples that were learned from.
        test: other samples, for validation.
        path: the file.
        source: name of the recording.
    """
    t = np.concatenate([train.t, test.t])
    measured = np.concatenate([train.tau, test.tau])
    predicted = np.concatenate([np.asarray(found.torque), np.asarray(found.predict(*test[1:4]))])
    border, joints = (test.t[0] if len(test.t) else None), dof_names(found.model)
    torques = [_figure(name, t, [(measured[:, k], MEASURED), (predicted[:, k], PREDICTED)], border)
               for k, name in enumerate(joints)]  # fmt: skip
    residuals = [
        _figure(name, t, [(measured[:, k] - predicted[:, k], RESIDUAL)], border) for k, name in enumerate(joints)
    ]
    key = (f'<p class="key"><span style="color:{MEASURED}">&#9632;</span> measured, '
           f'<span style="color:{PREDICTED}">&#9632;</span> predicted, N m or N over s; '
           "right of the dashed line is validation</p>")  # fmt: skip
    parts = [
        f"<h1>{escape(found.model.name)}, identified from {escape(source)}</h1>",
        f'<p{"" if found.success else " class=bad"}>{escape(found.message)}.</p>',
        _fit(found, train, test, predicted),
        "<h2>Torque, measured and predicted</h2>", key, f'<div class="grid">{"".join(torques)}</div>',
        "<h2>Residuals</h2>", f'<div class="grid">{"".join(residuals)}</div>',
        _identifiability(found), _validation(found), _parameters(found),
    ]  # fmt: skip
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(found.model.name)}</title>'
    path.write_text(f"{head}<style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n", encoding="utf-8")


# ---------------------------------------------------------------------- tables
def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    line = lambda tag, cells: "<tr>" + "".join(f"<{tag}>{escape(c)}</{tag}>" for c in cells) + "</tr>"
    return "<table>" + line("th", header) + "".join(line("td", row) for row in rows) + "</table>"


def _rms(x: Any) -> np.ndarray:
    return np.sqrt((np.asarray(x) ** 2).mean(0)) if len(x) else np.zeros(np.shape(x)[1])


def _fit(found: Identification, train: Samples, test: Samples, predicted: np.ndarray) -> str:
    learned, checked = _rms(found.residual), _rms(test.tau - predicted[len(train.t) :])
    columns = (_rms(train.tau), learned, checked, np.asarray(found.noise))
    rows = [[name, *(f"{x:.4g}" for x in row)] for name, *row in zip(dof_names(found.model), *columns, strict=True)]
    return "<h2>Fit</h2>" + _table(
        ("joint", "torque rms", "error rms, learned", "error rms, validation", "noise"), rows
    )


def _identifiability(found: Identification) -> str:
    if found.base is None or found.base_of_data is None:
        return ""
    values, spread = (np.asarray(x) for x in found.base_values())
    items = "".join(f"<li>{escape(text)} = {x:.5g} &#177; {1.96 * d:.2g}</li>"
                    for text, x, d in zip(found.base.describe(), values, spread, strict=True))  # fmt: skip
    absent = ", ".join(found.base.unidentifiable()) or "none"
    return (
        "<h2>What the data identify</h2>"
        f"<p>Of {len(found.names)} parameters, torques depend on {found.base.rank} combinations, whatever the motion; "
        f"this one excites {found.base_of_data.rank}, with condition number {found.base_of_data.condition:.3g}. "
        f"{found.base.nullspace.shape[1]} directions change no torque. In no torque at all: {escape(absent)}.</p>"
        f"<details><summary>base parameters with 95 % intervals</summary><ul>{items}</ul></details>"
    )


def _validation(found: Identification) -> str:
    cv = found.validation
    if len(cv.error) < 2:
        return ""
    x, y = np.log10(np.asarray(cv.regularization)), np.log10(np.maximum(np.asarray(cv.error), 1e-300))
    mark = np.log10(max(float(found.regularization), 1e-300))
    text = (
        f"The prior weighs {float(found.regularization):.3g} observations. Error on parts left out, over this weight:"
    )
    return f"<h2>Weight of the prior</h2><p>{text}</p>" + _figure(
        "log10 of error over log10 of weight", x, [(y, RESIDUAL)], mark
    )


def _parameters(found: Identification) -> str:
    low, high = (np.asarray(x) for x in found.interval())
    values, informed = np.asarray(found.parameters), np.asarray(found.informed)
    bodies, out = 10 * found.model.nbodies, ["<h2>Parameters with 95 % intervals</h2>"]
    out.append(
        f'<p class="key">Bars are intervals, <span style="color:{PRIOR}">green</span> where the prior says more '
        "than the data. Masses in kg, first moments in kg m, moments about the link's origin in kg m&#178;.</p>"
    )
    masses, physical = np.asarray(found.model.inertia)[:, 0], np.asarray(found.margins)
    margins = [(n, f"{m:.4g}", f"{x:.3g}") for n, m, x in zip(found.model.body_names, masses, physical, strict=True)]
    out.append(_table(("link", "mass, kg", "physical margin (positive: could be built)"), margins))
    pick = lambda names: [k for k in range(bodies) if INERTIAL[k % 10] in names]
    groups = [
        ("masses", pick(INERTIAL[:1])),
        ("first moments", pick(INERTIAL[1:4])),
        ("moments of inertia", pick(INERTIAL[4:])),
    ]
    groups += [(kind, list(range(part.start, part.stop))) for kind in found.terms.kinds
               for part in [found.terms.place(found.model, kind)]]  # fmt: skip
    bars = [
        _bars(title, [found.names[k] for k in at], values[at], low[at], high[at], informed[at]) for title, at in groups
    ]
    return "".join(out) + f'<div class="grid">{"".join(bars)}</div>'


# ---------------------------------------------------------------------- drawings
def _figure(title: str, x: np.ndarray, lines: Sequence[tuple[np.ndarray, str]], border: float | None) -> str:
    """Draw lines over x, the last one on top."""
    chosen = np.unique(np.linspace(0, len(x) - 1, min(len(x), MAX_POINTS)).round().astype(int))
    low, high = _range(np.concatenate([y[chosen] for y, _ in lines]))
    sx = lambda v: LEFT + (v - x.min()) / max(np.ptp(x), 1e-300) * (WIDTH - LEFT - RIGHT)
    sy = lambda v: TOP + (high - v) / (high - low) * (HEIGHT - TOP - BOTTOM)
    body = [_frame(low, high, sy)]
    for v in _ticks(x.min(), x.max()):
        body.append(f'<text x="{sx(v):.0f}" y="{HEIGHT - 8}" text-anchor="middle">{v:.4g}</text>')
    for k, (y, colour) in enumerate(lines):
        width = 1.2 if k == len(lines) - 1 else 4  # what lies beneath is to be seen beside what covers it
        points = " ".join(f"{sx(a):.1f},{sy(b):.1f}" for a, b in zip(x[chosen], y[chosen], strict=True))
        body.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
    if border is not None and x.min() <= border <= x.max():
        body.append(f'<line x1="{sx(border):.1f}" x2="{sx(border):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" '
                    'stroke="#57606a" stroke-dasharray="4 3"/>')  # fmt: skip
    svg = f'<svg width="{WIDTH}" height="{HEIGHT}" role="img">{"".join(body)}</svg>'
    return f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>"


def _bars(title: str, names: Sequence[str], value: Any, low: Any, high: Any, informed: Any) -> str:
    """Draw parameters with their intervals, one row each."""
    row, left = 14, 190
    height = row * len(names) + 24
    shown = np.abs(value).max(initial=0) * 1.5 + 1e-12
    a, b = _range(np.clip(np.concatenate([value, low, high, [0.0]]), -3 * shown, 3 * shown))
    sx = lambda v: left + (np.clip(v, a, b) - a) / (b - a) * (WIDTH - left - RIGHT)
    out = [f'<line x1="{sx(0):.1f}" x2="{sx(0):.1f}" y1="0" y2="{height - 20}" stroke="#d0d7de"/>']
    for k, name in enumerate(names):
        y, colour = row * k + 8, RESIDUAL if informed[k] > 0.5 else PRIOR
        ends = f'x1="{sx(low[k]):.1f}" x2="{sx(high[k]):.1f}" y1="{y}" y2="{y}"'
        out.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        out.append(f'<line {ends} stroke="{colour}" stroke-width="3" opacity=".45"/>')
        out.append(f'<circle cx="{sx(value[k]):.1f}" cy="{y}" r="3" fill="{colour}"/>')
    out += [f'<text x="{sx(v):.0f}" y="{height - 5}" text-anchor="middle">{v:.3g}</text>' for v in _ticks(a, b)]
    svg = f'<svg width="{WIDTH}" height="{height}" role="img">{"".join(out)}</svg>'
    return f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>"


def _range(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    pad = 0.05 * (high - low) or max(abs(high), 1e-9)
    return low - pad, high + pad


def _ticks(low: float, high: float) -> np.ndarray:
    """Return a few round numbers between two others."""
    rough = max(high - low, 1e-300) / 6
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * next(k for k in (1, 2, 5, 10) if k * power >= rough * (1 - 1e-9))
    count = np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1)
    return step * count + 0.0


def _frame(low: float, high: float, sy: Any) -> str:
    lines = ""
    for v in _ticks(low, high):
        lines += f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{sy(v):.1f}" y2="{sy(v):.1f}" stroke="#e5e7eb"/>'
        lines += f'<text x="{LEFT - 5}" y="{sy(v) + 4:.1f}" text-anchor="end">{v:.3g}</text>'
    box = f'width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}"'
    return f'{lines}<rect x="{LEFT}" y="{TOP}" {box} fill="none" stroke="#d0d7de"/>'
