"""`stepnet models`: the networks and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from stepnet.commands.columns import RIGHT, print_table
from stepnet.errors import UserError


@dataclass
class Models:
    """List the networks: parameters, multiply-adds and activation memory for one image, counted, not looked up."""

    pattern: Annotated[Positional[str], arg(metavar="PATTERN")] = "*"
    """A name or a shell pattern, such as 'lm_*'."""

    def __call__(self) -> None:
        from rich.console import Console
        from rich.progress import track

        from stepnet.nets import list_models, model_entry
        from stepnet.nets.profile import profile_by_name

        names = list_models(self.pattern)
        if not names:
            if not set("*?[") & set(self.pattern):
                model_entry(self.pattern)  # tells the nearest name
            raise UserError(f"no model matches {self.pattern!r}: try 'stepnet models' or a pattern such as 'lm_*'")
        rows = []
        stderr = Console(stderr=True)
        for name in track(names, "counting", console=stderr, transient=True, disable=not stderr.is_terminal):
            entry, cost = model_entry(name), profile_by_name(name)
            image = f"{entry.image_size}x{entry.image_size}"
            amounts = [f"{cost.parameters:,}", count(cost.multiply_adds), memory(cost.activation_bytes)]
            rows.append([name, entry.family, entry.scheme, image, *amounts])
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
