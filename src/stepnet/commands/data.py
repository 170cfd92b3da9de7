"""`stepnet data`: fetch a data set, or list those on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import OmitSubcommandPrefixes, Positional, subcommand

from stepnet.commands.columns import RIGHT, print_table
from stepnet.commands.parsing import ImportFlag
from stepnet.escaping import echo, print_json


@dataclass
class Fetch:
    """Fetch a data set, verify it, and make it ready for training."""

    name: Positional[Literal["cifar10", "cifar100", "shakespeare"]]
    """The data set."""
    root: Path | None = None
    """Folder of all data sets; by default $STEPNET_DATA or ~/.cache/stepnet."""

    def __call__(self) -> None:
        from stepnet.data import data_root, fetch

        fetch(self.name, data_root(self.root))


@dataclass
class List(ImportFlag):
    """List the data sets that are on this machine, and say how to get the others."""

    root: Path | None = None
    """Folder of all data sets; by default $STEPNET_DATA or ~/.cache/stepnet."""
    json: bool = False
    """Print the figures as JSON instead."""

    def __call__(self) -> None:
        from stepnet.data import data_root, get_data, list_data
        from stepnet.errors import UserError

        self.import_modules()
        root = data_root(self.root)
        facts: list[dict[str, Any]] = []
        missing: list[str] = []
        for name in list_data():
            try:
                data = get_data(name, root)
            except UserError as error:
                missing.append(str(error))
                facts.append({"data": name, "missing": str(error)})
            else:
                counts = {"training": len(data.train), "test": len(data.test), "classes": data.num_classes}
                facts.append({"data": name, **counts, "image": list(data.train.shape)})
        if self.json:
            print_json(facts)
            return
        present = [
            (name, *map("{:,}".format, counts), "x".join(map(str, shape)))
            for name, *counts, shape in (each.values() for each in facts if "missing" not in each)
        ]
        numbers = [RIGHT + heading for heading in ("training", "test", "classes", "image")]
        print_table(["data", *numbers], present, f"data sets in {root}")
        for reason in missing:
            echo(reason)


@dataclass
class DataSets:
    """Fetch a data set, or list those on this machine."""

    action: OmitSubcommandPrefixes[
        Annotated[Fetch, subcommand("fetch", description=Fetch.__doc__)]
        | Annotated[List, subcommand("list", description=List.__doc__)]
    ]

    def __call__(self) -> None:
        self.action()
