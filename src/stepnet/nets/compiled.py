"""Compiling a network, whole or block by block.

A Python gate inside a full graph is a constant of that graph: each pattern of gates would be compiled again. The
blocks themselves see no gate.
"""

from __future__ import annotations

import torch
from torch import nn

from stepnet.nets.stage import Stage


def compiled(model: nn.Module) -> nn.Module:
    """The network compiled: whole, or in place block by block where its noise is Python numbers."""
    if getattr(model, "compile_by_block", False):
        compile_blocks(model)
        return model
    # dynamic=False: the short last batch gets a graph of its own, and the bits of the others stay as they were.
    return torch.compile(model, dynamic=False)  # type: ignore[return-value]


def compile_blocks(model: nn.Module) -> None:
    """Compile every block of the network in place; names and parameters stay what they were."""
    blocks = [block for stage in model.modules() if isinstance(stage, Stage) for block in stage.steps]
    # torch counts the graphs of one `forward`, which all blocks share, and gives up at 8; they differ in shape, in
    # the evaluation's index, in training or evaluation.
    limits = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, 4 * len(blocks))
    limits.accumulated_recompile_limit = max(limits.accumulated_recompile_limit, limits.recompile_limit)
    for block in blocks:
        block.compile(dynamic=False)
