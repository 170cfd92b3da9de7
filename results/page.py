"""Make the second part of docs/results.md from the files beside this one: `python results/page.py`.

The protocol is written by hand before the runs; the summary above it and what stands below the line `MEASURED` are made
again from the data.
"""

from __future__ import annotations

import json
import re
import statistics
from typing import Any

from experiments import EXPERIMENTS, HERE, Experiment, Network

from stepnet.training.histories import PairedDifferences

PAGE = HERE.parent / "docs" / "results.md"
MEASURED = "<!-- Below this line: made by `python results/page.py`. -->"
SUMMARY = "<!-- Summary: made by `python results/page.py`. -->", "<!-- End of the summary. -->"
OPENING = """\
## Measured

Sections come in order of importance, which is the order of the runs. Where the paper has no figure, *does not hold*
means that the interval lies above 0. One older pair of 15 epochs (`results/cifar10.json`) was known when the protocol
was written; it is used nowhere on this page."""
PROTOCOL_ROW = re.compile(r"^\| (\w+) \| ([^|]+) \|", re.MULTILINE)


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
    told = []
    for other, found in pairs.items():
        if found:
            lines.append(_row(other, found, plain))
            gaps = _differences(found, plain, "test_error")
            told.append(f"`{other.label}`: {_told(gaps, experiment.effect, sum(map(bool, pairs.values())))}.")
    lines += ["", *(told if len(told) == 1 else [f"- {line}" for line in told]), ""]
    for one, other in experiment.beside:
        gaps = _differences(one.runs(runs), other.runs(runs), "test_error")
        if gaps:
            lines += [f"`{one.label}` minus `{other.label}` itself: {gaps}.", ""]
    for other, found in pairs.items():
        lines += _coefficients(other, found)
    source = ", ".join(f"`results/{path.name}`" for path in paths if path.exists())
    lines += [f"Command: `{experiment.command}`. {experiment.remark}".rstrip(), ""]
    used = [run for side in (plain, *pairs.values()) for run in side.values()]
    revisions = ", ".join(f"`{revision}`" for revision in dict.fromkeys(run["revision"] for run in used))
    lines += [f"Data: {source}; revision {revisions}, {used[0]['machine']}."]
    return lines


def summary() -> list[str]:
    """A line for each experiment that was measured, with its verdicts, and one for the others."""
    lines, missing = [], []
    for experiment in EXPERIMENTS.values():
        runs = [run for file in experiment.files if (HERE / file).exists() for run in _read(file)]
        plain = experiment.first.runs(runs)
        told = {
            other.label: _differences(found, plain, "test_error")
            for other in experiment.others
            if (found := other.runs(runs)).keys() & plain.keys()
        }
        verdicts = [f"`{label}` {_told(gaps, experiment.effect, len(told))}" for label, gaps in told.items()]
        if verdicts:
            lines.append(f"- {experiment.title[0].upper()}{experiment.title[1:]}: {'; '.join(verdicts)}.")
        else:
            missing.append(experiment.title)
    return [*lines, f"- Not measured yet: {'; '.join(missing)}."] if missing else lines


def _read(file: str) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads((HERE / file).read_text())["runs"]
    return runs


def verdict(gaps: PairedDifferences, effect: float | None, comparisons: int = 1) -> str:
    """`holds` if the interval lies below 0; `does not hold` if it excludes the paper's effect, or any gain at all."""
    if len(gaps) < 2:
        return "inconclusive"
    half = gaps.half_width_among(comparisons)
    if gaps.mean + half < 0:
        return "holds"
    return "does not hold" if gaps.mean - half > (effect or 0) else "inconclusive"


def _told(gaps: PairedDifferences, effect: float | None, comparisons: int) -> str:
    """The verdict by the protocol's rule, and what is left of it: of twenty intervals one excludes 0 by chance."""
    first = verdict(gaps, effect)
    if len(gaps) < 2:
        return f"**{first}**, {gaps}: one pair, which has no interval"
    if comparisons == 1 or first == "inconclusive":
        return f"**{first}**, {gaps}"
    still = "and also" if verdict(gaps, effect, comparisons) == first else "but not"
    return (
        f"**{first}** by the protocol's rule, {gaps}, {still} after Bonferroni's correction for the "
        f"{comparisons} comparisons made here (± {gaps.half_width_among(comparisons):.2f})"
    )


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
    opening, _, rest = PAGE.read_text().partition(SUMMARY[0])
    protocol = rest.partition(SUMMARY[1])[2].partition(MEASURED)[0].strip()
    sections = [line for experiment in EXPERIMENTS.values() for line in section(experiment)]
    for number, title in PROTOCOL_ROW.findall(protocol):
        if number not in EXPERIMENTS:
            sections += ["", f"### {number}: {title}", "", "**Not run.**"]
    top = [opening.rstrip(), "", SUMMARY[0], "", *summary(), "", SUMMARY[1], ""]
    return "\n".join([*top, protocol, "", MEASURED, "", OPENING, *sections]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
