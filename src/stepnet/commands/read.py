"""`stepnet read`: the scheme that a network implements."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from stepnet.commands.import_flag import ImportFlag
from stepnet.escaping import echo

if TYPE_CHECKING:
    from torch import nn


@dataclass
class Read(ImportFlag):
    """Determine the scheme that a network implements: the weight of each block's output in the input of later blocks.

    The network runs once on random input. A run or a converted network is compared with the scheme that it declares.
    """

    model: Annotated[Positional[str], arg(metavar="RUN|MODEL")]
    """A run's folder, a model file, NAME[:SCHEME][,OPTION=VALUE…], timm/NAME or torchvision/NAME, also with a scheme;
    hf:TYPE[,OPTION=VALUE…] for transformers' default configuration of a model type, or hf:FOLDER for one in a folder,
    both cut down in width and with random weights."""
    plot: Annotated[Path | None, arg(metavar="FILE")] = None
    """Draw the matrix of each stage into this file: png, pdf, svg."""
    json: bool = False
    """Print everything as JSON instead."""

    def __call__(self) -> None:
        from stepnet.conversion import read

        self.import_modules([self.model])
        reading = read(self._open())
        if self.plot is not None:  # first: where there can be no picture, nothing else is printed
            from stepnet.report import paper_style, plot_reading, write_figure

            with paper_style(columns=2):
                write_figure(plot_reading(reading), self.plot)
        echo(json.dumps(reading.as_dict(), indent=2) if self.json else reading)
        if self.plot is not None and not self.json:
            echo(f"\nwrote {self.plot}")

    def _open(self) -> nn.Module:
        from stepnet.conversion import HF, is_foreign, load_foreign, load_hf
        from stepnet.report import is_trained, open_network
        from stepnet.training import read_label

        if self.model.startswith(HF):
            label = read_label(self.model.removeprefix(HF))
            return load_hf(HF + label.model, **label.kwargs)
        label = read_label(self.model)
        if is_foreign(self.model) and label.scheme is None and not is_trained(self.model):
            return load_foreign(label.model, **label.kwargs)
        return open_network(self.model)[1]
