"""What the package says of itself."""

import ast
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import stepnet
from stepnet.extras import EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SRC = ROOT / "src" / "stepnet"


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == stepnet.__version__ and citation["license"] == PROJECT["license"]
    assert [author["family-names"] for author in citation["preferred-citation"]["authors"]] == [
        "Lu", "Zhong", "Li", "Dong",
    ]  # fmt: skip
    assert citation["preferred-citation"]["url"] == PROJECT["urls"]["Paper"]


def test_what_is_required_is_imported_and_what_is_imported_is_declared() -> None:
    """A third-party module is required, or brought by an extra that answers for it."""
    names = {"pyyaml": "yaml", "pillow": "PIL"}
    bare = (re.split(r"[>\[]", line)[0] for line in PROJECT["dependencies"])
    required = {names.get(each, each.replace("-", "_")) for each in bare}
    imported = set()
    for file in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    imported -= sys.stdlib_module_names | {"stepnet"}
    assert imported - required - set(EXTRAS) == set() and required - imported == set()


def test_no_message_names_a_page_that_the_wheel_does_not_have() -> None:
    for file in SRC.rglob("*.py"):
        text = re.sub(r'""".*?"""', "", file.read_text(), flags=re.DOTALL)
        assert not re.search(r"docs/\w+\.md|README|CONTRIBUTING", text), file


def test_what_it_is_without_extras_and_launcher() -> None:
    missing = ["accelerate", "sklearn", *EXTRAS]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({missing}))\n"
        "import torch, stepnet, stepnet.data, stepnet.conversion, stepnet.training, stepnet.exchange\n"
        "assert stepnet.create_model('resnet20', scheme='lm')(torch.zeros(1, 3, 32, 32)).shape == (1, 10)\n"
        "assert stepnet.analysis.order('heun') == 2 and stepnet.data.get_data('digits')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_wheel_has_stubs_and_data(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = [file for file in SRC.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert {f"stepnet/{file.relative_to(SRC)}" for file in wanted} <= held
    assert {"stepnet/py.typed", "stepnet/__init__.pyi", "stepnet/report/catalogue.json"} <= held
    runs = [path.name for path in (ROOT / "results").glob("*.json") if "runs" in json.loads(path.read_text())]
    assert runs and {f"stepnet/report/measured/{name}" for name in runs} <= held  # what `stepnet table` shows


def test_torch_hub_knows_every_model() -> None:
    code = (
        f"import torch, runpy; found = runpy.run_path({str(ROOT / 'hubconf.py')!r})\n"
        "import stepnet; assert all(callable(found[name]) for name in stepnet.list_models())\n"
        f"net = torch.hub.load({str(ROOT)!r}, 'lm_resnet20', source='local', num_classes=7)\n"
        "assert net(torch.zeros(1, 3, 32, 32)).shape == (1, 7)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_release_is_checked_before_it_is_published() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    commands = " ".join(step.get("run", "") for step in jobs["build"]["steps"])
    assert all(word in commands for word in ("-m build", "twine check --strict", "scripts/first_use.py"))
    assert jobs["publish"]["needs"] == "build" and jobs["publish"]["permissions"] == {"id-token": "write"}
