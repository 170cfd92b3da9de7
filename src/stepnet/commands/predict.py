"""Use a trained network: `stepnet predict`, `stepnet generate`, `stepnet export`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from stepnet.commands.parsing import ImportFlag
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
    prompt: Annotated[str, arg(help_behavior_hint="(default: a new line)")] = "\n"
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


@dataclass
class Export(ImportFlag):
    """Export a trained network to ONNX or torch.export; a file whose outputs differ from torch's is not kept."""

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A model file, the folder of a run, or the name of pretrained weights."""
    onnx: Annotated[Path | None, arg(metavar="FILE")] = None
    """Write ONNX, for onnxruntime and others."""
    pt2: Annotated[Path | None, arg(metavar="FILE")] = None
    """Write an exported program, for torch.export.load and AOTInductor."""
    safetensors: Annotated[Path | None, arg(metavar="FILE")] = None
    """Write a model file of stepnet, from a run or from weights with --name."""
    name: str | None = None
    """The network that weights without a description belong to: lm_resnet20, timm/resnet18."""

    def __call__(self) -> None:
        from stepnet.exchange import export_onnx, export_pt2, load, save

        if self.onnx is self.pt2 is self.safetensors is None:
            raise UserError("nothing to write: give --onnx FILE, --pt2 FILE or --safetensors FILE")
        self.import_modules([self.model])
        network = load(self.model, model=self.name)
        if self.safetensors is not None:
            save(network, self.safetensors)
            echo(f"wrote {self.safetensors}")
        for path, export in ((self.onnx, export_onnx), (self.pt2, export_pt2)):
            if path is not None:
                echo(f"wrote {path}: outputs differ by at most {export(network, path):.1e} of torch's largest")
