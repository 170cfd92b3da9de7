"use strict";
// Draws the charts of the report from the data in the page; every control is a plain form element.
(() => {
  const sections = JSON.parse(document.getElementById("report-data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  // Okabe and Ito's colours, distinguishable by the colour-blind; those too faint on the ground are left out.
  const COLOURS = {
    light: ["#0072b2", "#d55e00", "#007f5f", "#b0578d", "#1c2430", "#8a6d00"],
    dark: ["#56b4e9", "#e69f00", "#2fd0a3", "#e39ac5", "#f0e442", "#e6e9ee"],
  };
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "star", "cross", "triangle-down"];
  const MOST_NAMES = 12; // a longer legend hides the chart
  const TABLE_ROWS = 1000;

  const colour = (n) => COLOURS[dark.matches ? "dark" : "light"][n % 6];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Names come from run folders of strangers: plotly would make links and line breaks of the tags in them.
  const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll("%{", "%&#123;");
  const cell = (value) => (value === null || value === undefined ? "" : value);

  function layout(x, y, more) {
    const axis = {
      gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--line"), automargin: true,
    };
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: css("--ink"), family: "system-ui, sans-serif", size: 13 },
      margin: { l: 10, r: 10, t: 10, b: 10 },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
      hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink") }, namelength: -1 },
      xaxis: { ...axis, title: { text: x } }, yaxis: { ...axis, title: { text: y } },
      ...more,
    };
  }

  const checked = (figure, what) => figure.querySelector(`input[name="${figure.id}-${what}"]:checked`).value;
  const whole = (most) => ({ tickformat: "d", dtick: most < 13 ? 1 : undefined, range: [0.5, most + 0.5] });
  const numbers = (count) => Array.from({ length: count }, (_, n) => n + 1);

  const charts = {
    curves: {
      draw(figure, section) {
        const measure = checked(figure, "measure");
        const timed = checked(figure, "over") === "time";
        const xs = (elapsed, count) => (timed ? elapsed.slice(0, count) : numbers(count));
        const traces = [];
        section.networks.forEach((label, network) => {
          const runs = section.runs.filter((run) => run.network === network && run.loss.length);
          const common = { mode: "lines", legendgroup: label, hovertemplate: "%{y:.3~f}<extra>%{fullData.name}</extra>" };
          for (const [name, words, dash] of [[`test_${measure}`, "test", "solid"], [measure, "training", "dot"]]) {
            if (runs.length > 1) {
              for (const run of runs) traces.push({
                ...common, x: xs(run.elapsed, run[name].length), y: run[name], name: `${plain(label)}, seed ${run.seed}, ${words}`,
                line: { color: colour(network), width: 1, dash }, opacity: 0.4, showlegend: false, hoverinfo: "skip",
                hovertemplate: undefined,
              });
            }
            const mean = meanOf(runs.map((run) => run[name]));
            traces.push({
              ...common, mode: mean.length < 2 ? "markers" : "lines", x: xs(meanOf(runs.map((run) => run.elapsed)), mean.length), y: mean,
              name: `${plain(label)}, ${words}`, showlegend: words === "test" && section.networks.length <= MOST_NAMES,
              line: { color: colour(network), width: 2.5, dash },
              marker: { color: colour(network), size: 8, symbol: words === "test" ? "circle" : "circle-open" },
            });
          }
        });
        const unit = measure === "score" ? section.metric.heading : "loss";
        const log = checked(figure, "axis") === "log";
        note(figure, "Solid: test. Dotted: training, as measured while the epoch ran. Thin: single seeds.", section);
        const epochs = whole(Math.max(...section.runs.map((run) => run.loss.length)));
        const x = timed ? "seconds of training" : "epoch";
        return [traces, layout(x, unit, {
          xaxis: { ...layout(x).xaxis, ...(timed ? { rangemode: "tozero" } : epochs) },
          yaxis: { ...layout("", unit).yaxis, type: log ? "log" : "linear", rangemode: log ? "normal" : "tozero" },
        })];
      },
      rows(section) {
        const names = ["score", "test_score", "loss", "test_loss"], { name: metric } = section.metric;
        const rows = [["network", "seed", "run", "epoch", metric, `test_${metric}`, "loss", "test_loss"]];
        for (const run of section.runs) run.loss.forEach((_, n) => rows.push(
          [section.networks[run.network], run.seed, run.folder, n + 1, ...names.map((name) => run[name][n])]));
        return rows;
      },
    },
    k: {
      draw(figure, section) {
        const { epochs, runs, band } = section.k;
        const slider = figure.querySelector("input[type=range]");
        const stop = Number(slider.value);
        const seen = new Set(), names = [...new Set(runs.map((found) => found.name))];
        const several = names.length > 1;
        const traces = runs.map((found) => {
          const run = section.runs[found.run], network = section.networks[run.network];
          const label = several ? `${network}, ${found.name}` : network;
          const place = several ? run.network + section.networks.length * names.indexOf(found.name) : run.network;
          const first = !seen.has(label);
          seen.add(label);
          return {
            x: found.places, y: found.values[stop], customdata: found.layers.map(plain), mode: "lines+markers",
            name: plain(label), legendgroup: label,
            showlegend: first && section.networks.length * names.length <= MOST_NAMES,
            line: { color: colour(place), width: 1.5 },
            marker: { color: colour(place), size: 7, symbol: SYMBOLS[place % SYMBOLS.length] },
            hovertemplate: `layer %{x} (%{customdata})<br>${plain(found.name)} = %{y:.4f}<extra>${plain(label)}, seed ${run.seed}</extra>`,
          };
        });
        // one scale for all epochs, so that the slider shows movement and not a moving axis
        const values = runs.flatMap((found) => found.values.flat()).filter((k) => k !== null);
        const low = Math.min(band ? band[0] : 0, ...[values.reduce((a, b) => Math.min(a, b), 0)]);
        const high = Math.max(band ? band[1] : 0, ...[values.reduce((a, b) => Math.max(a, b), 0)]);
        const air = 0.07 * (high - low || 1);
        const shapes = band ? [{
          type: "rect", xref: "paper", x0: 0, x1: 1, y0: band[0], y1: band[1], fillcolor: css("--band"),
          line: { width: 0 }, layer: "below",
        }] : [];
        note(figure, band ? `Shaded: zero-stable, ${band[0]} < k ≤ ${band[1]}.` : "", section);
        const unit = several ? "coefficient" : plain(names[0]);
        return [traces, layout("layer, in order of depth", unit, {
          shapes, yaxis: { ...layout("", unit).yaxis, range: [low - air, high + air] },
          xaxis: { ...layout("layer, in order of depth").xaxis,
            ...whole(Math.max(...runs.flatMap((found) => found.places))) },
        })];
      },
      rows(section) {
        const rows = [["network", "seed", "run", "epoch", "layer", "name", "k"]];
        for (const found of section.k.runs) section.k.epochs.forEach((epoch, stop) => {
          const run = section.runs[found.run];
          const of = found.name === "k" ? "" : `:${found.name}`;
          found.layers.forEach((name, n) => rows.push(
            [section.networks[run.network], run.seed, run.folder, epoch, found.places[n], name + of, found.values[stop][n]]));
        });
        return rows;
      },
    },
    compression: {
      draw(figure, section) {
        const cost = checked(figure, "cost"), words = { multiply_adds: "multiply-adds", seconds: "seconds of training" }[cost] || cost;
        const families = [...new Set(section.paper.map((point) => point.family))];
        const traces = families.map((family, n) => {
          const points = section.paper.filter((point) => point.family === family && point[cost]);
          return {
            x: points.map((point) => point[cost]), y: points.map((point) => point.score),
            customdata: points.map((point) => point.label), name: `${family}, paper`,
            mode: points.length > 1 && family !== "FractalNet" ? "lines+markers" : "markers",
            line: { color: css("--quiet"), width: 1, dash: n % 2 ? "dash" : "dot" },
            marker: { symbol: `${SYMBOLS[n % 5]}-open`, size: 9, color: css("--quiet"), line: { width: 1.5 } },
            hovertemplate: `%{customdata}<br>%{x:.3s} ${words}, %{y:.2f} %<extra>the paper</extra>`,
          };
        });
        section.ours.forEach((point) => {
          const network = section.networks.indexOf(point.label);
          traces.push({
            x: [point[cost]], y: [point.score], name: plain(point.label), mode: "markers",
            error_y: { type: "data", array: [point.deviation], visible: point.deviation !== null, color: colour(network) },
            marker: { color: colour(network), size: 12, symbol: SYMBOLS[network % SYMBOLS.length] },
            showlegend: section.networks.length <= MOST_NAMES,
            hovertemplate: `%{x:.4s} ${words}, %{y:.4~g} (${point.seeds} seed${point.seeds > 1 ? "s" : ""})` +
              "<extra>%{fullData.name}</extra>",
          });
        });
        note(figure, "Filled: these runs, mean and standard deviation. " +
          (families.length ? "Open: as the paper prints them." : ""), section);
        const spread = [...section.ours, ...section.paper].map((point) => point[cost]).filter((value) => value);
        const [least, most] = [Math.min(...spread), Math.max(...spread)];
        const wide = most > 1.5 * least;
        return [traces, layout(words, `test ${section.metric.heading}`, {
          xaxis: { ...layout(words).xaxis, type: wide ? "log" : "linear", tickformat: ".3~s",
            ...(wide ? { dtick: "D2" } : { nticks: 5, range: [0.9 * least, 1.1 * most] }) },
        })];
      },
      rows(section) {
        return [["network", "parameters", "multiply_adds", "seconds", `test_${section.metric.name}`, "deviation", "seeds", "source"],
          ...section.ours.map((p) => [p.label, p.parameters, p.multiply_adds, p.seconds, p.score, p.deviation, p.seeds, "these runs"]),
          ...section.paper.map((p) => [p.label, p.parameters, p.multiply_adds, null, p.score, null, null, "the paper"])];
      },
    },
  };

  function note(figure, text, section) {
    const many = section.networks.length > MOST_NAMES ? " Names: point at a line, or see the table." : "";
    figure.querySelector("figcaption .note").textContent = text + many;
  }

  function meanOf(series) {
    const length = Math.max(0, ...series.map((values) => values.length));
    return numbers(length).map((epoch) => {
      const known = series.map((values) => values[epoch - 1]).filter((value) => value !== undefined);
      return known.length && known.every((value) => value !== null)
        ? known.reduce((a, b) => a + b, 0) / known.length : null;
    });
  }

  function save(name, type, content) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // A spreadsheet takes text that begins like this for a formula; the apostrophe keeps it text.
  const unformulated = (value) => (typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : value);
  const quoted = (value) => (/[",\r\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const csv = (rows) =>
    rows.map((row) => row.map((value) => quoted(unformulated(cell(value)))).join(",")).join("\n") + "\n";

  function fillTable(details, rows) {
    const box = document.createElement("div");
    Object.assign(box, { className: "scroll", tabIndex: 0 });
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "The chart's data");
    const table = box.appendChild(document.createElement("table"));
    rows.slice(0, TABLE_ROWS + 1).forEach((row, n) => {
      const line = table.insertRow();
      for (const value of row) {
        const field = line.appendChild(document.createElement(n ? "td" : "th"));
        if (!n) field.scope = "col";
        if (typeof value === "number") field.className = "number";
        field.textContent = cell(value);
      }
    });
    details.append(box);
    if (rows.length > TABLE_ROWS + 1) details.append(`The first ${TABLE_ROWS} of ${rows.length - 1} rows; all are in the CSV.`);
  }

  function start(figure) {
    const section = sections[figure.dataset.section], chart = charts[figure.dataset.kind];
    const plot = figure.querySelector(".plot");
    const slider = figure.querySelector("input[type=range]");
    if (slider) {
      slider.max = section.k.epochs.length - 1;
      slider.value = slider.max;
      slider.disabled = section.k.epochs.length < 2;
    }
    const draw = () => {
      if (slider) {
        const shown = `${section.k.epochs[slider.value]} of ${section.k.epochs.at(-1)}`;
        figure.querySelector("output").textContent = shown;
        slider.setAttribute("aria-valuetext", `epoch ${shown}`);
      }
      const [traces, shape] = chart.draw(figure, section);
      return Plotly.react(plot, traces, shape, { displayModeBar: false, responsive: true });
    };
    figure.addEventListener("input", (event) => { if (event.target.matches("input")) draw(); });
    dark.addEventListener("change", draw);
    figure.addEventListener("click", async (event) => {
      const name = `${figure.dataset.kind}-${section.data}`;
      if (event.target.dataset.save === "csv") save(`${name}.csv`, "text/csv", csv(chart.rows(section)));
      if (event.target.dataset.save === "svg") {
        const url = await Plotly.toImage(plot, { format: "svg", width: plot.clientWidth, height: plot.clientHeight });
        save(`${name}.svg`, "image/svg+xml", decodeURIComponent(url.slice(url.indexOf(",") + 1)));
      }
    });
    const details = figure.querySelector("details.table");
    details.addEventListener("toggle", () => {
      if (details.open && details.childElementCount === 1) fillTable(details, chart.rows(section));
    });
    return draw();
  }

  // one chart at a time, so that the tables can be read and scrolled meanwhile
  (async () => {
    for (const figure of document.querySelectorAll("figure.chart")) {
      await start(figure);
      await new Promise((next) => setTimeout(next));
    }
    document.documentElement.dataset.ready = "yes";
  })();
})();
