"""`stepnet inspect`."""

import json

import pytest
import torch

from report.conftest import trained_on_digits
from stepnet import create_model, save
from stepnet.cli import main


def test_a_model_in_text_and_as_a_drawing(capsys, tmp_path) -> None:
    out = tmp_path / "net.svg"
    assert main(["inspect", "lm_resnet20", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("lm_resnet20\nstage 1, 3 steps, lm, (1 + k) u' = f, 16 channels\n  k = ")
    assert printed.endswith(f"\nwrote {out}\n")
    assert out.read_text().startswith("<?xml")


def test_another_scheme(capsys) -> None:
    assert main(["inspect", "resnet20", "--scheme", "heun"]) == 0
    assert "stage 3, 3 steps, heun, u' = f, 64 channels, relu after each step" in capsys.readouterr().out


def test_a_scheme_that_rarely_acts(capsys) -> None:
    assert main(["inspect", "preact_resnet20:ab3"]) == 0
    out, error = capsys.readouterr()
    assert "stage 1, 3 steps, ab3, u' = f, 16 channels, ab3 takes 1 of 3 steps, heun 2\n" in out
    assert error.startswith("stepnet: ab3 takes 3 of 9 steps, heun 4 and euler 2; it reads 3 states")
    assert error.count("\n") == 1


def test_a_label_names_scheme_and_options(capsys) -> None:
    assert main(["inspect", "resnet20:lm,k=-1.25,dt=0.5"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("resnet20:lm,k=-1.25,dt=0.5\nstage 1, 3 steps, lm, (1 + k) u' = f, 16 channels, dt = 0.5")
    assert "k = -1.250 of stages.0.blocks.1 is outside the stable interval (-1, 1]" in printed
    assert main(["inspect", "resnet20:lm", "--scheme", "heun"]) == 2
    assert "resnet20:lm names the scheme 'lm', but --scheme is 'heun': give only one" in capsys.readouterr().err


@pytest.mark.usefixtures("registries")
def test_a_name_may_come_from_a_module_of_one_s_own(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    lines = (
        "from functools import partial",
        "from stepnet.nets import register_model",
        "from stepnet.nets.resnet import cifar_resnet",
        "register_model('mine8', family='mine')(partial(cifar_resnet, 8))",
    )
    (tmp_path / "registers_mine8.py").write_text("\n".join(lines))
    assert main(["inspect", "mine8", "--import", "registers_mine8"]) == 0
    assert capsys.readouterr().out.startswith("mine8\nstage 1, 1 step, euler")
    assert main(["inspect", "mine8", "--import", "not_there"]) == 2
    assert "cannot import 'not_there'" in capsys.readouterr().err


def test_a_run_shows_the_coefficients_of_its_last_checkpoint(capsys, tmp_path) -> None:
    network = create_model("lm_resnet20", in_channels=1)
    with torch.no_grad():
        network.stages[0].k.copy_(torch.tensor([-0.75, 0.5]))
    save(network, tmp_path / "model.safetensors")
    assert main(["inspect", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "\n  k = -0.750, 0.500\n" in printed
    assert "no test images" in printed and "does not say on which data it was trained" in printed
    assert main(["inspect", str(tmp_path), "--scheme", "heun"]) == 2
    assert "is trained and has its own scheme" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lm_resnet21"], "unknown model 'lm_resnet21'"),
        (["densenet100_k24"], "densenet100_k24 has no scheme"),
        (["."], "is neither a run nor a model"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, capsys, monkeypatch, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_network_of_another_library_tells_what_becomes_a_step(capsys) -> None:
    assert main(["inspect", "timm/resnet18"]) == 0
    text = capsys.readouterr().out
    assert "steps in" in text and "the scheme acts before the activation" in text and "k = " in text


def test_a_run_is_told_step_by_step_and_drawn(capsys, tmp_path) -> None:
    folder = trained_on_digits(tmp_path / "run", k=-1.5)
    assert main(["inspect", str(folder), "--figures", str(tmp_path / "figures")]) == 0
    printed = capsys.readouterr().out
    assert "each step on 100 test images" in printed
    assert "k = -1.500 of stages.2.blocks.0 is outside the stable interval (-1, 1]" in printed
    assert printed.count("wrote ") == 4
    assert main(["inspect", "lm_resnet20", "--figures", str(tmp_path / "figures")]) == 2


def test_facts_as_numbers(capsys, tmp_path) -> None:
    assert main(["inspect", "lm_resnet20,k=-0.5", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [stage["k"] for stage in facts["stages"]] == [[None, -0.5, -0.5]] * 3
    assert [(stage["scheme"], stage["steps"]) for stage in facts["stages"]] == [("lm", 3)] * 3
    run = trained_on_digits(tmp_path / "run")
    assert main(["inspect", str(run), "--json"]) == 0
    for step in json.loads(capsys.readouterr().out)["steps"]:
        if step["k"] is not None:  # the roots of z^2 = (1 - k) z + k are 1 and -k
            assert sorted(root[0] for root in step["roots"]) == pytest.approx(sorted([1, -step["k"]]), abs=1e-6)
            assert step["zero_stable"] is (-1 < step["k"] <= 1)
        assert step["relative_update"] > 0
    assert main(["inspect", "lm_resnet20", "--json", "--out", "a.svg"]) == 2
