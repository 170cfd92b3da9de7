"""Run a network once on an example and write down what its blocks did."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from stepnet.conversion.adapters import Split, likely_splits, split_of
from stepnet.conversion.autograd_graph import GraphPlace, activation_of, is_residual, place_of
from stepnet.conversion.example import Example, as_example, guesses
from stepnet.conversion.step import state_in
from stepnet.errors import UserError, first_line


@dataclass
class Call:
    """One call of a block: its state before and after, and what was seen of it."""

    name: str
    block: nn.Module
    before: Tensor
    after: Tensor
    versions: tuple[int, int]  # of the two, at the time: work in place changes a tensor, not which tensor it is
    residual: bool
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
            residual, overwrites = is_residual(new, place), u._version != version
            call = Call(name, block, u, new, versions, residual, overwrites, _first_parameter(module))
            call.split, call.activation = self.checked_split(call), activation_of(new)
            self.calls[name] = call

        yield block.register_forward_pre_hook(before, with_kwargs=True)
        yield block.register_forward_hook(after, with_kwargs=True)

    def checked_split(self, call: Call) -> Split | None:
        """The adapter for this block, if it gives what the block gave: a library may have changed the block."""
        if call.overwrites:
            return None
        known = split_of(call.block)
        self.paused = True  # the submodules now run for us, not for the network
        try:
            if known is not None:
                return known if _agrees(known, call) else None
            likely = (split for split in likely_splits(call.block) if not call.before.is_meta)
            return next((split for split in likely if _agrees(split, call) and _agrees_in_training(split, call)), None)
        finally:
            self.paused = False


def _agrees(split: Split, call: Call) -> bool:
    """Whether the split gives what the block gave."""
    try:
        whole = split.whole(call.block, call.before)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return whole.shape == call.after.shape if whole.is_meta else torch.equal(whole, call.after)


def _agrees_in_training(split: Split, call: Call) -> bool:
    """Whether it does so in training too, where a block may do more (dropout): for a split that nobody stated."""
    block, u = call.block, torch.cat([call.before, call.before]).detach()
    try:
        with _in_mode(block, training=True), torch.no_grad(), torch.random.fork_rng(devices=[]):
            return torch.equal(split.whole(block, u), state_in(block(u)))
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return False


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
