"use strict";
// Draws the figures of drawn.py, and draws them again whenever a control changes: state in, page out. Tables and bars are plain HTML,
// timelines and latencies are charts of common.js. Text from the runs enters the page only as text nodes and canvas text.
(() => {
  const { TONES, root, $, element, say, unpacked, unitOf, colour, mixed, coarse, chart, theming } = memprof;
  const data = memprof.data();
  const MOST_DRAWN = 12;
  const MOST_REPEATS = 20;
  const BEFORE_EXECUTE = "<EXECUTE";

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
    const text = fixed(value, data.places.find(([least]) => size >= least)[1]);
    return text.startsWith("-") && !/[1-9]/.test(text) ? text.slice(1) : text;
  }

  function chooseUnit(kind, values, wanted = state.unit[kind]) {
    return values.length ? unitOf(data.units, kind, Math.max(0, ...values.map(Math.abs)), wanted) : { name: "", size: 1 };
  }

  const inUnit = (value, unit) => `${number(value / unit.size)} ${unit.name}`;

  function short(text, most) {
    const letters = [...text];
    return letters.length <= most ? text : letters.slice(0, most - 1).join("") + "…";
  }

  function tone(index) {
    return { colour: `--v${index % TONES}`, dash: ["solid", "dash", "dot"][Math.floor(index / TONES) % 3] };
  }

  const DASHES = { solid: [], dash: [8, 4], dot: [2, 3] };
  const faint = (hex, share) => mixed(hex, colour("--page"), share);

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

  // What stands before a peak that is not exact: its first note begins with that.
  const sign = (notes) => (notes && notes.length ? notes[0][0] : "");

  // A cell: its value, its text, and notes on why it is empty or stands for fewer repeats.
  function cellOf(group, metric, column, unit) {
    const values = valuesOf(group, metric, column);
    if (values.length) {
      const middle = median(values);
      const inexact = (metric.name === "rss_peak_bytes" && group.inexact[column]) || [];
      const notes = [];
      if (values.length < group.repeats)
        notes.push(`${values.length} of ${group.repeats} repeats: ${group.failures ? `${group.failures} failed` : "the others lack it"}`);
      return {
        value: middle,
        text: sign(inexact) + number(middle / unit.size),
        inexact,
        notes,
        spread: values.length > 1 ? "±" + number(farthest(values, middle) / unit.size, middle / unit.size) : "",
      };
    }
    if (column in group.failed) return { value: null, text: `failed (${group.failed[column]})`, spread: "", kind: "failed", notes: [] };
    return { value: null, text: "-", spread: "", kind: "absent", notes: [whyAbsent(group, metric, column)] };
  }

  const whyAbsent = (group, metric, column) =>
    column in group.failed ? `it failed there (${group.failed[column]})` : group.absent[metric.name][column] || "";

  // -- tables

  // table: {id, title, labels, columns, rows: [{index, labels, cells}], notes, redraw}
  function draw(host, table) {
    const sorted = sortedRows(table);
    const { references, notes } = footnotes(sorted, table.notes);
    const beside = (cell) => cell.spread.length + (references.has(cell) ? 1 : 0);
    const widths = table.columns.map((_, place) => Math.max(0, ...sorted.map((row) => beside(row.cells[place]))));
    const head = element("tr", {}, ...[...table.labels, ...table.columns].map((name, place) => header(table, name, place)));
    const body = sorted.map((row) =>
      element(
        "tr",
        {},
        ...row.labels.map((text, place) =>
          element(place ? "td" : "th", place ? { class: "text" } : { scope: "row" }, label(text, place ? null : row.index)),
        ),
        ...row.cells.map((cell, place) => tableCell(cell, widths[place], references)),
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

  function tableCell(cell, width, references) {
    const reference = references.get(cell);
    const mark = reference ? element("sup", { title: cell.notes.join("; ") }, reference) : null;
    const spread = cell.spread ? element("span", { class: "spread" }, cell.spread) : null;
    // The text behind a number takes the same room in all cells of a column, so that numbers stand below numbers.
    return element(
      "td",
      { class: cell.kind },
      cell.text,
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
    return [...table.rows].sort((row, next) => {
      const [a, b] = [key(row), key(next)];
      if (a === null || b === null) return (a === null) - (b === null);
      return sort.down ? compare(b, a) : compare(a, b);
    });
  }

  // Notes of cells get letters in the order of reading; equal notes share a letter.
  function footnotes(rows, general) {
    const letters = new Map();
    const references = new Map();
    for (const row of rows)
      for (const cell of row.cells) {
        if (!cell.notes.length) continue;
        const text = cell.notes.map((note) => `${row.name}: ${note}`).join("; ");
        if (!letters.has(text)) letters.set(text, letter(letters.size));
        references.set(cell, letters.get(text));
      }
    return { references, notes: [...general, ...[...letters].map(([text, mark]) => `(${mark}) ${text}`)] };
  }

  const letter = (place) => (place < 26 ? "" : letter(Math.floor(place / 26) - 1)) + String.fromCharCode(97 + (place % 26));

  function markdown(table) {
    const rows = sortedRows(table);
    const { notes } = footnotes(rows, table.notes);
    const texts = [
      [...table.labels, ...table.columns],
      ...rows.map((row) => [...row.labels, ...row.cells.map((cell) => [cell.text, cell.spread].filter(Boolean).join(" "))]),
    ].map((line) => line.map(escaped));
    const widths = texts[0].map((_, place) => Math.max(3, Math.min(40, Math.max(...texts.map((line) => line[place].length)))));
    const isLabel = (place) => place < table.labels.length;
    const lines = texts.map(
      (line) => "| " + line.map((text, place) => (isLabel(place) ? text.padEnd(widths[place]) : text.padStart(widths[place]))).join(" | ") + " |",
    );
    const rule = "| " + widths.map((width, place) => (isLabel(place) ? "-".repeat(width) : "-".repeat(width - 1) + ":")).join(" | ") + " |";
    const items = notes.map((note) => `- ${escaped(note)}`);
    return (
      [`${escaped(model().name)}: ${table.title}`, "", lines[0], rule, ...lines.slice(1), ...(items.length ? ["", ...items] : [])].join("\n") + "\n"
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
      cells: columns.map((column) => cellOf(group, metric, column, unit)),
    }));
    const notes = [];
    if (groups.some(({ group }) => group.repeats > 1)) notes.push(model().spread);
    notes.push(...new Set(rows.flatMap((row) => row.cells.flatMap((cell) => cell.inexact || []))));
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
      .map(({ group, index }) => barOf(group, index, peak, column));
    const most = Math.max(1, ...bars.map((bar) => bar.high || 0));
    const unit = chooseUnit("bytes", [most]);
    const undrawn = shown().length - bars.length;
    const longest = (of) => Math.max(0, ...bars.filter((bar) => bar.middle !== undefined).map((bar) => of(barText(bar, unit)).length));
    $("bars").style.setProperty(
      "--short-room",
      longest(({ value, spread }) => value + spread),
    );
    $("bars").style.setProperty(
      "--room",
      longest(({ value, spread, where }) => value + spread + where),
    );
    $("bars").replaceChildren(...bars.map((bar) => barRow(bar, most, unit)), ...(undrawn > 0 ? [element("li", { class: "muted" }, tooMany(undrawn))] : []));
  }

  const tooMany = (count) =>
    `${count} more ${count === 1 ? "is" : "are"} not drawn: hide some of the others above to see ${count === 1 ? "it" : "them"}.`;

  function barOf(group, index, peak, column) {
    const values = finite(group.values.rss_peak_bytes[column]);
    const at = column === "PEAK" ? group.peak_phase : column;
    if (!values.length) return { group, index, why: whyAbsent(group, peak, column) };
    const middle = median(values);
    const end = (name) => {
      const values = finite(group.values[name][at === "STARTUP" ? "baseline" : at]);
      return values.length ? median(values) : null;
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
      sign: sign(group.inexact[column]),
      spread: farthest(values, middle),
    };
  }

  function barText(bar, unit) {
    return {
      value: `${bar.sign}${inUnit(bar.middle, unit)}`,
      spread: bar.count > 1 ? ` ±${number(bar.spread / unit.size, bar.middle / unit.size)}` : "",
      where: bar.at && state.peakPhase === "PEAK" ? ` in ${short(bar.at, 20)}` : "",
    };
  }

  const NAMES = { anonymous: "anonymous", file: "file-backed", transient: "given back by its end" };

  function barRow(bar, most, unit) {
    const who = element("div", { class: "who" }, label(bar.group.label, bar.index));
    if (bar.middle === undefined) return element("li", {}, who, element("div", { class: "muted parts" }, "no figure: " + bar.why));
    const share = (value) => `${(100 * value) / most}%`;
    const style = { "--tone": `var(${tone(bar.index).colour})` };
    const segments = bar.parts
      ? Object.entries(bar.parts).map(([kind, value]) => element("span", { class: kind, style: { width: share(value) } }))
      : [element("span", { class: "anonymous", style: { width: share(bar.middle) } })];
    const { value, spread, where } = barText(bar, unit);
    const track = element(
      "div",
      { class: "track", style, "aria-hidden": "true" },
      ...segments,
      bar.ground === null ? null : element("i", { class: "ground", style: { left: share(bar.ground) } }),
      bar.high - bar.low > most / 250 ? element("i", { class: "range", style: { left: share(bar.low), width: share(bar.high - bar.low) } }) : null,
      element(
        "span",
        { class: "value", style: { left: share(Math.max(bar.high, bar.middle)) } },
        element("b", {}, value),
        spread,
        element("span", { class: "where" }, where),
      ),
    );
    const parts = bar.parts
      ? Object.entries(bar.parts)
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
      const read = (text, size) => Float64Array.from(unpacked(text, Uint32Array), (value) => value * size);
      decoded.set(trace, { t: read(trace.t, trace.tick_ns), rss: read(trace.rss, 1024), file: read(trace.file, 1024) });
    }
    return decoded.get(trace);
  }

  function phaseAt(trace, t_ns) {
    const phase = trace.phases.find(({ end_ns }) => t_ns <= end_ns);
    return phase && t_ns >= phase.begin_ns ? phase.name : "between phases";
  }

  // The runs of a group to draw; the first stands for the group.
  function chosen(group) {
    const ended = group.traces.filter((trace) => !trace.end);
    const ranked = [...(ended.length ? ended : group.traces)].sort((a, b) => a.peak_bytes - b.peak_bytes);
    if (state.repeat === "highest") return [ranked[ranked.length - 1]];
    const typical = ranked[(ranked.length - 1) >> 1];
    return state.repeat === "every" ? [typical, ...group.traces.filter((trace) => trace !== typical).slice(0, MOST_REPEATS - 1)] : [typical];
  }

  // The begin and end of a trace on the axis: all of it, or a phase, which then begins at 0.
  function spanOf(trace) {
    const { t } = columnsOf(trace);
    const whole = [0, Math.max(t[t.length - 1] || 0, ...trace.phases.map((phase) => phase.end_ns), 1)];
    if (!state.span) return whole;
    if (state.span === BEFORE_EXECUTE) return [0, trace.phases.find(({ name }) => name === "EXECUTE")?.begin_ns || whole[1]];
    const phase = trace.phases.find(({ name }) => name === state.span);
    return phase ? [phase.begin_ns, phase.end_ns] : null;
  }

  const onePhase = () => state.span && state.span !== BEFORE_EXECUTE;
  const inSpan = (trace) =>
    trace.phases.filter((phase) => !state.span || phase.name === state.span || (state.span === BEFORE_EXECUTE && !["EXECUTE", "RELEASE"].includes(phase.name)));

  const peakOf = (trace) => inSpan(trace).find((phase) => onePhase() || phase.name === trace.peak_phase) || null;

  let charts = [];

  function drawTimelines() {
    const groups = shown()
      .slice(0, MOST_DRAWN)
      .map(({ group, index }) => ({ group, index, traces: chosen(group) }));
    const undrawn = shown().length - groups.length;
    const present = groups.map((row) => ({ ...row, traces: row.traces.filter((trace) => spanOf(trace) && columnsOf(trace).t.length) }));
    const drawable = present.filter((row) => row.traces.length);
    const lengths = drawable.flatMap((row) => row.traces.map((trace) => spanOf(trace)[1] - spanOf(trace)[0]));
    const peaks = drawable.flatMap((row) =>
      row.traces.flatMap((trace) => [highest(columnsOf(trace).rss), ...inSpan(trace).map((phase) => phase.peak_bytes)]),
    );
    const scale = {
      bytes: chooseUnit("bytes", peaks),
      time: Math.max(0, ...lengths) >= 2e9 ? { name: "s", size: 1e9 } : { name: "ms", size: 1e6 },
      length: Math.max(1, ...lengths) * 1.01,
      most: Math.max(1, ...(state.span ? drawable.flatMap((row) => row.traces.flatMap(highestInSpan)) : peaks)) * 1.22,
    };
    $("kind-choice").hidden = state.view === "rows";
    charts.forEach((drawn) => drawn.remove());
    charts = [];
    const host = $("lines");
    if (state.view === "rows") {
      host.replaceChildren(...present.map((row) => rowFigure(row)));
      present.forEach((row, place) => {
        if (row.traces.length) drawRow(host.children[place].querySelector(".plot"), row, scale, place === lastDrawn(present));
      });
    } else {
      const plot = element("div", {
        class: "plot",
        role: "img",
        "aria-label": "Memory over time: " + drawable.map((row) => caption(row)).join("; "),
      });
      host.replaceChildren(element("figure", {}, plot));
      if (drawable.length) drawOverlay(plot, drawable, scale);
    }
    timelineLegend();
    const notes = [];
    if (undrawn > 0) notes.push(tooMany(undrawn));
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
    const hint = coarse()
      ? "Choose a span above to look closer."
      : "Drag over a span of time to look closer, double-click to come back.";
    $("timeline-notes").replaceChildren(...texts.map((text) => element("li", {}, text)), element("li", { class: "on-screen" }, hint));
  }

  function blindly(pairs) {
    const byPhase = new Map();
    for (const [who, phase] of pairs) byPhase.set(phase, [...(byPhase.get(phase) || []), short(who, 60)]);
    return [...byPhase].map(([phase, who]) => `${phase} of ${who.join("; ")}`).join("; ");
  }

  const highest = (column) => column.reduce((most, value) => Math.max(most, value), 0);

  function highestInSpan(trace) {
    const [begin, end] = spanOf(trace);
    const { t, rss } = columnsOf(trace);
    return [...inSpan(trace).map((phase) => phase.peak_bytes), highest(rss.filter((_, place) => t[place] >= begin && t[place] <= end))];
  }

  const lastDrawn = (present) => present.reduce((last, { traces }, place) => (traces.length ? place : last), -1);

  function caption({ group, traces }) {
    if (!traces.length) return `${group.label}: nothing to draw`;
    const unit = chooseUnit("bytes", [traces[0].peak_bytes]);
    return `${group.label}: ${captionWords(traces[0], unit)}`;
  }

  function captionWords(trace, unit) {
    const peak = peakOf(trace);
    const words = peak ? `peak ${peak.exact ? "" : "~"}${inUnit(peak.peak_bytes, unit)}${onePhase() ? "" : ` in ${peak.name}`}` : "no peak here";
    return `${words}, repeat ${trace.repeat}${trace.end ? `, ended by ${trace.end}` : ""}`;
  }

  function rowFigure({ group, index, traces }) {
    const words = traces.length
      ? captionWords(traces[0], chooseUnit("bytes", [traces[0].peak_bytes]))
      : state.span
        ? `no finished ${state.span}`
        : "nothing was polled";
    return element(
      "figure",
      {},
      element("figcaption", {}, swatch(index), " ", short(group.label, 200), " ", element("span", { class: "muted" }, words)),
      traces.length ? element("div", { class: "plot", role: "img", "aria-label": `Memory over time of ${group.label}: ${words}` }) : null,
    );
  }

  const timeRange = (scale) => state.zoom || [0, scale.length / scale.time.size];

  // A trace cut to the span, in the units of the axes.
  function points(trace, scale, kind) {
    const [begin, end] = spanOf(trace);
    const { t, rss, file } = columnsOf(trace);
    const of = { rss: (place) => rss[place], file: (place) => file[place], anonymous: (place) => rss[place] - file[place] }[kind];
    const [xs, ys] = [[], []];
    for (let place = 0; place < t.length; place += 1) {
      if (t[place] < begin || t[place] > end) continue;
      xs.push((t[place] - begin) / scale.time.size);
      ys.push(of(place) / scale.bytes.size);
    }
    return [xs, ys];
  }

  function drawRow(plot, { index, traces }, scale, isLast) {
    const hex = colour(tone(index).colour);
    const [first, ...others] = traces;
    const lines = others.map((trace) => ({ data: points(trace, scale, "rss"), look: { stroke: faint(hex, 0.55), width: 1 }, trace }));
    lines.push({ data: points(first, scale, "rss"), look: { stroke: hex, width: 1.5, fill: faint(hex, 0.5) }, trace: first });
    lines.push({ data: points(first, scale, "file"), look: { stroke: faint(hex, 0.6), width: 1, fill: faint(hex, 0.2) } });
    drawLines(plot, lines, scale, { height: isLast ? 182 : 142, isLast, banded: first, marked: [{ trace: first, hex, kind: "rss" }] });
  }

  function drawOverlay(plot, drawable, scale) {
    const lines = drawable.flatMap(({ group, index, traces }) => {
      const { colour: variable, dash } = tone(index);
      const hex = colour(variable);
      return traces.map((trace, place) => ({
        data: points(trace, scale, state.kind),
        look: { stroke: place ? faint(hex, 0.5) : hex, width: place ? 1 : 2, dash: DASHES[dash] },
        trace,
        name: group.label,
        index,
      }));
    });
    lines.sort((a, b) => a.look.width - b.look.width); // the runs that stand for their groups are drawn over the others
    const marked = drawable.map(({ index, traces }) => ({ trace: traces[0], hex: colour(tone(index).colour), kind: state.kind }));
    const banded = drawable.length === 1 ? drawable[0].traces[0] : null;
    drawLines(plot, lines, scale, { height: 420, isLast: true, banded, marked });
  }

  // lines: {data, look, trace where the pointer finds it, name and index where several are drawn}
  function drawLines(plot, lines, scale, { height, isLast, banded, marked }) {
    const markers = marked.flatMap(({ trace, hex, kind }) => markersOf(trace, scale, kind).map((marker) => ({ ...marker, hex })));
    const since = onePhase() ? `${short(state.span, 40)} began` : "the process began";
    const drawn = chart(plot, {
      data: lines.map((line) => line.data),
      series: lines.map((line) => line.look),
      height,
      padding: [6, 10, isLast ? 0 : 8, 0],
      x: { range: timeRange(scale), size: isLast ? 42 : 6, label: isLast ? `${scale.time.name} since ${since}` : "", ...(isLast ? {} : { values: (ticks) => ticks.map(() => "") }) },
      y: { range: [0, scale.most / scale.bytes.size], size: 62, label: scale.bytes.name, grid: true, space: 26 },
      under: (pen, at) => banded && bands(pen, at, banded, scale),
      over: (pen, at) => {
        if (banded) phaseNames(pen, at, banded, scale);
        drawMarkers(pen, at, markers);
      },
      hover: (x, y, at) => timelineTip(lines, markers, scale, x, y, at),
      zoom: coarse() ? undefined : (range) => zoom(range, scale),
      sync: "timelines",
    });
    charts.push(drawn);
  }

  // One chart was zoomed: all follow.
  function zoom(range, scale) {
    const whole = [0, scale.length / scale.time.size];
    state.zoom = range && [Math.max(range[0], whole[0]), Math.min(range[1], whole[1])];
    for (const drawn of charts) drawn.show(timeRange(scale));
  }

  // -- behind and over the lines of a timeline

  // Phases as shaded bands.
  function bands(pen, at, trace, scale) {
    if (onePhase()) return;
    clipped(pen, at);
    pen.fillStyle = colour("--band");
    trace.phases.forEach((phase, place) => {
      const [left, right] = [phase.begin_ns, phase.end_ns].map((t_ns) => at.left(t_ns / scale.time.size));
      if (place % 2 === 0) pen.fillRect(left, 0, right - left, at.high);
    });
  }

  function clipped(pen, at) {
    pen.beginPath();
    pen.rect(0, 0, at.wide, at.high);
    pen.clip();
  }

  // The begin of each phase, and its name where it fits.
  function phaseNames(pen, at, trace, scale) {
    if (onePhase()) return;
    pen.save();
    clipped(pen, at);
    for (const phase of trace.phases) {
      const begin = at.left(phase.begin_ns / scale.time.size);
      const left = Math.max(begin, 0);
      const room = Math.min(at.left(phase.end_ns / scale.time.size), at.wide) - left - 6;
      pen.strokeStyle = colour("--line");
      pen.beginPath();
      pen.moveTo(begin, 0);
      pen.lineTo(begin, at.high);
      pen.stroke();
      const name = short(phase.name, 30);
      const text = [name + (phase.polled ? "" : ", not polled"), name].find((candidate) => pen.measureText(candidate).width <= room);
      pen.fillStyle = colour("--muted");
      if (text) pen.fillText(text, left + 3, 11);
    }
    pen.restore();
  }

  // The peak as a diamond, and a cross where a failed run ended.
  function drawMarkers(pen, at, markers) {
    clipped(pen, at);
    pen.strokeStyle = colour("--page");
    pen.lineWidth = 1.5;
    for (const marker of markers) {
      pen.fillStyle = marker.hex;
      const [x, y] = [at.left(marker.x), at.top(marker.y)];
      const corners = marker.peak ? [[0, -6], [6, 0], [0, 6], [-6, 0]] : [[-6, -3.5], [-3.5, -6], [0, -2.5], [3.5, -6], [6, -3.5], [2.5, 0], [6, 3.5], [3.5, 6], [0, 2.5], [-3.5, 6], [-6, 3.5], [-2.5, 0]];
      pen.beginPath();
      for (const [right, down] of corners) pen.lineTo(x + right, y + down);
      pen.closePath();
      pen.fill();
      pen.stroke();
    }
  }

  function markersOf(trace, scale, kind) {
    const markers = [];
    const peak = peakOf(trace);
    const [begin] = spanOf(trace);
    if (peak && kind === "rss") {
      const text = `${peak.exact ? "" : "~"}${inUnit(peak.peak_bytes, scale.bytes)} at most in ${peak.name}`;
      markers.push({ x: (peak.at_ns - begin) / scale.time.size, y: peak.peak_bytes / scale.bytes.size, text, peak: true });
    }
    const [xs, ys] = points(trace, scale, kind);
    if (trace.end && !onePhase() && xs.length) markers.push({ x: xs[xs.length - 1], y: ys[ys.length - 1], text: `ended here: ${trace.end}`, peak: false });
    return markers;
  }

  // The sample of a line that is nearest in time.
  function nearest(xs, x) {
    let [low, high] = [0, xs.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle + 1;
      else high = middle;
    }
    return low && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
  }

  function timelineTip(lines, markers, scale, x, y, at) {
    const candidates = lines.filter((line) => line.trace && line.data[0].length);
    const ranked = candidates.map((line) => {
      const place = nearest(line.data[0], at.at(x));
      return { line, place, away: Math.hypot(at.left(line.data[0][place]) - x, at.top(line.data[1][place]) - y) };
    });
    const best = ranked.sort((a, b) => a.away - b.away)[0];
    if (!best) return null;
    const { trace, name, index, data: [xs] } = best.line;
    const [begin] = spanOf(trace);
    const t_ns = xs[best.place] * scale.time.size + begin;
    const { t, rss, file } = columnsOf(trace);
    const row = nearest(t, t_ns);
    const near = markers.filter((marker) => Math.hypot(at.left(marker.x) - x, at.top(marker.y) - y) < 9);
    const who = [name === undefined ? "" : short(name, 80), candidates.length > 1 || state.repeat === "every" ? `repeat ${trace.repeat}` : ""].filter(Boolean);
    return [
      who.length ? element("div", {}, ...(index === undefined ? [] : [swatch(index), " "]), element("b", {}, who.join(", "))) : null,
      element("div", {}, `${fixed(xs[best.place], 4).replace(/\.?0+$/, "")} ${scale.time.name}, ${phaseAt(trace, t_ns)}`),
      element("div", {}, `${inUnit(rss[row], scale.bytes)} RSS: ${inUnit(rss[row] - file[row], scale.bytes)} anonymous, ${inUnit(file[row], scale.bytes)} file-backed`),
      ...near.map((marker) => element("div", {}, marker.text)),
    ];
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

  let strips = [];

  function drawLatencies() {
    const timed = shown().filter(({ group }) => group.latencies);
    const host = $("strips");
    strips.forEach((strip) => strip.remove());
    strips = [];
    $("copy-latencies").hidden = !timed.length;
    document.querySelector("#latencies .legend").hidden = !timed.length;
    if (!timed.length) {
      host.replaceChildren(element("p", { class: "muted" }, "No variant shown here has timed iterations."));
      return;
    }
    const drawn = timed.slice(0, MOST_DRAWN);
    const boxes = drawn.map(({ group }) => group.latencies.box_ns);
    const most = Math.max(...boxes.map((box) => box[4]));
    const unit = chooseUnit("ns", [most]);
    host.replaceChildren(...drawn.map((row) => stripFigure(row, unit)));
    drawn.forEach((row, place) => drawStrip(host.children[place].querySelector(".plot"), row, unit, most, place === drawn.length - 1));
    if (timed.length > MOST_DRAWN) host.append(element("p", { class: "muted" }, tooMany(timed.length - MOST_DRAWN)));
  }

  function stripFigure({ group, index }, unit) {
    const middle = inUnit(group.latencies.box_ns[2], unit);
    return element(
      "figure",
      { class: "strip" },
      element("figcaption", {}, swatch(index), " ", element("span", { class: "name" }, short(group.label, 200)), " ", element("b", {}, middle)),
      element("div", { class: "plot", role: "img", "aria-label": `Latency of each iteration of ${group.label}, median ${middle}; the table below has the figures` }),
    );
  }

  const STRIP = 34; // pixels

  // A box over the quartiles, whiskers to the ends, and a dot for each iteration, scattered so that the dots of equal iterations do not hide each other.
  function drawStrip(plot, { group, index }, unit, most, isLast) {
    const hex = colour(tone(index).colour);
    const { box_ns: box, points: all } = group.latencies;
    const [low, first, middle, third, high] = box.map((value) => value / unit.size);
    const dots = all.map(([repeat, iteration, time], rank) => ({ repeat, iteration, time, x: time / unit.size, y: 0.24 * (((rank * 0.618034) % 1) - 0.5) }));
    const strip = chart(plot, {
      height: STRIP + (isLast ? 46 : 4),
      padding: [2, 14, isLast ? 0 : 2, 14],
      x: { range: [0, (most / unit.size) * 1.02 || 1], size: isLast ? 44 : 0, label: isLast ? `${unit.name} an iteration` : "" },
      y: { range: [-0.5, 0.5], size: 0 },
      over: (pen, at) => {
        const [left, right, q1, half, q3] = [low, high, first, middle, third].map(at.left);
        const [upper, base, lower] = [0.3, 0, -0.3].map(at.top);
        pen.globalAlpha = dots.length > 200 ? 0.35 : 0.65;
        pen.fillStyle = hex;
        for (const dot of dots) {
          pen.beginPath();
          pen.arc(at.left(dot.x), at.top(dot.y), 2.5, 0, 7);
          pen.fill();
        }
        pen.globalAlpha = 0.2;
        pen.fillRect(q1, upper, q3 - q1, lower - upper);
        pen.globalAlpha = 1;
        pen.strokeStyle = hex;
        pen.lineWidth = 1.5;
        pen.strokeRect(q1, upper, q3 - q1, lower - upper);
        pen.beginPath();
        for (const [x, from, to] of [[half, upper, lower], [left, upper + 5, lower - 5], [right, upper + 5, lower - 5]]) {
          pen.moveTo(x, from);
          pen.lineTo(x, to);
        }
        for (const [from, to] of [[left, q1], [q3, right]]) {
          pen.moveTo(from, base);
          pen.lineTo(to, base);
        }
        pen.stroke();
      },
      hover: (x, y, at) => {
        const away = (dot) => Math.hypot(at.left(dot.x) - x, at.top(dot.y) - y);
        const dot = dots.reduce((best, other) => (away(other) < away(best) ? other : best), dots[0]);
        const near = away(dot) < 8 ? [element("div", {}, `${inUnit(dot.time, unit)}, repeat ${dot.repeat}, iteration ${dot.iteration}`)] : [];
        return [...near, element("div", { class: "where" }, `${inUnit(box[0], unit)} to ${inUnit(box[4], unit)}, the middle half ${inUnit(box[1], unit)} to ${inUnit(box[3], unit)}`)];
      },
    });
    strips.push(strip);
  }

  function latencyTable() {
    const metrics = data.latencies.map(metricOf).filter((metric) => model().columns[metric.name]?.includes("EXECUTE"));
    const timed = shown().filter(({ group }) => group.latencies);
    const unit = chooseUnit(
      "ns",
      timed.flatMap(({ group }) => metrics.flatMap((metric) => valuesOf(group, metric, "EXECUTE"))),
    );
    const rows = timed.map(({ group, index }) => ({
      index,
      name: group.label,
      labels: group.labels,
      cells: metrics.map((metric) => cellOf(group, metric, "EXECUTE", unit)),
    }));
    return {
      id: "latencies",
      title: `EXECUTE, one iteration (${unit.name})`,
      labels: model().label_names,
      columns: metrics.map((metric) => metric.name.slice(5, -3)),
      rows,
      notes: timed.some(({ group }) => group.repeats > 1)
        ? [`${model().spread} The boxes above are drawn over all iterations of all repeats together.`]
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
      ["Memory", (metric) => metric.unit === "bytes" && metric.name !== "read_bytes"],
      ["Time", (metric) => metric.unit === "ns"],
      ["Faults and reads", (metric) => metric.unit === "count" || metric.name === "read_bytes"],
    ];
    $("metric").replaceChildren(
      ...kinds
        .map(([title, belongs]) =>
          element("optgroup", { label: title }, ...known.filter(belongs).map((metric) => element("option", { value: metric.name }, metric.title))),
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
      .forEach((part) => part.classList.toggle("current", data.models.length > 1 && Number(part.dataset.finding) === index));
    document.querySelectorAll("[data-model]").forEach((part) => {
      part.hidden = Number(part.dataset.model) !== index;
    });
    document.querySelectorAll(".of-model").forEach((part) => {
      part.textContent = data.models.length > 1 ? `of ${short(model().name, 60)}` : "";
    });
    fillVariants();
    fillMetrics();
    fillUnits();
    fillPhases();
    state.view = model().groups.length <= 4 ? "rows" : state.view;
    settle();
    drawAll();
  }

  function connect() {
    for (const [id, kind] of [["byte-unit", "bytes"], ["time-unit", "ns"]])
      options($(id), [["", "auto"], ...Object.keys(data.units[kind].sizes).map((name) => [name, name])], "");
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
    addEventListener("resize", settle);
  }

  function drawCharts() {
    drawTimelines();
    drawLatencies();
  }

  theming(drawCharts);
  if (data.models.length) {
    connect();
    state.view = data.models[0].groups.length <= 4 ? "rows" : "overlay";
    $("view").value = state.view;
    showModel(0);
  }
})();
