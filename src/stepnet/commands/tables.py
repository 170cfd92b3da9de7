"""One way to print a table: ruled on a terminal, plain aligned columns where the output is piped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

RIGHT = ">"  # a heading that begins with this stands over numbers


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print the rows. Piped, every row is one line, however long, with two spaces or more between columns."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    names, numeric = [h.removeprefix(RIGHT) for h in headings], [h.startswith(RIGHT) for h in headings]
    rows = [list(row) for row in rows]
    console = Console()
    if console.is_terminal:
        table = Table(title=title or None, title_justify="left", box=SIMPLE, pad_edge=False)
        for name, number in zip(names, numeric, strict=True):
            table.add_column(name, justify="right" if number else "left", no_wrap=number, overflow="fold")
        for row in rows:
            table.add_row(*row)
        console.print(table, markup=False, highlight=False)
        return
    if title:
        print(title)
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    for row in (names, *rows):
        cells = zip(row, widths, numeric, strict=True)
        print("  ".join(t.rjust(w) if number else t.ljust(w) for t, w, number in cells).rstrip())
