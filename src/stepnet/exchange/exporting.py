"""Export a network as ONNX or for torch.export; a file whose outputs differ from torch's is not written."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from stepnet.errors import UserError, first_line
from stepnet.exchange.model_description import description_of, encode
from stepnet.exchange.model_files import DESCRIPTION
from stepnet.extras import import_extra
from stepnet.files import atomic_file

TOLERANCE = 1e-4  # of the largest output: another runtime sums in another order


def export_pt2(network: nn.Module, path: Path, example: Tensor | None = None) -> float:
    """Write a torch.export program; return the largest difference of its outputs, relative to the largest output."""
    example = _example(network) if example is None else example
    program = _program(network, example)
    with atomic_file(path) as partial:
        buffer = io.BytesIO()
        torch.export.save(program, buffer, extra_files={DESCRIPTION: encode(description_of(network))})
        partial.write_bytes(buffer.getvalue())
        buffer.seek(0)
        return _compared(network, torch.export.load(buffer).module(), example, path)


def export_onnx(network: nn.Module, path: Path, example: Tensor | None = None) -> float:
    """Write ONNX, from `images` or `tokens` to `logits`, after comparing its outputs in onnxruntime with torch's.

    The description is among its metadata.
    """
    onnxruntime = import_extra("onnxruntime")
    import_extra("onnxscript")
    example = _example(network) if example is None else example
    with _quiet():
        made = torch.onnx.export(
            _program(network, example),
            (example,),
            input_names=["images" if example.is_floating_point() else "tokens"],
            output_names=["logits"],
            dynamo=True,
            verbose=False,
        )
    assert made is not None
    made.model.metadata_props[DESCRIPTION] = encode(description_of(network))
    with atomic_file(path) as partial:
        made.save(str(partial))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(partial, options, providers=["CPUExecutionProvider"])

        def run(batch: Tensor) -> Tensor:
            return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: batch.numpy()})[0])

        return _compared(network, run, example, path)


def _program(network: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    """Export the network for any batch size, and a language model for sequences of any length that it takes."""
    sizes = {0: torch.export.Dim("batch", min=1)}
    if not example.is_floating_point():
        sizes[1] = torch.export.Dim("time", min=1, max=cast(int, network.context))
    try:
        return torch.export.export(network.eval().cpu(), (example,), dynamic_shapes=(sizes,), strict=False)
    except Exception as error:  # the network's code may raise anything
        raise UserError(f"{type(network).__name__} cannot be exported: {first_line(error)}") from error


def _example(network: nn.Module) -> Tensor:
    if (context := getattr(network, "context", None)) is not None:
        return torch.arange(2 * min(context, 5)).view(2, -1) % cast(int, network.num_classes)
    how = description_of(network).preprocessing
    if how is None:
        raise UserError("the model does not say how large its images are: save it with preprocessing=… first")
    return torch.randn(2, how.channels, how.image_size, how.image_size, generator=torch.Generator().manual_seed(0))


def _compared(network: nn.Module, exported: Callable[[Tensor], Tensor], example: Tensor, path: Path) -> float:
    """Compare outputs on batches of two and three, the second of shorter texts: the exporter saw only the first."""
    worst = 0.0
    other = torch.cat([example[:1].flip(-1), example])
    with torch.inference_mode():
        for batch in (example, other if example.is_floating_point() else other[:, :3]):
            wanted, outputs = network(batch), exported(batch)
            worst = max(worst, float((outputs - wanted).abs().max() / wanted.abs().max().clamp(min=1e-12)))
    if not worst <= TOLERANCE:
        raise UserError(f"{path} is not written: outputs of the exported network differ by {worst:.1e} of the largest")
    return worst


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings and log."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
