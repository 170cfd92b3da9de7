"""Mutation testing: change one important line, run its nearest tests, and see whether they fail.

    python scripts/mutants.py [--jobs 2] [--only NAME …] [--room training …]

`mutants.toml` beside this file lists the changes: a file of `src/stepnet`, a text that occurs in it exactly once, what
takes its place, and the tests that must fail. Each is applied to a copy of the tree, never to the tree itself. The same
tests have to pass on a copy without any change first. The mutants that survive are printed; the exit code is 1 if there
are any, or if the list no longer fits the code.

Every mutant runs in a fork of this process, which has imported the slow libraries once, and never stepnet.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SLOW = ("torch", "torch._dynamo", "sympy", "scipy.optimize", "scipy.stats", "scipy.integrate", "accelerate")
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "runs", "site")
PATIENCE = 120  # seconds: a test that no longer ends has noticed the change, too


@dataclass(frozen=True)
class Mutant:
    """A change to one file, and the tests that must notice."""

    name: str
    room: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def changed(self, root: Path) -> str:
        """The source with the change, which has to compile."""
        source = (root / self.file).read_text()
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.old!r} occurs {count} times in {self.file}, expected once")
        changed = source.replace(self.old, self.new)
        compile(changed, self.file, "exec")
        return changed


def read_mutants(path: Path = ROOT / "scripts" / "mutants.toml") -> list[Mutant]:
    """The list: a table for each room, in which files are relative to src/stepnet and tests to tests/."""
    return [
        Mutant(m["name"], room, f"src/stepnet/{m['file']}", m["old"], m["new"], tuple(f"tests/{t}" for t in m["tests"]))
        for room, mutants in tomllib.loads(path.read_text()).items()
        for m in mutants
    ]


def misfits(mutants: Sequence[Mutant], root: Path) -> Iterator[str]:
    """What no longer fits the code: a text that does not occur once, a change without effect, a test that is gone."""
    for mutant in mutants:
        try:
            if mutant.changed(root) == (root / mutant.file).read_text():
                yield f"{mutant.name}: nothing is changed"
        except (OSError, ValueError, SyntaxError) as error:
            yield str(error)
        for test in mutant.tests:
            file, _, name = test.partition("::")
            source = (root / file).read_text() if (root / file).is_file() else ""
            if not re.search(rf"^def {name.partition('[')[0]}", source, re.MULTILINE):
                yield f"{mutant.name}: there is no {test}"


def run(mutants: Sequence[Mutant], root: Path, jobs: int) -> int:
    """Run them all; print the survivors and a count. Returns the exit code."""
    if wrong := list(misfits(mutants, root)):
        print(*wrong, sep="\n")
        return 1
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trees = [Path(folder) / str(n) for n in range(min(jobs, len(mutants)))]
        shutil.copytree(root, trees[0], ignore=LEFT_OUT)
        tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
        _, status = os.waitpid(_start(trees[0], tests), 0)
        if status:
            print(_log(trees[0]).read_text(), "the tests fail without any change: repair them first", sep="\n")
            return 1
        print(f"the tests pass without a change, in {time.monotonic() - started:.0f} s", flush=True)
        for tree in trees[1:]:
            shutil.copytree(trees[0], tree)  # with the bytecode that the first run has made
        survivors = list(_survivors(mutants, trees))
    minutes = (time.monotonic() - started) / 60
    print(f"{len(mutants)} mutants, {len(survivors)} survive ({minutes:.1f} min)", *survivors, sep="\n  ")
    return 1 if survivors else 0


def _survivors(mutants: Sequence[Mutant], trees: Sequence[Path]) -> Iterator[str]:
    """The names of those that survive. A tree holds one mutant at a time."""
    waiting, free = list(mutants), list(trees)
    running: dict[int, tuple[Mutant, Path, float]] = {}
    try:
        while waiting or running:
            if waiting and free:
                mutant, tree = waiting.pop(0), free.pop()
                shutil.copy2(tree / mutant.file, _kept(tree))
                (tree / mutant.file).write_text(mutant.changed(tree))
                os.utime(tree / mutant.file, (0, 0))  # another time than that of the bytecode of the first run
                running[_start(tree, mutant.tests, PATIENCE)] = mutant, tree, time.monotonic()
                continue
            pid, status = os.wait()
            mutant, tree, since = running.pop(pid)
            _end_group(pid)  # what the tests have started and left
            shutil.copy2(_kept(tree), tree / mutant.file)  # and its time, by which its bytecode is known
            free.append(tree)
            code = os.waitstatus_to_exitcode(status)
            killed = code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
            print(
                f"{'killed  ' if killed else 'SURVIVES'} {time.monotonic() - since:4.0f} s  {mutant.name}", flush=True
            )
            if not killed:
                yield mutant.name
    finally:
        for pid in running:
            _end_group(pid)


def _start(tree: Path, tests: Sequence[str], patience: int = 0) -> int:
    """Begin to run the tests in a process of its own, the leader of a new group."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    signal.alarm(patience)  # ends the process; 0 is never
    sys.dont_write_bytecode = patience > 0  # a changed file leaves no trace
    os.environ |= {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    os.chdir(tree)
    sys.path.insert(0, str(tree / "src"))
    with _log(tree).open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    code = 1
    with contextlib.suppress(BaseException):
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
    sys.stdout.flush()
    os._exit(code)


def _log(tree: Path) -> Path:
    return tree.with_suffix(".log")


def _kept(tree: Path) -> Path:
    return tree.with_suffix(".kept")


def _end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def main(words: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Change important lines, one at a time; print what no test notices.")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at once")
    parser.add_argument("--only", metavar="NAME", nargs="+", default=[""], help="mutants whose names hold such a text")
    parser.add_argument("--room", nargs="+", default=[], help="the mutants of these rooms")
    chosen = parser.parse_args(words)
    mutants = [
        mutant
        for mutant in read_mutants()
        if any(text in mutant.name for text in chosen.only) and (not chosen.room or mutant.room in chosen.room)
    ]
    if not mutants:
        parser.error("no such mutant")
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in SLOW:
        importlib.import_module(name)
    return run(mutants, ROOT, chosen.jobs)


if __name__ == "__main__":
    sys.exit(main())
