"""Several models, the same data order, the same initial weights."""

from stepnet import create_model
from stepnet.training import Run, compare
from training.tiny import tiny_config


def test_the_rows_tell_what_the_runs_measured(tmp_path):
    base = tiny_config(tmp_path, recipe={"epochs": 1, "milestones": ()})
    row, other = compare(["tiniest", "tiniest:euler"], base, seeds=1, out=tmp_path)
    assert (row.label, other.label) == ("tiniest", "tiniest:euler")
    [run] = row.runs
    errors = [line["test_error"] for line in Run(run.folder).metrics()]
    assert row.errors == [errors[-1]] and run.best_error == min(errors)
    own = create_model("tiniest", num_classes=10, in_channels=1)
    parameters = sum(p.numel() for p in own.parameters())
    assert row.cost.parameters == parameters == other.cost.parameters + 2  # a k in each of two stages
