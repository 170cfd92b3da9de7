"""Make the second part of docs/results.md from the files beside this one: `python results/page.py`.

The first part, the protocol, is written by hand before the runs; what stands below the line `MEASURED` is made anew.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepnet.training.paired import PairedDifferences

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results.md"
MEASURED = "<!-- Below this line: made by `python results/page.py`. -->"


@dataclass(frozen=True)
class Network:
    """One side of an experiment: how its runs are found in a results file."""

    title: str
    model: str
    scheme: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    def runs(self, runs: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """By seed."""
        wanted = (self.model, self.scheme, dict(self.options))
        return {run["seed"]: run for run in runs if (run["model"], run["scheme"], run.get("options", {})) == wanted}


@dataclass(frozen=True)
class Experiment:
    """The claim is that the others have a smaller error than the first; `effect` is the paper's own difference."""

    title: str
    files: tuple[str, ...]
    claim: str
    first: Network
    others: tuple[Network, ...]
    command: str  # that makes the runs
    effect: float | None = None
    remark: str = ""  # where the runs were not made by just that

    def section(self) -> list[str]:
        """Its table and a verdict for each network, or a line that says it was not run to its end."""
        paths = [HERE / file for file in self.files]
        runs = [run for path in paths if path.exists() for run in json.loads(path.read_text())["runs"]]
        lines = ["", f"### {self.title}", "", f"Claim: {self.claim}", ""]
        plain = self.first.runs(runs)
        pairs = {other: other.runs(runs) for other in self.others}
        if not any(plain.keys() & found.keys() for found in pairs.values()):
            return [*lines, "**Not measured yet**: no pair of runs is finished."]
        lines += ["| network | runs | test error (%) | minus the first, paired (95 %) | smaller / larger | test loss |"]
        lines += ["| --- | --- | --- | --- | --- | --- |", _row(self.first, plain, None)]
        verdicts, clear = [], []
        for other, found in pairs.items():
            if found:
                gaps = _differences(found, plain, "test_error")
                lines.append(_row(other, found, plain))
                if abs(gaps.mean) > gaps.half_width_among(len(self.others)):
                    clear.append(other.title)
                verdicts.append(
                    f"{other.title}: **{verdict(gaps, self.effect)}**; difference in points of error {gaps}"
                    + (", one pair, which has no interval." if len(gaps) < 2 else ".")
                )
        one = next(iter(plain.values()))
        if len(self.others) > 1:  # one interval in twenty excludes 0 by chance
            told = f"{' and '.join(clear)} still has an interval" if clear else "no interval is left"
            verdicts.append(
                f"- With Bonferroni's correction for {len(self.others)} comparisons {told} that excludes 0."
            )
        lines += ["", *verdicts, ""]
        for other, found in pairs.items():
            lines += _coefficients(other, found)
        source = ", ".join(f"[results/{path.name}](../results/{path.name})" for path in paths if path.exists())
        lines += [f"Command: `{self.command}`", *([self.remark] if self.remark else []), ""]
        used = [run for side in (plain, *pairs.values()) for run in side.values()]
        revisions = ", ".join(f"`{revision}`" for revision in dict.fromkeys(run["revision"] for run in used))
        lines += [f"Data: {source}; revision {revisions}, {one['machine']}."]
        return lines


PLAIN, LM = Network("`preact_resnet20`", "preact_resnet20"), Network("`lm_resnet20`", "lm_resnet20")
STABLE = Network('`lm_resnet20` with `k_bound="stable"`', "lm_resnet20", None, (("k_bound", "stable"),))
RELEASED = (("shortcut", "released"),)
ON_CIFAR = "--data cifar10 --recipe fast --epochs 20 --compile False"
TWO_STEPS = ("ab2", "midpoint2", "leapfrog")
EXPERIMENTS = (
    Experiment(
        "0: many seeds on digits",
        ("digits_pair.json",),
        "the LM structure lowers the error of a network with the same blocks.",
        PLAIN,
        (LM,),
        "stepnet compare preact_resnet20 lm_resnet20 --data digits --seeds 100",
    ),
    Experiment(
        "0b: other schemes on digits, at equal multiply-adds",
        ("digits_pair.json", "digits_schemes.json"),
        "a scheme of two steps lowers the error of a network with the same blocks; k kept stable helps LM.",
        PLAIN,
        (
            STABLE,
            *(Network(f"`preact_resnet20:{name}`", "preact_resnet20", name) for name in TWO_STEPS),
        ),
        "stepnet compare preact_resnet20 lm_resnet20,k_bound=stable preact_resnet20:ab2 preact_resnet20:midpoint2 "
        "preact_resnet20:leapfrog --data digits --seeds 11",
        remark="asks for the same runs, but was not what made them: a script set the same configs for 30 seeds and was "
        "stopped when time ran out, in its 11th. The first row is experiment 0's, of an earlier revision, so these "
        "pairs cross revisions; what was seen of that is that a later one gives the means and deviations of seeds 0 to "
        "2 of experiment 0 to the printed digits. `heun` and `nesterov` of the protocol were not run.",
    ),
    Experiment(
        "1: the pair on CIFAR-10",
        ("cifar10_pair.json",),
        "LM-ResNet-20 has a smaller error than ResNet-20 (the paper: 8.33 against 8.75, quoted from He et al.).",
        PLAIN,
        (LM,),
        f"stepnet compare preact_resnet20 lm_resnet20 {ON_CIFAR} --seeds 3",
        effect=-0.42,
    ),
    Experiment(
        "2: k kept stable on CIFAR-10",
        ("cifar10_pair.json", "cifar10_stable.json"),
        "keeping k where the scheme is stable lowers LM's error further.",
        LM,
        (STABLE,),
        f"stepnet compare lm_resnet20 lm_resnet20,k_bound=stable {ON_CIFAR} --seeds 3",
    ),
    Experiment(
        "3: conversion of a trained network",
        ("cifar10_conversion.json",),
        "a trained ResNet that goes on as an LM network gets better than one that goes on as it is.",
        PLAIN,
        (LM,),
        "stepnet compare preact_resnet20 lm_resnet20 --weights RUN-OF-1 --data cifar10 --recipe fast --epochs 5 "
        "--lr 0.02 --compile False --seed SEED-OF-1",
    ),
    Experiment(
        "4: half the depth",
        ("cifar10_pair.json", "cifar10_depth.json"),
        "LM-ResNet-20 (0.27M) is as good as ResNet-32 (0.46M; the paper: 8.33 against 7.51).",
        Network("`preact_resnet32`", "preact_resnet32"),
        (LM,),
        f"stepnet compare preact_resnet20 lm_resnet20 preact_resnet32 {ON_CIFAR} --seeds 1",
    ),
    Experiment(
        "6: as the released code has it, BN-ReLU-1x1 shortcuts",
        ("cifar10_released.json",),
        "with the shortcuts of the released code in both networks, LM-ResNet-20 has a smaller error than ResNet-20.",
        Network('`preact_resnet20` with `shortcut="released"`', "preact_resnet20", None, RELEASED),
        (Network('`lm_resnet20` with `shortcut="released"`', "lm_resnet20", None, RELEASED),),
        f"stepnet compare preact_resnet20,shortcut=released lm_resnet20,shortcut=released {ON_CIFAR} --seeds 1",
        effect=-0.42,
    ),
)


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
    cells = [network.title, str(len(runs)), _mean(errors), "", "", f"{statistics.fmean(losses):.4f}"]
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
    return [f"Learned k of {network.title}: {shown}.", ""]


def _mean(values: list[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{deviation}"


def page() -> str:
    """The whole page: the protocol as it stands, and what was measured."""
    protocol = PAGE.read_text().partition(MEASURED)[0].rstrip()
    sections = [line for experiment in EXPERIMENTS for line in experiment.section()]
    return "\n".join([protocol, "", MEASURED, "", "## Measured", *sections]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
