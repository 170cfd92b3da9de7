"""A user's mistake, described in one line."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from stepnet.escaping import for_terminal

LONGEST = 800  # characters of a message
SHOWN = 12  # names that a message lists


class UserError(ValueError):
    """A mistake of the user: the value, what was expected, what to do.

    The command line prints it without a traceback and exits with code 2. Its message is one line of limited length.
    """

    def __init__(self, message: str) -> None:
        line = message if message.isprintable() else for_terminal(" ".join(message.split()))
        super().__init__(line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}")


def unknown(kind: str, name: object, known: Iterable[str]) -> UserError:
    """Return the error for an unknown name, with the nearest known ones."""
    names = sorted(known)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    hint = nearest(name, names) or f"known: {', '.join(names[:SHOWN])}{more}"
    return UserError(f"unknown {kind} {name!r}: {hint}")


def check_known(kind: str, name: object, known: Collection[str]) -> None:
    """Raise for an unknown name."""
    if name not in known:
        raise unknown(kind, name, known)


def nearest(name: object, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return `did you mean 'lm'?`, or '' if no name is near."""
    lowered = {each.lower(): each for each in known}
    near = [lowered[match] for match in difflib.get_close_matches(str(name).lower(), lowered, n=3, cutoff=cutoff)]
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""


def counted(number: int, what: str, ending: str = "s") -> str:
    """Return `1 epoch`, `2 epochs`."""
    return f"{number:,} {what}{'' if number == 1 else ending}"


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its type if it has none."""
    return next(filter(str.strip, str(error).splitlines()), type(error).__name__)
