"""`stepnet noise`: the stochastic equation that a network solves under a noise of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from stepnet.commands.import_flag import ImportFlag
from stepnet.errors import UserError
from stepnet.escaping import echo, print_json


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
