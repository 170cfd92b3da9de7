"""A checkpoint: one safetensors file, written whole or not at all, with no pickle in it.

Tensors: the model under `model.`, the optimiser's state under `optimizer.<parameter>.<name>`. The header carries the
run's position and sums as JSON, and a checksum of all tensor bytes.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from stepnet.errors import UserError
from stepnet.files import whole_file

FORMAT = "stepnet checkpoint 1"


@dataclass
class Progress:
    """Where a run stands: steps done in the epoch under way, and the epoch's sums so far."""

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    wrong: float = 0.0
    seen: int = 0
    seconds: float = 0.0
    best_error: float = float("inf")
    best_epoch: int = -1

    def begin_epoch(self, epoch: int) -> None:
        """Move to the start of an epoch."""
        self.epoch, self.step, self.loss_sum, self.wrong, self.seen, self.seconds = epoch, 0, 0.0, 0.0, 0, 0.0


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer | None, progress: Progress, what: str) -> None:
    """Write the checkpoint. `what` names the network, so that another network's file is told apart."""
    tensors = {f"model.{name}": _own(value) for name, value in model.state_dict().items()}
    if optimizer is not None:
        names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{names[parameter]}.{key}"] = _own(value)
    header = {
        "format": FORMAT,
        "what": what,
        "progress": json.dumps(asdict(progress)),
        "checksum": str(_checksum(tensors)),
    }
    with whole_file(path) as partial:
        try:
            save_file(tensors, partial, metadata=header)
        except SafetensorError as error:  # a full disk reaches us in this form
            raise OSError(str(error)) from None


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> Progress:
    """Read a checkpoint into the model and the optimiser; a file that is damaged or of another network is refused
    before anything is changed."""
    tensors, header = _read(path)
    progress = _progress(path, header)
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    own = model.state_dict()
    odd = sorted(set(own) ^ set(weights)) or [n for n in own if not _alike(own[n], weights[n])]
    if odd:
        raise UserError(f"{path} holds {header.get('what')!r}, which is another network: they differ in {odd[0]!r}")
    if optimizer is not None:
        parameters = dict(model.named_parameters())
        state = []
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                owner, _, key = name.removeprefix("optimizer.").rpartition(".")
                like = parameters.get(owner)
                if like is None or not _alike(like, tensor):
                    raise UserError(f"{path} is damaged: {name!r} is the optimiser's state of no parameter")
                state.append((like, key, tensor))
        for like, key, tensor in state:
            optimizer.state[like][key] = tensor.to(like.device).contiguous(memory_format=_layout(like))
    model.load_state_dict(weights)
    return progress


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            header: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"{path}: no such checkpoint; a run has written it by the end of its first epoch") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged or no checkpoint: {error}") from None
    if header.get("format") != FORMAT:
        raise UserError(f"{path} is not a stepnet checkpoint: its format is {header.get('format')!r}")
    if header.get("checksum") != str(_checksum(tensors)):
        raise UserError(f"{path} is damaged: its tensors do not have the checksum in its header")
    return tensors, header


def _progress(path: Path, header: dict[str, str]) -> Progress:
    """Where the run stood, from a header that anyone may have written."""
    try:
        values = json.loads(header["progress"])
        types = {name: type(value) for name, value in asdict(Progress()).items()}
        if values.keys() != types.keys() or any(not isinstance(values[n], (kind, int)) for n, kind in types.items()):
            raise ValueError(f"it says {header['progress']!r}")
        if min(values["epoch"], values["step"], values["seen"]) < 0:
            raise ValueError("a position below zero")
        return Progress(**values)
    except (KeyError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged: it does not say where the run stood ({error})") from None


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _checksum(tensors: dict[str, Tensor]) -> int:
    total = 0
    for name in sorted(tensors):
        flat: Any = tensors[name].flatten().view(torch.uint8).numpy()
        total = zlib.crc32(flat, zlib.crc32(name.encode(), total))
    return total


def _own(value: Tensor) -> Tensor:
    return value.detach().cpu().contiguous().clone()


def _layout(parameter: Tensor) -> torch.memory_format:
    channels_last = parameter.ndim == 4 and parameter.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if channels_last else torch.contiguous_format
