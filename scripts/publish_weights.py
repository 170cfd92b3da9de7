"""Make the weights that come with the package of a finished run: the described file and its card.

    python scripts/publish_weights.py RUN [--license MIT] [--command "stepnet train …"]

writes `src/stepnet/weights/MODEL.DATA.safetensors` and `MODEL.DATA.md`. The run is evaluated again on its test set, and
published only if the error is the recorded one, to the last image.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional

import stepnet
from stepnet.exchange.card import model_card
from stepnet.exchange.model_description import description_of
from stepnet.exchange.model_files import attach
from stepnet.files import atomic_file
from stepnet.nets.model_registry import WEIGHTS
from stepnet.training import Run, evaluate


def publish(run: Run, license: str = "MIT", command: str | None = None, folder: Path = WEIGHTS) -> Path:
    """The file that `create_model(MODEL, pretrained=True)` reads, and beside it the card."""
    network = stepnet.load(run.folder)
    description = description_of(network)
    training, wanted = description.training, run.config.recipe.epochs
    if training is None or training.epochs < wanted or training.test_error is None:
        raise stepnet.UserError(f"{run.folder} has not done its {wanted} epochs: publish a finished run")
    if set(description.options) - {"num_classes", "in_channels"} or description.conversion is not None:
        raise stepnet.UserError(
            f"{description.model} was built with {description.options}: its name is another network"
        )
    found = evaluate(network)
    if round(found.error * found.items / 100) != round(training.test_error * found.items / 100):
        raise stepnet.UserError(f"{run.folder} records an error of {training.test_error} %, and has {found.error} %")
    told = replace(training, command=command or portable(training.command))
    attach(network, replace(description, training=told))
    name = f"{description.model}.{training.data}"
    path = folder / f"{name}.safetensors"
    stepnet.save(network, path, license=license)
    with atomic_file(path.with_suffix(".md")) as partial:
        partial.write_text(model_card(description_of(stepnet.load(path)), name))
    return path


def portable(command: str) -> str:
    """The command without the folders of the machine on which it was typed."""
    words = shlex.split(command)
    kept = [word for before, word in pairwise(["", *words]) if not {before, word} & {"--out", "--data-root"}]
    return shlex.join(kept)


@dataclass
class Publish:
    """Make the weights that come with the package of a finished run."""

    run: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder."""
    license: str = "MIT"
    """Of the weights, as SPDX names it."""
    command: str | None = None
    """What to type to get the run, where it is not what was typed."""

    def __call__(self) -> None:
        print(f"wrote {publish(Run(self.run), self.license, self.command)}")


if __name__ == "__main__":
    try:
        tyro.cli(Publish)()
    except stepnet.UserError as error:
        raise SystemExit(f"publish_weights: {error}") from None
