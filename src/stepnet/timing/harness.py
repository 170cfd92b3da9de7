"""Compare variants in one process: interleaved, medians with quartiles, and an A/A control.

Each repetition runs every variant once, in an order that rotates, and a ratio is formed within a repetition: what slows
the machine slows both. The baseline runs twice, which is the *A/A control*: a ratio inside its spread is no
difference. With one thread the clock is the processor time of this process, which stands still while another
process has the core.
"""

from __future__ import annotations

import gc
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from stepnet.files import atomic_file

Variant = Callable[[], object]  # if it returns a float, that is its time, measured in another process
Seconds = dict[str, list[float]]
CONTROL = "A/A control"
LIBRARIES = ("torch", "timm", "torchvision", "transformers", "memcnn", "momentumnet", "revtorch", "numpy", "stepnet")


@dataclass(frozen=True)
class Spread:
    """The median of some repetitions, and their quartiles."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if len(values) == 1:
            return cls.exact(values[0])
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, lower, upper)

    @classmethod
    def exact(cls, value: float) -> Spread:
        """Return the spread of a value that is counted, not timed."""
        return cls(value, value, value)

    def __str__(self) -> str:
        if self.lower == self.upper:
            return _short(self.median)
        return f"{_short(self.median)} ({_short(self.lower)}–{_short(self.upper)})"


@dataclass(frozen=True)
class Row:
    """A row of a table: what was measured, its A/A control and its target."""

    what: str
    value: Spread
    unit: str = "x"
    control: Spread | None = None
    target: str = ""
    note: str = ""


def interleave(
    variants: Mapping[str, Variant], repeats: int, clock: Callable[[], float] | None = None, warmup: int = 1
) -> Seconds:
    """Return the seconds of each repetition of each variant, without the `warmup`."""
    clock = clock or steady_clock()
    names = list(variants)
    seconds: Seconds = {name: [] for name in names}
    collecting = gc.isenabled()
    gc.disable()  # a collection would slow whichever variant is running
    try:
        for repeat in range(-warmup, repeats):
            gc.collect()
            shift = repeat % len(names)
            for name in names[shift:] + names[:shift]:
                start = clock()
                measured = variants[name]()
                if repeat >= 0:
                    seconds[name].append(measured if isinstance(measured, float) else clock() - start)
    finally:
        if collecting:
            gc.enable()
    return seconds


def compare(
    variants: Mapping[str, Variant],
    baseline: Variant,
    repeats: int,
    clock: Callable[[], float] | None = None,
    control: Variant | None = None,
) -> tuple[dict[str, Spread], Spread]:
    """Return the time of each variant over the baseline's, and the A/A control: the baseline, or a copy, over itself.

    A copy has another place in memory, as a variant has, so its ratio includes that effect.
    """
    seconds = interleave({"baseline": baseline, CONTROL: control or baseline, **variants}, repeats, clock)
    return {name: ratio(seconds, name, "baseline") for name in variants}, ratio(seconds, CONTROL, "baseline")


def compared(what: str, variants: Sequence[Variant], repeats: int, target: str = "") -> Row:
    """Return the time of the first variant over the second; a third is a copy of the second for the A/A control."""
    ratios, control = compare({what: variants[0]}, variants[1], repeats, control=(*variants, None)[2])
    return Row(what, ratios[what], control=control, target=target)


def ratio(seconds: Seconds, over: str, under: str) -> Spread:
    """Return the spread of the ratios, each formed within one repetition."""
    return Spread.of([a / b for a, b in zip(seconds[over], seconds[under], strict=True)])


def growth(what: str, sizes: Sequence[float], values: Sequence[float], unit: str, target: str = "") -> Row:
    """Fit the exponent p of `value = c size^p` to the logarithms by least squares; the note lists the values."""
    slope, _ = statistics.linear_regression([math.log(x) for x in sizes], [math.log(y) for y in values])
    measured = ", ".join(f"{_short(y)}" for y in values)
    sized = ", ".join(f"{x:g}" for x in sizes)
    return Row(what, Spread.exact(slope), "exponent", target=target, note=f"({measured} {unit} at {sized})")


def steady_clock() -> Callable[[], float]:
    """Return the processor clock for one thread, the wall clock for several."""
    torch = sys.modules.get("torch")
    return time.process_time if torch is None or torch.get_num_threads() == 1 else time.perf_counter


def machine() -> dict[str, object]:
    """Describe the machine and the versions of the libraries."""
    torch = sys.modules.get("torch")
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "threads": None if torch is None else torch.get_num_threads(),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": versions,
    }


def print_rows(rows: Iterable[Row], title: str) -> None:
    """Print a table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table("what", "median (quartiles)", "A/A control", "target", "note", title=title)
    for row in rows:
        table.add_row(row.what, f"{row.value} {row.unit}", str(row.control or ""), row.target, row.note)
    Console().print(table)


def write_rows(path: Path, section: str, rows: Iterable[Row], command: str, **more: object) -> None:
    """Replace a section of the results file."""
    known = json.loads(path.read_text()) if path.exists() else {}
    known[section] = {
        "command": command,
        "measured": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
        "rows": [asdict(row) for row in rows],
        **more,
    }
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(known, indent=1) + "\n")


def _short(value: float) -> str:
    """Format with three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
