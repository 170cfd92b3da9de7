"""`stepnet models`: the networks and what they cost."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from typing import Annotated

from tyro.conf import Positional, arg

from stepnet.commands.columns import RIGHT, print_table
from stepnet.errors import UserError, unknown


@dataclass
class Models:
    """List the networks: parameters, multiply-adds and activation memory for one image."""

    pattern: Annotated[Positional[str], arg(metavar="PATTERN")] = "*"
    """A name or a shell pattern, such as 'lm_*'."""
    json: bool = False
    """Print the exact figures as JSON instead."""

    def __call__(self) -> None:
        from stepnet.report.catalogue import counted, kept, registered

        known, own = kept(), registered()
        names = [name for name in (*known, *own) if fnmatch(name, self.pattern)]
        if not names:
            if not set("*?[") & set(self.pattern):
                raise unknown("model", self.pattern, (*known, *own))
            raise UserError(f"no model matches {self.pattern!r}: try 'stepnet models' or a pattern such as 'lm_*'")
        listings = [known[name] if name in known else counted(name) for name in names]
        if self.json:
            print(json.dumps([asdict(each) for each in listings], indent=2))
            return
        rows = [
            [
                *(each.name, each.family, each.scheme, f"{each.image_size}x{each.image_size}"),
                *(f"{each.parameters:,}", count(each.multiply_adds), memory(each.activation_bytes)),
            ]
            for each in listings
        ]
        numbers = [RIGHT + heading for heading in ("image", "parameters", "mult-adds", "memory")]
        print_table(["model", "family", "scheme", *numbers], rows, spare=("family", "image"))


def count(number: float) -> str:
    """Three figures and a decimal prefix: 40.6 M."""
    return _scaled(number, 1000, ("", "k", "M", "G", "T"))


def memory(number: float) -> str:
    """Three figures and a binary prefix: 1.45 MiB."""
    return _scaled(number, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def _scaled(number: float, base: int, units: tuple[str, ...]) -> str:
    power = 0
    while number >= 999.5 and power < len(units) - 1:
        number, power = number / base, power + 1
    digits = 0 if number >= 99.95 or power == 0 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f} {units[power]}".rstrip()
