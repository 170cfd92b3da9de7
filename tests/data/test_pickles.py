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


KEYS = (b"data", b"labels")


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_and_plain_values_come_back(tmp_path: Path, protocol: int) -> None:
    path = write(tmp_path / "batch", pickle.dumps(BATCH, protocol))
    data, fortran, labels = load_arrays(path, (b"data", b"fortran", b"labels"))
    assert np.array_equal(data, BATCH["data"]) and data.dtype == np.uint8
    assert np.array_equal(fortran, BATCH["fortran"])
    assert labels.tolist() == [3, 1]


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
    data, labels = load_arrays(write(tmp_path / "batch", content), (b"data", b"labels"))
    assert np.array_equal(data, np.arange(12, dtype=np.uint8).reshape(2, 6))
    assert labels.tolist() == [7, 2]


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
            load_arrays(path, KEYS)
        assert not marker.exists()
        assert path.read_bytes() == content


def test_arrays_of_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'O8?'"):
        load_arrays(write(tmp_path / "batch", pickle.dumps(np.array([{}], dtype=object))), KEYS)


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
        b"}" + b"h\x00" * 3 + b".",  # takes from a memo that holds nothing
        b"](" + b"]" * 600_000 + b"e.",  # short operations without end
        pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1.7, 2]}),
        pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [b"1", b"2"]}),
        pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [True, False]}),
        # a tuple that holds another twice, which holds another twice … as a key: hashing it never ends
        b"\x80\x02}(K\x01\x85q\x00" + b"0h\x00h\x00\x86q\x00" * 200 + b"K\x01u.",
        # the same as a name, as what is called, and as a type: so does printing it
        *(b"\x80\x02K\x01\x85q\x00" + b"0h\x00h\x00\x86q\x00" * 200 + end for end in (b"U\x01a\x93.", b"(tR.")),
        b"\x80\x02K\x01\x85q\x00" + b"0h\x00h\x00\x86q\x00" * 200 + b"0cnumpy\ndtype\n(h\x00tR.",
        b"\x80\x02}(" + b"(" * 100_000 + b"t" * 100_000 + b"K\x01u.",  # one that is nested deeply
        b"\x80\x04]\x91.",  # a frozenset
    ],
)
def test_broken_pickles_are_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "batch", content)
    with pytest.raises(UserError) as refused:
        load_arrays(path, KEYS)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
