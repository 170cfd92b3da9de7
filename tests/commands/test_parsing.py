"""From words to a command, and one line for what cannot be read."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro
from tyro.conf import Positional, arg

from stepnet import UserError
from stepnet.commands.parsing import parse


@dataclass
class Bake:
    """Bake something."""

    what: Annotated[Positional[str], arg(metavar="WHAT")]
    """What to bake."""
    minutes: int | None = None
    """How long."""
    sizes: tuple[int, ...] | None = None
    """Which sizes."""
    heat: Literal["low", "high"] | None = None
    """How hot."""
    out: Path | None = None
    """Where to."""

    def __call__(self) -> None: ...


def test_what_is_optional_is_none_or_its_kind() -> None:
    assert parse(Bake, "bake", ["bread"]) == Bake("bread")
    words = ["bread", "--minutes", "40", "--sizes", "1", "2", "--heat", "high", "--out", "oven"]
    assert parse(Bake, "bake", words) == Bake("bread", 40, (1, 2), "high", Path("oven"))


def test_numbers_with_commas_are_several_where_a_flag_takes_several() -> None:
    for words in (["--sizes", "1,2"], ["--sizes=1,2"], ["--sizes", "1", "2"]):
        assert parse(Bake, "bake", ["1,2", *words, "--out", "1,5"]) == Bake("1,2", sizes=(1, 2), out=Path("1,5"))
    assert parse(Bake, "bake", ["bread", "--out=1,5"]) == Bake("bread", out=Path("1,5"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bread", "--minuts", "40"], "bake takes no '--minuts': did you mean '--minutes'?"),
        (["bread", "cake"], "bake takes no 'cake': see stepnet bake --help"),
        (["bread", "--colour", "red"], "bake takes no '--colour': see stepnet bake --help"),
        (["bread", "--minutes", "long"], "--minutes 'long': expected a whole number; see stepnet bake --help"),
        (["bread", "--minutes"], "--minutes needs a value; see stepnet bake --help"),
        (["bread", "--heat", "none"], "--heat 'none': expected one of 'low', 'high'; see"),
        ([], "bake needs WHAT: What to bake; see stepnet bake --help"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], said: str) -> None:
    with pytest.raises(UserError) as error:
        parse(Bake, "bake", words)
    assert str(error.value).startswith(said) and "\n" not in str(error.value)


def test_of_several_missing_arguments_the_first_is_named() -> None:
    @dataclass
    class Roast:
        """Roast something."""

        what: Annotated[Positional[str], arg(metavar="WHAT")]
        """What to roast."""
        hours: int
        """How long."""

        def __call__(self) -> None: ...

    with pytest.raises(UserError, match=r"^roast needs WHAT: What to roast; see stepnet roast --help$"):
        parse(Roast, "roast", [])


def test_a_mistake_is_told_where_there_is_no_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    for words, said in (
        (["bread", "--minutes", "long"], "--minutes 'long': expected a whole"),
        ([], "bake needs WHAT"),
    ):
        with pytest.raises(UserError) as error:
            parse(Bake, "bake", words)
        assert str(error.value).startswith(said)


def test_help_reads_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(Bake, "bake", ["--help"], examples=("bake bread",))
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "usage: stepnet bake" in shown and "Bake something.\n\nexamples:\n  stepnet bake bread\n" in shown
    assert "--minutes INT " in shown and "--heat {low,high} " in shown and "None" not in shown


def test_sigterm_while_flags_are_parsed_is_no_mistake_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler of the command line leaves by SystemExit(143), as tyro does by SystemExit(2)."""

    def stopped(*_: object, **__: object) -> None:
        raise SystemExit(143)

    monkeypatch.setattr(tyro, "cli", stopped)
    with pytest.raises(SystemExit) as stop:
        parse(Bake, "bake", ["bread"])
    assert stop.value.code == 143
