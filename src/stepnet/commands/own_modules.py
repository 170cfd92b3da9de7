"""The flag of every command that opens networks, schemes or runs: modules of the user's own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Annotated

from tyro.conf import arg

from stepnet.errors import UserError


@dataclass(kw_only=True)
class OwnModules:
    """A command to which a module of the user's own may add models, schemes and data sets."""

    imports: Annotated[list[str], arg(name="import", metavar="MODULE")] = field(default_factory=list)
    """Modules that register a model, scheme or data set of your own, or that a run from another machine needs, if you
    trust them. A run that was trained here finds its own."""

    def import_modules(self, places: Iterable[str] = (), needed: bool = True) -> None:
        """Import them, and those of runs at these places; a stranger's are refused, or left out where not needed."""
        runs = [place for place in places if os.path.isdir(place)]  # noqa: PTH112  (no error for a name too long)
        if not self.imports and not runs:
            return  # and do not wait for torch
        from stepnet.training import import_modules, import_modules_of

        import_modules(self.imports)
        for run in runs:
            with nullcontext() if needed else suppress(UserError):
                import_modules_of(run, self.imports)
