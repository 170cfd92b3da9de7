"""`stepnet inspect`: a network stage by stage. `stepnet read`: the scheme that a network implements."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from stepnet.commands.parsing import ImportFlag
from stepnet.errors import UserError
from stepnet.escaping import echo, print_json

if TYPE_CHECKING:
    from torch import nn

    from stepnet.report import NetworkSketch

IMAGES = 100  # test images that the steps of a trained network are measured on


@dataclass
class Inspect(ImportFlag):
    """Show a network stage by stage: scheme, equation, coefficients; with --out, draw it as the paper does.

    For a run it shows what each step does to test images: its k and roots, the distance that it moves a state, the
    largest eigenvalue of f's Jacobian. For a network of timm or torchvision it shows the result of `convert`.
    """

    model: Annotated[Positional[str], arg(metavar="RUN|MODEL")]
    """A run's folder, pretrained weights (lm_resnet20.digits), or NAME[:SCHEME][,OPTION=VALUE…], also timm/NAME."""
    out: Annotated[Path | None, arg(metavar="FILE")] = None
    """Write the schematic to this file (svg, png, pdf, …)."""
    figures: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """For a run: draw network, coefficients, trajectories and spectrum into this folder."""
    data_root: str | None = None
    """Folder of all data sets; by default $STEPNET_DATA or ~/.cache/stepnet."""
    scheme: str | None = None
    """Step the blocks with this scheme instead of the network's; for networks of other libraries, lm by default."""
    json: bool = False
    """Print the facts as JSON instead."""

    def __call__(self) -> None:
        from stepnet.report import sketch, unstable_steps

        title, model = self._open()
        network = sketch(model, title)
        if self.json:
            if self.out is not None or self.figures is not None:
                raise UserError("--json cannot be combined with --out or --figures: use two commands")
            self._print_json(network, model)
            return
        echo(network)
        for line in unstable_steps(model):
            echo(line)
        if self.out is not None:
            from stepnet.report import draw_network

            draw_network(network, self.out)
            echo(f"\nwrote {self.out}")
        from stepnet.report import is_trained

        if is_trained(self.model):
            self._print_dynamics(model)
        elif self.figures is not None:
            raise UserError(f"--figures: {self.model} was never trained; name a run, or draw the network with --out")

    def _print_json(self, network: NetworkSketch, model: nn.Module) -> None:
        from stepnet.nets import coefficients
        from stepnet.report import is_trained, network_facts, open_with_images, spectra, step_facts

        facts = {**network_facts(network), "coefficients": coefficients(model)}
        if is_trained(self.model):
            with suppress(UserError):  # without test images there are none of their states
                shown = open_with_images(self.model, IMAGES, self.data_root)
                facts["steps"] = step_facts(shown, spectra(shown.network, shown.images[:1]))
                facts["images"] = len(shown.images)
        print_json(facts)

    def _print_dynamics(self, model: nn.Module) -> None:
        from stepnet.commands.columns import RIGHT, print_table
        from stepnet.commands.train import print_coefficients
        from stepnet.nets import coefficients
        from stepnet.report import HEADINGS, open_with_images, spectra, step_rows, write_pictures
        from stepnet.schemes import layer_and_name

        try:
            shown = open_with_images(self.model, IMAGES, self.data_root)
        except UserError as error:
            named = {name: value for name, value in coefficients(model).items() if layer_and_name(name)[1] != "k"}
            print_coefficients(named)  # the k are printed already
            echo(f"\nno test images, so nothing about their states: {error}")
            if self.figures is not None:
                raise
            return
        spectrum = spectra(shown.network, shown.images[:1])
        right = [heading if heading in ("step", "") else RIGHT + heading for heading in HEADINGS]
        echo()
        print_table(right, step_rows(shown, spectrum), f"each step on {len(shown.images)} test images")
        if self.figures is not None:
            for path in write_pictures(shown, spectrum, self.figures):
                echo(f"wrote {path}")

    def _open(self) -> tuple[str, nn.Module]:
        from stepnet.conversion import describe, is_foreign
        from stepnet.report import is_trained, open_network

        self.import_modules([self.model])  # for a model's name too: they may register it, or its scheme
        trained = is_trained(self.model)
        title, network = open_network(self.model, self.scheme)
        if is_foreign(self.model) and not trained and not self.json:
            echo(f"{describe(network)}\n")
        return f"{title} ({self.model})" if trained else title, network


@dataclass
class Read(ImportFlag):
    """Determine the scheme that a network implements: the weight of each block's output in the input of later blocks.

    The network runs once on random input. A run or a converted network is compared with the scheme that it declares.
    hf:TYPE is transformers' default configuration of a model type, hf:FOLDER one in a folder; both are cut down in
    width and have random weights.
    """

    model: Annotated[Positional[str], arg(metavar="RUN|MODEL")]
    """A run's folder, a model file, [timm/|torchvision/]NAME[:SCHEME][,OPTION=VALUE…], or hf:TYPE[,OPTION=VALUE…]."""
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
