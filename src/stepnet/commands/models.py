"""`stepnet models`: the networks with their sizes and costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from stepnet.commands.columns import RIGHT, print_table
from stepnet.commands.import_flag import ImportFlag
from stepnet.errors import UserError
from stepnet.escaping import print_json

if TYPE_CHECKING:
    from stepnet.report import Listing


@dataclass
class Models(ImportFlag):
    """List the networks with their sizes and costs: parameters, multiply-adds and activation memory for one image."""

    pattern: Annotated[Positional[str], arg(metavar="PATTERN")] = "*"
    """A name or a shell pattern, such as 'lm_*'."""
    json: bool = False
    """Print the exact figures as JSON instead."""

    def __call__(self) -> None:
        from stepnet.report import counted, kept, registered, short_bytes, short_count

        self.import_modules()
        known, added = kept(), registered()
        names = [name for name in (*known, *added) if fnmatch(name, self.pattern)]
        if not names and not set("*?[") & set(self.pattern):
            names = [self.pattern]  # perhaps of a family of any size, such as gpt12x48
        if not names:
            raise UserError(f"no model matches {self.pattern!r}: try 'stepnet models' or a pattern such as 'lm_*'")
        listings = [known[name] if name in known else counted(name) for name in names]
        if self.json:
            print_json([asdict(each) for each in listings])
            return
        rows = [
            [
                *(each.name, each.family, each.scheme, _steps(each), f"{each.image_size}x{each.image_size}"),
                *(f"{each.parameters:,}", short_count(each.multiply_adds), short_bytes(each.activation_bytes)),
            ]
            for each in listings
        ]
        numbers = [RIGHT + heading for heading in ("steps", "image", "parameters", "mult-adds", "memory")]
        print_table(["model", "family", "scheme", *numbers], rows, spare=("family", "image"))


def _steps(each: Listing) -> str:
    """`6 of 9`: how many steps the scheme takes itself."""
    return f"{each.own_steps} of {each.steps}" if each.own_steps < each.steps else str(each.steps or "")
