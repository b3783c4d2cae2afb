"use strict";
// Draws what drawn.py handed over, and draws it again whenever a control changes: state in, page out. Tables and bars are plain HTML,
// timelines and latencies are plotly's. Text from the runs enters the page as text nodes only, and plotly's labels through plain().
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const MOST_DRAWN = 12;
  const MOST_REPEATS = 20;
  const BEFORE_EXECUTE = "<EXECUTE";
  const BYTE_SIZES = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, kB: 1e3, MB: 1e6, GB: 1e9 };
  const TIME_SIZES = { us: 1e3, ms: 1e6, s: 1e9 };
  // As in reports/grid.py: the largest unit whose threshold the largest value reaches.
  const STEPS = {
    bytes: [
      ["GiB", 64 * 2 ** 30],
      ["MiB", 2 ** 20],
      ["KiB", 0],
    ],
    ns: [
      ["s", 1e11],
      ["ms", 1e5],
      ["us", 0],
    ],
  };
  const LATENCIES = ["time_min_ns", "time_mean_ns", "time_max_ns", "time_median_ns", "time_geomean_ns", "time_p90_ns", "time_stdev_ns"];

  const state = {
    model: 0,
    metric: "",
    unit: { bytes: "", ns: "" },
    above: false,
    peakPhase: "PEAK",
    view: "rows",
    span: "",
    repeat: "typical",
    kind: "rss",
    zoom: null,
    hidden: data.models.map(() => new Set()),
    sort: { table: null, latencies: null },
  };
  const model = () => data.models[state.model];
  const shown = () =>
    model()
      .groups.map((group, index) => ({ group, index }))
      .filter(({ index }) => !state.hidden[state.model].has(index));
  const metricOf = (name) => data.metrics.find((metric) => metric.name === name);

  // -- small tools

  const $ = (id) => document.getElementById(id);

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "style") for (const [property, text] of Object.entries(value)) made.style.setProperty(property, text);
      else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value !== undefined && value !== false) made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  const say = (text) => {
    $("said").textContent = text;
  };
  const finite = (values) => (values || []).filter((value) => value !== null);
  const sum = (values) => values.reduce((total, value) => total + value, 0);

  function median(values) {
    const ordered = [...values].sort((a, b) => a - b);
    const middle = ordered.length >> 1;
    return ordered.length % 2 ? ordered[middle] : (ordered[middle - 1] + ordered[middle]) / 2;
  }

  const farthest = (values, from) => Math.max(...values.map((value) => Math.abs(value - from)));

  // Ties go to the even digit, as in Python: `memprof table` and this page must not differ in the last place.
  function fixed(value, places) {
    const scaled = value * 10 ** places;
    const floor = Math.floor(scaled);
    return (scaled - floor === 0.5 && floor % 2 === 0 ? floor / 10 ** places : value).toFixed(places);
  }

  function number(value, beside = value) {
    const size = Math.abs(beside);
    const text = fixed(value, size >= 1000 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
    return text.startsWith("-") && !/[1-9]/.test(text) ? text.slice(1) : text;
  }

  function chooseUnit(kind, values, wanted = state.unit[kind]) {
    const sizes = { bytes: BYTE_SIZES, ns: TIME_SIZES }[kind];
    if (!sizes || !values.length) return { name: "", size: 1 };
    const largest = Math.max(0, ...values.map(Math.abs));
    const name = wanted || STEPS[kind].find(([, least]) => largest >= least)[0];
    return { name, size: sizes[name] };
  }

  const inUnit = (value, unit) => `${number(value / unit.size)} ${unit.name}`;

  // plotly reads its labels as a little HTML, and %{...} as a template; words written from right to left stay by themselves.
  function plain(text) {
    const escaped = text.replace(/\s+/g, " ").replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%/g, "&#37;");
    return /[\u0590-\u08ff\ufb1d-\ufefc]/.test(text) ? `\u2068${escaped}\u2069` : escaped;
  }

  function short(text, most) {
    const letters = [...text];
    return letters.length <= most ? text : letters.slice(0, most - 1).join("") + "…";
  }

  function tone(index) {
    return { colour: `--v${index % 7}`, dash: ["solid", "dash", "dot"][Math.floor(index / 7) % 3] };
  }

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  function faint(hex, share) {
    const [red, green, blue] = [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
    return `rgba(${red},${green},${blue},${share})`;
  }

  function swatch(index) {
    const { colour: name, dash } = tone(index);
    return element("i", { class: `swatch ${dash}`, style: { "--tone": `var(${name})` }, "aria-hidden": "true" });
  }

  // -- values

  function above(group, metric, column, values) {
    if (!state.above || !metric.has_baseline || column === "baseline") return values;
    const grounds = group.grounds[metric.name];
    return values.map((value, place) => (value === null || grounds[place] === null ? null : value - grounds[place]));
  }

  const valuesOf = (group, metric, column) => finite(above(group, metric, column, group.values[metric.name][column] || []));

  function stopped(group) {
    const [phase, word] = Object.entries(group.failed)[0] || ["", ""];
    return phase ? `it failed in ${phase === "baseline" ? "STARTUP" : phase} (${word}) and never came so far` : "it failed before";
  }

  // A cell: its value, its text, and why there is none or why it is not like the others.
  function cell(group, metric, column, unit) {
    const values = valuesOf(group, metric, column);
    if (values.length) {
      const middle = median(values);
      const inexact = metric.name === "rss_peak_bytes" && group.inexact.includes(column);
      const notes = [];
      if (values.length < group.repeats)
        notes.push(`${values.length} of ${group.repeats} repeats: ${group.failures ? `${group.failures} failed` : "the others lack it"}`);
      return {
        value: middle,
        text: (inexact ? "~" : "") + number(middle / unit.size),
        inexact,
        notes,
        spread: values.length > 1 ? "±" + number(farthest(values, middle) / unit.size, middle / unit.size) : "",
      };
    }
    if (column in group.failed) return { value: null, text: `failed (${group.failed[column]})`, spread: "", kind: "failed", notes: [] };
    return { value: null, text: "-", spread: "", kind: "absent", notes: [whyAbsent(group, metric, column)] };
  }

  function whyAbsent(group, metric, column) {
    if (column in group.failed) return `it failed there (${group.failed[column]})`;
    if (column === "PEAK" || !(column in group.values.rss_peak_bytes)) {
      if (group.failures) return stopped(group);
      return column === "PEAK" ? "it has no finished phase" : `it has no phase ${column}`;
    }
    if (metric.name.startsWith("time_")) return "the phase has no iterations";
    return metric.absent || "the system it was measured on does not say it";
  }

  // -- tables

  // table: {id, title, labels, columns, rows: [{index, labels, cells}], notes, redraw}
  function draw(host, table) {
    const sorted = sortedRows(table);
    const { marks, notes } = footnotes(sorted, table.notes);
    const beside = (one) => one.spread.length + (marks.has(one) ? 1 : 0);
    const widths = table.columns.map((_, place) => Math.max(0, ...sorted.map((row) => beside(row.cells[place]))));
    const head = element("tr", {}, ...[...table.labels, ...table.columns].map((name, place) => header(table, name, place)));
    const body = sorted.map((row) =>
      element(
        "tr",
        {},
        ...row.labels.map((text, place) =>
          element(place ? "td" : "th", place ? { class: "text" } : { scope: "row" }, label(text, place ? null : row.index)),
        ),
        ...row.cells.map((one, place) => figure(one, widths[place], marks)),
      ),
    );
    const drawn = element("table", {}, element("caption", {}, table.title), element("thead", {}, head), element("tbody", {}, ...body));
    const focused = host.contains(document.activeElement) ? document.activeElement.dataset.column : undefined;
    host.replaceChildren(
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table.title }, drawn),
      element("ul", { class: "notes" }, ...notes.map((note) => element("li", {}, note))),
    );
    if (focused !== undefined) host.querySelector(`button[data-column="${focused}"]`)?.focus();
  }

  function label(text, index) {
    return element("span", { class: "clamp", title: text.length > 60 ? text : undefined }, ...(index === null ? [] : [swatch(index), " "]), text);
  }

  function header(table, name, place) {
    const sort = state.sort[table.id];
    const direction = sort && sort.place === place ? (sort.down ? "descending" : "ascending") : "none";
    const arrow = element("span", { class: "arrow", "aria-hidden": "true" }, { none: "", ascending: "↑", descending: "↓" }[direction]);
    const onclick = () => {
      // Once up, once down, and back to the order of the file.
      state.sort[table.id] = direction === "none" ? { place, down: false } : direction === "ascending" ? { place, down: true } : null;
      table.redraw();
      say(`Sorted by ${name}: ${{ none: "ascending", ascending: "descending", descending: "the file's order" }[direction]}`);
    };
    const isText = place < table.labels.length;
    return element(
      "th",
      { scope: "col", "aria-sort": direction, class: isText ? "text" : undefined },
      element("button", { type: "button", "data-column": place, onclick }, ...(isText ? [name, " ", arrow] : [arrow, " ", name])),
    );
  }

  function figure(one, width, marks) {
    const reference = marks.get(one);
    const mark = reference ? element("sup", { title: one.notes.join("; ") }, reference) : null;
    const spread = one.spread ? element("span", { class: "spread" }, one.spread) : null;
    // What follows the number takes the same room in all cells of a column, so that numbers stand below numbers.
    return element(
      "td",
      { class: one.kind },
      one.text,
      width ? " " : null,
      width ? element("span", { class: "beside", style: { "min-width": `${width}ch` } }, spread, mark) : mark,
    );
  }

  function sortedRows(table) {
    const sort = state.sort[table.id];
    if (!sort) return table.rows;
    const labels = table.labels.length;
    const key = (row) => (sort.place < labels ? row.labels[sort.place] : row.cells[sort.place - labels].value);
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b);
    return [...table.rows].sort((one, other) => {
      const [a, b] = [key(one), key(other)];
      if (a === null || b === null) return (a === null) - (b === null);
      return sort.down ? compare(b, a) : compare(a, b);
    });
  }

  // Notes of cells get letters in the order in which they are read; alike ones share a letter.
  function footnotes(rows, general) {
    const letters = new Map();
    const marks = new Map();
    for (const row of rows)
      for (const one of row.cells) {
        if (!one.notes.length) continue;
        const text = one.notes.map((note) => `${row.name}: ${note}`).join("; ");
        if (!letters.has(text)) letters.set(text, letter(letters.size));
        marks.set(one, letters.get(text));
      }
    return { marks, notes: [...general, ...[...letters].map(([text, mark]) => `(${mark}) ${text}`)] };
  }

  const letter = (place) => (place < 26 ? "" : letter(Math.floor(place / 26) - 1)) + String.fromCharCode(97 + (place % 26));

  function markdown(table) {
    const rows = sortedRows(table);
    const { notes } = footnotes(rows, table.notes);
    const texts = [
      [...table.labels, ...table.columns],
      ...rows.map((row) => [...row.labels, ...row.cells.map((one) => [one.text, one.spread].filter(Boolean).join(" "))]),
    ].map((line) => line.map(escaped));
    const widths = texts[0].map((_, place) => Math.max(3, Math.min(40, Math.max(...texts.map((line) => line[place].length)))));
    const isLabel = (place) => place < table.labels.length;
    const lines = texts.map(
      (line) => "| " + line.map((text, place) => (isLabel(place) ? text.padEnd(widths[place]) : text.padStart(widths[place]))).join(" | ") + " |",
    );
    const rule = "| " + widths.map((width, place) => (isLabel(place) ? "-".repeat(width) : "-".repeat(width - 1) + ":")).join(" | ") + " |";
    const said = notes.map((note) => `- ${escaped(note)}`);
    return (
      [`${escaped(model().name)}: ${table.title}`, "", lines[0], rule, ...lines.slice(1), ...(said.length ? ["", ...said] : [])].join("\n") + "\n"
    );
  }

  const escaped = (text) => text.trim().replace(/\s+/g, " ").replace(/\\/g, "\\\\").replace(/\|/g, "\\|").replace(/</g, "&lt;").replace(/`/g, "\\`");

  async function copy(table) {
    const text = markdown(table);
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = element("textarea", { class: "hidden", "aria-hidden": "true" });
      area.value = text;
      document.body.append(area);
      const before = document.activeElement;
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      before?.focus();
      if (!done) {
        say("The browser does not allow copying");
        return false;
      }
    }
    say(`Copied ${table.rows.length} rows as Markdown`);
    return true;
  }

  async function copyFrom(button, table) {
    const done = await copy(table);
    button.textContent = done ? "Copied" : "Not allowed here";
    setTimeout(() => {
      button.textContent = "Copy as Markdown";
    }, 1500);
  }

  function comparison() {
    const metric = metricOf(state.metric);
    const columns = model().columns[metric.name];
    const groups = shown();
    const unit = chooseUnit(
      metric.unit,
      groups.flatMap(({ group }) => columns.flatMap((column) => valuesOf(group, metric, column))),
    );
    const rows = groups.map(({ group, index }) => ({
      index,
      name: group.label,
      labels: group.labels,
      cells: columns.map((column) => cell(group, metric, column, unit)),
    }));
    const notes = [];
    if (groups.some(({ group }) => group.repeats > 1))
      notes.push(
        "Median over the repeats, ± the distance to the farthest of them." + (metric.name === "time_ns" ? " EXECUTE: the median iteration." : ""),
      );
    if (rows.some((row) => row.cells.some((one) => one.inexact)))
      notes.push("~ not exact: no high-water mark was reset where the phase began; the true peak may be higher.");
    const over = state.above && metric.has_baseline ? " above the baseline" : "";
    return {
      id: "table",
      title: metric.title + over + (unit.name ? ` (${unit.name})` : ""),
      labels: model().label_names,
      columns,
      rows,
      notes,
      redraw: drawComparison,
    };
  }

  const drawComparison = () => draw($("table"), comparison());

  // -- peaks

  function drawPeaks() {
    const peak = metricOf("rss_peak_bytes");
    const column = state.peakPhase;
    const bars = shown()
      .slice(0, MOST_DRAWN)
      .map(({ group, index }) => bar(group, index, peak, column));
    const most = Math.max(1, ...bars.map((one) => one.high || 0));
    const unit = chooseUnit("bytes", [most]);
    const rest = shown().length - bars.length;
    const longest = (of) => Math.max(0, ...bars.filter((one) => one.middle !== undefined).map((one) => of(barText(one, unit)).length));
    $("bars").style.setProperty(
      "--short-room",
      longest(({ value, spread }) => value + spread),
    );
    $("bars").style.setProperty(
      "--room",
      longest(({ value, spread, where }) => value + spread + where),
    );
    $("bars").replaceChildren(...bars.map((one) => barRow(one, most, unit)), ...(rest > 0 ? [element("li", { class: "muted" }, tooMany(rest))] : []));
  }

  const tooMany = (rest) =>
    `${rest} more ${rest === 1 ? "is" : "are"} not drawn: hide some of the others above to see ${rest === 1 ? "it" : "them"}.`;

  function bar(group, index, peak, column) {
    const values = finite(group.values.rss_peak_bytes[column]);
    const at = column === "PEAK" ? group.peak_phase : column;
    if (!values.length) return { group, index, why: whyAbsent(group, peak, column) };
    const middle = median(values);
    const end = (name) => {
      const found = finite(group.values[name][at === "STARTUP" ? "baseline" : at]);
      return found.length ? median(found) : null;
    };
    const [anonymous, file, shared] = [end("anon_end_bytes"), end("file_end_bytes"), end("shmem_end_bytes")];
    const ground = finite(group.grounds.rss_peak_bytes);
    let parts = null;
    if (anonymous !== null && file !== null) {
      const backed = Math.min(middle, file + (shared || 0));
      const held = Math.min(middle - backed, anonymous);
      parts = { anonymous: held, file: backed, transient: Math.max(0, middle - backed - held) };
    }
    return {
      group,
      index,
      middle,
      parts,
      at,
      low: Math.min(...values),
      high: Math.max(...values),
      count: values.length,
      ground: ground.length ? median(ground) : null,
      inexact: group.inexact.includes(column),
      spread: farthest(values, middle),
    };
  }

  function barText(one, unit) {
    return {
      value: `${one.inexact ? "~" : ""}${inUnit(one.middle, unit)}`,
      spread: one.count > 1 ? ` ±${number(one.spread / unit.size, one.middle / unit.size)}` : "",
      where: one.at && state.peakPhase === "PEAK" ? ` in ${short(one.at, 20)}` : "",
    };
  }

  const NAMES = { anonymous: "anonymous", file: "file-backed", transient: "given back by its end" };

  function barRow(one, most, unit) {
    const who = element("div", { class: "who" }, label(one.group.label, one.index));
    if (one.middle === undefined) return element("li", {}, who, element("div", { class: "muted parts" }, "no figure: " + one.why));
    const share = (value) => `${(100 * value) / most}%`;
    const style = { "--tone": `var(${tone(one.index).colour})` };
    const segments = one.parts
      ? Object.entries(one.parts).map(([kind, value]) => element("span", { class: kind, style: { width: share(value) } }))
      : [element("span", { class: "anonymous", style: { width: share(one.middle) } })];
    const { value, spread, where } = barText(one, unit);
    const track = element(
      "div",
      { class: "track", style, "aria-hidden": "true" },
      ...segments,
      one.ground === null ? null : element("i", { class: "ground", style: { left: share(one.ground) } }),
      one.high - one.low > most / 250 ? element("i", { class: "range", style: { left: share(one.low), width: share(one.high - one.low) } }) : null,
      element(
        "span",
        { class: "value", style: { left: share(Math.max(one.high, one.middle)) } },
        element("b", {}, value),
        spread,
        element("span", { class: "where" }, where),
      ),
    );
    const parts = one.parts
      ? Object.entries(one.parts)
          .filter(([kind, size]) => kind !== "transient" || size >= most / 500)
          .map(([kind, size]) => `${inUnit(size, unit)} ${NAMES[kind]}`)
          .join(", ")
      : "the system does not say what it consists of";
    return element(
      "li",
      {},
      who,
      track,
      element(
        "div",
        { class: "parts" },
        element("span", { class: "hidden" }, `${value}${spread}${where}: `),
        parts,
        element("span", { class: "where", "aria-hidden": "true" }, where),
      ),
    );
  }

  // -- timelines

  const decoded = new Map();

  function columnsOf(trace) {
    if (!decoded.has(trace)) {
      const read = (text) => {
        const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
        const view = new DataView(bytes.buffer);
        return Array.from({ length: bytes.length / 4 }, (_, place) => view.getUint32(4 * place, true));
      };
      const t = read(trace.t).map((ticks) => ticks * trace.tick_ns);
      let phase = 0;
      const names = t.map((now) => {
        while (phase < trace.phases.length && now > trace.phases[phase].end_ns) phase += 1;
        return phase < trace.phases.length && now >= trace.phases[phase].begin_ns ? trace.phases[phase].name : "between phases";
      });
      decoded.set(trace, { t, rss: read(trace.rss).map((size) => size * 1024), file: read(trace.file).map((size) => size * 1024), names });
    }
    return decoded.get(trace);
  }

  // The runs of a group to draw, the first of them the one that stands for it.
  function chosen(group) {
    const ended = group.traces.filter((trace) => !trace.end);
    const ranked = [...(ended.length ? ended : group.traces)].sort((a, b) => a.peak_bytes - b.peak_bytes);
    if (state.repeat === "highest") return [ranked[ranked.length - 1]];
    const typical = ranked[(ranked.length - 1) >> 1];
    return state.repeat === "every" ? [typical, ...group.traces.filter((trace) => trace !== typical).slice(0, MOST_REPEATS - 1)] : [typical];
  }

  // Where a trace's time begins and ends on the axis: the whole of it, or one phase, which then begins at 0.
  function spanOf(trace) {
    const { t } = columnsOf(trace);
    const whole = [0, Math.max(t[t.length - 1] || 0, ...trace.phases.map((phase) => phase.end_ns), 1)];
    if (!state.span) return whole;
    if (state.span === BEFORE_EXECUTE) return [0, trace.phases.find((one) => one.name === "EXECUTE")?.begin_ns || whole[1]];
    const phase = trace.phases.find((one) => one.name === state.span);
    return phase ? [phase.begin_ns, phase.end_ns] : null;
  }

  const onePhase = () => state.span && state.span !== BEFORE_EXECUTE;
  const inSpan = (trace) =>
    trace.phases.filter((phase) => !state.span || phase.name === state.span || (state.span === BEFORE_EXECUTE && phase.name !== "EXECUTE"));

  const peakOf = (trace) => inSpan(trace).find((phase) => onePhase() || phase.name === trace.peak_phase) || null;

  // Charts are drawn one batch after another: plotly goes on for a moment after newPlot, and must find what it draws on.
  const wanted = new Set();
  let drawing = false;
  let batch = [];

  async function drawCharts(...which) {
    for (const one of which.length ? which : [timelines, latencies]) wanted.add(one);
    if (document.readyState === "loading") {
      // plotly's script stands at the end of the page, so that tables and bars need not wait for it.
      document.addEventListener("DOMContentLoaded", () => drawCharts(...which), { once: true });
      return;
    }
    if (drawing) return;
    drawing = true;
    while (wanted.size) {
      const now = [...wanted];
      wanted.clear();
      batch = [];
      for (const one of now) one();
      await Promise.all(batch);
    }
    drawing = false;
  }

  const drawTimelines = () => drawCharts(timelines);

  let charts = [];

  function timelines() {
    const groups = shown()
      .slice(0, MOST_DRAWN)
      .map(({ group, index }) => ({ group, index, traces: chosen(group) }));
    const rest = shown().length - groups.length;
    const present = groups.map((one) => ({ ...one, traces: one.traces.filter((trace) => spanOf(trace) && columnsOf(trace).t.length) }));
    const drawable = present.filter((one) => one.traces.length);
    const lengths = drawable.flatMap((one) => one.traces.map((trace) => spanOf(trace)[1] - spanOf(trace)[0]));
    const peaks = drawable.flatMap((one) =>
      one.traces.flatMap((trace) => [Math.max(...columnsOf(trace).rss), ...inSpan(trace).map((phase) => phase.peak_bytes)]),
    );
    const scale = {
      bytes: chooseUnit("bytes", peaks),
      time: Math.max(0, ...lengths) >= 2e9 ? { name: "s", size: 1e9 } : { name: "ms", size: 1e6 },
      length: Math.max(1, ...lengths) * 1.01,
      most: Math.max(1, ...(state.span ? drawable.flatMap((one) => one.traces.flatMap(highestInSpan)) : peaks)) * 1.22,
    };
    $("kind-choice").hidden = state.view === "rows";
    charts.forEach((chart) => Plotly.purge(chart));
    charts = [];
    const host = $("lines");
    if (state.view === "rows") {
      host.replaceChildren(...present.map((one) => rowFigure(one)));
      present.forEach((one, place) => {
        if (one.traces.length) drawRow(host.children[place].querySelector(".plot"), one, scale, place === lastDrawn(present));
      });
    } else {
      const plot = element("div", {
        class: "plot",
        role: "img",
        "aria-label": "Memory over time: " + drawable.map((one) => caption(one)).join("; "),
      });
      host.replaceChildren(element("figure", {}, plot));
      if (drawable.length) drawOverlay(plot, drawable, scale);
    }
    timelineLegend();
    const notes = [];
    if (rest > 0) notes.push(tooMany(rest));
    for (const { group, traces } of groups) {
      const blind = [
        ...new Set(
          traces.flatMap((trace) =>
            inSpan(trace)
              .filter((phase) => !phase.polled)
              .map((phase) => phase.name),
          ),
        ),
      ];
      if (blind.length) notes.push([group.label, blind.join(", ")]);
    }
    const pairs = notes.filter(Array.isArray);
    const texts = notes.filter((note) => !Array.isArray(note));
    if (pairs.length)
      texts.push(
        `Not polled, so that timing is not disturbed: ${blindly(pairs)}. The line is straight there, and the moment of a peak is not known.`,
      );
    texts.push("◆ the peak as the kernel counted it, at the moment of the highest sample of its phase.");
    const hint = matchMedia("(pointer: coarse)").matches
      ? "Choose a span above to look closer."
      : "Drag over a span of time to look closer, double-click to come back.";
    $("timeline-notes").replaceChildren(...texts.map((text) => element("li", {}, text)), element("li", { class: "on-screen" }, hint));
  }

  function blindly(pairs) {
    const byPhase = new Map();
    for (const [who, phase] of pairs) byPhase.set(phase, [...(byPhase.get(phase) || []), short(who, 60)]);
    return [...byPhase].map(([phase, who]) => `${phase} of ${who.join("; ")}`).join("; ");
  }

  function highestInSpan(trace) {
    const [begin, end] = spanOf(trace);
    const { t, rss } = columnsOf(trace);
    return [...inSpan(trace).map((phase) => phase.peak_bytes), ...rss.filter((_, place) => t[place] >= begin && t[place] <= end)];
  }

  const lastDrawn = (present) => present.reduce((last, one, place) => (one.traces.length ? place : last), -1);

  function caption({ group, traces }) {
    if (!traces.length) return `${group.label}: nothing to draw`;
    const unit = chooseUnit("bytes", [traces[0].peak_bytes]);
    return `${group.label}: ${captionRest(traces[0], unit)}`;
  }

  function captionRest(trace, unit) {
    const peak = peakOf(trace);
    const said = peak ? `peak ${peak.exact ? "" : "~"}${inUnit(peak.peak_bytes, unit)}${onePhase() ? "" : ` in ${peak.name}`}` : "no peak here";
    return `${said}, repeat ${trace.repeat}${trace.end ? `, ended by ${trace.end}` : ""}`;
  }

  function rowFigure({ group, index, traces }) {
    const rest = traces.length
      ? captionRest(traces[0], chooseUnit("bytes", [traces[0].peak_bytes]))
      : state.span
        ? `no finished ${state.span}`
        : "nothing was polled";
    return element(
      "figure",
      {},
      element("figcaption", {}, swatch(index), " ", short(group.label, 200), " ", element("span", { class: "muted" }, rest)),
      traces.length ? element("div", { class: "plot", role: "img", "aria-label": `Memory over time of ${group.label}: ${rest}` }) : null,
    );
  }

  function layout(scale, height, more = {}) {
    const ink = colour("--muted");
    const line = colour("--line");
    const axis = {
      color: ink,
      gridcolor: line,
      zerolinecolor: line,
      linecolor: line,
      tickfont: { size: 11 },
      fixedrange: true,
      exponentformat: "none",
      separatethousands: true,
    };
    return {
      height,
      margin: { l: 58, r: 10, t: 6, b: 42 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      showlegend: false,
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--ink") },
      hoverlabel: {
        bgcolor: colour("--panel"),
        bordercolor: line,
        font: { family: getComputedStyle(document.body).fontFamily, color: colour("--ink"), size: 12 },
        align: "left",
        namelength: -1,
      },
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      hovermode: "closest",
      separators: ". ",
      ...more,
      xaxis: { ...axis, ...more.xaxis },
      yaxis: { ...axis, ...more.yaxis },
    };
  }

  const timeRange = (scale) => state.zoom || [0, scale.length / scale.time.size];

  function timeAxes(scale, withTitle) {
    return {
      xaxis: {
        range: timeRange(scale),
        fixedrange: false,
        showgrid: false,
        showticklabels: withTitle,
        ticks: "outside",
        ticklen: 4,
        title: withTitle
          ? {
              text: onePhase() ? `${scale.time.name} since ${plain(state.span)} began` : `${scale.time.name} since the process began`,
              font: { size: 12 },
              standoff: 6,
            }
          : undefined,
      },
      yaxis: { range: [0, scale.most / scale.bytes.size], title: { text: scale.bytes.name, font: { size: 11 }, standoff: 4 }, nticks: 5 },
    };
  }

  // A trace cut to the span, in the units of the axes.
  function points(trace, scale, kind) {
    const [begin, end] = spanOf(trace);
    const { t, rss, file, names } = columnsOf(trace);
    const found = { x: [], y: [], file: [], text: [] };
    for (let place = 0; place < t.length; place += 1) {
      if (t[place] < begin || t[place] > end) continue;
      found.x.push((t[place] - begin) / scale.time.size);
      found.y.push({ rss: rss[place], file: file[place], anonymous: rss[place] - file[place] }[kind] / scale.bytes.size);
      found.file.push(file[place] / scale.bytes.size);
      found.text.push(
        `${inUnit(rss[place], scale.bytes)} RSS: ${inUnit(rss[place] - file[place], scale.bytes)} anonymous, ${inUnit(file[place], scale.bytes)} file-backed<br>${plain(names[place])}`,
      );
    }
    return found;
  }

  const HOVER = (scale) => `%{x:.4~f} ${scale.time.name}<br>%{text}`;

  function marker(trace, scale, hex, name) {
    const peak = peakOf(trace);
    if (!peak) return [];
    const [begin] = spanOf(trace);
    const text = `${peak.exact ? "" : "~"}${inUnit(peak.peak_bytes, scale.bytes)} at most in ${plain(peak.name)}`;
    return [
      {
        type: "scatter",
        mode: "markers",
        x: [(peak.at_ns - begin) / scale.time.size],
        y: [peak.peak_bytes / scale.bytes.size],
        name,
        text: [text],
        hovertemplate: "%{text}",
        marker: { symbol: "diamond", size: 9, color: hex, line: { color: colour("--page"), width: 1.5 } },
      },
    ];
  }

  function cross(trace, found, hex, name) {
    if (!trace.end || onePhase() || !found.x.length) return [];
    return [
      {
        type: "scatter",
        mode: "markers",
        x: [found.x[found.x.length - 1]],
        y: [found.y[found.y.length - 1]],
        name,
        text: [plain(trace.end)],
        hovertemplate: "ended here: %{text}",
        marker: { symbol: "x", size: 9, color: hex },
      },
    ];
  }

  function drawRow(plot, { group, index, traces }, scale, isLast) {
    const hex = colour(tone(index).colour);
    const name = plain(short(group.label, 40));
    const [first, ...others] = traces;
    const found = points(first, scale, "rss");
    const drawn = [
      ...others.map((trace) => ({
        ...points(trace, scale, "rss"),
        type: "scatter",
        mode: "lines",
        line: { color: faint(hex, 0.55), width: 1 },
        name,
        hovertemplate: `repeat ${trace.repeat}, ${HOVER(scale)}`,
      })),
      {
        type: "scatter",
        mode: "lines",
        x: found.x,
        y: found.file,
        fill: "tozeroy",
        fillcolor: faint(hex, 0.2),
        line: { color: faint(hex, 0.6), width: 1, dash: "dot" },
        hoverinfo: "skip",
      },
      {
        type: "scatter",
        mode: "lines",
        x: found.x,
        y: found.y,
        text: found.text,
        fill: "tonexty",
        fillcolor: faint(hex, 0.5),
        line: { color: hex, width: 1.5 },
        name,
        hovertemplate: HOVER(scale),
      },
      ...marker(first, scale, hex, name),
      ...cross(first, found, hex, name),
    ].map(({ file, ...one }) => one);
    const axes = timeAxes(scale, isLast);
    show(
      plot,
      drawn,
      layout(scale, isLast ? 178 : 146, {
        ...axes,
        margin: { l: 58, r: 10, t: 6, b: isLast ? 42 : 10 },
        hovermode: "x",
        ...bands(plot, first, scale, timeRange(scale)),
      }),
      first,
      scale,
    );
  }

  // Phases as shaded bands, named where their name fits.
  function bands(plot, trace, scale, [left, right]) {
    if (onePhase()) return { shapes: [], annotations: [] };
    const width = Math.max(120, plot.clientWidth - 68);
    const shapes = [];
    const annotations = [];
    trace.phases.forEach((phase, place) => {
      const [begin, end] = [phase.begin_ns / scale.time.size, phase.end_ns / scale.time.size];
      shapes.push({
        type: "rect",
        xref: "x",
        yref: "paper",
        x0: begin,
        x1: end,
        y0: 0,
        y1: 1,
        layer: "below",
        line: { width: 0 },
        fillcolor: place % 2 ? "rgba(0,0,0,0)" : colour("--band"),
      });
      shapes.push({
        type: "line",
        xref: "x",
        yref: "paper",
        x0: begin,
        x1: begin,
        y0: 0,
        y1: 1,
        layer: "below",
        line: { width: 1, color: colour("--line") },
      });
      const visible = ((Math.min(end, right) - Math.max(begin, left)) / (right - left)) * width;
      const text = short(phase.name, 30) + (phase.polled ? "" : ", not polled");
      const fitting = [text, short(phase.name, 30)].find((one) => visible >= 6.4 * one.length + 8);
      if (fitting)
        annotations.push({
          x: Math.max(begin, left),
          xref: "x",
          y: 1,
          yref: "paper",
          xanchor: "left",
          yanchor: "top",
          xshift: 3,
          showarrow: false,
          text: plain(fitting),
          font: { size: 11, color: colour("--muted") },
        });
    });
    return { shapes, annotations };
  }

  function drawOverlay(plot, drawable, scale) {
    const drawn = drawable.flatMap(({ group, index, traces }) => {
      const { colour: variable, dash } = tone(index);
      const hex = colour(variable);
      const name = plain(short(group.label, 40));
      return [
        ...traces.map((trace, place) => {
          const { x, y, text } = points(trace, scale, state.kind);
          return {
            type: "scatter",
            mode: "lines",
            x,
            y,
            text,
            name,
            line: { color: place ? faint(hex, 0.4) : hex, width: place ? 1 : 2, dash },
            hovertemplate: (traces.length > 1 ? `repeat ${trace.repeat}, ` : "") + HOVER(scale),
          };
        }),
        ...(state.kind === "rss" ? marker(traces[0], scale, hex, name) : []),
        ...cross(traces[0], points(traces[0], scale, state.kind), hex, name),
      ];
    });
    const only = drawable.length === 1 ? drawable[0].traces[0] : null;
    show(plot, drawn, layout(scale, 420, { ...timeAxes(scale, true), ...(only ? bands(plot, only, scale, timeRange(scale)) : {}) }), only, scale);
  }

  function show(plot, drawn, laidOut, trace, scale) {
    batch.push(Plotly.newPlot(plot, drawn, laidOut, { displayModeBar: false, responsive: true, showTips: false, doubleClick: "reset" }));
    charts.push(plot);
    plot.on("plotly_relayout", (change) => {
      if (zooming) return;
      const range = change["xaxis.range"] || (change["xaxis.range[0]"] !== undefined ? [change["xaxis.range[0]"], change["xaxis.range[1]"]] : null);
      if (range || change["xaxis.autorange"]) zoom(range, scale);
    });
    plot.scaled = scale;
    plot.banded = trace;
  }

  let zooming = false;

  // One chart was zoomed: all follow, and name the phases that now have room.
  function zoom(range, scale) {
    const whole = [0, scale.length / scale.time.size];
    state.zoom = range && (Math.abs(range[0] - whole[0]) > 1e-9 || Math.abs(range[1] - whole[1]) > 1e-9) ? range : null;
    zooming = true;
    Promise.all(
      charts.map((chart) =>
        Plotly.relayout(chart, {
          "xaxis.range": timeRange(scale),
          ...(chart.banded ? { annotations: bands(chart, chart.banded, scale, timeRange(scale)).annotations } : {}),
        }),
      ),
    ).finally(() => {
      zooming = false;
    });
  }

  function timelineLegend() {
    const rows = state.view === "rows";
    $("timeline-legend").replaceChildren(
      ...(rows
        ? [
            element("span", {}, element("i", { class: "key anonymous" }), " anonymous"),
            element("span", {}, element("i", { class: "key file" }), " file-backed"),
          ]
        : []),
      ...(rows
        ? []
        : shown()
            .slice(0, MOST_DRAWN)
            .map(({ group, index }) => element("span", { class: "name" }, swatch(index), " ", short(group.label, 40)))),
    );
  }

  // -- latencies

  function latencies() {
    const having = shown().filter(({ group }) => group.latencies);
    const host = $("strips");
    if (host.firstChild?.data) Plotly.purge(host.firstChild);
    $("copy-latencies").hidden = !having.length;
    document.querySelector("#latencies .legend").hidden = !having.length;
    if (!having.length) {
      host.replaceChildren(element("p", { class: "muted" }, "No variant shown here has timed iterations."));
      return;
    }
    const plot = element("div", {
      class: "plot",
      role: "img",
      "aria-label": "Latency of each iteration by variant; the table below has the figures",
    });
    host.replaceChildren(plot);
    drawStrips(plot, having.slice(0, MOST_DRAWN));
    if (having.length > MOST_DRAWN) host.append(element("p", { class: "muted" }, tooMany(having.length - MOST_DRAWN)));
  }

  function drawStrips(plot, having) {
    const unit = chooseUnit(
      "ns",
      having.map(({ group }) => group.latencies.box_ns[4]),
    );
    const letters = Math.floor(plot.clientWidth / 7.5);
    const drawn = having.flatMap(({ group, index }, place) => {
      const hex = colour(tone(index).colour);
      const { box_ns: box, points: all, count } = group.latencies;
      const [low, first, middle, third, high] = box.map((value) => value / unit.size);
      const name = plain(short(group.label, 40));
      return [
        {
          type: "box",
          orientation: "h",
          y0: -place,
          name,
          q1: [first],
          median: [middle],
          q3: [third],
          lowerfence: [low],
          upperfence: [high],
          y: [-place],
          width: 0.3,
          line: { color: hex, width: 1.5 },
          fillcolor: faint(hex, 0.2),
          hoverinfo: "skip",
        },
        {
          type: "scatter",
          mode: "markers",
          name,
          x: all.map((one) => one[2] / unit.size),
          y: all.map((_, rank) => -place + 0.22 * (((rank * 0.618034) % 1) - 0.5)),
          text: all.map(([repeat, iteration, time]) => `${inUnit(time, unit)}, repeat ${repeat}, iteration ${iteration}`),
          hovertemplate: "%{text}",
          marker: { color: hex, size: 5, opacity: all.length > 200 ? 0.35 : 0.65 },
        },
      ].map((one) => ({ ...one, meta: count }));
    });
    const annotations = having.map(({ group }, place) => {
      const said = ` ${inUnit(group.latencies.box_ns[2], unit)}`;
      return {
        x: 0,
        xref: "paper",
        y: -place + 0.34,
        yref: "y",
        xanchor: "left",
        yanchor: "middle",
        showarrow: false,
        align: "left",
        text: `${plain(short(group.label, Math.max(8, letters - said.length)))} <b>${said}</b>`,
        font: { size: 12, color: colour("--ink") },
      };
    });
    batch.push(
      Plotly.newPlot(
        plot,
        drawn,
        layout(null, 60 + 58 * having.length, {
          annotations,
          dragmode: false,
          margin: { l: 14, r: 14, t: 6, b: 42 },
          xaxis: { rangemode: "tozero", title: { text: `${unit.name} an iteration`, font: { size: 12 }, standoff: 6 }, ticks: "outside", ticklen: 4 },
          yaxis: { visible: false, range: [-having.length + 0.55, 0.5] },
        }),
        { displayModeBar: false, responsive: true },
      ),
    );
  }

  function latencyTable() {
    const found = LATENCIES.map(metricOf).filter((metric) => metric && model().columns[metric.name]?.includes("EXECUTE"));
    const having = shown().filter(({ group }) => group.latencies);
    const unit = chooseUnit(
      "ns",
      having.flatMap(({ group }) => found.flatMap((metric) => valuesOf(group, metric, "EXECUTE"))),
    );
    const rows = having.map(({ group, index }) => ({
      index,
      name: group.label,
      labels: group.labels,
      cells: found.map((metric) => cell(group, metric, "EXECUTE", unit)),
    }));
    return {
      id: "latencies",
      title: `EXECUTE, one iteration (${unit.name})`,
      labels: model().label_names,
      columns: found.map((metric) => metric.name.slice(5, -3)),
      rows,
      notes: having.some(({ group }) => group.repeats > 1)
        ? ["In the table each repeat gives one figure: the median over the repeats, ± the distance to the farthest. The boxes above are drawn over all iterations of all repeats together."]
        : [],
      redraw: drawLatencyTable,
    };
  }

  function drawLatencyTable() {
    const table = latencyTable();
    table.rows.length ? draw($("latency-table"), table) : $("latency-table").replaceChildren();
  }

  // -- controls

  function options(select, choices, selected) {
    select.replaceChildren(...choices.map(([value, text]) => element("option", { value, selected: value === selected ? "" : undefined }, text)));
    select.value = selected;
  }

  function fillMetrics() {
    const known = data.metrics.filter((metric) => model().columns[metric.name]);
    if (!known.some((metric) => metric.name === state.metric))
      state.metric = (known.find((metric) => metric.name === "rss_peak_bytes") || known[0])?.name;
    const kinds = [
      ["Memory", (one) => one.unit === "bytes" && one.name !== "read_bytes"],
      ["Time", (one) => one.unit === "ns"],
      ["Faults and reads", (one) => one.unit === "count" || one.name === "read_bytes"],
    ];
    $("metric").replaceChildren(
      ...kinds
        .map(([title, belongs]) =>
          element("optgroup", { label: title }, ...known.filter(belongs).map((one) => element("option", { value: one.name }, one.title))),
        )
        .filter((group) => group.children.length),
    );
    $("metric").value = state.metric;
  }

  function fillUnits() {
    const metric = metricOf(state.metric);
    $("above").parentElement.hidden = !metric.has_baseline;
    $("byte-unit").value = state.unit.bytes;
    $("time-unit").value = state.unit.ns;
  }

  function fillVariants() {
    const hidden = state.hidden[state.model];
    const chips = model().groups.map((group, index) => {
      const box = element("input", {
        type: "checkbox",
        onchange: () => {
          box.checked ? hidden.delete(index) : hidden.add(index);
          chip.classList.toggle("off", !box.checked);
          drawAll();
        },
      });
      box.checked = !hidden.has(index);
      const chip = element(
        "label",
        { class: `chip${hidden.has(index) ? " off" : ""}`, title: group.label.length > 24 ? group.label : undefined },
        box,
        swatch(index),
        element("span", { class: "name" }, group.label),
      );
      return chip;
    });
    const all = (visible) => () => {
      model().groups.forEach((_, index) => (visible ? hidden.delete(index) : hidden.add(index)));
      fillVariants();
      drawAll();
      $("variants")
        .querySelector(visible ? ".all" : ".none")
        .focus();
    };
    const buttons =
      model().groups.length > 3
        ? [
            element("button", { type: "button", class: "plain-button all", onclick: all(true) }, "All"),
            element("button", { type: "button", class: "plain-button none", onclick: all(false) }, "None"),
          ]
        : [];
    $("variants").replaceChildren(element("legend", { class: "hidden" }, "Variants shown"), ...chips, ...buttons);
    $("variants").hidden = model().groups.length < 2;
  }

  function fillPhases() {
    const columns = (model().columns.rss_peak_bytes || []).filter(
      (name) => name !== "baseline" && model().groups.some((group) => group.values.rss_peak_bytes[name]),
    );
    if (!columns.includes(state.peakPhase)) state.peakPhase = columns[columns.length - 1] || "PEAK";
    options(
      $("peak-phase"),
      [...columns].reverse().map((name) => [name, name === "PEAK" ? "the highest of all" : name]),
      state.peakPhase,
    );
    const named = model().phases.filter((name) =>
      model().groups.some((group) => group.traces.some((trace) => trace.phases.some((phase) => phase.name === name))),
    );
    if (![...named, BEFORE_EXECUTE].includes(state.span)) state.span = "";
    options(
      $("span"),
      [["", "the whole run"], ...(named.includes("EXECUTE") ? [[BEFORE_EXECUTE, "up to EXECUTE"]] : []), ...named.map((name) => [name, name])],
      state.span,
    );
  }

  // The bar of controls stays in sight where it takes little of it.
  function settle() {
    const bar = $("controls");
    bar.classList.toggle("sticky", bar.offsetHeight <= 96 && innerHeight >= 640);
    root.style.scrollPaddingTop = bar.classList.contains("sticky") ? `${bar.offsetHeight + 12}px` : "0";
  }

  function drawAll() {
    drawComparison();
    drawPeaks();
    drawLatencyTable();
    drawCharts();
  }

  function showModel(index) {
    Object.assign(state, { model: index, zoom: null, sort: { table: null, latencies: null } });
    if ($("model")) $("model").value = String(index);
    document
      .querySelectorAll("[data-finding]")
      .forEach((one) => one.classList.toggle("current", data.models.length > 1 && Number(one.dataset.finding) === index));
    document.querySelectorAll("[data-model]").forEach((one) => {
      one.hidden = Number(one.dataset.model) !== index;
    });
    document.querySelectorAll(".of-model").forEach((one) => {
      one.textContent = data.models.length > 1 ? `of ${short(model().name, 60)}` : "";
    });
    fillVariants();
    fillMetrics();
    fillUnits();
    fillPhases();
    state.view = model().groups.length <= 4 ? "rows" : state.view;
    settle();
    drawAll();
  }

  function setTheme(name) {
    root.dataset.theme = name;
    $("theme").textContent = name === "dark" ? "Light theme" : "Dark theme";
    drawCharts();
  }

  function connect() {
    const on = (id, act, draws) =>
      $(id).addEventListener("change", (event) => {
        act(event.target);
        draws();
      });
    const units = () => {
      fillUnits();
      drawAll();
    };
    on(
      "metric",
      (select) => {
        state.metric = select.value;
        state.sort.table = null;
        fillUnits();
      },
      drawComparison,
    );
    on(
      "byte-unit",
      (select) => {
        state.unit.bytes = select.value;
      },
      units,
    );
    on(
      "time-unit",
      (select) => {
        state.unit.ns = select.value;
      },
      units,
    );
    on(
      "above",
      (box) => {
        state.above = box.checked;
      },
      drawComparison,
    );
    on(
      "peak-phase",
      (select) => {
        state.peakPhase = select.value;
      },
      drawPeaks,
    );
    on(
      "view",
      (select) => {
        state.view = select.value;
      },
      drawTimelines,
    );
    on(
      "span",
      (select) => {
        state.span = select.value;
        state.zoom = null;
      },
      drawTimelines,
    );
    on(
      "repeat",
      (select) => {
        state.repeat = select.value;
        state.zoom = null;
      },
      drawTimelines,
    );
    on(
      "kind",
      (select) => {
        state.kind = select.value;
      },
      drawTimelines,
    );
    $("copy").addEventListener("click", (event) => copyFrom(event.target, comparison()));
    $("copy-latencies").addEventListener("click", (event) => copyFrom(event.target, latencyTable()));
    $("reset").addEventListener("click", () => {
      state.zoom = null;
      drawTimelines();
    });
    if ($("model"))
      on(
        "model",
        (select) => showModel(Number(select.value)),
        () => {},
      );
    document.querySelectorAll("[data-show]").forEach((button) =>
      button.addEventListener("click", () => {
        showModel(Number(button.dataset.show));
        $("model").focus();
      }),
    );
    let chosenTheme = false;
    $("theme").addEventListener("click", () => {
      chosenTheme = true;
      setTheme(root.dataset.theme === "dark" ? "light" : "dark");
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
      if (!chosenTheme) setTheme(event.matches ? "dark" : "light");
    });
    addEventListener("resize", settle);
    printing();
  }

  // Paper is light, narrow, and cannot be unfolded.
  function printing() {
    let before = null;
    addEventListener("beforeprint", () => {
      before = { theme: root.dataset.theme, folded: [...document.querySelectorAll("details:not([open])")] };
      before.folded.forEach((one) => {
        one.open = true;
      });
      document.body.style.width = "680px";
      setTheme("light");
    });
    addEventListener("afterprint", () => {
      if (!before) return;
      document.body.style.width = "";
      before.folded.forEach((one) => {
        one.open = false;
      });
      setTheme(before.theme);
      before = null;
    });
  }

  root.classList.add("scripted");
  if (data.models.length) {
    connect();
    state.view = data.models[0].groups.length <= 4 ? "rows" : "overlay";
    $("view").value = state.view;
    showModel(0);
    $("theme").textContent = root.dataset.theme === "dark" ? "Light theme" : "Dark theme";
  }
})();
