"""What inspect tells of each step, against the functions that compute it."""

import pytest
import torch

from stepnet.nets import create_model
from stepnet.report.dynamics import effective_steps, spectra
from stepnet.report.inspection import step_rows, unstable_steps, write_pictures
from stepnet.report.opened_networks import open_with_images


@pytest.fixture
def shown(write_model_of_digits):
    return open_with_images(str(write_model_of_digits(k=-0.3)), count=20)


def test_a_row_for_each_step(shown) -> None:
    found = spectra(shown.network, shown.images[:1])
    rows = {row[0]: row[1:] for row in step_rows(shown, found)}
    assert list(rows)[:3] == ["stages.0.blocks.0", "stages.0.blocks.1", "stages.1.transition"]
    ratios = [f"{value:.3f}" for stage in effective_steps(shown.network, shown.images) for value in stage]
    assert [row[3] for row in rows.values()] == ratios
    assert rows["stages.0.blocks.1"][:3] == ["-0.300", "1.000, 0.300", "accelerates"]
    assert rows["stages.1.transition"][0] == "" and rows["stages.1.transition"][2] == "shape changes"
    assert float(rows["stages.0.blocks.1"][5]) == pytest.approx(found[1].growth, abs=0.005)
    assert unstable_steps(shown.network) == []


def test_every_k_outside_its_interval_is_told(write_model_of_digits) -> None:
    lines = unstable_steps(open_with_images(str(write_model_of_digits(k=-1.2)), count=1).network)
    assert lines[0] == "k = -1.200 of stages.0.blocks.1 is outside the stable interval (-1, 1]"
    assert len(lines) == 3


def test_one_channel_outside_is_told_though_the_mean_is_inside() -> None:
    network = create_model("lm_resnet20", k=-0.1, k_per_channel=True)
    with torch.no_grad():
        network.stages[1].k[0, 7] = 1.25
    assert unstable_steps(network) == ["k = 1.250 of stages.1.blocks.0 is outside the stable interval (-1, 1]"]


def test_the_pictures_are_written(shown, tmp_path) -> None:
    shown = open_with_images(str(tmp_path / "tiny--0.3"), count=100)
    paths = write_pictures(shown, spectra(shown.network, shown.images[:1]), tmp_path / "figures")
    assert {path.name for path in paths} == {"network.svg", "trajectory.svg", "spectrum.svg", "k.svg"}
    assert all(path.read_text().startswith("<?xml") for path in paths)
