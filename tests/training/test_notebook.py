"""In a notebook: a bar of HTML that is replaced, and a run that shows its figures and curves."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

import stepnet
from stepnet.training import Run, TrainConfig
from stepnet.training.notebook import curves_as_svg, duration, in_notebook
from training.tiny import tiny_config


class Page:
    """The output of a cell, as IPython's `display` fills and replaces it."""

    def __init__(self):
        self.updates = []

    def update(self, bundle, raw):
        assert raw
        self.updates.append(bundle["text/html"])


@pytest.fixture
def page(monkeypatch):
    shown = Page()
    display = SimpleNamespace(display=lambda bundle, raw, display_id: shown)
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown


def test_a_run_is_a_bar_in_a_notebook_and_the_bar_is_gone_at_the_end(page, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("stepnet.training.notebook.SECONDS_BETWEEN_UPDATES", -1.0)
    run = stepnet.train(tiny_config(tmp_path / "a", model="tiniest"))
    assert [html for html in page.updates if "building the network" in html and "value=" not in html]
    steps = [int(found[1]) for html in page.updates if (found := re.search(r'value="(\d+)" max="12"', html))]
    assert steps == sorted(steps) and steps[-1] == 12
    assert "tiniest 2/2 loss" in page.updates[-2] and " left</code>" in page.updates[-2] and page.updates[-1] == ""
    assert len(re.findall("^epoch ", capsys.readouterr().out, re.M)) == 2
    assert len(run.metrics()) == 2


def test_a_notebook_is_known_by_its_kernel(page, monkeypatch):
    assert in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace()))  # a terminal's
    assert not in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()


def written(folder, errors):
    run = Run(folder)
    folder.mkdir()
    TrainConfig("lm_resnet20", "a <b>", scheme="euler").write(run.config_file)
    for epoch, error in enumerate(errors):
        figures = {"epoch": epoch, "loss": 1.5, "test_loss": 0.25, "lr": 0.1, "seconds": 1.0, "k": {}}
        run.append_metrics(figures | {"error": error + 1, "test_error": error, "images_per_second": 10.0})
    return run


def test_a_run_shows_its_last_figures_its_best_epoch_and_its_curves(tmp_path):
    html = written(tmp_path / "a", [40.0, 10.0, 20.0])._repr_html_()
    root = ElementTree.fromstring(html.replace("<br>", "<br/>"))
    headings, cells = ([cell.text for cell in row] for row in root.iter("tr"))
    assert dict(zip(headings, cells, strict=True)) == {
        "epoch": "3 of 160",
        "loss": "1.5000",
        "test loss": "0.2500",
        "error": "21.00%",
        "test error": "20.00%",
        "best test error": "10.00% (epoch 2)",
    }
    assert "lm_resnet20:euler on a <b>, seed 0" in "".join(root.itertext())
    lines = [
        [tuple(map(float, pair.split(","))) for pair in line.get("points").split()] for line in root.iter("polyline")
    ]
    assert [len(line) for line in lines] == [3, 3]
    (_, high), (_, low), (_, middle) = lines[1]
    assert high < middle < low  # of 40, 20 and 10 per cent; pixels count downwards


def test_a_run_without_an_epoch_or_a_config_is_no_error(tmp_path):
    assert "no finished epoch of 160" in written(tmp_path / "a", [])._repr_html_()
    assert Run(tmp_path / "b")._repr_html_() is None  # a notebook shows its repr then
    assert curves_as_svg({"training": [1.0], "test": [2.0]}, "error") == ""


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (80, "80 s"), (90, "2 min"), (5399, "90 min"), (9000, "2.5 h"), (2e5, "2.3 days")],
)
def test_a_duration_in_the_unit_that_fits(seconds, said):
    assert duration(seconds) == said


CELL = """
import stepnet
stepnet.train("lm_resnet20", "digits", epochs=2, batch_size=256, out="run")
"""


def test_in_a_real_notebook_the_bar_moves_and_the_run_shows_itself(tmp_path, monkeypatch):
    """Executed by Jupyter's own client and kernel."""
    reason = "needs Jupyter's client and kernel, which the extra `docs` brings: make docs"
    client = pytest.importorskip("nbclient", reason=reason)
    nbformat = pytest.importorskip("nbformat", reason=reason)
    pytest.importorskip("ipykernel", reason=reason)
    monkeypatch.setenv("PYTHONPATH", str(Path(stepnet.__file__).parents[1]))  # the kernel's too
    shown = []

    class Listening(client.NotebookClient):
        def process_message(self, message, cell, cell_index):
            if message["msg_type"] == "update_display_data":
                shown.append(message["content"]["data"]["text/html"])
            return super().process_message(message, cell, cell_index)

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    Listening(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any("<progress" in bar and "lm_resnet20" in bar for bar in shown) and shown[-1] == ""
    bar, result = [output["data"]["text/html"] for output in notebook.cells[0].outputs if "data" in output]
    assert bar == ""  # nothing is left of it
    assert "<svg" in result and "best test error" in result
