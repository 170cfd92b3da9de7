"""Generate the measured part of docs/results.md from the files in this folder: `python results/page.py [NUMBER RUN]`.

The protocol is written by hand before the runs; the summary above it and everything below the line `MEASURED` are
generated from the data. With the number of an experiment and the folder of its unfinished run, where that stands is
recorded first.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from run import EXPERIMENTS, Experiment
from tools import DOCS, RESULTS, read_content, with_part

from stepnet.commands.columns import markdown_table
from stepnet.training import read_label
from stepnet.training.histories import PairedDifferences, RunHistory, mean_and_deviation

PAGE, UNFINISHED = DOCS / "results.md", "unfinished.json"
MEASURED = "<!-- Below this line: made by `python results/page.py`. -->"
SUMMARY = "<!-- Summary: made by `python results/page.py`. -->", "<!-- End of the summary. -->"
OPENING = """\
## Measured

Sections come in order of importance, which is the order of the runs. Where the paper has no figure, *does not hold*
means that the interval lies above 0. One older pair of 15 epochs (`results/cifar10.json`) was known when the protocol
was written; it is used nowhere on this page."""
HEADINGS = "network", "runs", "test error (%)", "minus the first, paired (95 %)", "smaller / larger", "test loss"


Runs = dict[int, dict[str, Any]]  # of one network, by seed


def runs_by_network(experiment: Experiment) -> dict[str, Runs]:
    """Return the recorded runs of each network of an experiment, and of those it is compared with beside them."""
    recorded = [run for file in experiment.files for run in read_content(file).get("runs", [])]
    networks = dict.fromkeys([*experiment.networks, *(label for pair in experiment.beside for label in pair)])
    return {
        network: {
            run["seed"]: run
            for run in recorded
            if (run["model"], run["scheme"], run.get("options", {})) == tuple(read_label(network))
        }
        for network in networks
    }


def compared(experiment: Experiment, runs: dict[str, Runs]) -> dict[str, PairedDifferences]:
    """Return the differences in test error of each network that has runs from the first one."""
    first, *others = experiment.networks
    return {n: PairedDifferences.between(runs[n], runs[first], "test_error") for n in others if runs[n]}


def section(experiment: Experiment) -> list[str]:
    """Return the table of an experiment and a verdict for each network, or say that no pair of runs is finished."""
    runs, first = runs_by_network(experiment), experiment.networks[0]
    lines = ["", f"### {experiment.number}: {experiment.title}", "", f"Claim: {experiment.claim}", ""]
    differences = compared(experiment, runs)
    done = [network for network in experiment.networks if runs[network]]
    if {*done} - {*experiment.trained}:
        lines += [*markdown_table(HEADINGS, [_row(one, runs[one], runs[first]) for one in done]), ""]
    if not any(differences.values()):
        return [*lines, unfinished(experiment.number)]
    verdicts = [
        f"`{other}`: {_verdict_text(gaps, experiment.effect, len(differences))}." for other, gaps in differences.items()
    ]
    lines += [*(verdicts if len(verdicts) == 1 else [f"- {line}" for line in verdicts]), ""]
    for one, other in experiment.beside:
        gaps = PairedDifferences.between(runs[one], runs[other], "test_error")
        if gaps:
            lines += [f"`{one}` minus `{other}` itself: {gaps}.", ""]
    for other in differences:
        lines += _coefficients(other, runs[other])
    source = ", ".join(f"`results/{file}`" for file in experiment.files if (RESULTS / file).exists())
    lines += [f"Command: `{experiment.command}`. {experiment.remark}".rstrip(), ""]
    used = [run for network in experiment.networks for run in runs[network].values()]
    revisions = ", ".join(f"`{revision}`" for revision in dict.fromkeys(run["revision"] for run in used))
    return [*lines, f"Data: {source}; revision {revisions}, {used[0]['machine']}."]


def summary() -> list[str]:
    """Return a line for each experiment that was measured, with its verdicts, and one for the others."""
    lines, missing = [], []
    for experiment in EXPERIMENTS.values():
        differences = {n: gaps for n, gaps in compared(experiment, runs_by_network(experiment)).items() if gaps}
        count = len(differences)
        verdicts = [f"`{n}` {_verdict_text(gaps, experiment.effect, count)}" for n, gaps in differences.items()]
        if verdicts:
            lines.append(f"- {experiment.title[0].upper()}{experiment.title[1:]}: {'; '.join(verdicts)}.")
        else:
            missing.append(experiment.title)
    return [*lines, f"- Not measured yet: {'; '.join(missing)}."] if missing else lines


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


def _row(network: str, runs: Runs, plain: Runs) -> list[str]:
    errors, losses = ([run[name] for run in runs.values()] for name in ("test_error", "test_loss"))
    cells = [f"`{network}`", str(len(runs)), mean_and_deviation(errors), "", "", f"{statistics.fmean(losses):.4f}"]
    if runs is not plain and (gaps := PairedDifferences.between(runs, plain, "test_error")):
        cells[3:5] = [str(gaps), " / ".join(map(str, gaps.signs))]
        cells[5] += f" ({PairedDifferences.between(runs, plain, 'test_loss').interval(4)})"
    return cells


def _coefficients(network: str, runs: Runs) -> list[str]:
    """Return the learned k of each layer: mean and standard deviation over the seeds."""
    layers: dict[str, list[float]] = {}
    for run in runs.values():
        for layer, k in run["k"].items():
            layers.setdefault(layer, []).append(k)
    if not layers:
        return []
    shown = ", ".join(f"`{layer}` {mean_and_deviation(ks)}" for layer, ks in layers.items())
    return [f"Learned k of `{network}`: {shown}.", ""]


def record_position(number: str, folder: Path) -> None:
    """Record the epoch that the unfinished run of an experiment has reached."""
    history = RunHistory.read(folder)
    config = history.config
    place = {"model": config.model, "seed": config.seed, "epochs": len(history.epochs), "of": config.recipe.epochs}
    (RESULTS / UNFINISHED).write_text(json.dumps({**read_content(UNFINISHED), number: place}, indent=1) + "\n")


def unfinished(number: str) -> str:
    """Return a line for an experiment without results."""
    place = read_content(UNFINISHED).get(number)
    if place is None:
        return "**Not measured yet**: no pair of runs is finished."
    where = f"`{place['model']}`, seed {place['seed']}, stands at epoch {place['epochs']} of {place['of']}"
    return f"**Not finished**: {where}. Nothing is claimed of it."


def page() -> str:
    """Return the whole page: the protocol as it stands, and what was measured."""
    text = with_part(PAGE.read_text(), SUMMARY[0], "\n".join(summary()), SUMMARY[1])
    sections = [line for experiment in EXPERIMENTS.values() for line in section(experiment)]
    return with_part(text, MEASURED, "\n".join([OPENING, *sections]))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        record_position(sys.argv[1], Path(sys.argv[2]))
    PAGE.write_text(page())
