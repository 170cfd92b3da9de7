"""Generate the measured part of docs/results.md from the files in this folder: `python results/page.py [NUMBER RUN]`.

The protocol is written by hand before the runs; the summary above it and everything below the line `MEASURED` are
generated from the data. With the number of an experiment and the folder of its unfinished run, where that stands is
recorded first.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from experiments import EXPERIMENTS, HERE, Experiment, Network

from stepnet.commands.columns import markdown_table
from stepnet.training.histories import PairedDifferences, RunHistory, mean_and_deviation

PAGE = HERE.parent / "docs" / "results.md"
UNFINISHED = HERE / "unfinished.json"
MEASURED = "<!-- Below this line: made by `python results/page.py`. -->"
SUMMARY = "<!-- Summary: made by `python results/page.py`. -->", "<!-- End of the summary. -->"
OPENING = """\
## Measured

Sections come in order of importance, which is the order of the runs. Where the paper has no figure, *does not hold*
means that the interval lies above 0. One older pair of 15 epochs (`results/cifar10.json`) was known when the protocol
was written; it is used nowhere on this page."""
HEADINGS = "network", "runs", "test error (%)", "minus the first, paired (95 %)", "smaller / larger", "test loss"
PROTOCOL_ROW = re.compile(r"^\| (\w+) \| ([^|]+) \|", re.MULTILINE)


def section(experiment: Experiment) -> list[str]:
    """Its table and a verdict for each network, or a line that says it was not run to its end."""
    paths = [HERE / file for file in experiment.files]
    runs = [run for path in paths if path.exists() for run in json.loads(path.read_text())["runs"]]
    lines = ["", f"### {experiment.number}: {experiment.title}", "", f"Claim: {experiment.claim}", ""]
    plain = experiment.first.runs(runs)
    pairs = {other: other.runs(runs) for other in experiment.others}
    if not any(plain.keys() & others.keys() for others in pairs.values()):
        return [*lines, "**Not measured yet**: no pair of runs is finished."]
    measured = {other: others for other, others in pairs.items() if others}
    rows = [_row(experiment.first, plain, None), *(_row(other, others, plain) for other, others in measured.items())]
    lines += markdown_table(HEADINGS, rows)
    verdicts = []
    for other, others in measured.items():
        gaps = PairedDifferences.between(others, plain, "test_error")
        verdicts.append(f"`{other.label}`: {_verdict_text(gaps, experiment.effect, len(measured))}.")
    lines += ["", *(verdicts if len(verdicts) == 1 else [f"- {line}" for line in verdicts]), ""]
    for one, other in experiment.beside:
        gaps = PairedDifferences.between(one.runs(runs), other.runs(runs), "test_error")
        if gaps:
            lines += [f"`{one.label}` minus `{other.label}` itself: {gaps}.", ""]
    for other, others in measured.items():
        lines += _coefficients(other, others)
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
        differences = {
            other.label: PairedDifferences.between(others, plain, "test_error")
            for other in experiment.others
            if (others := other.runs(runs)).keys() & plain.keys()
        }
        count = len(differences)
        verdicts = [f"`{n}` {_verdict_text(gaps, experiment.effect, count)}" for n, gaps in differences.items()]
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
    if gaps.side_of(0, comparisons) < 0:
        return "holds"
    return "does not hold" if gaps.side_of(effect or 0, comparisons) > 0 else "inconclusive"


def _verdict_text(gaps: PairedDifferences, effect: float | None, comparisons: int) -> str:
    """The verdict by the protocol's rule, and whether it stands after the correction for several comparisons."""
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


def _row(network: Network, runs: dict[int, dict[str, Any]], plain: dict[int, dict[str, Any]] | None) -> list[str]:
    errors, losses = ([run[name] for run in runs.values()] for name in ("test_error", "test_loss"))
    cells = [
        f"`{network.label}`",
        str(len(runs)),
        mean_and_deviation(errors),
        "",
        "",
        f"{statistics.fmean(losses):.4f}",
    ]
    if plain is not None:
        gaps = PairedDifferences.between(runs, plain, "test_error")
        cells[3:5] = [str(gaps), " / ".join(map(str, gaps.signs))]
        cells[5] += f" ({PairedDifferences.between(runs, plain, 'test_loss').interval(4)})"
    return cells


def _coefficients(network: Network, runs: dict[int, dict[str, Any]]) -> list[str]:
    """The learned k of each layer: mean and standard deviation over the seeds."""
    layers: dict[str, list[float]] = {}
    for run in runs.values():
        for layer, k in run["k"].items():
            layers.setdefault(layer, []).append(k)
    if not layers:
        return []
    shown = ", ".join(f"`{layer}` {mean_and_deviation(ks)}" for layer, ks in layers.items())
    return [f"Learned k of `{network.label}`: {shown}.", ""]


def record_position(number: str, folder: Path) -> None:
    """Record where the unfinished run of an experiment stands."""
    history = RunHistory.read(folder)
    config = history.config
    place = {"model": config.model, "seed": config.seed, "epochs": len(history.epochs), "of": config.recipe.epochs}
    UNFINISHED.write_text(json.dumps({**positions(), number: place}, indent=1) + "\n")


def positions() -> dict[str, Any]:
    """Where unfinished runs stand, by the number of their experiment."""
    return dict(json.loads(UNFINISHED.read_text())) if UNFINISHED.exists() else {}


def unfinished(number: str) -> str:
    """A line for an experiment without results."""
    if number not in positions():
        return "**Not run.**"
    place = positions()[number]
    where = f"`{place['model']}`, seed {place['seed']}, stands at epoch {place['epochs']} of {place['of']}"
    return f"**Not finished**: {where}. Nothing is claimed of it."


def page() -> str:
    """The whole page: the protocol as it stands, and what was measured."""
    opening, _, rest = PAGE.read_text().partition(SUMMARY[0])
    protocol = rest.partition(SUMMARY[1])[2].partition(MEASURED)[0].strip()
    sections = [line for experiment in EXPERIMENTS.values() for line in section(experiment)]
    for number, title in PROTOCOL_ROW.findall(protocol):
        if number not in EXPERIMENTS:
            sections += ["", f"### {number}: {title}", "", unfinished(number)]
    top = [opening.rstrip(), "", SUMMARY[0], "", *summary(), "", SUMMARY[1], ""]
    return "\n".join([*top, protocol, "", MEASURED, "", OPENING, *sections]) + "\n"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        record_position(sys.argv[1], Path(sys.argv[2]))
    PAGE.write_text(page())
