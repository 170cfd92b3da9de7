"""Depth is time: three experiments, `python results/depth.py run --out FOLDER`; resumable, one record for each run.

The protocol, fixed before the runs (a change after that is a commit of its own):

multilevel  "digits": a narrow pre-activation ResNet of depth 56 (8, 16, 32 channels), 12 epochs of the `digits`
            recipe. "characters": gpt8x32 on Shakespeare, 400 steps of the `text` recipe, as 8 epochs of 50 steps.
            Seeds 0 to 9. Arms: "full", the full depth throughout; "levels", 5, 4, 3 epochs of depth 20, 38, 56 on
            digits, and 3, 3, 3 epochs of 2, 4, 8 layers on characters; "cut", the full depth for 8 epochs on digits and
            6 on characters, seeds 0 to 4. Measured: test error (test loss on 512 sequences) after the last epoch,
            processor seconds of the run.
            Claim: "levels" reaches what "full" reaches in at most 0.75 of its processor time. It is "reached" if the
            share of the time is at most 0.75 and the 95 % interval of the paired difference ends below +0.5 points
            (+0.02 nats); "not reached" if the share is larger or the interval begins above that; else "inconclusive".
coarsen     The "full" networks of both. A quarter of their blocks goes (7 of 27; 2 of 8 layers), chosen on 100 training
            images (32 training sequences) without labels. Arms: "plain" removal; "passed on", where the block before
            takes over the time; "refitted" step sizes; "random" blocks (one draw), plain and refitted. Measured: test
            loss minus that of the whole network, and the same for the error. Claim: "refitted" costs at most half of
            what "plain" costs. It "holds" if the 95 % interval of cost(refitted) - cost(plain) / 2 ends below 0, it
            "does not hold" if that begins above 0; else "inconclusive".
transfer    GPTs of 4, 8, 16, 32 layers of width 32 on Shakespeare, 200 steps of the `text` recipe with batches of 8,
            seed 0. Rules: none, 1/L, 1/sqrt(L), tuned at 4 layers. Rates 0.01 * 2^n: at each depth the best one at 4 layers with its
            two neighbours, and further while the best is the last on its side. Measured: mean training loss of the
            last 50 steps. Claim: with a rule the best rate at 8, 16 and 32 layers is within a factor of 2 of that at 4.

What was known before: on digits, 4 seeds of 4 + 4 + 4 epochs gave -1.25 +- 0.91 points at 0.77 of the time, and four
networks a cost of 0.09 +- 0.11 refitted against 0.21 +- 0.20 plain. Building networks took part of that time; fewer are
built now, the shallow levels have more epochs, and the first run in a process, which imports, is not counted. On
characters, others had seen -0.106 nats at 0.94 of the time (150 + 250 + 400 steps of 3, 6, 12 layers against 600) and
+0.033 at 0.65; of this protocol's network, one pair with seed 100 was looked at: 600 steps at full depth, test loss
2.080, and 200 + 200 + 250 steps of 2, 4, 8 layers, 2.069 at 0.72 of the time. Transfer: of ResNets with batch norm on digits, depths 14
to 50, one seed, 4 epochs, the best rate stayed within a factor of 2 without a rule, and moved by 4 with either (their
records stay in the file); 100 steps of GPTs were too few to say anything.

The machine is shared (this process had 0.11 of a core when it was tried), which is why networks and runs are this small:
what is complete at the end of the session is counted, seeds in their order.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from scipy.stats import t
from torch import Tensor, nn

import stepnet
from stepnet.data import Data, get_data
from stepnet.data.batches import Batches
from stepnet.nets.blocks import basic
from stepnet.nets.coarsening import choose, count_to_drop, outputs, refitted
from stepnet.nets.refinement import depths_of, on_grid, regrid
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.training import Recipe, get_recipe

HERE = Path(__file__).parent
RESULTS = HERE / "depth.jsonl"
SEEDS, CUT_SEEDS = range(10), range(5)
RULES, LAYERS, RATE = ("none", "1/L", "1/sqrt(L)"), (4, 8, 16, 32), 0.01
TESTED = 512  # sequences

BACKBONE = Backbone(basic, (8, 16, 32), (9, 9, 9), stem_width=8, pre_activation=True)
stepnet.register_model("narrow56", family="narrow")(partial(ResidualNetwork, BACKBONE))


@dataclass(frozen=True)
class Task:
    """A network on data, trained at full depth or by levels."""

    name: str
    model: str
    recipe: Recipe
    levels: tuple[int, ...]
    level_epochs: tuple[int, ...]
    cut: int  # epochs of the full depth that take about as long
    figure: str  # that counts in "multilevel"
    unit: str
    margin: float
    examples: int  # on which blocks are chosen

    def changes(self, arm: str) -> dict[str, Any]:
        """What an arm changes in the recipe."""
        by_levels = {"levels": self.levels, "level_epochs": self.level_epochs, "epochs": sum(self.level_epochs)}
        return {"full": {}, "levels": by_levels, "cut": {"epochs": self.cut}}[arm]

    def data(self) -> Data:
        """For training; the test set of characters is small, as an epoch has only 50 steps."""
        found = get_data("digits" if self.name == "digits" else "shakespeare")
        return found if self.name == "digits" else replace(found, test=replace(found.test, most=64))

    def tested(self) -> tuple[Tensor, Tensor]:
        data = self.data()
        return everything(data.test if self.name == "digits" else replace(data.test, most=TESTED), data)

    def some(self) -> Tensor:
        data = self.data()
        batches = Batches(data.train, data.normalise, self.examples).epoch()
        return next(iter(batches))[0]


TEXT = get_recipe("text").override({"epochs": 8, "epoch_steps": 50})
TASKS = {
    task.name: task
    for task in (
        Task("digits", "narrow56", get_recipe("digits"), (20, 38, 56), (5, 4, 3), 8, "error", "points", 0.5, 100),
        Task("characters", "gpt8x32", TEXT, (2, 4, 8), (3, 3, 3), 6, "loss", "nats", 0.02, 32),
    )
}


def multilevel(task: Task, seed: int, arms: tuple[str, ...], out: Path) -> Iterator[dict[str, Any]]:
    for arm in arms:
        key = {"experiment": f"multilevel {task.name}", "arm": arm, "seed": seed}
        if known(key):
            continue
        changes = task.changes(arm)
        data, folder = task.data(), out / f"{task.name}-{arm}{seed}"
        began = time.process_time()
        stepnet.train(task.model, data, task.recipe.override(changes), out=folder, seed=seed, overwrite=True, quiet=True)
        seconds = time.process_time() - began
        yield {**key, "cpu_seconds": round(seconds, 2), **figures(stepnet.load(folder), *task.tested())}


def coarsening(task: Task, seed: int, out: Path) -> Iterator[dict[str, Any]]:
    key = {"experiment": f"coarsen {task.name}", "seed": seed}
    if known(key):
        return
    whole, some, tested = stepnet.load(out / f"{task.name}-full{seed}"), task.some(), task.tested()
    count = count_to_drop(on_grid(whole), 0.75, None)
    found = {"whole": figures(whole, *tested)}
    for name, drawn in (("", None), ("random ", seed)):
        choice = choose(whole, count, some, at_random=drawn)
        plain, passed_on = (regrid(whole, choice.grid(passed_on=each)) for each in (False, True))
        networks = {"plain": plain, "passed on": passed_on, "refitted": refitted(whole, choice, some)}
        found |= {f"{name}{arm}": figures(network, *tested) for arm, network in networks.items()}
    yield {**key, "blocks": sum(depths_of(whole)), "dropped": count, **found}


def everything(source: Any, data: Data) -> tuple[Tensor, Tensor]:
    parts = list(Batches(source, data.normalise, 500).epoch())
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def figures(network: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, float]:
    logits, targets = outputs(network, inputs).flatten(0, -2), targets.flatten()
    error = 100 * float((logits.argmax(1) != targets).double().mean())
    return {"error": round(error, 3), "loss": round(float(F.cross_entropy(logits, targets)), 5)}


def transfer(depth: int, out: Path) -> Iterator[dict[str, Any]]:
    """The losses of one depth, for all rules."""
    for rule in RULES if depth > LAYERS[0] else RULES[:1]:  # a rule changes nothing there
        losses: dict[int, float] = {}  # by n of 0.01 * 2^n
        start = 0 if depth == LAYERS[0] else best_rate(transfer_losses()[rule][LAYERS[0]])
        wanted = [start, start - 1, start + 1]
        while wanted:
            n = wanted.pop(0)
            key = {"experiment": "transfer characters", "rule": rule, "depth": depth, "lr": RATE * 2.0**n, "seed": 0}
            if not known(key):
                name = f"transfer-{rule.replace('/', '_')}-{depth}-{n}"
                yield {**key, "loss": last_loss(depth, rule, RATE * 2.0**n, out / name)}
            losses[n] = next(r["loss"] for r in records("transfer characters") if r.items() >= key.items())
            best = min(losses, key=lambda n: losses[n])
            if not wanted and best in (min(losses), max(losses)):
                wanted = [best - 1 if best == min(losses) else best + 1]


def last_loss(depth: int, rule: str, rate: float, folder: Path) -> float:
    """The mean training loss of the last 50 steps; infinite where the run diverged."""
    rules = {} if rule == "none" else {"tuned_at_depth": LAYERS[0], "depth_rule": rule}
    recipe = TEXT.override({"epochs": 4, "batch_size": 8, "lr": rate, **rules})
    try:
        run = stepnet.train(f"gpt{depth}x32", TASKS["characters"].data(), recipe, out=folder, overwrite=True, quiet=True)
    except stepnet.UserError as error:
        if "lower --lr" not in str(error):
            raise
        return math.inf
    return round(run.metrics()[-1]["loss"], 4)


def best_rate(losses: dict[float, float]) -> int:
    """n of the best rate, 0.01 * 2^n."""
    return round(math.log2(min(losses, key=lambda rate: losses[rate]) / RATE))


def everything_in_turn(out: Path) -> Iterator[dict[str, Any]]:
    """All runs, in an order in which each question has an answer early."""
    warm = TEXT.override({"epochs": 2, "epoch_steps": 2, "levels": (1, 2)})
    stepnet.train("gpt2x16", TASKS["characters"].data(), warm, out=out / "warm", overwrite=True, quiet=True)
    for seeds, arms, depths in (
        (range(4), ("full", "levels"), (4, 32)),
        (range(4, 7), ("full", "levels"), (16,)),
        (CUT_SEEDS, ("cut",), ()),
        (range(7, 10), ("full", "levels"), (8,)),
    ):
        for seed in seeds:
            for task in TASKS.values():
                yield from multilevel(task, seed, arms, out)
                if "full" in arms:
                    yield from coarsening(task, seed, out)
        for depth in depths:
            yield from transfer(depth, out)


def records(experiment: str) -> list[dict[str, Any]]:
    """What was measured."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return [record for record in map(json.loads, lines) if record["experiment"] == experiment]


def known(key: dict[str, Any]) -> bool:
    """Whether there is a record of this run."""
    return any(all(record.get(name) == value for name, value in key.items()) for record in records(key["experiment"]))


def summary() -> str:
    """The tables of docs/depth.md."""
    return "\n".join([*_multilevel_rows(), "", *_coarsen_rows(), "", *_transfer_rows()])


def interval(values: list[float]) -> str:
    """`-0.1 ± 0.6`: the mean and the half width of its 95 % interval."""
    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.fmean(values):+.2f} ± {half:.2f}"


def _multilevel_rows() -> list[str]:
    arms: dict[str, dict[int, dict[str, Any]]] = {arm: {} for arm in ARMS}
    for record in records("multilevel"):
        arms[record["arm"]][record["seed"]] = record
    seeds = sorted(set.intersection(*(set(own) for own in arms.values())))
    rows = [
        f"| {len(seeds)} paired seeds | processor time | test error | minus that of full depth |",
        "| --- | --- | --- | --- |",
    ]
    for arm, name in (("full", "depth 56, 12 epochs"), ("levels", "20, 38, 56: 4 epochs each"), ("cut", "depth 56, 8")):
        own, full = [arms[arm][seed] for seed in seeds], [arms["full"][seed] for seed in seeds]
        share = sum(each["cpu_seconds"] for each in own) / sum(each["cpu_seconds"] for each in full)
        errors = [each["error"] for each in own]
        difference = interval([a - b["error"] for a, b in zip(errors, full, strict=True)]) if arm != "full" else ""
        rows.append(f"| {name} | {share:.2f} | {statistics.fmean(errors):.2f} % | {difference} |")
    return rows


def _coarsen_rows() -> list[str]:
    found = records("coarsen")
    rows = [
        f"| {len(found)} networks, {found[0]['dropped']} of {found[0]['blocks']} blocks gone | test error | test loss "
        "| loss that it costs |",
        "| --- | --- | --- | --- |",
    ]
    for arm in ("whole", "plain", "passed on", "refitted", "random plain", "random refitted"):
        errors, losses = ([record[arm][figure] for record in found] for figure in ("error", "loss"))
        costs = [record[arm]["loss"] - record["whole"]["loss"] for record in found]
        cost = interval(costs) if arm != "whole" else ""
        rows.append(f"| {arm} | {statistics.fmean(errors):.2f} % | {statistics.fmean(losses):.3f} | {cost} |")
    return rows


def transfer_losses() -> dict[str, dict[int, dict[float, float]]]:
    """The loss by rule, depth and rate; at the depth that the rates were tuned at, a rule changes nothing."""
    found: dict[str, dict[int, dict[float, float]]] = {rule: {depth: {} for depth in LAYERS} for rule in RULES}
    for record in records("transfer characters"):
        for rule in RULES if record["depth"] == LAYERS[0] else [record["rule"]]:
            found[rule][record["depth"]][record["lr"]] = record["loss"]
    return found


def _transfer_rows() -> list[str]:
    rows = ["| best learning rate | " + " | ".join(f"depth {depth}" for depth in DEPTHS) + " |", "| --- " * 4 + "|"]
    for rule, depths in transfer_losses().items():
        best = {depth: min(losses, key=lambda rate: losses[rate]) for depth, losses in depths.items()}
        cells = [f"{best[depth]:g} (loss {depths[depth][best[depth]]:.3f})" for depth in DEPTHS]
        rows.append(f"| {'no rule' if rule == 'none' else rule} | " + " | ".join(cells) + " |")
    return rows


def draw() -> None:
    """The pictures of docs/depth.md."""
    from stepnet.report.depth_studies import plot_transfer
    from stepnet.report.figures import panels, paper_style, write_figure

    folder = HERE.parent / "docs" / "figures"
    with paper_style(2):
        write_figure(plot_transfer(transfer_losses()), folder / "depth_transfer.svg")
        picture, (left, right) = panels(2)
        for arm in ARMS:
            own = [record for record in records("multilevel") if record["arm"] == arm]
            left.plot([r["cpu_seconds"] for r in own], [r["error"] for r in own], linestyle="", label=arm)
        left.set(xlabel="processor seconds", ylabel="test error (%)", ylim=(0, None))
        left.legend()
        arms = ("plain", "passed on", "refitted", "random plain", "random refitted")
        for n, arm in enumerate(arms):
            costs = [record[arm]["loss"] - record["whole"]["loss"] for record in records("coarsen")]
            right.plot([n] * len(costs), costs, linestyle="", color="C0", marker="o")
        right.set(ylabel="added test loss", title="a quarter of the blocks dropped", yscale="symlog")
        right.set_xticks(range(len(arms)), [arm.replace(" ", "\n") for arm in arms])
        write_figure(picture, folder / "depth_runs.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["run", "page"])
    parser.add_argument("--out", type=Path, help="the folder of all runs, outside the repository")
    options = parser.parse_args()
    if options.name == "page":
        print(summary())
        draw()
        return
    if options.out is None:
        parser.error("--out FOLDER is needed")
    for record in everything_in_turn(options.out):
        with RESULTS.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
