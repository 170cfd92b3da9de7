"""The command line: parse, call, print. Each command is a dataclass in `stepnet.commands`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import tyro

from stepnet.commands.bench import Bench
from stepnet.commands.data import Data
from stepnet.commands.inspect import Inspect
from stepnet.commands.models import Models
from stepnet.commands.noise import Noise
from stepnet.commands.report import Report
from stepnet.commands.scheme import Scheme
from stepnet.commands.table import Table
from stepnet.commands.train import Compare, Evaluate, Train
from stepnet.errors import UserError

COMMANDS: dict[str, Callable[..., Any]] = {
    "train": Train,
    "compare": Compare,
    "evaluate": Evaluate,
    "report": Report,
    "scheme": Scheme,
    "noise": Noise,
    "inspect": Inspect,
    "models": Models,
    "table": Table,
    "data": Data,
    "bench": Bench,
}


def main(argv: list[str] | None = None) -> int:
    """Run one command. Exit codes: 0 done, 2 a user's mistake (told in one line), 130 Ctrl-C, 143 SIGTERM."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what is half done is undone
    try:
        command = tyro.extras.subcommand_cli_from_dict(
            COMMANDS, prog="stepnet", description="Deep networks as numerical schemes.", args=argv
        )
        command()
    except UserError as error:
        print(f"stepnet: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `stepnet models | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
