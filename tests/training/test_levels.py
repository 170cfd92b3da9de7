"""Multilevel training: each network is refined into the next, and a run that is stopped anywhere resumes to the bit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

import stepnet
from stepnet.errors import UserError
from stepnet.nets.blocks import basic
from stepnet.nets.model_registry import MODELS, register_model
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.training import Run, train
from stepnet.training import levels as levels_module
from stepnet.training.callbacks import Callback
from stepnet.training.describe import run_summary
from stepnet.training.saving import Interrupted
from stepnet.training.trainer import Trainer
from training.runs import StopAt, assert_same_run
from training.tiny import tiny_config


def levelled(**options: Any) -> ResidualNetwork:
    """Two stages of 4 blocks: depth 8, as its name counts."""
    return ResidualNetwork(Backbone(basic, (2, 2), (4, 4), stem_width=2, pre_activation=True), **options)


if "levelled8" not in MODELS:
    register_model("levelled8", family="test")(levelled)


def config(folder: Any, scheme: str = "lm", model: str = "levelled8", **changes: Any) -> Any:
    changes = {"epochs": 3, "epoch_steps": 2, "schedule": "one_cycle", "milestones": (), "levels": (4, 6, 8), **changes}
    return tiny_config(folder, model=model, scheme=scheme, recipe=changes)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: Any) -> tuple[Run, list[str]]:
    """A run that nothing stopped, and what it said."""
    log = Messages()
    return train(config(tmp_path_factory.mktemp("whole")), callbacks=[log]), log.lines


class Messages(Callback):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.lines.append(text)


def test_a_run_says_its_depth_at_the_start_and_in_every_line(tmp_path, whole) -> None:
    lines = [json.loads(line) for line in whole[0].metrics_file.read_text().splitlines()]
    assert [repr(line["depth"]) for line in lines] == ["4", "6", "8"]  # also of the lines written again on resuming
    settings = config(tmp_path)
    first = levels_module.levels_of(settings)[0]
    with Trainer(settings, resume=True, level=first) as trainer:
        (model,) = (line for line in run_summary(trainer) if line.startswith("model"))
    assert model.endswith(f"{sum(p.numel() for p in trainer.network.parameters()):,} parameters at depth 4")


def test_each_level_holds_out_the_same(tmp_path) -> None:
    """The second level was given what the first had left, and held out of that once more."""
    seen = []

    class Sizes(Callback):
        def epoch(self, trainer: Any, line: Any) -> None:
            seen.append((len(trainer.data.train), trainer.data.validation.places.tolist()))

    train(replace(config(tmp_path), holdout=0.2), callbacks=[Sizes()])
    assert len(seen) == 3 and seen[0] == seen[1] == seen[2]


def test_each_level_is_refined_into_the_next(whole) -> None:
    run, lines = whole
    assert lines == [
        "refined from depth 4 to 6: (3, 3) blocks",
        "refined from depth 6 to 8: (4, 4) blocks",
    ]
    assert [line["depth"] for line in run.metrics()] == [4, 6, 8]
    network = stepnet.load(run.folder)
    assert [len(stage.steps) for stage in network.stages] == [4, 4]
    assert network.description.options.keys() == {"num_classes", "in_channels", "scheme"}  # the named network itself


def test_a_run_resumes_to_the_bit_in_every_level(tmp_path, whole) -> None:
    for epoch in range(3):
        with pytest.raises(Interrupted):
            train(config(tmp_path), callbacks=[StopAt(epoch, 1)])
    assert_same_run(train(config(tmp_path)), whole[0])


@pytest.mark.parametrize("scheme", ["lm", "x0"])
def test_the_average_and_the_moments_of_adam_are_refined_too(tmp_path, scheme: str) -> None:
    changes = {"optimizer": "adamw", "lr": 0.01, "ema": 0.9, "levels": (4, 8), "epochs": 2, "scheme": scheme}
    with pytest.raises(Interrupted):
        train(config(tmp_path / "stopped", **changes), callbacks=[StopAt(1, 1)])
    assert_same_run(train(config(tmp_path / "stopped", **changes)), train(config(tmp_path / "whole", **changes)))


def test_a_run_that_ended_between_two_levels_goes_on(tmp_path, monkeypatch, whole) -> None:

    def fail(*args: object) -> None:
        raise RuntimeError("the power went off")

    with monkeypatch.context() as patch:
        patch.setattr("stepnet.training.loop.refine_checkpoint", fail)
        with pytest.raises(RuntimeError, match="power"):
            train(config(tmp_path / "stopped"))
    assert Run(tmp_path / "stopped").metrics()[-1]["depth"] == 4
    assert_same_run(train(config(tmp_path / "stopped")), whole[0])


def test_the_state_of_the_optimiser_goes_along_block_by_block(tmp_path, monkeypatch) -> None:
    """Of a block that comes twice with half its output: its last layer's momentum as it was, the others' halved."""
    seen: list[tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]] = []
    collect = levels_module.checkpoint.collect
    real = levels_module.refine_checkpoint

    def watch(trainer: Any, level: Any) -> None:
        def momentum(network: Any, optimizer: Any) -> dict[str, torch.Tensor]:
            return {n: optimizer.state[p]["momentum_buffer"].clone() for n, p in network.named_parameters()}

        def record(network: Any, optimizer: Any) -> Any:
            seen.append((momentum(trainer.network, trainer.optimizer), momentum(network, optimizer)))
            return collect(network, optimizer)

        with monkeypatch.context() as patch:
            patch.setattr(levels_module.checkpoint, "collect", record)
            real(trainer, level)

    monkeypatch.setattr("stepnet.training.loop.refine_checkpoint", watch)
    train(config(tmp_path, levels=(4, 8), epochs=2))
    ((old, new),) = seen
    for n in range(4):  # stage 0: blocks 0, 1 become 0, 0, 1, 1
        first, last = ("norms.0.weight", "convs.1.weight")
        assert torch.equal(new[f"stages.0.blocks.{n}.{last}"], old[f"stages.0.blocks.{n // 2}.{last}"])
        assert torch.equal(new[f"stages.0.blocks.{n}.{first}"], old[f"stages.0.blocks.{n // 2}.{first}"] / 2)
    assert torch.equal(new["stem.weight"], old["stem.weight"])
    assert torch.equal(new["stages.1.transition.block.norms.0.weight"], old["stages.1.transition.block.norms.0.weight"])
    assert new["stages.0.k"].tolist() == [0.0, *[float(old["stages.0.k"][0])] * 2]  # a start owns no k


@pytest.mark.parametrize("change", [stepnet.refine, lambda network: stepnet.coarsen(network, 0.75)])
def test_a_refined_or_coarsened_network_resumes_to_the_bit_and_loads(tmp_path, change: Any) -> None:
    recipe = tiny_config(tmp_path, recipe={"epoch_steps": 2}).recipe

    def run(name: str, **options: Any) -> Run:
        torch.manual_seed(0)
        network = change(stepnet.create_model("levelled8", scheme="lm", num_classes=10, in_channels=1))
        return train(network, "digits", recipe, out=tmp_path / name, quiet=True, **options)

    with pytest.raises(Interrupted):
        run("stopped", callbacks=[StopAt(1, 1)])
    assert_same_run(run("stopped"), run("whole"))
    loaded = stepnet.load(tmp_path / "whole")
    sizes = {dt for stage in loaded.stages for dt in stage.dts}
    assert sizes in ({0.5, 1.0}, {1.0, 2.0})


WRONG = [
    ({"levels": (6, 4, 8)}, r"levels = \(6, 4, 8\): expected rising depths"),
    ({"levels": (4, 6)}, r"end at depth 6, and levelled8 is the last level"),
    ({"levels": (5, 8)}, r"levelled8 at depth 5: expected 2n \+ 0, for example 2, 4, 6"),
    ({"levels": (2, 8)}, r"levels 2 and 8 of levelled8: a stage of 0 blocks beside its transition cannot be refined"),
    ({"levels": (2, 4, 6, 8)}, r"no more of them than the 3 epochs"),
    ({"levels": (4, 8), "scheme": "midpoint2"}, r"levels 4 and 8 of levelled8: scheme 'midpoint2' needs steps of one"),
    ({"levels": (4, 8), "scheme": "dense"}, r"'dense' learns weights of past states"),
    ({"model": "timm/resnet18"}, r"of timm/resnet18: expected a network of stepnet"),
    ({"level_epochs": (1, 1)}, r"level_epochs = \(1, 1\): expected 3 epochs in all, some for each of 3 levels"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_levels_that_cannot_be(tmp_path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        train(config(tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()
