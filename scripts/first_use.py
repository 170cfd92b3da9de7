"""A first-time user's path, in an empty folder, with the stepnet that is installed: each command must succeed.

    python scripts/first_use.py

A scheme, a run, a scheme of one's own, one's own photos, a report.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

OWN_SCHEME = """
import stepnet
from stepnet.schemes import Scheme

@stepnet.register_scheme("damped")
class Damped(Scheme):
    \"\"\"u_{n+1} = u_n + 0.9 dt f_n\"\"\"

    def carry(self, past, dt, k):
        return past[0].u

    def increment(self, past, dt, k):
        return 0.9 * dt * past[0].f
"""
QUICK = ["--epochs", "1", "--batch-size", "64"]
COMMANDS = [
    ["--version"],
    ["scheme", "lm", "--k", "-0.5"],
    ["models", "lm_*"],
    ["table", "cifar"],
    ["evaluate", "lm_resnet20.digits", "--classes"],
    ["train", "lm_resnet20", *QUICK, "--out", "runs/digits"],
    ["train", "preact_resnet20:damped", *QUICK, "--import", "mine", "--out", "runs/damped"],
    ["train", "lm_resnet20", "--data", "photos", "--image-size", "32", "--epochs", "1", "--out", "runs/photos"],
    ["predict", "runs/photos", "photos/val/light"],
    ["evaluate", "runs/photos", "--classes"],
    ["report", "runs/digits", "runs/damped", "-o", "report.html"],
]


def write_photos(folder: Path) -> None:
    """Light and dark pictures of several sizes."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 20), ("val", 6)):
        for name, grey in (("light", 170), ("dark", 70)):
            (folder / split / name).mkdir(parents=True)
            for n in range(count):
                pixels = rng.normal(grey, 30, (60 + n, 80, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{n}.jpg")


def main() -> int:
    """Run them all; what fails is printed in full."""
    write_photos(Path("photos"))
    Path("mine.py").write_text(OWN_SCHEME)
    for words in COMMANDS:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "stepnet.cli", *words], capture_output=True, text=True, check=False
        )
        print(f"{time.monotonic() - began:6.1f} s  stepnet {' '.join(words)}", flush=True)
        if done.returncode:
            print(done.stdout, done.stderr, sep="\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
