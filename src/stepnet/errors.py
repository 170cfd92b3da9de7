"""A user's mistake, described in one line."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from stepnet.escaping import for_terminal

LONGEST = 800  # characters of a message
SHOWN = 12  # names that a message lists


class UserError(ValueError):
    """A mistake in what was asked for: the value, what was expected, what to do.

    The command line prints it without a traceback and exits with code 2. Whatever values it holds, it is one line, and
    not an endless one.
    """

    def __init__(self, message: str) -> None:
        line = message if message.isprintable() else for_terminal(" ".join(message.split()))
        super().__init__(line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}")


def unknown(kind: str, name: object, known: Iterable[str]) -> UserError:
    """The error for a name that is not registered, with the nearest ones that are."""
    names = sorted(known)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    hint = nearest(name, names) or f"known: {', '.join(names[:SHOWN])}{more}"
    return UserError(f"unknown {kind} {name!r}: {hint}")


def check_known(kind: str, name: object, known: Collection[str]) -> None:
    """Refuse a name that is none of those that are known."""
    if name not in known:
        raise unknown(kind, name, known)


def nearest(name: object, known: Iterable[str], cutoff: float = 0.5) -> str:
    """`did you mean 'lm'?`, or nothing where no name is near."""
    lowered = {each.lower(): each for each in known}
    near = [lowered[match] for match in difflib.get_close_matches(str(name).lower(), lowered, n=3, cutoff=cutoff)]
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""


def first_line(error: BaseException) -> str:
    """The first line of what an exception says; its kind where it says nothing."""
    return next(filter(str.strip, str(error).splitlines()), type(error).__name__)
