"""The public names: seen by `dir`, by tab completion and by type checkers, and imported when first asked for."""

import importlib
import pkgutil
import rlcompleter
import subprocess
import sys
from types import ModuleType

import pytest

import stepnet
import stepnet.training

LAZY = [stepnet, stepnet.training]


@pytest.mark.parametrize("package", LAZY)
def test_dir_lists_the_names_and_each_is_there(package: ModuleType) -> None:
    assert set(dir(package)) == set(package.__all__) and package.__all__
    for name in package.__all__:
        value = getattr(package, name)
        home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "stepnet")
        assert home.startswith(("stepnet", "typing", "collections", "builtins"))  # a constant has that of its type


def test_tab_completes() -> None:
    completer = rlcompleter.Completer({"stepnet": stepnet})
    assert completer.complete("stepnet.create_m", 0).startswith("stepnet.create_model")


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="creat_model"):
        stepnet.creat_model  # noqa: B018
    with pytest.raises(ImportError, match="no_such"):
        from stepnet import no_such  # noqa: F401


def test_import_costs_no_torch() -> None:
    """Nor pydantic, which waits for the first call of a function that checks its arguments."""
    heavy = {"torch", "sympy", "matplotlib", "pydantic"}
    code = f"import stepnet, stepnet.registry, sys; dir(stepnet); stepnet.UserError; print({heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "set()\n", done


def test_networks_cost_neither_sympy_nor_the_compiler() -> None:
    """`torch.compiler.disable` would import torch's compiler with the file that asks for it, and triple the wait."""
    code = (
        "import sys, stepnet.nets; assert 'sympy' not in sys.modules\n"
        "import stepnet.conversion; assert 'torch._dynamo' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_public_name_is_that_of_a_submodule() -> None:
    """A name that is also a file means two things, depending on what was imported before."""
    rooms = ("analysis", "conversion", "data", "nets", "schemes", "training")
    for package in ("stepnet", *(f"stepnet.{room}" for room in rooms)):
        module = importlib.import_module(package)
        files = {found.name for found in pkgutil.iter_modules(module.__path__)}
        same = {name for name in dir(module) if name in files and not isinstance(getattr(module, name), ModuleType)}
        assert not same
