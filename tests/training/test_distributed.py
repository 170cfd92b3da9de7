"""Two processes with half the batch each are one process, where batch norm does not come between."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from stepnet.training import Run
from training.test_loop import metrics_of
from training.tiny import read_all

HERE = Path(__file__).parent
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
ACCELERATE = [str(HERE / "accelerate_launch.py"), "--cpu", "--num_processes=2", "--num_machines=1"]
ACCELERATE += ["--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0"]
PATIENCE = 240  # seconds; a launch takes ten on a quiet machine


def launch(folder, *changes, launcher=()):
    """Run `launch.py`; the launcher and its ranks are gone when this returns."""
    command = [sys.executable, *launcher, str(HERE / "launch.py"), str(folder), *changes]
    log = folder.with_suffix(".log")
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = f"still running after {PATIENCE} s"
            process.terminate()  # a launcher ends its ranks, which are sessions of their own, within half a minute
            process.wait()
    assert code == 0, f"{code}\n{log.read_text()[-4000:]}"
    return Run(folder)


def assert_close_runs(a, b, tolerance):
    mine, theirs = read_all(a.last), read_all(b.last)
    assert mine.keys() == theirs.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], theirs[name], rtol=tolerance, atol=tolerance, msg=name)
    for one, two in zip(metrics_of(a), metrics_of(b), strict=True):
        assert one["loss"] == pytest.approx(two["loss"], rel=tolerance)
        assert one["test_error"] == pytest.approx(two["test_error"], abs=0.4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "gates"), [(TORCHRUN, "drop_path"), (ACCELERATE, "batch")], ids=["torchrun", "accelerate launch"]
)
def test_two_processes_equal_one(tmp_path, launcher, gates):
    one = launch(tmp_path / "one", f"gates={gates}")
    two = launch(tmp_path / "two", f"gates={gates}", launcher=launcher)
    assert_close_runs(one, two, 2e-4)


@pytest.mark.slow
def test_the_gradient_of_one_step_is_exact(tmp_path):
    """Two processes drift from one as two threads do: by rounding that training amplifies, not by their gradients.

    In float64 the momentum after one step, which is the gradient, agrees to all but the last of its 16 digits.
    """
    one, two = launch(tmp_path / "one", "double=1"), launch(tmp_path / "two", "double=1", launcher=TORCHRUN)
    mine, theirs = read_all(one.last), read_all(two.last)
    names = [name for name in mine if name.startswith("optimizer.")]
    assert names and all(mine[name].dtype == torch.float64 for name in names)
    largest = max(float(mine[name].abs().max()) for name in names)
    worst = max(float((mine[name] - theirs[name]).abs().max()) for name in names)
    assert worst <= 1e-13 * largest


@pytest.mark.slow
def test_a_killed_rank_restarted_by_torchrun_goes_on(tmp_path):
    """The second network of a process that trains two: the group outlives a run, and a restart finds the first done."""
    whole = launch(tmp_path / "whole", "first=1", launcher=TORCHRUN)
    broken = launch(tmp_path / "broken", "first=1", "die=3", launcher=[*TORCHRUN, "--max-restarts=2"])
    assert (tmp_path / "died").exists()
    mine, theirs = read_all(whole.last), read_all(broken.last)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert metrics_of(whole) == metrics_of(broken)
