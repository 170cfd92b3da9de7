"""The display of a run in a notebook: a progress bar, and a finished run with its metrics and curves."""

from __future__ import annotations

import html
import importlib
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from stepnet.training.tasks import TaskRecord

SECONDS_BETWEEN_UPDATES = 0.5  # each one is a message to the browser
WIDTH, HEIGHT = 420, 130  # of the curves, in pixels
COLOURS = ("#777777", "#0072b2")  # training, test: legible on light and dark pages


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, where output may be HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")


def duration(seconds: float) -> str:
    """Format a duration: `40 s`, `12 min`, `3.5 h`, `2.1 days`."""
    for size, name, digits in ((86400, "days", 1), (3600, "h", 1), (60, "min", 0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.{digits}f} {name}"
    return f"{seconds:.0f} s"


class NotebookBar:
    """A progress bar in HTML, updated during the run."""

    def __init__(self) -> None:
        display = importlib.import_module("IPython.display").display  # installed, since this is its kernel
        self.handle: Any = display({"text/plain": ""}, raw=True, display_id=True)
        self.updated_at = -math.inf

    def update(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Show a text, and the progress if it is known."""
        now = time.monotonic()
        if done is not None and now - self.updated_at < SECONDS_BETWEEN_UPDATES:
            return
        self.updated_at = now
        place = "" if done is None else f' value="{done}" max="{total}"'
        bar = f'<progress{place} style="width: 14em"></progress>'
        shown = f"<label>{bar} <code>{html.escape(text)}</code></label>"
        self.handle.update({"text/html": shown, "text/plain": text}, raw=True)

    def print(self, text: str) -> None:
        """Write a line below."""
        print(text, flush=True)

    def close(self) -> None:
        """Remove the bar from the page."""
        self.handle.update({"text/html": "", "text/plain": ""}, raw=True)


def run_as_html(title: str, about: str, lines: Sequence[Mapping[str, Any]], epochs: int, task: TaskRecord) -> str:
    """Return a run as HTML: title, the metrics of its last epoch, and its curves."""
    parts = [f"<strong>{html.escape(title)}</strong><br>{html.escape(about)}"]
    if not lines:
        return f"<div>{parts[0]}<br>no finished epoch of {epochs}</div>"
    metric, last = task.metric, lines[-1]
    scores, best = [float(line[f"test_{metric.name}"]) for line in lines], task.best_epoch(lines)
    cells = {"epoch": f"{last['epoch'] + 1} of {epochs}", "loss": f"{last['loss']:.4f}"}
    cells |= {"test loss": f"{last['test_loss']:.4f}"}
    for each in task.metrics:
        for prefix, words in (("", ""), ("val_", "validation "), ("test_", "test ")):
            if f"{prefix}{each.name}" in last:
                cells[f"{words}{each}"] = each.show(last[f"{prefix}{each.name}"])
    cells[f"best test {metric}"] = f"{metric.show(scores[best])} (epoch {lines[best]['epoch'] + 1})"
    for tag, row in (("th", cells.keys()), ("td", cells.values())):
        parts.append("<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>")
    curves = {"training": [float(line.get(metric.name, math.nan)) for line in lines], "test": scores}
    drawn = curves_as_svg(curves, f"{metric}{f' in {metric.unit}' if metric.unit else ''} by epoch")
    return f"<div>{parts[0]}<table>{''.join(parts[1:])}</table>{drawn}</div>"


def curves_as_svg(curves: Mapping[str, Sequence[float]], title: str) -> str:
    """Plot curves over the epochs as SVG, without a plotting library."""
    known = {name: [(n, y) for n, y in enumerate(ys) if math.isfinite(y)] for name, ys in curves.items()}
    points = [point for curve in known.values() for point in curve]
    count = max((n for n, _ in points), default=0)
    if not count:  # a single epoch makes no curve
        return ""
    low, high = min(y for _, y in points), max(y for _, y in points)
    left, right, top, bottom = 50, WIDTH - 70, 20, HEIGHT - 20
    inside = f'<text x="{left}" y="12">{html.escape(title)}</text>'
    for y, value in ((top, high), (bottom, low)):
        inside += f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{value:.4g}</text>'
        inside += f'<line x1="{left}" x2="{right}" y1="{y}" y2="{y}" stroke="currentColor" opacity="0.2"/>'
    inside += f'<text x="{left}" y="{HEIGHT - 4}">1</text>'
    inside += f'<text x="{right}" y="{HEIGHT - 4}" text-anchor="end">{count + 1}</text>'
    for place, (name, colour) in enumerate(zip(known, COLOURS, strict=True)):
        path = " ".join(
            f"{left + n / count * (right - left):.1f},{bottom - (y - low) / ((high - low) or 1) * (bottom - top):.1f}"
            for n, y in known[name]
        )
        inside += f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        inside += f'<text x="{right + 6}" y="{top + 14 * (place + 1)}" fill="{colour}">{name}</text>'
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    style = 'style="max-width: 100%; font: 11px sans-serif" fill="currentColor"'
    return f'<svg role="img" aria-label="{html.escape(title)}" {size} {style}>{inside}</svg>'
