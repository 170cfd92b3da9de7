"""A converted network keeps its trained k through `save_pretrained`, and through timm's and torch's own loaders."""

import json

import pytest
import torch

import stepnet
from stepnet import UserError
from stepnet.extras import import_extra

pytest.importorskip("transformers")
hf = import_extra("transformers")


def resnet():
    torch.manual_seed(0)
    config = hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[2, 3], layer_type="basic")
    return hf.ResNetForImageClassification(config)


def gpt2():
    torch.manual_seed(0)
    return hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=16, n_layer=3, n_head=2, n_positions=32, vocab_size=50))


IMAGES = {"pixel_values": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))}
TOKENS = {"input_ids": torch.arange(7)[None]}


def trained(model, example, **options):
    converted = stepnet.convert(model, "lm", example, init=-0.5, **options).eval()
    with torch.no_grad():
        for name, parameter in converted.named_parameters():
            if "step_k" in name:
                parameter += torch.rand(1) / 4
    return converted


def test_weights_that_are_not_finite_are_refused(tmp_path):
    converted = trained(resnet(), IMAGES)
    with torch.no_grad():
        converted.classifier[1].bias[0] = float("nan")
    converted.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"'classifier\.1\.bias' holds values that are not finite"):
        stepnet.load(tmp_path)


@pytest.mark.parametrize("k_bound", [None, "stable"])
@pytest.mark.parametrize(("build", "example"), [(resnet, IMAGES), (gpt2, TOKENS)], ids=["resnet", "gpt2, tied weights"])
def test_k_comes_back(tmp_path, build, example, k_bound):
    converted = trained(build(), example, k_bound=k_bound)
    converted.save_pretrained(tmp_path)
    loaded = stepnet.load(tmp_path)
    assert stepnet.coefficients(loaded) == stepnet.coefficients(converted) and stepnet.coefficients(loaded)
    with torch.no_grad():
        assert torch.equal(loaded(**example).logits, converted(**example).logits)
        assert not torch.equal(
            type(converted).from_pretrained(tmp_path).eval()(**example).logits, loaded(**example).logits
        )


def test_a_network_that_transformers_gave_is_filled(tmp_path):
    converted = trained(resnet(), IMAGES)
    converted.save_pretrained(tmp_path)
    given = hf.ResNetForImageClassification.from_pretrained(tmp_path)
    assert stepnet.load(tmp_path, model=given, example=IMAGES) is given
    assert torch.equal(given(**IMAGES).logits, converted(**IMAGES).logits)


def test_statistics_of_several_evaluations_come_back(tmp_path):
    converted = stepnet.convert(resnet(), "heun", IMAGES).train()
    converted(**IMAGES)
    converted.eval().save_pretrained(tmp_path)
    assert torch.equal(stepnet.load(tmp_path)(**IMAGES).logits, converted(**IMAGES).logits)


def test_a_reverted_network_is_saved_plain(tmp_path):
    stepnet.revert(trained(resnet(), IMAGES)).save_pretrained(tmp_path)
    assert "stepnet" not in (tmp_path / "config.json").read_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stepnet_conversion": {"scheme": 3}}, "does not say how the network was converted"),
        ({"stepnet_conversion": {"scheme": "lm", "stages": [["a"]]}}, "its blocks became other steps"),
        ({"architectures": ["os"]}, "'os' is not a network of transformers"),
        ({"architectures": ["GPT2Config"]}, "is not a network of transformers"),
    ],
)
def test_a_config_that_anyone_may_have_written(tmp_path, change, said):
    trained(resnet(), IMAGES).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=said) as refused:
        stepnet.load(tmp_path)
    assert "\n" not in str(refused.value)


def test_timms_own_loader_takes_k(tmp_path):
    pytest.importorskip("timm")
    timm = import_extra("timm")
    from safetensors.torch import save_file

    torch.manual_seed(0)
    converted = trained(timm.create_model("resnet18", num_classes=3), torch.zeros(1, 3, 32, 32))
    save_file(converted.state_dict(), tmp_path / "weights.safetensors")
    again = stepnet.convert(timm.create_model("resnet18", num_classes=3), "lm", torch.zeros(1, 3, 32, 32)).eval()
    timm.models.load_checkpoint(again, str(tmp_path / "weights.safetensors"))
    x = torch.randn(1, 3, 32, 32)
    assert torch.equal(again(x), converted(x))


def test_torchs_own_loader_takes_k(tmp_path):
    pytest.importorskip("torchvision")
    models = import_extra("torchvision.models")
    torch.manual_seed(0)
    converted = trained(models.resnet18(num_classes=3), torch.zeros(1, 3, 32, 32))
    torch.save(converted.state_dict(), tmp_path / "weights.pt")
    again = stepnet.convert(models.resnet18(num_classes=3), "lm", torch.zeros(1, 3, 32, 32)).eval()
    again.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    x = torch.randn(1, 3, 32, 32)
    assert torch.equal(again(x), converted(x))
