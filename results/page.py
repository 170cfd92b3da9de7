"""Make the second part of docs/results.md from the files beside this one: `python results/page.py`.

The first part, the protocol, is written by hand before the runs; what stands below the line `MEASURED` is made anew.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

from experiments import EXPERIMENTS, HERE, Experiment, Network

from stepnet.training.paired import PairedDifferences

PAGE = HERE.parent / "docs" / "results.md"
MEASURED = "<!-- Below this line: made by `python results/page.py`. -->"


def section(experiment: Experiment) -> list[str]:
    """Its table and a verdict for each network, or a line that says it was not run to its end."""
    paths = [HERE / file for file in experiment.files]
    runs = [run for path in paths if path.exists() for run in json.loads(path.read_text())["runs"]]
    lines = ["", f"### {experiment.number}: {experiment.title}", "", f"Claim: {experiment.claim}", ""]
    plain = experiment.first.runs(runs)
    pairs = {other: other.runs(runs) for other in experiment.others}
    if not any(plain.keys() & found.keys() for found in pairs.values()):
        return [*lines, "**Not measured yet**: no pair of runs is finished."]
    lines += ["| network | runs | test error (%) | minus the first, paired (95 %) | smaller / larger | test loss |"]
    lines += ["| --- | --- | --- | --- | --- | --- |", _row(experiment.first, plain, None)]
    verdicts, clear = [], []
    for other, found in pairs.items():
        if found:
            gaps = _differences(found, plain, "test_error")
            lines.append(_row(other, found, plain))
            if abs(gaps.mean) > gaps.half_width_among(len(experiment.others)):
                clear.append(f"`{other.label}`")
            verdicts.append(
                f"`{other.label}`: **{verdict(gaps, experiment.effect)}**; difference in points of error {gaps}"
                + (", one pair, which has no interval." if len(gaps) < 2 else ".")
            )
    one = next(iter(plain.values()))
    if len(experiment.others) > 1:  # one interval in twenty excludes 0 by chance
        told = f"{' and '.join(clear)} still has an interval" if clear else "no interval is left"
        verdicts.append(
            f"- With Bonferroni's correction for {len(experiment.others)} comparisons {told} that excludes 0."
        )
    lines += ["", *verdicts, ""]
    for other, found in pairs.items():
        lines += _coefficients(other, found)
    source = ", ".join(f"[results/{path.name}](../results/{path.name})" for path in paths if path.exists())
    lines += [f"Command: `{experiment.command}`. {experiment.remark}".rstrip(), ""]
    used = [run for side in (plain, *pairs.values()) for run in side.values()]
    revisions = ", ".join(f"`{revision}`" for revision in dict.fromkeys(run["revision"] for run in used))
    lines += [f"Data: {source}; revision {revisions}, {one['machine']}."]
    return lines


def verdict(gaps: PairedDifferences, effect: float | None) -> str:
    """`holds` if the interval lies below 0; `does not hold` if it excludes the paper's effect, or any gain at all."""
    if len(gaps) < 2:
        return "cannot be told"
    low, high = gaps.mean - gaps.half_width, gaps.mean + gaps.half_width
    if high < 0:
        return "holds"
    return "does not hold" if low > (effect or 0) else "cannot be told"


def _row(network: Network, runs: dict[int, dict[str, Any]], plain: dict[int, dict[str, Any]] | None) -> str:
    errors, losses = ([run[name] for run in runs.values()] for name in ("test_error", "test_loss"))
    cells = [f"`{network.label}`", str(len(runs)), _mean(errors), "", "", f"{statistics.fmean(losses):.4f}"]
    if plain is not None:
        gaps = _differences(runs, plain, "test_error")
        cells[3:5] = [str(gaps), " / ".join(map(str, gaps.signs))]
        loss = _differences(runs, plain, "test_loss")
        interval = f" ± {loss.half_width:.4f}" if len(loss) > 1 else ""
        cells[5] += f" ({loss.mean:+.4f}{interval})"
    return f"| {' | '.join(cells)} |"


def _differences(one: dict[int, dict[str, Any]], other: dict[int, dict[str, Any]], figure: str) -> PairedDifferences:
    return PairedDifferences.of(*({seed: run[figure] for seed, run in side.items()} for side in (one, other)))


def _coefficients(network: Network, runs: dict[int, dict[str, Any]]) -> list[str]:
    """The learned k of each layer: mean and standard deviation over the seeds."""
    layers: dict[str, list[float]] = {}
    for run in runs.values():
        for layer, k in run["k"].items():
            layers.setdefault(layer, []).append(k)
    if not layers:
        return []
    shown = ", ".join(f"`{layer}` {_mean(ks)}" for layer, ks in layers.items())
    return [f"Learned k of `{network.label}`: {shown}.", ""]


def _mean(values: list[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{deviation}"


def page() -> str:
    """The whole page: the protocol as it stands, and what was measured."""
    protocol = PAGE.read_text().partition(MEASURED)[0].rstrip()
    sections = [line for experiment in EXPERIMENTS.values() for line in section(experiment)]
    return "\n".join([protocol, "", MEASURED, "", "## Measured", *sections]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
