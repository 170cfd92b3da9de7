"""Measured errors are read from result files and matched with the paper's rows."""

import json

import pytest

from stepnet.errors import UserError
from stepnet.report.paper import CIFAR
from stepnet.report.results import Measurement, measured, read_measurements

LM20 = next(row for row in CIFAR if row.name == "lm_resnet20")


def run(recipe: str, seed: int, error: float) -> dict:
    return {"model": "lm_resnet20", "data": "cifar10", "recipe": recipe, "seed": seed, "test_error": error, "more": 1}


def test_the_mean_over_seeds_of_the_rows_own_recipe(tmp_path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"command": "…", "runs": [run("cifar10", 0, 8.0), run("fast", 0, 9)]}))
    (tmp_path / "b.json").write_text(json.dumps({"runs": [run("cifar10", 1, 9.0)]}))
    (tmp_path / "speed.json").write_text(json.dumps({"images_per_second": [1]}))
    found = read_measurements(tmp_path)
    assert len(found) == 3
    assert measured(LM20, found) == "8.50"


def test_another_recipe_is_named_and_no_run_is_blank() -> None:
    assert measured(LM20, [Measurement("lm_resnet20", "cifar10", "fast", 0, 9.1)]) == "9.10 (fast)"
    assert measured(LM20, [Measurement("lm_resnet20", "cifar100", "fast", 0, 9.1)]) == ""


def test_a_broken_file_is_named(tmp_path) -> None:
    (tmp_path / "bad.json").write_text('{"runs": [{"model": "lm_resnet20"}]}')
    with pytest.raises(UserError, match=r"bad\.json.*expected runs with model, data, recipe"):
        read_measurements(tmp_path)
    assert read_measurements(tmp_path / "nowhere") == []
