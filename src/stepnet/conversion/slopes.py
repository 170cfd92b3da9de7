"""What a converted step evaluates: the branch of a block or the whole block, with its statistics and memory mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from stepnet.conversion.carried_past import Role, overwritten, version_of
from stepnet.conversion.inline import Residual, modules_of
from stepnet.conversion.places import Arguments, state_in
from stepnet.conversion.split import Split
from stepnet.errors import UserError
from stepnet.nets import at_evaluation, recomputed
from stepnet.schemes import Coefficient, Difference, State, is_traced

if TYPE_CHECKING:
    from stepnet.conversion.step import ConvertedStep


class StepSlope:
    """`f(v, i)` of one call of a step; `outputs` collects what the block or its branch returned."""

    def __init__(self, step: ConvertedStep, role: Role, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.step, self.role, self.args, self.kwargs = step, role, args, kwargs
        self.outputs: list[Any] = []
        self.done = False  # later evaluations are recomputations, whose outputs are not needed

    def __call__(self, v: State, i: int) -> State:
        output = self.block(v, i) if self.role.split is None else self.terms(v, i)[1]
        if not self.done:
            self.outputs.append(output)
        return Difference(state_in(output, self.role.result), v) if self.role.split is None else output

    def terms(self, v: Tensor, i: int) -> tuple[Tensor, Tensor]:
        """Return `(P v, f(v))` of a split block."""
        split = cast(Split, self.role.split)
        terms: tuple[Tensor, Tensor] = self._recomputed(self._evaluation(i, partial(split.terms, self.step)), v)
        return terms

    def block(self, v: Tensor, i: int) -> Any:
        """Return `B(v)`, with `v` as the state among the arguments of the call."""
        step, role = self.step, self.role
        if i > 0:
            refuse_cache(role, self.args, self.kwargs)
        v = v.clone() if role.overwrites else v
        version = version_of(v)
        args, kwargs = self.without_cache()

        def block(v: Tensor, *args: Any) -> Any:
            placed, named = role.argument.put(args, kwargs, v)
            return step.step_original.forward(step, *placed, **named)

        output = self.again(self._evaluation(i, block), v, *args)
        if not role.overwrites and overwritten(v, version):
            raise UserError(
                f"step {role.name!r} overwrote its state, which it did not on the example, and the scheme "
                "still needs it: make the block work out of place"
            )
        return output

    @property
    def module(self) -> nn.Module:
        """The module that an evaluation runs: the block, or the argument of a `Residual`."""
        if not isinstance(self.step, Residual):
            return self.step
        return nn.ModuleList(part for f in (*self.args, *self.kwargs.values()) for part in modules_of(f))

    @property
    def checkpointed(self) -> bool:
        """Whether transformers asks for gradient checkpointing."""
        return getattr(self.step, "gradient_checkpointing", False) and self.step.training

    @property
    def again(self) -> Callable[..., Any]:
        """A function that calls another one, and has the backward pass evaluate it again if memory is saved."""
        return vars(self.step)["_gradient_checkpointing_func"] if self.checkpointed else self._recomputed

    def without_cache(self) -> Arguments:
        """Return the arguments without a cache if the evaluation is repeated, which would write to it twice."""
        if not self.checkpointed and (self.role.memory == "stored" or not torch.is_grad_enabled()):
            return self.args, self.kwargs
        kept = {key: None if _is_cache(value) else value for key, value in self.kwargs.items()}
        return tuple(None if _is_cache(value) else value for value in self.args), kept

    def _evaluation(self, i: int, f: Callable[..., Any]) -> Callable[..., Any]:
        return partial(at_evaluation, i, f) if self.role.evaluations > 1 else f

    def _recomputed(self, f: Callable[..., Any], *args: Any) -> Any:
        kept = self.role.memory == "stored" or self.role.inverted or is_traced(args[0])
        return f(*args) if kept else recomputed(f, self.module, *args)


def refuse_cache(role: Role, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise if a cache is among the arguments of a block that is evaluated more than once in a step."""
    if any(map(_is_cache, (*args, *kwargs.values()))):
        raise UserError(
            f"scheme {role.scheme.name!r} evaluates {role.name!r} more than once in a step, "
            "and its cache holds one evaluation: call the network with use_cache=False"
        )


def _is_cache(value: object) -> bool:
    """Whether an argument is a cache of transformers, into which a block writes keys and values."""
    return type(value).__name__.endswith("Cache")


class BranchSlope:
    """`f(v, i)` of a split block, and its last value `f`."""

    f: Tensor

    def __init__(self, step: ConvertedStep, split: Split) -> None:
        self.step, self.split = step, split

    def __call__(self, v: Tensor, i: int) -> Tensor:
        self.f = f = self.split.terms(self.step, v)[1]
        return f


class KnownSlope:
    """A known value of f."""

    def __init__(self, f: State) -> None:
        self.f = f

    def __call__(self, v: State, i: int) -> State:
        return self.f


@dataclass(frozen=True)
class ReversibleSide:
    """`f` of a reversible step; `B(v) - v` is computed in double precision, where it is exact."""

    module: nn.Module
    slope: StepSlope

    def __call__(self, v: Tensor, c: Coefficient, i: int) -> Tensor:
        value = self.slope(v, i)
        f: Tensor = value.end.double() - value.start.double() if isinstance(value, Difference) else value
        return f
