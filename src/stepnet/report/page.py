"""`stepnet report`: one page that needs nothing but itself. Tables are HTML, charts are drawn by the plotly inside."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from operator import methodcaller
from pathlib import Path

import stepnet
from stepnet.errors import counted
from stepnet.files import atomic_file
from stepnet.report.catalogue import short_count
from stepnet.report.charts import coefficients_words, compression_words, curves_words, section_data
from stepnet.report.grouping import by_data, printed_error, read_histories, short_names
from stepnet.training import ClassErrors, Mistake, NetworkRuns, RunHistory, mean_and_deviation

NOTHING = "–"
LARGEST_MATRIX = 20  # classes
# Nothing from outside: a browser refuses any request that a stranger's run folder might smuggle in.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def write_report(folders: Iterable[Path], path: Path, labels: Sequence[str] | None = None) -> None:
    """Write the report of these runs to `path`."""
    page = report_page(read_histories(folders), labels)
    with atomic_file(path) as partial:
        partial.write_text(page, encoding="utf-8", errors="backslashreplace")  # a path may be none


def report_page(histories: Sequence[RunHistory], labels: Sequence[str] | None = None) -> str:
    """The whole page; `labels` are those of `by_data`."""
    grouped = by_data(histories, labels)
    sections = dict(zip(short_names(list(grouped)), grouped.values(), strict=True))
    data = [section_data(name, networks) for name, networks in grouped.items()]
    body = "\n".join(_section(number, name, networks) for number, (name, networks) in enumerate(sections.items()))
    runs, networks = len(histories), sum(map(len, sections.values()))
    lead = f"{counted(runs, 'run')} of {counted(networks, 'network')} on {', '.join(sections)}"
    configs = {run.folder: dataclasses.asdict(run.config) for run in histories}
    environments = {run.folder: {k: v for k, v in run.environment.items() if k != "command"} for run in histories}
    links = "".join(f'<li><a href="#data-{n}">{escape(name)}</a></li>' for n, name in enumerate(sections))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>stepnet report: {escape(lead)}</title>
<style>{_asset("page.css")}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the results</a>
<header>
<p class="brand">stepnet <span>report</span></p>
<h1>{escape(lead)}</h1>
<p class="meta">Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by stepnet {stepnet.__version__}.</p>
<nav aria-label="Sections"><ul>{links}<li><a href="#configuration">Configuration</a></li>
<li><a href="#environment">Environment</a></li><li><a href="#commands">Commands</a></li></ul></nav>
</header>
<main id="main">
{body}
{_fields("Configuration", configs)}
{_fields("Environment", environments)}
{_commands(histories)}
</main>
<noscript><p>The charts are drawn by the script inside this page; the tables need none.</p></noscript>
<script type="application/json" id="report-data">{_embedded(data)}</script>
<script>{_asset("vendor/plotly-basic.min.js")}</script>
<script>{_asset("page.js")}</script>
</body>
</html>
"""


def _section(number: int, data: str, networks: Sequence[NetworkRuns]) -> str:
    """One data set: its summary, its charts, all its runs."""
    metric = networks[0].task.metric
    controls = _CURVES.replace("METRIC", escape(str(metric)))
    charts = [_chart(number, "curves", "Training and test curves", controls, curves_words(networks))]
    words = coefficients_words(networks)
    if words:
        charts.append(_chart(number, "k", "Learned k by layer", _SLIDER, words))
    words = compression_words(networks)
    if words:
        charts.append(
            _chart(number, "compression", f"{_capital(metric)} against cost", _cost_controls(networks), words)
        )
    return f"""<section id="data-{number}" aria-labelledby="data-{number}-title">
<h2 id="data-{number}-title">{escape(data)}</h2>
{_warnings(networks)}
{_summary(data, networks)}
{"".join(charts)}
{_class_errors(data, networks)}
<details><summary>All runs on {escape(data)}</summary>{_all_runs(data, networks)}</details>
</section>"""


def _cost_controls(networks: Sequence[NetworkRuns]) -> str:
    """The choice of a cost: at first the one that sets the networks apart, as equal blocks have equal parameters."""
    costs = [network.cost for network in networks if network.cost]
    apart = {
        "parameters": {f"{cost.parameters:.2g}" for cost in costs},
        "multiply_adds": {f"{cost.multiply_adds:.2g}" for cost in costs if cost.multiply_adds},
    }
    chosen = next((name for name, values in apart.items() if len(values) > 1 or len(costs) == 1), "seconds")
    return _COST.replace(f'value="{chosen}"', f'value="{chosen}" checked')


def _chart(number: int, kind: str, title: str, controls: str, words: str) -> str:
    name = f"{kind}-{number}"
    return f"""<figure class="chart" id="{name}" data-kind="{kind}" data-section="{number}">
<h3>{title}</h3>
<div class="controls">{controls.replace("NAME", name)}</div>
<div class="plot" role="img" aria-label="{title}: {escape(words)}"></div>
<figcaption>{escape(words)} <span class="note"></span></figcaption>
<div class="actions"><button type="button" data-save="csv">Save CSV</button>
<button type="button" data-save="svg">Save SVG</button>
<details class="table"><summary>Data as a table</summary></details></div>
</figure>"""


_CURVES = """<fieldset><legend>Measure</legend>
<label><input type="radio" name="NAME-measure" value="score" checked> METRIC</label>
<label><input type="radio" name="NAME-measure" value="loss"> loss</label></fieldset>
<fieldset><legend>Over</legend>
<label><input type="radio" name="NAME-over" value="epoch" checked> epochs</label>
<label><input type="radio" name="NAME-over" value="time"> time</label></fieldset>
<fieldset><legend>Axis</legend>
<label><input type="radio" name="NAME-axis" value="linear" checked> linear</label>
<label><input type="radio" name="NAME-axis" value="log"> log</label></fieldset>"""
_COST = """<fieldset><legend>Cost</legend>
<label><input type="radio" name="NAME-cost" value="multiply_adds"> multiply-adds of one image</label>
<label><input type="radio" name="NAME-cost" value="seconds"> training time</label>
<label><input type="radio" name="NAME-cost" value="parameters"> parameters</label></fieldset>"""
_SLIDER = """<label class="slider" for="NAME-epoch">Epoch <output id="NAME-output"></output></label>
<input type="range" id="NAME-epoch" min="0" step="1">"""


def _summary(data: str, networks: Sequence[NetworkRuns]) -> str:
    """One row for each network; differences are paired, seed by seed, against the first one."""
    task, (metric, *others) = networks[0].task, networks[0].task.metrics
    unit = f" ({metric.unit})" if metric.unit else ""
    headings = ["Model", "Scheme", "Seeds", "Parameters", "Mult-adds"]
    headings += [f"{_capital(metric)}, {which} epoch{unit}" for which in ("last", "best")]
    headings += [_capital(other.heading) for other in others]
    headings += [f"Minus {networks[0].label}, paired (95 %)", f"{task.items.capitalize()}/s"]
    in_paper = any(printed_error(network) is not None for network in networks)
    headings += ["Paper (%)"] if in_paper else []
    rows = []
    for network in networks:
        cost, printed = network.cost, printed_error(network)
        rows.append(
            [
                network.label,
                network.scheme or NOTHING,
                str(len(network.counted)) + ("" if len(network.counted) == len(network.runs) else "*"),
                f"{cost.parameters:,}" if cost else NOTHING,
                short_count(cost.multiply_adds) if cost and cost.multiply_adds else NOTHING,
                _spread(network, lambda run: run.last_score),
                _spread(network, lambda run: run.best_score),
                *(_spread(network, methodcaller("last", f"test_{other.name}")) for other in others),
                _difference(network, networks[0]),
                _spread(network, lambda run: run.median(task.speed), middle=True),
                *([NOTHING if printed is None else f"{printed:.2f}"] if in_paper else []),
            ]
        )
    note = "Means ± standard deviations over the seeds of complete runs. The best epoch is chosen on the test set: "
    note += "compare by the last one. A star: not all runs of the row are complete."
    return _table(f"Summary on {data}", headings, rows) + f'<p class="note">{note}</p>'


def _class_errors(data: str, networks: Sequence[NetworkRuns]) -> str:
    """Errors by class, confusion matrix and most confident mistakes of the runs that were evaluated by class."""
    runs = [(f"{network.label}, seed {run.config.seed}", run) for network in networks for run in network.runs]
    evaluated = [(name, record) for name, run in runs if (record := run.class_errors)]
    if not evaluated:
        return ""
    parts = "".join(
        _classes_of(name, record, data, opened=number == 0) for number, (name, record) in enumerate(evaluated)
    )
    return f"<h3>Errors by class</h3>{parts}"


def _classes_of(name: str, record: ClassErrors, data: str, opened: bool) -> str:
    headings = ["Class", "Images", "Error (%)", "Wrong predictions (how often)"]
    tables = _table(f"Errors of {name}, on {data}", headings, record.rows(NOTHING), text=3)
    if len(record.classes) <= LARGEST_MATRIX:
        cells = [[label, *map(str, row)] for label, row in zip(record.classes, record.confusion, strict=False)]
        title = f"Confusion matrix of {name}, on {data}: a row for each class, a column for each prediction"
        tables += _table(title, ["Class", *record.classes], cells)
    pictures = "".join(_mistake(mistake, png) for mistake, png in zip(record.mistakes, record.pictures, strict=False))
    wrong = f'<p class="note">The most confident mistakes:</p><ul class="mistakes">{pictures}</ul>'
    inner = tables + (wrong if pictures else "")
    return f"<details{' open' if opened else ''}><summary>{escape(name)}</summary>{inner}</details>"


def _mistake(mistake: Mistake, png: str) -> str:
    """A picture with its class and the prediction; `png` is base64, or nothing is drawn."""
    words = f"{mistake.label}, predicted: {mistake.prediction} ({100 * mistake.probability:.1f} %)"
    drawn = f'<img src="data:image/png;base64,{png}" alt="">' if re.fullmatch(r"[A-Za-z0-9+/]+=*", png) else ""
    return f"<li>{drawn}<p>{escape(words)}<br><span>{escape(Path(mistake.image).name)}</span></p></li>"


def _all_runs(data: str, networks: Sequence[NetworkRuns]) -> str:
    task, metric = networks[0].task, networks[0].task.metric
    unit = f" ({metric.unit})" if metric.unit else ""
    headings = ["Run", "Model", "Seed", "Epochs", f"Test {metric}, last{unit}", f"best{unit}"]
    headings += ["Train loss", f"{task.items.capitalize()}/s", "State"]
    rows = [
        [
            str(run.folder),
            network.label,
            str(run.config.seed),
            f"{len(run.epochs)} of {run.config.recipe.epochs}",
            _figure(run.last_score, metric.digits),
            _figure(run.best_score, metric.digits),
            _figure(run.last("loss"), 4) if run.epochs else NOTHING,
            _figure(run.median(task.speed), 0),
            "complete" if run.complete else "incomplete",
        ]
        for network in networks
        for run in network.runs
    ]
    return _table(f"Runs on {data}", headings, rows)


def _warnings(networks: Sequence[NetworkRuns]) -> str:
    """What a reader must know before the figures: runs that were cut off, and values that are not finite."""
    warnings = []
    for run in (run for network in networks for run in network.runs):
        if not run.complete:
            warnings.append(f"{run.folder} is incomplete: {len(run.epochs)} of {run.config.recipe.epochs} epochs.")
        if run.broken_epochs:
            warnings.append(f"{run.folder} has values that are not finite, from epoch {run.broken_epochs[0]} on.")
    items = "".join(f"<li>{escape(line)}</li>" for line in warnings)
    return f'<ul class="warnings">{items}</ul>' if warnings else ""


def _fields(title: str, records: Mapping[Path, Mapping[str, object]]) -> str:
    """Show the fields that all runs share once, those that differ run by run; `records` are by the folder of a run."""
    by_run = {str(folder): _flat(record) for folder, record in records.items()}
    fields = list(dict.fromkeys(field for values in by_run.values() for field in values))
    alike = {field: {values.get(field, NOTHING) for values in by_run.values()} for field in fields}
    shared = [[field, *values] for field, values in alike.items() if len(values) == 1]
    different = [field for field in fields if len(alike[field]) > 1]
    parts = [_table(f"{title} of all runs", ["Field", "Value"], shared)] if shared else []
    if different:
        rows = [[folder, *(values.get(field, NOTHING) for field in different)] for folder, values in by_run.items()]
        parts.append(_table(f"{title}: where runs differ", ["Run", *different], rows))
    return _part(title.lower(), title, "\n".join(parts))


def _commands(histories: Sequence[RunHistory]) -> str:
    commands: dict[str, list[str]] = {}
    for history in histories:
        for environment in (*history.environment.get("earlier", []), history.environment):
            command = str(environment.get("command", "unknown"))
            if str(history.folder) not in commands.setdefault(command, []):
                commands[command].append(str(history.folder))
    items = "".join(
        f'<li><pre tabindex="0"><code>{escape(command)}</code></pre>'
        f'<p class="note">{counted(len(runs), "run")}: {escape(", ".join(runs))}</p></li>'
        for command, runs in commands.items()
    )
    return _part("commands", "Exact commands", f'<ol class="commands">{items}</ol>')


def _part(name: str, title: str, content: str) -> str:
    return f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>{content}</section>'


def _table(caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]], text: int = 0) -> str:
    """A table in a box of its own that scrolls, also by keyboard, where the page is narrow.

    Numbers and their headings are aligned right, but not in column `text`.
    """

    def cells(row: Sequence[str]) -> str:
        return "".join(
            f"<td{_numeric(cell) if len(row) > 2 and column != text else ''}>{escape(cell)}</td>"
            for column, cell in enumerate(row)
            if column
        )

    first = rows[0] if rows and len(rows[0]) > 2 else ()
    right = [
        column not in (0, text) and column < len(first) and bool(_numeric(first[column]))
        for column in range(len(headings))
    ]
    head = "".join(
        f'<th scope="col"{" class=number" if aligned else ""}>{escape(heading)}</th>'
        for heading, aligned in zip(headings, right, strict=True)
    )
    body = "".join(f'<tr><th scope="row">{escape(row[0])}</th>{cells(row)}</tr>' for row in rows)
    box = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
    table = f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    kind = ' class="fields"' if len(headings) == 2 else ""
    return f"{box}<table{kind}>{table}</table></div>"


def _numeric(cell: str) -> str:
    return ' class="number"' if cell[:1] in "0123456789+-−" or cell == NOTHING else ""


def _spread(network: NetworkRuns, of: Callable[[RunHistory], float], middle: bool = False) -> str:
    values = network.values(of)
    if not values:
        return "NaN" if network.counted and not math.isnan(of(network.counted[0])) else NOTHING
    if middle:
        return f"{statistics.median(values):,.0f}"
    return mean_and_deviation(values, network.task.metric.digits)


def _capital(what: object) -> str:
    text = str(what)
    return text[:1].upper() + text[1:]


def _difference(network: NetworkRuns, first: NetworkRuns) -> str:
    if network is first:
        return NOTHING
    return network.difference(first).show(network.task.metric.digits) or "no common seed"


def _figure(value: float, digits: int = 2) -> str:
    return f"{value:,.{digits}f}" if math.isfinite(value) else "NaN"


def _flat(values: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: str(value)}
    return flat


def _embedded(data: object) -> str:
    """JSON inside a script element: no text in it can end the element."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return files("stepnet.report").joinpath(name).read_text(encoding="utf-8")
