"""Text in columns, numbers in rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows of text under a header, columns aligned; nothing for no rows."""
    if not rows:
        return ""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * w for w in widths], *rows]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def row_of(numbers: np.ndarray) -> str:
    """Return numbers with four digits each."""
    return " ".join(f"{x:.4g}" for x in numbers)
