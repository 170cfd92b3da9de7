"""Depth is time: three experiments, `python results/depth.py NAME --out FOLDER`; resumable, one record for each run.

The protocol, fixed before the runs (a change after that is a commit of its own):

multilevel  A narrow pre-activation ResNet of depth 56 (8, 16, 32 channels) on digits, 12 epochs of the `digits` recipe,
            seeds 0 to 9. Arms: "full", depth 56 throughout; "levels", 4 epochs each of depth 20, 38, 56; "cut", depth
            56 for 8 epochs, which takes about as long as "levels". Measured: test error after the last epoch,
            processor seconds of the process. Claim: the error of "levels" is that of "full" or better (95 % interval of
            the paired difference below +0.5 points) in at most 0.75 of its processor time.
coarsen     The ten "full" networks. A quarter of their blocks goes, chosen on 300 training images without labels.
            Arms: "plain" removal; "passed on", where the block before takes over the time; "refitted" step sizes;
            "random" blocks (one draw), plain and refitted. Measured: test error and test loss minus those of the whole
            network. Claim: "refitted" costs at most half of what "plain" costs, in test loss.
transfer    GPTs of 4, 8, 16, 32 layers of width 32 on the characters of CPython's `pydoc_data.topics`, 150 steps of
            AdamW with batches of 8 x 64 characters, learning rates 2^-11 to 2^-5 in steps of 2, warm-up of 15 steps,
            then linear to 0; seeds 0 and 1. Arms: "plain"; "1/L" and "1/sqrt(L)" from a base depth of 4. Measured: mean
            training loss of the last 20 steps. Claim: with a rule the best rate stays within a factor of 2 of that of
            depth 4.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stepnet
from stepnet.data import get_data
from stepnet.data.batches import Batches
from stepnet.nets.blocks import basic
from stepnet.nets.coarsening import choose, count_to_drop, distance, fit, outputs
from stepnet.nets.refinement import depths_of, regrid
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.training import Recipe

HERE = Path(__file__).parent
RESULTS = HERE / "depth.jsonl"
SEEDS = range(10)
DEPTHS, RATES = (4, 8, 16, 32), [2.0**-e for e in range(11, 4, -1)]

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
        wanted = outputs(whole, some)
        count = count_to_drop(depths_of(whole), 0.75, None)
        found = {"whole": figures(whole, images, labels)}
        for name, drawn in (("", None), ("random ", seed)):
            choice = choose(whole, count, some, at_random=drawn)
            plain, passed_on = (regrid(whole, choice.grid(passed_on=each)) for each in (False, True))
            best = min((plain, passed_on), key=lambda each: distance(outputs(each, some), wanted))
            networks = {"plain": plain, "passed on": passed_on, "refitted": fit(best, some, wanted)}
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
    from pydoc_data import topics

    text = "".join(topics.topics[name] for name in sorted(topics.topics))
    letters = sorted(set(text))
    tokens = torch.tensor([letters.index(c) for c in text])
    for seed in (0, 1):
        for depth in DEPTHS:
            for rule in ("plain", "1/L", "1/sqrt(L)"):
                for rate in RATES if depth > 4 or rule == "plain" else ():  # at the base depth a rule changes nothing
                    key = {"experiment": "transfer", "rule": rule, "depth": depth, "lr": rate, "seed": seed}
                    if not known(key):
                        yield {**key, **train_gpt(tokens, len(letters), depth, rule, rate, seed)}


def train_gpt(tokens: Tensor, letters: int, depth: int, rule: Any, rate: float, seed: int) -> dict[str, float]:
    steps, warmup = 150, 15
    torch.manual_seed(seed)
    network = stepnet.create_model(f"gpt{depth}x32", num_classes=letters, context=64)
    groups: list[dict[str, Any]] = [{"params": list(network.parameters()), "lr": rate, "weight_decay": 0.1}]
    if rule != "plain":
        network, groups = stepnet.depth_transfer(network, 4, rule, lr=rate, weight_decay=0.1)
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min(1.0, (n + 1) / warmup, (steps - n) / (steps - warmup))
    )
    generator = torch.Generator().manual_seed(seed)  # the batches are those of every other run
    losses = []
    for _ in range(steps):
        starts = torch.randint(len(tokens) - 65, (8,), generator=generator)
        batch = torch.stack([tokens[i : i + 65] for i in starts.tolist()])
        loss = F.cross_entropy(network(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    mean = sum(losses[-20:]) / 20
    return {"loss": round(mean, 4) if mean == mean else 1e9}


def known(key: dict[str, Any]) -> bool:
    """Whether there is a record of this run."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return any(all(record.get(name) == value for name, value in key.items()) for record in map(json.loads, lines))


EXPERIMENTS = {"multilevel": multilevel, "coarsen": coarsening, "transfer": transfer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=EXPERIMENTS)
    parser.add_argument("--out", type=Path, required=True, help="the folder of all runs, outside the repository")
    options = parser.parse_args()
    for record in EXPERIMENTS[options.name](options.out):
        with RESULTS.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
