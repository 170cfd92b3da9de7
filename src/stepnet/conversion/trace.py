"""Run a network once on an example and record the calls of its blocks."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from stepnet.conversion.autograd_graph import GraphPlace, activation_of, is_residual, place_of
from stepnet.conversion.example import Example, as_example, on_example, with_gradient
from stepnet.conversion.forward_graph import read_split
from stepnet.conversion.places import FIRST, Argument, Path, entry, tensor_arguments, tensor_entries
from stepnet.conversion.split import Split, stated_for
from stepnet.conversion.sublayers import Kind, StateRead, as_state_read
from stepnet.errors import UserError, first_line
from stepnet.nets import training_mode

Model = TypeVar("Model", bound=nn.Module)
DROPOUTS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout)


@dataclass
class Call:
    """One call of a block, with its state before and after."""

    name: str
    block: nn.Module
    argument: Argument  # where the state is in the arguments
    result: Path  # where the new state is in the output
    only_output: bool  # the output is the new state and nothing else
    before: Tensor
    after: Tensor
    versions: tuple[int, int]  # of both states at the time of the call, since work in place keeps a tensor's identity
    places: tuple[GraphPlace, GraphPlace]  # of both states in autograd's graph, at the time of the call
    holds_input: bool  # the output is the input plus something
    overwrites: bool
    split: Split | None = None
    activation: str = ""  # the last operation of the block, after its sum
    reads: list[StateRead] = field(default_factory=list)  # functions that may read the state, if they were recorded
    kinds: tuple[Kind, ...] = ()  # of those that do, in a block of several branches
    part: int | None = None  # which of them is the step; None if the whole block is

    @property
    def step_name(self) -> str:
        """The name of the step: the block's, or `h.0:1` for the second sublayer of a layer."""
        return self.name if self.part is None else f"{self.name}:{self.part}"

    @property
    def input_key(self) -> tuple[int, int]:
        """The identity and version of the input state."""
        return id(self.before), self.versions[0]

    @property
    def output_key(self) -> tuple[int, int]:
        """The identity and version of the output state."""
        return id(self.after), self.versions[1]

    @property
    def keeps_shape(self) -> bool:
        return self.before.shape == self.after.shape and self.before.dtype == self.after.dtype

    @property
    def transition(self) -> bool:
        """Whether its shortcut is a projection: it starts a stage."""
        return self.split is not None and self.split.projects

    @property
    def residual(self) -> bool:
        """Whether it is a residual block: a shortcut plus a branch."""
        return self.transition or (self.holds_input and self.keeps_shape)


def copied(model: Model) -> Model:
    """Return a copy for trial runs: running a network with autograd may fill caches in its modules."""
    try:
        return copy.deepcopy(model)
    except (RuntimeError, TypeError) as error:
        raise UserError(
            f"{type(model).__name__} cannot be copied for a trial run: {first_line(error)}; "
            "do this before it has run with gradients, which may leave autograd tensors in its modules"
        ) from error


def trace(
    model: nn.Module,
    example: Any,
    blocks: Mapping[str, nn.Module],
    training: bool = False,
    gradient: bool = False,
    sums: bool = False,
) -> list[Call]:
    """Return the calls of those `blocks` whose state is a tensor, in the order in which they ended.

    The network runs with autograd, by which residual blocks are recognised; with `gradient` the input requires a
    gradient, so that operations on it outside of blocks are in the graph; with `sums` the functions that may read a
    state are recorded, by which `sublayers` divides a layer. Random generators and training flags are
    restored.
    """
    prepare = with_gradient if gradient else as_example
    return on_example(model, example, lambda each: _trace(model, prepare(each), blocks, training, sums))


def _trace(
    model: nn.Module, example: Example, blocks: Mapping[str, nn.Module], training: bool, sums: bool
) -> list[Call]:
    recorder = _CallRecorder()
    with ExitStack() as hooks, training_mode(model, training), torch.random.fork_rng(devices=[]), torch.enable_grad():
        hooks.enter_context(_Functions(recorder.reads if sums else None))
        for name, block in blocks.items():
            for hook in recorder.hooks(name, block):
                hooks.enter_context(hook)
        try:
            model(*example.args, **example.kwargs)
        except Exception as error:
            kind = type(error).__name__
            raise UserError(
                f"the network cannot run on the example ({_shown(example)}): {kind}: {first_line(error)}"
            ) from error
    return recorder.calls


class _Seen(NamedTuple):
    """A tensor among the arguments of a call, as it was before the call."""

    argument: Argument
    tensor: Tensor
    place: GraphPlace
    version: int


class _Functions(TorchFunctionMode):
    """Make dropout return a new tensor in evaluation too: between two blocks it changes the state. Record sums."""

    def __init__(self, reads: list[StateRead] | None) -> None:
        super().__init__()
        self.reads = reads

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func in DROPOUTS and args and output is args[0]:
            p = args[1] if len(args) > 1 else (kwargs or {}).get("p", 0.5)
            return output.view_as(output) if p else output
        if self.reads is not None and (read := as_state_read(func, args, output)) is not None:
            self.reads.append(read)
        return output


class _CallRecorder:
    """Hooks that record what each block does with its state."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.reads: list[StateRead] = []
        self.splits: dict[str, Split | None] = {}
        self.paused = False

    def hooks(self, name: str, block: nn.Module) -> Iterator[RemovableHandle]:
        """Register the hooks on a block."""
        started: list[tuple[list[_Seen], int]] = []  # a stack: a block may call itself

        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            seen: list[_Seen] = []
            for argument in [] if self.paused else list(tensor_arguments(module, args, kwargs)):
                u = argument.of(args, kwargs)
                if not u.requires_grad:  # so that autograd records what the block does with it
                    u = u.detach().requires_grad_().clone()
                    args, kwargs = argument.put(args, kwargs, u)
                seen.append(_Seen(argument, u, place_of(u), u._version))
            started.append((seen, len(self.reads)))
            return args, kwargs

        def after(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            seen, first = started.pop()
            outputs = [(path, entry(output, path)) for path in tensor_entries(output)] if seen else []
            if not outputs:
                return
            states = [(old, path, new, is_residual(new, old.place)) for path, new in outputs for old in seen]
            fits = [state for state in states if state[0].tensor.shape == state[2].shape]
            old, path, new, holds_input = next((state for state in fits if state[3]), states[0])
            versions, overwrites = (old.version, new._version), old.tensor._version != old.version
            call = Call(
                name=name,
                block=block,
                argument=old.argument,
                result=path or FIRST,
                only_output=not path,
                before=old.tensor,
                after=new,
                versions=versions,
                places=(old.place, place_of(new)),
                holds_input=holds_input,
                overwrites=overwrites,
                reads=self.reads[first:],
            )
            only_state = (
                len(outputs) == len(seen) == len(args) + len(kwargs) == 1 and not path and not old.argument.path
            )
            if name not in self.splits:
                self.splits[name] = self.checked_split(call) if only_state else None
            call.split, call.activation = self.splits[name], activation_of(new)
            self.calls.append(call)

        yield block.register_forward_pre_hook(before, with_kwargs=True)
        yield block.register_forward_hook(after, with_kwargs=True)

    def checked_split(self, call: Call) -> Split | None:
        """Return the block's split if it reproduces the output and makes a difference to a scheme."""
        if call.overwrites:
            return None
        stated = stated_for(call.block)
        split = read_split(call.block) if stated is None else stated(call.block)
        if split is None or (stated is None and not _matters(split, call)):
            return None
        self.paused = True  # calls of the submodules now are not the network's
        try:
            return split if _agrees(split, call) else None
        finally:
            self.paused = False


def _matters(split: Split, call: Call) -> bool:
    """Whether a scheme acts differently on the split block than on the whole one."""
    return not call.keeps_shape if split.projects else bool(split.after)


def _agrees(split: Split, call: Call) -> bool:
    """Whether the split reproduces the block's output, with a shortcut of the same shape."""
    try:
        shortcut, f = split.terms(call.block, call.before)
        whole = split.activation(call.block, shortcut + f)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return shortcut.shape == whole.shape == call.after.shape and (whole.is_meta or torch.equal(whole, call.after))


def _shown(example: Example) -> str:
    """Format the shapes of an example."""
    values = [("", value) for value in example.args] + [(f"{key} ", value) for key, value in example.kwargs.items()]
    return ", ".join(key + str(list(getattr(v, "shape", [])) or type(v).__name__) for key, v in values)
