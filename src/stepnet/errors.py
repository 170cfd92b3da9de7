"""A mistake that a person can make, told in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in what was asked for: the value, what was expected, what to do.

    The command line prints it without a traceback and exits with code 2.
    """


def unknown(kind: str, name: object, known: Iterable[str]) -> UserError:
    """The error for a name that is not registered, with the nearest ones that are."""
    names = sorted(known)
    lowered = {each.lower(): each for each in names}
    near = [lowered[match] for match in difflib.get_close_matches(str(name).lower(), lowered, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(names[:12])}"
    return UserError(f"unknown {kind} {name!r}: {hint}")
