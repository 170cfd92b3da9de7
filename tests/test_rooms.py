"""The rooms of the house: imports only go upward, and tests stand in the rooms of what they test."""

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "stepnet"
TESTS = Path(__file__).parent
FILES = sorted(SRC.rglob("*.py"))

BELOW = {  # what each room may import besides itself and the modules that lie beside the rooms
    "schemes": set(),
    "data": set(),
    "analysis": {"schemes"},
    "nets": {"schemes"},
    "conversion": {"schemes", "nets"},
    "exchange": {"schemes", "data", "nets", "conversion"},
    "training": {"schemes", "data", "nets", "conversion", "exchange"},
    "timing": {"schemes", "data", "nets", "conversion", "training"},
    "report": {"schemes", "data", "analysis", "nets", "conversion", "exchange", "training"},
    "commands": {"schemes", "data", "analysis", "nets", "conversion", "exchange", "training", "timing", "report"},
    "cli": {"commands"},
}


def public_homes() -> dict[str, str]:
    """The room of every name that `from stepnet import name` gives."""
    stub = ast.parse((SRC / "__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: (node.module or alias.name).partition(".")[0] for node in imports for alias in node.names}


HOMES = public_homes()


def room_of(file: Path) -> str:
    first = file.relative_to(SRC).parts[0]
    return first.removesuffix(".py")


def imported(file: Path) -> Iterator[str]:
    """The rooms that a file imports from, inside functions too."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "stepnet" and len(parts) > 1:
                yield HOMES.get(parts[1], parts[1]) if len(parts) == 2 else parts[1]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SRC)))
def test_imports_go_upward_only(file: Path) -> None:
    room = room_of(file)
    rooms = set(imported(file)) & set(BELOW)
    assert rooms - {room} <= BELOW.get(room, set()), f"{room} imports {sorted(rooms - {room} - BELOW.get(room, set()))}"


def side_doors(file: Path) -> list[str]:
    """The modules of other rooms that a file imports from, past the front of their room."""
    modules = [node.module or "" for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    parts = [module.split(".") for module in modules if module.startswith("stepnet.")]
    return [".".join(part) for part in parts if len(part) > 2 and part[1] != room_of(file)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SRC)))
def test_a_room_is_entered_by_its_front(file: Path) -> None:
    """What others use of a room is what its `__init__` names.

    The command line loads single commands by their files; noises need sympy, which the front of schemes does without.
    """
    allowed = ("stepnet.commands.",) if room_of(file) == "cli" else ("stepnet.schemes.noises",)
    assert [door for door in side_doors(file) if not door.startswith(allowed)] == []


def test_the_guard_sees_imports_of_every_form(tmp_path: Path) -> None:
    file = tmp_path / "all.py"
    file.write_text(
        "import stepnet.report.paper\nfrom stepnet import solve, UserError, nets\n"
        "def f():\n    from stepnet.training.loop import train\n    from stepnet.commands import models\n"
    )
    assert list(imported(file)) == ["report", "schemes", "errors", "nets", "training", "commands"]


def test_every_folder_is_a_room() -> None:
    assert {room_of(file) for file in FILES if file.parent != SRC} == set(BELOW) - {"cli"}


def test_tests_mirror_the_rooms() -> None:
    tested = {file.relative_to(TESTS).parts[0] for file in TESTS.rglob("test_*.py") if file.parent != TESTS}
    assert tested == set(BELOW) - {"cli"}


def rooms_of_classes() -> dict[str, set[str]]:
    """The rooms that define a public class of each name."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for file in FILES:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                rooms[node.name].add(room_of(file))
    return rooms


def rooms_of_files() -> dict[str, set[str]]:
    """The rooms that hold a file of each name; the files beside the rooms count as one."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for file in FILES:
        if file.name not in ("__init__.py", "__main__.py"):
            rooms[file.name].add("" if file.parent == SRC else room_of(file))
    return rooms


@pytest.mark.parametrize("rooms_of_names", [rooms_of_classes, rooms_of_files])
def test_a_name_means_one_thing_across_rooms(rooms_of_names: Callable[[], dict[str, set[str]]]) -> None:
    assert {name: sorted(rooms) for name, rooms in rooms_of_names().items() if len(rooms) > 1} == {}
