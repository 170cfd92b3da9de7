import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

from stepnet.data.images import UnreadableImage, centre_view, image_size, random_view, read_view


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """Smooth colours, 640 x 480."""
    noise = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC).save(tmp_path / "photo.jpg", quality=95)
    return tmp_path / "photo.jpg"


@pytest.mark.parametrize("word", range(6))
def test_a_view_is_what_cutting_and_resizing_give(photo: Path, word: int) -> None:
    look = random_view(word)
    left, top, right, bottom, mirrored = look(640, 480)
    with Image.open(photo) as file:
        expected = np.asarray(file.resize((48, 48), Image.Resampling.BILINEAR, (left, top, right, bottom)))
    expected = expected[:, ::-1] if mirrored else expected
    assert np.array_equal(read_view(photo, 48, look), expected)
    quick = read_view(photo, 48, look, exact=False).astype(int)
    assert np.abs(quick - expected).mean() < 3  # decoded at a smaller scale


def test_a_photo_taken_on_its_side_is_turned_upright(photo: Path, tmp_path: Path) -> None:
    turned = tmp_path / "turned.jpg"
    with Image.open(photo) as file:
        upright = np.asarray(file)
        for orientation, how in ((3, Image.Transpose.ROTATE_180), (6, Image.Transpose.ROTATE_90)):
            exif = Image.Exif()
            exif[0x0112] = orientation
            file.transpose(how).save(turned, exif=exif, quality=95)
            assert image_size(turned) == (640, 480)
            for exact in (True, False):
                seen = read_view(turned, 64, random_view(3), exact=exact).astype(int)
                expected = read_view(photo, 64, random_view(3), exact=exact).astype(int)
                assert np.abs(seen - expected).mean() < 3
    assert upright.shape == (480, 640, 3)


def test_grey_palette_cmyk_and_16_bits_become_colours(tmp_path: Path) -> None:
    ramp = np.tile(np.arange(0, 256, 4, dtype=np.uint8), (64, 1))
    grey = Image.fromarray(ramp)
    files = {
        "grey.png": grey,
        "palette.png": grey.convert("P"),
        "cmyk.jpg": grey.convert("RGB").convert("CMYK"),
        "deep.png": Image.fromarray(ramp.astype(np.uint16) << 8),
        "alpha.webp": grey.convert("RGBA"),
    }
    for name, image in files.items():
        image.save(tmp_path / name)
        seen = read_view(tmp_path / name, 64, centre_view(64, 1.0)).astype(int)
        assert np.abs(seen - ramp[..., np.newaxis]).max() < 12, name


def test_a_random_view_does_not_depend_on_a_resize_before_it() -> None:
    """The paper's random length in [256, 480] of the shorter side drops out: the view is the same part of the image."""
    for word in range(20):
        look = random_view(word)
        part, twice = look(375, 500), look(2 * 375, 2 * 500)
        assert twice[:4] == pytest.approx([2 * edge for edge in part[:4]]) and twice[4:] == part[4:]


def test_random_views_are_distributed_as_torchvisions() -> None:
    from torchvision.transforms.v2 import RandomResizedCrop

    ours = [random_view(word)(500, 375) for word in range(1500)]
    torch.manual_seed(0)  # theirs come from torch's own generator
    crop = RandomResizedCrop(224)
    image = Image.new("RGB", (500, 375))
    theirs = [crop.make_params([image]) for _ in range(1500)]
    for mine, other in (
        ([view.right - view.left for view in ours], [each["width"] for each in theirs]),
        ([view.bottom - view.top for view in ours], [each["height"] for each in theirs]),
        ([view.left for view in ours], [each["left"] for each in theirs]),
    ):
        assert stats.ks_2samp(mine, other).pvalue > 1e-3
    assert 0.4 < np.mean([view.mirrored for view in ours]) < 0.6
    assert all(0 <= view.left < view.right <= 500 + 1e-9 and view.top >= 0 for view in ours)


def test_a_very_long_image_has_a_view_in_its_middle() -> None:
    view = random_view(0)(10_000, 10)
    assert math.isclose(view.right - view.left, 10 * 4 / 3) and (view.top, view.bottom) == (0, 10)
    assert math.isclose((view.left + view.right) / 2, 5000)


def test_what_cannot_be_read_is_told_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"no image")
    for read in (image_size, lambda path: read_view(path, 8, centre_view(8))):
        with pytest.raises(UnreadableImage, match=rf"^{path} cannot be read as an image \("):
            read(path)
