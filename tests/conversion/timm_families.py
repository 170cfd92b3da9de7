"""Walk timm family by family: convert the smallest member and compare it with the original and the reference.

    python -m tests.conversion.timm_families                        writes docs/convert_support.md
    python -m tests.conversion.timm_families --smallest [FAMILY…]   chooses the members again (slow: builds hundreds)

A family is a file of `timm.models`. It counts as residual when a member has a block that holds its own input.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from tests.conversion.agreement import check_agreement
from torch import nn

from stepnet.conversion import Conversion
from stepnet.conversion.chains import candidates, why_not
from stepnet.conversion.trace import trace
from stepnet.errors import UserError

SMALLEST = Path(__file__).with_name("timm_smallest.json")
TABLE = Path(__file__).parents[2] / "docs" / "convert_support.md"
MEMBERS = 24  # tried from the smallest up: the very smallest often has one block at each shape
IMAGE_SIZES = (64, 96, 128, 192, 224, 256)
OPTIONS: tuple[dict[str, int], ...] = (  # how a builder may be asked for less, smallest first
    {"depth": 3, "img_size": 64, "embed_dim": 96},
    {"depth": 3, "img_size": 64},
    {"depth": 3},
    {"img_size": 64},
    {},
)


@dataclass
class Family:
    """What came of one family."""

    name: str
    member: str
    residual: bool
    conversion: Conversion | None
    reason: str
    seconds: float

    def __str__(self) -> str:
        done = self.conversion
        told = f"{done.steps} steps, {done.coefficients} k" if done else self.reason
        return f"{self.name} ({self.member}): {told} [{self.seconds:.1f} s]"


def walk() -> list[Family]:
    """All families of the installed timm."""
    import timm

    chosen = json.loads(SMALLEST.read_text())
    names = [name for name in timm.list_modules() if timm.list_models(module=name)]
    return [_family(name, [chosen[name]] if name in chosen else _smallest(name)) for name in sorted(names)]


def share(families: list[Family]) -> tuple[int, int]:
    """How many residual families convert exactly, of how many."""
    residual = [family for family in families if family.residual]
    return sum(family.conversion is not None for family in residual), len(residual)


def table(families: list[Family]) -> str:
    """The support table, as Markdown."""
    import timm

    exact, residual = share(families)
    lines = [
        "# Which timm families convert",
        "",
        f"Written by `python -m tests.conversion.timm_families` with timm {timm.__version__}. One member of each",
        "family, the smallest in which `lm` finds a stage, is built as small as it allows, converted, compared bit",
        "for bit with the original at k = 0, and in float64 with a reference that clones its states at k = -0.5. A",
        "family is residual if a block holds its input plus something.",
        "",
        f"{exact} of {residual} residual families convert exactly ({exact / residual:.0%}).",
        "",
        "| family | member | steps | k | why not |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for family in families:
        done = family.conversion
        counts = f"{done.steps} | {done.coefficients} |" if done else f"| | {family.reason}"
        lines.append(f"| {family.name} | {family.member} | {counts} |")
    return "\n".join(lines) + "\n"


def _family(name: str, members: list[str]) -> Family:
    """The first member that converts, made small where its builder allows; otherwise what the first residual said."""
    start = time.perf_counter()
    best: Family | None = None
    for member in members:
        for options in OPTIONS:
            built = _build(member, options)
            if built is None:
                continue
            conversion, reason = _attempt(*built)
            residual = not reason.startswith("not residual")
            found = Family(name, member, residual, conversion, reason, time.perf_counter() - start)
            if conversion is not None:
                return found
            if best is None or (found.residual and not best.residual):
                best = found
            if "depth" not in options:  # the whole member: a smaller image would change nothing
                break
    assert best is not None, f"timm family {name}: no member of {members} runs"
    return best


def _build(member: str, options: dict[str, int]) -> tuple[nn.Module, torch.Tensor] | None:
    """The member and the smallest image on which it runs; nothing if its builder refuses the options."""
    import timm

    torch.manual_seed(0)
    try:
        model = timm.create_model(member, num_classes=4, **options).eval()
    except Exception:  # each builder refuses what it does not know in its own way
        return None
    default = model.pretrained_cfg.get("input_size", (3, 224, 224))[-1]
    for size in dict.fromkeys([*(s for s in IMAGE_SIZES if s < default), default]):
        example = torch.randn(1, 3, size, size)
        with contextlib.suppress(Exception), torch.no_grad():
            model(example)
            return model, example
    return None


def _attempt(model: nn.Module, example: torch.Tensor) -> tuple[Conversion | None, str]:
    try:
        return check_agreement(model, example), ""
    except UserError:
        return None, _reason(model, example)
    except AssertionError as error:
        return None, f"not exact: {error}"


def _reason(model: nn.Module, example: torch.Tensor) -> str:
    """Why no stage was found: residual blocks that stand apart, or none at all."""
    calls = trace(model, example, candidates(model))
    able = [call for call in calls if not why_not(call)]
    if able:
        return f"residual blocks stand apart: {able[0].name} is not followed by another at its shape"
    return "not residual: no block holds its input at one shape"


def _smallest(name: str) -> list[str]:
    """A family's members by parameters times the pixels that they cannot do without, smallest first."""
    import timm

    sizes = {}
    for member in timm.list_models(module=name):
        with torch.device("meta"):
            try:
                model = timm.create_model(member)
                *_, side = model.pretrained_cfg.get("min_input_size") or IMAGE_SIZES[:1]
                sizes[member] = side**2 * sum(p.numel() for p in model.parameters())
            except (RuntimeError, NotImplementedError):  # builds with values, which a meta tensor has not
                continue
    return sorted(sizes, key=sizes.__getitem__)[:MEMBERS]


def main(arguments: list[str]) -> None:
    import timm

    if "--smallest" in arguments:
        names = arguments[1:] or [name for name in timm.list_modules() if timm.list_models(module=name)]
        chosen = json.loads(SMALLEST.read_text()) if SMALLEST.exists() else {}
        chosen |= {name: _family(name, _smallest(name)).member for name in names}
        SMALLEST.write_text(json.dumps(dict(sorted(chosen.items())), indent=1) + "\n")
        return
    families = walk()
    TABLE.write_text(table(families))
    exact, residual = share(families)
    print(*families, f"{exact} of {residual} residual families convert exactly", sep="\n")


if __name__ == "__main__":
    import tests.conftest  # noqa: F401  (torchvision's operators, before timm imports it)

    main(sys.argv[1:])
