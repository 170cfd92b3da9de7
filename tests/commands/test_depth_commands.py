"""`stepnet coarsen` and `stepnet transfer`, and flags about depth."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path

import pytest
import torch

import stepnet
from stepnet.cli import main
from stepnet.commands.parsing import _split
from stepnet.commands.train import Train
from stepnet.commands.transfer import Transfer, loss_records
from stepnet.nets.blocks import basic
from stepnet.nets.model_registry import MODELS, register_model
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.training import Run

if "flat4" not in MODELS:
    backbone = Backbone(basic, (4,), (4,), stem_width=4, pre_activation=True)
    register_model("flat4", family="test")(partial(ResidualNetwork, backbone))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "flat"
    stepnet.train("flat4", "digits", "digits", out=out, epochs=1, epoch_steps=4)
    return out


def test_coarsen_prints_draws_and_saves(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, drawn = tmp_path / "coarse.safetensors", tmp_path / "depth.svg"
    words = ["coarsen", str(run), "--keep", "0.5", "--items", "20", "--out", str(saved), "--figure", str(drawn)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "plain" in printed and "refitted" in printed and "random" in printed
    assert "4 blocks became 2" in printed
    assert drawn.read_text().startswith("<?xml")
    small = stepnet.load(saved)
    assert len(small.stages[0].steps) == 2
    assert small.description.classes == stepnet.load(run).description.classes
    assert main(["evaluate", str(saved), "--data", "digits"]) == 0


def test_coarsen_prints_numbers_for_a_program(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["coarsen", str(run), "--keep", "0.5", "--items", "20", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["blocks"] == 4 and 0 <= told["error"] <= 100
    found = {(row["way"], row["blocks"]): row["error"] for row in told["coarsened"]}
    assert {way for way, _ in found} == {"plain", "refitted", "random"} and min(n for _, n in found) == 2


def test_coarsen_a_language_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its first metric is the loss."""
    book = tmp_path / "book.txt"
    book.write_text("the quick brown fox jumps over the lazy dog. " * 60)
    out = tmp_path / "run"
    stepnet.train("gpt3x8", str(book), "text", out=out, epochs=1, epoch_steps=1, batch_size=2)
    saved = tmp_path / "coarse.safetensors"
    assert main(["coarsen", str(out), "--keep", "0.67", "--items", "4", "--matrix", "--out", str(saved)]) == 0
    assert "test loss" in capsys.readouterr().out
    whole, small = stepnet.load(out), stepnet.load(saved)
    assert small.stages[0].dts == (1,) * 4
    weights = [m.stages[0].blocks[0].project.weight for m in (whole, small)]
    assert not torch.equal(*weights)  # the first layer stays or the second takes its place: a matrix is in it


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--keep", "0.1"], "keep = 0.1 of 4 blocks leaves a stage empty"),
        (["--keep", "1.5"], "keep = 1.5: expected less than 1"),
        (["--keep", "nan"], "keep = nan: expected a"),
        (["--items", "0"], "items = 0: expected 1 or more"),
        (["--figure", "depth.doc"], "cannot write 'depth.doc'"),
        (["--out", "."], "is a folder: name a file"),
    ],
)
def test_coarsen_says_in_a_line_what_cannot_be(
    run: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["coarsen", str(run), *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_transfer_trains_a_grid_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["transfer", "flat4", "--depths", "2,4", "--lrs", "0.1", "--out", str(tmp_path / "runs")]
    words += ["--epochs", "1", "--epoch-steps", "1", "--figure", str(tmp_path / "transfer.svg")]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "without a rule" in printed and "step size 1/L" in printed
    names = {folder.name for folder in (tmp_path / "runs").iterdir()}
    assert names == {"depth2-lr0.1", "depth4-lr0.1", "depth4-lr0.1-1_L"}
    ruled = Run(tmp_path / "runs" / "depth4-lr0.1-1_L").config.recipe
    assert (ruled.tuned_at_depth, ruled.depth_rule) == (2, "1/L")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/metrics.jsonl")}
    assert main([*words, "--json"]) == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/metrics.jsonl")} == before
    cells = json.loads(capsys.readouterr().out)
    assert [(cell["rule"], cell["depth"], cell["lr"]) for cell in cells] == [
        (rule, depth, 0.1) for rule in ("none", "1/L") for depth in (2, 4)
    ]
    assert all(cell["loss"] > 0 for cell in cells)


def test_a_diverged_run_has_no_loss_for_a_program() -> None:
    cells = loss_records({"none": {2: {0.1: 1.5, 10.0: math.inf}}})
    assert [cell["loss"] for cell in cells] == [1.5, None]


def test_transfer_needs_two_depths(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transfer", "flat4", "--depths", "4", "--lrs", "0.1"]) == 2
    assert "expected two depths or more" in capsys.readouterr().err
    assert main(["transfer", "timm/resnet18", "--depths", "4,8", "--lrs", "0.1"]) == 2
    assert "timm/resnet18 at other depths: expected a network of stepnet, such as gpt8x32" in capsys.readouterr().err


def test_numbers_with_commas_are_several_words() -> None:
    assert list(_split(["--depths", "20,38,56"], Transfer)) == ["--depths", "20", "38", "56"]
    assert list(_split(["--levels=20,38,56"], Train)) == ["--levels", "20", "38", "56"]
    assert list(_split(["--lrs=1e-3,0.01"], Transfer)) == ["--lrs", "1e-3", "0.01"]
    for word in ("a,b", "--out=a,1", "depths=(1,2)", "20", "1,2.txt"):
        assert list(_split(["--depths", word], Transfer)) == ["--depths", word]
