"""`stepnet figure` from the command line."""

import pytest

from report.conftest import trained_on_digits
from stepnet.cli import main


@pytest.mark.parametrize(("suffix", "head"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_figure_in_every_format(suffix, head, tmp_path, capsys) -> None:
    out = tmp_path / f"c.{suffix}"
    assert main(["figure", "compression", "-o", str(out), "--columns", "2"]) == 0
    assert capsys.readouterr().out == f"wrote {out}\n"
    assert out.read_bytes().startswith(head)


def test_a_lesion_study_is_a_table_too(tmp_path, capsys) -> None:
    out = tmp_path / "f.svg"
    assert main(["figure", "lesion", str(trained_on_digits(tmp_path / "run")), "--labels", "mine", "-o", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("mine: test error in %") and printed.endswith(f"wrote {out}\n")


def test_early_exits_are_a_table_too(tmp_path, capsys) -> None:
    out = tmp_path / "f.svg"
    assert main(["figure", "exit", str(trained_on_digits(tmp_path / "run")), "--labels", "mine", "-o", str(out)]) == 0
    title, heading, *rows, wrote = capsys.readouterr().out.splitlines()
    assert title == "mine: steps of an image and test error in %" and heading.split()[1:] == ["mean", "steps", "error"]
    steps = [float(row.split()[1]) for row in rows]
    assert steps[0] == int(steps[0]) and steps == sorted(steps, reverse=True)
    assert wrote == f"wrote {out}"
    assert main(["figure", "exit", "vit2x8", "-o", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[:2] == ["0", "4.00"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["exit"], "exit needs one or more runs"),
        (["exit", "revnet38"], "RevNet takes no exit= for images"),
        (["k", "nowhere"], "nowhere is not a run"),
        (["curves"], "no runs"),
        (["compression", "-o", "c.docx"], "the suffix must be one of"),
        (["trajectory"], "figure trajectory of 0 networks"),
        (["networks", "lm_resnet21"], "unknown model 'lm_resnet21'"),
        (["networks", "lm_resnet20", "--labels", "a", "b"], "labels a, b: expected 1"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(words, message, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["figure", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
