"""Measurements, each a function that yields rows of a table. `stepnet bench` runs the quick ones."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress

import torch
from torch import nn

from stepnet.conversion import convert, is_foreign, load_foreign
from stepnet.errors import UserError
from stepnet.nets import create_model, saved_bytes
from stepnet.timing.harness import Row, Spread, compare, compared
from stepnet.timing.steps import batch, check_takes_images, forward_pass, gradient, peak_bytes, training_step
from stepnet.training import read_label

MIB = 2**20


def quick(repeats: int) -> Iterator[Row]:
    """Yield the rows of `stepnet bench`, in about a minute on a quiet core."""
    yield from lm_over_plain([20], repeats)
    yield from saved_by_lm([20, 110])
    with suppress(UserError):  # timm may not be installed, and wants a torchvision that fits torch
        yield from converted_over_original(["timm/resnet18"], repeats, size=4, pixels=96)
    yield from stochastic_over_plain(repeats, "resnet20")
    yield from reversible_over_stored(["revnet38"], repeats)


def side_by_side(names: Sequence[str], repeats: int, size: int = 32, pixels: int = 32) -> Iterator[Row]:
    """Time a training step of each network against the first one's, on the same batch."""
    networks = [_named(name) for name in (*names, names[0])]
    images, labels = batch(size, max(_pixels(network, pixels) for network in networks))
    steps = [training_step(network, images, labels) for network in networks]
    ratios, control = compare(dict(zip(names[1:], steps[1:-1], strict=True)), steps[0], repeats, control=steps[-1])
    for name, ratio in ratios.items():
        yield Row(f"training step, {name} / {names[0]}", ratio, control=control)


def lm_over_plain(depths: Sequence[int], repeats: int, size: int = 32, compiled: bool = False) -> Iterator[Row]:
    """Time a training step of the same blocks under `lm` against `euler`."""
    images, labels = batch(size)
    for depth in depths:
        networks = [_model(f"resnet{depth}", scheme) for scheme in ("lm", "euler", "euler")]
        if compiled:
            for network in networks:
                network.compile(dynamic=False)
        steps = [training_step(network, images, labels) for network in networks]
        mode, target = ("compiled", "1.02") if compiled else ("eager", "1.05")
        yield compared(f"training step, LM / plain, ResNet-{depth}, {mode}", steps, repeats, f"≤ {target}")


def saved_by_lm(depths: Sequence[int], size: int = 32) -> Iterator[Row]:
    """Count what autograd saves for the backward pass, LM minus plain, in units of the widest state."""
    images, _ = batch(size)
    for depth in depths:
        plain, lm = (saved_bytes(_model(f"resnet{depth}", scheme), images) for scheme in ("euler", "lm"))
        state = 4 * size * 16 * 32 * 32
        note = f"{(lm - plain) / MIB:.1f} MiB of {plain / MIB:.0f}; the widest state is {state / MIB:.1f}"
        yield Row(
            f"saved activations, LM - plain, ResNet-{depth}", Spread.exact((lm - plain) / state), "states", note=note
        )


def converted_over_original(names: Sequence[str], repeats: int, size: int = 8, pixels: int = 224) -> Iterator[Row]:
    """Time a foreign network converted to `lm` against the original."""
    for name in names:
        torch.manual_seed(0)
        original = load_foreign(name)
        control = copy.deepcopy(original)
        images, labels = batch(size, _pixels(original, pixels))
        converted = convert(original, "lm", images[:1])
        networks = (converted, original, control)
        for what, steps in (
            ("training step", [training_step(network, images, labels) for network in networks]),
            ("forward", [forward_pass(network, images) for network in networks]),
        ):
            for network in networks:
                network.train(what != "forward")
            yield compared(f"{what}, converted / original, {name}", steps, repeats, "≤ 1.05")


def stochastic_over_plain(repeats: int, name: str = "resnet56", survival: float = 0.5, size: int = 32) -> Iterator[Row]:
    """Time a training step with stochastic depth, whose dropped blocks are not computed, against the plain one."""
    images, labels = batch(size)
    plain, gated = create_model(name), create_model(name, stochastic_depth=survival)
    steps = [training_step(model, images, labels) for model in (gated, plain)]
    yield compared(f"training step, stochastic depth p_L = {survival} / plain, {name}", steps, repeats, "≤ 0.80")


def reversible_over_stored(names: Sequence[str], repeats: int, size: int = 16) -> Iterator[Row]:
    """Measure time and peak memory of a RevNet that recomputes against one that stores."""
    images, labels = batch(size)
    for name in names:
        stored, reversible = create_model(name, memory="stored"), create_model(name)
        steps = [training_step(model, images, labels) for model in (reversible, stored)]
        yield compared(f"training step, reversible / stored, {name}", steps, repeats, "≤ 1.4")
        peaks = [peak_bytes(gradient(model, images)) / MIB for model in (reversible, stored)]
        yield Row(f"peak memory, {name}", Spread.exact(peaks[0]), "MiB", note=f"stored: {peaks[1]:.0f} MiB")


def _named(name: str) -> nn.Module:
    """Build the network of a label."""
    torch.manual_seed(0)
    label = read_label(name)
    if is_foreign(label.model):
        foreign = load_foreign(label.model, num_classes=10, **label.kwargs)
        return convert(foreign, label.scheme, batch(2)[0]) if label.scheme else foreign
    network: nn.Module = create_model(label.model, **{"num_classes": 10, **label.options})
    check_takes_images(network, name)
    return network


def _model(name: str, scheme: str) -> nn.Module:
    torch.manual_seed(0)
    return create_model(name, scheme=scheme)


def _pixels(model: nn.Module, wanted: int) -> int:
    """Return the image size; a transformer takes the one that it was built for."""
    size = getattr(getattr(model, "patch_embed", None), "img_size", None)
    return int(size[0]) if size else wanted
