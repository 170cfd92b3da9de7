"""`--import` in every command, and a run's own modules where it was trained."""

import dataclasses
import sys

import pytest
import torch

import stepnet
from exchange.greys import GREY
from stepnet.cli import main
from stepnet.schemes.scheme_registry import SCHEMES
from stepnet.training import Run
from stepnet.training.run import import_modules, remember_imports
from training.tiny import tiny_config

MODULE = """
from stepnet.schemes import Euler, register_scheme

@register_scheme("my_euler")
class MyEuler(Euler):
    pass
"""


@pytest.fixture
def mine(tmp_path, monkeypatch, registries):
    """A module with a scheme of one's own, beside which a person works."""
    monkeypatch.setenv("STEPNET_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(MODULE)
    yield "mine"
    sys.modules.pop("mine", None)


@pytest.mark.parametrize(
    "line",
    [
        "scheme my_euler",
        "inspect preact_resnet20:my_euler",
        "figure networks preact_resnet20:my_euler -o n.svg",
        "models resnet20",
        "table schemes",
        "data list",
        "noise",
    ],
)
def test_a_scheme_of_ones_own_is_known_to_each_command(line, mine, capsys) -> None:
    assert main([*line.split(), "--import", mine]) == 0
    assert "my_euler" in SCHEMES


def run_of(folder, mine):
    """A run of a network under the module's scheme, as training leaves it; the module is forgotten again."""
    import_modules([mine])
    torch.manual_seed(0)
    network = stepnet.create_model("preact_resnet20", scheme="my_euler", in_channels=1, num_classes=3)
    folder.mkdir()
    stepnet.save(network, folder / "model.safetensors", classes=["ant", "bee", "cat"], preprocessing=GREY)
    run = Run(folder)
    dataclasses.replace(tiny_config(folder), imports=(mine,)).write(run.config_file)
    sys.modules.pop(mine)
    del SCHEMES.entries["my_euler"]
    return run


def test_a_run_finds_its_modules_where_it_was_trained(tmp_path, mine, capsys) -> None:
    run = run_of(tmp_path / "run", mine)
    words = ["export", str(run.folder), "--safetensors", str(tmp_path / "m.safetensors")]
    assert main(words) == 2  # nothing says that it was trained here
    assert f"if you trust them, add --import {mine}" in capsys.readouterr().err
    remember_imports(run, [mine])
    assert main(words) == 0
    assert stepnet.load(tmp_path / "m.safetensors").scheme.name == "my_euler"
