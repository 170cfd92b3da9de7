import io
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepnet.data.pickles import load_arrays
from stepnet.errors import UserError

BATCH = {
    "data": np.arange(24, dtype=np.uint8).reshape(2, 12),
    "labels": [3, 1],
    "filenames": ["a.png", "b.png"],
    "fortran": np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3)),
}


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_and_plain_values_come_back(tmp_path: Path, protocol: int) -> None:
    loaded = load_arrays(write(tmp_path / "batch", pickle.dumps(BATCH, protocol)))
    assert np.array_equal(loaded["data"], BATCH["data"]) and loaded["data"].dtype == np.uint8
    assert np.array_equal(loaded["fortran"], BATCH["fortran"])
    assert loaded["labels"] == [3, 1]
    assert loaded["filenames"] == ["a.png", "b.png"]


def test_the_official_files_are_pickles_of_python_2(tmp_path: Path) -> None:
    """Protocol 2 with byte strings and `numpy.core`, written here by hand, opcode by opcode."""
    pixels = bytes(range(12))
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
        b"(K\x01K\x02K\x06\x86cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89U\x0c" + pixels + b"tb"
    )
    content = b"\x80\x02}(U\x04data" + array + b"U\x06labels](K\x07K\x02eu."
    pickletools.dis(content, out=io.StringIO())  # the bytes are a well-formed pickle
    loaded = load_arrays(write(tmp_path / "batch", content))
    assert np.array_equal(loaded[b"data"], np.arange(12, dtype=np.uint8).reshape(2, 6))
    assert loaded[b"labels"] == [7, 2]


class Runs:
    """Whoever unpickles this runs `function(*arguments)`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_code_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "it-ran"
    for function, *arguments in (
        (os.system, f"touch {marker}"),
        (os.mkdir, str(marker)),
        (eval, f"open({str(marker)!r}, 'w')"),
        (getattr, BATCH, "clear"),
        (np.fromfile, "/dev/null"),
    ):
        content = pickle.dumps({"data": [Runs(function, *arguments)]}, protocol)
        path = write(tmp_path / "batch", content)
        with pytest.raises(UserError, match=r"refused: it names .*; nothing in it was run"):
            load_arrays(path)
        assert not marker.exists()
        assert path.read_bytes() == content


def test_arrays_of_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'O8?'"):
        load_arrays(write(tmp_path / "batch", pickle.dumps(np.array([{}], dtype=object))))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        pickle.dumps(BATCH)[:-20],
        b"cnumpy\nndarray\n(K\x00t\x81.",  # makes an ndarray by itself
        b"cnumpy\ndtype\n}U\x01aK\x01sb.",  # sets an attribute of the type
        b"cnumpy.core.multiarray\n_reconstruct\n(tR(K\x01K\x05\x85NI00\nU\x01xtb.",  # a shape that lies
        b"\x80\x02cnumpy\ndtype\n(U\x02u1tRr\xff\xff\xff\xff.",  # a memo index of four thousand million
        b"Psomewhere else\n.",
    ],
)
def test_broken_pickles_are_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "batch", content)
    with pytest.raises(UserError) as refused:
        load_arrays(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
