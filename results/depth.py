"""Depth is time: three experiments, `python results/depth.py NAME --out FOLDER`; resumable, one record for each run.

The protocol, fixed before the runs (a change after that is a commit of its own):

multilevel  A narrow pre-activation ResNet of depth 56 (8, 16, 32 channels) on digits, 12 epochs of the `digits` recipe,
            seeds 0 to 3. Arms: "full", depth 56 throughout; "levels", 4 epochs each of depth 20, 38, 56; "cut", depth
            56 for 8 epochs, which takes about as long as "levels". Measured: test error after the last epoch,
            processor seconds of the process. Claim: the error of "levels" is that of "full" or better (95 % interval of
            the paired difference below +0.5 points) in at most 0.75 of its processor time.
coarsen     The "full" networks. A quarter of their blocks goes, chosen on 300 training images without labels.
            Arms: "plain" removal; "passed on", where the block before takes over the time; "refitted" step sizes;
            "random" blocks (one draw), plain and refitted. Measured: test error and test loss minus those of the whole
            network. Claim: "refitted" costs at most half of what "plain" costs, in test loss.
transfer    The narrow ResNet at depths 14, 26 and 50 (6, 12, 24 blocks), 4 epochs of the `digits` recipe, rates of
            0.025 to 0.8 in steps of 2, seed 0. Arms: "plain"; "1/L" and "1/sqrt(L)" from a base depth of 14. Measured:
            training loss of the last epoch. Claim: with a rule the best rate stays within a factor of 2 of that of
            depth 14.

Changed before the runs of "coarsen" and "transfer", as the machine gave a quarter of a core: seeds 0 to 3 in place of
0 to 9 (two of them had been run). "transfer" was to be GPTs of 4 to 32 layers on characters: 18 runs of 100 steps, all
that the machine allowed, ended at losses of 3.00 to 3.27, about the entropy of single characters, whatever the rate,
and say nothing about it; it was changed to ResNets on digits before any of these was run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from scipy.stats import t
from torch import Tensor, nn

import stepnet
from stepnet.data import get_data
from stepnet.data.batches import Batches
from stepnet.nets.blocks import basic
from stepnet.nets.coarsening import choose, count_to_drop, outputs, refitted
from stepnet.nets.refinement import depths_of, on_grid, regrid
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.training import Recipe

HERE = Path(__file__).parent
RESULTS = HERE / "depth.jsonl"
SEEDS = range(4)
DEPTHS, RATES = (14, 26, 50), [0.025 * 2**n for n in range(6)]

BACKBONE = Backbone(basic, (8, 16, 32), (9, 9, 9), stem_width=8, pre_activation=True)
stepnet.register_model("narrow56", family="narrow")(partial(ResidualNetwork, BACKBONE))

DIGITS = Recipe(epochs=12, batch_size=64, lr=0.1, schedule="one_cycle", milestones=(), decay_vectors=False)
ARMS: dict[str, dict[str, Any]] = {"full": {}, "levels": {"levels": (20, 38, 56)}, "cut": {"epochs": 8}}


def multilevel(out: Path) -> Iterator[dict[str, Any]]:
    for seed in SEEDS:
        for arm, changes in ARMS.items():
            key = {"experiment": "multilevel", "arm": arm, "seed": seed}
            if known(key):
                continue
            began = time.process_time()
            recipe = DIGITS.override(changes)
            run = stepnet.train("narrow56", "digits", recipe, out=out / f"{arm}{seed}", seed=seed, overwrite=True)
            seconds = time.process_time() - began
            last = run.metrics()[-1]
            yield {**key, "cpu_seconds": round(seconds, 2), "error": last["test_error"], "loss": last["test_loss"]}


def coarsening(out: Path) -> Iterator[dict[str, Any]]:
    data = get_data("digits")
    images, labels = everything(data.test, data)
    some = everything(data.train, data)[0][:300]
    for seed in SEEDS:
        folder = out / f"full{seed}"
        key = {"experiment": "coarsen", "seed": seed}
        if known(key) or not (folder / "model.safetensors").exists():
            continue
        whole = stepnet.load(folder)
        count = count_to_drop(on_grid(whole), 0.75, None)
        found = {"whole": figures(whole, images, labels)}
        for name, drawn in (("", None), ("random ", seed)):
            choice = choose(whole, count, some, at_random=drawn)
            plain, passed_on = (regrid(whole, choice.grid(passed_on=each)) for each in (False, True))
            networks = {"plain": plain, "passed on": passed_on, "refitted": refitted(whole, choice, some)}
            found |= {f"{name}{arm}": figures(network, images, labels) for arm, network in networks.items()}
        yield {**key, "blocks": sum(depths_of(whole)), "dropped": count, **found}


def everything(source: Any, data: Any) -> tuple[Tensor, Tensor]:
    parts = list(Batches(source, data.normalise, 500).epoch())
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def figures(network: nn.Module, images: Tensor, labels: Tensor) -> dict[str, float]:
    logits = outputs(network, images)
    error = 100 * float((logits.argmax(1) != labels).double().mean())
    return {"error": round(error, 3), "loss": round(float(F.cross_entropy(logits, labels)), 5)}


def transfer(out: Path) -> Iterator[dict[str, Any]]:
    for depth in DEPTHS:
        for rule in ("plain", "1/L", "1/sqrt(L)"):
            for rate in RATES if depth > DEPTHS[0] or rule == "plain" else ():  # a rule changes nothing there
                key = {"experiment": "transfer", "rule": rule, "depth": depth, "lr": rate, "seed": 0}
                if known(key):
                    continue
                rules = {} if rule == "plain" else {"tuned_at_depth": DEPTHS[0], "depth_rule": rule}
                blocks = (depth - 2) // 6
                run = stepnet.train(
                    "narrow56",
                    "digits",
                    DIGITS.override({"epochs": 4, "lr": rate, **rules}),
                    out=out / f"transfer-{rule.replace('/', '_')}-{depth}-{rate}",
                    overwrite=True,
                    model_kwargs={"depths": [blocks] * 3},
                )
                yield {**key, "loss": round(run.metrics()[-1]["loss"], 4)}


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
    """The loss by rule, depth and rate."""
    found: dict[str, dict[int, dict[float, float]]] = {"none": {}, "1/L": {}, "1/sqrt(L)": {}}
    for rule, own in found.items():
        for depth in DEPTHS:
            name = "plain" if rule == "none" or depth == DEPTHS[0] else rule
            own[depth] = {r["lr"]: r["loss"] for r in records("transfer") if (r["rule"], r["depth"]) == (name, depth)}
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


EXPERIMENTS = {"multilevel": multilevel, "coarsen": coarsening, "transfer": transfer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*EXPERIMENTS, "page"])
    parser.add_argument("--out", type=Path, help="the folder of all runs, outside the repository")
    options = parser.parse_args()
    if options.name == "page":
        print(summary())
        draw()
        return
    if options.out is None:
        parser.error("--out FOLDER is needed")
    for record in EXPERIMENTS[options.name](options.out):
        with RESULTS.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
