"""Parse the words of a command line by tyro, with every mistake reported in one line; the flag `--import`."""

from __future__ import annotations

import argparse
import inspect
import io
import os
import re
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, redirect_stderr, suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Union, cast, get_args, get_origin

import tyro
from tyro.conf import arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from stepnet.errors import UserError, nearest

Parsed = Callable[[], object]  # a command with its fields, ready to be called
REGISTRY = ConstructorRegistry()
# Messages of tyro and Python, and the form in which they are printed: the value, then what was expected.
PLAINLY = (
    (r"(?i)^invalid choice ('.*?') for argument '(-.*?)'\. Expected one of \((.*?),?\)$", r"\2 \1: expected one of \3"),
    (r"(?i)^invalid choice ('.*?') for argument '.*?'\. Expected one of \((.*?),?\)$", r"\1: expected one of \2"),
    (r"(?i)^missing value for argument '(-.*?)'.*$", r"\1 needs a value"),
    (r"^Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)$", r"\1 \2: expected a whole number"),
    (r"^Error parsing (\S+): could not convert string to float: (.*)$", r"\1 \2: expected a number"),
    (r"^Missing from stepnet (.*?): (\{.*?\}|\S+) (.*)$", r"\1 needs \2: \3"),
)


def parse(kind: Callable[..., Parsed], name: str, words: Sequence[str], examples: Sequence[str] = ()) -> Parsed:
    """Return the command with its fields set by the words; print the help and exit if they ask for it."""
    prog = f"stepnet {name}"
    shown = [f"  stepnet {example}" for example in examples]
    description = "\n".join([inspect.getdoc(kind) or "", *(["", "examples:", *shown] if shown else [])])
    complaint = io.StringIO()
    defaults = getattr(kind, "defaults", None)  # of a command that can start from a config file
    default = None if defaults is None else defaults(words)
    try:
        with redirect_stderr(complaint):  # tyro draws a box of many lines
            command, unknown = tyro.cli(
                kind,
                prog=prog,
                description=description,
                args=list(_split(words, kind)),
                registry=REGISTRY,
                return_unknown_args=True,
                **({} if default is None else {"default": default}),
            )
    except SystemExit as stop:
        if stop.code != 2:  # the help was printed, or SIGTERM arrived meanwhile
            raise
        raise UserError(f"{_sentence(complaint.getvalue())}; see {prog} --help") from None
    if unknown:
        word = next((word for word in unknown if word.startswith("-")), unknown[0])
        hint = nearest(word, sorted(_flags(kind)), cutoff=0.75) if word.startswith("-") else ""
        raise UserError(f"{name} takes no {word!r}: {hint or f'see {prog} --help'}")
    return command


def _split(words: Sequence[str], kind: Callable[..., Parsed]) -> Iterator[str]:
    """Split `--levels=20,38,56` and `--levels 20,38,56` into words of one number each; a prompt stays as it is."""
    flag = ""
    for word in words:
        flag = word.partition("=")[0] if word.startswith("--") else flag
        numbers = word.removeprefix(f"{flag}=")
        if re.fullmatch(r"[\d.e-]+(,[\d.e-]+)+", numbers) and flag in _flags(kind, of_numbers=True):
            yield from (*([] if numbers == word else [flag]), *numbers.split(","))
        else:
            yield word


def print_completion(commands: dict[str, Callable[..., Parsed]], shell: str) -> None:
    """Print the script that completes commands and flags in bash, zsh, fish or tcsh."""
    tyro.extras.subcommand_cli_from_dict(commands, prog="stepnet", args=["--tyro-print-completion", shell])


@REGISTRY.primitive_rule
def _optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Parse `X | None` like `X`: None is the value of a flag that is left out, and no word stands for it."""
    kinds = [kind for kind in get_args(info.type) if kind is not type(None)]
    if get_origin(info.type) not in (Union, types.UnionType) or len(kinds) != 1 or kinds == list(get_args(info.type)):
        return None
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(kinds[0], info.markers))
    if not isinstance(spec, PrimitiveConstructorSpec):
        return None
    return replace(
        spec,
        is_instance=lambda value: value is None or spec.is_instance(value),
        str_from_instance=lambda value: ["unset"] if value is None else spec.str_from_instance(value),
    )


def _sentence(box: str) -> str:
    """Return the text of the first part of tyro's box in one line; without UTF-8 its rules are hyphens."""
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in box.splitlines()]
    rows = [line.strip("│ ") for line in lines[1:]]  # below the title
    rules = [i for i, row in enumerate(rows) if re.fullmatch("[─-]+", row)]
    first = 1 if rules[:1] == [0] else 0
    last = next((i for i in rules if i > first), len(rows))
    text = re.sub(r"\s+", " ", " ".join(rows[first:last])).partition(" (required)")[0].rstrip(" .")
    for pattern, words in PLAINLY:
        text = re.sub(pattern, words, text)
    return text[:1].lower() + text[1:]


def _flags(kind: Callable[..., Parsed], of_numbers: bool = False) -> set[str]:
    """Return the flags of a command, or those that take several numbers."""

    def of(parser: argparse.ArgumentParser) -> Iterator[str]:
        for action in parser._actions:
            if not of_numbers or re.search(r"(INT|FLOAT)\W+(INT|FLOAT)", str(action.metavar)):
                yield from action.option_strings
            if isinstance(action.choices, dict):  # subcommands
                for inner in action.choices.values():
                    yield from of(inner)

    return set(of(cast(argparse.ArgumentParser, tyro.extras.get_parser(kind, registry=REGISTRY))))


@dataclass(kw_only=True)
class ImportFlag:
    """A command that imports user modules, which may register models, schemes and data sets."""

    imports: Annotated[list[str], arg(name="import", metavar="MODULE")] = field(default_factory=list)
    """Modules that register your models, schemes or data sets; a run of this machine imports its own by itself."""

    def import_modules(self, places: Iterable[str] = (), needed: bool = True) -> None:
        """Import the named modules, and those of runs among `places`.

        Raise for a run from another machine whose modules are not named; ignore it unless `needed`.
        """
        runs = [place for place in places if os.path.isdir(place)]  # noqa: PTH112  (pathlib raises on long names)
        if not self.imports and not runs:
            return  # without importing torch
        from stepnet.training import import_modules, import_modules_of

        import_modules(self.imports)
        for run in runs:
            with nullcontext() if needed else suppress(UserError):
                import_modules_of(run, self.imports)
