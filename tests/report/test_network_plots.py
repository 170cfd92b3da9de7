"""The pictures of a trained network hold what was computed."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stepnet import coarsen, create_model, read
from stepnet.errors import UserError
from stepnet.nets import NetworkStep
from stepnet.report.dynamics import StepSpectrum
from stepnet.report.figures import paper_style
from stepnet.report.lesion import Lesion, lesion_study
from stepnet.report.network_plots import plot_lesion, plot_reading, plot_spectrum, plot_trajectory
from stepnet.schemes import get_scheme


def test_a_panel_for_each_stage_and_a_path_for_each_image() -> None:
    torch.manual_seed(0)
    model, images = create_model("lm_resnet20", in_channels=1), torch.randn(4, 1, 8, 8)
    picture = plot_trajectory(model, images, ["zero", "zero", "one", "one"])
    assert [axes.get_title() for axes in picture.axes] == ["stage 1", "stage 2", "stage 3"]
    assert [len(line.get_xdata()) for line in picture.axes[0].get_lines()] == [4, 1] * 4
    assert [text.get_text() for text in picture.legends[0].get_texts()] == ["zero", "one"]
    colours = [line.get_color() for line in picture.axes[0].get_lines()[::2]]
    assert colours[0] == colours[1] != colours[2] == colours[3]
    with pytest.raises(UserError, match="1 labels for 4 images"):
        plot_trajectory(model, images, [0])


def spectrum(k: float | None, *values: complex) -> StepSpectrum:
    value = None if k is None else torch.tensor([k], dtype=torch.float64)
    step = NetworkStep("block", get_scheme("lm" if k else "euler"), "scheme", 1.0, value, torch.nn.Identity())
    return StepSpectrum(step, np.array(values, dtype=complex), 1.0)


def test_eigenvalues_stand_on_the_regions_of_the_extreme_k() -> None:
    found = [spectrum(None, 0.5), spectrum(-0.5, -1 + 1j, -1 - 1j), spectrum(0.25, -2.5)]
    picture = plot_spectrum(torch.nn.Identity(), torch.zeros(1), found)
    axes = picture.axes[0]
    dots = np.asarray(axes.collections[-1].get_offsets())
    assert dots == pytest.approx(np.array([[0.5, 0], [-1, 1], [-1, -1], [-2.5, 0]]))
    assert axes.get_xlim()[0] < -3  # the whole interval of k = -1/2 is seen
    assert [text.get_text() for text in picture.legends[0].get_texts()] == ["lm, k = -0.50", "lm, k = 0.25"]
    assert [text.get_text() for text in plot_spectrum(torch.nn.Identity(), torch.zeros(1), [spectrum(None, -1)])
            .legends[0].get_texts()] == ["euler"]  # fmt: skip


def test_a_wide_picture_has_a_panel_for_each_stage() -> None:
    found = [spectrum(-0.5, -1), replace(spectrum(-0.5, -2), stage=1), replace(spectrum(-0.5, -0.5), stage=1)]
    with paper_style(2):
        *panels, _ = plot_spectrum(torch.nn.Identity(), torch.zeros(1), found).axes
    assert [axes.get_title() for axes in panels] == ["stage 1", "stage 2"]
    assert [np.asarray(axes.collections[-1].get_offsets())[:, 0].tolist() for axes in panels] == [[-1], [-2, -0.5]]


def test_a_lesion_shows_blocks_transitions_and_pairs() -> None:
    one = Lesion(("a", "b"), frozenset({1}), 5.0, {0: 20.0, 1: 60.0}, {0: 15.0, 1: 55.0}, {(0, 1): 80.0})
    left, right, *_ = plot_lesion({"net": one}).axes
    markers = [line for line in left.get_lines() if len(line.get_xdata()) == 1]
    assert [(line.get_ydata()[0], line.get_markerfacecolor() == "none") for line in markers] == [
        (20, False),
        (60, True),
    ]
    table = np.asarray(right.images[0].get_array().filled(np.nan))
    assert table == pytest.approx(np.array([[20, np.nan], [80, 60]]), nan_ok=True)


def test_a_reading_has_a_panel_for_each_stage() -> None:
    network = create_model("preact_resnet20", scheme="lm", k=-0.5)
    *squares, bar = plot_reading(read(network)).axes
    assert [axes.get_title()[:11] for axes in squares] == ["stage 1: lm", "stage 2: lm", "stage 3: lm"]
    assert bar.get_ylabel() == "weight"
    shown = squares[0].images[0].get_array()
    assert shown[3, 0] == pytest.approx(1.75, abs=1e-6)  # 1 + 0.5 + 0.25
    assert shown.mask[0].all()


@pytest.mark.parametrize(
    "use",
    [
        lambda model, images: plot_trajectory(model, images),
        lambda model, images: lesion_study(model, images, torch.zeros(4, dtype=torch.long)),
        lambda model, images: coarsen(model, depths=(3, 3, 2), example=images),
    ],
    ids=["plot_trajectory", "lesion_study", "coarsen"],
)
def test_a_frozen_norm_stays_frozen(use: Callable[[nn.Module, Tensor], object]) -> None:
    torch.manual_seed(0)
    model, images = create_model("resnet20", in_channels=1).train(), torch.randn(4, 1, 8, 8)
    frozen = next(module for module in model.modules() if isinstance(module, nn.BatchNorm2d)).eval()
    use(model, images)
    assert {module for module in model.modules() if not module.training} == {frozen}
