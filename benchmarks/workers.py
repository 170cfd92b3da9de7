"""Processes that take turns, for variants that differ in threads, environment or revision.

The code of a worker prints a line when it is ready, and then answers each line of its input by the seconds that it took
to do what is timed. As variants of `harness.interleave` they alternate, and wait while another one works.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, cast


class Worker:
    """A Python process running `code`; each call makes it work once and returns its seconds."""

    def __init__(
        self,
        code: str,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=cwd,
        )

    def wait_until_ready(self) -> None:
        """Wait until it has imported and built what it needs."""
        self._read()

    def begin(self) -> None:
        """Start its work; `end` returns its seconds."""
        sent = cast(IO[str], self.process.stdin)
        sent.write("step\n")
        sent.flush()

    def end(self) -> float:
        """Wait for its work; return the seconds."""
        return float(self._read())

    def __call__(self) -> float:
        self.begin()
        return self.end()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close its input, which ends it."""
        cast(IO[str], self.process.stdin).close()
        self.process.wait()
        cast(IO[str], self.process.stdout).close()

    def _read(self) -> str:
        line = cast(IO[str], self.process.stdout).readline()
        if not line:
            raise RuntimeError(f"a worker ended with code {self.process.wait()}")
        return line
