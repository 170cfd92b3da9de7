"""Does a converted network agree with the original at k = 0, and with the cloning reference at k = -0.5?"""

from __future__ import annotations

from typing import Any

import torch
from tests.conversion.reference import lm_reference
from torch import Tensor, nn

import stepnet
from stepnet.conversion import Conversion
from stepnet.conversion.example import as_example


def tensors(output: Any) -> list[Tensor]:
    """All floating tensors of an output."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    values = output.values() if isinstance(output, dict) else output if isinstance(output, tuple | list) else []
    return [tensor for value in values for tensor in tensors(value)]


@torch.no_grad()
def run(model: nn.Module, example: Any) -> list[Tensor]:
    args, kwargs = as_example(example)
    return [tensor.clone() for tensor in tensors(model(*args, **kwargs))]


def set_k(model: nn.Module, value: float) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("step_k"):
                parameter.fill_(value)


def awaken(model: nn.Module) -> None:
    """Fill parameters that start at zero, or nearly (layer scales): behind them a wrong state would stay unseen."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and parameter.abs().max() < 1e-3:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))


def check_agreement(model: nn.Module, example: Any, k: float = -0.5) -> Conversion:
    """Assert both; the error against the reference is measured by what the LM term changes, in float64 if it can."""
    model.eval()
    awaken(model)
    converted = stepnet.convert(model, "lm", example, init="identity")
    original = run(model, example)
    for got, want in zip(run(converted, example), original, strict=True):
        assert torch.equal(got, want), "k = 0 changes the output"
    conversion: Conversion = converted.step_conversion  # type: ignore[assignment]
    set_k(converted, k)
    networks, tolerance = (converted, lm_reference(model, converted, k), model), 1e-6
    try:
        got, want, plain = (run(network.double(), _double(example)) for network in networks)
    except RuntimeError:  # a network with float32 of its own making inside
        got, want, plain = (run(network.float(), example) for network in networks)
        tolerance = 1e-3
    effect = max(float((w - p).abs().max()) for w, p in zip(want, plain, strict=True))
    error = max(float((g - w).abs().max()) for g, w in zip(got, want, strict=True))
    assert effect > 0, "the LM term changes nothing"
    assert error <= tolerance * effect, f"k = {k}: error {error:.1e} of an effect of {effect:.1e}"
    return conversion


def _double(example: Any) -> Any:
    args, kwargs = as_example(example)
    widen = lambda v: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v  # noqa: E731
    return type(as_example(example))(tuple(map(widen, args)), {key: widen(v) for key, v in kwargs.items()})
