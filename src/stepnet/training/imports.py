"""Modules of one's own: imported for a run that names them (`--import`), and again for a run that was trained here.

The config of a run names its modules, and anybody may have written it: opening a stranger's run must not run code. What
was trained on this machine is therefore remembered outside of the run, in the data folder; elsewhere --import says so.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from stepnet.data import data_root
from stepnet.errors import UserError, first_line
from stepnet.files import atomic_file
from stepnet.training.run import Run


def import_modules(names: Sequence[str]) -> None:
    """Import modules that register models, schemes or data of one's own; those of the working directory too."""
    if names and "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever the module does when it is run
            raise UserError(f"cannot import {name!r}: {type(error).__name__}: {first_line(error)}") from error


def remember_imports(run: Run, names: Sequence[str]) -> None:
    """Note that this machine trains the run with these modules."""
    if names:
        with atomic_file(_note(run)) as partial:
            partial.write_text("\n".join(names))


def import_modules_of(path: str, named: Sequence[str] = ()) -> None:
    """Import what a run was trained with, if that was here; and the modules that the user names now."""
    import_modules(named)
    run = Run(Path(path))
    names = run.config.imports if run.config_file.is_file() else ()
    if not names or set(names) <= set(named):
        return
    note = _note(run)
    if not note.is_file() or note.read_text().split("\n") != list(names):
        raise UserError(
            f"{path} was trained elsewhere with modules of its own: if you trust them, say --import {' '.join(names)}"
        )
    import_modules(names)


def _note(run: Run) -> Path:
    name = hashlib.sha256(os.fsencode(run.folder.resolve())).hexdigest()[:32]
    return data_root() / "imports" / name
