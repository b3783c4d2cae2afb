"use strict";
// Chooses which of the page's tables and bars are seen, and draws timelines and latencies, the figures of drawn.py, again whenever a control
// changes. Text from the runs enters the page only as text nodes and canvas text.
(() => {
  const { TONES, $, element, say, unpacked, unitOf, colour, mixed, short, lowerBound, coarse, chart, phaseBands, controls, options, watchTheme } = memprof;
  const data = memprof.data();
  const MOST_DRAWN = 12;
  const MOST_REPEATS = 20;
  const BEFORE_EXECUTE = "<EXECUTE";

  const state = { model: 0, metric: "rss_peak_bytes", above: false, peakPhase: "PEAK", view: "rows", span: "", every: false, zoom: null };
  const model = () => data.models[state.model];
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const ofModel = (section) => $(section).querySelector(`[data-model="${state.model}"]`);

  // The groups whose boxes are checked; a group without others has no box.
  function shown() {
    const boxes = all("#controls .variants:not([hidden]) input");
    return model()
      .groups.map((group, index) => ({ group, index }))
      .filter(({ index }) => !boxes.length || boxes[index].checked);
  }

  // -- small tools

  function number(value) {
    const [, places] = data.places.find(([least]) => Math.abs(value) >= least);
    return value.toFixed(places);
  }

  const inUnit = (value, unit) => `${number(value / unit.size)} ${unit.name}`;
  const unitFor = (kind, values) => unitOf(data.units, kind, Math.max(0, ...values));

  function tone(index) {
    return { colour: `--v${index % TONES}`, dash: ["solid", "dash", "dot"][Math.floor(index / TONES) % 3] };
  }

  const DASHES = { solid: [], dash: [8, 4], dot: [2, 3] };
  const faint = (hex, share) => mixed(hex, colour("--page"), share);

  function swatch(index) {
    const { colour: name, dash } = tone(index);
    return element("i", { class: `swatch ${dash}`, style: { "--tone": `var(${name})` }, "aria-hidden": "true" });
  }

  // At most MOST_DRAWN of these are drawn, and the section says how many are not.
  function limited(section, groups) {
    const left = groups.length - MOST_DRAWN;
    $(section).querySelector(".undrawn").textContent = left > 0 ? `Not drawn: ${left} more. Hide some of the others above to see them.` : "";
    return groups.slice(0, MOST_DRAWN);
  }

  // -- tables and bars

  function drawTables() {
    const here = ofModel("table");
    const of = (metric, above) => here.querySelector(`[data-metric="${metric}"][data-above="${above}"]`);
    const known = [...$("metric").options].filter((option) => of(option.value, "False"));
    for (const option of $("metric").options) option.hidden = option.disabled = !known.includes(option);
    if (!of(state.metric, "False")) state.metric = known[0]?.value;
    $("metric").value = state.metric;
    const above = of(state.metric, "True");
    $("above").parentElement.hidden = !above;
    const wanted = (state.above && above) || of(state.metric, "False");
    for (const table of all("[data-metric]", here)) table.hidden = table !== wanted;
  }

  // A click on a heading sorts a table by that column: up, down, and back to the order of the file. Cells without a number come last.
  function sortable(table) {
    const [body] = table.tBodies;
    const rows = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, place) => {
      const name = head.textContent;
      const key = (row) => (head.className ? row.cells[place].textContent : parseFloat(row.cells[place].textContent.replace(/^[~≥]/, "")));
      const compare = (row, next) => {
        const [a, b] = [key(row), key(next)];
        if (typeof a === "string") return a.localeCompare(b, undefined, { numeric: true });
        return a - b;
      };
      const onclick = () => {
        const direction = { none: "ascending", ascending: "descending", descending: "none" }[head.ariaSort];
        for (const other of heads) other.ariaSort = "none";
        head.ariaSort = direction;
        const [without, having] = [true, false].map((absent) => rows.filter((row) => Number.isNaN(key(row)) === absent));
        const sorted = having.sort((row, next) => (direction === "ascending" ? compare(row, next) : compare(next, row)));
        body.append(...(direction === "none" ? rows : [...sorted, ...without]));
        say(`Sorted by ${name}: ${direction === "none" ? "the file's order" : direction}`);
      };
      head.ariaSort = "none";
      head.replaceChildren(element("button", { type: "button", "data-column": place, onclick }, name));
    });
  }

  function drawBars() {
    const lists = all("ol", ofModel("peaks"));
    const phases = lists.map(({ dataset }) => [dataset.phase, dataset.phase === "PEAK" ? "the highest of all" : dataset.phase]);
    state.peakPhase = options("peakPhase", phases, state.peakPhase);
    const drawn = new Set(limited("peaks", shown()).map(({ index }) => String(index)));
    for (const list of lists) {
      list.hidden = list.dataset.phase !== state.peakPhase;
      for (const bar of list.children) bar.hidden = !drawn.has(bar.dataset.group);
    }
  }

  function drawRows() {
    const visible = new Set(shown().map(({ index }) => String(index)));
    for (const row of all("tr[data-group]")) row.hidden = !visible.has(row.dataset.group);
  }

  // -- timelines

  function columnsOf(trace) {
    const read = (text, size) => Float64Array.from(unpacked(text, Uint32Array), (value) => value * size);
    trace.columns ||= { t: read(trace.t, trace.tick_ns), rss: read(trace.rss, 1024), file: read(trace.file, 1024), device: read(trace.device, 1024) };
    return trace.columns;
  }

  function phaseAt(trace, t_ns) {
    const phase = trace.phases.find(({ end_ns }) => t_ns <= end_ns);
    return phase && t_ns >= phase.begin_ns ? phase.name : "between phases";
  }

  // The runs of a group to draw; the first stands for the group.
  function chosen(group) {
    const ended = group.traces.filter((trace) => !trace.end);
    const ranked = [...(ended.length ? ended : group.traces)].sort((a, b) => a.peak_bytes - b.peak_bytes);
    const typical = ranked[(ranked.length - 1) >> 1];
    return state.every ? [typical, ...group.traces.filter((trace) => trace !== typical).slice(0, MOST_REPEATS - 1)] : [typical];
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

  // The phase of a trace's peak; of the phases before EXECUTE alone their own highest.
  function peakOf(trace) {
    const phases = inSpan(trace);
    if (state.span !== BEFORE_EXECUTE) return phases.find((phase) => onePhase() || phase.name === trace.peak_phase) || null;
    return phases.reduce((most, phase) => (most && most.peak_bytes >= phase.peak_bytes ? most : phase), null);
  }

  // A peak that polling alone saw, and one of a phase that the run did not finish.
  const hedge = (phase) => (!phase.finished ? "≥" : phase.exact ? "" : "~");

  let charts = [];

  function drawTimelines() {
    const groups = limited("timelines", shown()).map(({ group, index }) => ({
      group,
      index,
      traces: chosen(group).filter((trace) => spanOf(trace) && columnsOf(trace).t.length),
    }));
    const drawable = groups.filter((row) => row.traces.length);
    const traces = drawable.flatMap((row) => row.traces);
    const lengths = traces.map((trace) => spanOf(trace)[1] - spanOf(trace)[0]);
    const heights = traces.map(highest);
    const scale = {
      bytes: unitFor("bytes", heights),
      time: Math.max(0, ...lengths) >= 2e9 ? { name: "s", size: 1e9 } : { name: "ms", size: 1e6 },
      length: Math.max(1, ...lengths) * 1.01,
      most: Math.max(1, ...heights) * 1.22,
    };
    charts.forEach((drawn) => drawn.remove());
    charts = [];
    for (const part of all(".of-rows")) part.hidden = state.view !== "rows";
    if (state.view === "rows") {
      $("lines").replaceChildren(...groups.map(rowFigure));
      groups.forEach((row, place) => {
        if (row.traces.length) drawRow($("lines").children[place].querySelector(".plot"), row, scale, row === drawable[drawable.length - 1]);
      });
    } else {
      const words = drawable.map(({ group, traces: [first] }) => `${group.label}: ${captionWords(first)}`);
      const plot = element("div", { class: "plot", role: "img", "aria-label": `Memory over time: ${words.join("; ")}` });
      $("lines").replaceChildren(element("figure", {}, plot));
      if (drawable.length) drawOverlay(plot, drawable, scale);
    }
  }

  // The highest figure of a trace in the span.
  function highest(trace) {
    const [begin, end] = spanOf(trace);
    const { t, rss, device } = columnsOf(trace);
    const seen = [rss, device].flatMap((column) => [...column].filter((_, place) => t[place] >= begin && t[place] <= end));
    return [...seen, ...inSpan(trace).map((phase) => phase.peak_bytes)].reduce((most, value) => Math.max(most, value), 0);
  }

  function captionWords(trace) {
    const peak = peakOf(trace);
    const size = peak && inUnit(peak.peak_bytes, unitFor("bytes", [trace.peak_bytes]));
    const words = peak ? `peak ${hedge(peak)}${size}${onePhase() ? "" : ` in ${peak.name}`}` : "no peak here";
    return `${words}, repeat ${trace.repeat}${trace.end ? `, ended by ${trace.end}` : ""}`;
  }

  function rowFigure({ group, index, traces: [first] }) {
    const words = first ? captionWords(first) : state.span ? `no finished ${state.span}` : "nothing was polled";
    return element(
      "figure",
      {},
      element("figcaption", {}, swatch(index), " ", short(group.label, 200), " ", element("span", { class: "muted" }, words)),
      first ? element("div", { class: "plot", role: "img", "aria-label": `Memory over time of ${group.label}: ${words}` }) : null,
    );
  }

  const timeRange = (scale) => state.zoom || [0, scale.length / scale.time.size];

  // A trace cut to the span, in the units of the axes; of its memory that of a column.
  function points(trace, scale, column) {
    const [begin, end] = spanOf(trace);
    const columns = columnsOf(trace);
    const [xs, ys] = [[], []];
    columns.t.forEach((t_ns, place) => {
      if (t_ns < begin || t_ns > end) return;
      xs.push((t_ns - begin) / scale.time.size);
      ys.push(columns[column][place] / scale.bytes.size);
    });
    return [xs, ys];
  }

  function drawRow(plot, { index, traces }, scale, isLast) {
    const hex = colour(tone(index).colour);
    const [first, ...others] = traces;
    const lines = others.map((trace) => ({ data: points(trace, scale, "rss"), look: { stroke: faint(hex, 0.55), width: 1 }, trace }));
    lines.push({ data: points(first, scale, "rss"), look: { stroke: hex, width: 1.5, fill: faint(hex, 0.5) }, trace: first });
    lines.push({ data: points(first, scale, "file"), look: { stroke: faint(hex, 0.6), width: 1, fill: faint(hex, 0.2) } });
    if (first.device) lines.push({ data: points(first, scale, "device"), look: { stroke: colour("--ink"), width: 1.2, dash: [6, 3] } });
    drawLines(plot, lines, scale, { height: isLast ? 182 : 142, isLast, banded: first, marked: [{ trace: first, hex }] });
  }

  function drawOverlay(plot, drawable, scale) {
    const lines = drawable.flatMap(({ group, index, traces }) => {
      const { colour: variable, dash } = tone(index);
      const hex = colour(variable);
      return traces.map((trace, place) => ({
        data: points(trace, scale, "rss"),
        look: { stroke: place ? faint(hex, 0.5) : hex, width: place ? 1 : 2, dash: DASHES[dash] },
        trace,
        name: group.label,
        index,
      }));
    });
    lines.sort((a, b) => a.look.width - b.look.width); // the runs that stand for their groups are drawn over the others
    const marked = drawable.map(({ index, traces }) => ({ trace: traces[0], hex: colour(tone(index).colour) }));
    const banded = drawable.length === 1 ? drawable[0].traces[0] : null;
    drawLines(plot, lines, scale, { height: 420, isLast: true, banded, marked });
  }

  // lines: {data, look, trace where the pointer finds it, name and index where several are drawn}
  function drawLines(plot, lines, scale, { height, isLast, banded, marked }) {
    const markers = marked.flatMap(({ trace, hex }) => markersOf(trace, scale).map((marker) => ({ ...marker, hex })));
    const since = onePhase() ? `${short(state.span, 40)} began` : "the process began";
    const drawn = chart(plot, {
      data: lines.map((line) => line.data),
      series: lines.map((line) => line.look),
      height,
      padding: [6, 10, isLast ? 0 : 8, 0],
      x: { range: timeRange(scale), size: isLast ? 42 : 6, label: isLast ? `${scale.time.name} since ${since}` : "", ...(isLast ? {} : { values: (ticks) => ticks.map(() => "") }) },
      y: { range: [0, scale.most / scale.bytes.size], size: 62, label: scale.bytes.name, grid: true, space: 26 },
      under: (pen, at) => banded && !onePhase() && phaseBands(pen, at, bandsOf(banded, scale)),
      over: (pen, at) => drawMarkers(pen, at, markers),
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

  const bandsOf = (trace, scale) =>
    trace.phases.map((phase) => {
      const name = `${phase.finished ? "" : "✗ "}${short(phase.name, 30)}`;
      const [begin, end] = [phase.begin_ns, phase.end_ns].map((t_ns) => t_ns / scale.time.size);
      return { names: phase.polled ? [name] : [`${name}, not polled`, name], begin, end };
    });

  // The peak as a diamond, and a cross where a failed run ended.
  function drawMarkers(pen, at, markers) {
    pen.beginPath();
    pen.rect(0, 0, at.wide, at.high);
    pen.clip();
    pen.font = "15px sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.strokeStyle = colour("--page");
    pen.lineWidth = 3;
    for (const { x, y, peak, hex } of markers) {
      pen.fillStyle = hex;
      pen.strokeText(peak ? "◆" : "✖", at.left(x), at.top(y));
      pen.fillText(peak ? "◆" : "✖", at.left(x), at.top(y));
    }
  }

  function markersOf(trace, scale) {
    const markers = [];
    const peak = peakOf(trace);
    if (peak) {
      const text = `${hedge(peak)}${inUnit(peak.peak_bytes, scale.bytes)} at most in ${peak.name}`;
      markers.push({ x: (peak.at_ns - spanOf(trace)[0]) / scale.time.size, y: peak.peak_bytes / scale.bytes.size, text, peak: true });
    }
    const [xs, ys] = points(trace, scale, "rss");
    if (trace.end && !onePhase() && xs.length) markers.push({ x: xs[xs.length - 1], y: ys[ys.length - 1], text: `ended here: ${trace.end}`, peak: false });
    return markers;
  }

  // The sample of a line that is nearest in time.
  function nearest(xs, x) {
    const place = Math.min(lowerBound(xs, x), xs.length - 1);
    return place && x - xs[place - 1] < xs[place] - x ? place - 1 : place;
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
    const t_ns = xs[best.place] * scale.time.size + spanOf(trace)[0];
    const { t, rss, file, device } = columnsOf(trace);
    const row = nearest(t, t_ns);
    const near = markers.filter((marker) => Math.hypot(at.left(marker.x) - x, at.top(marker.y) - y) < 9);
    const who = [name === undefined ? "" : short(name, 80), candidates.length > 1 || state.every ? `repeat ${trace.repeat}` : ""].filter(Boolean);
    return [
      who.length ? element("div", {}, ...(index === undefined ? [] : [swatch(index), " "]), element("b", {}, who.join(", "))) : null,
      element("div", {}, `${Number(xs[best.place].toFixed(4))} ${scale.time.name}, ${phaseAt(trace, t_ns)}`),
      element("div", {}, `${inUnit(rss[row], scale.bytes)} RSS: ${inUnit(rss[row] - file[row], scale.bytes)} anonymous, ${inUnit(file[row], scale.bytes)} file-backed`),
      trace.device ? element("div", {}, `${inUnit(device[row], scale.bytes)} of devices, which RSS does not count`) : null,
      ...near.map((marker) => element("div", {}, marker.text)),
    ];
  }

  // -- latencies

  let strips = [];

  function drawLatencies() {
    const timed = limited("latencies", shown().filter(({ group }) => group.latencies));
    strips.forEach((strip) => strip.remove());
    const most = Math.max(...timed.map(({ group }) => group.latencies.box_ns[4]));
    const unit = unitFor("ns", [most]);
    $("strips").replaceChildren(...timed.map((row) => stripFigure(row, unit)));
    strips = timed.map((row, place) => drawStrip($("strips").children[place].querySelector(".plot"), row, unit, most, place === timed.length - 1));
  }

  function stripFigure({ group, index }, unit) {
    const middle = inUnit(group.latencies.median_ns, unit);
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
    const { box_ns: box, points: iterations } = group.latencies;
    const [low, first, middle, third, high] = box.map((value) => value / unit.size);
    const dots = iterations.map(([repeat, iteration, time], rank) => ({ repeat, iteration, time, x: time / unit.size, y: 0.24 * (((rank * 0.618034) % 1) - 0.5) }));
    return chart(plot, {
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
        for (const [x, y, endX, endY] of [[half, upper, half, lower], [left, base, q1, base], [q3, base, right, base]]) {
          pen.moveTo(x, y);
          pen.lineTo(endX, endY);
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
  }

  // -- controls

  function fillSpans() {
    const named = model().phases.filter((name) => model().groups.some((group) => group.traces.some((trace) => trace.phases.some((phase) => phase.name === name))));
    const spans = [["", "the whole run"], ...(named.includes("EXECUTE") ? [[BEFORE_EXECUTE, "up to EXECUTE"]] : []), ...named.map((name) => [name, name])];
    state.span = options("span", spans, state.span);
  }

  function drawCharts() {
    drawTimelines();
    drawLatencies();
  }

  function drawAll() {
    drawTables();
    drawRows();
    drawBars();
    drawCharts();
  }

  function showModel() {
    const several = data.models.length > 1;
    state.zoom = null;
    for (const part of all("[data-finding]")) part.classList.toggle("current", several && part.dataset.finding === String(state.model));
    for (const part of all("[data-model]")) part.hidden = part.dataset.model !== String(state.model);
    for (const part of all(".of-model")) part.textContent = several ? `of ${short(model().name, 60)}` : "";
    fillSpans();
    state.view = model().groups.length <= 4 ? "rows" : "overlay";
    $("view").value = state.view;
    drawAll();
  }

  function drawWhole() {
    state.zoom = null;
    drawTimelines();
  }

  controls(state, { model: showModel, metric: drawTables, above: drawTables, peakPhase: drawBars, view: drawTimelines, every: drawWhole, span: drawWhole });
  $("reset").addEventListener("click", drawWhole);
  for (const variants of all(".variants")) {
    variants.addEventListener("change", drawAll);
    for (const button of all("button", variants))
      button.addEventListener("click", () => {
        for (const box of all("input", variants)) box.checked = button.value === "all";
        drawAll();
      });
  }
  for (const button of all("[data-show]"))
    button.addEventListener("click", () => {
      state.model = $("model").value = button.dataset.show;
      showModel();
      $("model").focus();
    });
  all("table.numbers").forEach(sortable);
  $("zoom-hint").hidden = coarse();
  watchTheme(drawCharts);
  showModel();
})();
