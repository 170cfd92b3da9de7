"""A first-time user's path, in an empty folder: each command must succeed.

    python scripts/first_use.py [--pages] [--environment FOLDER]

A scheme, the demo, a scheme of one's own, one's own photos, a report, with the stepnet that is installed. `--pages`
runs the commands of README.md and docs/ instead, with fewer steps, and with small data in place of what must be
fetched; it needs the extra `dev`. `--environment` first makes this environment, as the README says, and uses the
stepnet in it.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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
PATH = """
--version
scheme lm --k -0.5
models lm_*
table cifar
evaluate lm_resnet20.digits --classes
train lm_resnet20 --epochs 1 --out runs/digits
compare preact_resnet20 lm_resnet20 --data digits --seeds 2 --epochs 1 --out runs/demo
scheme damped --import mine
train preact_resnet20:damped --epochs 1 --import mine --out runs/damped
inspect runs/damped --figures pictures
figure curves runs/digits runs/damped -o curves.svg
train lm_resnet20 --data photos --image-size 32 --epochs 1 --out runs/photos
predict runs/photos photos/val/light
evaluate runs/photos --classes
report runs/digits runs/damped -o report.html
"""
# What a page names and an empty folder does not have. Runs and texts are made by the first commands.
BEFORE_PAGES = """
train lm_resnet20 --epochs 1 --epoch-steps 2 --out runs/image
train gpt1x16 --data novel.txt --epochs 1 --epoch-steps 2 --out runs/text
train preact_resnet20 --data photos --epochs 1 --epoch-steps 2 --out runs/plain
export runs/image --safetensors model.safetensors
"""
STAND_INS = [
    (r"runs/shakespeare/\S+", "runs/text"),
    (r"\bruns/(cifar10|flowers)\S*|\bRUN\b|\bresults/digits/\S*", "runs/image"),
    (r"--data cifar10", "--data digits"),
    (r"--data shakespeare", "--data novel.txt"),
    (r"--data flowers", "--data photos"),
    (r"--data photos(.* --val-share)", r"--data photos/train\1"),
    (r"docs/figures/", ""),
    (r"(photo\.jpg) more_photos/", r"\1 photos/val"),
]
NOT_HERE = ("data fetch", "--pretrained", "torchrun", "accelerate", "--data imagenet")  # downloads, several processes
SHORT = {"train": "--epochs 1 --epoch-steps 2", "compare": "--epochs 1 --epoch-steps 2 --seeds 1"}
SHORT["transfer"] = SHORT["train"]


def write_files() -> None:
    """Light and dark pictures of several sizes, a text, and a module with a scheme."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    for split, count in (("train", 20), ("val", 6)):
        for name, grey in (("light", 170), ("dark", 70)):
            folder = Path("photos") / split / name
            folder.mkdir(parents=True)
            for n in range(count):
                pixels = rng.normal(grey, 30, (60 + n, 80, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{n}.jpg")
    Image.open(folder / "0.jpg").save("photo.jpg")
    Path("novel.txt").write_text("ROMEO. It was the best of times, it was the worst of times.\n" * 200)
    Path("mine.py").write_text(OWN_SCHEME)


def page_commands() -> Iterator[str]:
    """The words behind each `$ stepnet` of the pages, once each, so that they run here and take seconds."""
    seen = set()
    for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))):
        for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
            for line in re.findall(r"^\$ (.*)$", re.sub(r"\\\n +", "", block), re.MULTILINE):
                words = line.partition("stepnet")[2].strip()
                for pattern, stand_in in STAND_INS:
                    words = re.sub(pattern, stand_in, words)
                short = SHORT.get(words.split()[0], "")
                words = f"{words} {short.replace('epochs 1', 'epochs 3') if '--levels' in words else short}".strip()
                if words not in seen and not any(part in line for part in NOT_HERE):
                    yield words
                seen.add(words)


def install(environment: Path, extra: str) -> Path:
    """Install as the README says, and return the Python of the environment."""
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment.resolve() / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    subprocess.run([*pip, "torch"], check=True)
    subprocess.run([*pip, f"{ROOT}[{extra}]"], check=True)
    return python


def main() -> int:
    """Run them all; what fails is printed in full."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pages", action="store_true", help="the commands of README.md and docs/")
    parser.add_argument("--environment", type=Path, help="make this environment first, and use it")
    options = parser.parse_args()
    if options.environment:
        python = install(options.environment, "dev" if options.pages else "report")
        return subprocess.run([python, __file__, *["--pages"] * options.pages], check=False).returncode
    write_files()
    lines = [*BEFORE_PAGES.strip().splitlines(), *page_commands()] if options.pages else PATH.strip().splitlines()
    failed = 0
    for line in lines:
        began = time.monotonic()
        words = [sys.executable, "-m", "stepnet.cli", *shlex.split(line)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        print(f"{time.monotonic() - began:6.1f} s  stepnet {line}", flush=True)
        if done.returncode:
            print(done.stdout, done.stderr, sep="\n", flush=True)
            failed += 1
    print(f"{len(lines)} commands, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
