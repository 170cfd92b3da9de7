"""Modules of one's own are imported again where the run was trained, and nowhere else unless named."""

import dataclasses
import sys

import pytest

from stepnet import UserError
from stepnet.training import Run
from stepnet.training.run import import_modules, import_modules_of, remember_imports
from training.tiny import tiny_config


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that says when it is run."""
    monkeypatch.setenv("STEPNET_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "a_module_of_mine.py").write_text("import pathlib\npathlib.Path('was_run').touch()\n")
    yield "a_module_of_mine"
    sys.modules.pop("a_module_of_mine", None)


def run_with(folder, *imports):
    run = Run(folder)
    folder.mkdir()
    dataclasses.replace(tiny_config(folder), imports=imports).write(run.config_file)
    return run


def test_a_strangers_run_runs_no_code(tmp_path, module):
    run = run_with(tmp_path / "run", module)
    with pytest.raises(UserError, match=f"was trained elsewhere .* add --import {module}"):
        import_modules_of(str(run.folder))
    assert not (tmp_path / "was_run").exists()
    import_modules_of(str(run.folder), [module])
    assert (tmp_path / "was_run").exists()


def test_a_run_that_was_trained_here_finds_its_modules(tmp_path, module):
    run = run_with(tmp_path / "run", module)
    remember_imports(run, [module])
    import_modules_of(str(run.folder))
    assert (tmp_path / "was_run").exists()


def test_a_note_of_other_modules_does_not_count(tmp_path, module):
    run = run_with(tmp_path / "run", module)
    remember_imports(run, ["json"])
    with pytest.raises(UserError, match="was trained elsewhere"):
        import_modules_of(str(run.folder))


def test_what_needs_no_module_is_left_alone(tmp_path, module):
    import_modules_of(str(run_with(tmp_path / "run").folder))
    import_modules_of(str(tmp_path / "no_run"))
    assert not (tmp_path / "was_run").exists() and module not in sys.modules


def test_a_module_that_fails_is_told_in_one_line(tmp_path, module):
    (tmp_path / "a_module_of_mine.py").write_text("1 / 0")
    with pytest.raises(UserError, match="cannot import 'a_module_of_mine': ZeroDivisionError: division by zero"):
        import_modules([module])
