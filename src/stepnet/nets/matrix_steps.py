"""Matrices for step sizes, by least squares: a coarse network that follows the states of the whole one.

    u_{n+1} = carry + M_n dt f(u_n),     M_n minimises |u_{n+1} - u*(t_{n+1})|^2 + ridge |M_n - I|^2

`u*` are the states of the whole network on the examples, at the time at which the coarse one takes its next step. M_n
acts on the channels. It is multiplied into the last layer of the block, to whose output f is proportional, so the
network keeps its form. The steps are fitted in order, each from the states that the steps before it lead to: that takes
one pass and one linear system for each step, without gradients or labels.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from stepnet.errors import UserError
from stepnet.nets.network import Network
from stepnet.nets.network_grid import Grid, last_layers, own_stages
from stepnet.nets.stage import Stage
from stepnet.nets.trajectories import training_mode, trajectory

RIDGE = 1e-4  # of the mean square of a channel


def check_takes_matrices(network: nn.Module) -> None:
    """Raise if a matrix in place of dt cannot be multiplied into the last layer of every block."""
    if not isinstance(network, Network):
        raise UserError("refit='matrix': the last layers of another library's blocks are not known; refit numbers")
    for stage in own_stages(network):
        scheme = stage.scheme
        pair = scheme.streams or scheme.splits or scheme.partitioned
        if pair or max(stage.plan.evaluations) > 1 or stage.plan.reads_older_f:
            raise UserError(
                f"refit='matrix': expected u_n, u_(n-1), … and one f in a step, as euler, not {scheme.name!r}"
            )
        for layer in (layer for block in stage.steps for layer in last_layers(block)):
            if not isinstance(layer, nn.Linear) and not (isinstance(layer, nn.Conv2d) and layer.groups == 1):
                name = type(layer).__name__
                raise UserError(f"refit='matrix': blocks end in {name}, which holds no matrix; take a preact_ network")


def fit_matrices(whole: nn.Module, coarse: nn.Module, grid: Grid, inputs: Tensor) -> None:
    """Fit the steps of the `coarse` network, which has the steps `grid` of the whole one; both in evaluation mode."""
    with training_mode(whole, False), training_mode(coarse, False), torch.no_grad(), ExitStack() as hooks:
        for stage, states, steps in zip(
            own_stages(cast(Network, coarse)), trajectory(whole, inputs), grid, strict=True
        ):
            ends = [next(iter(step.blocks)) for step in steps[1:]]  # u*_n is the state before step n
            wanted = [states[n] for n in [*ends, -1]]
            hooks.enter_context(stage.register_forward_pre_hook(partial(_fit_stage, wanted), with_kwargs=True))
        coarse(inputs)


def _fit_stage(wanted: list[Tensor], stage: Stage, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Fit the steps of a stage before it is called."""
    x, past, gates = (*args, None, None)[:3]
    us, fs = stage.enter(x, past)
    for n, (step, block, f, k) in enumerate(zip(stage.march.steps, stage.steps, fs, stage.ks(), strict=True)):
        gate = 1 if gates is None else gates[n]
        carry = step.interpret(_zero, us, (), k, gate)
        increment = step.interpret(f, us, (), k, gate) - carry
        layers = last_layers(block)
        channels = -1 if isinstance(layers[0], nn.Linear) else 1
        rows, goals = (each.movedim(channels, -1).flatten(0, -2) for each in (increment, wanted[n] - carry))
        matrix = least_squares_near_identity(rows, goals).to(increment)
        for parameter in (p for layer in layers for p in layer.parameters()):
            parameter.copy_(torch.tensordot(matrix, parameter, 1))
        increment = (increment.movedim(channels, -1) @ matrix.T).movedim(-1, channels)
        us = (carry + increment, *us)[: stage.march.window]


def _zero(u: Tensor, i: int) -> Tensor:
    return torch.zeros_like(u)


def least_squares_near_identity(rows: Tensor, goals: Tensor) -> Tensor:
    """Return the M of least `sum |M x - y|^2 + ridge |M - I|^2` over the rows x and goals y, in double precision."""
    x, y = rows.double(), goals.double()
    gram = x.T @ x
    ridge = RIDGE * gram.diagonal().mean().clamp_min(torch.finfo(gram.dtype).tiny)
    identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    correction: Tensor = torch.linalg.solve(gram + ridge * identity, x.T @ (y - x)).T
    return identity + correction
