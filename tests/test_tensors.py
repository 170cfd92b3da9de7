import json
import os
import pickle

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from stepnet import UserError, tensors
from stepnet.tensors import first_difference, read_tensors, widened, write_tensors

SOME = {"a": torch.arange(6.0).view(2, 3), "b.c": torch.tensor([1, 2])}


def test_what_is_written_is_read(tmp_path):
    write_tensors(tmp_path / "x", {"t": SOME["a"].t()}, {"key": "value"})  # contiguous or not
    found, header = read_tensors(tmp_path / "x")
    assert torch.equal(found["t"], SOME["a"].t()) and header["key"] == "value"


def test_a_flipped_bit_is_found_by_the_checksum(tmp_path):
    path = tmp_path / "x"
    write_tensors(path, SOME, {})
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="checksum"):
        read_tensors(path)


def test_tensors_under_other_names_are_found_by_the_checksum(tmp_path):
    write_tensors(tmp_path / "x", SOME, {})
    _, header = read_tensors(tmp_path / "x")
    save_file({f"{name}.moved": tensor for name, tensor in SOME.items()}, tmp_path / "y", metadata=header)
    with pytest.raises(UserError, match="checksum"):
        read_tensors(tmp_path / "y")


def test_a_lying_header_is_refused(tmp_path):
    header = {"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}
    content = json.dumps(header).encode()
    (tmp_path / "a").write_bytes(len(content).to_bytes(8, "little") + content + b"\0" * 64)
    (tmp_path / "b").write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
    (tmp_path / "c").write_bytes(b"")
    for name in "abc":
        with pytest.raises(UserError, match="damaged or not a safetensors file") as refused:
            read_tensors(tmp_path / name)
        assert "\n" not in str(refused.value)


def test_a_pickle_is_never_executed(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    (tmp_path / "a").write_bytes(pickle.dumps(Bomb()))
    torch.save({"w": torch.zeros(2)}, tmp_path / "b.pth")
    for name in ("a", "b.pth"):
        with pytest.raises(UserError, match="damaged or not a safetensors file"):
            read_tensors(tmp_path / name)
    assert not (tmp_path / "executed").exists()


def test_only_a_regular_file_is_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for odd in (tmp_path / "pipe", tmp_path):
        with pytest.raises(UserError, match="not a regular file"):
            read_tensors(odd)
    with pytest.raises(UserError, match="no such file"):
        read_tensors(tmp_path / "nothing")


@pytest.mark.parametrize("kind", [OSError, SafetensorError])
def test_a_full_disk_leaves_the_earlier_file(tmp_path, monkeypatch, kind):
    path = tmp_path / "x"
    write_tensors(path, SOME, {})

    def full(tensors, partial, metadata):
        partial.write_bytes(b"half")
        raise kind("I/O error: No space left on device")

    monkeypatch.setattr(tensors, "save_file", full)
    with pytest.raises(UserError, match="No space left on device; the one before it is untouched"):
        write_tensors(path, {"a": torch.zeros(1)}, {})
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert torch.equal(load_file(path)["a"], SOME["a"])


def test_the_first_difference_is_named():
    assert first_difference(SOME, dict(SOME)) is None
    assert first_difference(SOME, {"a": SOME["a"]}) == "'b.c', which only the network has"
    assert first_difference({}, {"z": torch.zeros(1), "y": torch.zeros(1)}) == "'y', which only the file has"
    other = {"a": torch.zeros(3, 2), "b.c": SOME["b.c"]}
    assert first_difference(SOME, other) == "'a': [3, 2] float32 in the file, [2, 3] float32 in the network"


def test_a_device_without_float64_is_left_for_the_cpu():
    """Apple's GPUs refuse float64; a stand-in refuses it as they do."""

    class OnApple:
        is_mps = True

        def cpu(self):
            return torch.tensor([1.5])

        def double(self):
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")

    assert widened(OnApple()).tolist() == [1.5] and widened(OnApple()).dtype == torch.float64
    assert widened(torch.tensor([1.5])).dtype == torch.float64
