"""Libraries on request: what is missing is told by its extra, and what is installed runs."""

import importlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stepnet import UserError
from stepnet.cli import main
from stepnet.commands.table import Models
from stepnet.extras import EXTRAS, import_extra

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("library", EXTRAS)
def test_every_library_stands_in_its_extra(library: str) -> None:
    listed = PROJECT["optional-dependencies"][EXTRAS[library]]
    assert any(requirement.replace("-", "_").startswith(library) for requirement in listed)


def test_the_page_lists_every_extra_of_a_user() -> None:
    page = (Path(__file__).parents[1] / "docs" / "index.md").read_text()
    extras = PROJECT["optional-dependencies"].keys() - {"bench", "docs", "dev"}
    assert [extra for extra in sorted(extras) if f"`{extra}`" not in page] == []


def test_a_missing_library_is_told_by_its_extra(monkeypatch, capsys) -> None:
    said = "timm is not installed: pip install 'stepnet[timm]'"
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match="timm is not installed") as error:
        import_extra("timm")
    assert str(error.value) == said

    def forgets(self: Models) -> None:
        import timm  # noqa: F401

    monkeypatch.setattr(Models, "__call__", forgets)
    assert main(["models"]) == 2
    assert capsys.readouterr().err == f"stepnet: {said}\n"


def test_a_library_that_does_not_fit_is_one_line(monkeypatch) -> None:
    def fail(name: str) -> None:
        raise RuntimeError("operator torchvision::other does not exist\nand more")

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(UserError, match=r"cannot import timm: operator .* does not exist; install a version") as error:
        import_extra("timm")
    assert "\n" not in str(error.value)


def test_a_missing_module_of_nobodys_is_a_fault_of_the_program(monkeypatch) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError("No module named 'nowhere'", name="nowhere")

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        import_extra("wandb")


THREE_COMMANDS = """
import sys
from stepnet.cli import main
folder, small = sys.argv[1], ["--epochs", "1", "--compile", "False"]
codes = [
    main(["inspect", "timm/resnet18", "--scheme", "lm"]),
    main(["train", "timm/resnet18", "--scheme", "lm", "--batch-size", "500", "--out", f"{folder}/timm", *small]),
    main(["train", "resnet20", "--data", "imagenet", "--data-root", folder, "--out", f"{folder}/run", *small]),
]
sys.exit(any(codes))
"""


def test_commands_run_where_the_libraries_are_installed(tmp_path) -> None:
    """Without any help of the tests: a CPU-only torch may stand beside torchvision's GPU build."""
    pytest.importorskip("timm")
    rng = np.random.default_rng(0)
    for part in ("train/n01", "train/n02", "val/n01", "val/n02"):
        folder = tmp_path / "imagenet" / part
        folder.mkdir(parents=True)
        for i in range(2):
            Image.fromarray(rng.integers(0, 256, (240, 260, 3), dtype=np.uint8)).save(folder / f"{i}.JPEG")
    command = [sys.executable, "-c", THREE_COMMANDS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "lm: 8 steps in 4 stages, 4 k" in done.stdout and "k_n by layer" in done.stdout
    ks = json.loads((tmp_path / "timm" / "metrics.jsonl").read_text())["k"]
    assert ks and all(name.endswith("step_k") for name in ks)
    assert (tmp_path / "run" / "metrics.jsonl").is_file()
