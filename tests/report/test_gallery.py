"""Each figure by its name, from what was named."""

import pytest
from matplotlib.text import Text

from stepnet.data.text import read_text
from stepnet.errors import UserError
from stepnet.report import opened_networks
from stepnet.report.depth_studies import exit_study
from stepnet.report.figures import paper_style
from stepnet.report.gallery import FIGURES, draw, studies
from stepnet.report.lesion import lesion_study


def test_figure_1_unless_networks_are_named() -> None:
    with paper_style(2):
        picture = FIGURES["networks"]([])
        assert picture.get_size_inches()[0] == pytest.approx(6.9)
        named = FIGURES["networks"](["lm_resnet20", "revnet38"])
        alone = FIGURES["networks"](["lm_resnet20"])
    headings = [text.get_text() for text in picture.axes[0].texts if text.get_text().startswith("(")]
    assert [h for h in headings if "k" not in h and "/" not in h] == [
        "(a) ResNet", "(b) PolyNet", "(c) FractalNet", "(d) RevNet", "(e) LM-ResNet",
    ]  # fmt: skip
    texts = [text.get_text() for text in named.axes[0].texts]
    assert "(a) lm_resnet20" in texts
    assert [text.split(",")[0] for text in texts if "channels" in text] == ["stage 1 of 3"] * 2
    assert [f"stage {n}" in [text.get_text() for text in alone.axes[0].texts] for n in (1, 2, 3)] == [True] * 3


def test_compression_takes_the_data_of_its_runs(write_run) -> None:
    assert FIGURES["compression"]([]).legends[0].get_title().get_text().startswith("cifar10")
    assert FIGURES["compression"]([str(write_run())]).legends[0].get_title().get_text().startswith("digits")


def test_trajectory_and_spectrum_of_one_network(write_model_of_digits) -> None:
    place = str(write_model_of_digits())
    assert len(FIGURES["trajectory"]([place]).axes) == 3
    assert FIGURES["spectrum"]([place]).axes[0].get_xlabel().startswith("Re")
    for name in ("trajectory", "spectrum"):
        with pytest.raises(UserError, match=f"figure {name} of 2 networks"):
            FIGURES[name]([place, place])


def test_lesions_of_two_runs_of_one_model_keep_apart(write_model_of_digits) -> None:
    one, other = str(write_model_of_digits(k=-0.3)), str(write_model_of_digits(k=0.2))
    found = studies(lesion_study, [one, other], images=20)
    assert list(found) == ["tiny--0.3", "tiny-0.2"]  # the last part of each path tells them apart
    assert list(studies(lesion_study, [one, other], images=20, labels=["a", "b"])) == ["a", "b"]
    with pytest.raises(UserError, match="lesion needs"):
        studies(lesion_study, [])


def test_a_network_of_text_is_told_what_the_images_are_for(write_model_of_digits, tmp_path, monkeypatch) -> None:
    (tmp_path / "play.txt").write_text("KING. Wherefore?\n" * 20)
    monkeypatch.setattr(opened_networks, "data_of", lambda *_, **__: read_text(tmp_path / "play.txt", context=8))
    place = str(write_model_of_digits())
    for study in (lesion_study, exit_study):
        name = study.__name__.removesuffix("_study")
        with pytest.raises(UserError, match=f"on text, and figure {name} measures the test error on images"):
            studies(study, [place])
    with pytest.raises(UserError, match="on text, and the eigenvalues of f are taken at an image"):
        FIGURES["spectrum"]([place])
    with pytest.raises(UserError, match="on text, and states are shown of images"):
        FIGURES["trajectory"]([place])


def test_schemes_and_modified_equations() -> None:
    labels = [text.get_text() for text in FIGURES["stability"](["heun", "ab2"]).findobj(Text)]
    assert {"heun", "ab2"} <= set(labels)
    assert len(FIGURES["modified"](["transport"]).axes) >= 2
    with pytest.raises(UserError, match="example = 'heat': expected 'gradient', "):
        FIGURES["modified"](["heat"])
    with pytest.raises(UserError, match="name one example"):
        FIGURES["modified"](["transport", "steps"])


def test_labels_where_there_is_something_to_name() -> None:
    with paper_style(1):
        picture = draw("networks", ["lm_resnet20", "preact_resnet20"], ["LM", "plain"])
    assert "(b) plain" in [text.get_text() for text in picture.axes[0].texts]
    with pytest.raises(UserError, match="figure stability has no labels"):
        draw("stability", [], ["a"])
    with pytest.raises(UserError, match="labels a, a: expected 2 different ones"):
        draw("networks", ["lm_resnet20", "preact_resnet20"], ["a", "a"])
