"""The running cost of the stochastic control problem (paper, section 3.1): `min E L(X(T)) + integral of R`.

R as a function of the parameters alone is weight decay, which belongs to the optimiser. The kinetic cost depends on
the path, and is summed while the network marches.
"""

from __future__ import annotations

import inspect

import torch
from torch import Tensor, nn

from stepnet.schemes.arithmetic import Coefficient, State
from stepnet.schemes.core import RightHandSide


class KineticCost:
    """`sum_n |f(X_n)|^2 dt`, the mean over the batch: `model(x, cost=cost)`, then `loss + weight * cost.total`.

    One object for each forward pass. A dropped block is not computed and costs nothing; drop_path computes f for every
    sample, and all of them pay.
    """

    def __init__(self) -> None:
        self.total: Tensor | float = 0.0

    def watch(self, rhs: RightHandSide, dt: float) -> RightHandSide:
        """`rhs` itself; its first evaluation in a step, `f(X_n)`, is added to the total."""

        def watched(u: State, c: Coefficient, i: int) -> Tensor:
            f: Tensor = rhs(u, c, i)
            if i == 0:
                self.total = self.total + dt / len(f) * f.to(torch.promote_types(f.dtype, torch.float32)).square().sum()
            return f

        return watched


def takes_cost(network: nn.Module) -> bool:
    """Whether its forward pass can sum a running cost."""
    return "cost" in inspect.signature(network.forward).parameters
