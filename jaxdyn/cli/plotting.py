"""Pictures of runs, drawn by matplotlib (the extra `plot`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jaxdyn.model import Model

MAX_ROWS, MAX_COPIES, MAX_NAMES = 2000, 64, 14


def new_figure() -> Any:
    """Return an empty figure, or raise an ImportError that says what to install."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("plots need matplotlib, the extra 'plot': pip install 'jaxdyn[plot]'") from None
    return Figure(layout="constrained")


def require_picture(path: Path) -> None:
    """Raise an ImportError or a ValueError unless a picture can be drawn into such a file."""
    known = new_figure().canvas.get_supported_filetypes()
    if path.suffix.lower().removeprefix(".") not in known:
        raise ValueError(f"--plot {path}: unknown kind of picture {path.suffix!r}; wanted one of {', '.join(known)}")


def plot_run(model: Model, t: Any, q: Any, qd: Any, energy: Any, path: Path) -> None:
    """Draw coordinates, velocities and energy over time.

    Args:
        model: the model.
        t: (rows,) time, s.
        q: (rows, nq), or (copies, rows, nq): the first copy is drawn in full, the others behind it, thin.
        qd: (rows, nv), or (copies, rows, nv).
        energy: (rows,), or (copies, rows), J.
        path: the picture to write.
    """
    chosen = np.unique(np.linspace(0, len(t) - 1, min(len(t), MAX_ROWS)).round().astype(int))
    t = np.asarray(t)[chosen]
    q, qd = (np.asarray(x).reshape(-1, len(x[0]) if np.ndim(x) == 3 else len(x), np.shape(x)[-1]) for x in (q, qd))
    energy = np.asarray(energy).reshape(len(q), -1, 1)
    figure = new_figure()
    figure.set_size_inches(9, 8)
    panels = figure.subplots(3, 1, sharex=True)
    pieces = (
        ("coordinates\nrad, m", q, _names(model, "q")),
        ("velocities\nrad/s, m/s", qd, _names(model, "qd")),
        ("energy, kinetic\nand potential, J", energy, ["energy"]),
    )
    for axes, (label, values, names) in zip(panels, pieces, strict=True):
        for k, name in enumerate(names):
            colour = f"C{k % 10}"
            if len(values) > 1:
                axes.plot(t, values[1:MAX_COPIES, chosen, k].T, color=colour, linewidth=0.5, alpha=0.25)
            axes.plot(t, values[0, chosen, k], color=colour, linewidth=1.5, label=name)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        if values is not energy and len(names) <= MAX_NAMES:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small", frameon=False)
    copies = f", {len(q)} copies" if len(q) > 1 else ""
    panels[0].set_title(f"{model.name}{copies}")
    panels[-1].set_xlabel("time, s")
    figure.savefig(path, dpi=120)


def _names(model: Model, of: str) -> list[str]:
    """Return a name for each number of q or qd: the joint's, with an index if it has several."""
    names = []
    for joint in model.joint_names:
        part = model.q_slice(joint) if of == "q" else model.qd_slice(joint)
        count = part.stop - part.start
        names += [joint] if count == 1 else [f"{joint}[{k}]" for k in range(count)]
    return names
