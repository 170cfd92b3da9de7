"""The board of residual schemes: `python results/board.py [RUNS]`.

With a folder of runs, those that are finished are first recorded in board.json, and where a scheme is new to a task,
the time and memory of its schemes' steps are measured.
Then the measured part of docs/board.md and its picture are made from that file. The runs of a task are made by its
command, which may be given again at any time, for more seeds or other schemes:

    stepnet compare gpt6x32 --schemes euler,lm,k=0,mine --import mine --data shakespeare \\
        --epochs 1 --epoch-steps 600 --seeds 20 --out RUNS/characters6
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools import DOCS, read_content, with_part, write_content

from stepnet.commands.columns import markdown_table
from stepnet.training import read_label
from stepnet.training.histories import PairedDifferences, RunHistory, holm

if TYPE_CHECKING:
    from torch import Tensor, nn

FILE, PAGE = "board.json", DOCS / "board.md"
MEASURED = "<!-- Below this line: made by `python results/board.py`. -->"
SUMMARY = "<!-- Summary: made by `python results/board.py`. -->", "<!-- End of the summary. -->"
ENOUGH = 5  # pairs for a verdict
FIRST = "euler"
COSTS = ("step_time", "memory")  # of a step, over Euler's
REMARK = """\
*Minus Euler* is the mean of the paired differences with its 95 % interval, not corrected; *p, Holm* is corrected for
the schemes of the table that have a verdict. *Step time* is the processor time of a training step over Euler's, taken
in turns with one thread; *memory* is the size of the tensors that a step keeps for its backward pass, over Euler's.
Schemes with fewer than 5 pairs have no verdict."""


@dataclass(frozen=True)
class BoardTask:
    """A network on data; `margin` is the largest difference that does not matter."""

    name: str  # of its folder of runs
    title: str
    model: str
    flags: str
    figure: str
    unit: str
    digits: int
    margin: float
    flags_of_first: str = ""  # where Euler is trained in another way

    @property
    def picture(self) -> str:
        return f"figures/board_{self.name}.svg"

    @property
    def commands(self) -> str:
        if self.flags_of_first:
            return f"{self._command(FIRST, self.flags_of_first)}` and `{self._command('SCHEMES', self.flags)}"
        return self._command("SCHEMES", self.flags)

    def _command(self, schemes: str, flags: str) -> str:
        return f"stepnet compare {self.model} --schemes {schemes} {flags} --seeds N --out RUNS/{self.name}"


TEXT = "--data shakespeare --epochs 1 --epoch-steps 600"
LONGER = "--data shakespeare --epochs 1 --epoch-steps 780"
EQUAL_TIME = "6 layers, Euler with 1.3 times the steps"
ADAMW = "--optimizer adamw --lr 0.01 --schedule cosine --warmup 0.1 --clip 1 --weight-decay 0.01 --epochs 30"
CIFAR = "--data cifar10 --image-size 16 --recipe fast --epochs 4"
TASKS = (
    BoardTask("characters6", "6 layers", "gpt6x32", TEXT, "test_loss", "nats", 4, 0.005),
    BoardTask("characters6_time", EQUAL_TIME, "gpt6x32", TEXT, "test_loss", "nats", 4, 0.005, LONGER),
    BoardTask("characters12", "12 layers", "gpt12x48", TEXT, "test_loss", "nats", 4, 0.005),
    BoardTask("digits", "Digits", "preact_resnet20", "--data digits", "test_error", "points", 2, 0.2),
    BoardTask("cifar16", "CIFAR-10 at 16 pixels", "preact_resnet20,width=8", CIFAR, "test_error", "points", 2, 0.2),
    BoardTask("vit", "ViT on digits", "vit4x32,patch=2", f"--data digits {ADAMW}", "test_error", "points", 2, 0.2),
)


@dataclass(frozen=True)
class Row:
    """A scheme on a task: its runs by seed, and its differences from Euler."""

    scheme: str
    runs: dict[int, dict[str, Any]]
    gaps: PairedDifferences
    corrected: float  # the p-value after Holm's correction

    def verdict(self, margin: float) -> str:
        """Return the verdict by the protocol's rule."""
        if len(self.gaps) < ENOUGH:
            return "too few pairs"
        if self.corrected < 0.05:
            return "helps" if self.gaps.mean < 0 else "harms"
        if abs(self.gaps.mean) + self.gaps.half_width <= margin:
            return "makes no difference"
        return "inconclusive"


def record(folder: Path) -> None:
    """Record the finished runs in a folder. They replace all recorded runs of the same task and seed.

    So both runs of a pair come from one revision and one machine.
    """
    new = []
    for task in TASKS:
        histories = [RunHistory.read(place.parent) for place in sorted((folder / task.name).glob("*/config.yaml"))]
        new += [measured(task, history) for history in histories if history.complete]
    replaced = {(run["task"], run["seed"]) for run in new}
    kept = [run for run in read_runs() if (run["task"], run["seed"]) not in replaced]
    write([*kept, *new], read_content(FILE))


def measured(task: BoardTask, history: RunHistory) -> dict[str, Any]:
    """Return what is kept of a run."""
    config, last = history.config, history.epochs[-1]
    of_task = read_label(task.model).kwargs
    options = "".join(f",{name}={value}" for name, value in config.model_kwargs.items() if name not in of_task)
    return {
        "task": task.name,
        "scheme": f"{config.scheme}{options}",
        "seed": config.seed,
        "figure": round(history.last(task.figure), 6),
        "train_loss": round(last["loss"], 6),
        "parameters": config.network.parameters if config.network else None,
        "revision": history.environment["revision"],
        "torch": history.environment["torch"],
        "machine": history.environment["machine"],
    }


def write(runs: list[dict[str, Any]], costs: Mapping[str, Any]) -> None:
    """Write the runs, and the costs of a step over Euler's by task and scheme."""
    write_content(
        FILE,
        "board",
        sorted(runs, key=itemgetter("task", "scheme", "seed")),
        **{name: costs.get(name, {}) for name in COSTS},
    )


def read_runs() -> list[dict[str, Any]]:
    """Return the recorded runs."""
    return list(read_content(FILE).get("board", []))


def network_and_batch(task: BoardTask, scheme: str) -> tuple[nn.Module, Tensor, Tensor]:
    """Return the network of a task under a scheme, and a batch of noise of the task's size."""
    import torch

    from stepnet.nets import create_model

    model, _, of_task = read_label(task.model)
    name, scheme_name, of_scheme = read_label(f"{model}:{scheme}")
    options = of_task | of_scheme
    if task.unit == "nats":
        inputs, targets = torch.randint(84, (2, 16, 64))
        options |= {"num_classes": 84, "context": 64}
    else:
        size = (3, 16, 16) if "cifar10" in task.flags else (1, 8, 8)
        inputs, targets = torch.randn(64, *size), torch.randint(10, (64,))
        options |= {"in_channels": size[0]}
    return create_model(name, scheme=scheme_name, **options), inputs, targets


def kept_bytes(task: BoardTask, scheme: str) -> int:
    """Count the bytes of the tensors that a step keeps from its forward to its backward pass."""
    from torch import nn
    from torch.nn.functional import cross_entropy

    from stepnet.nets import saved_bytes

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
            return cross_entropy(self.network(inputs).flatten(0, -2), targets.flatten())

    network, inputs, targets = network_and_batch(task, scheme)
    return saved_bytes(Loss(), inputs, targets)


def measure_costs(repeats: int = 11) -> None:
    """Measure the processor time of a training step over Euler's, in turns, and the memory of one; record both.

    Tasks whose schemes have all been measured are passed over.
    """
    import torch

    from stepnet.timing.harness import compare
    from stepnet.timing.steps import training_step

    torch.set_num_threads(1)
    known = read_content(FILE)
    costs: dict[str, Any] = {name: dict(known.get(name, {})) for name in COSTS}
    for task in TASKS:
        schemes = [row.scheme for row in rows(task, read_runs())]
        if {*schemes[1:]} - costs["step_time"].get(task.name, {}).keys():
            first, *steps = (training_step(*network_and_batch(task, name), adamw=True) for name in schemes)
            ratios, _ = compare(dict(zip(schemes[1:], steps, strict=True)), first, repeats)
            costs["step_time"][task.name] = {name: round(ratio.median, 3) for name, ratio in ratios.items()}
            euler, *others = (kept_bytes(task, name) for name in schemes)
            memory = {name: round(kept / euler, 3) for name, kept in zip(schemes[1:], others, strict=True)}
            costs["memory"][task.name] = memory
    write(read_runs(), costs)


def rows(task: BoardTask, runs: list[dict[str, Any]]) -> list[Row]:
    """Return Euler's row, then those of the other schemes, best mean difference first."""
    by_scheme: dict[str, dict[int, dict[str, Any]]] = {}
    for run in runs:
        if run["task"] == task.name:
            by_scheme.setdefault(run["scheme"], {})[run["seed"]] = run
    first = by_scheme.pop(FIRST, {})
    gaps = {scheme: PairedDifferences.between(by_seed, first, "figure") for scheme, by_seed in by_scheme.items()}
    judged = [scheme for scheme, pairs in gaps.items() if len(pairs) >= ENOUGH]
    corrected = dict(zip(judged, holm([gaps[scheme].p_value for scheme in judged]), strict=True))
    others = [Row(name, by_scheme[name], gaps[name], corrected.get(name, math.nan)) for name in gaps if len(gaps[name])]
    ordered = sorted(others, key=lambda row: row.gaps.mean)
    return [Row(FIRST, first, PairedDifferences({}), math.nan), *ordered] if first else []


def section(task: BoardTask, runs: list[dict[str, Any]]) -> list[str]:
    """Return the table of a task, and a sentence for each scheme."""
    measured_rows = rows(task, runs)
    if len(measured_rows) < 2:
        return [f"### {task.title}: `{task.model}`", "", "**Not measured**: no pair of runs was finished.", ""]
    first, *others = measured_rows
    lines = [
        *(f"### {task.title}: `{task.model}`", "", f"Command: `{task.commands}`", ""),
        *([f"![Differences from Euler with their 95 % intervals]({task.picture})", ""] if drawn(measured_rows) else []),
    ]
    figure = "validation loss" if task.unit == "nats" else "test error (%)"
    headings = ("scheme", "seeds", figure, "minus Euler, 95 %", "p, Holm", "lower / higher", "step time", "memory")
    table = []
    costs = [read_content(FILE).get(name, {}).get(task.name, {}) for name in COSTS]
    for row in measured_rows:
        gaps, mean = row.gaps, statistics.fmean(run["figure"] for run in row.runs.values())
        cells = [f"`{row.scheme}`", str(len(row.runs)), f"{mean:.{task.digits}f}"]
        if row is first:
            cells += ["", "", "", *["1"] * len(COSTS), f"{_parameters(row):,}", ""]
        else:
            more = _parameters(row) - _parameters(first)
            corrected = "" if math.isnan(row.corrected) else f"{row.corrected:.2g}"
            signs = " / ".join(map(str, gaps.signs))
            ratios = [f"{cost[row.scheme]:.2f}" if row.scheme in cost else "" for cost in costs]
            cells += [gaps.interval(task.digits), corrected, signs, *ratios, f"+{more:,.0f}", row.verdict(task.margin)]
        table.append(cells)
    lines += markdown_table((*headings, "parameters", "verdict"), table)
    lines += ["", *(f"- {sentence(task, row)}" for row in others), ""]
    revisions = sorted({run["revision"] for row in measured_rows for run in row.runs.values()})
    machine = next(iter(first.runs.values()))["machine"]
    return [*lines, f"Revision {', '.join(f'`{revision}`' for revision in revisions)}, {machine}.", ""]


def _parameters(row: Row) -> int:
    return int(next(iter(row.runs.values()))["parameters"])


def sentence(task: BoardTask, row: Row) -> str:
    """`lm` helps: -0.0034 ± 0.0013 nats (20 pairs)."""
    gaps = row.gaps
    if len(gaps) < ENOUGH:
        return f"`{row.scheme}`: {gaps.mean:+.{task.digits}f} {task.unit} in {len(gaps)} pairs, too few for a verdict."
    size = f"{gaps.interval(task.digits)} {task.unit}"
    return f"`{row.scheme}` **{row.verdict(task.margin)}**: {size} ({len(gaps)} pairs)."


def summary(runs: list[dict[str, Any]]) -> list[str]:
    """Return a line for each task: the schemes with a verdict, those that are inconclusive by name only."""
    lines = []
    for task in TASKS:
        judged: dict[str, list[str]] = {}
        for row in drawn(rows(task, runs)):
            verdict = row.verdict(task.margin)
            size = "" if verdict == "inconclusive" else f" ({row.gaps.interval(task.digits)} {task.unit})"
            judged.setdefault(verdict, []).append(f"`{row.scheme}`{size}")
        verdicts = [f"**{verdict}**: {', '.join(schemes)}" for verdict, schemes in judged.items()]
        lines.append(f"- {task.title}, `{task.model}`: {'; '.join(verdicts) or 'too few pairs for a verdict'}.")
    return lines


def page() -> str:
    """Return the page: the protocol as it stands, and what was measured."""
    runs = read_runs()
    text = with_part(PAGE.read_text(), SUMMARY[0], "\n".join(summary(runs)), SUMMARY[1])
    sections = [line for task in TASKS for line in section(task, runs)]
    opening = ["## Measured", "", REMARK, ""]
    closing = ["Data: `results/board.json`; page and pictures: `python results/board.py`."]
    return with_part(text, MEASURED, "\n".join([*opening, *sections, *closing]))


def drawn(task_rows: list[Row]) -> list[Row]:
    """Return the rows in the picture of a task: the schemes with enough pairs."""
    return [row for row in task_rows[1:] if len(row.gaps) >= ENOUGH]


def draw(task: BoardTask, shown: list[Row]) -> None:
    """Draw the differences from Euler with their intervals, narrow enough for a phone."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    from stepnet.report.figures import write_figure

    figure, axes = plt.subplots(figsize=(4.6, 1 + 0.24 * len(shown)), layout="constrained")
    places = range(len(shown))[::-1]
    axes.axvspan(-task.margin, task.margin, color="0.92")
    axes.axvline(0, color="0.3", linewidth=0.8)
    for place, row in zip(places, shown, strict=True):
        decided = row.verdict(task.margin) in ("helps", "harms")
        color = "tab:blue" if decided and row.gaps.mean < 0 else "tab:red" if decided else "0.5"
        axes.errorbar(row.gaps.mean, place, xerr=row.gaps.half_width, fmt="o", color=color, capsize=3, markersize=4)
    axes.set_yticks(list(places), [f"{row.scheme} ({len(row.gaps)})" for row in shown])
    axes.set_ylim(-0.7, len(shown) - 0.3)
    axes.set_xlabel(f"minus Euler, {task.unit}: left is better")
    axes.set_title(f"{task.title}: {task.model}\n(pairs of seeds); grey band: too small to matter", fontsize="medium")
    write_figure(figure, DOCS / task.picture)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        record(Path(sys.argv[1]))
        measure_costs()
    PAGE.write_text(page())
    for task in TASKS:
        if shown := drawn(rows(task, read_runs())):
            draw(task, shown)
