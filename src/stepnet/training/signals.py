"""Ctrl-C and SIGTERM stop a run after the current step, which is saved; before the first step, at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """A signal stopped the run after its checkpoint was saved; the exit code is 128 + the signal's number."""

    def __init__(self, number: int, where: str) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}; {where}")
        self.exit_code = 128 + number


# Under a launcher Ctrl-C arrives twice, from the terminal and from the launcher: within these seconds they count once.
DEBOUNCE = 1.0


class StopRequest:
    """The number of the signal that asks the run to stop, 0 until one arrives, and its time."""

    number: int = 0
    at: float = 0.0
    notify: Callable[[str], None] | None = (
        None  # confirms the signal; None until the first step, when a run stops at once
    )


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Record SIGINT and SIGTERM, so that the run can stop after its step; a second one stops the process at once."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():  # Python allows handlers in the main thread only
        yield request
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if not request.number:
            request.number, request.at = number, time.monotonic()
            if request.notify is None:
                raise Interrupted(number, "before its first step; run the same command to start again")
            again = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
            with suppress(RuntimeError):  # the signal may have arrived while a line was being printed
                request.notify(f"stopping after this step; {again} again to quit now")
        elif time.monotonic() - request.at > DEBOUNCE:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
