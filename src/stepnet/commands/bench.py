"""`stepnet bench`: the cost of the schemes on this machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from stepnet.commands.parsing import ImportFlag
from stepnet.errors import UserError
from stepnet.escaping import print_json


@dataclass
class Bench(ImportFlag):
    """Time training steps side by side: LM against plain, converted against original, gated, reversible.

    Variants take turns in one process; printed are medians of ratios with quartiles. The A/A control is the baseline
    timed twice: smaller differences are noise. The scripts in benchmarks/ measure more, also against other libraries.
    """

    models: Annotated[Positional[list[str]], arg(metavar="[MODEL MODEL ...]")] = field(default_factory=list)
    """Time these networks instead: a training step of each against the first one's."""
    profile: Annotated[str | None, arg(metavar="MODEL")] = None
    """Show instead the time of each kind of operation in a training step of this network."""
    repeats: int = 11
    """Repetitions of each variant."""
    threads: int = 1
    """Threads of the process. With more than one, wall time is measured, which other processes disturb."""
    json: bool = False
    """Print the measurements as JSON instead."""
    out: Annotated[Path | None, arg(metavar="FILE")] = None
    """Write the measurements, with versions and machine, to this JSON file."""

    def __call__(self) -> None:
        if len(self.models) == 1:
            raise UserError(f"bench {self.models[0]}: name two or more networks to time, or use --profile MODEL")
        for name, value in (("repeats", self.repeats), ("threads", self.threads)):
            if value < 1:
                raise UserError(f"--{name} {value}: expected 1 or more")
        self.import_modules()
        import torch
        from rich.console import Console

        from stepnet.timing import print_rows, quick, side_by_side, time_shares, write_rows

        torch.set_num_threads(self.threads)
        if self.profile is not None:
            title, measured = f"a training step of {self.profile}", time_shares(self.profile)
        elif self.models:
            title, measured = f"a training step, against {self.models[0]}", side_by_side(self.models, self.repeats)
        else:
            title, measured = "stepnet bench", quick(self.repeats)
        with Console(stderr=True).status("measuring"):
            rows = list(measured)
        if self.json:
            print_json([asdict(row) for row in rows])
        else:
            print_rows(rows, title)
        if self.out is not None:
            command = " ".join(["stepnet bench", *self.models, *(["--profile", self.profile] if self.profile else [])])
            write_rows(self.out, command, rows, command)
