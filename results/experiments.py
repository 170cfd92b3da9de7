"""The protocol of docs/results.md as data: what is trained for each claim. `run.py` trains it, `page.py` judges it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepnet.training import Recipe, TrainConfig, get_recipe
from stepnet.training.config import Label, file_name, read_label, write_label

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Network:
    """One side of an experiment."""

    model: str
    scheme: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """As `stepnet compare` takes it."""
        return write_label(Label(self.model, self.scheme, dict(self.options))).replace("'", "")

    def runs(self, runs: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """Its runs among those of results files, by seed."""
        wanted = (self.model, self.scheme, dict(self.options))
        return {run["seed"]: run for run in runs if (run["model"], run["scheme"], run.get("options", {})) == wanted}


@dataclass(frozen=True)
class Experiment:
    """The claim is that the others have a smaller error than the first; `effect` is the paper's own difference."""

    number: str  # in the protocol
    title: str
    claim: str
    files: tuple[str, ...]  # where its runs are recorded; its own is the last
    first: Network
    others: tuple[Network, ...]
    data: str
    recipe: Recipe
    seeds: int
    effect: float | None = None
    start: Network = Network("preact_resnet20")  # whose initial weights all have, where names and shapes agree
    begins_with: str | None = None  # the experiment whose first network's runs, seed by seed, are the initial weights
    known: tuple[Network, ...] = ()  # sides that an earlier experiment has trained
    beside: tuple[tuple[Network, Network], ...] = ()  # further pairs whose difference is told, without a verdict
    remark: str = ""  # where the runs were not made by the command

    @property
    def command(self) -> str:
        """That makes its runs."""
        return f"python results/run.py {self.number} --out RUNS"

    @property
    def networks(self) -> tuple[Network, ...]:
        """Those that are to be trained."""
        return tuple(network for network in (self.first, *self.others) if network not in self.known)

    def folder(self, network: Network, seed: int) -> Path:
        """Of one run, within the folder of all runs."""
        return Path(self.number) / f"{file_name(network.label)}-seed{seed}"

    def configs(self, out: Path, seeds: int) -> Iterator[TrainConfig]:
        """As `stepnet compare` makes them, seeds first: one recipe, the same batches, the same initial weights."""
        base = TrainConfig(
            self.first.model, self.data, recipe=self.recipe, start_like=write_label(read_label(self.start.label))
        )
        for seed in range(seeds):
            for network in self.networks:
                weights = None
                if self.begins_with is not None:
                    weights = str(out / EXPERIMENTS[self.begins_with].folder(self.first, seed))
                yield dataclasses.replace(
                    base,
                    model=network.model,
                    scheme=network.scheme,
                    model_kwargs=dict(network.options),
                    seed=seed,
                    weights=weights,
                    out=str(out / self.folder(network, seed)),
                )


PLAIN, LM = Network("preact_resnet20"), Network("lm_resnet20")
STABLE = Network("lm_resnet20", None, (("k_bound", "stable"),))
RELEASED = (("shortcut", "released"),)
TWO_STEPS = ("ab2", "midpoint2", "leapfrog")
DIGITS, FAST = get_recipe("digits"), get_recipe("fast").override({"epochs": 20})
EXPERIMENTS = {
    experiment.number: experiment
    for experiment in (
        Experiment(
            "0",
            "many seeds on digits",
            "the LM structure lowers the error of a network with the same blocks.",
            ("digits_pair.json",),
            PLAIN,
            (LM,),
            "digits",
            DIGITS,
            seeds=100,
            remark="These were made by `stepnet compare preact_resnet20 lm_resnet20 --data digits --seeds 100`, which "
            "sets the same configs.",
        ),
        Experiment(
            "0b",
            "other schemes on digits, at equal multiply-adds",
            "a scheme of two steps, or LM with k kept stable, lowers the error of a network with the same blocks.",
            ("digits_pair.json", "digits_schemes.json"),
            PLAIN,
            (STABLE, *(Network("preact_resnet20", name) for name in TWO_STEPS)),
            "digits",
            DIGITS,
            seeds=30,
            known=(PLAIN,),
            beside=((STABLE, LM),),
            remark="These runs (seeds 0 to 9, of the bounded LM 0 to 10) were trained at revision `ce7206f` by a "
            "script that set the same configs, the plain networks at `ea64464`. Seeds 0 to 2 of experiment 0, trained "
            "again later, gave the same means and deviations to the printed digits. `heun` was not run; nor was "
            "`nesterov`, which is not a scheme of the package but the example of [add a scheme](add_a_scheme.md).",
        ),
        Experiment(
            "1",
            "the pair on CIFAR-10",
            "LM-ResNet-20 has a smaller error than ResNet-20 (the paper: 8.33 against 8.75, quoted from He et al.).",
            ("cifar10_pair.json",),
            PLAIN,
            (LM,),
            "cifar10",
            FAST,
            seeds=3,
            effect=-0.42,
            remark="The first six epochs of seed 0 were trained by a script that set the same configs, at revision "
            "`be3cdc92af3f`. What made a revision `-dirty` is the results file, which the same command had written.",
        ),
        Experiment(
            "3",
            "conversion of a trained network",
            "a trained ResNet that goes on as an LM network gets better than one that goes on as it is.",
            ("cifar10_conversion.json",),
            PLAIN,
            (LM,),
            "cifar10",
            FAST.override({"epochs": 5, "lr": 0.02}),
            seeds=3,
            begins_with="1",
            remark="What made the revision `-dirty` is the results file of experiment 1, which the same command had "
            "written.",
        ),
        Experiment(
            "6",
            "as the released code has it, BN-ReLU-1x1 shortcuts",
            "with the released code's shortcuts in both networks, LM-ResNet-20 has a smaller error than ResNet-20.",
            ("cifar10_released.json",),
            Network("preact_resnet20", None, RELEASED),
            (Network("lm_resnet20", None, RELEASED),),
            "cifar10",
            FAST,
            seeds=1,
            effect=-0.42,
            start=Network("preact_resnet20", None, RELEASED),
        ),
        Experiment(
            "4",
            "fewer layers",
            "LM-ResNet-20 (0.27M) has a smaller error than ResNet-32 (0.46M). The paper does not claim this pair (8.33 "
            "against 7.51); its own are LM-ResNet-56 against ResNet-110, LM-ResNet-164 against ResNet-1001 and "
            "LM-ResNet-50 against ResNet-101.",
            ("cifar10_pair.json", "cifar10_depth.json"),
            Network("preact_resnet32"),
            (LM,),
            "cifar10",
            FAST,
            seeds=1,
            known=(LM,),
        ),
        Experiment(
            "2",
            "k kept stable on CIFAR-10",
            "keeping k where the scheme is stable lowers LM's error further.",
            ("cifar10_pair.json", "cifar10_stable.json"),
            LM,
            (STABLE,),
            "cifar10",
            FAST,
            seeds=3,
            known=(LM,),
        ),
    )
}
