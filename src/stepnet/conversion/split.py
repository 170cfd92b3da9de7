"""Split a block into shortcut, branch, and what follows their sum.

    B(u) = after(shortcut(u) + branch(u))

In a split block the scheme acts before the activation, as in the paper, and the projected input `P x` of a block that
changes the shape is the past of the next step, as in LM-ResNet. The parts are read from the block's `forward`
(`stepnet.conversion.forward_graph`), or stated by `split_block`. `convert` compares the split with the block on the
example, and does not split the block if they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.arguments import checked
from stepnet.errors import UserError
from stepnet.nets import recorded

FUNCTION = "()"  # ends the name of a function in a stated chain of layers


class Value(NamedTuple):
    """The result of an earlier operation, by number; 0 is the argument itself."""

    number: int


@dataclass(frozen=True)
class Operation:
    """A call of a submodule, a function or a method, or the reading of an attribute."""

    kind: str  # as torch.fx names it: call_module, call_function, call_method, get_attr
    target: Any  # a path in the block, a function, or the name of a method
    args: tuple[Any, ...] = (Value(0),)
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __call__(self, block: nn.Module, values: Sequence[Any]) -> Any:
        args = [_resolved(value, values) for value in self.args]
        kwargs = {name: _resolved(value, values) for name, value in self.kwargs.items()}
        if self.kind == "call_function":
            return self.target(*args, **kwargs)
        if self.kind == "call_method":
            return getattr(args[0], self.target)(*args[1:], **kwargs)
        attribute = _at_path(block, self.target)
        return attribute if self.kind == "get_attr" else attribute(*args, **kwargs)


Program: TypeAlias = "tuple[Operation, ...]"  # operation n makes value n + 1


@dataclass(frozen=True)
class Split:
    """The parts of one block, as operations in the order in which its `forward` runs them."""

    before: Program
    shortcut: int  # the value that is the shortcut; 0 if it is the identity
    branch: int
    after: Program  # its value 0 is the sum

    def __post_init__(self) -> None:
        _ = self.terms, self.activation  # recorded now, since torch.compile could not

    @cached_property
    def terms(self) -> Callable[[nn.Module, Tensor], tuple[Tensor, Tensor]]:
        """`terms(block, u)` is `(u, f(u))`, or `(P u, f(u))` if the block changes the shape; shared parts run once."""

        def run(block: Any, u: Any) -> tuple[Any, Any]:
            values = _run(self.before, block, u)
            return values[self.shortcut], values[self.branch]

        return recorded(run, "block", "u")

    @cached_property
    def projection(self) -> Callable[[nn.Module, Tensor], Tensor]:
        """`projection(block, u)` evaluates the shortcut only."""
        return recorded(lambda block, u: _run(self.before, block, u)[self.shortcut], "block", "u")

    @cached_property
    def activation(self) -> Callable[[nn.Module, Tensor], Tensor]:
        """`activation(block, u)` applies what follows the sum."""
        return recorded(lambda block, u: _run(self.after, block, u)[-1], "block", "u")

    def __reduce__(self) -> tuple[Any, ...]:  # the code is recorded again
        return type(self), (self.before, self.shortcut, self.branch, self.after)

    def __deepcopy__(self, memo: object) -> Split:
        return self  # immutable

    @property
    def projects(self) -> bool:
        """Whether the shortcut is more than the identity."""
        return self.shortcut != 0


@checked
def split_block(block: type[nn.Module], *, branch: str, shortcut: str, activation: str = "") -> None:
    """State how a block class of your own is split, each part a chain of its attributes in the order of their calls:

    split_block(BasicBlock, branch="conv1 bn1 relu() conv2 bn2", shortcut="shortcut", activation="relu()")
    """
    stated = StatedSplit(tuple(branch.split()), tuple(shortcut.split()), tuple(activation.split()))
    for name in (*stated.branch, *stated.shortcut, *stated.activation):
        if name.endswith(FUNCTION) and not hasattr(F, name.removesuffix(FUNCTION)):
            raise UserError(f"{name!r}: torch.nn.functional has no such function; an attribute is written without ()")
    STATED[block] = stated


@dataclass(frozen=True)
class StatedSplit:
    """Three chains of names: attributes of a block, or functions of `torch.nn.functional` written with `()`."""

    branch: tuple[str, ...]
    shortcut: tuple[str, ...]
    activation: tuple[str, ...]

    def __call__(self, block: nn.Module) -> Split:
        """Return the split of this block; attributes that it lacks, or that are the identity, are skipped."""
        branch = _chain(block, self.branch)
        shortcut = _chain(block, self.shortcut, len(branch))
        ends = len(branch), len(branch) + len(shortcut) if shortcut else 0
        return Split((*branch, *shortcut), ends[1], ends[0], _chain(block, self.activation))


STATED: dict[type[nn.Module], StatedSplit] = {}


def stated_for(block: nn.Module) -> StatedSplit | None:
    """Return what `split_block` registered for the class that defines the block's `forward`."""
    return next((STATED.get(cls) for cls in type(block).__mro__ if "forward" in vars(cls)), None)


def _chain(block: nn.Module, names: Iterable[str], first: int = 0) -> Program:
    """Return operations that follow each other; the first has the number `first` and reads value 0."""
    chain: list[Operation] = []
    for name in names:
        argument = (Value(first + len(chain) if chain else 0),)
        if name.endswith(FUNCTION):
            chain.append(Operation("call_function", getattr(F, name.removesuffix(FUNCTION)), argument))
        elif not is_identity(getattr(block, name, None)):
            chain.append(Operation("call_module", name, argument))
    return tuple(chain)


def _run(program: Program, block: Any, u: Any) -> list[Any]:
    values: list[Any] = [u]
    for operation in program:
        values.append(operation(block, values))
    return values


def _resolved(value: Any, values: Sequence[Any]) -> Any:
    if isinstance(value, Value):
        return values[value.number]
    if isinstance(value, tuple | list):
        return type(value)([_resolved(part, values) for part in value])
    return value


def _at_path(block: nn.Module, path: str) -> Any:
    value: Any = block
    for name in path.split("."):
        value = getattr(value, name)
    return value


def is_identity(layer: object) -> bool:
    """Whether an attribute of a block does nothing."""
    return layer is None or isinstance(layer, nn.Identity) or (isinstance(layer, nn.Sequential) and not len(layer))
