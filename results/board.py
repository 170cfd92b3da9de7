"""The board of residual schemes: `python results/board.py [RUNS]`.

With a folder of runs, those that are finished are first recorded in board.json, and a step's time and memory measured.
Then the measured part of docs/board.md and its picture are made from that file. The runs of a task are made by its
command, which may be given again at any time, for more seeds or other schemes:

    stepnet compare gpt6x32 --schemes euler,lm,k=0,mine --import mine --data shakespeare \\
        --epochs 1 --epoch-steps 600 --seeds 20 --out RUNS/characters6
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepnet.files import atomic_file
from stepnet.training.histories import PairedDifferences, RunHistory, holm

HERE = Path(__file__).parent
FILE, DOCS = HERE / "board.json", HERE.parent / "docs"
PAGE = DOCS / "board.md"
MEASURED = "<!-- Below this line: made by `python results/board.py`. -->"
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

    @property
    def picture(self) -> str:
        return f"figures/board_{self.name}.svg"

    @property
    def label(self) -> tuple[str, dict[str, Any]]:
        """The model's name, and its options."""
        from stepnet.training.config import read_label

        name, _, options = read_label(self.model)
        return name, options

    @property
    def command(self) -> str:
        return f"stepnet compare {self.model} --schemes SCHEMES {self.flags} --seeds N --out RUNS/{self.name}"


TEXT = "--data shakespeare --epochs 1 --epoch-steps 600"
ADAMW = "--optimizer adamw --lr 0.01 --schedule cosine --warmup 0.1 --clip 1 --weight-decay 0.01 --epochs 30"
CIFAR = "--data cifar10 --image-size 16 --recipe fast --epochs 4"
TASKS = (
    BoardTask("characters6", "6 layers", "gpt6x32", TEXT, "test_loss", "nats", 4, 0.005),
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
        """By the protocol's rule."""
        if len(self.gaps) < ENOUGH:
            return "too few pairs"
        if self.corrected < 0.05:
            return "helps" if self.gaps.mean < 0 else "harms"
        if abs(self.gaps.mean) + self.gaps.half_width <= margin:
            return "makes no difference"
        return "inconclusive"


def record(folder: Path) -> None:
    """Record the finished runs in a folder. A task in it replaces what the file has of the task.

    A pair is of one revision and one machine.
    """
    known = [run for run in read_runs() if not (folder / run["task"]).exists()]
    for task in TASKS:
        histories = [RunHistory.read(place.parent) for place in sorted((folder / task.name).glob("*/config.yaml"))]
        known += [measured(task, history) for history in histories if history.complete]
    write(known, read_file())


def measured(task: BoardTask, history: RunHistory) -> dict[str, Any]:
    """What is kept of a run."""
    config, last = history.config, history.epochs[-1]
    own = task.label[1]
    options = "".join(f",{name}={value}" for name, value in config.model_kwargs.items() if name not in own)
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


def _key(run: dict[str, Any]) -> tuple[str, str, int]:
    return run["task"], run["scheme"], run["seed"]


def write(runs: list[dict[str, Any]], costs: Mapping[str, Any]) -> None:
    """The file, a run in each line; `costs` has what a step takes, over Euler's, by task and scheme."""
    lines = ",\n  ".join(json.dumps(run) for run in sorted(runs, key=_key))
    ratios = "".join(f' "{name}": {json.dumps(costs.get(name, {}))},\n' for name in COSTS)
    with atomic_file(FILE) as partial:
        partial.write_text(f'{{\n{ratios} "board": [\n  {lines}\n ]\n}}\n')


def read_file() -> dict[str, Any]:
    """The file, if there is one."""
    return dict(json.loads(FILE.read_text())) if FILE.exists() else {}


def read_runs() -> list[dict[str, Any]]:
    """The runs in the file."""
    return list(read_file().get("board", []))


class Step:
    """A training step of a scheme on a task: a batch of noise, of the task's size."""

    def __init__(self, task: BoardTask, scheme: str) -> None:
        import torch

        from stepnet.nets import create_model
        from stepnet.training.config import read_label

        name, scheme_name, options = read_label(f"{task.label[0]}:{scheme}")
        options = {**task.label[1], **options}
        if task.unit == "nats":
            self.inputs, self.targets = torch.randint(84, (2, 16, 64))
            options |= {"num_classes": 84, "context": 64}
        else:
            size = (3, 16, 16) if "cifar10" in task.flags else (1, 8, 8)
            self.inputs, self.targets = torch.randn(64, *size), torch.randint(10, (64,))
            options |= {"in_channels": size[0]}
        self.network = create_model(name, scheme=scheme_name, **options)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-4)

    def loss(self) -> Any:
        from torch.nn.functional import cross_entropy

        return cross_entropy(self.network(self.inputs).flatten(0, -2), self.targets.flatten())

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()

    def kept_bytes(self) -> int:
        """Of the tensors that autograd keeps from forward to backward; weights are there anyway."""
        import torch

        weights = {parameter.untyped_storage().data_ptr() for parameter in self.network.parameters()}
        kept: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = self.loss()  # which holds them, so that no two have the same address
        assert loss.requires_grad
        return sum(kept.values())


def measure_costs(repeats: int = 11) -> None:
    """Measure the processor time of a training step over Euler's, in turns, and the memory of one; record both."""
    import torch

    from stepnet.timing.harness import compare

    torch.set_num_threads(1)
    found: dict[str, Any] = {name: {} for name in COSTS}
    for task in TASKS:
        schemes = [row.scheme for row in rows(task, read_runs())[1:]]
        if schemes:
            first, steps = Step(task, FIRST), {name: Step(task, name) for name in schemes}
            ratios, _ = compare(steps, first, repeats)
            found["step_time"][task.name] = {name: round(ratio.median, 3) for name, ratio in ratios.items()}
            whole = first.kept_bytes()
            found["memory"][task.name] = {name: round(step.kept_bytes() / whole, 3) for name, step in steps.items()}
    write(read_runs(), found)


def rows(task: BoardTask, runs: list[dict[str, Any]]) -> list[Row]:
    """Euler's row, then those of the other schemes, best mean difference first."""
    by_scheme: dict[str, dict[int, dict[str, Any]]] = {}
    for run in runs:
        if run["task"] == task.name:
            by_scheme.setdefault(run["scheme"], {})[run["seed"]] = run
    first = by_scheme.pop(FIRST, {})
    gaps = {scheme: PairedDifferences.between(by_seed, first, "figure") for scheme, by_seed in by_scheme.items()}
    judged = [scheme for scheme, own in gaps.items() if len(own) >= ENOUGH]
    corrected = dict(zip(judged, holm([gaps[scheme].p_value for scheme in judged]), strict=True))
    others = [Row(name, by_scheme[name], gaps[name], corrected.get(name, math.nan)) for name in gaps if len(gaps[name])]
    ordered = sorted(others, key=lambda row: row.gaps.mean)
    return [Row(FIRST, first, PairedDifferences({}), math.nan), *ordered] if first else []


def section(task: BoardTask, runs: list[dict[str, Any]]) -> list[str]:
    """The table of a task, and a sentence for each scheme."""
    found = rows(task, runs)
    if len(found) < 2:
        return [f"### {task.title}: `{task.model}`", "", "**Not measured**: no pair of runs was finished.", ""]
    first, *others = found
    lines = [
        *(f"### {task.title}: `{task.model}`", "", f"Command: `{task.command}`", ""),
        *([f"![Differences from Euler with their 95 % intervals]({task.picture})", ""] if drawn(found) else []),
        f"| scheme | seeds | {'validation loss' if task.unit == 'nats' else 'test error (%)'} | minus Euler, 95 % | "
        "p, Holm | lower / higher | step time | memory | parameters | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    costs = [read_file().get(name, {}).get(task.name, {}) for name in COSTS]
    for row in found:
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
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *(f"- {sentence(task, row)}" for row in others), ""]
    revisions = sorted({run["revision"] for row in found for run in row.runs.values()})
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


def page() -> str:
    """The protocol as it stands, and what was measured."""
    protocol, runs = PAGE.read_text().partition(MEASURED)[0].rstrip(), read_runs()
    sections = [line for task in TASKS for line in section(task, runs)]
    opening = ["## Measured", "", REMARK, ""]
    closing = ["Data: `results/board.json`; page and pictures: `python results/board.py`."]
    return "\n".join([protocol, "", MEASURED, "", *opening, *sections, *closing]) + "\n"


def drawn(found: list[Row]) -> list[Row]:
    """The rows in the picture of a task: the schemes with enough pairs."""
    return [row for row in found[1:] if len(row.gaps) >= ENOUGH]


def draw(task: BoardTask, shown: list[Row]) -> None:
    """The differences from Euler with their intervals, narrow enough for a phone."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "board"
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
    axes.set_title(f"{task.title}: {task.model} (pairs of seeds)", fontsize="medium")
    figure.savefig(DOCS / task.picture, metadata={"Date": None})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        record(Path(sys.argv[1]))
        measure_costs()
    PAGE.write_text(page())
    for task in TASKS:
        if shown := drawn(rows(task, read_runs())):
            draw(task, shown)
