"""Inputs for one run of a network: the caller's example, or a guess from its configuration and first layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from stepnet.errors import UserError
from stepnet.nets import Network, first_convolution

Result = TypeVar("Result")


class Example(NamedTuple):
    """The arguments of one call."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}


def as_example(example: Any) -> Example:
    """Convert a tensor, a tuple of positional arguments, or a mapping of keyword arguments."""
    if isinstance(example, Example):
        return example
    if isinstance(example, Tensor):
        return Example((example,))
    if isinstance(example, Mapping):
        return Example((), example)
    if isinstance(example, tuple | list):
        return Example(tuple(example))
    raise UserError(
        f"example is a {type(example).__name__}: expected a tensor, a tuple of arguments or a dict of keyword arguments"
    )


def on_example(model: nn.Module, example: Any, run: Callable[[Example], Result]) -> Result:
    """Return `run(example)`; without an example, that of the first guess for which it raises no `UserError`."""
    if example is not None:
        return run(as_example(example))
    errors: list[UserError] = []
    for guess in guesses(model):
        try:
            return run(guess)
        except UserError as error:
            errors.append(error)
    raise UserError(f"no example was given, and none could be guessed ({errors[0]}): give an example=")


def with_gradient(example: Example) -> Example:
    """Return the example with floating-point tensors that require a gradient."""

    def prepared(value: Any) -> Any:
        floating = isinstance(value, Tensor) and value.is_floating_point()
        return value.detach().requires_grad_().clone() if floating else value

    return Example(*tree_map(prepared, (example.args, dict(example.kwargs))))


def guesses(model: nn.Module) -> Iterator[Example]:
    """Return examples to try, likeliest first: token ids for a language model, one small image for others."""
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    like = torch.zeros(()) if parameter is None else parameter.detach()
    config = getattr(model, "config", None)  # transformers
    tokens = torch.zeros(1, 4, dtype=torch.long, device=like.device)
    if getattr(model, "main_input_name", "") == "input_ids":
        if getattr(config, "is_encoder_decoder", False):
            yield Example((), {"input_ids": tokens, "decoder_input_ids": tokens})
        yield Example((), {"input_ids": tokens})
    if isinstance(model, Network):
        size, images = max(8, 2 * model.reduction), getattr(model, "in_channels", 0)
        yield Example((torch.randn(1, model.in_channels, size, size).to(like) if images else tokens,))
    for size in dict.fromkeys([*_sizes(model), *_sizes(config), 224, 64, 32]):
        for channels in dict.fromkeys([_channels(model), 3, 1]):
            yield Example((torch.randn(1, channels, size, size).to(like),))


def _sizes(source: Any) -> Iterator[int]:
    """Return the image sizes in a network or its configuration (timm, torchvision, transformers)."""
    patches = getattr(source, "patch_embed", None)
    named = (getattr(patches, "img_size", None), getattr(source, "image_size", None), getattr(source, "img_size", None))
    for size in (*named, *_configured(source)):
        value = size[-1] if isinstance(size, tuple | list) and size else size
        if isinstance(value, int):
            yield value


def _configured(source: Any) -> Iterator[Any]:
    for name in ("pretrained_cfg", "default_cfg"):
        cfg = getattr(source, name, None)
        if isinstance(cfg, Mapping):
            yield from (cfg[key] for key in ("min_input_size", "input_size") if cfg.get(key))


def _channels(model: nn.Module) -> int:
    """Return the number of channels that the first convolution takes."""
    first = first_convolution(model)
    return 3 if first is None else first[1].in_channels
