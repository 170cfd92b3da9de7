"""The picture of a scheme."""

import matplotlib
import matplotlib.image
import numpy as np
import pytest
from cycler import cycler

import stepnet
from stepnet import UserError, get_scheme
from stepnet.report.scheme_plots import draw_scheme


@pytest.mark.parametrize("name", ["rk4", "midpoint2", "coupled", "leapfrog"])
def test_a_picture_shows_something_in_both_panels(name, tmp_path):
    path = tmp_path / "scheme.png"
    draw_scheme(get_scheme(name), path)
    pixels = matplotlib.image.imread(path)[..., :3]
    left, right = pixels[80:, : pixels.shape[1] // 2], pixels[80:, pixels.shape[1] // 2 :]
    ink = [(abs(half - (0x1F / 255, 0x77 / 255, 0xB4 / 255)).max(axis=-1) < 0.05).sum() for half in (left, right)]
    assert min(ink) > 200  # the limits on the axes, the measured line


def test_an_unknown_suffix_is_told(tmp_path):
    with pytest.raises(UserError, match="suffix must be one of"):
        draw_scheme(get_scheme("euler"), tmp_path / "scheme.docx")
    assert list(tmp_path.iterdir()) == []


def test_regions_lie_over_each_other_in_the_caller_s_colours():
    with matplotlib.rc_context({"axes.prop_cycle": cycler(color=["#123456", "#654321", "#ff0000"])}):
        picture = stepnet.plot_stability("euler", get_scheme("lm", k=-0.5), "midpoint2")
    (legend,) = picture.legends
    assert [text.get_text() for text in legend.get_texts()] == ["euler", "lm, k = -0.5", "midpoint2"]
    assert [line.get_color() for line in legend.get_lines()] == ["#123456", "#654321", "#ff0000"]
    (axes,) = picture.axes
    edges = [each for each in axes.collections if len(each.get_paths()[0].vertices) > 1]
    circle = edges[0].get_paths()[0].vertices
    assert np.abs(np.abs(circle @ [1, 1j] + 1) - 1).max() < 1e-3  # Euler's |1 + z| = 1
    ellipse = edges[1].get_paths()[0].vertices
    assert ellipse[:, 0].min() == pytest.approx(-3, abs=0.02)  # lm's 2 (1 - k)
    segment = [line for line in axes.lines if line.get_linewidth() == 2.5 and line.get_color() == "#ff0000"]
    assert [max(abs(line.get_ydata())) for line in segment] == [0, 1]  # midpoint2: i (-1, 1), and no interior


@pytest.mark.parametrize("name", ["x0", "mhc"])
def test_a_stream_that_carries_a_constant_leaves_the_region_whole(name):
    """Its eigenvalue is 1 up to rounding at every z; the rest of the method is Euler's disc."""
    (axes,) = stepnet.plot_stability(name).axes
    edges = np.concatenate([each.get_paths()[0].vertices for each in axes.collections])
    assert np.abs(np.abs(edges @ [1, 1j] + 1) - 1).max() < 0.03  # a cell of the grid


def test_orders_lie_over_each_other():
    picture = stepnet.plot_order("euler", "rk4")
    names = [text.get_text() for text in picture.legends[0].get_texts()]
    assert names == ["euler, slope 1.00", "rk4, slope 4.02"]
    assert picture._repr_png_().startswith(b"\x89PNG")


def test_what_cannot_be_drawn():
    with pytest.raises(UserError, match="no scheme to draw"):
        stepnet.plot_stability()
    with pytest.raises(UserError, match="11 schemes and 10 colours"):
        stepnet.plot_stability(*["euler"] * 11)
