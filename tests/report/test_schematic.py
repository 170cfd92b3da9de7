"""The drawing: every state, block and k that should be there is there, and long stages stay legible."""

import re

import pytest
import torch
from matplotlib.patches import Circle

from stepnet import create_model
from stepnet.errors import UserError
from stepnet.report.schematic import draw_network, plot_network, plot_networks
from stepnet.report.sketches import NetworkSketch, sketch, sketch_stage
from stepnet.report.step_drawing import JOIN
from stepnet.schemes import get_scheme


def texts(path) -> list[str]:
    """The texts of a drawing; matplotlib leaves each as a comment beside its glyphs."""
    return re.findall(r"<!-- (.*?) -->", path.read_text(), flags=re.DOTALL)


def test_lm_shows_states_blocks_and_every_k(tmp_path) -> None:
    torch.manual_seed(0)
    model = create_model("lm_resnet20")
    draw_network(sketch(model, "lm_resnet20"), tmp_path / "net.svg")
    found = texts(tmp_path / "net.svg")
    for n in range(3):
        assert found.count(f"$u_{{{n}}}$") == found.count(f"$f_{{{n}}}$") == 3
    for stage in model.stages:
        for n, k in zip((1, 2), stage.k.tolist(), strict=True):
            assert f"$k_{{{n}}} = {k:.3f}$" in found
    assert found.count("project") == 2


def test_the_middle_of_a_long_stage_is_left_out(tmp_path) -> None:
    stage = sketch_stage(get_scheme("lm"), 18, ks=[-0.05] * 17)
    draw_network(NetworkSketch("deep", (stage,)), tmp_path / "net.svg")
    found = texts(tmp_path / "net.svg")
    assert "12 more" in found
    assert [t for t in found if t.startswith("$f_")] == [f"$f_{{{n}}}$" for n in (0, 1, 2, 15, 16, 17)]
    assert "$k_{15} = -0.050$" in found  # its older state is among those left out


def test_many_stages_are_left_out_in_the_middle(tmp_path) -> None:
    stage = sketch_stage(get_scheme("euler"), 1)
    draw_network(NetworkSketch("many", (stage,) * 40), tmp_path / "net.svg")
    found = texts(tmp_path / "net.svg")
    assert "… 32 more stages …" in found
    assert [t for t in found if t.startswith("stage")] == [f"stage {n}" for n in (1, 2, 3, 4, 37, 38, 39, 40)]


def test_revnet_has_two_rails(tmp_path) -> None:
    draw_network(sketch(create_model("revnet38"), "revnet38"), tmp_path / "net.svg")
    found = texts(tmp_path / "net.svg")
    for symbol in ("$X_{3}$", "$Y_{3}$", "$f_{2}$", "$g_{2}$"):
        assert found.count(symbol) == 3


def test_png_is_written_and_other_suffixes_are_refused(tmp_path) -> None:
    network = NetworkSketch("net", (sketch_stage(get_scheme("ab3"), 4),))
    draw_network(network, tmp_path / "net.png")
    assert (tmp_path / "net.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match=r"cannot write 'net\.xyz': the suffix must be one of"):
        draw_network(network, tmp_path / "net.xyz")
    assert not (tmp_path / "net.xyz").exists()


def written(picture) -> list[str]:
    return [text.get_text() for text in picture.axes[0].texts]


def test_figure_1_shows_the_wiring_of_each_architecture() -> None:
    models = {"PolyNet": "poly2_resnet20", "FractalNet": "fractalnet20", "Shake-Shake": "shakeshake26_2x32d"}
    found = written(plot_networks({title: create_model(name) for title, name in models.items()}))
    assert [text for text in found if text.startswith("(")][:1] == ["(a) PolyNet"]
    assert found.count("$f_{1}$") == 2  # F and F^2
    assert [f"$B_{{0}}^{{{i}}}$" in found for i in range(1, 9)] == [True] * 7 + [False]
    assert found.count("$a$") == found.count("$1 - a$") == 4


def test_a_network_by_rk4_is_drawn_stage_by_stage_with_its_weights() -> None:
    found = written(plot_network(create_model("preact_resnet20", scheme="rk4"), "rk4"))
    assert found[0] == "rk4"
    assert found.count("$f_{1}$") == 3 * 4
    assert found.count("$1/3$") == 2 * (3 + 2 + 2)  # a transition is an Euler step


def test_lm_on_a_pair_shows_its_k_on_both_rails() -> None:
    torch.manual_seed(0)
    model = create_model("lm_revnet38")
    picture = plot_network(model)
    found = written(picture)
    for n, k in zip((1, 2), model.stages[0].k.tolist(), strict=True):
        assert found.count(f"$k_{{{n}}} = {k:.3f}$") == 2
    joins = [patch for patch in picture.axes[0].patches if isinstance(patch, Circle) and patch.radius == JOIN]
    assert len(joins) >= 2  # g reads X_n + f
