"""Noise in training: a network draws the noise for its forward pass from (seed, step, places in the global batch).

    noise = network.draw(seed, step, places)      logits = network(x, noise=noise)

`places` are this process's places in the batch of all processes. The draw depends on its arguments only, so that a
resumed run and all processes of a distributed one agree. A training loop need not know what kind of noise it is.

Also, how a noisy network is compiled. A Python gate is a constant of a compiled graph, so that each pattern of gates
would be compiled separately. Blocks do not depend on the gates, and are compiled one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from stepnet.arguments import checked
from stepnet.errors import UserError
from stepnet.nets.stage import Stage
from stepnet.schemes import is_traced

Draw: TypeAlias = Any  # what `draw` returns and `forward` accepts; None is no noise
Option = TypeVar("Option")


@runtime_checkable
class Noisy(Protocol):
    """A network with noise in training: stochastic depth, Shake-Shake, FractalNet's drop-path, or a user's."""

    def draw(self, seed: int, step: int, places: range) -> Draw:
        """Return the noise of training step `step` for the images at `places`, or None."""


def drawn_options(network: nn.Module, seed: int, step: int, places: range) -> dict[str, Draw]:
    """Return the `noise=` of a forward pass in training; empty for a network without noise."""
    noise = network.draw(seed, step, places) if isinstance(network, Noisy) else None
    return {} if noise is None else {"noise": noise}


def untraced(option: Option | None) -> Option | None:
    """Return an option of a call, or None for a proxy: torch.fx passes one for each, and traces images only."""
    return None if is_traced(option) else option


class SeededNoise(ABC):
    """A network that, without `noise=`, uses the draws of steps 0, 1, 2, … of its `seed` in training."""

    training: bool
    seed: int = 0
    drawn: int = 0

    @abstractmethod
    def draw(self, seed: int, step: int, places: range) -> Draw:
        """See `Noisy`."""

    @_disable_dynamo  # the counter would be a constant of a compiled graph
    def next_draw(self, x: Tensor) -> Draw:
        """Return the next draw, for a batch that is the global one."""
        if is_traced(x) or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            raise UserError(
                "a traced graph would fix this network's draws: trace it in eval(), or without noise "
                "(create_feature_extractor traces training too: take forward_intermediates)"
            )
        self.drawn += 1
        return self.draw(self.seed, self.drawn - 1, range(len(x)))


class _ZeroGradient(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(output: Tensor, *parameters: Tensor) -> Tensor:
        return output.view_as(output)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.parameters = inputs[1:]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        return (*gradients, *map(torch.zeros_like, ctx.parameters))

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return tangents[0].view_as(tangents[0])


def zero_gradient(output: Tensor, unused: Sequence[nn.Parameter]) -> Tensor:
    """Return `output` with derivative 0 with respect to the `unused` parameters.

    A dropped block's gradient is then zero rather than missing: momentum and weight decay continue, and
    DistributedDataParallel, which waits for the gradient of every parameter, needs no `find_unused_parameters`.
    """
    parameters = [p for p in unused if p.requires_grad]
    if not (parameters and torch.is_grad_enabled()):
        return output
    zeroed: Tensor = _ZeroGradient.apply(output, *parameters)  # type: ignore[no-untyped-call]
    return zeroed


def compiled(model: nn.Module) -> nn.Module:
    """Compile a network: as a whole, or block by block in place if its noise consists of Python numbers."""
    if getattr(model, "compile_by_block", False):
        compile_blocks(model)
        return model
    # dynamic=False: a short last batch is compiled separately, and does not change the results of the others.
    return torch.compile(model, dynamic=False)  # type: ignore[return-value]


@checked
def compile_blocks(model: nn.Module) -> None:
    """Compile every block of the network in place; names and parameters do not change."""
    blocks = [block for stage in model.modules() if isinstance(stage, Stage) for block in stage.steps]
    if not blocks:
        raise UserError(f"{type(model).__name__} has stochastic depth and no stages whose blocks could be compiled")
    # All blocks share one `forward`, of which torch compiles at most 8 graphs; they differ in shape, in the index of
    # the evaluation, and between training and evaluation.
    limits = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, 4 * len(blocks))
    limits.accumulated_recompile_limit = max(limits.accumulated_recompile_limit, limits.recompile_limit)
    for block in blocks:
        block.compile(dynamic=False)
