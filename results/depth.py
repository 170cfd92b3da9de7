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
            A second set, written at 10:40 UTC on 18 November 2026, after the first and before its runs: on seeds 0 to 9
            the shares were 0.752 and 0.764, so "shallower" trains longer at the shallow levels, 7, 3, 2 epochs on
            digits and 5, 3, 2 on characters. Seeds 10 to 19 of "full" and "shallower", the same claim and rule. One
            set of each task with seed 100 was looked at to choose the epochs: digits 5.33 % at full depth (11.4 s),
            3.33 % with 6, 4, 2 (8.9 s), 5.00 % with 7, 3, 2 (8.2 s); characters 2.202 (15.3 s), 2.206 with 4, 3, 2
            (9.4 s), 2.158 with 5, 3, 2 (10.4 s).
            A third set, of characters, written at 15:25 UTC on 18 November 2026, before its runs: in the second the
            interval ended at +0.021, by one seed, 16, at +0.124. That run was repeated and looked at: its 2-layer
            network stayed at a loss of 3.3, that of the letters' frequencies, for about 40 steps longer than others
            (3.05 in the second epoch, where seed 13 has 2.56). There is no spike, and no refinement raised the test
            loss. Of 8 other starts of 2 layers none was like it. The other nine pairs are at -0.045 +-
            0.038. So "shallower" is repeated as it is, seeds 20 to 29, with the same claim and rule on these ten pairs
            alone. What all 20 pairs say is printed too, but is not the verdict: it was looked at in between.
            Put off at 15:49 UTC, after seed 20 (-0.004 nats at 0.72): the machine gave these runs 0.06 of a core, and
            the second set of "coarsen" goes first. Taken up at 18:15 UTC on another machine, before its runs: both
            networks of a pair are trained on one machine, so the seeds are now 30 to 39, "full" and "shallower".
coarsen     The "full" networks of both. A quarter of their blocks goes (7 of 27; 2 of 8 layers), chosen on 100 training
            images (32 training sequences) without labels. Arms: "plain" removal; "passed on", where the block before
            takes over the time; "refitted" step sizes; "random" blocks (one draw), plain and refitted. Measured: test
            loss minus that of the whole network, and the same for the error. Claim: "refitted" costs at most half of
            what "plain" costs. It "holds" if the 95 % interval of cost(refitted) - cost(plain) / 2 ends below 0, it
            "does not hold" if that begins above 0; else "inconclusive".
            A second set, written at 15:25 UTC on 18 November 2026, before its runs: on characters "refitted" did not
            halve the cost. "matrix" fits a matrix for each step to the states of the whole network by least squares
            (`refit="matrix"`), on the same inputs, with the blocks that "plain" drops. The "full" networks of seeds 20
            to 29 of both tasks, arms "plain", "refitted" and "matrix", and the same claim and rule for "matrix". Looked
            at to choose it, the costs plain, refitted, matrix: characters, seeds 100 and 102, +0.076, +0.071, +0.034
            and +0.062, +0.037, +0.012 (seed 101 by a trial of the same fit: +0.035, +0.028, +0.012; a number by least
            squares +0.025, one for each channel +0.020, the whole last layer +0.006); digits, seeds 100 and 101,
            +0.131, +0.054, +0.029 and +0.246, +0.031, -0.017.
exit        The "full" networks of digits of seeds 20 to 29: test error and mean steps of an image with
            `network(x, exit=tolerance)`, at the tolerances of `stepnet figure exit`. Written before its runs, with no
            claim. Of seed 100 it was seen that 27 steps and 3.67 % become 26.4 and 3.67 % at 0.1, 21.8 and 10.00 % at
            0.15, 14.7 and 39.67 % at 0.2.
transfer    GPTs of 4, 8, 16, 32 layers of width 32 on Shakespeare, 200 steps of the `text` recipe with batches of 8,
            seed 0. Rules: none, 1/L, 1/sqrt(L), tuned at 4 layers. Rates 0.01 * 2^n: at each depth the best one at 4
            layers with its two neighbours, and further while the best is the last on its side. Measured: mean training
            loss of the last 50 steps. Claim: with a rule the best rate at 8, 16 and 32 layers is within a factor of 2
            of that at 4.

What was known before: on digits, 4 seeds of 4 + 4 + 4 epochs gave -1.25 +- 0.91 points at 0.77 of the time, and four
networks a cost of 0.09 +- 0.11 refitted against 0.21 +- 0.20 plain. Building networks took part of that time; fewer are
built now, the shallow levels have more epochs, and the first run in a process, which imports, is not counted. On
characters, others had seen -0.106 nats at 0.94 of the time (150 + 250 + 400 steps of 3, 6, 12 layers against 600) and
+0.033 at 0.65; of this protocol's network, one pair with seed 100 was looked at: 600 steps at full depth, test loss
2.080, and 200 + 200 + 250 steps of 2, 4, 8 layers, 2.069 at 0.72 of the time. Transfer: of ResNets with batch norm on
digits, depths 14 to 50, one seed, 4 epochs, the best rate stayed within a factor of 2 without a rule, and moved by 4
with either (their records stay in the file); 100 steps of GPTs were too few to say anything.

The machine is shared (a trial had 0.11 of a core), which is why networks and runs are this small: what is complete at
the end of the session is counted, seeds in their order.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tools import DOCS, RESULTS, with_part
from torch import Tensor, nn

import stepnet
from stepnet.commands.columns import markdown_table
from stepnet.data import Data, get_data
from stepnet.data.batches import Batches
from stepnet.nets.blocks import basic
from stepnet.nets.coarsening import choose, count_to_drop, outputs, refitted
from stepnet.nets.network_grid import depths_of, on_grid, regrid
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.report.depth_studies import exit_study
from stepnet.training import Recipe, get_recipe
from stepnet.training.histories import PairedDifferences

RECORDS, PAGE = RESULTS / "depth.jsonl", DOCS / "depth.md"
MEASURED = "<!-- Below this line: made by `python results/depth.py page`. -->"
OPENING = """## What was measured

The protocol stands in `results/depth.py` and was committed before the runs, with what was known by
then; the records are `results/depth.jsonl`. Intervals are Student's, 95 %."""
LEVELS = """In the first set both shares of the time lie a little above 0.75: each level builds, checks and saves a
network of its own, and a short epoch is evaluated and saved as often as a long one, in runs of ten
seconds. The second set trains longer at the shallow levels. All runs shared two cores with other work,
and the shares of single seeds scatter. In the second set of characters one pair lies far from the others:
its 2-layer network stayed longer at the loss of the letters' frequencies, before any refinement, and
never made up for it. A refinement itself raised no test loss there. The third set repeats the second on
other seeds and another machine, and by itself it is the verdict."""
COARSEN = """To pass a dropped block's time on to its neighbour without a fit, as the paper's sentence says
literally, is worse than to drop it, on both tasks: blocks of a trained network are not samples of one
smooth $f(t, u)$. On digits the fit makes up for most of the loss. On characters it helps little: two of
eight layers are a larger part, and a fit has one number for each sublayer. A matrix for each does what a
number cannot:"""
MATRIX = """In this second set, on other networks, each step has a matrix in place of a number, fitted to the states of
the whole network (`refit="matrix"`) on the same inputs, with the same blocks dropped. It needs no
gradients, and changes the weights of the last layers."""
EXIT = """A ResNet that was trained to take all of its steps needs them: to its end each of them changes the state, and
an image that stops early misses what the last blocks do. The exit does not replace `coarsen`, which drops a
quarter of the steps of all images at less cost."""
TRANSFER = """One seed and 200 steps: a factor of 2 is one place of the grid of rates, and the second table says more
than the first. With the best rate of 4 layers the loss of deeper networks is higher without a rule, and
stays lowest with $1/\\sqrt{L}$."""
BATCH_NORM = (
    "The first set of runs, of ResNets with batch norm on digits, for which the rules were not made (one seed):"
)
CLOSING = "Data: `results/depth.jsonl`; tables, verdicts and pictures: `python results/depth.py page`."
TIME = 0.75  # the share of the full depth's processor time
DROPPED = ("plain", "passed on", "refitted", "random plain", "random refitted")  # as in the protocol
MATRIX_DROPPED = ("plain", "refitted", "matrix")  # of the second set
SEEDS, CUT_SEEDS, SECOND_SEEDS, THIRD_SEEDS = range(10), range(5), range(10, 20), range(30, 40)
MATRIX_SEEDS = range(20, 30)  # of the networks in the second set of "coarsen", and of "exit"
LEVEL_ARMS = ("levels", "shallower", "repeated")  # of the three sets
LEGEND = {
    "full": "full depth",
    "levels": "levels, first set",
    "cut": "full depth, fewer epochs",
    "shallower": "levels, second set",
    "repeated": "levels, third set",
}
RULES, LAYERS, RATE = ("none", "1/L", "1/sqrt(L)"), (4, 8, 16, 32), 0.01
NAMES = {"none": "no rule", "plain": "no rule"}  # on the page
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
    shallower: tuple[int, ...]  # level_epochs of the second set
    cut: int  # epochs of the full depth that take about as long
    figure: str  # that counts in "multilevel"
    unit: str
    digits: int
    margin: float
    examples: int  # on which blocks are chosen

    @property
    def title(self) -> str:
        return f"{self.name}, {'ResNet of depth 56' if self.name == 'digits' else 'GPT of 8 layers'}"

    def words(self, arm: str) -> str:
        """An arm in words."""
        if arm in LEVEL_ARMS:
            levels, epochs = (", ".join(map(str, each)) for each in (self.levels, self.epochs_of(arm)))
            return f"depths {levels}: {epochs} epochs{', third set' * (arm == 'repeated')}"
        return f"full depth, {self.recipe.epochs if arm == 'full' else self.cut} epochs"

    def epochs_of(self, arm: str) -> tuple[int, ...]:
        return self.level_epochs if arm == "levels" else self.shallower

    def changes(self, arm: str) -> dict[str, Any]:
        """What an arm changes in the recipe."""
        if arm in LEVEL_ARMS:
            epochs = self.epochs_of(arm)
            return {"levels": self.levels, "level_epochs": epochs, "epochs": sum(epochs)}
        return {} if arm == "full" else {"epochs": self.cut}

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


DIGITS, TEXT = get_recipe("digits"), get_recipe("text").override({"epochs": 8, "epoch_steps": 50})
TASKS = {
    task.name: task
    for task in (
        Task("digits", "narrow56", DIGITS, (20, 38, 56), (5, 4, 3), (7, 3, 2), 8, "error", "points", 2, 0.5, 100),
        Task("characters", "gpt8x32", TEXT, (2, 4, 8), (3, 3, 3), (5, 3, 2), 6, "loss", "nats", 3, 0.02, 32),
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
        stepnet.train(
            task.model, data, task.recipe.override(changes), out=folder, seed=seed, overwrite=True, quiet=True
        )
        seconds = time.process_time() - began
        yield {**key, "cpu_seconds": round(seconds, 2), **figures(stepnet.load(folder), *task.tested())}


def coarsening(task: Task, seed: int, out: Path) -> Iterator[dict[str, Any]]:
    key = {"experiment": f"coarsen {task.name}", "seed": seed}
    if known(key):
        return
    whole, some, tested = stepnet.load(out / f"{task.name}-full{seed}"), task.some(), task.tested()
    count = count_to_drop(on_grid(whole), 0.75, None)
    found = {"whole": figures(whole, *tested)}
    if seed in MATRIX_SEEDS:
        choice = choose(whole, count, some)
        found["plain"] = figures(regrid(whole, choice.grid(passed_on=False)), *tested)
        found["refitted"] = figures(refitted(whole, choice, some), *tested)
        found["matrix"] = figures(refitted(whole, choice, some, "matrix"), *tested)
        yield {**key, "blocks": sum(depths_of(whole)), "dropped": count, **found}
        return
    for name, drawn in (("", None), ("random ", seed)):
        choice = choose(whole, count, some, at_random=drawn)
        plain, passed_on = (regrid(whole, choice.grid(passed_on=each)) for each in (False, True))
        networks = {"plain": plain, "passed on": passed_on, "refitted": refitted(whole, choice, some)}
        found |= {f"{name}{arm}": figures(network, *tested) for arm, network in networks.items()}
    yield {**key, "blocks": sum(depths_of(whole)), "dropped": count, **found}


def exiting(seed: int, out: Path) -> Iterator[dict[str, Any]]:
    key = {"experiment": "exit digits", "seed": seed}
    if not known(key):
        network, (images, labels) = stepnet.load(out / f"digits-full{seed}"), TASKS["digits"].tested()
        found = exit_study(network, images, labels)
        yield {**key, "exits": [[tolerance, round(p.steps, 3), round(p.error, 3)] for tolerance, p in found.items()]}


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
        run = stepnet.train(
            f"gpt{depth}x32", TASKS["characters"].data(), recipe, out=folder, overwrite=True, quiet=True
        )
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
        (SECOND_SEEDS, ("full", "shallower"), ()),
    ):
        for seed in seeds:
            for task in TASKS.values():
                yield from multilevel(task, seed, arms, out)
                if seed in SEEDS and "full" in arms:
                    yield from coarsening(task, seed, out)
        for depth in depths:
            yield from transfer(depth, out)
    for seed in THIRD_SEEDS:
        yield from multilevel(TASKS["characters"], seed, ("full", "shallower"), out)
    for name in ("characters", "digits"):
        for seed in MATRIX_SEEDS:
            yield from multilevel(TASKS[name], seed, ("full",), out)
            yield from coarsening(TASKS[name], seed, out)
    for seed in MATRIX_SEEDS:
        yield from exiting(seed, out)


def records(experiment: str) -> list[dict[str, Any]]:
    """What was measured."""
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    return [record for record in map(json.loads, lines) if record["experiment"] == experiment]


def known(key: dict[str, Any]) -> bool:
    """Whether there is a record of this run."""
    return any(all(record.get(name) == value for name, value in key.items()) for record in records(key["experiment"]))


def page() -> str:
    """docs/depth.md as it stands, with what was measured."""
    parts = [OPENING, *multilevel_section(), *coarsen_section(), *exit_section(), *transfer_section(), CLOSING]
    return with_part(PAGE.read_text(), MEASURED, "\n\n".join(parts))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(markdown_table(headings, rows))


def multilevel_section() -> list[str]:
    if not records("multilevel characters"):
        return []
    parts = ["### From shallow to deep", "![Test error and test loss against processor time](figures/depth_levels.svg)"]
    for task in TASKS.values():
        arms = by_arm(task)
        full = arms["full"]
        if not arms["levels"]:
            continue
        headings = (task.title, "seeds", "processor time", f"test {task.figure}", "minus full depth, same seeds")
        rows = []
        for arm, runs in arms.items():
            if runs:
                gaps = PairedDifferences.between(runs, full, task.figure)
                cells = [f"{task.words(arm)}", str(len(runs)), f"{time_share(runs, full):.3f}", mean(runs, task)]
                rows.append([*cells, "" if arm == "full" else gaps.interval(task.digits)])
        parts += [table(headings, rows), *(levels_verdict(task, arm) for arm in LEVEL_ARMS if arms[arm])]
        if arms["repeated"]:
            both = arms["shallower"] | arms["repeated"]
            gaps, share = PairedDifferences.between(both, full, task.figure), time_share(both, full)
            parts.append(
                f"All {len(gaps)} pairs of the second and the third set: {gaps.interval(task.digits)} {task.unit} at "
                f"{share:.3f} of the processor time."
            )
    return [*parts, LEVELS]


def levels_verdict(task: Task, arm: str) -> str:
    """By the rule of the protocol; and for the figure alone, without the time."""
    arms = by_arm(task)
    full, levels = arms["full"], arms[arm]
    gaps, share = PairedDifferences.between(levels, full, task.figure), time_share(levels, full)
    figure = ("inconclusive", "not reached", "reached")[gaps.side_of(task.margin)]
    verdict = figure if share <= TIME else "not reached"
    return (
        f"{task.words(arm).capitalize()}: "
        f"what the full depth reaches, in at most {TIME} of its processor time: **{verdict}** ({len(gaps)} pairs; the "
        f"share is {share:.3f}). The {task.figure} by itself, to {task.margin:g} {task.unit}: **{figure}**."
    )


def readme_rows() -> list[str]:
    """What README.md says of it."""
    rows = []
    for task in TASKS.values():
        arms = by_arm(task)
        trained = [arm for arm in LEVEL_ARMS if arms[arm]]
        sets = {arm: PairedDifferences.between(arms[arm], arms["full"], task.figure) for arm in trained}
        shares = {arm: f"{time_share(arms[arm], arms['full']):.2f} of the processor time" for arm in trained}
        found = [f"{gaps.interval(task.digits)} {task.unit} at {shares[arm]}" for arm, gaps in sets.items()]
        repeated = f"; the same once more, {found[2]}" if len(found) > 2 else ""
        rows.append(
            f"| training shallow and refining against full depth throughout ({task.title}, "
            f"{' and '.join(str(len(gaps)) for gaps in sets.values())} pairs) | {task.figure} {found[0]}; with more "
            f"epochs of the shallow levels, on other seeds, {found[1]}{repeated}; [depth is time](docs/depth.md) | "
            "`python results/depth.py page` |"
        )
    networks = coarsened(TASKS["characters"], MATRIX_SEEDS)
    costs = ", ".join(f"{arm} {added_loss(networks, arm).interval(3)}" for arm in MATRIX_DROPPED)
    rows.append(
        f"| a quarter of the layers of a trained network dropped ({TASKS['characters'].title}, "
        f"{len(networks)} networks) | added test loss: {costs} nats (by removal alone, with refitted step sizes, "
        "with fitted matrices in their "
        "place); [depth is time](docs/depth.md#a-quarter-of-the-blocks-dropped) | `python results/depth.py page` |"
    )
    return rows


def coarsen_section() -> list[str]:
    if not records("coarsen characters"):
        return []
    found = [
        "### A quarter of the blocks dropped",
        "![What dropped blocks cost in test loss](figures/depth_coarsen.svg)",
        *(part for task in TASKS.values() for part in coarsen_rows(task, SEEDS, DROPPED, "refitted")),
        COARSEN,
    ]
    second = [part for task in TASKS.values() for part in coarsen_rows(task, MATRIX_SEEDS, MATRIX_DROPPED, "matrix")]
    return [*found, *second, MATRIX] if second else found


def coarsened(task: Task, seeds: range) -> dict[int, dict[str, Any]]:
    """The records of coarsened networks, by seed."""
    return {record["seed"]: record for record in records(f"coarsen {task.name}") if record["seed"] in seeds}


def coarsen_rows(task: Task, seeds: range, arms: tuple[str, ...], claimed: str) -> list[str]:
    """The table of a set of networks, and the verdict of the protocol on one of its arms."""
    networks = coarsened(task, seeds)
    if len(networks) < 2:
        return []
    first = next(iter(networks.values()))
    rows = [
        f"| {len(networks)} networks, {task.name}: {first['dropped']} of {first['blocks']} blocks dropped "
        "| test error | test loss | added test loss |",
        "| --- | --- | --- | --- |",
    ]
    for arm in ("whole", *arms):
        errors, losses = ([record[arm][figure] for record in networks.values()] for figure in ("error", "loss"))
        cost = "" if arm == "whole" else added_loss(networks, arm).interval(3)
        rows.append(f"| {arm} | {statistics.fmean(errors):.2f} % | {statistics.fmean(losses):.3f} | {cost} |")
    plain, fitted = (added_loss(networks, arm).by_seed for arm in ("plain", claimed))
    gaps = PairedDifferences({seed: fitted[seed] - plain[seed] / 2 for seed in plain})
    verdict = ("inconclusive", "does not hold", "holds")[gaps.side_of(0)]
    fewer = sum(gap < 0 for gap in gaps.by_seed.values())
    steps = "Refitted steps" if claimed == "refitted" else "Steps with a fitted matrix"
    text = (
        f"{steps} cost at most half of what plain removal costs: **{verdict}**. The mean of cost({claimed}) "
        f"- cost(plain) / 2 is {gaps.interval(3)}; it is below 0 on {fewer} "
        f"of {len(gaps)} networks."
    )
    return ["\n".join(rows), text]


def exit_section() -> list[str]:
    found = records("exit digits")
    if not found:
        return []
    rows = ["| tolerance | mean steps of an image | test error |", "| --- | --- | --- |"]
    for tolerance, steps, error in mean_exits(found):
        rows.append(f"| {tolerance:g} | {steps:.2f} | {error:.2f} % |")
    title = (
        f"`network(x, exit=tolerance)` on the ResNets of depth 56, digits, 27 steps: means of {len(found)} networks."
    )
    picture = "![Test error against the mean steps of an image](figures/depth_exit.svg)"
    return ["### Early exits", picture, title, "\n".join(rows), EXIT]


def mean_exits(found: list[dict[str, Any]]) -> list[tuple[float, float, float]]:
    """Tolerance, steps and error, each the mean over the networks."""
    by_tolerance = zip(*(record["exits"] for record in found), strict=True)
    return [tuple(map(statistics.fmean, zip(*points, strict=True))) for points in by_tolerance]


def by_arm(task: Task) -> dict[str, dict[int, dict[str, Any]]]:
    """The runs of a task, by arm and seed, without those whose networks serve "coarsen" and "exit" only."""
    arms: dict[str, dict[int, dict[str, Any]]] = {arm: {} for arm in ("full", "levels", "cut", "shallower", "repeated")}
    for record in records(f"multilevel {task.name}"):
        seed, arm = record["seed"], record["arm"]
        if seed not in MATRIX_SEEDS:
            arms["repeated" if arm == "shallower" and seed in THIRD_SEEDS else arm][seed] = record
    return arms


def time_share(own: dict[int, dict[str, Any]], full: dict[int, dict[str, Any]]) -> float:
    """The processor time over that of the full depth, for the seeds that both have."""
    seeds = own.keys() & full.keys()
    return sum(own[seed]["cpu_seconds"] for seed in seeds) / sum(full[seed]["cpu_seconds"] for seed in seeds)


def mean(own: dict[int, dict[str, Any]], task: Task) -> str:
    value = statistics.fmean(record[task.figure] for record in own.values())
    return f"{value:.{task.digits}f}{' %' if task.figure == 'error' else ''}"


def added_loss(networks: dict[int, dict[str, Any]], arm: str) -> PairedDifferences:
    sides = ({seed: record[each]["loss"] for seed, record in networks.items()} for each in (arm, "whole"))
    return PairedDifferences.of(*sides)


def transfer_losses() -> dict[str, dict[int, dict[float, float]]]:
    """The loss by rule, depth and rate; at the depth that the rates were tuned at, a rule changes nothing."""
    found: dict[str, dict[int, dict[float, float]]] = {rule: {depth: {} for depth in LAYERS} for rule in RULES}
    for record in records("transfer characters"):
        for rule in RULES if record["depth"] == LAYERS[0] else [record["rule"]]:
            found[rule][record["depth"]][record["lr"]] = record["loss"]
    return found


def transfer_section() -> list[str]:
    found = transfer_losses()
    tried = [depth for depth in LAYERS if any(found[rule][depth] for rule in RULES)]
    if not tried:
        return batch_norm_rows()
    layers = [f"{depth} layers" for depth in tried]
    rows = []
    for rule in RULES:
        cells, farthest = [], 0
        for depth in tried:
            losses = found[rule][depth]
            if not bracketed(losses):
                cells.append("not complete" if losses else "")
                continue
            n = best_rate(losses)
            cells.append(f"{RATE * 2.0**n:g} ({min(losses.values()):.3f})")
            farthest = max(farthest, abs(n - best_rate(found[rule][LAYERS[0]])))
        rows.append([NAMES.get(rule, rule), *cells, f"a factor of {2**farthest}"])
    rate = min(found["none"][LAYERS[0]], key=found["none"][LAYERS[0]].__getitem__)
    carried = []
    for rule in RULES:
        cells = [f"{found[rule][depth][rate]:.3f}" if rate in found[rule][depth] else "" for depth in tried]
        carried.append([NAMES.get(rule, rule), *cells])
    return [
        "### A learning rate from 4 layers to 32",
        "![Training loss against learning rate, by depth](figures/depth_transfer.svg)",
        table(("best learning rate (loss)", *layers, "farthest from 4 layers"), rows),
        transfer_verdict(),
        table((f"loss at {rate:g}, the best rate of 4 layers", *layers), carried),
        TRANSFER,
        *batch_norm_rows(),
    ]


def bracketed(losses: dict[float, float]) -> bool:
    """Whether rates on both sides of the best one were tried."""
    return len(losses) > 2 and min(losses, key=losses.__getitem__) not in (min(losses), max(losses))


def transfer_verdict() -> str:
    sentences = []
    for rule, depths in transfer_losses().items():
        done = [depth for depth in LAYERS[1:] if bracketed(depths[depth])]
        if not done or not bracketed(depths[LAYERS[0]]):
            continue
        first = best_rate(depths[LAYERS[0]])
        holds = all(abs(best_rate(depths[depth]) - first) <= 1 for depth in done)
        name = "without a rule" if rule == "none" else f"with {rule}"
        layers = ", ".join(map(str, done))
        sentences.append(f"{name} **{'it does' if holds else 'it does not'}** ({layers} layers)")
    return f"The best rate stays within a factor of 2 of that of 4 layers: {'; '.join(sentences)}."


def batch_norm_rows() -> list[str]:
    """The first set of runs: narrow ResNets with batch norm on digits."""
    depths, what = (14, 26, 50), "ResNets with batch norm, digits: best learning rate (loss)"
    rows = []
    for rule in ("plain", *RULES[1:]):
        cells = []
        for depth in depths:
            wanted = (rule if depth > 14 else "plain", depth)
            tried = [record for record in records("transfer") if (record["rule"], record["depth"]) == wanted]
            best = min(tried, key=lambda record: record["loss"])
            cells.append(f"{best['lr']:g} ({best['loss']:.3f})")
        rows.append([NAMES.get(rule, rule), *cells])
    return [BATCH_NORM, table((what, *(f"depth {depth}" for depth in depths)), rows)]


def draw() -> None:
    """The pictures of docs/depth.md."""
    from stepnet.report.depth_studies import ExitPoint, plot_exit, plot_transfer
    from stepnet.report.figures import legend_above, panels, paper_style, write_figure

    folder = DOCS / "figures"
    with paper_style(2):
        if records("transfer characters"):
            write_figure(plot_transfer(transfer_losses()), folder / "depth_transfer.svg")
        picture, axes = panels(2)
        for own, task in zip(axes, TASKS.values(), strict=True):
            for arm, runs in by_arm(task).items():
                seconds, values = ([run[each] for run in runs.values()] for each in ("cpu_seconds", task.figure))
                own.plot(seconds, values, linestyle="", label=LEGEND[arm])
            own.set(xlabel="processor seconds", ylabel=f"test {task.figure}{' (%)' * (task.figure == 'error')}")
            own.set(title=task.title, xlim=(0, None))
        legend_above(picture, max((own.get_legend_handles_labels()[0] for own in axes), key=len))
        write_figure(picture, folder / "depth_levels.svg")
        picture, axes = panels(2)
        for own, task in zip(axes, TASKS.values(), strict=True):
            arms = (*DROPPED, "matrix")
            for n, arm in enumerate(arms):
                networks = {r["seed"]: r for r in records(f"coarsen {task.name}") if arm in r}
                costs = added_loss(networks, arm).by_seed.values()
                own.plot([n] * len(costs), list(costs), linestyle="", color="C0", marker="o")
            own.set(title=task.title)
            own.set_yscale("symlog", linthresh=0.1)
            own.set_yticks((0, 0.1, 0.3, 1, 3), ("0", "0.1", "0.3", "1", "3"))
            own.minorticks_off()
            own.set_xticks(range(len(arms)), [arm.replace(" ", "\n") for arm in arms])
        axes[0].set_ylabel("added test loss")
        write_figure(picture, folder / "depth_coarsen.svg")
    if found := records("exit digits"):
        points = {tolerance: ExitPoint(steps, error) for tolerance, steps, error in mean_exits(found)}
        with paper_style(1):
            write_figure(plot_exit({f"ResNet of depth 56, {len(found)} networks": points}), folder / "depth_exit.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["run", "page"])
    parser.add_argument("--out", type=Path, help="the folder of all runs, outside the repository")
    options = parser.parse_args()
    if options.name == "page":
        PAGE.write_text(page())
        draw()
        return
    if options.out is None:
        parser.error("--out FOLDER is needed")
    for record in everything_in_turn(options.out):
        with RECORDS.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
