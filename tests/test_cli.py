"""The command line as a person meets it: a process, its exit code, one line for a mistake."""

import shlex
import signal
import subprocess
import sys

import pytest
import tyro

from stepnet import __version__
from stepnet.cli import COMMANDS, EXAMPLES, main
from stepnet.commands.parsing import REGISTRY, parse
from stepnet.commands.table import Models
from stepnet.files import atomic_folder


def stepnet(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "stepnet.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_mistake_is_one_line_without_a_traceback():
    done = stepnet("scheme", "eular")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("stepnet: unknown scheme 'eular': did you mean 'euler'")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["schema"], "unknown command 'schema': did you mean 'scheme'?"),
        (["frobnicate"], f"unknown command 'frobnicate': known: {', '.join(sorted(COMMANDS)[:12])} and 6 more"),
        (["--hepl"], "unknown option '--hepl': did you mean '--help'?"),
        (["--completion", "csh"], "--completion csh: expected one of bash, zsh, fish, tcsh"),
    ],
)
def test_what_is_unknown_is_told_in_one_line(words, said, capsys: pytest.CaptureFixture[str]):
    assert main(words) == 2
    assert capsys.readouterr().err == f"stepnet: {said}\n"


def test_help_and_version_import_nothing_heavy(capsys: pytest.CaptureFixture[str]):
    code = "import sys; from stepnet.cli import main; main([{!r}]); sys.exit(bool({{*sys.modules}} & {}))"
    heavy = {"torch", "sympy", "matplotlib", "scipy", "numpy", "tyro", "rich"}
    for word, expected in {"--help": "usage: stepnet COMMAND", "--version": f"stepnet {__version__}\n"}.items():
        done = subprocess.run([sys.executable, "-c", code.format(word, heavy)], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.startswith(expected), done


def test_schemes_and_data_are_told_without_torch():
    """What a command does not need, it does not wait for."""
    code = (
        "import sys; from stepnet.cli import main\n"
        "assert main(['data', 'list']) == 0 and not {*sys.modules} & {'torch', 'sympy', 'matplotlib'}\n"
        "assert main(['scheme', 'euler']) == 0 and not {*sys.modules} & {'torch', 'matplotlib'}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "u_{n+1} = u_n + dt f(u_n)" in done.stdout


def test_without_a_command_the_help_comes_and_the_exit_code_is_2(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == "" and all(f"  {name} " in err for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_overview_says_what_the_command_says_of_itself(name: str):
    assert (COMMANDS[name].load().__doc__ or "").startswith(COMMANDS[name].about)


@pytest.mark.parametrize("example", [*EXAMPLES, *(each for command in COMMANDS.values() for each in command.examples)])
def test_every_example_can_be_typed(example: str):
    name, *words = shlex.split(example)
    assert parse(COMMANDS[name].load(), name, words)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_examples_and_reads_plainly(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "{None" not in shown and "default: None" not in shown
    assert all(f"  stepnet {example}\n" in shown for example in COMMANDS[name].examples)
    actions = tyro.extras.get_parser(COMMANDS[name].load(), registry=REGISTRY)._actions
    assert not [action.dest for action in actions if "\n" in (action.help or "")]  # a line that breaks too early


def test_completion_knows_commands_and_flags(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        main(["--completion", "bash"])
    assert not stopped.value.code
    script = capsys.readouterr().out
    assert all(word in script for word in (*COMMANDS, "--epochs", "--seeds"))
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_command_leaves_nothing_half_done(tmp_path, monkeypatch, number, code):
    def write_a_folder():
        with atomic_folder(tmp_path / "folder"):
            signal.raise_signal(number)

    if number == signal.SIGINT:  # a shell that starts the tests in the background has it ignored
        signal.signal(number, signal.default_int_handler)
    before = signal.getsignal(number)
    monkeypatch.setattr(Models, "__call__", lambda self: write_a_folder())
    try:
        found = main(["models"])
    except SystemExit as stop:
        found = stop.code
    assert found == code and list(tmp_path.iterdir()) == []
    assert signal.getsignal(number) == before
