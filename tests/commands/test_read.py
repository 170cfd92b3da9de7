"""`stepnet read`."""

import json
from pathlib import Path

import pytest

from stepnet.cli import main


def test_a_model_of_ours_is_what_it_declares(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "weights.svg"
    assert main(["read", "preact_resnet20:lm", "--plot", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("ResidualNetwork: 9 evaluations of blocks in 3 stages\n\nstages.0.blocks.0 … ")
    assert printed.count("as declared (off by ") == 3
    assert printed.endswith(f"\nwrote {picture}\n")
    assert picture.read_text().startswith("<?xml")


def test_a_configuration_of_transformers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """By its type with an option, and from a folder, which says the same."""
    hf = pytest.importorskip("transformers")
    assert main(["read", "hf:granite,residual_multiplier=0.22", "--json"]) == 0
    (stage,) = json.loads(capsys.readouterr().out)["stages"]
    assert (stage["nearest"]["scheme"], stage["blocks"][0]) == ("euler", "layers.0.self_attn")
    assert stage["nearest"]["dt"] == [pytest.approx(0.22, rel=1e-6)]
    assert stage["matrix"][-1] == [pytest.approx(0.22, rel=1e-6)] * 8
    hf.GraniteConfig(residual_multiplier=0.22, num_hidden_layers=3).save_pretrained(tmp_path)
    assert main(["read", f"hf:{tmp_path}"]) == 0
    assert "layers.0.self_attn … layers.2.mlp: euler, dt = 0.22\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("hf:gpt2,num_hiden_layers=2", "stepnet: unknown option of hf:gpt2 'num_hiden_layers': did you mean "),
        ("hf:gpt22", "stepnet: unknown transformers model type 'gpt22': did you mean "),
        ("torchvision/vgg11", "stepnet: VGG has no blocks to read: looked for residual blocks"),
        ("densenet100_k24", "stepnet: DenseNet has no blocks to read"),
    ],
)
def test_mistakes_are_one_line(word: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers" if word.startswith("hf") else "torchvision")
    assert main(["read", word]) == 2
    out, error = capsys.readouterr()
    assert error.startswith(line)
    assert (out, error.count("\n")) == ("", 1)
