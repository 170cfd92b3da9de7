"""The charts' data: every figure of the run folders, thinned where it is too much, and in words."""

import json
import math

import pytest

from stepnet.report.charts import (
    FRAMES,
    coefficients_words,
    compression_words,
    curves_words,
    printed_points,
    section_data,
)
from stepnet.report.grouping import by_data, read_histories


def section(*folders, data: str = "digits"):
    networks = by_data(read_histories(folders))[data]
    return networks, section_data(data, networks)


def test_every_epoch_is_there_and_nan_is_a_gap(write_run) -> None:
    networks, found = section(write_run(errors=(20.0, math.nan, 12.345678)))
    assert found["runs"][0]["test_score"] == [20.0, None, 12.346]
    assert found["runs"][0]["loss"][1] is None
    first, *_, last = found["runs"][0]["elapsed"]
    assert last == pytest.approx(3 * first)
    assert "lm_resnet20 from 20.00 % to 12.35 %" in curves_words(networks)


def test_k_by_layer_after_each_epoch(write_run) -> None:
    networks, found = section(write_run(), write_run("preact_resnet20"))
    assert found["k"]["epochs"] == [1, 2, 3]
    assert found["k"]["band"] == (-1.0, 1.0)
    (run,) = found["k"]["runs"]
    assert found["networks"][found["runs"][run["run"]]["network"]] == "lm_resnet20"
    assert run["values"] == [[0.1, -0.2, -0.9], [0.2, -0.4, -1.8], [0.3, -0.6, -2.7]]
    assert "from -2.700 (stages.2.blocks.1) to 0.300" in coefficients_words(networks)


def test_coefficients_with_names_are_curves_of_their_own(write_run) -> None:
    run = write_run(scheme="x0")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["k"] = {"blocks.0:r": 1.0, "blocks.0:U": [0.75, 0.25], "blocks.1:r": 0.5, "blocks.1:U": [0.5, 0.25]}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, found = section(run)
    curves = {one["name"]: (one["layers"], one["places"], one["values"][-1]) for one in found["k"]["runs"]}
    both = ["blocks.0", "blocks.1"], [1, 2]
    assert curves == {"r": (*both, [1.0, 0.5]), "U[1]": (*both, [0.75, 0.5]), "U[2]": (*both, [0.25, 0.25])}


def test_plain_networks_have_no_k(write_run) -> None:
    networks, found = section(write_run("preact_resnet20"))
    assert found["k"] is None
    assert coefficients_words(networks) == ""


def test_the_slider_of_a_long_run_keeps_both_ends(write_run) -> None:
    _, found = section(write_run(errors=[50.0] * 500))
    stops = found["k"]["epochs"]
    assert len(stops) == FRAMES and stops[0] == 1 and stops[-1] == 500
    assert len(found["runs"][0]["test_score"]) == 500


def test_a_shorter_run_stays_at_its_last_epoch(write_run) -> None:
    _, found = section(write_run(seed=0), write_run(seed=1, errors=(50.0, 40.0), epochs=3))
    assert found["k"]["runs"][1]["values"] == [[0.1, -0.2, -0.9], *[[0.2, -0.4, -1.8]] * 2]


def test_compression_has_ours_and_the_papers_points(write_run) -> None:
    networks, found = section(write_run(seed=0), write_run(seed=1, errors=(50, 20, 12.0)))
    (ours,) = found["ours"]
    assert (ours["score"], ours["seeds"], ours["parameters"]) == (11.0, 2, 269_440)
    assert ours["deviation"] == pytest.approx(math.sqrt(2), rel=1e-4)
    assert found["paper"] == [] and "the paper has no figure" in compression_words(networks)
    assert len(printed_points("cifar10")) == 9
    assert printed_points("cifar10")[5]["label"] == "LM-ResNet 20, pre-act"
    assert printed_points("imagenet")[0]["parameters"] == pytest.approx(25.56e6, rel=1e-3)  # counted: table 3 has none
