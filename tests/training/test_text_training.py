"""A GPT on text: loss and figures by formulas, resumed to the bit, compared, evaluated, continued."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

import stepnet
from stepnet.cli import main
from stepnet.data import get_data
from stepnet.exchange.prediction import draw_token, generate
from stepnet.training import Recipe, Run, evaluate, train
from stepnet.training.recipes import default_recipe
from stepnet.training.saving import Interrupted
from stepnet.training.tasks import TASKS
from training.runs import StopAt, assert_same_run

TEXT = "".join(f"KING {n}.\nTo be, or not to be {n * n}?\n" for n in range(80))
RECIPE = Recipe(epochs=2, epoch_steps=4, batch_size=4, optimizer="adamw", lr=0.01, schedule="cosine", milestones=())
OPTIONS = {"context": 8, "scheme": "lm"}


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "play.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def run(play):
    return train("gpt2x8", play, RECIPE, out=play.with_name("run"), **OPTIONS)


def test_stopped_and_resumed_to_the_bit(play, run, tmp_path):
    with pytest.raises(Interrupted):
        train("gpt2x8", play, RECIPE, out=tmp_path / "stopped", **OPTIONS, callbacks=[StopAt(1, 2)])
    assert_same_run(train("gpt2x8", play, RECIPE, out=tmp_path / "stopped", **OPTIONS), run)


def test_figures_are_those_of_every_character_of_the_validation_part(run, play):
    network, data = stepnet.load(run.folder), get_data(play, context=8)
    part = TEXT[round(0.9 * len(TEXT)) :]
    tokens = torch.tensor([sorted(set(TEXT)).index(c) for c in part])
    losses = []
    with torch.no_grad():
        for start in range(0, len(tokens) - 8, 8):
            probabilities = network(tokens[None, start : start + 8])[0].double().softmax(1)
            losses += [-math.log(probabilities[n, tokens[start + n + 1]]) for n in range(8)]
    loss = float(np.mean(losses))
    last = run.metrics()[-1]
    assert last["test_loss"] == pytest.approx(loss, rel=1e-6)
    assert last["test_bits"] == pytest.approx(loss / math.log(2), rel=1e-6)
    assert last["test_perplexity"] == pytest.approx(math.exp(loss), rel=1e-6)
    found = evaluate(run)
    assert (found.loss, found.items) == (pytest.approx(loss, rel=1e-6), len(data.test))
    cost = run.config.network
    layers = 2 * (8 * (3 * 8 * 8 + 8 * 8 + 2 * 4 * 8 * 8) + 2 * 8 * 8 * 8)  # matrices, and queries with keys and values
    assert cost.multiply_adds == layers + 8 * 8 * data.num_classes and (cost.steps, cost.own_steps) == (4, 3)
    assert run.task.metric.name == "loss" and "sequences_per_second" in last


def test_label_smoothing_is_for_training_only(play):
    task = TASKS["next_token"](get_data(play, context=8))
    logits, targets = torch.randn(3, 8, 5), torch.randint(5, (3, 8))
    smooth = task.training_loss(logits, targets, Recipe(label_smoothing=0.1))
    uniform = -logits.log_softmax(2).mean(2).sum() / 8
    torch.testing.assert_close(smooth, 0.9 * task.loss(logits, targets) + 0.1 * uniform)


def test_from_the_command_line_to_a_report(play, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["--data", str(play), "--context", "8", "--epochs", "1", "--epoch-steps", "2", "--batch-size", "4"]
    assert main(["compare", "gpt1x8", "--schemes", "euler,lm,k=0", *flags, "--out", "c", "--report", "r.html"]) == 0
    out = capsys.readouterr().out
    assert (
        "sequences of 8, 26 tokens\n" in out
        and "test loss on" in out
        and "bits per character" in out
        and "wrote r.html" in out
    )
    assert main(["evaluate", "c/gpt1x8-lm-k=0-seed0", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["loss"] == pytest.approx(Run("c/gpt1x8-lm-k=0-seed0").metrics()[-1]["test_loss"], rel=1e-6)
    assert main(["generate", "c/gpt1x8-lm-k=0-seed0", "--prompt", "KING", "--length", "20"]) == 0
    assert len(capsys.readouterr().out) == len("KING") + 20 + 1
    assert main(["inspect", "c/gpt1x8-lm-k=0-seed0"]) == 0
    assert "was trained on text" in capsys.readouterr().out
    stepnet.save(stepnet.create_model("gpt1x8", scheme="x0", num_classes=3), "x0.safetensors")
    assert main(["inspect", "x0.safetensors"]) == 0
    assert "r_n by layer:\n  +1.000 +1.000\nx_n by layer:\n  +0.000 +0.000\n" in capsys.readouterr().out
    assert main(["inspect", "x0.safetensors", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["coefficients"]["stages.0.blocks.1:r"] == 1


def test_generated_text_is_a_function_of_the_seed(run):
    network = stepnet.load(run.folder)
    one, again, other = ("".join(generate(network, "KING", 30, seed=seed)) for seed in (1, 1, 2))
    assert one == again != other and set(one) <= set(TEXT)
    greedy = {"".join(generate(network, "KING", 10, temperature=0, seed=seed)) for seed in (1, 2)}
    assert len(greedy) == 1


def test_generation_keeps_the_training_flags_of_the_network(run):
    network = stepnet.load(run.folder).train()
    next(network.children()).eval()  # one part is frozen
    flags = [module.training for module in network.modules()]
    evaluated = []
    network.register_forward_hook(lambda module, args, output: evaluated.append(not module.training))
    pieces = generate(network, "KING", 3)
    next(pieces)
    assert [module.training for module in network.modules()] == flags  # while the caller has a token
    pieces.close()
    assert [module.training for module in network.modules()] == flags
    list(generate(network, "KING", 3))
    assert [module.training for module in network.modules()] == flags and evaluated == [True] * 4


def test_tokens_are_drawn_by_their_probabilities():
    logits = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log()
    drawn = [draw_token(logits, place, 1.0) for place in (0.0, 0.19, 0.21, 0.69, 0.71, 1 - 2**-53)]
    assert drawn == [0, 0, 1, 1, 2, 2]
    halves = np.array([0.04, 0.25, 0.09]) / 0.38  # squared at temperature 1/2
    assert [draw_token(logits, x, 0.5) for x in (halves[0] - 1e-9, halves[0] + 1e-9)] == [0, 1]
    assert [draw_token(logits, x, 1e-320) for x in (0.0, 0.9)] == [1, 1]  # the likeliest, where logits / T overflow


def test_bytes_are_generated_as_text(play, tmp_path):
    run = train("gpt1x8", play, RECIPE, out=tmp_path / "bytes", context=8, tokens="bytes")
    assert "bits per byte" in [str(metric) for metric in run.task.metrics]
    text = "".join(generate(stepnet.load(run.folder), "naïve", 40))
    assert text and evaluate(run).items == len(get_data(play, context=8, vocabulary="bytes").test)
    assert "".join(generate(stepnet.load(run.folder), "na\udcefve", 3))  # Latin-1, as a command line has it


def test_mistakes_are_one_line(run, play, tmp_path):
    with pytest.raises(stepnet.UserError, match=r"resnet20 takes images, and play.txt is text: use a GPT"):
        train("resnet20", play, RECIPE, out=tmp_path / "a")
    with pytest.raises(stepnet.UserError, match=r"gpt2x8 takes text, but digits holds images"):
        train("gpt2x8", "digits", RECIPE, out=tmp_path / "b")
    with pytest.raises(stepnet.UserError, match=r"context = 9: give it as --context"):
        train("gpt2x8", play, RECIPE, out=tmp_path / "c", model_kwargs={"context": 9})
    with pytest.raises(stepnet.UserError, match=r"mixup and cutmix are for images and classes: set them to 0"):
        train("gpt2x8", play, RECIPE.override({"mixup": 0.2}), out=tmp_path / "d")
    with pytest.raises(stepnet.UserError, match=r"class_weights = 'balanced' is for classes, not for .*'next_token'"):
        train("gpt2x8", play, RECIPE.override({"class_weights": "balanced"}), out=tmp_path / "e")
    with pytest.raises(stepnet.UserError, match=r"at most 4; expected a network of 26 tokens, for 8 at a time or more"):
        train(stepnet.create_model("gpt1x8", num_classes=26, context=4), play, RECIPE, out=tmp_path / "f", context=8)
    assert not list(tmp_path.iterdir())  # no folder of a run that never began
    with pytest.raises(stepnet.UserError, match=r"the prompt has characters outside of .*: 'É'; known: '\\n ,"):
        generate(stepnet.load(run.folder), "É")
    with pytest.raises(stepnet.UserError, match=r"the prompt is empty"):
        generate(stepnet.load(run.folder), "")
    with pytest.raises(stepnet.UserError, match=r"resnet20 does not continue text"):
        generate(stepnet.create_model("resnet20"))
    other = tmp_path / "other.txt"
    other.write_text("@" * 1000)
    with pytest.raises(stepnet.UserError, match=r"other.txt has characters outside of .*: '@'"):
        evaluate(run, data=str(other))
    with pytest.raises(stepnet.UserError, match=r"gpt2x8 takes text, but digits holds images: name a text file"):
        evaluate(run, data="digits")
    with pytest.raises(stepnet.UserError, match=r"lm_resnet20 takes images, and .*play.txt is text: name a data set"):
        evaluate("lm_resnet20.digits", data=str(play))


def test_text_has_a_recipe_of_its_own(play):
    assert default_recipe("gpt12x48", "shakespeare") == default_recipe("gpt12x48", str(play)) == "text"
