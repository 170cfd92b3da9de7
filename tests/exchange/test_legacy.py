"""Runs made before a checkpoint described itself: they load, and become described files."""

import json

import pytest
import torch
from safetensors.torch import save_file

import stepnet
from stepnet import UserError
from stepnet.exchange import legacy
from stepnet.exchange.model_files import RESUME
from stepnet.tensors import checksum

CONFIG = """
model: {model}
data: digits
scheme: {scheme}
recipe: {{epochs: 2, batch_size: 64, lr: 0.1, stochastic_depth: {survival}, stochastic_mode: batch}}
seed: 3
start_like: null
out: old
data_root: null
"""
X = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def old_run(folder, network, model, scheme="null", survival="null"):
    """The files as the code of 0.1.0 wrote them, weights under `model.` and no description."""
    (folder / "config.yaml").write_text(CONFIG.format(model=model, scheme=scheme, survival=survival))
    (folder / "environment.yaml").write_text("command: stepnet train\nrevision: ea64464\n")
    lines = [json.dumps({"epoch": epoch, "test_error": 20.0 - epoch}) + "\n" for epoch in range(2)]
    (folder / "metrics.jsonl").write_text("".join(lines))
    tensors = {f"model.{name}": tensor for name, tensor in network.state_dict().items()}
    momentum = {f"optimizer.{name}.momentum_buffer": p.detach().clone() for name, p in network.named_parameters()}
    for name, held, epoch in (("last", tensors | momentum, 2), ("best", tensors, 1)):
        header = {"format": RESUME, "what": model, "progress": json.dumps({"epoch": epoch})}
        save_file(held, folder / f"{name}.safetensors", metadata=header | {"checksum": str(checksum(held))})


@pytest.mark.parametrize("survival", ["null", "0.8"])
@pytest.mark.parametrize("scheme", ["null", "heun"])
def test_an_old_run_is_loaded_and_becomes_a_described_file(tmp_path, scheme, survival):
    options = {} if scheme == "null" else {"scheme": scheme}
    options |= {} if survival == "null" else {"stochastic_depth": 0.8}
    network = stepnet.create_model("preact_resnet20", in_channels=1, **options).eval()
    old_run(tmp_path, network, "preact_resnet20", scheme, survival)
    loaded = stepnet.load(tmp_path)
    assert torch.equal(loaded(X), network(X))
    training = loaded.description.training
    assert (training.epochs, training.test_error, training.seed, training.revision) == (2, 19.0, 3, "ea64464")
    assert stepnet.load(tmp_path / "best.safetensors").description.training.epochs == 2
    stepnet.save(loaded, tmp_path / "new.safetensors")
    again = stepnet.load(tmp_path / "new.safetensors")
    assert torch.equal(again(X), network(X)) and again.description.training == training
    assert again.description.preprocessing.image_size == 8


def test_without_its_data_it_opens_all_the_same(tmp_path, monkeypatch):
    network = stepnet.create_model("lm_resnet20", in_channels=1, num_classes=7).eval()
    old_run(tmp_path, network, "lm_resnet20")

    def gone(name, root):
        raise UserError("cannot read it")

    monkeypatch.setattr(legacy, "get_data", gone)
    loaded = stepnet.load(tmp_path)
    assert torch.equal(loaded(X), network(X))
    assert loaded.description.preprocessing is None and loaded.description.classes == ()


def test_a_converted_network_is_converted_again(tmp_path):
    pytest.importorskip("timm")
    from stepnet.conversion import load_foreign

    network = load_foreign("timm/resnet18", num_classes=10, in_channels=1)
    stepnet.convert(network, "lm", torch.zeros(2, 1, 8, 8), inplace=True, init=-0.3).eval()
    old_run(tmp_path, network, "timm/resnet18", "lm")
    loaded = stepnet.load(tmp_path)
    assert torch.equal(loaded(X), network(X))
    assert list(stepnet.coefficients(loaded).values()) == pytest.approx([-0.3] * len(stepnet.coefficients(loaded)))


@pytest.mark.parametrize("config", ["", "[]", "model: 3", "{", "model: lm_resnet20\ndata: digits\nrecipe: 3"])
def test_a_config_that_is_none(tmp_path, config):
    old_run(tmp_path, stepnet.create_model("lm_resnet20", in_channels=1), "lm_resnet20")
    (tmp_path / "config.yaml").write_text(config)
    with pytest.raises(UserError, match=r"config\.yaml: not the (config|file) of a stepnet run") as refused:
        stepnet.load(tmp_path)
    assert "\n" not in str(refused.value)
