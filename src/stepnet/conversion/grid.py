"""A converted network on another grid of steps: lists of blocks with other entries, and steps of other sizes.

The blocks of a chain are entries of a `Sequential` or a `ModuleList`, and are replaced by copies. Modules that are not
steps stay. The record of the conversion lists the entries, so that a file can be loaded. For transformers, the
configuration has the number of layers, and every layer its index.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from stepnet.conversion.converted_network import ConvertedNetwork, Gates
from stepnet.conversion.step import ConvertedStep
from stepnet.conversion.step_coefficients import K_FREE, K
from stepnet.conversion.summary import RECORD, REPORT, Conversion, remember_conversion
from stepnet.errors import UserError
from stepnet.nets import (
    Grid,
    GridStep,
    March,
    NetworkOnGrid,
    NetworkStep,
    StageOnGrid,
    carried,
    check_step_sizes,
    free_k,
    on_grid,
    steps_by_stage,
)
from stepnet.schemes import Entry, plan

LAYERS = "num_hidden_layers"  # in a configuration of transformers, whatever name it has there
NUMBER = "layer_idx"  # of a layer of transformers, by which it finds its keys and values in a cache
Layout = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class StepRow(StageOnGrid):
    """The steps of a chain whose blocks are in one list, the container."""

    container: str

    @property
    def converted(self) -> list[ConvertedStep]:
        """The blocks of all steps."""
        return [cast(ConvertedStep, step.block) for step in self.steps]


class ConvertedGrid(NetworkOnGrid):
    """The grid of a converted network."""

    unit = 1

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.rows = [_row(network, steps) for steps in steps_by_stage(network) if steps[0].role is not None]
        self.stages: Sequence[StageOnGrid] = self.rows
        if not hasattr(network, RECORD):
            raise UserError(f"a part of {type(network).__name__} was converted by itself: refine or coarsen that part")

    @property
    def least(self) -> tuple[int, ...]:
        """As many as the scheme reads past states: `convert` refuses a shorter chain."""
        return tuple(row.scheme.steps for row in self.rows)

    def on(self, grid: Grid, dt: float | None = None) -> nn.Module:
        if dt is not None:
            raise UserError(f"dt = {dt}: the last layers of another library's blocks are not known; leave it out")
        for row, steps in zip(self.rows, grid, strict=True):
            check_step_sizes(row.plan, row.scheme, [step.dt for step in steps])
        new = copy.deepcopy(self.network)
        layout = {row.container: list(range(len(_container(new, row.container)))) for row in self.rows}
        made = [[_block(row, step) for step in steps] for row, steps in zip(self.rows, grid, strict=True)]
        entries = [_entries(self.network, row) for row in self.rows]
        order = sorted(range(len(grid)), key=lambda n: -entries[n][0])  # from the end: the places before it stay
        for n in order:
            name, places = self.rows[n].container, entries[n]
            _place(_container(new, name), places, made[n])
            layout[name][places[0] : places[-1] + 1] = [places[_main(step)] for step in grid[n]]
        gates, first = _gates(new, sum(map(len, grid))), 0
        for row, steps, blocks in zip(self.rows, grid, made, strict=True):
            _assign_roles(row, steps, blocks, _container(new, row.container), first, gates)
            first += len(steps)
        for name in layout:
            _number(new, _container(new, name))
        _remember(new, self.rows, grid, layout)
        return new

    def coefficients(self) -> list[nn.Parameter]:
        steps = [step for row in self.rows for step in row.converted]
        ks = (getattr(step, K_FREE if step.step_role.bound is not None else K, None) for step in steps)
        return [k for k in ks if k is not None]

    @contextmanager
    def stepping(self, dts: Sequence[Tensor]) -> Iterator[None]:
        before = {step: step.step_roles for row in self.rows for step in row.converted}
        for row, sizes in zip(self.rows, dts, strict=True):
            for step, dt in zip(row.converted, sizes.unbind(), strict=True):
                (role,) = step.step_roles
                step.step_roles = (replace(role, step=role.step.with_dt(dt.to(next(step.parameters())))),)
        try:
            yield
        finally:
            for step, roles in before.items():
                step.step_roles = roles


@on_grid.register
def _(network: ConvertedNetwork) -> NetworkOnGrid:
    return ConvertedGrid(network)


def lay_out(network: nn.Module, layout: Layout, most: int | None = None) -> None:
    """Give the lists of a plain network the entries of another grid, repeated ones as copies; `most` limits a list."""
    for name, entries in layout.items():
        container = _container(network, name)
        if len(container) == len(entries):  # built with so many, as transformers does
            continue
        if not entries or max(entries) >= len(container) or min(entries) < 0 or (most and len(entries) > most):
            raise UserError(f"{name!r} cannot hold the {len(entries)} entries of the description")
        old = list(container)
        new = [copy.deepcopy(old[n]) if n in entries[:place] else old[n] for place, n in enumerate(entries)]
        _place(container, range(len(old)), new)
        _number(network, container)


def _row(network: nn.Module, steps: Sequence[NetworkStep]) -> StepRow:
    containers = {step.path.rpartition(".")[0] for step in steps}
    role = steps[0].role
    if role.repeats or role.kinds or len(containers) != 1:
        raise UserError(f"{role.name!r}: blocks that take several steps, or stand in several lists, stay as many")
    if role.scheme.learned:
        raise UserError(
            f"scheme {role.scheme.name!r} in a converted network: its steps hold their coefficients and streams, and "
            "stay as many; convert it to euler or lm, or take a network of create_model"
        )
    (name,) = containers
    _container(network, name)
    entry: Entry = "projected" if role.transition else "identity"
    return StepRow(steps, plan(role.scheme, len(steps), entry), name)


def _container(network: nn.Module, name: str) -> nn.Sequential | nn.ModuleList:
    try:
        container = network.get_submodule(name)
    except AttributeError:
        container = nn.Identity()
    if not isinstance(container, nn.Sequential | nn.ModuleList):
        raise UserError(f"{name!r} is not a Sequential or a ModuleList: its blocks cannot become more or fewer")
    return container


def _entries(network: nn.Module, row: StepRow) -> list[int]:
    """Return the indices of a chain in its list; raise if other modules are between them."""
    children = list(_container(network, row.container))
    places = [next(n for n, child in enumerate(children) if child is step) for step in row.converted]
    if places != list(range(places[0], places[0] + len(places))):
        raise UserError(f"{row.container!r} holds other modules between the steps of a row: it stays as it is")
    return places


def _main(step: GridStep) -> int:
    return max(step.blocks, key=lambda n: step.blocks[n])


@torch.no_grad()
def _block(row: StepRow, step: GridStep) -> ConvertedStep:
    """Return the block of a new step: a copy, or the mean of several."""
    new = copy.deepcopy(row.converted[_main(step)])
    if len(step.blocks) > 1:
        sources = [(dict(row.steps[n].block.state_dict()), share) for n, share in step.blocks.items()]
        state = new.state_dict()
        for name, value in state.items():
            if value.is_floating_point() and not name.endswith((K, K_FREE)):
                state[name] = sum((share * source[name] for source, share in sources), torch.zeros_like(value))
        new.load_state_dict(state)
    return new


def _place(container: nn.Sequential | nn.ModuleList, entries: Sequence[int], blocks: Sequence[nn.Module]) -> None:
    children = list(container)
    children[entries[0] : entries[-1] + 1] = blocks
    container._modules.clear()
    for n, child in enumerate(children):
        container._modules[str(n)] = child


def _assign_roles(
    row: StepRow,
    steps: Sequence[GridStep],
    blocks: Sequence[ConvertedStep],
    container: nn.Module,
    first: int,
    gates: Gates | None,
) -> None:
    """Assign the method and the coefficient of each step from the plan of the new chain, as `convert` does."""
    role = row.steps[0].role
    planned = plan(row.scheme, len(steps), row.plan.entry)
    places = {id(child): n for n, child in enumerate(container.children())}
    prefix = f"{row.container}." if row.container else ""
    names = tuple(f"{prefix}{places[id(block)]}" for block in blocks)
    owned = {n: k.detach()[0] for n, step in enumerate(row.steps) if (k := step.coefficient) is not None}
    like = next(iter(owned.values()), torch.zeros(()))
    values = carried("ratio", row.dts, owned, steps, planned.owners, lambda n: torch.zeros_like(like))
    ks = dict(zip(planned.owners, values, strict=True))
    whole = [row.steps[_main(step)].role.split is None for step in steps]
    recorded = March(row.scheme, planned, [step.dt for step in steps], whole=whole).steps
    for n, (block, step) in enumerate(zip(blocks, steps, strict=True)):
        source = row.steps[_main(step)].role
        if planned.evaluations[n] != source.evaluations:
            raise UserError(
                f"scheme {row.scheme.name!r} starts with other evaluations than it goes on with, whose statistics "
                f"{source.name!r} does not have: take euler, lm or a Runge–Kutta scheme"
            )
        block.step_roles = (
            replace(
                source,
                name=names[n],
                place=n,
                method=planned.steps[n].method,
                step=recorded[n],
                last=n == len(steps) - 1,
                chain=names,
                k_index=0 if n in ks else None,
                number=first + n,
                mean_gate=None if gates is None else gates.stochastic.means[first + n],
                keeps_f=n in planned.kept_f,
            ),
        )
        for name in (K, K_FREE):
            block._parameters.pop(name, None)
        if n in ks:
            near = next((p for p in block.parameters() if p.is_floating_point()), like)
            value = free_k(role.bound, ks[n].reshape(1)).to(near)
            block.register_parameter(K if role.bound is None else K_FREE, nn.Parameter(value))


def _gates(network: nn.Module, steps: int) -> Gates | None:
    """Set the number of steps, and return the gates of stochastic depth for it, if any."""
    converted = cast(ConvertedNetwork, network)
    converted.step_count = steps
    if converted.step_gates is not None:
        converted.step_gates = Gates(replace(converted.step_gates.stochastic, depth=steps))
        converted.draw = converted.step_gates.draw
    return converted.step_gates


def _number(network: nn.Module, container: nn.Module) -> None:
    """Update the layer indices of a transformers network, and the number of layers in its configuration."""
    layers = list(container.children())
    numbered = [(n, part) for n, layer in enumerate(layers) for part in layer.modules() if hasattr(part, NUMBER)]
    for n, part in numbered:
        setattr(part, NUMBER, n)
    config = getattr(network, "config", None)
    if numbered and hasattr(config, LAYERS):
        setattr(config, LAYERS, len(layers))


def _remember(network: nn.Module, rows: Sequence[StepRow], grid: Grid, layout: dict[str, list[int]]) -> None:
    """Update the record of the conversion, which `describe` prints and a file needs to build the network again."""
    record = dict(getattr(network, RECORD))
    before: Layout = record.get("layout") or {}
    steps = {id(s): s for s in network.modules() if isinstance(s, ConvertedStep)}
    names = list(dict.fromkeys(s.step_role.chain for s in steps.values()))
    split = [s.step_role.name for s in steps.values() if s.step_role.split is not None]
    record |= {
        "stages": [list(row) for row in names],
        "split": [name for row in names for name in row if name in split],
        "dt": [[step.dt for step in own] for own in grid],
        "layout": {k: [before[k][n] if k in before else n for n in v] for k, v in layout.items()},
    }
    done: Conversion = getattr(network, REPORT)
    stages = tuple(
        replace(stage, blocks=row, split=tuple(n for n in row if n in split), coefficients=_owners(old, len(row)))
        for stage, row, old in zip(done.stages, names, rows, strict=True)
    )
    setattr(network, REPORT, replace(done, stages=stages))
    remember_conversion(network, record)


def _owners(row: StepRow, length: int) -> int:
    return len(plan(row.scheme, length, row.plan.entry).owners)
