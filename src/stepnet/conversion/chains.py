"""Find the chains of blocks that a scheme can march, and the reason for every block that it cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import TypeAlias

from torch import nn

from stepnet.conversion.inline import Residual
from stepnet.conversion.sublayers import sublayers, two_branches
from stepnet.conversion.trace import Call
from stepnet.errors import UserError
from stepnet.schemes import Plan, Scheme, plan

Blocks: TypeAlias = str | type[nn.Module] | Sequence[str | type[nn.Module]]


def candidates(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules that may be blocks: entries of `Sequential` and `ModuleList`, siblings of a class, `Residual`.

    Plain layers of torch are not blocks.
    """
    blocks: dict[str, nn.Module] = {}
    for path, module in model.named_modules():
        children = dict(module.named_children())
        classes = Counter(map(type, children.values()))
        listed = isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict)
        for name, child in children.items():
            layer = type(child).__module__.startswith("torch.nn.modules") and not any(child.children())
            if isinstance(child, Residual) or (not layer and (listed or classes[type(child)] > 1)):
                blocks[f"{path}.{name}" if path else name] = child
    return blocks


def named_blocks(model: nn.Module, blocks: Blocks) -> dict[str, nn.Module]:
    """Return the modules that match a class, or a pattern for module or class names."""
    wanted = list(blocks) if isinstance(blocks, Sequence) and not isinstance(blocks, str) else [blocks]

    def matches(name: str, module: nn.Module, pattern: str | type[nn.Module]) -> bool:
        if isinstance(pattern, str):
            at_path = name.count(".") == pattern.count(".") and fnmatch(name, pattern)  # a star is one name
            return at_path or fnmatch(type(module).__name__, pattern)
        return isinstance(module, pattern)

    modules = {name: module for name, module in model.named_modules() if name}
    for pattern in wanted:
        if not any(matches(name, module, pattern) for name, module in modules.items()):
            classes = sorted({type(module).__name__ for module in modules.values()})
            raise UserError(f"blocks={pattern!r} matches no module of {type(model).__name__}: it has {classes[:12]}")
    return {name: m for name, m in modules.items() if any(matches(name, m, pattern) for pattern in wanted)}


@dataclass
class Chain:
    """Consecutive residual blocks of one shape: the output of each is the input of the next."""

    calls: list[Call] = field(default_factory=list)

    @property
    def transition(self) -> bool:
        """Whether the chain starts with a block that changes the shape, whose projected input is the past."""
        return self.calls[0].transition

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each step, repeated for a block that is called several times."""
        return tuple(call.step_name for call in self.calls)

    @property
    def repeats(self) -> bool:
        """Whether a block occurs more than once."""
        return len(set(self.names)) < len(self.calls)

    def plan(self, scheme: Scheme) -> Plan:
        """Plan the march of a scheme over the chain."""
        return plan(scheme, len(self.calls), "projected" if self.transition else "identity")

    def covers(self, outer: Call) -> bool:
        """Whether `outer` computes this chain and nothing else."""
        return self.calls[0].input_key == outer.input_key and self.calls[-1].output_key == outer.output_key


@dataclass
class Selection:
    """The chains to convert, and the reason for each block that stays as it is."""

    chains: list[Chain]
    left: dict[str, str]  # residual blocks that do not become steps
    stays: dict[str, str]  # other blocks


def select(calls: Sequence[Call], scheme: Scheme, named: bool = False, layers: bool = False) -> Selection:
    """Select the chains that `scheme` can march; blocks `named` by the caller need not look residual."""
    able, reasons = blocks_among(calls, named, layers)
    chains = []
    for chain in _distinct_chains(able, reasons):
        parts = [two_branches(call) if scheme.splits else sublayers(call) for call in chain.calls]
        if not all(parts):
            reasons |= dict.fromkeys(chain.names, "a block of its row does not add two branches, one after the other")
            continue
        chain.calls = [step for steps in parts for step in steps]
        if scheme.steps == 1 and chain.transition and not scheme.learned:
            first = chain.calls.pop(0)
            reasons[first.name] = f"changes the shape: {scheme.name} reads no past, and leaves it as it is"
        needed = max(scheme.steps, 2 if chain.calls and chain.transition else 1)
        if len(chain.calls) >= needed:
            chains.append(chain)
        else:
            for call in chain.calls:
                reasons[call.name] = f"no other block of its shape: {scheme.name} needs {needed} blocks in a row"
    steps = {call.name for chain in chains for call in chain.calls}
    residual = {call.name for call in calls if call.residual}
    stays = _outermost({name: reason for name, reason in reasons.items() if reason}, residual, steps)
    left = {name: reason for name, reason in stays.items() if name in residual}
    return Selection(chains, left, {name: reason for name, reason in stays.items() if name not in residual})


def blocks_among(calls: Sequence[Call], named: bool = False, layers: bool = False) -> tuple[list[Call], dict[str, str]]:
    """Return the calls of innermost residual blocks, or of whole `layers`, and the reason against each other block."""
    reasons: dict[str, str] = {}
    for call in calls:
        reasons[call.name] = reasons.get(call.name) or why_not(call, named)
    return _innermost([call for call in calls if not reasons[call.name]], layers), reasons


def _distinct_chains(calls: Sequence[Call], reasons: dict[str, str]) -> list[Chain]:
    """The chains, each once, since a network may call a chain on several inputs.

    A block in two different chains would have two different pasts, and does not become a step.
    """
    while True:
        chains = {chain.names: chain for chain in reversed(link(calls))}
        counts = Counter(name for names in chains for name in set(names))
        shared = {name for name, count in counts.items() if count > 1}
        if not shared:
            return list(reversed(chains.values()))
        reasons |= dict.fromkeys(shared, "called in different chains of blocks")
        calls = [call for call in calls if call.name not in shared]


def why_not(call: Call, named: bool = False) -> str:
    """The reason why a block cannot be a step, or the empty string if it can."""
    if "forward" in vars(call.block):
        return "its forward was replaced on the instance"
    if call.residual:
        return ""
    if not call.keeps_shape:
        return f"changes the shape: {tuple(call.before.shape)} to {tuple(call.after.shape)}"
    return "" if named else "not residual: no path of sums leads from its output back to its input"


def link(calls: Iterable[Call]) -> list[Chain]:
    """Link each block to the one whose unchanged output is its input; a transition starts a new chain."""
    chains: list[Chain] = []
    ends: dict[tuple[int, int], Chain] = {}
    for call in calls:
        chain = None if call.transition else ends.pop(call.input_key, None)
        if chain is None:
            chain = Chain()
            chains.append(chain)
        chain.calls.append(call)
        ends[call.output_key] = chain
    return chains


def _innermost(able: Sequence[Call], layers: bool = False) -> list[Call]:
    """Replace a block by the blocks inside it if those form a chain, or are all that it computes.

    With `layers`, keep the outer block if it is in a chain of its class and is not a Sequential.
    """
    names = {call.name for call in able}
    chosen: list[Call] = []
    outer = [call for call in able if not any(_inside(call.name, other) for other in names)]
    classes = [{type(call.block) for call in chain.calls} for chain in link(outer) if len(chain.calls) > 1]
    for call in outer:
        if layers and {type(call.block)} in classes and not isinstance(call.block, nn.Sequential):
            chosen.append(call)
            continue
        inner = _innermost([other for other in able if _inside(other.name, call.name)], layers)
        if any(len(chain.calls) > 1 or chain.covers(call) for chain in link(inner)):
            chosen += inner
        else:
            chosen.append(call)
    return [call for call in able if any(call is kept for kept in chosen)]


def _inside(name: str, outer: str) -> bool:
    return name.startswith(outer + ".")


def _outermost(reasons: dict[str, str], residual: set[str], steps: set[str]) -> dict[str, str]:
    """Keep the reasons of the outermost blocks that neither hold a step nor are inside one, residual blocks first."""
    outermost: set[str] = set()
    for name in sorted(reasons, key=lambda name: (name not in residual, name.count("."))):
        if not any(_inside(name, other) or _inside(other, name) for other in steps | outermost):
            outermost.add(name)
    return {name: reason for name, reason in reasons.items() if name in outermost}
