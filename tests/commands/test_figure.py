"""`stepnet figure` from the command line."""

import pytest

from report.conftest import trained_on_digits
from stepnet.cli import main
from stepnet.report.gallery import FIGURES
from training.made_runs import run_with_errors


@pytest.mark.parametrize(("suffix", "head"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_figure_in_every_format(suffix, head, tmp_path, capsys) -> None:
    out = tmp_path / f"c.{suffix}"
    assert main(["figure", "compression", "-o", str(out), "--columns", "2"]) == 0
    assert capsys.readouterr().out == f"wrote {out}\n"
    assert out.read_bytes().startswith(head)


@pytest.mark.parametrize("name", [*FIGURES, "lesion"])
def test_every_figure_is_drawn(name, tmp_path, capsys) -> None:
    if name in ("k", "curves", "compression"):
        subject = run_with_errors(tmp_path)
    elif name in ("lesion", "trajectory", "spectrum"):
        subject = trained_on_digits(tmp_path / "run")
    else:
        subject = {"networks": "lm_resnet20", "stability": "heun", "modified": "transport"}[name]
    out = tmp_path / "f.svg"
    assert main(["figure", name, str(subject), "-o", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith(f"wrote {out}\n") and out.read_bytes().startswith(b"<?xml")
    assert ("test error in %" in printed and "dropped" in printed) == (name == "lesion")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["k", "nowhere"], "nowhere is not a run"),
        (["curves"], "no runs"),
        (["compression", "-o", "c.docx"], "the suffix must be one of"),
        (["trajectory"], "figure trajectory of 0 networks"),
        (["networks", "lm_resnet21"], "unknown model 'lm_resnet21'"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(words, message, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["figure", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
