"""`stepnet export`."""

import pytest
import torch
from safetensors.torch import save_file

import stepnet
from exchange.greys import GREY
from stepnet.cli import main


def test_what_is_written_is_told(tmp_path, capsys):
    network = stepnet.create_model("lm_resnet20", in_channels=1, num_classes=3)
    stepnet.save(network, tmp_path / "m.safetensors", preprocessing=GREY)
    out = tmp_path / "m.pt2"
    assert main(["export", str(tmp_path / "m.safetensors"), "--pt2", str(out)]) == 0
    assert capsys.readouterr().out == f"wrote {out}: outputs differ by at most 0.0e+00 of torch's largest\n"
    extra = {"stepnet": ""}
    x = torch.randn(5, 1, 8, 8)
    assert torch.equal(torch.export.load(out, extra_files=extra).module()(x), network.eval()(x))
    assert '"lm_resnet20"' in extra["stepnet"]


def test_weights_that_say_nothing_are_described_by_their_name(tmp_path, capsys):
    network = stepnet.create_model("lm_resnet20", num_classes=3)
    save_file(network.state_dict(), tmp_path / "plain.safetensors")
    described = str(tmp_path / "described.safetensors")
    plain = str(tmp_path / "plain.safetensors")
    assert main(["export", plain, "--safetensors", described]) == 2
    assert "name it" in capsys.readouterr().err
    assert main(["export", plain, "--name", "lm_resnet20", "--safetensors", described]) == 0
    assert stepnet.load(described).num_classes == 3


@pytest.mark.parametrize(("words", "said"), [(["x"], "nothing to write"), (["x", "--pt2", "y"], "x: no such file")])
def test_a_mistake_is_one_line(tmp_path, capsys, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    assert main(["export", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
