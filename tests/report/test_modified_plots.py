"""The modified equation, seen."""

import numpy as np
import pytest

import stepnet
from stepnet import UserError
from stepnet.analysis import march_and_modified
from stepnet.report.figures import paper_style


@pytest.mark.parametrize("example", ["gradient", "diffusion", "transport", "steps"])
def test_every_example_is_drawn(example, tmp_path):
    picture = stepnet.plot_modified(example, ks=(-0.5,))
    picture.savefig(tmp_path / "modified.svg")
    assert (tmp_path / "modified.svg").stat().st_size > 10_000


def test_points_are_the_march_and_lines_the_modified_equation():
    picture = stepnet.plot_modified("gradient", ks=(-0.5,))
    flow = march_and_modified(stepnet.get_scheme("lm", k=-0.5), [0.04, 1.0], 0.9, 60, (-1.0, 0.35))
    drawn = [line.get_ydata() for line in picture.axes[1].lines]
    assert any(np.array_equal(data, np.linalg.norm(flow.march, axis=1)) for data in drawn)
    assert any(np.array_equal(data, np.linalg.norm(flow.modified, axis=1)) for data in drawn)


def test_steps_along_a_curve_are_those_of_the_scheme():
    """The circles of Euler's panel: `u + dt u (1 - u)`."""
    axes = stepnet.plot_modified("steps", ks=(-0.5,)).axes[0]
    circles = [float(line.get_ydata()[0]) for line in axes.lines if line.get_marker() == "o"]
    u, wanted = 0.1, []
    for _ in range(4):
        u = u + 1.2 * u * (1 - u)
        wanted.append(u)
    assert circles == pytest.approx([*wanted, 0.1])


def test_what_cannot_be_drawn():
    with pytest.raises(UserError, match="example = 'heat': expected 'gradient' or"):
        stepnet.plot_modified("heat")
    with pytest.raises(UserError, match="for which lm is zero-stable"):
        stepnet.plot_modified(ks=(-1.5,))


def test_lines_have_no_markers_in_the_style_of_a_paper():
    with paper_style(2):
        drawn = stepnet.plot_modified("transport").axes[0].lines
    assert {line.get_label(): line.get_marker() for line in drawn} == {
        "exact": "None",
        "scheme": ".",
        "modified equation": "None",
    }


def test_the_letters_of_a_network_fit_its_boxes():
    with paper_style(1):
        small = stepnet.plot_modified("steps").axes[4]  # Heun's network, the widest
    assert max(text.get_fontsize() for text in small.texts) < 5
