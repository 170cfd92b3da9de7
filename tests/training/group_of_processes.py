"""A run on a folder of photos, as a person would start it: FOLDER OUT, then flags."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from stepnet.cli import main
from training import tiny

if __name__ == "__main__":
    torch.set_num_threads(1)
    assert tiny.RECIPE
    folder, out, *flags = sys.argv[1:]
    sizes = ["--image-size", "64", "--batch-size", "8", "--epochs", "1000"]
    sys.exit(main(["train", "tiniest", "--data", folder, *sizes, "--out", out, *flags]))
