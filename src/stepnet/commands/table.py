"""`stepnet table`: the paper's tables next to our figures. `stepnet models`: the networks with their costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from stepnet.commands.columns import RIGHT, latex_table, print_table
from stepnet.commands.parsing import ImportFlag
from stepnet.errors import UserError
from stepnet.escaping import echo, print_json

if TYPE_CHECKING:
    from stepnet.report import Listing, MeasuredError, PaperRow, ParameterCount

TITLES = {
    "schemes": "Table 1: networks, their equations, their schemes",
    "residual": "Residual connections as general linear methods: Y = U y + A dt f(Y), y_{n+1} = V y + B dt f(Y)",
    "properties": "Their properties; a step learns the parameters, with s streams of d features (above, s = 2)",
    "sources": "Their sources",
    "cifar": "Table 2: CIFAR, test error in per cent",
    "imagenet": "Table 3: ImageNet, single-crop validation error in per cent",
    "stochastic": "Table 4: stochastic training on CIFAR-10, test error in per cent",
}
NUMBERS = {"order", "parameters"}  # in JSON, where they are numbers

UNSHOWN = {  # columns in which all rows of a table are alike or empty
    "cifar": {"training", "recipe"},
    "imagenet": {"training", "data", RIGHT + "params", "recipe"},
    "stochastic": {"data", RIGHT + "params"},
}


@dataclass
class Table(ImportFlag):
    """Print a table of the paper next to our figures, counted and measured."""

    name: Positional[Literal["schemes", "residual", "cifar", "imagenet", "stochastic"]]
    """One of the paper's four tables; or residual: the residual connections in use today, by their matrices."""
    results: Path | None = None
    """Folder of measured errors, as stepnet evaluate --record writes them; by default those that come with stepnet."""
    json: bool = False
    """Print the rows as JSON instead."""
    latex: bool = False
    """Print the table for a paper instead, with the rules of booktabs."""

    def __call__(self) -> None:
        from stepnet.report import CIFAR, IMAGENET, STOCHASTIC

        self.import_modules()
        if self.name == "schemes":
            print_schemes(self)
        elif self.name == "residual":
            print_residual(self)
        else:
            print_errors({"cifar": CIFAR, "imagenet": IMAGENET, "stochastic": STOCHASTIC}[self.name], self)

    def show(
        self,
        headings: Sequence[str],
        cells: Iterable[Sequence[str]],
        records: Sequence[dict[str, Any]],
        spare: Sequence[str] = (),
        title: str = "",
    ) -> None:
        """Print the table for a terminal or for LaTeX, or its records as JSON."""
        if self.json:
            print_json([row | {key: _number(row[key]) for key in NUMBERS & row.keys()} for row in records])
        elif self.latex:
            echo(latex_table(headings, cells, TITLES[title or self.name]))
        else:
            print_table(headings, cells, TITLES[title or self.name], spare)


def _number(text: str) -> int | str:
    """Return a whole number as such; `n + 1 in step n` stays a text."""
    return int(text) if text.isdecimal() else text


def print_schemes(table: Table) -> None:
    """Print table 1 from the registry of schemes: those that a known network uses."""
    from stepnet.analysis import analyse
    from stepnet.report import SCHEMES
    from stepnet.schemes import list_schemes

    printed = {row.network: row.scheme for row in SCHEMES}
    rows = []
    for name in list_schemes():
        analysis = analyse(name)
        if network := analysis.scheme.network:
            rows.append([network, analysis.equation_line, name, str(analysis.order), printed.get(network, "")])
    headings = ["network", "equation", "scheme", RIGHT + "order", "the paper says"]
    names = [heading.removeprefix(RIGHT).replace(" ", "_") for heading in headings]
    table.show(headings, rows, [dict(zip(names, row, strict=True)) for row in rows])


def print_residual(table: Table) -> None:
    """Print the schemes of several coefficients and streams: their matrices, properties and sources."""
    from stepnet.report import general_linear_table

    rows = [asdict(row) for row in general_linear_table()]
    names = list(rows[0])
    parts = {"residual": names}
    if not table.json and not table.latex:  # 11 columns are wider than a terminal
        parts = {"residual": names[:5], "properties": [names[0], *names[5:-1]], "sources": [names[0], names[-1]]}
    for title, columns in parts.items():
        cells = [[row[name] for name in columns] for row in rows]
        table.show([name.replace("_", "-") for name in columns], cells, rows, title=title)


def print_errors(rows: tuple[PaperRow, ...], table: Table) -> None:
    """Print tables 2 to 4: the paper's parameters and errors next to ours, counted and measured."""
    from stepnet.report import count, measured, measured_here, read_measurements

    folder = table.results or measured_here()
    measurements = read_measurements(folder)
    lines = [(row, count(row), measured(row, measurements)) for row in rows]
    shown = [
        {heading: cell for heading, cell in _cells(*line).items() if heading not in UNSHOWN[table.name]}
        for line in lines
    ]
    # The name of our network also identifies the paper's network and its layers, and the recipe its training.
    spare = ("source", "layers", "network", "training")
    table.show(list(shown[0]), [list(row.values()) for row in shown], [_record(*line) for line in lines], spare)
    if not table.json and not table.latex:
        for note in _notes(lines, folder):
            echo(note)


def _record(row: PaperRow, counted: ParameterCount, result: MeasuredError | None) -> dict[str, Any]:
    return asdict(row) | {
        "params": None if row.params is None else round(float(row.params.removesuffix("M")) * 1e6),
        "counted": counted.parameters,
        "counted_classes": counted.classes,
        "measured": result and asdict(result),
    }


def _cells(row: PaperRow, counted: ParameterCount, result: MeasuredError | None) -> dict[str, str]:
    return {
        "network": row.model,
        "layers": row.layers,
        "training": row.strategy,
        "data": row.dataset,
        RIGHT + "params": row.params or "",
        RIGHT + "counted": f"{counted.parameters:,}{_mark(row, counted)}",
        RIGHT + "error": f"{row.error:.2f}" if row.top5 is None else f"{row.error:.1f} / {row.top5:.1f}",
        "measured": str(result or ""),
        "our model": row.name,
        "recipe": row.recipe,
        "source": row.source,
    }


def _mark(row: PaperRow, counted: ParameterCount) -> str:
    """Return one character after the count, so that digits stay aligned."""
    from stepnet.report import CLASSES

    if row.params is not None and not counted.fits(row.params):
        return "!"
    return "*" if counted.classes != CLASSES[row.dataset] else " "


def _notes(lines: list[tuple[PaperRow, ParameterCount, MeasuredError | None]], folder: Path) -> list[str]:
    marks = {_mark(row, counted) for row, counted, _ in lines}
    notes = ["* counted for 10 classes, as the paper's figure must have been"] if "*" in marks else []
    notes += ["! not the paper's figure: as described, the network has this many"] if "!" in marks else []
    if any(row.top5 is not None for row, _, _ in lines):
        notes.append("error: top-1 / top-5")
    if not any(result for _, _, result in lines):
        notes.append(f"measured: no run in {folder}")
    return notes


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
            raise UserError(
                f"no model matches {self.pattern!r}: try 'stepnet models', a pattern such as 'lm_*', or one of any "
                "size, as gpt12x48 and vit6x48"
            )
        listings = [known[name] if name in known else counted(name) for name in names]
        if self.json:
            print_json([asdict(each) for each in listings])
            return
        rows = [
            [
                *(each.name, each.family, each.scheme, _steps(each), _input(each, each.name in known)),
                *(f"{each.parameters:,}", short_count(each.multiply_adds), short_bytes(each.activation_bytes)),
            ]
            for each in listings
        ]
        numbers = [RIGHT + heading for heading in ("steps", "image", "parameters", "mult-adds", "memory")]
        print_table(["model", "family", "scheme", *numbers], rows, spare=("family", "image"))


def _input(each: Listing, kept: bool) -> str:
    """`32x32` pixels, or `64 tokens`; networks whose figures are kept take images."""
    if not kept:
        from stepnet.nets import model_entry

        if model_entry(each.name).takes == "tokens":
            return f"{each.image_size} tokens"
    return f"{each.image_size}x{each.image_size}"


def _steps(each: Listing) -> str:
    """`6 of 9`: how many steps the scheme takes itself."""
    return f"{each.own_steps} of {each.steps}" if each.own_steps < each.steps else str(each.steps or "")
