"""What is written was compared with torch; what differs is not written."""

import numpy as np
import pytest
import torch

import stepnet
from exchange.greys import GREY
from stepnet import UserError
from stepnet.cli import main
from stepnet.exchange import exporting
from stepnet.exchange.exporting import export_pt2
from stepnet.exchange.model_description import decode, describe_network
from stepnet.exchange.model_files import DESCRIPTION, attach


@pytest.fixture
def network():
    torch.manual_seed(0)
    network = stepnet.create_model("lm_resnet20", in_channels=1, num_classes=3, k=-0.5).eval()
    return attach(network, describe_network(network, ["ant", "bee", "cat"], GREY))


def test_onnx_gives_the_same_outputs_and_says_what_it_is(tmp_path, network):
    runtime = pytest.importorskip("onnxruntime")
    path = tmp_path / "m.onnx"
    stepnet.save(network, tmp_path / "m.safetensors")
    assert main(["export", str(tmp_path / "m.safetensors"), "--onnx", str(path)]) == 0
    session = runtime.InferenceSession(path)
    x = torch.randn(5, 1, 8, 8)  # any number of images
    (found,) = session.run(["logits"], {"images": x.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(found, network(x).numpy(), rtol=1e-4, atol=1e-5)
    written = session.get_modelmeta().custom_metadata_map[DESCRIPTION]
    assert decode(written, path) == network.description
    assert {each.name for each in tmp_path.iterdir()} == {"m.onnx", "m.safetensors"}


def test_a_language_model_takes_tokens_of_any_length(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    network = stepnet.create_model("gpt1x8", scheme="lm", num_classes=11, context=9).eval()
    stepnet.save(network, tmp_path / "m.safetensors")
    assert main(["export", str(tmp_path / "m.safetensors"), "--onnx", str(tmp_path / "m.onnx")]) == 0
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    (given,) = session.get_inputs()
    assert (given.name, given.type) == ("tokens", "tensor(int64)")
    for shape in ((1, 9), (4, 2)):
        tokens = torch.randint(11, shape)
        (found,) = session.run(["logits"], {"tokens": tokens.numpy()})
        with torch.no_grad():
            np.testing.assert_allclose(found, network(tokens).numpy(), rtol=1e-4, atol=1e-5)


def test_what_differs_is_not_written(tmp_path, network, monkeypatch):
    monkeypatch.setattr(exporting, "TOLERANCE", -1.0)
    with pytest.raises(UserError, match="is not written: outputs of the exported network differ"):
        export_pt2(network, tmp_path / "m.pt2")
    assert not list(tmp_path.iterdir())


def test_a_network_that_does_not_say_its_size(tmp_path):
    with pytest.raises(UserError, match="does not say how large its images are"):
        export_pt2(stepnet.create_model("lm_resnet20"), tmp_path / "m.pt2")
