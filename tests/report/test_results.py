"""Measured errors are read from result files and matched with the paper's rows."""

import json

import pytest
import yaml

from stepnet.errors import UserError
from stepnet.report.paper import CIFAR
from stepnet.report.results import Measurement, measured, read_measurements, record
from stepnet.training import EvaluationResult, Run, TrainConfig, get_recipe

LM20 = next(row for row in CIFAR if row.name == "lm_resnet20")


def run(recipe: str, seed: int, error: float) -> dict:
    what = {"model": "lm_resnet20", "data": "cifar10", "recipe": recipe, "scheme": None}
    return {**what, "seed": seed, "test_error": error, "more": 1}


def test_the_mean_over_seeds_of_the_rows_own_recipe(tmp_path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"command": "…", "runs": [run("cifar10", 0, 8.0), run("fast", 0, 9)]}))
    (tmp_path / "b.json").write_text(json.dumps({"runs": [run("cifar10", 1, 9.0)]}))
    (tmp_path / "speed.json").write_text(json.dumps({"images_per_second": [1]}))
    found = read_measurements(tmp_path)
    assert len(found) == 3
    assert str(measured(LM20, found)) == "8.50 (cifar10, 2 runs)"


def test_another_recipe_is_named_and_no_run_is_blank() -> None:
    assert str(measured(LM20, [Measurement("lm_resnet20", "cifar10", "fast", 0, 9.1)])) == "9.10 (fast, 1 run)"
    assert measured(LM20, [Measurement("lm_resnet20", "cifar100", "fast", 0, 9.1)]) is None


def test_a_cell_holds_runs_of_one_configuration(tmp_path) -> None:
    """The means of 20-epoch runs, of shorter ones and of runs from trained weights are not mixed."""
    longer = [Measurement("lm_resnet20", "cifar10", "fast, epochs=20", seed, 10.0 + seed, 20) for seed in (0, 1)]
    shorter = Measurement("lm_resnet20", "cifar10", "fast", 0, 9.0, 15)
    tuned = Measurement("lm_resnet20", "cifar10", "fast, epochs=30", 0, 5.0, 30, settings={"weights": True})
    assert str(measured(LM20, [*longer, shorter, tuned])) == "10.50 (fast, epochs=20, 2 runs)"
    assert measured(LM20, [tuned]) is None


def test_runs_of_two_configurations_are_recorded_side_by_side(tmp_path) -> None:
    path = tmp_path / "results.json"
    for changes in ({}, {"weights": "other"}, {"recipe": get_recipe("fast").override({"epochs": 3, "lr": 0.02})}):
        here = finished_run(tmp_path / "run")
        TrainConfig("lm_resnet20", data="cifar10", **changes).write(here.config_file)
        record(here, EvaluationResult(0.4, {"error": 8.5}, 10_000, 1), path)
    told = [(run["recipe"], run.get("settings")) for run in json.loads(path.read_text())["runs"]]
    assert told == [("cifar10", None), ("cifar10", {"weights": True}), ("fast, epochs=3, lr=0.02", None)]


def test_another_scheme_is_another_network() -> None:
    assert measured(LM20, [Measurement("lm_resnet20", "cifar10", "fast", 0, 9.1, scheme="heun")]) is None
    assert measured(LM20, [Measurement("lm_resnet20", "cifar10", "fast", 0, 9.1, options={"dt": 0.5})]) is None


def test_a_broken_file_is_named(tmp_path) -> None:
    (tmp_path / "bad.json").write_text('{"runs": [{"model": "lm_resnet20"}]}')
    with pytest.raises(UserError, match=r"bad\.json: 0\.data is missing"):
        read_measurements(tmp_path)
    assert read_measurements(tmp_path / "nowhere") == []
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(UserError, match=r"bad\.json is not a results file"):
        read_measurements(tmp_path)


def finished_run(folder) -> Run:
    here = Run(folder)
    TrainConfig("lm_resnet20", data="cifar10").write(here.config_file)
    for epoch, error in enumerate((7.5, 8.0)):
        scores = {"loss": 0.5, "error": 9.0, "test_loss": 0.4, "test_error": error}
        here.append_metrics({"epoch": epoch, **scores, "lr": 0.1, "images_per_second": 100.0, "seconds": 9.0, "k": {}})
    here.record_environment()
    return here


def test_a_run_is_recorded_once_and_leaves_the_rest_of_the_file_as_it_is(tmp_path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"command": "…", "runs": [run("cifar10", 1, 9.0)]}))
    here = finished_run(tmp_path / "run")
    for error in (8.5, 8.25):
        record(here, EvaluationResult(0.4, {"error": error}, 10_000, 1), path)
    content = json.loads(path.read_text())
    assert content["command"] == "…"
    assert content["runs"][1]["best_test_error"] == 7.5
    assert [(one["seed"], one["test_error"]) for one in content["runs"]] == [(1, 9.0), (0, 8.25)]


def test_a_recorded_command_names_no_folder_of_this_machine(tmp_path) -> None:
    here = finished_run(tmp_path / "run")
    told = {**here.recorded_environment(), "command": "stepnet train a/b --out /home/me/runs/x --data=/d/e"}
    here.environment_file.write_text(yaml.safe_dump(told))
    path = tmp_path / "results.json"
    record(here, EvaluationResult(0.4, {"error": 8.0}, 10_000, 1), path)
    assert json.loads(path.read_text())["runs"][0]["command"] == "stepnet train a/b --out x --data=e"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"median": 1}', "something else than runs"),
        ("[1]", "something else than runs"),
        ("{", "not a results file"),
        ('{"runs": [1, 2]}', r"results\.json: 0 = 1: expected an object"),
        ('{"runs": [{"name": "another list"}]}', r"results\.json: 0\.model is missing"),
    ],
)
def test_a_file_of_another_kind_is_not_written_over(tmp_path, content: str, message: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        record(finished_run(tmp_path / "run"), EvaluationResult(0.4, {"error": 8.0}, 10_000, 1), path)
    assert path.read_text() == content
