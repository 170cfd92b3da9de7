"""The report: its tables as text, and the page itself in headless Chromium.

Screenshots go to the folder of $STEPNET_SCREENSHOTS, to pytest's own temporary folder unless it is set.
"""

import csv
import io
import math
import os
import platform
import re
from pathlib import Path

import pytest
import yaml

from stepnet.errors import UserError
from stepnet.report.page import report_page, write_report
from stepnet.training.histories import RunHistory


def test_the_page_is_whole_and_names_everything(write_run, tmp_path) -> None:
    folders = [write_run(seed=s, errors=(50, 20, 10 + s)) for s in range(3)]
    folders += [write_run("preact_resnet20", s, (60, 30, 12.0)) for s in range(3)]
    write_report(folders, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    rows = re.findall(r"<tr>(.*?)</tr>", page)
    summary = next(row for row in rows if "lm_resnet20" in row and "269,440" in row)
    cells = re.findall(r"<t[hd].*?>(.*?)</t[hd]>", summary)
    assert cells[:7] == ["lm_resnet20", "lm", "3", "269,440", "2.52 M", "11.00 ± 1.00", "11.00 ± 1.00"]
    assert cells[8] == "-1.00 ± 2.48 (3 pairs)"  # t(0.975, 2) / sqrt(3)
    for text in ("stepnet train lm_resnet20 --seed 1", "recipe.batch_size", platform.machine()):
        assert text in page


def test_a_folder_of_photos_is_named_by_its_last_part(write_run) -> None:
    page = report_page([RunHistory.read(write_run(data="/somebody/s/long/path/photos"))])
    assert ">photos</h2>" in page and "<h1>1 run of 1 network on photos</h1>" in page


def test_cost_is_at_first_what_sets_the_networks_apart(write_run) -> None:
    def chosen(*models: str) -> list[str]:
        page = report_page([RunHistory.read(write_run(model, len(models))) for model in models])
        return re.findall(r'-cost" value="(\w+)" checked', page)

    assert chosen("lm_resnet20") == chosen("lm_resnet32", "preact_resnet44") == ["parameters"]
    assert chosen("lm_resnet20", "preact_resnet20") == ["seconds"]  # equal blocks, evaluated as often


def test_options_inside_options_keep_their_whole_name(write_run) -> None:
    depth = {"survival": 0.8, "mode": "batch"}
    page = report_page([RunHistory.read(write_run(model_kwargs={"stochastic_depth": depth}))])
    assert "model_kwargs.stochastic_depth.survival" in page


def test_parameters_need_no_data_set(write_run, tmp_path) -> None:
    page = report_page([RunHistory.read(write_run(data="cifar10", data_root=str(tmp_path / "nothing")))])
    assert "269,440" in page  # the file of the run says it


def test_runs_that_are_cut_off_or_broken_are_told(write_run) -> None:
    from stepnet.report.grouping import read_histories

    folders = [write_run(seed=0, errors=(50.0,), epochs=3), write_run(seed=1, errors=(50.0, math.nan, 40.0))]
    page = report_page(read_histories([*folders, write_run(seed=2, errors=(), epochs=3)]))
    assert "lm_resnet20-seed0 is incomplete: 1 of 3 epochs." in page
    assert "lm_resnet20-seed1 has values that are not finite, from epoch 2 on." in page
    assert "lm_resnet20-seed2 is incomplete: 0 of 3 epochs." in page


def test_a_strangers_text_stays_text(write_run) -> None:
    from stepnet.report.grouping import read_histories

    folder = write_run(name="run</script><script>alert(1)<")
    environment = folder / "environment.yaml"
    known = yaml.safe_load(environment.read_text())
    environment.write_text(yaml.safe_dump(known | {"command": "<img src=x onerror=alert(1)>"}))
    page = report_page(read_histories([folder]))
    assert "<img src=x" not in page and "<script>alert" not in page


def test_a_run_in_a_folder_that_is_not_utf_8_is_shown(write_run, tmp_path) -> None:
    folder = write_run().rename(tmp_path / "b\udcff")
    write_report([folder], tmp_path / "c\udcff.html")
    assert r"b\udcff" in (tmp_path / "c\udcff.html").read_text()


def test_what_is_no_run_writes_nothing(write_run, tmp_path) -> None:
    with pytest.raises(UserError, match="is not a run"):
        write_report([write_run(), tmp_path / "missing"], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


class Visit:
    """A page opened, with what it said and asked for on the way."""

    def __init__(self, browser, path: Path, **options: object) -> None:
        self.page = browser.new_page(**options)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]")

    def close(self) -> None:
        """What every visit must have kept."""
        assert self.errors == []
        assert [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))] == []
        self.page.close()

    def drawn(self, chart: str) -> list[list[float]]:
        """The heights of what a chart has drawn, trace by trace."""
        return self.page.evaluate(f"document.querySelector('#{chart} .plot')._fullData.map(trace => [...trace.y])")


@pytest.fixture
def six_runs(write_run, tmp_path) -> Path:
    folders = [write_run(seed=s, errors=(50, 20, 10 + s)) for s in range(3)]
    write_report([*folders, *(write_run("preact_resnet20", s) for s in range(3))], tmp_path / "six.html")
    return tmp_path / "six.html"


@pytest.mark.parametrize(
    ("look", "scheme", "width"), [("light", "light", 1200), ("dark", "dark", 1200), ("narrow", "light", 400)]
)
def test_it_is_drawn_accessible_and_fits(browser, serious_findings, six_runs, tmp_path, look, scheme, width) -> None:
    visit = Visit(browser, six_runs, color_scheme=scheme, viewport={"width": width, "height": 900})
    for chart in ("curves-0", "k-0", "compression-0"):
        assert visit.page.locator(f"#{chart} .plot svg.main-svg").count() > 0
        assert visit.page.locator(f"#{chart} .plot").get_attribute("aria-label")
    assert visit.page.locator("#curves-0 .plot .scatterlayer path.js-line").count() == 2 * (2 + 6)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out
    ground = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == (scheme == "dark")
    visit.page.click("details:has-text('All runs') > summary")
    assert serious_findings(visit.page) == []
    folder = Path(os.environ.get("STEPNET_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    visit.page.screenshot(path=folder / f"report-{look}.png", full_page=True)
    visit.close()


def test_the_slider_moves_k_by_keyboard_and_axes_switch(browser, six_runs) -> None:
    visit = Visit(browser, six_runs)
    assert visit.drawn("k-0")[0] == pytest.approx([0.3, -0.6, -2.7])
    visit.page.focus("#k-0 input[type=range]")
    visit.page.keyboard.press("Home")
    assert visit.page.inner_text("#k-0 output") == "1 of 3"
    assert visit.drawn("k-0")[0] == pytest.approx([0.1, -0.2, -0.9])
    axis = "document.querySelector('#curves-0 .plot')._fullLayout.yaxis.type"
    assert visit.page.evaluate(axis) == "linear"
    visit.page.check("#curves-0 input[value=log]")
    assert visit.page.evaluate(axis) == "log"
    visit.page.check("#curves-0 input[value=loss]")
    assert visit.drawn("curves-0")[0] == pytest.approx([50 / 30, 20 / 30, 10 / 30], rel=1e-4)
    visit.close()


def test_each_chart_gives_its_data(browser, six_runs) -> None:
    visit = Visit(browser, six_runs)
    lines = {}
    for chart in ("curves-0", "k-0", "compression-0"):
        with visit.page.expect_download() as download:
            visit.page.click(f"#{chart} button[data-save=csv]")
        lines[chart] = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    assert len(lines["curves-0"]) == 6 * 3 and len(lines["k-0"]) == 3 * 3 * 3
    last = [
        row for row in lines["curves-0"] if (row["network"], row["seed"], row["epoch"]) == ("lm_resnet20", "2", "3")
    ]
    assert [row["test_error"] for row in last] == ["12"]
    assert {row["network"] for row in lines["compression-0"]} == {"lm_resnet20", "preact_resnet20"}
    visit.page.click("#k-0 details.table summary")
    visit.page.wait_for_selector("#k-0 details.table tr")
    assert visit.page.locator("#k-0 details.table tr").count() == 1 + 27
    visit.close()


def test_one_epoch_nan_and_two_data_sets_are_drawn(browser, write_run, tmp_path) -> None:
    folders = [write_run(errors=(50.0,)), write_run("preact_resnet20", errors=(50.0, math.nan, 30.0))]
    folders += [write_run(seed=3, data="cifar10", errors=(40.0, 30.0)), write_run(seed=4, errors=(), epochs=2)]
    write_report(folders, tmp_path / "odd.html")
    visit = Visit(browser, tmp_path / "odd.html")
    assert visit.page.locator("main > section > h2").all_inner_texts()[:2] == ["digits", "cifar10"]
    assert visit.drawn("curves-0")[0] == [50.0, None, 30.0]
    assert visit.page.locator("#k-0 input[type=range]").is_disabled()
    visit.close()


def test_a_hundred_runs_stay_a_small_page_that_opens(browser, write_run, tmp_path) -> None:
    models = [f"lm_resnet{depth}" for depth in (20, 32, 44, 56)] + ["preact_resnet20"]
    errors = [60.0 * 0.98**n for n in range(164)]
    folders = [write_run(model, seed, errors, ks=(-0.1,) * 3) for model in models for seed in range(20)]
    write_report(folders, tmp_path / "many.html")
    assert (tmp_path / "many.html").stat().st_size < 10e6
    visit = Visit(browser, tmp_path / "many.html")
    assert len(visit.drawn("curves-0")) == 2 * (100 + 5)
    visit.close()


def test_a_strangers_names_make_no_links_and_no_formulas(browser, write_run, tmp_path) -> None:
    link = '<a href="https://example.com/lm">lm</a>'
    formula = '=HYPERLINK("https://example.com/lm")'
    folders = [write_run(link, ks=(0.1, 0.2)), write_run(formula, name="=run")]
    for line in folders[0].joinpath("metrics.jsonl"), folders[1].joinpath("metrics.jsonl"):
        line.write_text(line.read_text().replace("stages.0.blocks.1", link.replace('"', "'")))
    write_report(folders, tmp_path / "evil.html")
    visit = Visit(browser, tmp_path / "evil.html")
    assert visit.page.locator("svg a").count() == 0
    visit.page.hover("#k-0 .plot .scatterlayer .point >> nth=0", force=True)
    visit.page.wait_for_selector("#k-0 .hoverlayer text")
    assert visit.page.locator("svg a").count() == 0
    assert visit.page.locator("#k-0 .legendtext").first.text_content() == link
    for chart in ("curves-0", "k-0"):
        with visit.page.expect_download() as download:
            visit.page.click(f"#{chart} button[data-save=svg]")
        assert "<a " not in Path(download.value.path()).read_text()
        with visit.page.expect_download() as download:
            visit.page.click(f"#{chart} button[data-save=csv]")
        cells = [cell for row in csv.reader(io.StringIO(Path(download.value.path()).read_text())) for cell in row]
        assert f"'{formula}" in cells and not [cell for cell in cells if cell.startswith(("=", "@"))]
    visit.close()
