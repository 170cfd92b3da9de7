"""What every script here does: parse, measure, print one table, keep the figures in results/benchmarks.json."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from stepnet.extras import import_extra
from stepnet.timing.harness import Row, print_rows, write_rows

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks.json"


def measure(
    section: str, about: str | None, rows: Callable[[int], Iterable[Row]], repeats: int, out: Path = RESULTS
) -> None:
    """Run `rows(repeats)` with one thread, print the table, and write its section of the results."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats, help="repetitions of each variant")
    parser.add_argument("--out", type=Path, default=out, help="the JSON file of the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    import_extra("torchvision")  # peers import it themselves
    measured = []
    for row in rows(options.repeats):
        print(f"{row.what}: {row.value} {row.unit}", file=sys.stderr, flush=True)
        measured.append(row)
    print_rows(measured, section)
    command = f"python benchmarks/{Path(sys.argv[0]).name} --repeats {options.repeats}"
    write_rows(options.out, section, measured, command)
