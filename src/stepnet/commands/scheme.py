"""`stepnet scheme`: the numerical analysis of a scheme."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from stepnet.commands.columns import print_table
from stepnet.commands.import_flag import ImportFlag
from stepnet.errors import UserError
from stepnet.escaping import echo, print_json

if TYPE_CHECKING:
    from stepnet.analysis import SchemeAnalysis


@dataclass
class ShowScheme(ImportFlag):
    """Analyse a scheme: order, stability, modified equation. Without a name, list all schemes."""

    name: Annotated[Positional[str | None], arg(metavar="NAME")] = None
    """A scheme or an alias, such as lm, rk4, neumann3."""
    k: Annotated[float | None, arg(metavar="K")] = None
    """The coefficient k; by default it stays a symbol."""
    streams: Annotated[int | None, arg(metavar="S")] = None
    """Number of streams of hyper or mhc."""
    plot: Annotated[Path | None, arg(metavar="FILE")] = None
    """Write the stability region and the error against dt to this file: png, pdf, svg."""
    latex: bool = False
    """Print the equations for a paper instead."""
    json: bool = False
    """Print every fact as JSON instead."""

    def __call__(self) -> None:
        self.import_modules()
        if self.name is None:
            if self.k is not None or self.streams is not None or self.plot or self.latex:
                raise UserError("--k, --streams, --plot and --latex need a scheme: stepnet scheme lm --k -0.5")
            print_all(self.json)
            return
        from stepnet.analysis import analyse, list_noises
        from stepnet.schemes import get_scheme

        if self.name in list_noises():
            raise UserError(f"{self.name} is a noise, not a scheme: stepnet noise {self.name}")
        if self.k is not None and get_scheme(self.name).k is None:
            raise UserError(f"scheme {self.name!r} has no k: leave out --k {self.k:g}")
        options: dict[str, float] = {} if self.k is None else {"k": self.k}
        options |= {} if self.streams is None else {"streams": self.streams}
        analysis = analyse(self.name, **options)
        if self.plot is not None:  # first: where there can be no picture, nothing else is printed
            from stepnet.report import draw_scheme

            draw_scheme(analysis.scheme if options else get_scheme(self.name), self.plot)
        echo(analysis.latex if self.latex else json.dumps(analysis.as_dict(), indent=2) if self.json else analysis)
        if self.plot is not None:
            echo(f"\nwrote {self.plot}")


def print_all(as_json: bool = False) -> None:
    """Print a line for each scheme; the orders are computed by analysis, not declared by the class."""
    from stepnet.analysis import analyse
    from stepnet.schemes import list_schemes

    def place(each: SchemeAnalysis) -> tuple[bool, int, int, bool]:
        """Sort one-step methods, multistep methods, pairs; each by its cost, those of a known network first."""
        return each.equation.partitioned, each.scheme.steps, each.scheme.stages, not each.scheme.network

    analyses = sorted(map(analyse, list_schemes()), key=place)
    if as_json:
        facts = [
            {
                "scheme": each.scheme.name,
                "order": each.order,
                "evaluations": each.scheme.stages,
                "equation": str(each.equation_line),
                "network": each.scheme.network or None,
            }
            for each in analyses
        ]
        print_json(facts)
        return
    rows = [
        (each.scheme.name, str(each.order), str(each.scheme.stages), each.equation_line, each.scheme.network)
        for each in analyses
    ]
    print_table(["scheme", "order", "evaluations", "equation", "network"], rows)
    echo("\nevaluations: of f in one step\n`stepnet scheme NAME` shows one scheme, `stepnet noise` lists the noises")
