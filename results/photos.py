"""A folder of photos to a trained classifier, timed: `python results/photos.py WORK [ROW...]`.

The photos are CIFAR-10's (`stepnet data fetch cifar10`), written as PNG files into train/CLASS and val/CLASS. They come
from its test set, which the published weights have not seen. Each row trains with three seeds, then evaluates and
writes the report; all is added to photos.json, and the table of docs/your_images.md is made from that file. Rows whose
runs are recorded are passed over; without arguments, only the page is made.

The recipe was chosen on birds and deer (one seed). It is shown on dogs and horses.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tools import DOCS, read_content, with_part, write_content

from stepnet.commands.columns import markdown_table
from stepnet.data import get_data

FILE, PAGE = "photos.json", DOCS / "your_images.md"
BEGIN, END = "<!-- Made by `python results/photos.py`. -->", "<!-- End of what it makes. -->"
CHOSEN_ON, SHOWN_ON = ("bird", "deer"), ("dog", "horse")
TRAIN, VALIDATION = 244, 153  # files in all, as many as ants and bees of PyTorch's tutorial
SEEDS = (0, 1, 2)
STRONG = "--randaugment 9 --mixup 0.2 --cutmix 1.0"
ROWS = {
    "shown": (SHOWN_ON, ""),
    "shown-weights": (SHOWN_ON, "--weights lm_resnet20.cifar10"),
    "default": (CHOSEN_ON, ""),
    "steps": (CHOSEN_ON, "--min-steps 1200"),
    "strong": (CHOSEN_ON, f"--min-steps 1200 {STRONG}"),
}


def write_folder(folder: Path, classes: tuple[str, ...], train: int = TRAIN, validation: int = VALIDATION) -> None:
    """The first photos of each class in CIFAR-10's test set, as files."""
    source: Any = get_data("cifar10").test
    for number, name in enumerate(classes):
        places = np.flatnonzero(np.asarray(source.labels) == source.classes.index(name))
        counts = {"train": _share(train, number, len(classes)), "val": _share(validation, number, len(classes))}
        taken = iter(places)
        for split, count in counts.items():
            target = folder / split / name
            target.mkdir(parents=True, exist_ok=True)
            for _ in range(count):
                place = int(next(taken))
                Image.fromarray(np.asarray(source.images[place])).save(target / f"{place}.png")


def _share(total: int, number: int, parts: int) -> int:
    return total * (number + 1) // parts - total * number // parts


def journey(work: Path, name: str, seed: int) -> dict[str, Any]:
    """Folder, training, evaluation, report: the test error, and the seconds and processor seconds of each part."""
    classes, flags = ROWS[name]
    photos, run = work / "_".join(classes), work / "runs" / f"{name}-seed{seed}"
    train = ["train", "lm_resnet20", "--data", str(photos), *flags.split(), "--seed", str(seed), "--out", str(run)]
    seconds = {"folder": _timed(lambda: write_folder(photos, classes))}
    seconds["train"] = _timed(lambda: _stepnet(*train))
    answers: list[str] = []
    seconds["evaluate"] = _timed(lambda: answers.append(_stepnet("evaluate", str(run), "--classes", "--json")))
    seconds["report"] = _timed(lambda: _stepnet("report", str(run), "-o", str(run / "report.html")))
    return {
        "row": name,
        "seed": seed,
        "test_error": round(json.loads(answers[0])["error"], 4),
        "seconds": {part: wall for part, (wall, _) in seconds.items()},
        "processor_seconds": {part: busy for part, (_, busy) in seconds.items()},
        "load": round(os.getloadavg()[0], 1),
    }


def _stepnet(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "stepnet.cli", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"stepnet {' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def _timed(part: Any) -> tuple[float, float]:
    """Seconds by the clock and by the processor, of this process and those that it started."""
    began, busy = time.monotonic(), _busy()
    part()
    return round(time.monotonic() - began, 1), round(_busy() - busy, 1)


def _busy() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def read() -> list[dict[str, Any]]:
    """Return the recorded runs."""
    return list(read_content(FILE).get("photos", []))


def write(runs: list[dict[str, Any]]) -> None:
    """Write the runs in the order of the rows."""
    order = list(ROWS)
    write_content(FILE, "photos", sorted(runs, key=lambda run: (order.index(run["row"]), run["seed"])))


def table(runs: list[dict[str, Any]]) -> str:
    """Return a table of the test errors by row, and the time from the folder to the report."""
    if not runs:
        return "*Not measured yet.*"
    headings = ("`stepnet train lm_resnet20 --data FOLDER` with", "photos", "test error, seeds 0 1 2", "mean")
    rows = []
    for name, (classes, flags) in ROWS.items():
        trained = [run for run in runs if run["row"] == name]
        if trained:
            errors = ", ".join(f"{run['test_error']:.1f}" for run in trained)
            mean = statistics.mean(run["test_error"] for run in trained)
            busy = statistics.mean(sum(run["processor_seconds"].values()) for run in trained)
            words = f"`{flags}`" if flags else "nothing more (the default)"
            rows.append([words, " and ".join(classes), f"{errors} %", f"{mean:.1f} %", f"{busy:.0f} s"])
    return "\n".join(markdown_table((*headings, "processor time"), rows))


def page() -> str:
    """Return docs/your_images.md with the table of the recorded runs."""
    return with_part(PAGE.read_text(), BEGIN, table(read()), END)


def main(words: list[str]) -> None:
    """Make the runs that are missing, then the page."""
    if words:
        for name in words[1:] or ROWS:
            for seed in SEEDS:
                if all((run["row"], run["seed"]) != (name, seed) for run in read()):
                    done = journey(Path(words[0]), name, seed)
                    write([*read(), done])
                    print(json.dumps(done), flush=True)
    if BEGIN in PAGE.read_text():
        PAGE.write_text(page())
    print(table(read()))


if __name__ == "__main__":
    main(sys.argv[1:])
