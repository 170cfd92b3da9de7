"""Run a network once on an example and write down what its blocks did."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from stepnet.conversion.autograd_graph import GraphPlace, activation_of, is_residual, place_of
from stepnet.conversion.example import Example, as_example, guesses
from stepnet.conversion.forward_graph import read_split
from stepnet.conversion.split import Split, stated_for
from stepnet.conversion.step import state_in
from stepnet.errors import UserError, first_line

DROPOUTS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout)


@dataclass
class Call:
    """One call of a block: its state before and after, and what was seen of it."""

    name: str
    block: nn.Module
    before: Tensor
    after: Tensor
    versions: tuple[int, int]  # of the two, at the time: work in place changes a tensor, not which tensor it is
    holds_input: bool  # the output is the input plus something
    overwrites: bool
    keyword: str
    split: Split | None = None
    activation: str = ""  # what the block does last, after its sum
    times: int = 1

    @property
    def taken(self) -> tuple[int, int]:
        """The state that it was given: a tensor and its version."""
        return id(self.before), self.versions[0]

    @property
    def made(self) -> tuple[int, int]:
        """The state that it returned."""
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


def trace(model: nn.Module, example: Any, blocks: Mapping[str, nn.Module]) -> list[Call]:
    """The calls of those `blocks` whose state is a tensor, in the order in which they ended.

    The network runs in evaluation mode with autograd on, which is how residual blocks are told from others. Random
    numbers and training flags are afterwards as they were.
    """
    if example is not None:
        return _trace(model, as_example(example), blocks)
    refused: list[UserError] = []
    for guess in guesses(model):
        try:
            return _trace(model, guess, blocks)
        except UserError as error:
            refused.append(error)
    raise UserError(f"no example was given, and none could be guessed ({refused[0]}): give an example=")


def _trace(model: nn.Module, example: Example, blocks: Mapping[str, nn.Module]) -> list[Call]:
    watch = _Watch()
    with ExitStack() as hooks, _in_mode(model, training=False), torch.random.fork_rng(devices=[]), torch.enable_grad():
        hooks.enter_context(_DropoutMakesATensor())
        for name, block in blocks.items():
            for hook in watch.hooks(name, block):
                hooks.enter_context(hook)
        try:
            model(*example.args, **example.kwargs)
        except Exception as error:
            kind = type(error).__name__
            raise UserError(
                f"the network cannot run on the example ({_shown(example)}): {kind}: {first_line(error)}"
            ) from error
    return list(watch.calls.values())


class _DropoutMakesATensor(TorchFunctionMode):
    """Dropout returns a tensor of its own, as in training, not its input: between two blocks it alters the state."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func in DROPOUTS and args and output is args[0]:
            p = args[1] if len(args) > 1 else (kwargs or {}).get("p", 0.5)
            return output.view_as(output) if p else output
        return output


class _Watch:
    """Hooks that write down what each block does with its state."""

    def __init__(self) -> None:
        self.calls: dict[str, Call] = {}
        self.paused = False

    def hooks(self, name: str, block: nn.Module) -> Iterator[RemovableHandle]:
        """Put them on a block."""
        started: list[tuple[Tensor, GraphPlace, int] | None] = []  # a stack: a block may call itself

        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            u = args[0] if args else kwargs.get(_first_parameter(module))
            if self.paused or not isinstance(u, Tensor) or not u.is_floating_point():
                started.append(None)
                return None
            inside = u if u.requires_grad else u.detach().requires_grad_().clone()  # autograd sees what it does
            started.append((inside, place_of(inside), inside._version))
            return ((inside, *args[1:]), kwargs) if args else ((), {**kwargs, _first_parameter(module): inside})

        def after(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            start, new = started.pop(), state_in(output)
            if start is None or not isinstance(new, Tensor):
                return
            if name in self.calls:
                self.calls[name].times += 1
                return
            u, place, version = start
            versions = (version, new._version)
            holds_input, overwrites = is_residual(new, place), u._version != version
            call = Call(name, block, u, new, versions, holds_input, overwrites, _first_parameter(module))
            call.split, call.activation = self.checked_split(call), activation_of(new)
            self.calls[name] = call

        yield block.register_forward_pre_hook(before, with_kwargs=True)
        yield block.register_forward_hook(after, with_kwargs=True)

    def checked_split(self, call: Call) -> Split | None:
        """How the block splits, if that gives what the block gave, and matters to a scheme."""
        if call.overwrites:
            return None
        stated = stated_for(call.block)
        split = read_split(call.block) if stated is None else stated(call.block)
        if split is None or not (split.projects or split.after or stated):
            return None
        self.paused = True  # the submodules now run for us, not for the network
        try:
            return split if _agrees(split, call) else None
        finally:
            self.paused = False


def _agrees(split: Split, call: Call) -> bool:
    """Whether the split gives what the block gave, and its shortcut has that shape."""
    try:
        shortcut, f = split.terms(call.block, call.before)
        whole = split.activation(call.block, shortcut + f)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return shortcut.shape == whole.shape == call.after.shape and (whole.is_meta or torch.equal(whole, call.after))


@contextmanager
def _in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Training or evaluation mode for a while; each module gets its own flag back."""
    flags = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, flag in flags:
            module.training = flag


def _first_parameter(block: nn.Module) -> str:
    return next(iter(inspect.signature(block.forward).parameters), "")


def _shown(example: Example) -> str:
    """The shapes of an example."""
    values = [("", value) for value in example.args] + [(f"{key} ", value) for key, value in example.kwargs.items()]
    return ", ".join(key + str(list(getattr(v, "shape", [])) or type(v).__name__) for key, v in values)
