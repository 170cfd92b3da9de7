from pathlib import Path

import numpy as np
import pytest
import torch

from stepnet.data.normalise import Normalisation, kept_statistics, statistics

RNG = np.random.default_rng(0)


def test_statistics_are_those_of_all_pixels() -> None:
    images = RNG.integers(0, 256, (2100, 5, 4, 3), dtype=np.uint8)  # more than are counted at once
    found = statistics(images)
    assert found.mean == pytest.approx((images / 255).mean((0, 1, 2)).tolist(), rel=1e-13)
    assert found.std == pytest.approx((images / 255).std((0, 1, 2)).tolist(), rel=1e-12)


def test_the_deviation_is_not_the_mean_of_each_images_own() -> None:
    images = np.stack([np.zeros((2, 2, 1), np.uint8), np.full((2, 2, 1), 255, np.uint8)])
    assert statistics(images).std == (0.5,)  # each image's own is zero


def test_normalised_images_have_mean_zero_and_deviation_one() -> None:
    images = RNG.integers(0, 200, (500, 6, 6, 3), dtype=np.uint8)
    result = statistics(images)(images).double()
    assert result.mean((0, 2, 3)).abs().max() < 1e-6
    assert (result.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-6


def test_equals_torchvision_to_rounding() -> None:
    from torchvision.transforms import v2

    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)
    images = RNG.integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)
    planes = torch.from_numpy(images).permute(0, 3, 1, 2)
    theirs = v2.Compose([v2.ToDtype(torch.float64, scale=True), v2.Normalize(mean, std)])(planes)
    torch.testing.assert_close(Normalisation(mean, std)(images).double(), theirs, rtol=0, atol=1e-6)


def test_result_is_channels_last_float32() -> None:
    result = Normalisation((0.5,) * 3, (0.5,) * 3)(np.zeros((2, 6, 5, 3), np.uint8))
    assert result.shape == (2, 3, 6, 5) and result.dtype == torch.float32
    assert result.is_contiguous(memory_format=torch.channels_last)


def test_a_constant_channel_maps_to_zero() -> None:
    images = np.full((3, 2, 2, 1), 7, np.uint8)
    assert not statistics(images)(images).abs().max() > 1e-7


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"mean": 1}', b"\xff"])
def test_kept_statistics_that_are_damaged_are_taken_again(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_bytes(damage)
    found = Normalisation((0.1, 1 / 3), (0.2, 0.7))
    assert kept_statistics(tmp_path / "kept.json", lambda: found) == found
    assert kept_statistics(tmp_path / "kept.json", lambda: pytest.fail("taken again")) == found
