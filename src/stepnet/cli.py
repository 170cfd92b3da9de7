"""The command line: find the command, call it, print an error in one line.

Only the module of the chosen command is imported; `stepnet --help` needs none.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from stepnet.errors import UserError, unknown
from stepnet.extras import missing_extra
from stepnet.files import printable, reason

SHELLS = ("bash", "zsh", "fish", "tcsh")


class Command(NamedTuple):
    """A dataclass of `stepnet.commands`, called after its fields are parsed."""

    home: str  # MODULE:CLASS below stepnet.commands
    about: str  # the first line of its docstring
    examples: tuple[str, ...]

    def load(self) -> Callable[..., Any]:
        module, _, name = self.home.partition(":")
        kind: Callable[..., Any] = getattr(importlib.import_module(f"stepnet.commands.{module}"), name)
        return kind


COMMANDS = {
    "train": Command(
        "train:Train",
        "Train one network; the same command again resumes it",
        ("train lm_resnet20", "train lm_resnet20 --data cifar10 --epochs 30", "train timm/resnet18 --scheme lm"),
    ),
    "compare": Command(
        "compare:Compare",
        "Train several networks in the same way and compare their test errors",
        (
            "compare preact_resnet20 lm_resnet20 --data digits --seeds 3",
            "compare gpt6x32 --schemes euler,lm,k=0 --data shakespeare --seeds 3",
        ),
    ),
    "evaluate": Command(
        "train:Evaluate",
        "Measure the test error of a run or a model file",
        ("evaluate runs/digits/lm_resnet20-12ep-seed0",),
    ),
    "predict": Command(
        "predict:Predict",
        "Classify pictures with a trained network",
        ("predict runs/digits/lm_resnet20-12ep-seed0 photo.jpg", "predict model.safetensors photos/ --json"),
    ),
    "generate": Command(
        "predict:Generate",
        "Continue a text with a trained language model",
        ("generate runs/shakespeare/gpt12x48-6ep-seed0 --prompt 'ROMEO.'",),
    ),
    "coarsen": Command(
        "coarsen:Coarsen",
        "Drop blocks of a trained network and refit the steps of the others",
        ("coarsen lm_resnet20.digits --keep 0.75 --figure depth.svg",),
    ),
    "transfer": Command(
        "transfer:Transfer",
        "Train a network at several depths and learning rates, with and without a rule for depth",
        ("transfer gpt8x32 --data book.txt --depths 4,8,16 --lrs 0.001,0.004",),
    ),
    "export": Command(
        "predict:Export", "Export a trained network to ONNX or torch.export", ("export runs/mine --onnx model.onnx",)
    ),
    "report": Command("figure:Report", "Write runs as one HTML page", ("report runs/compare/*/* -o report.html",)),
    "figure": Command(
        "figure:DrawFigure",
        "Draw a figure of the paper, optionally from your runs",
        ("figure networks -o networks.svg", "figure k runs/compare/*/* --columns 2"),
    ),
    "scheme": Command(
        "scheme:ShowScheme",
        "Analyse a scheme: order, stability, modified equation",
        ("scheme", "scheme lm --k -0.5", "scheme rk4 --plot rk4.png"),
    ),
    "noise": Command(
        "scheme:ShowNoise", "Analyse a noise of stochastic training", ("noise", "noise stochastic_depth --p 0.5")
    ),
    "inspect": Command(
        "inspect:Inspect",
        "Show a network stage by stage",
        ("inspect lm_resnet20 --out lm_resnet20.svg", "inspect timm/resnet18 --scheme lm"),
    ),
    "read": Command(
        "inspect:Read",
        "Determine the scheme that a network implements",
        ("read lm_resnet20", "read timm/resnet18", "read hf:granite,residual_multiplier=0.22 --plot granite.png"),
    ),
    "models": Command(
        "table:Models", "List the networks with their sizes and costs", ("models", "models 'lm_*' --json")
    ),
    "table": Command(
        "table:Table", "Print a table of the paper next to our figures", ("table schemes", "table cifar --json")
    ),
    "data": Command(
        "data:DataSets", "Fetch a data set, or list those on this machine", ("data list", "data fetch cifar10")
    ),
    "bench": Command("bench:Bench", "Time training steps side by side", ("bench", "bench --profile lm_resnet20")),
}
EXAMPLES = ("scheme lm --k -0.5", "train lm_resnet20", "compare preact_resnet20 lm_resnet20 --data digits --seeds 3")


def main(argv: list[str] | None = None) -> int:
    """Run one command. Exit codes: 0 success, 2 a user's mistake, printed in one line, 130 Ctrl-C, 143 SIGTERM."""
    words = sys.argv[1:] if argv is None else argv
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # runs `finally` blocks
    try:
        with warnings.catch_warnings():
            warnings.showwarning = one_line_each()
            return run(words)
    except (UserError, ModuleNotFoundError) as error:
        if (message := error if isinstance(error, UserError) else missing_extra(error)) is None:
            raise
        print(f"stepnet: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe has ended: `stepnet models | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # such as a name that is too long
        place = f": {printable(error.filename)}" if isinstance(error.filename, str) else ""
        print(f"stepnet: {reason(error)}{place}", file=sys.stderr)
        return 2
    finally:
        signal.signal(signal.SIGTERM, before)


def one_line_each() -> Callable[..., None]:
    """Return a `warnings.showwarning` that prints each warning once, in one line like an error."""
    printed: set[str] = set()

    def show(message: Warning | str, *where: object, **more: object) -> None:
        if str(message) not in printed:
            printed.add(str(message))
            print(f"stepnet: {message}", file=sys.stderr)

    return show


def run(words: list[str]) -> int:
    """Run the command in `words`; raise `UserError` for a mistake in them."""
    first = words[0] if words else ""
    if first in ("", "-h", "--help"):
        print(overview(), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    if first == "--version":
        from stepnet import __version__

        print(f"stepnet {__version__}")
        return 0
    if first == "--completion":
        if words[1:] not in ([shell] for shell in SHELLS):
            raise UserError(f"{' '.join(words)}: expected one of {', '.join(SHELLS)}")
        from stepnet.commands.parsing import print_completion

        print_completion({name: command.load() for name, command in COMMANDS.items()}, words[1])
        return 0
    if first not in COMMANDS:
        option = first.startswith("-")
        raise unknown("option" if option else "command", first, ["--help", "--version"] if option else COMMANDS)
    from stepnet.commands.parsing import parse

    command = COMMANDS[first]
    parse(command.load(), first, words[1:], command.examples)()
    return 0


def overview() -> str:
    """Return the text of `stepnet --help`."""
    width = max(map(len, COMMANDS)) + 3
    listed = "\n".join(f"  {name:<{width}}{command.about}" for name, command in COMMANDS.items())
    shown = "\n".join(f"  stepnet {example}" for example in EXAMPLES)
    return f"""\
usage: stepnet COMMAND …      stepnet COMMAND --help      stepnet --version

Deep networks as numerical schemes.

{listed}

examples:
{shown}

Tab completion: eval "$(stepnet --completion bash)" (or {", ".join(SHELLS[1:])})"""


if __name__ == "__main__":
    sys.exit(main())
