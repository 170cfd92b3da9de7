"""Whole files; `test_crafted.py` opens the others."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from stepnet.data.arrays import map_array, read_arrays
from stepnet.errors import UserError


def test_an_array_is_mapped(tmp_path: Path) -> None:
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    np.save(tmp_path / "images.npy", images)
    found = map_array(tmp_path / "images.npy", np.dtype(np.uint8), (2, 3, 4))
    assert np.array_equal(found, images) and isinstance(found.base, np.memmap)
    for dtype, shape in ((np.int8, (2, 3, 4)), (np.uint8, (2, 12))):
        with pytest.raises(UserError, match=r"an array of type uint8 and shape \(2, 3, 4\), expected"):
            map_array(tmp_path / "images.npy", np.dtype(dtype), shape)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_read_by_name(save: object, tmp_path: Path) -> None:
    arrays = {"a": np.arange(6).reshape(2, 3), "b": np.asfortranarray(np.ones((2, 3), np.float32)), "c": np.array(b"1")}
    save(tmp_path / "file.npz", **arrays)  # type: ignore[operator]
    for name, found in zip("abc", read_arrays(tmp_path / "file.npz", "abc", 1000), strict=True):
        assert np.array_equal(found, arrays[name]) and found.dtype == arrays[name].dtype
    save(tmp_path / "large.npz", a=np.zeros(10_000))  # type: ignore[operator]
    with pytest.raises(UserError, match=r"a is larger than 10 bytes|holds 80,256 bytes: expected at most"):
        read_arrays(tmp_path / "large.npz", "a", 10)
    with pytest.raises(UserError, match=r"file\.npz: no array x"):
        read_arrays(tmp_path / "file.npz", "x", 10)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_is_one_line(method: int, tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, np.random.default_rng(0).integers(0, 99, 1000))
    with zipfile.ZipFile(tmp_path / "file.npz", "w", method) as file:
        file.writestr("a.npy", array.getvalue())
    content = bytearray((tmp_path / "file.npz").read_bytes())
    for place in range(60, 600):
        content[place] ^= 0xFF
    (tmp_path / "file.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"file\.npz: "):
        read_arrays(tmp_path / "file.npz", "a", 10_000)
