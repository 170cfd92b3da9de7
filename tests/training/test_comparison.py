"""Several models, the same data order, the same initial weights."""

import signal

import pytest

from stepnet import create_model
from stepnet.errors import UserError
from stepnet.training import Run, compare
from stepnet.training.saving import Interrupted
from stepnet.training.trainer import Trainer
from training.tiny import tiny_config


def test_the_rows_tell_what_the_runs_measured(tmp_path):
    base = tiny_config(tmp_path, recipe={"epochs": 1, "milestones": ()})
    row, other = compare(["tiniest", "tiniest:euler"], base, seeds=1, out=tmp_path)
    assert (row.label, other.label) == ("tiniest", "tiniest:euler")
    [run] = row.runs
    errors = [line["test_error"] for line in Run(run.folder).metrics()]
    assert row.scores == [errors[-1]] and run.best_score == min(errors)
    own = create_model("tiniest", num_classes=10, in_channels=1)
    parameters = sum(p.numel() for p in own.parameters())
    assert row.cost.parameters == parameters == other.cost.parameters + 2  # a k in each of two stages


@pytest.mark.parametrize(
    ("model", "message"), [("tiniest:nosuch", "unknown scheme 'nosuch'"), ("gpt1x8", "gpt1x8 takes text")]
)
def test_a_network_that_cannot_be_built_is_refused_before_any_is_trained(tmp_path, model, message):
    base = tiny_config(tmp_path, recipe={"epochs": 1, "milestones": ()})
    with pytest.raises(UserError, match=message):
        compare(["tiniest", model], base, seeds=1, out=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["append_metrics", "__exit__"])
def test_a_stop_while_a_run_ends_stops_the_comparison(tmp_path, monkeypatch, number, when):
    """It was taken by the run that was ending, and the comparison trained everything."""
    owner = Run if when == "append_metrics" else Trainer
    whole = getattr(owner, when)

    def and_stop(*arguments):
        signal.raise_signal(number)
        return whole(*arguments)

    monkeypatch.setattr(owner, when, and_stop)
    base = tiny_config(tmp_path, recipe={"epochs": 1, "milestones": (), "batch_size": 1497})
    with pytest.raises(Interrupted, match="tiniest-seed0 is complete") as stop:
        compare(["tiniest", "tiniest:euler"], base, seeds=1, out=tmp_path)
    assert stop.value.exit_code == 128 + number
    assert [path.name for path in tmp_path.iterdir()] == ["tiniest-seed0"]
    assert len(Run(tmp_path / "tiniest-seed0").metrics()) == 1
