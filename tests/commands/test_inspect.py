"""`stepnet inspect`."""

import pytest

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lm_resnet21"], "unknown model 'lm_resnet21'"),
        (["densenet100_k24"], "densenet100_k24 marches no scheme"),
        (["."], "is not a run: it has no config.yaml"),
    ],
)
def test_a_mistake_is_one_line(capsys, arguments: list[str], message: str) -> None:
    assert main(["inspect", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
