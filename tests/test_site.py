"""The site: every page has its place, every name on the reference pages exists, every notebook runs."""

import importlib
import inspect
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from stepnet.cli import COMMANDS, main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTEBOOKS = sorted(DOCS.glob("notebooks/*.ipynb"))
API = sorted(str(page.relative_to(DOCS)) for page in DOCS.glob("api/*.md"))
NAME = re.compile(r"`(stepnet(?:\.\w+)+)`|^::: (\S+)", re.MULTILINE)


def resolve(name: str) -> object:
    """What a dotted name stands for: the longest module, then its attributes."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return found
    raise LookupError(name)


def names(page: str) -> list[str]:
    return [first or second for first, second in NAME.findall((DOCS / page).read_text())]


@pytest.mark.parametrize("page", ["paper.md", *API])
def test_every_name_on_a_reference_page_exists(page: str) -> None:
    assert len(names(page)) > 5
    for name in names(page):
        assert resolve(name) is not None


def test_the_reference_has_every_public_name() -> None:
    import stepnet

    shown = {name.rpartition(".")[2] for page in API for name in names(page)}
    assert set(stepnet.__all__) - {"analysis", "UserError"} <= shown


class Config(yaml.SafeLoader):
    """mkdocs.yml with the tags of its plugins passed over."""


Config.add_multi_constructor("", lambda loader, tag, node: None)


def pages(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:  # type: ignore[attr-defined]
            yield from pages(inner)


def test_every_page_has_its_place_in_the_navigation() -> None:
    nav = list(pages(yaml.load((ROOT / "mkdocs.yml").read_text(), Config)["nav"]))
    there = [str(page.relative_to(DOCS)) for page in (*DOCS.glob("*.md"), *DOCS.glob("api/*.md"), *NOTEBOOKS)]
    assert sorted(nav) == sorted(there)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_no_link_leaves_the_site(page: Path) -> None:
    assert re.findall(r"\]\(\.\./[^)]*\)", page.read_text()) == []  # mkdocs refuses what lies outside of docs/


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs_from_top_to_bottom(notebook: Path, tmp_path, monkeypatch) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    variables: dict[str, object] = {"__name__": "__main__"}
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert not any(output["output_type"] == "error" for output in cell["outputs"])
            exec(compile("".join(cell["source"]), f"{notebook.name}:{cell['id']}", "exec"), variables)


def test_there_are_four_notebooks() -> None:
    assert len(NOTEBOOKS) == 4


HOOKS = runpy.run_path(str(ROOT / "scripts" / "site_hooks.py"))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_of_a_command_has_every_flag_of_its_help(name: str, capsys) -> None:
    page = HOOKS["command_page"](name)
    with pytest.raises(SystemExit):
        main([name, "--help"])
    flags = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", capsys.readouterr().out.partition("─ options ")[2])) - {"--help"}
    assert flags <= set(re.findall(r"--[a-z][\w-]*", page))
    assert page.startswith(f"# stepnet {name}\n") and COMMANDS[name].examples[0] in page
    assert all(len(f"$ stepnet {example}") <= 80 for example in COMMANDS[name].examples)


def test_a_table_has_each_parameter_with_its_type_and_default() -> None:
    rows = HOOKS["parameter_table"]("stepnet.schemes.initial_value.solve").splitlines()
    assert [row.split("|")[1].strip() for row in rows[2:]][:5] == ["`f`", "`u0`", "`t_span`", "`steps`", "`scheme`"]
    assert "how many equal steps" in rows[5]


@pytest.mark.parametrize("name", [name for page in API for name in names(page)])
def test_every_parameter_of_the_reference_is_described(name: str) -> None:
    found = resolve(name)
    if callable(found):
        signature = inspect.signature(found)
        assert set(signature.parameters) - {"self"} <= HOOKS["descriptions"](name).keys()


def test_every_description_is_of_a_parameter() -> None:
    described = yaml.safe_load((DOCS / "api" / "parameters.yaml").read_text())
    shown = {name.rpartition(".")[2]: name for page in API for name in names(page)}
    taken = {name: set(inspect.signature(resolve(shown[name])).parameters) for name in shown if name != "Scheme"}
    assert described.pop("everywhere").keys() <= set().union(*taken.values())
    assert {name for name, own in described.items() if not own.keys() <= taken[name]} == set()


def test_formulas_need_nothing_from_outside_and_are_well_formed() -> None:
    """Every `$` of a page has its partner, and the fonts that KaTeX asks for first are there."""
    style = (DOCS / "vendor/katex/katex.min.css").read_text()
    assert "http" not in style and {"Main-Regular", "Math-Italic"} <= {
        font.stem.removeprefix("KaTeX_") for font in (DOCS / "vendor/katex/fonts").iterdir()
    }
    for page in DOCS.glob("*.md"):
        prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        assert all(line.count("$") % 2 == 0 for line in prose.splitlines()), page.name


def test_without_a_repository_there_is_no_command_to_clone_it(monkeypatch) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="index.md"))
    monkeypatch.setitem(HOOKS["on_page_markdown"].__globals__, "repository", lambda: None)
    assert HOOKS["on_page_markdown"](HOOKS["CLONE"], page, None, None) == ""
    monkeypatch.setitem(HOOKS["on_page_markdown"].__globals__, "repository", lambda: "https://github.com/a/b")
    assert "git clone https://github.com/a/b" in HOOKS["on_page_markdown"](HOOKS["CLONE"], page, None, None)
    notebook = SimpleNamespace(file=SimpleNamespace(src_uri="notebooks/x.ipynb"))
    assert "colab.research.google.com/github/a/b/blob/main/docs/notebooks/x.ipynb" in HOOKS["on_page_content"](
        "", notebook, None, None
    )


def test_a_comment_in_a_console_block_is_no_prompt() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="schemes.md"))
    block = '<code><span class="gp"># </span><span class="k">for</span> one k\n<span class="gp">$ </span>x'
    shown = HOOKS["on_page_content"](block, page, None, None)
    assert shown == '<code><span class="c1"># for one k</span>\n<span class="gp">$ </span>x'


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site as mkdocs builds it, a warning being an error."""
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed: make docs")
    folder = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_without_a_warning(site) -> None:
    index = (site / "index.html").read_text()
    assert "Deep networks as numerical schemes" in index
    outside = re.findall(r'(?:src|href)="(https?://[^"]+\.(?:js|css|woff2?))"', index)
    assert outside == []  # it opens with no network
    assert "create_model" in (site / "api" / "networks.html").read_text()
    nav = index.partition('data-md-component="sidebar"')[2].partition('data-md-type="toc"')[0]
    entries = [text.strip() for text in re.findall(r'md-ellipsis">\s*([^<]+?)\s*<', nav)]
    assert "Notebook: depth is time" in entries and len(entries) > 50


LOOKED_AT = ("index", "schemes", "results", "api/networks", "notebooks/euler_inside_a_resnet")


@pytest.mark.slow
@pytest.mark.parametrize("page", LOOKED_AT)
def test_a_page_is_accessible_and_fits_a_phone(site, browser, serious_findings, page: str) -> None:
    for look, width in (("light", 1280), ("dark", 400)):
        visit = browser.new_page(color_scheme=look, viewport={"width": width, "height": 900})
        visit.goto((site / f"{page}.html").as_uri())
        visit.wait_for_load_state("load")
        assert serious_findings(visit) == [], look
        assert visit.evaluate("document.documentElement.scrollWidth") <= width
        assert visit.locator(".katex-error").count() == 0
        visit.close()
