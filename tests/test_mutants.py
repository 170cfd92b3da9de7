"""The list of mutants fits the code, and the script tells who survives: scripts/mutants.py."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from scripts.mutants import ROOT, misfits, read_mutants

MUTANTS = read_mutants()


def test_every_mutant_still_applies():
    wrong = list(misfits(MUTANTS, ROOT))
    assert not wrong, "\n".join(wrong)


def test_no_mutant_uses_an_undefined_name(tmp_path: Path):
    # A NameError fails any test, so such a mutant would say nothing about its tests.
    for n, mutant in enumerate(MUTANTS):
        (tmp_path / f"mutant_{n}.py").write_text(mutant.changed(ROOT))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821", str(tmp_path)]
    done = subprocess.run([*command, "--output-format", "concise"], capture_output=True, text=True, timeout=60)
    undefined = [
        f"{MUTANTS[int(n)].name}: {name}" for n, name in re.findall(r"mutant_(\d+)\.py.*F821 (.*)", done.stdout)
    ]
    assert done.returncode == 0, undefined or done.stderr


def test_every_case_of_a_parametrised_test_is_there(request: pytest.FixtureRequest):
    named = {test for mutant in MUTANTS for test in mutant.tests if test.endswith("]")}
    assert named
    if missing := sorted(named - {item.nodeid for item in request.session.items}):  # unless the whole suite runs
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *missing]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-500:] + done.stderr


def test_every_room_has_mutants():
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1
    rooms = {path.parent.name for path in (ROOT / "src" / "stepnet").glob("*/__init__.py")}
    assert rooms <= {mutant.room for mutant in MUTANTS}
    assert len(MUTANTS) >= 100


TREE = {
    "src/added.py": "def add(a, b):\n    return a + b\n\n\ndef negative(a):\n    return a < 0\n",
    "tests/test_added.py": "import added\n\n\ndef test_add():\n    assert added.add(1, 2) == 3\n\n\n"
    "def test_negative():\n    assert added.negative(-1)\n\n\ndef test_that_fails():\n    assert False\n",
}
SCRIPT = """
from pathlib import Path
from scripts.mutants import Mutant, run
root = Path({root!r})
minus = Mutant("minus", "a", "src/added.py", "a + b", "a - b", ("tests/test_added.py::test_add",))
zero = Mutant("zero counts", "a", "src/added.py", "a < 0", "a <= 0", ("tests/test_added.py::test_negative",))
wrong = Mutant("wrong", "a", "src/added.py", "a < 0", "a <= 0", ("tests/test_added.py::test_that_fails",))
lost = Mutant("lost", "a", "src/added.py", "a < 1", "a <= 0", ("tests/test_added.py::test_gone",))
print([run([minus, zero], root, 2), run([minus], root, 1), run([wrong], root, 1), run([lost], root, 1)])
"""


def test_survivors_are_told(tmp_path: Path):
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-c", SCRIPT.format(root=str(tmp_path))]
    quick = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quick, capture_output=True, text=True, timeout=60)
    assert re.search(r"killed .* minus", done.stdout) and re.search(r"SURVIVES .* zero counts", done.stdout), done
    assert "2 mutants, 1 survive" in done.stdout and "1 mutants, 0 survive" in done.stdout
    assert "the tests fail without any change" in done.stdout
    assert "lost: 'a < 1' occurs 0 times in src/added.py" in done.stdout
    assert "lost: there is no tests/test_added.py::test_gone" in done.stdout
    assert done.stdout.splitlines()[-1] == "[1, 0, 1, 1]"
    assert {name: (tmp_path / name).read_text() for name in TREE} == TREE  # a copy was changed
