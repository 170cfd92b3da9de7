"""`stepnet scheme` and `stepnet noise`: the analysis of a scheme, and of a noise of training."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from stepnet.commands.columns import print_table
from stepnet.commands.parsing import ImportFlag
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

    facts = [
        {
            "scheme": each.scheme.name,
            "order": each.order,
            "evaluations": each.scheme.stages,
            "equation": str(each.equation_line),
            "network": each.scheme.network or None,
        }
        for each in sorted(map(analyse, list_schemes()), key=place)
    ]
    if as_json:
        print_json(facts)
        return
    print_table(list(facts[0]), [["" if fact is None else str(fact) for fact in each.values()] for each in facts])
    echo("\nevaluations: of f in one step\n`stepnet scheme NAME` shows one scheme, `stepnet noise` lists the noises")


@dataclass
class ShowNoise(ImportFlag):
    """Analyse a noise of stochastic training: equation, moments, weak orders. Without a name, list all noises."""

    name: Annotated[Positional[str | None], arg(metavar="NAME")] = None
    """A noise, such as stochastic_depth, shake_shake."""
    p: Annotated[float | None, arg(metavar="P")] = None
    """The survival probability of stochastic_depth; by default it stays a symbol."""
    p_end: Annotated[float | None, arg(metavar="P")] = None
    """Let the survival probability fall from 1 to this one, linearly in time, as the paper's networks do."""
    damping: Annotated[float | None, arg(metavar="G")] = None
    """Add the noise to lm with this damping g: the process of section 3.2."""
    samples: Annotated[int, arg(metavar="N")] = 100_000
    """Number of paths that are sampled for a weak order."""
    plot: Annotated[Path | None, arg(metavar="FILE")] = None
    """Write the weak errors against dt to this file: png, pdf, svg."""
    json: bool = False
    """Print the symbolic results as JSON instead."""

    def __call__(self) -> None:
        from stepnet.analysis import analyse_noise, get_noise, list_noises

        self.import_modules()
        if self.name is None:
            if self.plot or {self.p, self.p_end, self.damping} != {None}:
                raise UserError("a flag needs a noise: stepnet noise stochastic_depth --p 0.2")
            noises = {name: get_noise(name).about for name in list_noises()}
            if self.json:
                print_json([{"noise": name, "about": about} for name, about in noises.items()])
                return
            for name, about in noises.items():
                echo(f"{name:<18}{about}")
            return
        analysis = analyse_noise(self.name, self.samples, self.damping, **self._parameters())
        if self.plot is not None:  # first: where there can be no picture, nothing else is printed
            from stepnet.report import draw_noises

            draw_noises(analysis.numbers, self.plot, self.samples)
        if self.json:
            print_json(analysis.as_dict())
        else:
            echo(analysis)
        if self.plot is not None:
            echo(f"\nwrote {self.plot}")

    def _parameters(self) -> dict[str, float | Callable[..., Any]]:
        if self.p is not None and self.p_end is not None:
            raise UserError(f"--p {self.p:g} with --p-end {self.p_end:g}: give one of them")
        if self.p_end is None:
            return {} if self.p is None else {"p": self.p}
        from stepnet.analysis import falling

        return {"p": falling(self.p_end)}
