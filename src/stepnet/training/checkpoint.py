"""A run's checkpoint: one safetensors file, written atomically, without pickles.

Tensors: the network under `model.`, the optimiser's state under `optimizer.PARAMETER.KEY`, the state of callbacks
under `callbacks.`. The header holds the run's position and sums as JSON, the keys of the optimiser's state for each
parameter, the description of the network, and a checksum of all tensor bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

import torch
from annotated_types import Ge
from torch import Tensor, nn

from stepnet.errors import UserError, first_line
from stepnet.exchange import DESCRIPTION, PREFIX, RESUME, ModelDescription, encode, resumed_weights
from stepnet.schema import read_as, read_json
from stepnet.tensors import Tensors, first_difference, read_tensors, write_tensors
from stepnet.training.sharding import gather

OPTIMIZER, CALLBACKS = "optimizer.", "callbacks."
STATES = "optimizer"  # in the header: for each parameter its keys, with a number, or None if the value is a tensor
MOMENTUM, AT_REST = "momentum_buffer", "at rest"  # in older files of SGD: the parameters without momentum

FromZero = Annotated[int, Ge(0)]
Total = Annotated[float, Ge(0)]
States = dict[str, dict[str, float | int | None]]
T = TypeVar("T")


@dataclass
class Progress:
    """The position of a run: its epoch, the steps done in it, and the epoch's sums so far."""

    epoch: FromZero = 0
    step: FromZero = 0
    sums: dict[str, float] = field(default_factory=dict)  # of the loss, and the sums of the task
    seen: FromZero = 0  # items
    seconds: Total = 0.0
    best: float | None = None  # the task's first metric on the test set
    best_epoch: Annotated[int, Ge(-1)] = -1
    stopped: bool = False  # by a callback

    @property
    def loss_sum(self) -> float:
        """The loss, summed over the items of the epoch so far."""
        return self.sums.get("loss", 0.0)

    def begin_epoch(self, epoch: int) -> None:
        """Move to the start of an epoch."""
        self.epoch, self.step, self.sums, self.seen, self.seconds = epoch, 0, {}, 0, 0.0


def collect(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Tensors, States]:
    """Return the tensors of a network and its optimiser, gathered on the main process, and the optimiser's numbers."""
    tensors = {PREFIX + name: value for name, value in gather(model).items()}
    states: States = {}
    kept_by_key: dict[str, Tensors] = {}  # the optimiser's tensors, by key and parameter
    for name, parameter in model.named_parameters():
        kept = {key: value for key, value in optimizer.state.get(parameter, {}).items() if value is not None}
        states[name] = {key: None if isinstance(value, Tensor) else value for key, value in kept.items()}
        for key, value in kept.items():
            if isinstance(value, Tensor):
                kept_by_key.setdefault(key, {})[name] = value
            elif not isinstance(value, int | float):
                kind = f"{type(optimizer).__name__} keeps a {type(value).__name__}"
                raise UserError(f"{kind}, {key!r}, which a checkpoint cannot hold: use another optimizer")
    for key, values in kept_by_key.items():
        tensors |= {f"{OPTIMIZER}{name}.{key}": value for name, value in gather(model, values).items()}
    return tensors, states


def save(
    path: Path,
    collected: tuple[Tensors, States],
    progress: Progress,
    description: ModelDescription,
    callbacks: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the resume state; `collected` is what `collect` returned, and the description says what the network is."""
    tensors, states = dict(collected[0]), collected[1]
    tensors |= {CALLBACKS + name: value for name, value in (callbacks or {}).items()}
    header = {
        "format": RESUME,
        "what": description.model,
        "progress": json.dumps(asdict(progress)),
        STATES: json.dumps(states),
        DESCRIPTION: encode(description),
    }
    write_tensors(path, tensors, header)


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Progress, Tensors]:
    """Load a checkpoint into the model and the optimiser; return the run's position and the state of its callbacks.

    A damaged file, or one of another network, raises before anything is changed.
    """
    tensors, header = read_tensors(path)
    if header.get("format") != RESUME:
        raise UserError(f"{path} is not the resume state of a run: its format is {header.get('format')!r}")
    progress = _progress(path, header)
    weights = resumed_weights(tensors)
    difference = first_difference(model.state_dict(), weights)
    if difference is not None:
        raise UserError(f"{path} holds {header.get('what')!r}, which is another network: they differ in {difference}")
    parameters = dict(model.named_parameters())
    kept = {name.removeprefix(OPTIMIZER): t for name, t in tensors.items() if name.startswith(OPTIMIZER)}
    states = _states(path, header, kept, parameters, progress, optimizer)
    _fill(optimizer, parameters, states, kept)
    model.load_state_dict(weights)
    return progress, {n.removeprefix(CALLBACKS): t for n, t in tensors.items() if n.startswith(CALLBACKS)}


def _progress(path: Path, header: Mapping[str, str]) -> Progress:
    """Return the position in an untrusted header."""
    try:
        values = json.loads(header["progress"])
        if not isinstance(values, dict):
            raise ValueError(f"it says {header['progress']!r}")
        if "loss_sum" in values:  # of a run made before there were tasks
            values["sums"] = {"loss": values.pop("loss_sum"), "wrong": values.pop("wrong")} if values["step"] else {}
            best = values.pop("best_error")
            values |= {"best": None if best == math.inf else best, "stopped": False}
        if values.keys() != asdict(Progress()).keys():
            raise ValueError(f"it says {header['progress']!r}")
        progress = read_as(Progress, values, "progress")
        if progress.best_epoch > progress.epoch or (progress.best_epoch < 0) != (progress.best is None):
            raise ValueError(f"{progress.best} after epoch {progress.best_epoch} at best")
        if not all(map(math.isfinite, (*progress.sums.values(), progress.best or 0.0))):
            raise ValueError("its sums are not finite")
        return progress
    except (KeyError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: its position cannot be read ({first_line(error)})") from None


def _states(
    path: Path,
    header: Mapping[str, str],
    kept: Tensors,
    parameters: Mapping[str, nn.Parameter],
    progress: Progress,
    optimizer: torch.optim.Optimizer,
) -> States:
    """Return the keys of the optimiser's state for each parameter; raise if tensors are missing or do not fit.

    A lost momentum would start at zero again, and the resumed run would differ.
    """
    if STATES in header:
        states = _read_or(States(), States, header[STATES])
        wanted = {f"{name}.{key}" for name, keys in states.items() for key, value in keys.items() if value is None}
    else:
        states = {name: {MOMENTUM: None} for name in parameters if f"{name}.{MOMENTUM}" in kept}
        without = parameters.keys() - states.keys()
        stateless = _read_or([], list[str], header[AT_REST]) if AT_REST in header else None
        if (progress.epoch, progress.step) == (0, 0) or not any(g.get("momentum") for g in optimizer.param_groups):
            stateless = list(without)
        elif stateless is None:  # networks of other libraries may have parameters without gradients
            stateless = list(without) if "/" in header.get("what", "") else []
        wanted = {f"{name}.{MOMENTUM}" for name in parameters if name not in stateless}
    for name in kept:
        owner = parameters.get(name.rpartition(".")[0])
        if owner is None or not _broadcasts(kept[name], owner):
            raise UserError(f"{path} is damaged: {OPTIMIZER + name!r} belongs to no parameter")
    if wanted != kept.keys():
        raise UserError(
            f"{path} is damaged: the optimiser's {sorted(wanted ^ kept.keys())[0]!r} is missing or superfluous"
        )
    return states


def _read_or(default: T, kind: type[T], text: str) -> T:
    try:
        return read_json(kind, text, "the header")
    except UserError:
        return default


def _broadcasts(value: Tensor, parameter: Tensor) -> bool:
    """Whether a state broadcasts to the shape of its parameter."""
    try:
        return value.expand(parameter.shape).shape == parameter.shape
    except RuntimeError:
        return False


def _fill(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], states: States, kept: Tensors
) -> None:
    """Load the state by the optimiser's `load_state_dict`, which chooses the device and type of each value."""
    places = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    names = {parameter: name for name, parameter in parameters.items()}
    state: dict[int, dict[str, Tensor | float]] = {}
    for place, parameter in enumerate(places):
        name = names[parameter]
        values: dict[str, Tensor | float] = {}
        for key, number in states.get(name, {}).items():
            value = kept[f"{name}.{key}"] if number is None else number
            if isinstance(value, Tensor) and value.shape == parameter.shape:  # laid out in memory as the parameter is
                value = torch.empty_like(parameter, dtype=value.dtype, device="cpu").copy_(value)
            values[key] = value
        if values:
            state[place] = values
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
