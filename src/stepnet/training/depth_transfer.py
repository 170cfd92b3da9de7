"""Depth transfer: use a recipe that was tuned on a shallow network for a deep one (`stepnet.depth_transfer`).

With `m = L / L_0` times as many blocks, the step size of a block is `dt m^-a`: rule "1/L" (a = 1) refines the grid of
one flow, "1/sqrt(L)" (a = 1/2) keeps the variance of random blocks. The change of the output in a step of the optimiser
must not depend on m either: L blocks change it by `m m^-a` times the change of a block's weights. Adam changes them by
lr, so its rate is multiplied by `m^(a-1)`; SGD by lr times a gradient proportional to `m^-a`, so by `m^(2a-1)`. Adam's
eps is compared with gradients, so it is multiplied by `m^-a`. (Yang et al. 2023 and Bordelon et al. 2023 for a = 1/2,
Dey et al. 2025 for a = 1.)

The decay in a step, lr times weight_decay, is unchanged; that of Adam, which is added to the gradient, is multiplied by
`m^-a` as the gradient is. For a = 1 and AdamW this is the decay of Dey et al.; the other cases are ours. The settings
of stem, head, transitions and coefficients are unchanged, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

from torch import nn

from stepnet.arguments import Count, NotNegative, Positive, checked
from stepnet.errors import UserError, check_known
from stepnet.nets import GridStep, Network, depths_at, is_coefficient, on_grid, origin_of, scale
from stepnet.training.recipes import DepthRule

EXPONENTS: dict[DepthRule, float] = {"1/L": 1.0, "1/sqrt(L)": 0.5}
Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Multiples:
    """Factors of the step size of a block, and of the optimiser's settings for its weights."""

    dt: float = 1.0
    lr: float = 1.0
    eps: float = 1.0
    weight_decay: float = 1.0

    @classmethod
    def of(cls, ratio: float, rule: DepthRule, optimizer: str) -> Multiples:
        """Return the factors for `ratio` times the depth."""
        check_known("optimizer with a rule for depth", optimizer, ("sgd", "adam", "adamw"))
        a = EXPONENTS[rule]
        adaptive = optimizer != "sgd"
        lr = ratio ** (a - 1 if adaptive else 2 * a - 1)
        return cls(ratio**-a, lr, ratio**-a if adaptive else 1.0, ratio**-a if optimizer == "adam" else 1 / lr)


class Transferred(NamedTuple, Generic[Model]):
    """A network whose step size follows a rule for depth, and parameter groups for an optimiser of torch."""

    network: Model
    groups: list[dict[str, Any]]


@checked
def depth_transfer(
    network: Model,
    base_depth: Count,
    rule: DepthRule = "1/L",
    *,
    optimizer: Literal["sgd", "adam", "adamw"] = "adamw",
    lr: Positive = 1e-3,
    eps: Positive = 1e-8,
    weight_decay: NotNegative = 0.0,
) -> Transferred[Model]:
    """Transfer settings that were tuned at `base_depth` to a new, deeper network; return `(network, groups)`.

    The network has the step size of the rule. `groups` are parameter groups for `torch.optim`: the learning rate, eps
    and decay of the blocks follow the rule, the others are as given. Depths are counted as in the model's name; for a
    converted network they are numbers of blocks, and its initial weights stay as they are.
    """
    scaled, multiples = at_rule(network, base_depth, rule, optimizer)
    inside = block_parameters(scaled)
    blocks = [p for p in scaled.parameters() if id(p) in inside]
    others = [p for p in scaled.parameters() if id(p) not in inside]
    adam = {} if optimizer == "sgd" else {"eps": eps}
    groups: list[dict[str, Any]] = [{"params": others, "lr": lr, "weight_decay": weight_decay, **adam}]
    decay = weight_decay * multiples.weight_decay
    adam = {} if optimizer == "sgd" else {"eps": eps * multiples.eps}
    return Transferred(scaled, [*groups, {"params": blocks, "lr": lr * multiples.lr, "weight_decay": decay, **adam}])


def at_rule(network: Model, base_depth: int, rule: DepthRule, optimizer: str) -> tuple[Model, Multiples]:
    """Return the network with the step size of the rule, and the factors for its blocks."""
    subject, ratio = on_grid(network), depth_ratio(network, base_depth)
    multiples = Multiples.of(ratio, rule, optimizer)
    sizes = [[dt if n < s.transitions else dt * multiples.dt for n, dt in enumerate(s.dts)] for s in subject.stages]
    new = subject.on([[GridStep({n: 1.0}, dt) for n, dt in enumerate(row)] for row in sizes])
    if isinstance(network, Network):  # the rule replaces the decrease of initial weights with the depth
        for block in (block for stage in on_grid(new).stages for block in stage.blocks):
            scale(block, ratio**network.initial_exponent)
    return cast(Model, new), multiples


def depth_ratio(network: nn.Module, base_depth: int) -> float:
    """Return the number of blocks, divided by that of the network of the base depth."""
    blocks = sum(on_grid(network).depths)
    if blocks < 2:
        origin = origin_of(network)
        name = type(network).__name__ if origin is None else origin.name
        raise UserError(f"{name} has one block: a rule for depth needs several")
    return blocks / (sum(depths_at(network, base_depth)) if isinstance(network, Network) else base_depth)


def block_parameters(network: nn.Module) -> set[int]:
    """Return the ids of the parameters whose number grows with the depth: those of blocks other than transitions."""
    blocks = (block for stage in on_grid(network).stages for block in stage.blocks)
    return {id(p) for block in blocks for name, p in block.named_parameters() if not is_coefficient(name)}


def multiples_of(network: nn.Module, base_depth: int | None, rule: DepthRule, optimizer: str) -> Multiples:
    """Return the factors for the blocks of a network; 1 without a base depth."""
    return Multiples() if base_depth is None else Multiples.of(depth_ratio(network, base_depth), rule, optimizer)
