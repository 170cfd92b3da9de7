"""`stepnet predict`: the likeliest classes of pictures. `stepnet generate`: continue a text."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from stepnet.commands.import_flag import ImportFlag
from stepnet.errors import UserError
from stepnet.escaping import echo, print_json


@dataclass
class Predict(ImportFlag):
    """Classify pictures with a trained network: the likeliest classes of each. No data set is needed."""

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A model file, the folder of a run, or the name of pretrained weights."""
    images: Annotated[Positional[list[str]], arg(metavar="IMAGE [IMAGE ...]")]
    """Pictures, folders of pictures, or - to read paths from standard input."""
    top: int = 5
    """How many classes to show."""
    json: bool = False
    """Print the probabilities as JSON instead."""

    def __call__(self) -> None:
        from stepnet.data import UnreadableImage
        from stepnet.exchange import load, predict

        self.import_modules([self.model])
        if not self.images:
            raise UserError("no images: name pictures, a folder of pictures, or - to read paths from standard input")
        network = load(self.model)
        paths = [path for named in self.images for path in _pictures(named)]
        predictions, unreadable = [], 0
        for path in paths:
            try:
                (likely,) = predict(network, [path], self.top)
            except UnreadableImage as error:
                if len(paths) == 1:
                    raise
                echo(f"stepnet: {error}", file=sys.stderr)
                unreadable += 1
                continue
            predictions.append({"image": str(path), "classes": [each._asdict() for each in likely]})
            if not self.json:
                echo(path)
                for each in likely:
                    echo(f"  {100 * each.probability:5.1f} %  {each.name}")
        if self.json:
            print_json(predictions)
        if unreadable:
            raise UserError(f"{unreadable} of {len(paths)} pictures could not be read")


@dataclass
class Generate(ImportFlag):
    """Continue a text with a trained language model, token by token."""

    model: Annotated[Positional[str], arg(metavar="RUN|MODEL")]
    """The folder of a run, or a model file."""
    prompt: str = "\n"
    """The text to continue."""
    length: int = 500
    """How many tokens to add."""
    temperature: float = 0.8
    """Divides the logits: a lower one makes likely tokens likelier, 0 always takes the likeliest."""
    seed: int = 0
    """Seed of the random draws."""

    def __call__(self) -> None:
        from stepnet.exchange import generate, load

        self.import_modules([self.model])
        pieces = generate(load(self.model), self.prompt, self.length, self.temperature, self.seed)
        echo(self.prompt, end="")
        for piece in pieces:
            echo(piece, end="")
        echo("")


def _pictures(named: str) -> list[Path]:
    """Return the picture files that an argument names."""
    from stepnet.data import SUFFIXES

    if named == "-":
        return [Path(line.rstrip("\n")) for line in sys.stdin if line.strip()]
    path = Path(named)
    if not path.is_dir():
        return [path]
    inside = sorted(each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES)
    if not inside:
        raise UserError(f"{path} holds no pictures: expected files that end in {', '.join(sorted(SUFFIXES))}")
    return inside
