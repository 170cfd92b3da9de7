"""Make docs/benchmarks.md, and the picture in it, from results/benchmarks.json: `python benchmarks/page.py`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from stepnet.commands.columns import markdown_table
from stepnet.timing.harness import Spread

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "benchmarks.md", ROOT / "results" / "benchmarks.json"
PICTURE = ROOT / "docs" / "figures" / "memory.svg"
PEAK = re.compile(r"peak memory, (.+), depth (\d+)")
OPENING = """\
# Benchmarks

This page shows what a scheme, a conversion or a memory mode costs in time and memory, against the same network
without it and against other libraries. In short:

SUMMARY

Made by `python benchmarks/page.py` from `results/benchmarks.json`, which the commands below write; `python
benchmarks/all.py` runs them all. A figure without a unit is a ratio of two variants that took turns: the median, with
quartiles. The *A/A control* is the baseline against itself, or against a copy of it; a ratio inside its spread is no
difference. *Target* is the target that was set before measuring; **bold** marks a median that misses it, before
rounding. With one thread time is processor time. `stepnet bench` measures the quick set on your machine.
"""
SHOWN = """\
![Peak memory of a training step against depth: stored and recomputed activations, LM and RevNet run backwards, \
memcnn, momentumnet and torch's checkpointing](figures/memory.svg)
"""


def page() -> str:
    """Return the page: one table for each benchmark, with the command and the machine."""
    sections = read_sections()
    lines = [OPENING.replace("SUMMARY", "\n".join(summary(sections)))]
    for title, section in sections.items():
        machine = section["machine"]
        threads = f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}"
        load = section.get("load_before", machine["load_average"])
        lines += [f"## {title[0].upper()}{title[1:]}", ""]
        lines += [f"`{section['command']}`, {section['measured']}; {machine['processor']}, {machine['cpus']} cores, "]
        took = f", {section['seconds']} s" if "seconds" in section else ""
        lines[-1] += f"{threads}, load average {load:.3g}{took}."
        lines += ["", *([SHOWN] if peaks(section) else [])]
        rows = [[row["what"], _shown(row), _spread(row["control"]), row["target"]] for row in section["rows"]]
        lines += [*markdown_table(("what", "measured", "A/A control", "target"), rows), ""]
    return "\n".join(lines)


def summary(sections: dict[str, Any]) -> list[str]:
    """Return five lines with the main results."""
    rows = [row for section in sections.values() for row in section["rows"]]
    medians = {row["what"]: row["value"]["median"] for row in rows}

    def span(start: str, end: str = "") -> str:
        chosen = sorted(median for what, median in medians.items() if what.startswith(start) and what.endswith(end))
        return f"{chosen[0]:.2f} to {chosen[-1]:.2f}"

    aimed = [misses(row["value"]["median"], row["target"]) for row in rows if row["target"]]
    modes = ("stored", "recompute", "reversible (LM)")
    stored, again, back = (f"{medians[f'peak memory, {mode}, depth 1202']:.0f}" for mode in modes)
    depth = medians["training step, stochastic depth p_L = 0.5 / plain, resnet56, stepnet"]
    lm, converted = span("training step, LM / plain", "eager"), span("training step, converted / original")
    return [
        f"- A training step of LM takes {lm} times as long as the plain network's.",
        f"- A converted network of timm takes {converted} times as long as the original.",
        f"- Stochastic depth takes {depth:.2f} times as long as the plain network: dropped blocks are not computed.",
        f"- At depth 1202 a step keeps {stored} MiB, {again} if it recomputes, {back} if LM runs backwards.",
        f"- {len(aimed) - sum(aimed)} of {len(aimed)} targets are met; the tables say which are missed.",
    ]


def read_sections() -> dict[str, Any]:
    """Return the measurements by the title of their set."""
    sections: dict[str, Any] = json.loads(RESULTS.read_text())
    return sections


def peaks(section: dict[str, Any]) -> dict[str, dict[int, float]]:
    """Return the peak memory in MiB by library and depth, of the set with depth 1202."""
    by_library: dict[str, dict[int, float]] = {}
    for row in section["rows"]:
        if match := PEAK.fullmatch(row["what"]):
            by_library.setdefault(match[1], {})[int(match[2])] = row["value"]["median"]
    return by_library if any(1202 in values for values in by_library.values()) else {}


def draw(contestants: dict[str, dict[int, float]]) -> None:
    """Plot peak memory against depth for all libraries."""
    import matplotlib

    from stepnet.report.figures import Picture, legend_above, paper_style, rc_styles, write_figure

    with paper_style(2), matplotlib.rc_context({"svg.hashsalt": "memory"}):
        picture = Picture()
        axes = picture.subplots()
        for (name, values), style in zip(contestants.items(), rc_styles(), strict=False):
            axes.loglog(values.keys(), values.values(), label=name, **style)
        depths = sorted({depth for values in contestants.values() for depth in values})
        axes.set_xticks(depths, [str(depth) for depth in depths])
        axes.minorticks_off()
        axes.set_xlabel("depth")
        axes.set_ylabel("peak, MiB")
        legend_above(picture, axes.get_legend_handles_labels()[0])
        write_figure(picture, PICTURE)


def _shown(row: dict[str, Any]) -> str:
    median, *quartiles = _spread(row["value"]).split(" ", 1)
    figure = f"**{median}**" if misses(row["value"]["median"], row["target"]) else median
    return " ".join(filter(None, [figure, *quartiles, "" if row["unit"] == "x" else row["unit"], row["note"]]))


def misses(median: float, target: str) -> bool:
    """Whether a median misses its target, such as "≤ 1.05", "≥ 1.3" or "≤ 0.3 s"."""
    if not target:
        return False
    sign, figure, *_ = target.split()
    return median > float(figure) if sign == "≤" else median < float(figure)


def _spread(value: dict[str, float] | None) -> str:
    return "" if value is None else str(Spread(**value))


if __name__ == "__main__":
    PAGE.write_text(page())
    for section in read_sections().values():
        if contestants := peaks(section):
            draw(contestants)
