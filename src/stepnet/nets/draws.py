"""One protocol for noise: a network draws what its forward pass takes, from (seed, step, places in the global batch).

    noise = network.draw(seed, step, places)      logits = network(x, noise=noise)

`places` are this process's places in the batch of all processes. The draw is a function of its arguments and of nothing
else, so a resumed run and every process of a distributed one agree. Who trains a network need not know what it draws.

Below, how a noisy network is compiled. A Python gate inside a full graph is a constant of that graph: each pattern of
gates would be compiled again. The blocks themselves see no gate.
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

Draw: TypeAlias = Any  # whatever `draw` gives and `forward` takes; None is no noise
Option = TypeVar("Option")


@runtime_checkable
class Noisy(Protocol):
    """A network with noise in training: stochastic depth, Shake-Shake, FractalNet's drop-path, or yours."""

    def draw(self, seed: int, step: int, places: range) -> Draw:
        """The noise of training step `step` for the images at `places`; None where there is none."""


def drawn_options(network: nn.Module, seed: int, step: int, places: range) -> dict[str, Draw]:
    """The `noise=` of a forward pass in training, for any network: nothing where it draws none."""
    noise = network.draw(seed, step, places) if isinstance(network, Noisy) else None
    return {} if noise is None else {"noise": noise}


def untraced(option: Option | None) -> Option | None:
    """The option of a call. torch.fx passes a variable for each; a network that it traces takes images alone."""
    return None if is_traced(option) else option


class SeededNoise(ABC):
    """For a caller who passes no noise: in training the network takes the draws of steps 0, 1, 2, … of its `seed`."""

    training: bool
    seed: int = 0
    drawn: int = 0

    @abstractmethod
    def draw(self, seed: int, step: int, places: range) -> Draw:
        """See `Noisy`."""

    @_disable_dynamo  # the counter would be a constant of a compiled graph
    def next_draw(self, x: Tensor) -> Draw:
        """The next draw, for a batch that is the global one."""
        if is_traced(x) or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            raise UserError(
                "a graph would make this network's draws constants: trace it in eval(), or without noise "
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
    """`output`, as if it depended on the `unused` parameters with the derivative 0.

    A dropped block's gradient is then zero rather than missing: momentum and weight decay go on as they would have,
    and DistributedDataParallel, which waits for the gradient of every parameter, gets all of them at the beginning
    of the backward pass (there is no need of `find_unused_parameters`).
    """
    wanted = [p for p in unused if p.requires_grad]
    if not (wanted and torch.is_grad_enabled()):
        return output
    zeroed: Tensor = _ZeroGradient.apply(output, *wanted)  # type: ignore[no-untyped-call]
    return zeroed


def compiled(model: nn.Module) -> nn.Module:
    """The network compiled: whole, or in place block by block where its noise is Python numbers."""
    if getattr(model, "compile_by_block", False):
        compile_blocks(model)
        return model
    # dynamic=False: the short last batch gets a graph of its own, and the bits of the others stay as they were.
    return torch.compile(model, dynamic=False)  # type: ignore[return-value]


@checked
def compile_blocks(model: nn.Module) -> None:
    """Compile every block of the network in place; names and parameters stay what they were."""
    blocks = [block for stage in model.modules() if isinstance(stage, Stage) for block in stage.steps]
    if not blocks:
        raise UserError(f"{type(model).__name__} has stochastic depth and no stages whose blocks could be compiled")
    # torch counts the graphs of one `forward`, which all blocks share, and gives up at 8; they differ in shape, in
    # the evaluation's index, in training or evaluation.
    limits = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, 4 * len(blocks))
    limits.accumulated_recompile_limit = max(limits.accumulated_recompile_limit, limits.recompile_limit)
    for block in blocks:
        block.compile(dynamic=False)
