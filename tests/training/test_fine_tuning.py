"""Begin with trained weights: a file, a run, a name, or another library's; the head is new, k begins at 0."""

import json
import shutil

import pytest
import torch

import stepnet
from stepnet import UserError
from stepnet.cli import main
from stepnet.data import Data, get_data
from stepnet.exchange.model_files import read_model
from stepnet.training import Recipe, TrainConfig, train
from stepnet.training.build import build_network, build_optimizer
from training.tiny import tiny_config

SMALL = ["--data", "digits", "--epochs", "1", "--batch-size", "500"]


@pytest.fixture
def plain(tmp_path):
    torch.manual_seed(1)
    network = stepnet.create_model("preact_resnet20", in_channels=1, num_classes=3)
    stepnet.save(network, tmp_path / "plain.safetensors")
    return network.eval()


def test_a_plain_network_begins_an_lm_run(tmp_path, plain):
    config = TrainConfig("lm_resnet20", weights=str(tmp_path / "plain.safetensors"))
    network = build_network(config, get_data("digits")).eval()
    assert network.num_classes == 10 and set(stepnet.coefficients(network).values()) == {0.0}
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(network.forward_features(x), plain.forward_features(x))


def test_a_run_begins_where_a_file_ends_and_resumes_without_it(tmp_path, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["train", "tiny", *SMALL, "--out", str(first)]) == 0
    command = ["train", "tiny", *SMALL, "--out", str(second), "--weights", str(first), "--lr", "1e-12"]
    assert main(command) == 0
    weights, begun = read_model(second).weights, read_model(first).weights
    assert torch.allclose(weights["stem.weight"], begun["stem.weight"], atol=1e-6)
    capsys.readouterr()
    for path in first.iterdir():
        path.unlink()
    assert main(command) == 0
    assert "already finished" in capsys.readouterr().out


def test_a_converted_network_begins_with_its_librarys_weights(monkeypatch):
    timm = pytest.importorskip("timm")
    torch.manual_seed(2)
    published = timm.create_model("resnet18", num_classes=1000).eval()
    create = timm.create_model

    def offline(name, pretrained, num_classes, **options):  # what timm does where there is a network
        assert pretrained
        network = create(name, num_classes=num_classes, **options)
        body = {n: t for n, t in published.state_dict().items() if not n.startswith("fc.")}
        network.load_state_dict(body, strict=False)
        return network

    monkeypatch.setattr(timm, "create_model", offline)
    colour = [(torch.zeros(3, 32, 32, dtype=torch.uint8), label) for label in (0, 1, 2, 0)]
    data: Data = get_data((colour, colour))
    network = build_network(TrainConfig("timm/resnet18", scheme="lm", pretrained=True), data).eval()
    assert network.fc.out_features == 3 and set(stepnet.coefficients(network).values()) == {0.0}
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(network.forward_features(x), published.forward_features(x))


def test_the_head_and_k_have_learning_rates_of_their_own():
    network = stepnet.create_model("lm_resnet20")
    recipe = Recipe(head_lr=10.0, k_lr=0.0, decay_vectors=False)
    multiples = {}
    for group in build_optimizer(recipe, network).param_groups:
        for parameter in group["params"]:
            multiples[parameter] = (group["multiple"], group["weight_decay"])
    names = {name: multiples[p] for name, p in network.named_parameters()}
    assert names["head.weight"] == (10.0, 1e-4) and names["head.bias"] == (10.0, 0.0)
    assert names["stages.0.k"] == (0.0, 0.0) and names["stem.weight"] == (1.0, 1e-4)
    assert len(names) == len(multiples)


def test_k_that_is_not_trained_stays(tmp_path):
    run = tmp_path / "run"
    assert main(["train", "tiny", *SMALL, "--k-lr", "0", "--weight-decay", "0", "--out", str(run)]) == 0
    start = build_network(tiny_config(run), get_data("digits"))
    assert json.loads((run / "metrics.jsonl").read_text())["k"] == stepnet.coefficients(start)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pretrained", "--weights", "x"], "pretrained and weights = 'x': give only one"),
        (["--weights", "nowhere.safetensors"], "nowhere.safetensors: no such file"),
        (["--pretrained"], "stepnet has no trained weights of this name"),
        (["--head-lr", "-1"], "head_lr = -1.0: expected 0 or more"),
        (["--weights", "lm_resnet20.digits"], "the weights lm_resnet20.digits are of another network"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "tiny", *SMALL, *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_librarys_weights_that_cannot_be_had_are_one_line(monkeypatch):
    timm = pytest.importorskip("timm")

    def offline(*args, **options):
        raise OSError("no connection\nand more")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(UserError, match=r"timm/resnet18: its pretrained weights cannot be loaded \(no connection\)"):
        stepnet.conversion.load_foreign("timm/resnet18", pretrained=True)


def test_other_weights_in_the_same_file_are_another_run(tmp_path):
    """A run knows the weights that it began with by their content; their path may hold others by now."""
    for seed in (0, 1):
        torch.manual_seed(seed)
        stepnet.save(stepnet.create_model("tiniest", in_channels=1), tmp_path / f"{seed}.safetensors")
    begun = tmp_path / "begun.safetensors"
    config = tiny_config(tmp_path / "a", model="tiniest", weights=str(begun), recipe={"epochs": 1})
    shutil.copy(tmp_path / "0.safetensors", begun)
    train(config)
    train(config)  # the same: nothing is said
    shutil.copy(tmp_path / "1.safetensors", begun)
    with pytest.raises(UserError, match="another run: weights_fingerprint = "):
        train(config)
    begun.unlink()
    train(config)  # a checkpoint does without
