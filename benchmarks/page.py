"""Make docs/benchmarks.md from results/benchmarks.json: `python benchmarks/page.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepnet.timing.harness import Spread

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "benchmarks.md", ROOT / "results" / "benchmarks.json"
OPENING = """\
# Benchmarks

Made by `python benchmarks/page.py` from `results/benchmarks.json`, which the commands below write. Every figure is a
ratio of two variants that ran interleaved in one process: the median, with quartiles. The *null twin* is the baseline
against itself; a ratio inside its spread is no difference. `stepnet bench` measures the quick set on your machine.
"""


def page() -> str:
    """One table for each benchmark, with the command and the machine."""
    lines = [OPENING]
    for title, found in json.loads(RESULTS.read_text()).items():
        machine = found["machine"]
        lines += [f"## {title[0].upper()}{title[1:]}", ""]
        lines += [f"`{found['command']}`, {found['measured']}; {machine['processor']}, {machine['cpus']} cores, "]
        lines[-1] += f"{machine['threads']} thread, load average {machine['load_average']:g}."
        lines += ["", "| what | measured | null twin | reach |", "| --- | --- | --- | --- |"]
        for row in found["rows"]:
            lines += [f"| {row['what']} | {_shown(row)} | {_spread(row['null'])} | {row['reach']} |"]
        lines += [""]
    return "\n".join(lines)


def _shown(row: dict[str, Any]) -> str:
    return " ".join(filter(None, [_spread(row["value"]), "" if row["unit"] == "x" else row["unit"], row["note"]]))


def _spread(value: dict[str, float] | None) -> str:
    return "" if value is None else str(Spread(**value))


if __name__ == "__main__":
    PAGE.write_text(page())
