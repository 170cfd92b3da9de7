"""Ctrl-C and SIGTERM ask a run to stop: the step under way is finished and saved first. Before the first step they stop
it at once: there is nothing to save, and what is being built may take minutes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop and its place is saved; the exit code is 128 + the signal's number."""

    def __init__(self, number: int, where: str) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}; {where}")
        self.exit_code = 128 + number


# Ctrl-C under a launcher comes twice, from the terminal and from the launcher: within this time, they are one.
ECHO = 1.0


class StopRequest:
    """The number of the signal that asked the run to stop, 0 while none did; and when it did."""

    number: int = 0
    at: float = 0.0
    answer: Callable[[str], None] | None = (
        None  # says that it was heard; None while there is nothing to finish and save
    )


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Catch SIGINT and SIGTERM for a while. A second one stops at once, as ever."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():  # Python allows handlers in the main thread only
        yield request
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if not request.number:
            request.number, request.at = number, time.monotonic()
            if request.answer is None:
                raise Interrupted(number, "before its first step; the same command starts again")
            again = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
            with suppress(RuntimeError):  # it may have come while a line was being printed
                request.answer(f"stopping after this step; {again} again to quit now")
        elif time.monotonic() - request.at > ECHO:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
