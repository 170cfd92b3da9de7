"""User modules: imported for a run that names them (`--import`), and again when a run of this machine is opened.

The config of a run names its modules, and anybody may have written it: opening an untrusted run must not execute code.
The modules of runs trained on this machine are therefore recorded in the data folder, outside of the run; those of
other runs must be named by --import.
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
    """Import modules by name, also from the working directory."""
    if names and "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # a module may raise anything
            raise UserError(f"cannot import {name!r}: {type(error).__name__}: {first_line(error)}") from error


def remember_imports(run: Run, names: Sequence[str]) -> None:
    """Record that this machine trained the run with these modules."""
    if names:
        with atomic_file(_record(run)) as partial:
            partial.write_text("\n".join(names))


def import_modules_of(path: str, named: Sequence[str] = ()) -> None:
    """Import the named modules, and those that a run was trained with if that was on this machine."""
    import_modules(named)
    run = Run(Path(path))
    names = run.config.imports if run.config_file.is_file() else ()
    if not names or set(names) <= set(named):
        return
    record = _record(run)
    if not record.is_file() or record.read_text().split("\n") != list(names):
        raise UserError(
            f"{path} was trained elsewhere with user modules: if you trust them, add --import {' '.join(names)}"
        )
    import_modules(names)


def _record(run: Run) -> Path:
    name = hashlib.sha256(os.fsencode(run.folder.resolve())).hexdigest()[:32]
    return data_root() / "imports" / name
