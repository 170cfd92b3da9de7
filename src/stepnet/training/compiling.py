"""torch.compile, tried before the first step, with something to fall back on.

A compiler that was killed leaves a truncated library in torch's cache, on which every later compiled run would die. And
in the middle of a step an error of the compiler would cost the step; here a trial has nothing to lose.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import nn

from stepnet.errors import first_line
from stepnet.nets.draws import compiled

Trial = Callable[[nn.Module], None]  # a step forward and back, without consequences


def compiled_or_eager(network: nn.Module, trial: Trial, note: Callable[[str], None], held: ExitStack) -> nn.Module:
    """The network compiled; on failure with a fresh cache, kept as long as `held`; on failure again as it was."""
    note("compiling, which takes a while")
    try:
        return _tried(network, trial)
    except Exception as error:  # a compiler fails in many ways, and none of them is the run's
        note(f"compiling failed ({first_line(error)[:60]}): again with a fresh cache")
    from torch._inductor.utils import fresh_inductor_cache

    held.enter_context(fresh_inductor_cache())
    try:
        return _tried(network, trial)
    except Exception as error:
        note(f"compiling failed again ({first_line(error)[:60]}): training without it")
    _forget(network)
    return network


def _tried(network: nn.Module, trial: Trial) -> nn.Module:
    _forget(network)
    model = compiled(network)
    trial(model)
    return model


def _forget(network: nn.Module) -> None:
    """Drop what was compiled, of a network whose blocks were compiled in place too."""
    torch._dynamo.reset()
    for module in network.modules():
        module._compiled_call_impl = None
