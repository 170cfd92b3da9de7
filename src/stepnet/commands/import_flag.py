"""The flag `--import`, for commands that open networks, schemes or runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Annotated

from tyro.conf import arg

from stepnet.errors import UserError


@dataclass(kw_only=True)
class ImportFlag:
    """A command that imports user modules, which may register models, schemes and data sets."""

    imports: Annotated[list[str], arg(name="import", metavar="MODULE")] = field(default_factory=list)
    """Python modules to import, which register your models, schemes or data sets. A run that was trained on this
    machine imports its modules by itself; name those of a run from another machine, if you trust them."""

    def import_modules(self, places: Iterable[str] = (), needed: bool = True) -> None:
        """Import the named modules, and those of runs among `places`.

        Raise for a run from another machine whose modules are not named; ignore it unless `needed`.
        """
        runs = [place for place in places if os.path.isdir(place)]  # noqa: PTH112  (pathlib raises on long names)
        if not self.imports and not runs:
            return  # without importing torch
        from stepnet.training import import_modules, import_modules_of

        import_modules(self.imports)
        for run in runs:
            with nullcontext() if needed else suppress(UserError):
                import_modules_of(run, self.imports)
