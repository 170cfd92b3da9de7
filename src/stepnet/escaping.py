"""Escape untrusted text (names of files, folders, classes) for the terminal, CSV, Markdown and matplotlib.

HTML has `html.escape`; the charts and tables of the report escape in `page.js`.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from typing import TextIO

# Control, format (right-to-left overrides), surrogate (bytes of a path that are not UTF-8), line and paragraph ends.
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def for_terminal(text: object, keep: str = "\n\t") -> str:
    """Escape what moves the cursor, changes colours or titles, or cannot be encoded: `\\x1b`, `\\udcff`."""
    line = str(text)
    if line.isprintable():
        return line
    return "".join(c if c in keep or unicodedata.category(c) not in _UNSEEN else ascii(c)[1:-1] for c in line)


def echo(text: object = "", file: TextIO | None = None, end: str = "\n") -> None:
    """Print escaped text. Every command prints by this function or by `print_json`."""
    print(for_terminal(text), file=sys.stdout if file is None else file, end=end, flush=not end)


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    echo(json.dumps(value, indent=2))


def for_csv(value: object) -> object:
    """Prefix text that a spreadsheet would take for a formula with an apostrophe; return numbers unchanged."""
    return f"'{value}" if isinstance(value, str) and re.match(r"[=+\-@\t\r]", value) else value


def for_markdown(text: object) -> str:
    """Escape the markup of Markdown and HTML, and join lines."""
    line = for_terminal(" ".join(str(text).split()))
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*\[\]|])", r"\\\1", line)


def markdown_code(text: object) -> str:
    """Return a code span, fenced by more backticks than the text has in a row."""
    line = for_terminal(" ".join(str(text).split()))
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence} {line} {fence}" if len(fence) > 1 else f"`{line}`"


def for_plot(text: object) -> str:
    """Escape the dollar signs that matplotlib would take for formulas."""
    return for_terminal(text).replace("$", r"\$")
