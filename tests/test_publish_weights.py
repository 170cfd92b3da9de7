"""A finished run becomes shipped weights: scripts/publish_weights.py."""

import pytest
import torch
from safetensors.torch import load_file
from scripts import publish_weights

import stepnet
from stepnet.nets import model_registry
from stepnet.training import evaluate, train
from training.tiny import tiny_config


def test_a_finished_run_is_published_with_its_card(tmp_path, monkeypatch):
    run = train(tiny_config(tmp_path / "run", recipe={"epochs": 1, "milestones": ()}))
    weights = tmp_path / "weights"
    path = publish_weights.publish(run, "MIT", "stepnet train tiny", weights)
    assert path.name == "tiny.digits.safetensors" and "MIT" in path.with_suffix(".md").read_text()
    monkeypatch.setattr(model_registry, "WEIGHTS", weights)
    recorded = run.metrics()[-1]["test_error"]
    network = stepnet.create_model("tiny.digits", pretrained=True)
    assert evaluate(network, data="digits").error == recorded == evaluate("tiny.digits").error
    assert f"{recorded:.2f} % on the test set" in path.with_suffix(".md").read_text()
    assert stepnet.load("tiny").description.license == "MIT"
    assert "- command: `stepnet train tiny`" in path.with_suffix(".md").read_text()

    changed = load_file(run.model)
    changed["head.bias"] += torch.linspace(-9, 9, 10)  # not the weights that had the recorded error
    description = stepnet.load(run.model).description
    stepnet.exchange.model_files.write_model(run.model, changed, description)
    with pytest.raises(stepnet.UserError, match="records an error of"):
        publish_weights.publish(run, folder=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_an_unfinished_run_is_not(tmp_path):
    config = tiny_config(tmp_path / "run", recipe={"epochs": 1, "milestones": ()})
    run = train(config)
    text = run.config_file.read_text()
    run.config_file.write_text(text.replace("epochs: 1", "epochs: 2"))
    with pytest.raises(stepnet.UserError, match="has not done its 2 epochs"):
        publish_weights.publish(run, folder=tmp_path)


def test_a_command_is_told_without_the_folders_of_a_machine():
    typed = "stepnet train lm_resnet20 --out /home/me/runs/x --epochs 3 --data-root '/my data'"
    assert publish_weights.portable(typed) == "stepnet train lm_resnet20 --epochs 3"
