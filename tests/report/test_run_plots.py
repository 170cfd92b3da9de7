"""The paper's figures: what the lines hold, against the run folders; the caller's rcParams decide how they look."""

import io
import json
import math

import matplotlib
import pytest
import torch

from stepnet import create_model
from stepnet.errors import UserError
from stepnet.report.figures import paper_style
from stepnet.report.run_plots import plot_coefficients, plot_compression, plot_curves


def labelled(picture) -> dict[str, list[float]]:
    lines = picture.axes[0].get_lines()
    return {line.get_label(): list(line.get_ydata()) for line in lines if not line.get_label().startswith("_")}


def test_curves_are_means_over_seeds(write_run) -> None:
    runs = [write_run(seed=0, errors=(40.0, 10.0)), write_run(seed=1, errors=(60.0, 20.0))]
    picture = plot_curves(runs)
    assert labelled(picture) == {"lm_resnet20": [50.0, 15.0]}
    solid = [line for line in picture.axes[0].get_lines() if line.get_linestyle() == "-"]
    assert [list(line.get_ydata()) for line in solid] == [[40.0, 10.0], [60.0, 20.0], [50.0, 15.0]]
    scales = [plot_curves(runs, log=log).axes[0].get_yscale() for log in (None, True, False)]
    assert scales == ["log", "log", "linear"]  # the end, where runs differ, is not pressed against the axis
    assert plot_curves([write_run(seed=2, errors=(20.0, 10.0))]).axes[0].get_yscale() == "linear"
    assert labelled(plot_curves(runs, "loss"))["lm_resnet20"] == pytest.approx([50 / 30, 15 / 30])


def test_curves_over_the_time_of_training(write_run) -> None:
    """Epochs of a multilevel run take unequal times."""
    run = write_run(errors=(40.0, 30.0, 10.0))
    path = run / "metrics.jsonl"
    lines = [
        {**json.loads(line), "seconds": s} for line, s in zip(path.read_text().splitlines(), (1, 2, 4), strict=True)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (solid,) = [line for line in plot_curves(run, over="seconds").axes[0].get_lines() if line.get_linestyle() == "-"]
    assert list(solid.get_xdata()) == [1, 3, 7]
    assert list(solid.get_ydata()) == [40, 30, 10]


def test_one_epoch_is_a_point_and_nan_a_gap(write_run) -> None:
    picture = plot_curves(write_run(errors=(40.0,)))
    assert picture.axes[0].get_lines()[0].get_marker() == "o"
    drawn = labelled(plot_curves(write_run(seed=1, errors=(40.0, math.nan, 20.0))))["lm_resnet20"]
    assert math.isnan(drawn[1]) and drawn[2] == 20.0


@pytest.mark.parametrize("plot", [plot_curves, plot_coefficients, plot_compression])
def test_runs_without_a_finished_epoch_have_no_figure(write_run, plot) -> None:
    runs = [write_run(seed=seed, errors=(), epochs=3, data="cifar10") for seed in range(2)]
    with pytest.raises(UserError, match=r"seed0: no epoch of this run is finished yet"):
        plot(runs)


def test_coefficients_of_a_run_of_an_epoch_and_of_a_network(write_run) -> None:
    run = write_run()
    assert labelled(plot_coefficients(run))["lm_resnet20"] == pytest.approx([0.3, -0.6, -2.7])
    assert labelled(plot_coefficients(str(run), epoch=1))["lm_resnet20"] == pytest.approx([0.1, -0.2, -0.9])
    torch.manual_seed(0)
    model = create_model("lm_resnet20")
    ks = [k for stage in model.stages for k in stage.k.tolist()]
    assert labelled(plot_coefficients(model))["ResidualNetwork"] == pytest.approx(ks)
    with pytest.raises(UserError, match="epoch 4: "):
        plot_coefficients(run, epoch=4)


def test_coefficients_with_names_have_panels_and_their_entries_curves() -> None:
    picture = plot_coefficients(create_model("gpt2x16", scheme="x0", num_classes=11))
    assert [axes.get_ylabel() for axes in picture.axes] == ["r", "x"]
    assert [axes.get_lines()[0].get_ydata().tolist() for axes in picture.axes] == [[1] * 4, [0] * 4]
    _, v, _ = plot_coefficients(create_model("gpt2x16", scheme="hyper", num_classes=11)).axes
    curves = {line.get_label(): line.get_ydata().tolist() for line in v.get_lines()}
    assert curves["GPT, entry 1"] == curves["GPT, entry 4"] == [1] * 4 and curves["GPT, entry 2"] == [0] * 4
    (a,) = plot_coefficients(create_model("gpt2x16", scheme="dense", num_classes=11)).axes
    places = [line.get_xdata().tolist() for line in a.get_lines() if str(line.get_label()).startswith("GPT")]
    assert places == [[1, 2, 3], [1, 2, 3], [2, 3], [3]]  # an older state enters in a later layer


def test_networks_without_k_and_two_data_sets_are_refused(write_run) -> None:
    with pytest.raises(UserError, match="no learned k"):
        plot_coefficients(write_run("preact_resnet20"))
    with pytest.raises(UserError, match="runs on digits, cifar10: expected runs on one data set"):
        plot_curves([write_run(), write_run(seed=1, data="cifar10")])
    with pytest.raises(UserError, match="no runs"):
        plot_curves([])


def test_compression_has_the_papers_points_and_ours(write_run) -> None:
    paper = labelled(plot_compression())
    assert paper["LM-ResNet, paper"] == [8.33, 7.18, 6.66, 6.31]
    picture = plot_compression([write_run()], "digits")
    assert [text.get_text() for text in picture.legends[0].get_texts()] == ["lm_resnet20"]
    (parameters, *_), (work, *_) = (axes.get_lines()[0].get_xdata() for axes in picture.axes)
    convolutions = 9 * (16 + 6 * 16**2), 9 * (16 * 32 + 5 * 32**2), 9 * (32 * 64 + 5 * 64**2)
    assert parameters == sum(convolutions) + 2 * 688 + 650 + 6  # normalisation, classifier, k
    assert work == sum(n * pixels for n, pixels in zip(convolutions, (64, 16, 4), strict=True)) + 640
    with pytest.raises(UserError, match="no point for 'digits'"):
        plot_compression(data="digits")


def test_equal_networks_share_an_axis_that_says_so(write_run) -> None:
    """Two networks of 269,434 and 269,440 parameters: the axis spans more than their sixth digit."""
    axes = plot_compression([write_run("preact_resnet20"), write_run()], "digits").axes[0]
    assert axes.get_xlim() == pytest.approx((0.93 * 2e5, 1.07 * 5e5))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.2M", "0.5M"]
    first, second = (line.get_transform().transform(line.get_xydata())[0] for line in axes.lines[:2])
    assert second[0] - first[0] > 5  # side by side, in pixels: their bars do not hide each other


def test_labels_name_networks_in_the_order_of_their_runs(write_run) -> None:
    runs = [write_run(), write_run("preact_resnet20"), write_run(seed=1)]
    assert list(labelled(plot_curves(runs, labels=["mine", "plain"]))) == ["plain", "mine"]  # Euler's first, as ever
    with pytest.raises(UserError, match="labels a: expected 2 different ones, one for each of lm_resnet20, preact_"):
        plot_curves(runs, labels=["a"])


def test_the_callers_style_is_honoured(write_run) -> None:
    run = write_run()
    with matplotlib.rc_context({"axes.prop_cycle": matplotlib.cycler(color=["#123456"]), "figure.figsize": (5, 2)}):
        picture = plot_curves(run)
    assert picture.axes[0].get_lines()[0].get_color() == "#123456"
    assert tuple(picture.get_size_inches()) == (5, 2)
    with paper_style(2):
        assert plot_curves(run).get_size_inches()[0] == 6.9


@pytest.mark.parametrize("plot", [plot_curves, plot_coefficients])
def test_a_name_with_dollars_is_no_formula(plot, write_run):
    name = r"lm$\frac$"
    picture = plot(write_run(name, name="run"))
    picture.savefig(io.BytesIO(), format="svg")
    assert name.replace("$", r"\$") in labelled(picture)
