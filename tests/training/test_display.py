"""A bar on a terminal, a plain line for each epoch elsewhere, and of many processes one speaks."""

import sys

import pytest

from stepnet.training.checkpoint import Progress
from stepnet.training.display import Display
from training.tiny import tiny_config

LINE = {"epoch": 1, "loss": 0.5, "error": 25.0, "test_error": 12.5, "lr": 0.1, "images_per_second": 1234.4}


def shown(progress, tmp_path):
    display = Display("tiny")
    display.start(tiny_config(tmp_path), steps_per_epoch=6, progress=progress)
    display.step(Progress(epoch=1, step=4, loss_sum=100.0, wrong=50.0, seen=200), 99.6)
    return display


def test_a_plain_line_for_each_epoch_where_there_is_no_terminal(tmp_path, capsys):
    display = shown(Progress(epoch=1, step=3), tmp_path)
    assert display.bar is None
    display.epoch(LINE)
    assert capsys.readouterr().out.splitlines() == [
        "tiny: going on from epoch 2, step 3",
        "tiny epoch 2/2  loss 0.5000  error 25.00%  test 12.50%  lr 0.1  1234 images/s",
    ]


def test_a_bar_with_loss_error_speed_and_time_left_on_a_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    display = shown(Progress(epoch=1, step=3), tmp_path)
    (task,) = display.bar.tasks
    assert task.description == "tiny 2/2 loss 0.500 error 25.00% 100 images/s"
    assert (task.completed, task.total) == (10, 12)
    assert "TimeRemainingColumn" in {type(column).__name__ for column in display.bar.columns}
    display.close()
    assert display.bar is None


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_of_many_processes_one_speaks(tmp_path, capsys, monkeypatch, rank, lines):
    monkeypatch.setenv("RANK", rank)
    shown(Progress(), tmp_path).epoch(LINE)
    assert capsys.readouterr().out.count("\n") == lines
