"""Stochastic depth and a running cost on a converted network: it is called as one of ours.

    noise = network.draw(seed, step, places)      output = network(x, noise=noise, cost=cost)

The network passes gates and cost to its steps for one forward pass. Its `forward`, with its signature, is unchanged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from stepnet.conversion.step import ConvertedStep, ForwardPass
from stepnet.errors import UserError
from stepnet.nets import (
    Draw,
    InstanceMixin,
    SeededNoise,
    StochasticDepth,
    add_mixin,
    remove_mixin,
    zero_gradient,
)


class Gates(SeededNoise):
    """The draws of stochastic depth for a network that has no noise."""

    def __init__(self, stochastic: StochasticDepth) -> None:
        self.stochastic, self.seed = stochastic, stochastic.seed

    def draw(self, seed: int, step: int, places: range) -> Draw:
        return self.stochastic.draw(seed, step, places)


class ConvertedNetwork(InstanceMixin):
    """The mixin of a converted network."""

    takes_cost = True
    step_count: int = 0  # the number of its steps, with one gate for each
    step_gates: Gates | None = None  # both are defaults for a new instance of this class, which is not converted
    step_own_arguments: frozenset[str]  # the arguments of the network's own forward
    draw: Callable[[int, int, range], Draw]  # of a network with gates, which is then `Noisy`

    @property
    def compile_by_block(self) -> bool:
        """Whether draws are Python numbers, which would be constants in a compiled graph of the whole network."""
        return self.step_gates is not None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the network. `noise` has a gate for each step; `cost` sums a running cost of their right-hand sides."""
        own = self.step_own_arguments
        gates, cost = (None if name in own else kwargs.pop(name, None) for name in ("noise", "cost"))
        if gates is None and self.step_gates is not None and self.training:
            gates = self.step_gates.next_draw(
                next(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
            )
        if gates is None and cost is None:
            return super().__call__(*args, **kwargs)
        if gates is not None and len(gates) != self.step_count:
            raise UserError(f"{len(gates)} gates: the network takes {self.step_count} steps, and one gate for each")
        forward_pass = ForwardPass(gates, cost)
        steps = [module for module in self.modules() if isinstance(module, ConvertedStep)]
        for step in steps:
            step.step_pass = forward_pass
        try:
            output = super().__call__(*args, **kwargs)
        finally:
            for step in steps:
                step.step_pass = None
        return tree_map(partial(_without_gradient, forward_pass.unused), output)

    @classmethod
    def step_members(cls, original: type[nn.Module]) -> dict[str, Any]:
        return {"step_own_arguments": frozenset(inspect.signature(original.forward).parameters)}


def become_converted(network: nn.Module, steps: int, stochastic: StochasticDepth | None) -> None:
    """Make the network accept gates and a cost, in place."""
    if stochastic is not None and hasattr(network, "draw"):
        raise UserError(f"stochastic_depth: {type(network).__name__} draws a noise of its own; leave one of them out")
    converted = add_mixin(network, ConvertedNetwork)
    converted.step_count = steps
    converted.step_gates = None if stochastic is None else Gates(stochastic)
    if converted.step_gates is not None:
        converted.draw = converted.step_gates.draw


def become_plain(network: ConvertedNetwork) -> None:
    """Undo `become_converted`, in place."""
    if network.step_gates is not None:
        del network.draw
    remove_mixin(network)
    del network.step_count, network.step_gates


def _without_gradient(unused: list[nn.Parameter], output: Any) -> Any:
    return zero_gradient(output, unused) if isinstance(output, Tensor) and output.is_floating_point() else output
