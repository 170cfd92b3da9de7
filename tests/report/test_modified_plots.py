"""The modified equation, seen."""

import numpy as np
import pytest
from matplotlib.patches import Circle

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


def test_steps_along_a_curve_are_those_of_the_schemes():
    """`u + dt g` of Euler; `(1 - k) u_n + k u_{n-1} + dt (1 + k) g` of lm after one Euler step, g = u (1 - u)."""
    axes = stepnet.plot_modified("steps", ks=(0.5,)).axes[-1]
    drawn = {line.get_label(): line.get_ydata() for line in axes.lines}
    euler, lm = [0.1], [0.1]
    for n in range(3):
        euler.append(euler[n] + 1.2 * euler[n] * (1 - euler[n]))
        past = lm[n] if n == 0 else (lm[n] + lm[n - 1]) / 2
        lm.append(past + 1.2 * 1.5 * lm[n] * (1 - lm[n]))
    assert drawn["euler"] == pytest.approx(euler)
    assert drawn["lm, k = 0.5"] == pytest.approx(lm)


def test_states_of_the_networks_stand_above_their_points():
    with paper_style(1):
        picture = stepnet.plot_modified("steps")
    picture.draw_without_rendering()
    network, curve = picture.axes[1], picture.axes[2]
    nodes = [patch for patch in network.patches if isinstance(patch, Circle)]
    across = [network.transData.transform(node.center)[0] for node in nodes]
    assert across == pytest.approx([curve.transData.transform((n, 0))[0] for n in range(4)])


def test_what_cannot_be_drawn():
    with pytest.raises(UserError, match="example = 'heat': expected 'gradient', "):
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
