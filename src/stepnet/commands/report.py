"""`stepnet report`: runs as one page."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from stepnet.commands.import_flag import ImportFlag
from stepnet.escaping import echo


@dataclass
class Report(ImportFlag):
    """Write runs as one HTML page that works offline: summary, curves, learned k_n, error against cost, commands."""

    runs: Annotated[Positional[list[Path]], arg(metavar="RUN [RUN ...]")]
    """The folders of the runs. Runs on different data sets are shown in different tables."""
    out: Annotated[Path, arg(aliases=["-o"], metavar="FILE")] = Path("report.html")
    """Where to write the page."""
    labels: Annotated[list[str], arg(metavar="NAME ...")] = field(default_factory=list)
    """Names for the networks, in the order of their first runs; by default the options that differ."""

    def __call__(self) -> None:
        from stepnet.errors import UserError
        from stepnet.report import write_report

        if not self.runs:
            raise UserError("no runs: name their folders, as in stepnet report runs/compare/*/*")
        self.import_modules(map(str, self.runs), needed=False)
        write_report(self.runs, self.out, self.labels or None)
        echo(f"wrote {self.out} ({self.out.stat().st_size / 1e6:.1f} MB)")
