"""The documentation holds: Python runs, commands exist and print what is shown of them, links lead somewhere."""

import pkgutil
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepnet.cli import COMMANDS, main
from stepnet.commands.compare import Compare
from stepnet.commands.parsing import parse
from stepnet.commands.train import Train
from stepnet.conversion.foreign import is_foreign
from stepnet.data import datasets
from stepnet.nets import model_entry
from stepnet.training.config import read_label

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")])
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]*)#?([^)]*)\)")


def blocks(page: Path, language: str) -> list[re.Match[str]]:
    return [block for block in FENCED.finditer(page.read_text()) if block[1] == language]


def commands(page: Path) -> Iterator[tuple[list[str], str]]:
    """The arguments of each `$ stepnet …` of a page, and the output that is shown of it, if any."""
    for block in blocks(page, "console"):
        joined = re.sub(r"\\\n +", "", block[2])  # a command that goes on in the next line
        for typed in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
            line, _, shown = typed.partition("\n")
            shown = re.sub(r"^# .*\n", "", shown, flags=re.MULTILINE)  # says what the next command does
            words = shlex.split(line, comments=True)
            program = next(i for i, word in enumerate(words) if "stepnet" in word)  # after torchrun, perhaps
            yield words[program + 1 :], shown


TYPED = [pytest.param(*each, id=f"{page.stem}-{shlex.join(each[0])}") for page in PAGES for each in commands(page)]


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem)
def test_a_page_runs_from_top_to_bottom(page: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # for what an example writes
    names: dict = {"__name__": "__main__"}
    for block in blocks(page, "python"):
        above = "\n" * block.string[: block.start(2)].count("\n")  # so that a failure names the line of the page
        exec(compile(above + block[2], str(page), "exec"), names)
    homes = {str(getattr(value, "__module__", None) or getattr(value, "__name__", "")) for value in names.values()}
    assert any(home.startswith("stepnet") for home in homes)  # what it has run is this library


@pytest.mark.parametrize(("arguments", "shown"), TYPED)
def test_a_command_has_these_flags_and_names(arguments: list[str], shown: str) -> None:
    command = parse(COMMANDS[arguments[0]].load(), arguments[0], arguments[1:])  # refuses what is unknown
    if isinstance(command, Train | Compare):
        for name in command.models if isinstance(command, Compare) else [command.model]:
            assert is_foreign(name) or model_entry(read_label(name)[0])
            command.run_config(name)
            assert command.data in (
                *datasets.list_data(),
                "flowers",
                "photos",
                "novel.txt",
            )  # folders of docs/your_images.md and docs/convert.md, a file of docs/text.md


@pytest.mark.parametrize(("arguments", "shown"), [typed for typed in TYPED if typed.values[1].strip()])
def test_a_command_prints_what_is_shown(arguments: list[str], shown: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 0
    assert capsys.readouterr().out.rstrip() == shown.rstrip()


def test_first_use_runs_the_commands_of_the_pages_on_what_an_empty_folder_can_have() -> None:
    lines = list(runpy.run_path(str(ROOT / "scripts" / "first_use.py"))["page_commands"]())
    assert len(lines) > 50 and {line.split()[0] for line in lines} >= COMMANDS.keys() - {"data", "bench"}
    assert [line for line in lines if re.search(r"RUN|flowers|--data (cifar10|shakespeare|imagenet)", line)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for path, heading in LINK.findall(page.read_text()):
        if heading.startswith("://"):
            continue  # elsewhere
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT) and target.is_file(), path
        if heading:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}, heading


def test_there_are_pages_to_run() -> None:
    assert {"networks.md", "add_a_data_set.md", "README.md"} <= {page.name for page in PAGES}
    assert sum(bool(typed.values[1].strip()) for typed in TYPED) >= 4


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "CHANGELOG"], ids=lambda page: page.stem)
def test_code_is_at_most_80_columns_wide(page: Path) -> None:
    """A phone, and half a screen beside an editor, show it without scrolling."""
    lines = (line for block in FENCED.finditer(page.read_text()) for line in block[2].splitlines())
    assert [line for line in lines if len(line) > 80] == []


def test_names_of_stepnet_train_in_contributing_exist():
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## What `stepnet train` does")[2].partition("\n## ")[0]
    names = re.findall(r"`((?:cli|commands|data|training)\.[\w.]+)`", section)
    assert len(names) > 12
    for name in names:
        pkgutil.resolve_name(f"stepnet.{name}")
