"""Every Python block of the documentation runs: a page from top to bottom; console blocks are for reading."""

import re
from pathlib import Path

import pytest

from stepnet.data import datasets
from stepnet.nets import registry as models
from stepnet.schemes import registry as schemes

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [page for page in sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md"]) if BLOCK.search(page.read_text())]


@pytest.fixture
def own_names(monkeypatch) -> None:
    """What a page registers is gone after it."""
    for module, name in ((models, "_entries"), (schemes, "_factories"), (schemes, "_aliases"), (datasets, "_loaders")):
        monkeypatch.setattr(module, name, dict(getattr(module, name)))


@pytest.mark.usefixtures("own_names")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs_from_top_to_bottom(page: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # for what an example writes
    text = page.read_text()
    names: dict = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        above = "\n" * text[: block.start(1)].count("\n")  # so that a failure names the line of the page
        exec(compile(above + block[1], str(page), "exec"), names)


def test_there_are_pages_to_run() -> None:
    assert {"networks.md", "add_a_data_set.md", "README.md"} <= {page.name for page in PAGES}
