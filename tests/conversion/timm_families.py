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
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from tests.conversion.agreement import check_agreement
from torch import nn

from stepnet import get_scheme
from stepnet.conversion import Conversion
from stepnet.conversion.chains import candidates, select
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
    conversion: Conversion | None
    left: dict[str, str]  # residual blocks that are no steps, with the reasons
    error: str
    seconds: float

    @property
    def residual(self) -> bool:
        return self.conversion is not None or bool(self.left)

    @property
    def cells(self) -> list[str]:
        """Residual blocks, converted blocks, k; and why blocks are left."""
        reasons = Counter(reason.partition(":")[0] for reason in self.left.values())
        left = self.error or ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        if not self.residual:
            return ["0", "", "", "not residual: no block holds its input or a projection of it"]
        done = self.conversion
        converted = 0 if done is None else done.converted
        k = 0 if done is None else done.coefficients
        return [str(converted + len(self.left)), str(converted), str(k), left]

    def __str__(self) -> str:
        return f"{self.name} ({self.member}): {' | '.join(self.cells)} [{self.seconds:.1f} s]"


def names() -> list[str]:
    """All families of the installed timm."""
    import timm

    return sorted(name for name in timm.list_modules() if timm.list_models(module=name))


def walk(families: list[str]) -> list[Family]:
    """Convert a member of each family."""
    chosen = json.loads(SMALLEST.read_text())
    return [_family(name, [chosen[name]] if name in chosen else _smallest(name)) for name in families]


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
        "Use this page to see whether `stepnet.convert` works on a network of timm before you try it.",
        f"{exact} of {residual} residual families convert exactly ({exact / residual:.0%}).",
        "",
        f"The table is written by `python -m tests.conversion.timm_families` with timm {timm.__version__}. From each",
        "family, the smallest member in which `lm` finds a stage is built as small as possible, converted and",
        "compared with the original: bit for bit at k = 0, and at k = -0.5 in float64 with a reference that clones",
        "its states. A residual block is the sum of a branch and its input, or of a branch and a projection of its",
        "input. The last column says how many blocks were left as they are, and why.",
        "",
        "| family | member | residual blocks | converted | k | left |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    return "\n".join([*lines, *map(row, families)]) + "\n"


def row(family: Family) -> str:
    """A family's line of the table."""
    return f"| {' | '.join([family.name, family.member, *family.cells])} |"


def _family(name: str, members: list[str]) -> Family:
    """The first member that converts, made small where its builder allows; otherwise what the first residual said."""
    start = time.perf_counter()
    best: Family | None = None
    for member in members:
        for options in OPTIONS:
            built = _build(member, options)
            if built is None:
                continue
            found = Family(name, member, *_attempt(*built), time.perf_counter() - start)
            if found.conversion is not None:
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


def _attempt(model: nn.Module, example: torch.Tensor) -> tuple[Conversion | None, dict[str, str], str]:
    try:
        conversion = check_agreement(model, example)
        return conversion, conversion.left, ""
    except UserError:
        left, error = select(trace(model, example, candidates(model)), get_scheme("lm")).left, ""
    except AssertionError as failed:
        left, error = {"": ""}, f"not exact: {failed}"
    return None, left, error


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
    if "--smallest" in arguments:
        chosen = json.loads(SMALLEST.read_text()) if SMALLEST.exists() else {}
        chosen |= {name: _family(name, _smallest(name)).member for name in arguments[1:] or names()}
        SMALLEST.write_text(json.dumps(dict(sorted(chosen.items())), indent=1) + "\n")
        return
    families = walk(names())
    TABLE.write_text(table(families))
    exact, residual = share(families)
    print(*families, f"{exact} of {residual} residual families convert exactly", sep="\n")


if __name__ == "__main__":
    import tests.conftest  # noqa: F401  (torchvision's operators, before timm imports it)

    main(sys.argv[1:])
