"""Model files and folders from strangers: nothing is fetched, nothing is unbounded, each refusal is one line."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import stepnet
from exchange.greys import GREY
from stepnet import UserError
from stepnet.cli import main
from stepnet.exchange.model_description import ModelDescription, Preprocessing, encode
from stepnet.exchange.model_files import DESCRIPTION
from stepnet.extras import import_extra
from training import tiny  # noqa: F401  (registers the tiny networks)

timm = pytest.importorskip("timm")
pytest.importorskip("transformers")
hf = import_extra("transformers")


@pytest.fixture
def asked():
    """The paths that were asked of a server on this machine, and its address."""
    paths = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield paths, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def write(path, model, options, weights=None, **fields):
    """A model file with a description that anyone may have written."""
    header = encode(ModelDescription(model=model, options=options, **fields))
    save_file(weights or {"a": torch.zeros(2)}, path, {DESCRIPTION: header})
    return path


DOORS = [
    {"pretrained": True, "pretrained_cfg_overlay": {"url": "{url}/w.pth", "hf_hub_id": None}},
    {"pretrained_cfg_overlay": {"url": "{url}/w.pth"}},
    {"pretrained": True, "pretrained_cfg": {"url": "{url}/w.pth", "architecture": "resnet18"}},
    {"checkpoint_path": "{url}/w.pth"},
    {"checkpoint_path": "weights"},  # in the working directory
    {"cache_dir": "here"},
    {"pretrained": True},
    {"global_pool": "{url}"},
]


@pytest.mark.parametrize("options", DOORS)
def test_a_model_file_fetches_nothing_and_writes_nothing(tmp_path, monkeypatch, asked, options):
    paths, url = asked
    for name in ("TORCH_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    options = json.loads(json.dumps(options).replace("{url}", url).replace("here", str(tmp_path / "cache")))
    path = write(tmp_path / "model.safetensors", "timm/resnet18", {"num_classes": 2, **options})
    with pytest.raises(UserError, match="cannot be built from its description: ") as refused:
        stepnet.load(path)
    assert "\n" not in str(refused.value)
    assert not paths and list(tmp_path.iterdir()) == [path]


def test_a_model_file_asks_for_no_pretrained_weights_of_ours(tmp_path):
    path = write(tmp_path / "model.safetensors", "lm_resnet20.digits", {"pretrained": True})
    with pytest.raises(UserError, match="cannot be built from its description: it asks for pretrained weights"):
        stepnet.load(path)


@pytest.mark.parametrize("options", [{"weights": "DEFAULT"}, {"weights_backbone": "DEFAULT"}, {"pretrained": True}])
def test_a_model_file_asks_torchvision_for_no_weights(tmp_path, options):
    path = write(tmp_path / "model.safetensors", "torchvision/resnet18", options)
    with pytest.raises(
        UserError, match=r"cannot be built from its description: (it asks for pretrained|.*which a file may not choose)"
    ):
        stepnet.load(path)


def test_no_command_opens_that_door(tmp_path, asked, capsys):
    paths, url = asked
    options = {"pretrained": True, "pretrained_cfg_overlay": {"url": f"{url}/w.pth", "hf_hub_id": None}}
    path = str(write(tmp_path / "model.safetensors", "timm/resnet18", options, preprocessing=GREY))
    picture = str(tmp_path / "a.png")
    words = (["predict", path, picture], ["evaluate", path], ["inspect", path], ["figure", "k", path])
    for each in (*words, ["export", path, "--pt2", str(tmp_path / "a.pt2")]):
        assert main(each) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not paths


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """A folder of transformers' `save_pretrained`, and its configuration."""
    folder = tmp_path_factory.mktemp("converted")
    config = hf.ResNetConfig(embedding_size=4, hidden_sizes=[4, 4], depths=[2, 2], layer_type="basic")
    torch.manual_seed(0)
    stepnet.convert(hf.ResNetForImageClassification(config), "lm", torch.zeros(1, 3, 32, 32)).save_pretrained(folder)
    return folder, json.loads((folder / "config.json").read_text())


def changed(tmp_path, converted, **changes):
    folder, config = converted
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(config | changes))
    return tmp_path


def test_transformers_wrapper_of_timm_is_no_way_around(tmp_path, asked, converted):
    paths, url = asked
    door = {"pretrained": True, "pretrained_cfg_overlay": {"url": f"{url}/w.pth", "hf_hub_id": None}}
    wrapper = {"architectures": ["TimmWrapperForImageClassification"], "model_type": "timm_wrapper"}
    folder = changed(tmp_path, converted, **wrapper, architecture="resnet18", num_classes=2, model_args=door)
    with pytest.raises(UserError, match="may fetch other files; if you trust it, load it yourself"):
        stepnet.load(folder)
    assert not paths


@pytest.mark.parametrize(
    "changes",
    [
        {"attn_implementation": "someone/kernel"},
        {"_attn_implementation": "someone/kernel"},
        {"auto_map": {"AutoModel": "someone/code--modeling.Model"}},
        {"quantization_config": {"quant_method": "gptq", "bits": 4}},
        {"num_labels": 10**7},
        {"unknown": [1, 2]},
    ],
)
def test_what_a_configuration_may_not_choose_is_left_out(tmp_path, converted, changes):
    images = torch.randn(1, 3, 32, 32)
    wanted = stepnet.load(converted[0])(images).logits
    assert torch.equal(stepnet.load(changed(tmp_path, converted, **changes))(images).logits, wanted)


ODD = [
    {"depths": [2, 10**9]},
    {"depths": [2, 10**5]},
    {"depths": "many"},
    {"depths": []},
    {"hidden_sizes": [4, 10**9]},
    {"hidden_sizes": [4]},
    {"hidden_sizes": {"a": 1}},
    {"embedding_size": -1},
    {"embedding_size": 0},
    {"embedding_size": None},
    {"num_channels": 10**12},
    {"num_channels": "three"},
    {"hidden_act": "none such"},
    {"hidden_act": 3},
    {"layer_type": "none such"},
    {"id2label": [1]},
    {"id2label": {"a": "b"}},
    {"id2label": {str(i): "x" for i in range(5)}},
    {"dtype": "float99"},
    {"architectures": ["ResNetBackbone", 3]},
    {"architectures": ["PreTrainedModel"]},
    {"architectures": [["ResNetForImageClassification"]]},
    {"architectures": ["GPT2LMHeadModel"]},
    {"stepnet_conversion": None},
]


@pytest.mark.parametrize("changes", ODD, ids=str)
def test_an_odd_configuration_is_one_line(tmp_path, converted, changes):
    with pytest.raises(UserError) as refused:
        stepnet.load(changed(tmp_path, converted, **changes))
    assert "\n" not in str(refused.value) and str(tmp_path) in str(refused.value)


def test_weights_that_are_missing_are_not_drawn_anew(tmp_path, converted):
    folder = changed(tmp_path, converted)
    weights = load_file(folder / "model.safetensors")
    del weights["classifier.1.bias"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"its weights lack 'classifier\.1\.bias'"):
        stepnet.load(folder)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("timm/resnet18", {"layers": [2, 2, 2, 10**9]}, r"layers = 1000000000: expected a number of at most"),
        ("timm/resnet18", {"layers": [2, 2, 2, 2**16]}, "far more layers than the 1 tensors"),
        ("timm/vit_tiny_patch16_224", {"depth": 2**16}, "far more layers than the 1 tensors"),
        ("timm/resnet18", {"num_classes": 1e300}, r"num_classes = 1e\+300: expected a number"),
        ("timm/resnet18", {"layers": {"a": 1}}, "layers = {'a': 1}: expected a number"),
        ("timm/resnet18", {"layers": [[2]]}, r"layers = \[2\]: expected a number"),
        ("timm/resnet18", {"layers": "none"}, "cannot be built from its description"),
        ("timm/resnet18", {"img_size": []}, "cannot be built from its description"),
        ("very_deep_polynet", {"a": 10**9}, "a = 1000000000: expected 1000 or less"),
        ("very_deep_polynet", {"a": 1000}, "far more layers than the 1 tensors"),
        ("resnet20", {"num_classes": 10**7}, "holds weights of another network"),
        ("resnet20", {"pretrained": True}, "it asks for pretrained weights"),
    ],
)
def test_a_description_of_any_size_is_refused_at_once(tmp_path, model, options, message):
    with pytest.raises(UserError, match=message):
        stepnet.load(write(tmp_path / "model.safetensors", model, options))


def test_an_image_of_any_size_is_refused(tmp_path):
    how = Preprocessing(channels=1, image_size=4096, resize=4096, mean=(0.5,), std=(0.5,))
    for name in ("image_size", "resize"):
        object.__setattr__(how, name, 65536)
    path = write(tmp_path / "model.safetensors", "resnet20", {}, preprocessing=how)
    with pytest.raises(UserError, match=r"preprocessing\.image_size = 65536: expected 4096 or less"):
        stepnet.load(path)
    with pytest.raises(UserError, match="image_size = 65536: expected 4096 or less"):
        Preprocessing(channels=1, image_size=65536, resize=65536, mean=(0.5,), std=(0.5,))


def test_two_names_for_three_classes(tmp_path, capsys):
    network = stepnet.create_model("tiniest", in_channels=1, num_classes=3)
    weights = network.state_dict()
    options = {"in_channels": 1, "num_classes": 3}
    path = write(tmp_path / "a.safetensors", "tiniest", options, weights, classes=("a", "b"), preprocessing=GREY)
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    assert main(["predict", str(path), str(tmp_path / "a.png")]) == 2
    assert capsys.readouterr().err == "stepnet: tiniest has 3 outputs and 2 names of classes\n"


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn_x2", "complex64", "bool"])
def test_tensors_of_a_strange_type_are_one_line(tmp_path, kind):
    weights = stepnet.create_model("tiniest", in_channels=1).state_dict()
    strange = getattr(torch, kind)
    weights["head.bias"] = (
        torch.zeros(16, dtype=torch.uint8).view(strange) if strange.itemsize == 1 else torch.zeros(10).to(strange)
    )
    path = write(tmp_path / "a.safetensors", "tiniest", {"in_channels": 1}, weights)
    with pytest.raises(UserError, match="weights of another network") as refused:
        stepnet.load(path)
    assert kind in str(refused.value)


ODD_NAME = "b\udcff\x1b[2J"  # bytes that are not UTF-8, and a sequence that clears a terminal


def test_a_path_that_is_not_text_is_a_path(tmp_path, capsys):
    """Pictures are read and results written there like anywhere; safetensors cannot, and says so."""
    folder = tmp_path / ODD_NAME
    folder.mkdir()
    network = stepnet.create_model("tiniest", in_channels=1)
    stepnet.save(network, tmp_path / "m.safetensors", preprocessing=GREY, classes=list("abcdefghij"))
    Image.new("L", (8, 8)).save(folder / "a.png")
    model = str(tmp_path / "m.safetensors")
    for words in (
        ["predict", model, str(folder)],
        ["predict", model, str(folder / "a.png"), "--json"],
        ["inspect", model, "--out", str(folder / "a.svg")],
    ):
        assert main(words) == 0, words
        assert capsys.readouterr().out.replace("\n", "").isprintable()
    assert main(["export", model, "--safetensors", str(folder / "b.safetensors")]) == 2
    assert capsys.readouterr().err.endswith("safetensors needs a path in UTF-8; rename the file\n")
    assert sorted(each.name for each in folder.iterdir()) == ["a.png", "a.svg"]


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "NAME", "NAME"],
        ["evaluate", "NAME"],
        ["inspect", "NAME"],
        ["report", "NAME"],
        ["figure", "k", "NAME"],
        ["train", "NAME"],
        ["train", "tiniest", "--out", "NAME"],
        ["train", "tiniest", "--data", "NAME"],
        ["train", "tiniest", "--weights", "NAME"],
        ["train", "tiniest", "--import", "NAME"],
        ["scheme", "NAME"],
        ["NAME"],
    ],
)
def test_a_path_that_is_not_text_and_not_there_is_one_line(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([word.replace("NAME", ODD_NAME) for word in words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and error[:-1].isprintable() and not list(tmp_path.iterdir())
