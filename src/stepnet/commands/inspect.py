"""`stepnet inspect`: a network as its scheme sees it, in text and as a drawing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

if TYPE_CHECKING:
    from stepnet.report.sketch import NetworkSketch


@dataclass
class Inspect:
    """Show a network stage by stage: scheme, equation, coefficients; with --out, draw it as the paper does.

    Of a network of timm or torchvision it tells what `convert` makes of it: what becomes a step, what stays, and why.
    """

    model: Annotated[Positional[str], arg(metavar="RUN|MODEL")]
    """The folder of a run, whose trained coefficients are shown, or the name of a network, also timm/NAME."""
    out: Annotated[Path | None, arg(metavar="FILE")] = None
    """Write the schematic to this file (svg, png, pdf, …)."""
    scheme: str | None = None
    """March the blocks by this scheme instead of the network's own; lm for one of another library."""

    def __call__(self) -> None:
        network = self._sketch()
        print(network)
        if self.out is not None:
            from stepnet.report.schematic import draw_network

            draw_network(network, self.out)
            print(f"\nwrote {self.out}")

    def _sketch(self) -> NetworkSketch:
        import torch

        from stepnet.conversion import convert, describe, load_foreign
        from stepnet.conversion.foreign import is_foreign
        from stepnet.errors import UserError
        from stepnet.nets import create_model
        from stepnet.report.sketch import sketch

        if Path(self.model).exists():
            from stepnet.exchange.files import description_of, load
            from stepnet.training.run import import_modules_of

            if self.scheme is not None:
                raise UserError(f"{self.model} is trained, and has its scheme: leave out --scheme {self.scheme}")
            import_modules_of(self.model)
            network = load(self.model)
            return sketch(network, f"{description_of(network).model} ({self.model})")
        torch.manual_seed(0)  # a new network's k are drawn at random
        if is_foreign(self.model):
            scheme = self.scheme or "lm"
            converted = convert(load_foreign(self.model), scheme, inplace=True)
            print(f"{describe(converted)}\n")
            return sketch(converted, f"{self.model}, {scheme}")
        options: dict[str, Any] = {} if self.scheme is None else {"scheme": self.scheme}
        title = self.model if self.scheme is None else f"{self.model}, {self.scheme}"
        return sketch(create_model(self.model, **options), title)
