"""Tables for a terminal, a pipe, LaTeX and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepnet.escaping import echo, for_terminal

RIGHT = ">"  # prefix of the heading of a column of numbers, which is aligned on the right
GAP = 2  # spaces between columns
NAMED = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater"}
LATEX = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"} | {c: rf"\text{name}{{}}" for c, name in NAMED.items()})


def latex_table(headings: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> str:
    """Format a table for LaTeX, with the rules of the package booktabs."""
    columns = "".join("r" if heading.startswith(RIGHT) else "l" for heading in headings)

    def line(cells: Iterable[str]) -> str:
        escaped = (cell.strip().translate(LATEX).replace("±", r"$\pm$") for cell in cells)
        return "  " + " & ".join(escaped) + r" \\"

    body = [line(row) for row in rows]
    head = [rf"\begin{{tabular}}{{{columns}}}", r"  \toprule", line(h.removeprefix(RIGHT) for h in headings)]
    caption = [f"% {title}"] if title else []
    return "\n".join([*caption, *head, r"  \midrule", *body, r"  \bottomrule", r"\end{tabular}"])


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *rows)]


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", spare: Sequence[str] = ()
) -> None:
    """Print the rows in aligned columns. In a pipe, every row is one line, with at least two spaces between columns.

    If the terminal is too narrow, the columns named in `spare` are left out, in that order, until the others fit.
    """
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    names, numeric = [h.removeprefix(RIGHT) for h in headings], [h.startswith(RIGHT) for h in headings]
    rows = [[for_terminal(cell, keep="") for cell in row] for row in rows]
    console = Console()
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    if console.is_terminal:
        left_out = _left_out(dict(zip(names, widths, strict=True)), spare, console.width)
        shown = [j for j, name in enumerate(names) if name not in left_out]
        table = Table(
            title=title or None, title_justify="left", box=SIMPLE, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0)
        )
        for j in shown:
            table.add_column(names[j], justify="right" if numeric[j] else "left", no_wrap=numeric[j], overflow="fold")
        for row in rows:
            table.add_row(*(row[j] for j in shown))
        console.print(table, markup=False, highlight=False)
        if left_out:
            console.print(f"left out on this narrow terminal: {', '.join(left_out)}", highlight=False)
        return
    if title:
        echo(title)
    for row in (names, *rows):
        cells = zip(row, widths, numeric, strict=True)
        echo("  ".join(t.rjust(w) if number else t.ljust(w) for t, w, number in cells).rstrip())


def _left_out(widths: dict[str, int], spare: Sequence[str], room: int) -> list[str]:
    left_out: list[str] = []
    for name in spare:
        if sum(widths.values()) + GAP * (len(widths) - 1) <= room:
            break
        left_out += [name] if widths.pop(name, None) is not None else []
    return left_out
