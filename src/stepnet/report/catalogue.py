"""The cost of every network, stored as data: `stepnet models` looks it up, and a test counts it again.

`python -m stepnet.report.catalogue` counts all networks and writes the file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("catalogue.json")


@dataclass(frozen=True)
class Listing:
    """A network and its cost: parameters, then multiply-adds and activation memory for one image."""

    name: str
    family: str
    scheme: str
    image_size: int
    num_classes: int
    num_features: int  # that its classifier reads
    parameters: int
    multiply_adds: int
    activation_bytes: int
    steps: int
    own_steps: int  # that its scheme takes: a start and a change of shape are steps of another


def kept() -> dict[str, Listing]:
    """Return the networks of the package, without importing torch."""
    return _read(FILE)


@cache
def _read(file: Path) -> dict[str, Listing]:
    return {name: Listing(name, **fields) for name, fields in json.loads(file.read_text()).items()}


def registered() -> list[str]:
    """Return the names that user modules have registered."""
    if "stepnet.nets" not in sys.modules:
        return []
    from stepnet.nets import list_models

    shipped = kept()
    return [name for name in list_models() if name not in shipped]


def counted(name: str) -> Listing:
    """Count the cost of a registered network."""
    from stepnet.nets import model_entry, on_meta, profile

    entry, network = model_entry(name), on_meta(name)
    cost = profile(network, image_size=entry.image_size)
    head = (entry.family, entry.scheme, entry.image_size, entry.num_classes, network.num_features)
    return Listing(name, *head, **asdict(cost))


def short_count(number: float) -> str:
    """Format with three digits and a decimal prefix: 40.6 M."""
    return _scaled(number, 1000, ("", "k", "M", "G", "T"))


def short_bytes(number: float) -> str:
    """Format with three digits and a binary prefix: 1.45 MiB."""
    return _scaled(number, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def _scaled(number: float, base: int, units: tuple[str, ...]) -> str:
    power = 0
    while number >= 999.5 and power < len(units) - 1:
        number, power = number / base, power + 1
    digits = 0 if number >= 99.95 or power == 0 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f} {units[power]}".rstrip()


def write(names: Iterable[str], file: Path = FILE) -> None:
    """Count these networks and write the catalogue."""

    def fields() -> Iterator[tuple[str, dict[str, str | int]]]:
        for name in names:
            values = asdict(counted(name))
            yield values.pop("name"), values

    rows = [f"{json.dumps(name)}: {json.dumps(values)}" for name, values in fields()]
    file.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    from stepnet.nets import list_models

    write(list_models())
