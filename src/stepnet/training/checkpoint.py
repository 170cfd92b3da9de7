"""A run's resume state: one safetensors file, written whole or not at all, with no pickle in it.

Tensors: the model under `model.`, the momentum under `optimizer.<parameter>.momentum_buffer`. The header carries the
run's position and sums as JSON, what the model is, and a checksum of all tensor bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import torch
from msgspec import Meta
from torch import nn

from stepnet.errors import UserError, first_line
from stepnet.exchange.model_description import ModelDescription, encode
from stepnet.exchange.model_files import DESCRIPTION, PREFIX, RESUME, resumed_weights
from stepnet.tensors import Tensors, alike, first_difference, read_tensors, write_tensors

MOMENTUM = "momentum_buffer"  # what SGD keeps for each parameter
AT_REST = "at rest"  # the parameters that have had no gradient yet, and so have no momentum

FromZero = Annotated[int, Meta(ge=0)]
Total = Annotated[float, Meta(ge=0)]


@dataclass
class Progress:
    """Where a run stands: steps done in the epoch under way, and the epoch's sums so far."""

    epoch: FromZero = 0
    step: FromZero = 0
    loss_sum: float = 0.0
    wrong: Total = 0.0
    seen: FromZero = 0
    seconds: Total = 0.0
    best_error: Total = float("inf")
    best_epoch: Annotated[int, Meta(ge=-1)] = -1

    def begin_epoch(self, epoch: int) -> None:
        """Move to the start of an epoch."""
        self.epoch, self.step, self.loss_sum, self.wrong, self.seen, self.seconds = epoch, 0, 0.0, 0.0, 0, 0.0


def save(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress, description: ModelDescription
) -> None:
    """Write the resume state; the description says what the network is."""
    tensors = {PREFIX + name: value for name, value in model.state_dict().items()}
    at_rest = []
    for name, parameter in model.named_parameters():
        momentum = optimizer.state.get(parameter, {}).get(MOMENTUM)
        if momentum is None:
            at_rest.append(name)
        else:
            tensors[f"optimizer.{name}.{MOMENTUM}"] = momentum
    header = {
        "format": RESUME,
        "what": description.model,
        "progress": json.dumps(asdict(progress)),
        AT_REST: json.dumps(at_rest),
        DESCRIPTION: encode(description),
    }
    write_tensors(path, tensors, header)


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Read a resume state into the model and the optimiser; a file that is damaged or of another network is refused
    before anything is changed."""
    tensors, header = read_tensors(path)
    if header.get("format") != RESUME:
        raise UserError(f"{path} is not the resume state of a run: its format is {header.get('format')!r}")
    progress = _progress(path, header)
    weights = resumed_weights(tensors)
    difference = first_difference(model.state_dict(), weights)
    if difference is not None:
        raise UserError(f"{path} holds {header.get('what')!r}, which is another network: they differ in {difference}")
    momentum = _momentum(path, tensors, dict(model.named_parameters()))
    _check_whole(path, header, {name for name, _ in model.named_parameters()} - momentum.keys(), progress, optimizer)
    for name, parameter in model.named_parameters():
        if name in momentum:
            optimizer.state[parameter][MOMENTUM] = torch.empty_like(parameter).copy_(momentum[name])  # laid out alike
    model.load_state_dict(weights)
    return progress


def _progress(path: Path, header: Mapping[str, str]) -> Progress:
    """Where the run stood, from a header that anyone may have written."""
    try:
        values = json.loads(header["progress"])
        if not isinstance(values, dict) or values.keys() != asdict(Progress()).keys():
            raise ValueError(f"it says {header['progress']!r}")
        progress = msgspec.convert(values, Progress)
        if progress.best_epoch > progress.epoch or (progress.best_epoch < 0) != (progress.best_error > 100):
            raise ValueError(f"an error of {progress.best_error} after epoch {progress.best_epoch} at best")
        return progress
    except (KeyError, ValueError, RecursionError, msgspec.ValidationError) as error:
        raise UserError(f"{path} is damaged: it does not say where the run stood ({first_line(error)})") from None


def _momentum(path: Path, tensors: Tensors, parameters: Mapping[str, nn.Parameter]) -> Tensors:
    found = {}
    for name, tensor in tensors.items():
        if not name.startswith(PREFIX):
            owner, _, key = name.removeprefix("optimizer.").rpartition(".")
            like = parameters.get(owner)
            if like is None or key != MOMENTUM or not alike(like, tensor):
                raise UserError(f"{path} is damaged: {name!r} is the optimiser's state of no parameter")
            found[owner] = tensor
    return found


def _check_whole(
    path: Path, header: Mapping[str, str], without: set[str], progress: Progress, optimizer: torch.optim.Optimizer
) -> None:
    """A momentum that got lost would begin at zero again, and the run go on to other bits."""
    if (progress.epoch, progress.step) == (0, 0) or not any(group["momentum"] for group in optimizer.param_groups):
        return
    if AT_REST in header:
        expected = set(_names(header[AT_REST]))
    else:  # the first files did not say; networks of others may have parameters that no gradient reaches
        expected = without if "/" in header.get("what", "") else set()
    if without != expected:
        raise UserError(f"{path} is damaged: the momentum of {sorted(without ^ expected)[0]!r} is missing or too much")


def _names(text: str) -> list[str]:
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.MsgspecError:
        return []
