"""The command line: parse, call, print. Each command is a dataclass in `stepnet.commands`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import tyro
from tyro.conf import subcommand

from stepnet.commands.scheme import Scheme
from stepnet.errors import UserError

Command = Annotated[Scheme, subcommand("scheme", description=Scheme.__doc__)]


def main(argv: list[str] | None = None) -> int:
    """Run one command. Exit codes: 0 done, 2 a user's mistake (told in one line), 130 interrupted."""
    try:
        command = tyro.cli(Command, prog="stepnet", description="Deep networks as numerical schemes.", args=argv)
        command()
    except UserError as error:
        print(f"stepnet: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `stepnet models | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
