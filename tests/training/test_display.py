"""A bar on a terminal, plain lines now and then elsewhere, and of many processes one speaks."""

import io
import os
import signal
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch import nn

from stepnet import get_scheme
from stepnet.training import Run, Task, train
from stepnet.training import display as display_module
from stepnet.training.checkpoint import Progress
from stepnet.training.describe import run_summary
from stepnet.training.display import Display
from stepnet.training.saving import Interrupted
from stepnet.training.tasks import Classification, TaskRecord
from stepnet.training.trainer import Trainer
from training.tiny import RECIPE, tiny_config

LINE = {"epoch": 1, "loss": 0.5, "error": 25.0, "test_error": 12.5, "lr": 0.1, "images_per_second": 1234.4, "k": {}}
AT = Progress(epoch=1, step=4, sums={"loss": 100.0, "wrong": 50.0}, seen=200)


class Errors(Task):
    name, items, metrics = "errors", "images", TaskRecord().metrics[:1]
    figures = Classification.figures


class Shown:
    """A trainer as far as the display looks at it."""

    def __init__(self, progress, scheme=None):
        self.progress, self.scheme, self.task = progress, scheme, Errors(None)
        self.recipe, self.batches, self.run = RECIPE, range(6), Run(Path("a"))
        self.scores, self.level = SimpleNamespace(per_second=99.6, readings=1), None
        self.is_done = self.is_complete = False


@pytest.fixture(autouse=True)
def no_summary_of_a_stub(monkeypatch):
    for name, answer in (("run_summary", []), ("estimate_step", None)):
        whole = getattr(display_module, name)
        stub = partial(lambda whole, answer, it: answer if isinstance(it, Shown) else whole(it), whole, answer)
        monkeypatch.setattr(display_module, name, stub)


def shown(progress, scheme=None):
    display = Display("tiny")
    display.start(Shown(progress, scheme))
    display.step(Shown(AT))
    return display


def end_epoch(display, **changes):
    display.epoch(Shown(AT), LINE | changes)


def test_a_plain_line_for_each_epoch_where_there_is_no_terminal(capsys):
    display = shown(Progress(epoch=1, step=3))
    assert display.bar is None
    end_epoch(display)
    assert capsys.readouterr().out.splitlines() == [
        "tiny: resuming at epoch 2, step 3",
        "epoch 2/2  loss 0.5000  error 25.00%  test 12.50%  lr 0.1  1234 images/s",
    ]


def test_a_line_now_and_then_within_an_epoch(capsys, monkeypatch):
    monkeypatch.setattr(display_module, "SECONDS_BETWEEN_LINES", -1.0)
    shown(Progress())
    assert capsys.readouterr().out == "epoch 2/2, step 4/6: loss 0.500 error 25.00% 100 images/s, 0 s left\n"


def test_the_time_left_is_that_of_all_steps_at_the_pace_so_far(capsys, monkeypatch):
    monkeypatch.setattr(display_module, "SECONDS_BETWEEN_LINES", -1.0)
    display = shown(Progress())
    at, _ = display.began
    monkeypatch.setattr(display_module.time, "monotonic", lambda: at + 1000.0)  # 10 of 12 steps in 1000 s
    display.step(Shown(AT))
    assert capsys.readouterr().out.splitlines()[-1].endswith("100 images/s, 3 min left")


@pytest.mark.parametrize(("limit", "printed"), [(20.0, ["time    5 s a step, 30 s an epoch, 60 s in all"]), (31.0, [])])
def test_the_duration_of_a_slow_run_is_printed_once_the_first_step_is_not_part_of_it(
    capsys, monkeypatch, limit, printed
):
    monkeypatch.setattr(display_module, "LONG_EPOCH", limit)
    display, trainer = Display("tiny"), Shown(Progress(sums={"loss": 1.0, "wrong": 1.0}, seen=4))
    trainer.data = SimpleNamespace(train=range(6 * RECIPE.batch_size))
    display.start(trainer)
    trainer.scores.per_second = 1.0  # the first step, which is slow
    display.step(trainer)
    assert capsys.readouterr().out == ""
    trainer.scores = SimpleNamespace(per_second=RECIPE.batch_size / 5, readings=2)
    for _ in range(2):
        display.step(trainer)
    assert capsys.readouterr().out.splitlines() == printed


@pytest.mark.parametrize(
    ("step", "printed"),
    [
        (11.0, ["time    about 11 s a step, 66 s an epoch (estimated)"]),
        (400.0, ["time    about 7 min a step, 40 min an epoch (estimated)"]),
        (9.0, []),
        (None, []),
    ],
)
def test_the_time_of_a_slow_epoch_is_estimated_before_its_first_step(capsys, monkeypatch, step, printed):
    monkeypatch.setattr(display_module, "estimate_step", lambda trainer: step)
    Display("tiny").start(Shown(Progress()))
    assert capsys.readouterr().out.splitlines() == printed


def test_a_bar_with_loss_error_speed_and_time_left_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    display = shown(Progress(epoch=1, step=3))
    (task,) = display.bar.progress.tasks
    assert task.description == "tiny 2/2 loss 0.500 error 25.00% 100 images/s"
    assert (task.completed, task.total) == (10, 12)
    assert "TimeRemainingColumn" in {type(column).__name__ for column in display.bar.progress.columns}
    display.close()
    assert display.bar is None


def test_something_moves_on_a_terminal_before_the_first_step(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    display = Display("tiny", terminal)
    display.note("reading digits")
    assert display.bar is not None and display.bar.progress.tasks[0].description == "tiny: reading digits"
    display.close()


def test_ctrl_c_is_answered_before_the_step_ends(tmp_path, capsys):
    class Interrupting(nn.Module):
        """Ctrl-C in the middle of a step; what has been printed by then is part of the network's answer."""

        def __init__(self):
            super().__init__()
            self.layer, self.said = nn.Linear(64, 10), ""

        def forward(self, x):
            if len(x) == RECIPE.batch_size and not self.said:
                signal.raise_signal(signal.SIGINT)
                self.said = capsys.readouterr().out
            return self.layer(x.flatten(1))

    network = Interrupting()
    with pytest.raises(Interrupted, match=r"saved .*last\.safetensors"):
        train(network, "digits", RECIPE, out=tmp_path / "a")
    assert network.said.endswith("Interrupting: stopping after this step; Ctrl-C again to quit now\n")


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_of_many_processes_one_speaks(capsys, monkeypatch, rank, lines):
    monkeypatch.setenv("RANK", rank)
    end_epoch(shown(Progress()))
    assert capsys.readouterr().out.count("\n") == lines


def test_a_k_that_leaves_its_stable_interval_is_told_once_and_when_it_is_back(capsys):
    display = shown(Progress(), get_scheme("lm"))
    for k in (0.5, -1.2, [-1.3, 0.0], -0.9):
        end_epoch(display, k={"stages.0.blocks.1": k, "stages.1.blocks.1": 1.0})
    told = [line for line in capsys.readouterr().out.splitlines() if "k of" in line]
    assert told == [
        "  k of stages.0.blocks.1 is -1.200, outside (-1, 1]: not zero-stable there",
        "  k of stages.0.blocks.1 is inside (-1, 1] again",
    ]


def test_a_run_says_what_it_is_at_its_start(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(tiny_config("a", model="tiniest", recipe={"epochs": 1}))
    text = capsys.readouterr().out
    for word in (
        "parameters",
        "digits: 1,497 + 300 images 8x8x1, 10 classes",
        "1 epoch of 6 steps, batch 256",
        "cpu",
        " thread",
        "folder  a",
    ):
        assert word in text
    assert [line for line in text.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(("chosen", "warned"), [({}, True), ({"epoch_steps": 6}, False), ({"min_steps": 6}, False)])
def test_few_steps_in_an_epoch_are_worth_a_warning_unless_they_were_asked_for(tmp_path, chosen, warned):
    with Trainer(tiny_config(tmp_path / "a", model="tiniest", recipe={"epochs": 1} | chosen), resume=True) as trainer:
        text = "\n".join(run_summary(trainer))
    assert ("few steps: 1,497 images; try a batch size of 74, or the recipe photos" in text) == warned


def test_a_quiet_run_says_nothing(tmp_path, capsys):
    train(tiny_config(tmp_path / "a", model="tiniest", recipe={"epochs": 1}), quiet=True)
    assert capsys.readouterr().out == ""


def test_a_closed_standard_output_is_nobody_looking(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    display = Display("tiny")
    display.note("reading")
    assert display.stream.name == os.devnull and not display.quiet


def test_an_output_that_cannot_be_written_does_not_end_the_run(tmp_path):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        display = Display("tiny", full)
        display.note("reading")
        assert display.quiet
        display.note("building")
