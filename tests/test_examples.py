"""The examples run: other trainers drive our networks and converted ones."""

import importlib

import pytest

TRAINERS = {"huggingface_trainer": "transformers", "lightning_module": "lightning", "timm_training_loop": "timm"}


@pytest.mark.parametrize(("example", "library"), TRAINERS.items())
def test_another_trainer_drives_our_networks_and_converted_ones(example, library, capsys):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    importlib.import_module(f"examples.{example}").main(2)
    lines = [line for line in capsys.readouterr().out.splitlines() if "k moved" in line]
    assert lines[0].startswith("lm_resnet20: loss ") and lines[0].endswith("6 of 6 k moved")
    assert lines[1].startswith("timm/resnet18, converted: loss ") and lines[1].endswith("4 of 4 k moved")
