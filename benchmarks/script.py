"""Common to all scripts here: parse flags, measure, print a table, write results/benchmarks.json."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import torch

from stepnet.extras import import_extra
from stepnet.timing.harness import Row, print_rows, write_rows
from stepnet.training.machine import keep_memory

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks.json"


def measure(
    section: str, about: str | None, rows: Callable[[int, bool], Iterable[Row]], repeats: int, threads: int = 1
) -> None:
    """Run `rows(repeats, quick)`, print the table, and write its section of the results unless it was a quick one."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats, help="repetitions of each variant")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the JSON file of the figures")
    parser.add_argument("--quick", action="store_true", help="one repetition of the smallest sizes; nothing is written")
    options = parser.parse_args()
    if options.quick:
        options.repeats = 1
    torch.set_num_threads(1 if options.quick else threads)
    keep_memory()  # as training does: without it, large batches measure page faults
    import_extra("torchvision")  # peers import it themselves
    measured = []
    start, load = time.monotonic(), os.getloadavg()[0]  # of the machine before the measurement
    with suppress(KeyboardInterrupt):  # keep the rows so far
        for row in rows(options.repeats, options.quick):
            print(f"{row.what}: {row.value} {row.unit}", file=sys.stderr, flush=True)
            measured.append(row)
    print_rows(measured, section)
    if options.quick or not measured:
        return
    command = f"python benchmarks/{Path(sys.argv[0]).name} --repeats {options.repeats}"
    write_rows(options.out, section, measured, command, seconds=round(time.monotonic() - start), load_before=load)
