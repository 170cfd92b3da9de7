"""Writing a figure: a whole file in the format of its suffix, or one line that says why not."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from stepnet import UserError
from stepnet.report.figures import check_suffix, write_figure


@pytest.mark.parametrize(("suffix", "head"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("SVG", b"<?xml")])
def test_the_suffix_chooses_the_format(suffix, head, tmp_path):
    path = tmp_path / f"figure.{suffix}"
    write_figure(Figure(), path)
    assert path.read_bytes().startswith(head)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["figure", "figure.docx"])
def test_an_unknown_suffix_names_the_known(name):
    with pytest.raises(UserError, match=f"cannot write '{name}': the suffix must be one of .*png.*svg"):
        check_suffix(Figure(), Path(name))


def test_a_place_that_cannot_be_written_is_told():
    with pytest.raises(UserError, match=r"^cannot write /dev/null/figure\.png: "):
        write_figure(Figure(), Path("/dev/null/figure.png"))
