"""Writing a figure: a whole file in the format of its suffix, or one line that says why not."""

import time
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from stepnet import UserError
from stepnet.report.figures import Picture, check_suffix, paper_style, write_figure


@pytest.mark.parametrize(("suffix", "head"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("SVG", b"<?xml")])
def test_the_suffix_chooses_the_format(suffix, head, tmp_path):
    path = tmp_path / f"figure.{suffix}"
    write_figure(Figure(), path)
    assert path.read_bytes().startswith(head)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["figure", "figure.docx"])
def test_an_unknown_suffix_names_the_known(name):
    with pytest.raises(UserError, match=f"cannot write '{name}': the suffix must be one of .*png.*svg"):
        check_suffix(Path(name))


def test_a_place_that_cannot_be_written_is_told():
    with pytest.raises(UserError, match=r"^cannot write /dev/null/figure\.png: "):
        write_figure(Figure(), Path("/dev/null/figure.png"))


def test_a_notebook_shows_a_picture_by_itself():
    assert Picture(figsize=(1, 1))._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(("columns", "width"), [(1, 3.35), (2, 6.9)])
def test_the_style_of_a_paper_has_the_width_of_its_columns(columns, width):
    with paper_style(columns):
        assert Picture().get_size_inches()[0] == width


@pytest.mark.parametrize("suffix", ["svg", "pdf", "png"])
def test_the_same_figure_gives_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    """So that a picture in a repository changes only with what it shows."""
    written = []
    for name in ("first", "second"):
        picture = Picture(figsize=(2, 2))
        picture.add_subplot().plot([0, 1], [0, 1], marker="o")
        write_figure(picture, tmp_path / f"{name}.{suffix}")
        written.append((tmp_path / f"{name}.{suffix}").read_bytes())
        if name == "first":
            time.sleep(1.1)  # dates are in seconds
    assert written[0] == written[1]
