"""Fewer and longer steps: which blocks to remove, which steps take over their time, and the fit of the new step sizes.

The cost of removing a block is measured: with examples, the change of the outputs; without, the distance of its weights
from those of a neighbour, or from the line between both. Blocks are removed one at a time, since each removal changes
the costs of the others. Then step sizes and coefficients are fitted, by least squares, to the outputs of the original
network on the examples. This needs no labels and changes neither weights nor running statistics. If asked, matrices
take the place of step sizes (`matrix_steps`), which changes the last layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.errors import UserError, counted
from stepnet.nets.carried_coefficients import GridStep
from stepnet.nets.matrix_steps import check_takes_matrices, fit_matrices
from stepnet.nets.network_grid import NetworkOnGrid, StageOnGrid, on_grid
from stepnet.nets.refinement import check_depths
from stepnet.nets.trajectories import training_mode
from stepnet.nets.weights import is_coefficient

Refit = bool | Literal["matrix"]
BATCH = 250
ITERATIONS = 30  # of L-BFGS, on a few dozen numbers


class Block(NamedTuple):
    """A block that may be removed: its stage, and its index among the blocks after the transition."""

    stage: int
    number: int


class Choice:
    """The blocks of a network that stay: at least one in each stage, where a transition counts as one."""

    def __init__(self, network: nn.Module) -> None:
        self.network, self.subject = network, on_grid(network)
        self.stages, self.unit = self.subject.stages, self.subject.unit
        self.kept = [list(range(len(stage.blocks) // self.unit)) for stage in self.stages]

    def candidates(self, wanted: Sequence[int] | None = None) -> list[Block]:
        """Return the blocks that may be removed; with `wanted` depths, only from stages that are deeper."""
        blocks: list[Block] = []
        for n, (stage, kept) in enumerate(zip(self.stages, self.kept, strict=True)):
            least = self.subject.least[n]
            if stage.transitions + len(kept) > (least if wanted is None else max(least, wanted[n])):
                blocks += [Block(n, number) for number in kept]
        return blocks

    def drop(self, block: Block) -> None:
        self.kept[block.stage].remove(block.number)

    def grid(self, without: Block | None = None, passed_on: bool = True) -> list[list[GridStep]]:
        """Return the remaining steps. The time of a removed block is `passed_on` to the step before it, or after it."""
        grid = []
        for n, stage in enumerate(self.stages):
            kept = [number for number in self.kept[n] if Block(n, number) != without]
            grid.append(self._steps(stage, kept, passed_on))
        return grid

    def _steps(self, stage: StageOnGrid, kept: list[int], passed_on: bool) -> list[GridStep]:
        first = stage.transitions
        dts = {n: stage.dts[n] for n in range(first)} | {
            first + number * self.unit + part: stage.dts[first + number * self.unit + part]
            for number in kept
            for part in range(self.unit)
        }
        removed = [number for number in range(len(stage.blocks) // self.unit) if number not in kept]
        for number in removed if passed_on else ():
            before, after = [m for m in kept if m < number], [m for m in kept if m > number]
            heir = before[-1] if before else after[0] if after else None
            for part in range(self.unit):
                step = 0 if heir is None else first + heir * self.unit + part
                dts[step] += stage.dts[first + number * self.unit + part]
        return [GridStep({n: 1.0}, dts[n]) for n in sorted(dts)]


def coarsen_network(
    network: nn.Module, keep: float | None, inputs: Any, depths: Sequence[int] | None, refit: Refit
) -> nn.Module:
    """`stepnet.coarsen`."""
    if refit == "matrix":
        check_takes_matrices(network)
        if inputs is None:
            raise UserError("refit='matrix' without an example: matrices are fitted on a batch of inputs; give one")
    choice = choose(network, count_to_drop(on_grid(network), keep, depths), inputs, depths)
    if inputs is None or not refit:
        return choice.subject.on(choice.grid())
    return refitted(network, choice, inputs, refit)


def refitted(network: nn.Module, choice: Choice, inputs: Tensor, refit: Refit = True) -> nn.Module:
    """Return the coarsened network, fitted from the better of two starts: removed time passed on, or not.

    Matrices start from the identity, and are dropped if the outputs do not come nearer.
    """
    wanted = outputs(network, inputs)
    if refit == "matrix":
        plain, fitted = (choice.subject.on(choice.grid(passed_on=False)) for _ in range(2))
        fit_matrices(network, fitted, choice.grid(passed_on=False), inputs)
        return min((fitted, plain), key=lambda each: distance(outputs(each, inputs), wanted))
    starts = (choice.subject.on(choice.grid(passed_on=each)) for each in (False, True))
    return fit(min(starts, key=lambda each: distance(outputs(each, inputs), wanted)), inputs, wanted)


def count_to_drop(subject: NetworkOnGrid, keep: float | None, depths: Sequence[int] | None) -> int:
    """Return the number of blocks to remove for the share to `keep`, or for `depths`; raise for none or all."""
    now, least = subject.depths, subject.least
    if depths is not None:
        check_depths(depths, now)
        if any(wanted > depth for wanted, depth in zip(depths, now, strict=True)) or tuple(depths) == now:
            raise UserError(f"depths = {tuple(depths)}: expected fewer blocks than {now}")
        if any(wanted < fewest for wanted, fewest in zip(depths, least, strict=True)):
            raise UserError(f"depths = {tuple(depths)}: expected {least} blocks or more")
        return sum(now) - sum(depths)
    assert keep is not None
    total = sum(now)
    stay = round(keep * total)
    if stay < sum(least):
        raise UserError(
            f"keep = {keep:g} of {total} blocks leaves a stage empty: keep {sum(least) / total:.2g} or more, "
            f"{counted(sum(least), 'block')} in {counted(len(now), 'stage')}"
        )
    if stay == total:
        raise UserError(
            f"keep = {keep:g} of {counted(total, 'block')} drops none: keep less than {1 - 0.5 / total:.2g}"
        )
    return total - stay


def choose(
    network: nn.Module,
    count: int,
    inputs: Tensor | None,
    depths: Sequence[int] | None = None,
    at_random: int | None = None,
) -> Choice:
    """Remove `count` blocks, each time the one of least cost; with a seed `at_random`, random ones."""
    choice = Choice(network)
    for _ in removals(choice, count, inputs, depths, at_random):
        pass
    return choice


def removals(
    choice: Choice,
    count: int,
    inputs: Tensor | None,
    depths: Sequence[int] | None = None,
    at_random: int | None = None,
) -> Iterator[Block]:
    """Remove `count` blocks from a choice, and yield each."""
    network = choice.network
    wanted = None if inputs is None else outputs(network, inputs)
    generator = None if at_random is None else torch.Generator().manual_seed(at_random)
    for _ in range(count):
        candidates = choice.candidates(depths)
        if generator is not None:
            block = candidates[int(torch.randint(len(candidates), (), generator=generator))]
        else:
            costs = {
                block: weight_distance(choice, block)
                if inputs is None or wanted is None
                else distance(outputs(choice.subject.on(choice.grid(block, passed_on=False)), inputs), wanted)
                for block in candidates
            }
            block = min(costs, key=lambda each: (costs[each], -each.number))  # on a tie, the later
        choice.drop(block)
        yield block


def weight_distance(choice: Choice, block: Block) -> float:
    """Return the relative distance of a block's weights from a neighbour's, or from the line between both."""
    kept, stage, unit = choice.kept[block.stage], choice.stages[block.stage], choice.unit

    def vector(number: int) -> Tensor:
        parts = stage.blocks[number * unit : (number + 1) * unit]
        parameters = [p for part in parts for name, p in part.named_parameters() if not is_coefficient(name)]
        return torch.cat([p.detach().double().flatten() for p in parameters])

    place = kept.index(block.number)
    weights = vector(block.number)
    before = vector(kept[place - 1]) if place else None
    after = vector(kept[place + 1]) if place + 1 < len(kept) else None
    near = [v for v in (before, after if before is None else None) if v is not None]
    if before is not None and after is not None:
        share = (block.number - kept[place - 1]) / (kept[place + 1] - kept[place - 1])
        near.append((1 - share) * before + share * after)
    return min((float((weights - v).norm() / weights.norm()) for v in near), default=float("inf"))


def outputs(network: nn.Module, inputs: Tensor) -> Tensor:
    """Return the outputs of the network in evaluation mode."""
    with training_mode(network, False), torch.no_grad():
        return torch.cat([_tensor(network(part)) for part in torch.split(inputs, BATCH)])


def distance(output: Tensor, wanted: Tensor) -> float:
    """Return the mean squared difference, or infinity if it is NaN."""
    value = float(F.mse_loss(output.double(), wanted.double()))
    return value if value == value else float("inf")


def fit(network: nn.Module, inputs: Tensor, wanted: Tensor) -> nn.Module:
    """Fit step sizes and coefficients so that the outputs are nearest to those `wanted`.

    Minimise the squared error over `log dt` and k by L-BFGS; return the network unchanged if that does not help.
    """
    subject = on_grid(network)
    ks = subject.coefficients()
    before = distance(outputs(network, inputs), wanted)
    if not 0 < before < float("inf"):
        return network
    first = [k.detach().clone() for k in ks]
    sizes = _minimise(subject, inputs, wanted, before)
    if all(size > 0 and size < float("inf") for row in sizes for size in row):
        fitted = subject.on([[GridStep({n: 1.0}, dt) for n, dt in enumerate(row)] for row in sizes])
        fitted.load_state_dict(network.state_dict())  # with the fitted k
        if distance(outputs(fitted, inputs), wanted) < before:
            return fitted
    with torch.no_grad():
        for k, value in zip(ks, first, strict=True):
            k.copy_(value)
    return network


def _minimise(subject: NetworkOnGrid, inputs: Tensor, wanted: Tensor, before: float) -> list[list[float]]:
    """Set the coefficients to those of least squared error, relative to that `before`; return the step sizes."""
    network, ks = subject.network, subject.coefficients()
    logs = [torch.tensor(stage.dts, dtype=torch.float64).log().requires_grad_() for stage in subject.stages]
    flags = {p: p.requires_grad for p in network.parameters()}
    network.requires_grad_(False)
    for k in ks:
        k.requires_grad_(True)
    optimizer = torch.optim.LBFGS([*logs, *ks], max_iter=ITERATIONS, line_search_fn="strong_wolfe")
    parts = list(zip(torch.split(inputs, BATCH), torch.split(wanted, BATCH), strict=True))

    def loss() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), dtype=torch.float64)
        for x, y in parts:
            with subject.stepping([log.exp() for log in logs]):
                error = F.mse_loss(_tensor(network(x)), y) * (len(x) / len(inputs) / before)
            error.backward()  # type: ignore[no-untyped-call]
            total += error.detach()
        return total

    with training_mode(network, False):
        optimizer.step(cast(Callable[[], float], loss))  # type: ignore[no-untyped-call]
    for p, flag in flags.items():
        p.requires_grad_(flag)
        p.grad = None
    return [log.detach().exp().tolist() for log in logs]


def _tensor(output: Any) -> Tensor:
    """Return the output, or its `logits` for a network of transformers."""
    value = getattr(output, "logits", output)
    if not isinstance(value, Tensor):
        raise UserError(f"outputs are a {type(output).__name__}: expected a tensor, or logits, to compare networks by")
    return value
