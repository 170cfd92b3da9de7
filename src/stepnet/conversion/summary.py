"""What a conversion did: as data, as text, and as the record by which a saved network is converted again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from stepnet.conversion.chains import Chain, Selection
from stepnet.conversion.split import stated_for
from stepnet.conversion.trace import Call
from stepnet.nets import Bound, StepSizes, StochasticDepth
from stepnet.schemes import Scheme

REPORT = "step_conversion"  # the attribute of a converted network with its `Conversion`
RECORD = "stepnet_conversion"  # the attribute of the network, and the key in transformers' config.json


@dataclass(frozen=True)
class ConvertedStage:
    """A chain of blocks that became steps."""

    blocks: tuple[str, ...]
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    coefficients: int
    notes: tuple[str, ...]
    split: tuple[str, ...] = ()  # the blocks of which branch, shortcut and activation are known

    def __str__(self) -> str:
        names = self.blocks[0] if len(set(self.blocks)) == 1 else f"{self.blocks[0]} … {self.blocks[-1]}"
        count = _count(len(self.blocks), "step")
        owned = f", {self.coefficients} k" if self.coefficients else ""
        notes = f" ({'; '.join(self.notes)})" if self.notes else ""
        return f"{names}: {count} of {' and '.join(self.classes)} at {'x'.join(map(str, self.shape))}{owned}{notes}"


@dataclass(frozen=True)
class Conversion:
    """The stages that a scheme marches, the residual blocks that it leaves, and other blocks, each with the reason."""

    scheme: str
    stages: tuple[ConvertedStage, ...]
    left: dict[str, str]
    stays: dict[str, str]

    @classmethod
    def of(cls, scheme: Scheme, selection: Selection) -> Conversion:
        stages = tuple(_stage(chain, scheme) for chain in selection.chains)
        return cls(scheme.name, stages, selection.left, selection.stays)

    @property
    def steps(self) -> int:
        """The number of steps of the network."""
        return sum(len(stage.blocks) for stage in self.stages)

    @property
    def converted(self) -> int:
        """The number of blocks that became steps."""
        return len({name for stage in self.stages for name in stage.blocks})

    @property
    def found(self) -> int:
        """The number of residual blocks: those that became steps, and those that are left."""
        return self.converted + len(self.left)

    @property
    def coefficients(self) -> int:
        """The number of `k` in the network."""
        return sum(stage.coefficients for stage in self.stages)

    def record(
        self, dt: StepSizes, bound: Bound | None, blocks: object, stochastic: StochasticDepth | None = None
    ) -> dict[str, Any]:
        """Return what it takes to convert the network again, as JSON values."""
        several = blocks if isinstance(blocks, Sequence) and not isinstance(blocks, str) else [blocks]
        names = [each.__name__ if isinstance(each, type) else str(each) for each in several]
        options = {} if stochastic is None else asdict(stochastic)
        options.pop("depth", None)  # that is the number of steps
        return {
            "scheme": self.scheme,
            "dt": dt if isinstance(dt, int | float) else [[*sizes] for sizes in dt],
            "stages": [list(stage.blocks) for stage in self.stages],
            "split": [name for stage in self.stages for name in stage.split],
            "blocks": None if blocks is None else names,
            "k_bound": None if bound is None else [bound.low, bound.high],
            **({"stochastic_depth": options} if options else {}),
        }

    def __str__(self) -> str:
        stages = _count(len(self.stages), "stage")
        lines = [
            f"{self.scheme}: {_count(self.steps, 'step')} in {stages}, {self.coefficients} k; "
            f"{self.converted} of {_count(self.found, 'residual block')} converted"
        ]
        lines += [f"  {stage}" for stage in self.stages]
        lines += [f"  {name} is left: {reason}" for name, reason in self.left.items()]
        lines += [f"  {name} stays: {reason}" for name, reason in self.stays.items()]
        return "\n".join(lines)


def remember_conversion(network: nn.Module, record: dict[str, Any]) -> None:
    """Keep the record with the network, and in the configuration that `save_pretrained` writes."""
    setattr(network, RECORD, record)
    if hasattr(getattr(network, "config", None), "to_json_string"):
        setattr(network.config, RECORD, record)


def forget_conversion(network: nn.Module) -> None:
    """Remove the report and the record from a network that was reverted, and the record from its configuration."""
    delattr(network, REPORT)
    for holder in (network, getattr(network, "config", None)):
        if hasattr(holder, RECORD):
            delattr(holder, RECORD)


def _count(n: int, thing: str) -> str:
    return f"{n} {thing}{'s' * (n != 1)}"


def _stage(chain: Chain, scheme: Scheme) -> ConvertedStage:
    calls, plan = chain.calls, chain.plan(scheme)
    return ConvertedStage(
        blocks=chain.names,
        classes=tuple(dict.fromkeys(type(call.block).__name__ for call in calls)),
        shape=tuple(calls[-1].after.shape[1:]),
        coefficients=len(plan.owners),
        notes=(*_block_notes(chain), *_evaluation_notes(scheme, plan.evaluations)),
        split=tuple(dict.fromkeys(call.name for call in calls if call.split is not None)),
    )


def _block_notes(chain: Chain) -> Iterator[str]:
    """Yield how the blocks of a chain became steps."""
    calls = chain.calls
    if chain.transition:
        yield "the first changes the shape; its projected input is the past"
    activated = [call for call in calls if call.split is not None and call.split.after]
    if activated:
        yield f"split{_which(activated, calls)}: the scheme acts before the activation"
    divided = [call for call in calls if call.part is not None]
    if divided:
        inside = ", inside the norm that follows it" if "norm" in divided[0].kinds else ""
        yield f"each residual sum of a layer is a step{inside}"
    whole = [call for call in calls if call.split is None and call.activation and not call.kinds]
    if whole:
        advice = "split_block tells branch, shortcut and activation"
        if stated_for(whole[0].block) is not None:
            advice = "the split that was stated gives something else (an attribute that a block lacks is passed over)"
        yield (
            f"taken whole{_which(whole, calls)}: the scheme acts after the {whole[0].activation}, and a change of "
            f"shape hands over no past; {advice}"
        )
    if chain.repeats:
        yield "one step for each call of a block"
    overwriting = dict.fromkeys(call.name for call in calls if call.overwrites)
    if overwriting:
        yield f"{', '.join(overwriting)} work in place on the state, and get a copy"


def _evaluation_notes(scheme: Scheme, counts: Sequence[int]) -> Iterator[str]:
    """Yield how often the blocks are evaluated in their steps, if that is more than once."""
    if scheme.splits:
        more = f", one of them evaluated {max(counts)} times in a step" if max(counts) > 1 else ""
        yield f"f and g are the first and the second branch of a layer{more}"
    elif max(counts) > 1:
        same = len(set(counts)) == 1
        yield f"{counts[0]} evaluations in a step" if same else f"evaluations by step: {', '.join(map(str, counts))}"


def _which(some: Sequence[Call], calls: Sequence[Call]) -> str:
    """Name some of the calls in parentheses, unless they are all."""
    return "" if len(some) == len(calls) else f" ({', '.join(call.name for call in some)})"
