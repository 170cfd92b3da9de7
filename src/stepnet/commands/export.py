"""`stepnet export`: a trained network as a file for other programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from stepnet.commands.import_flag import ImportFlag
from stepnet.errors import UserError
from stepnet.escaping import echo


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
