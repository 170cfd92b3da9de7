"""What mkdocs builds besides the files of docs/: a page for each command, tables of parameters, repository links.

The address of the repository is one setting, `Repository` among the URLs of pyproject.toml; without it, no links.
"""

from __future__ import annotations

import argparse
import dataclasses
import html
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tyro
import yaml

from stepnet.cli import COMMANDS
from stepnet.commands.parsing import REGISTRY

ROOT = Path(__file__).parents[1]
CLONE = "<!-- git clone -->"
COMMENT = re.compile(r'<span class="gp"># ?</span>(.*?)(?=\n|</code>)')  # which pygments takes for a prompt of root


def repository() -> str | None:
    """The address that pyproject.toml gives."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    address: str | None = project["urls"].get("Repository")
    return address


def on_config(config: Any) -> Any:
    """Add the pages of commands to the navigation, and the repository to the header."""
    config.nav.insert(-1, {"Commands": [{name: f"commands/{name}.md"} for name in COMMANDS]})
    config.repo_url = repository() or ""
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of commands."""
    from mkdocs.structure.files import File

    for name in COMMANDS:
        files.append(File.generated(config, f"commands/{name}.md", content=command_page(name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Fill in the address, and a table of parameters below each name of the reference."""
    address = repository()
    markdown = markdown.replace(CLONE, f"```\ngit clone {address} stepnet && cd stepnet\n```" if address else "")
    if page.file.src_uri.startswith("api/"):
        return re.sub(r"^::: (\S+)$", lambda found: f"{found[0]}\n\n{parameter_table(found[1])}", markdown, flags=re.M)
    return markdown


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Mark comments in console blocks; a notebook of a repository on GitHub opens in Colab."""
    content = COMMENT.sub(lambda found: f'<span class="c1"># {re.sub("<[^>]*>", "", found[1])}</span>', content)
    address = repository()
    if page.file.src_uri.endswith(".ipynb") and address and "github.com/" in address:
        place = f"{address.split('github.com/')[1].rstrip('/')}/blob/main/docs/{page.file.src_uri}"
        return f'<p><a href="https://colab.research.google.com/github/{place}">Open in Colab</a></p>{content}'
    return content


def command_page(name: str) -> str:
    """The help of a command as a page."""
    command = COMMANDS[name]
    kind = command.load()
    examples = "\n".join(f"$ stepnet {example}" for example in command.examples)
    parts = [f"# stepnet {name}", inspect.getdoc(kind) or "", f"```console\n{examples}\n```"]
    parser: Any = tyro.extras.get_parser(kind, prog=f"stepnet {name}", registry=REGISTRY)
    for title, rows in _groups(parser):
        table = ["| argument | meaning |", "| --- | --- |", *(f"| {flag} | {text} |" for flag, text in rows)]
        parts += [f"## {title.capitalize()}", "\n".join(table)]
    return "\n\n".join(parts) + "\n"


def _groups(parser: argparse.ArgumentParser, prefix: str = "") -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The arguments, under the headings of the help; those of a subcommand under its name."""
    for group in parser._action_groups:
        rows = [
            (_flag(action), re.sub(r" \(default: (unset)?\)$", "", _cell(str(action.help or ""))))
            for action in group._group_actions
            if "--help" not in action.option_strings and not isinstance(action.choices, dict)
        ]
        if rows:
            yield f"{prefix}{group.title or 'options'}", rows
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for name, inner in action.choices.items():
                yield from _groups(inner, f"{name}: ")


def _flag(action: argparse.Action) -> str:
    metavar = action.metavar.replace(",", ", ") if isinstance(action.metavar, str) else ""  # a phone breaks the line
    names = ", ".join(action.option_strings)
    return _code(" ".join(filter(None, [names, metavar])) or action.dest)


def parameter_table(name: str) -> str:
    """Each parameter of a function or class: its type and default as the signature says, and what it means."""
    found = _object(name)
    try:
        parameters = [p for p in inspect.signature(found).parameters.values() if p.name not in ("self", "cls")]
    except (TypeError, ValueError):
        return ""
    if not parameters:
        return ""
    meanings = descriptions(name)
    rows = ["| parameter | type | default | meaning |", "| --- | --- | --- | --- |"]
    for p in parameters:
        kind = "" if p.annotation is p.empty else _code(str(p.annotation))
        default = "" if p.default is p.empty else _code(_shown(p.default))
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        rows.append(f"| `{star}{p.name}` | {kind} | {default} | {_cell(meanings.get(p.name, ''))} |")
    return "\n".join(rows)


def descriptions(name: str) -> dict[str, str]:
    """What each parameter means: as the fields of a dataclass say, else as docs/api/parameters.yaml does."""
    known = yaml.safe_load((ROOT / "docs" / "api" / "parameters.yaml").read_text())
    found = _object(name)
    fields = dataclasses.fields(found) if dataclasses.is_dataclass(found) else ()
    own = {field.name: field.metadata["help"] for field in fields if "help" in field.metadata}
    return {**known["everywhere"], **known.get(name.rpartition(".")[2], {}), **own}


def _object(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def _code(text: str) -> str:
    """Code in a cell; between backticks a bar would end it."""
    return f"<code>{html.escape(' '.join(text.split())).replace('|', '&#124;').replace('*', '&#42;')}</code>"


def _shown(value: object) -> str:
    return getattr(value, "__name__", None) or re.sub(r" object at 0x\w+", "", repr(value))


def _cell(text: str) -> str:
    """One line of a Markdown table."""
    return re.sub(r"\s+", " ", re.sub(r"\x1b\[[\d;]*m", "", text)).strip().replace("|", "\\|").replace("<", "&lt;")
