"""The picture of a scheme."""

import matplotlib.image
import pytest

from stepnet import UserError, get_scheme
from stepnet.report.scheme import draw_scheme


@pytest.mark.parametrize("name", ["rk4", "midpoint2", "coupled", "leapfrog"])
def test_a_picture_shows_something_in_both_panels(name, tmp_path):
    path = tmp_path / "scheme.png"
    draw_scheme(get_scheme(name), path)
    pixels = matplotlib.image.imread(path)[..., :3]
    left, right = pixels[80:, : pixels.shape[1] // 2], pixels[80:, pixels.shape[1] // 2 :]
    ink = [(abs(half - (0x1F / 255, 0x3A / 255, 0x5F / 255)).max(axis=-1) < 0.05).sum() for half in (left, right)]
    assert min(ink) > 200  # the limits on the axes, the measured line


def test_an_unknown_suffix_is_told(tmp_path):
    with pytest.raises(UserError, match="suffix must be one of"):
        draw_scheme(get_scheme("euler"), tmp_path / "scheme.docx")
    assert list(tmp_path.iterdir()) == []
