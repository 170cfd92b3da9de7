"""Compiling a gated network block by block.

A Python gate inside a full graph is a constant of that graph: each pattern of gates would be compiled anew. The
blocks themselves see no gate. An ungated network may be compiled whole: `torch.compile(model)`.
"""

from __future__ import annotations

import torch
from torch import nn

from stepnet.nets.stage import Stage


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
