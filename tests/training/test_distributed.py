"""Two processes with half the batch each are one process, where batch norm does not come between."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from stepnet.training import Run
from training import launch
from training.runs import assert_same_run, metrics_of
from training.tiny import read_all

HERE = Path(__file__).parent
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
ACCELERATE = [str(HERE / "accelerate_launch.py"), "--cpu", "--num_processes=2", "--num_machines=1"]
ACCELERATE += ["--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0"]
PATIENCE = 240  # seconds; a launch takes ten on a quiet machine


def launched(folder, *words, launcher):
    """The folder, after `launch.py` has run; the launcher and its ranks are gone when this returns."""
    command = [sys.executable, *launcher, str(HERE / "launch.py"), str(folder), *words]
    log = folder.with_suffix(".log")
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = f"still running after {PATIENCE} s"
            process.terminate()  # a launcher ends its ranks, which are sessions of their own, within half a minute
            process.wait()
    assert code == 0, f"{code}\n{log.read_text()[-4000:]}"
    return folder


def assert_close_runs(a, b, tolerance):
    mine, theirs = read_all(a.last), read_all(b.last)
    assert mine.keys() == theirs.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], theirs[name], rtol=tolerance, atol=tolerance, msg=name)
    for one, two in zip(metrics_of(a), metrics_of(b), strict=True):
        assert one["loss"] == pytest.approx(two["loss"], rel=tolerance)
        assert one["test_error"] == pytest.approx(two["test_error"], abs=0.4)


@pytest.fixture(scope="module")
def by_torchrun(tmp_path_factory):
    return launched(tmp_path_factory.mktemp("torchrun") / "two", "drop_path", launcher=TORCHRUN)


def assert_equals_one_process(two, folder, mode):
    """Two processes drift from one as two threads do: by rounding that training amplifies, not by their gradients.

    In float64 the momentum after one step, which is the gradient, agrees to all but the last of its 16 digits.
    """
    launch.main(folder, mode)
    assert_close_runs(Run(folder / "second"), Run(two / "second"), 2e-4)
    mine, theirs = (read_all(Run(each / "first").last) for each in (folder, two))
    names = [name for name in mine if name.startswith("optimizer.")]
    assert names and all(mine[name].dtype == torch.float64 for name in names)
    largest = max(float(mine[name].abs().max()) for name in names)
    worst = max(float((mine[name] - theirs[name]).abs().max()) for name in names)
    assert worst <= 1e-13 * largest
    assert_equal_to_rounding(Run(folder / "text").last, Run(two / "text").last)


def assert_equal_to_rounding(one, two):
    mine, theirs = read_all(one), read_all(two)
    assert mine.keys() == theirs.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], theirs[name], rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.slow
def test_two_processes_of_torchrun_equal_one(tmp_path, by_torchrun):
    assert_equals_one_process(by_torchrun, tmp_path, "drop_path")


@pytest.mark.slow
def test_two_processes_of_accelerate_launch_equal_one(tmp_path):
    two = launched(tmp_path / "two", "batch", launcher=ACCELERATE)
    assert_equals_one_process(two, tmp_path / "one", "batch")


@pytest.mark.slow
def test_a_killed_rank_restarted_by_torchrun_goes_on(tmp_path, by_torchrun):
    """In the second network of a process that trains two: a restart finds the first done."""
    broken = launched(tmp_path / "two", "drop_path", "3", launcher=[*TORCHRUN, "--max-restarts=2"])
    assert (broken / "died").exists()
    for name in ("first", "second"):
        assert_same_run(Run(broken / name), Run(by_torchrun / name))


@pytest.mark.slow
def test_two_processes_with_shares_of_the_network_equal_one(tmp_path, monkeypatch):
    """FSDP2: a GPT, a ViT, a converted network that is interrupted and resumed, and each in a loop of one's own."""
    launch.main(tmp_path / "one", "sharded")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")  # as `accelerate launch --use_fsdp` sets it
    two = launched(tmp_path / "two", "sharded", launcher=TORCHRUN)
    for run in ("text", "converted", "vit"):
        for file in ("last.safetensors", "model.safetensors", "best.safetensors"):
            assert_equal_to_rounding(tmp_path / "one" / run / file, two / run / file)
        assert [line["k"] for line in metrics_of(Run(two / run))] == [
            {layer: pytest.approx(k, rel=1e-9) for layer, k in line["k"].items()}
            for line in metrics_of(Run(tmp_path / "one" / run))
        ]
    for file in ("gpt.pt", "converted.pt", "vit.pt"):
        mine, theirs = torch.load(tmp_path / "one" / file), torch.load(two / file)
        assert mine.keys() == theirs.keys()
        for name in mine:
            torch.testing.assert_close(mine[name], theirs[name], rtol=1e-9, atol=1e-12, msg=name)
