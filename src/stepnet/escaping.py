"""Text of strangers (names in files, folders, paths) for programs that would read more into it than text.

One function for each kind of output. HTML has `html.escape`; the page's own charts and tables escape in `page.js`.
"""

from __future__ import annotations

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
    """Print text that may hold names from files; every command prints by this."""
    print(for_terminal(text), file=sys.stdout if file is None else file, end=end, flush=not end)


def for_csv(value: object) -> object:
    """Keep a spreadsheet from taking text for a formula, by the apostrophe that such programs know; numbers stay."""
    return f"'{value}" if isinstance(value, str) and re.match(r"[=+\-@\t\r]", value) else value


def for_markdown(text: object) -> str:
    """Text on one line in which Markdown and HTML mark nothing."""
    line = for_terminal(" ".join(str(text).split()))
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*\[\]|])", r"\\\1", line)


def markdown_code(text: object) -> str:
    """A code span, fenced by more backticks than stand in the text."""
    line = for_terminal(" ".join(str(text).split()))
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence} {line} {fence}" if len(fence) > 1 else f"`{line}`"


def for_plot(text: object) -> str:
    """Text in which matplotlib finds no formula."""
    return for_terminal(text).replace("$", r"\$")
