"use strict";
// The page of a history: one chart of the lines that are chosen, its steps and releases as marks.
(() => {
  const { $, element, say, data, unpacked, unitOf, colour, TONES, chart, lowerBound, roundValues, controls, options, watchTheme } = memprof;
  const all = data();
  const commits = all.commits.map(([hash, time, subject, tags, run]) => ({ hash, time, subject, tags, run, short: tags.split(" ").pop() || hash.slice(0, 9) }));
  const HEIGHT = 400;
  const state = { model: "", metric: "rss_peak_bytes", show: "", machine: 0, hidden: new Set(), range: [0, 1], zero: false };

  const unique = (values) => [...new Set(values)];
  const unitFor = (metric, most) => unitOf(all.units, all.metrics[metric][1], Math.abs(most));
  const number = (value) => value.toLocaleString("en", { maximumSignificantDigits: value >= 1000 ? 5 : 4, useGrouping: false });
  // Releases have no time, so they have no day.
  const day = (time) => (time ? new Date(time * 1000).toISOString().slice(0, 10) : "");

  // A line's columns, unpacked once: the commits' places, medians, and how far the repeats reach.
  function columns(line) {
    if (line.columns) return line.columns;
    const middles = unpacked(line.middles, Float32Array);
    const places = line.places ? unpacked(line.places, Uint32Array) : Uint32Array.from(middles, (_, number) => line.first + number);
    const reach = (text) => Float32Array.from(unpacked(text, Uint16Array), (share) => (share / 65535) * line.widest);
    line.columns = { places, middles, below: reach(line.below), above: reach(line.above) };
    return line.columns;
  }

  // -- which lines

  const ofModel = () => all.lines.filter((line) => line.model === state.model && line.machine === state.machine);
  const phasesOf = (lines) => unique(lines.map((line) => line.phase));

  function chosen() {
    const lines = ofModel().filter((line) => line.metric === state.metric);
    const [kind, name] = [state.show.slice(0, 1), state.show.slice(2)];
    return lines.filter((line) => (kind === "p" ? line.phase === name : line.variant === name));
  }

  const label = (line) => (state.show.startsWith("p") ? line.variant : line.phase);

  // Fills the choices with what the lines have.
  function fillChoices() {
    $("machine").value = String(state.machine);
    const onMachine = all.lines.filter((line) => line.machine === state.machine);
    state.model = options("model", unique(onMachine.map((line) => line.model)).map((name) => [name, name]), state.model);
    const lines = ofModel();
    state.metric = options("metric", unique(lines.map((line) => line.metric)).map((name) => [name, all.metrics[name][0]]), state.metric);
    const having = lines.filter((line) => line.metric === state.metric);
    const phases = phasesOf(having).map((name) => [`p ${name}`, `${name} of each variant`]);
    const variants = unique(having.map((line) => line.variant)).map((name) => [`v ${name}`, `each phase of ${name}`]);
    state.show = options("show", [...phases, ...variants], state.show);
  }

  function legend() {
    $("legend").replaceChildren(
      element("legend", { class: "hidden" }, "Lines shown"),
      ...chosen().map((line, place) => {
        const name = label(line);
        const off = state.hidden.has(name);
        const box = element("input", { type: "checkbox", onchange: () => toggle(name) });
        box.checked = !off;
        return element("label", { class: `chip${off ? " off" : ""}`, style: { "--tone": `var(--v${place % TONES})` } }, box, element("span", { class: "swatch" }), element("span", { class: "name" }, name));
      }),
    );
  }

  function toggle(name) {
    if (!state.hidden.delete(name)) state.hidden.add(name);
    draw();
  }

  // -- the chart

  const shown = () => chosen().map((line, place) => ({ line, tone: `--v${place % TONES}` })).filter(({ line }) => !state.hidden.has(label(line)));

  // The lowest and the highest figure of these lines in the span shown.
  function extent(lines) {
    let [low, high] = [Infinity, -Infinity];
    for (const { line } of lines) {
      const { places, middles, below, above } = columns(line);
      const end = lowerBound(places, state.range[1] + 1);
      for (let at = lowerBound(places, state.range[0]); at < end; at++) {
        low = Math.min(low, middles[at] - below[at]);
        high = Math.max(high, middles[at] + above[at]);
      }
    }
    if (low > high) return [0, 1];
    const room = Math.max((high - low) * 0.12, high * 0.002, 1e-9);
    return [state.zero ? 0 : Math.max(0, low - room), high + 2 * room];
  }

  function bands(pen, plot, lines) {
    pen.save();
    pen.beginPath();
    pen.rect(0, 0, plot.wide, plot.high);
    pen.clip();
    for (const { line, tone } of lines) {
      const { places, middles, below, above } = columns(line);
      const [begin, end] = [Math.max(0, lowerBound(places, state.range[0]) - 1), Math.min(places.length, lowerBound(places, state.range[1]) + 1)];
      pen.beginPath();
      const until = (at) => plot.left(at + 1 < places.length ? places[at + 1] : places[at]);
      for (let at = begin; at < end; at++) {
        pen.lineTo(plot.left(places[at]), plot.top(middles[at] + above[at]));
        pen.lineTo(until(at), plot.top(middles[at] + above[at]));
      }
      for (let at = end - 1; at >= begin; at--) {
        pen.lineTo(until(at), plot.top(middles[at] - below[at]));
        pen.lineTo(plot.left(places[at]), plot.top(middles[at] - below[at]));
      }
      pen.closePath();
      pen.globalAlpha = 0.18;
      pen.fillStyle = colour(tone);
      pen.fill();
      pen.globalAlpha = 1;
    }
    pen.restore();
  }

  // Releases as dashed lines, and a text where there is room for it.
  function releases(pen, plot) {
    pen.strokeStyle = colour("--line");
    pen.fillStyle = colour("--muted");
    pen.setLineDash([3, 3]);
    let free = -Infinity;
    for (let place = Math.max(0, Math.ceil(state.range[0])); place <= Math.min(commits.length - 1, state.range[1]); place++) {
      const name = commits[place].tags.split(" ").pop();
      if (!name) continue;
      const left = plot.left(place);
      if (left < free) continue;
      pen.beginPath();
      pen.moveTo(left, 0);
      pen.lineTo(left, plot.high);
      pen.stroke();
      pen.fillText(name.slice(0, 18), left + 3, plot.high - 5);
      free = left + pen.measureText(name.slice(0, 18)).width + 10;
    }
    pen.setLineDash([]);
  }

  // Each step as a dot on its line and a text above it, none over another.
  function steps(pen, plot, lines) {
    const texts = [];
    for (const { line, tone } of lines) {
      const { places, middles } = columns(line);
      for (const [, place, words] of line.steps) {
        if (place < state.range[0] || place > state.range[1]) continue;
        const at = lowerBound(places, place);
        const [left, top] = [plot.left(place), plot.top(middles[at])];
        pen.fillStyle = colour(tone);
        pen.beginPath();
        pen.arc(left, top, 4, 0, 2 * Math.PI);
        pen.fill();
        const wide = pen.measureText(words).width;
        const box = { left: Math.min(Math.max(left - wide / 2, 0), plot.wide - wide), top: Math.max(top - 10, 12), wide };
        if (texts.some((other) => Math.abs(other.top - box.top) < 13 && box.left < other.left + other.wide + 4 && other.left < box.left + wide + 4)) continue;
        texts.push(box);
        // A text may stand on another line or on its own: a rim of the page's colour keeps it legible.
        pen.strokeStyle = colour("--page");
        pen.lineWidth = 4;
        pen.lineJoin = "round";
        pen.strokeText(words, box.left, box.top);
        pen.fillStyle = colour("--ink");
        pen.fillText(words, box.left, box.top);
      }
    }
  }

  function hover(x, plot, lines) {
    const place = Math.min(commits.length - 1, Math.max(0, Math.round(plot.at(x))));
    const commit = commits[place];
    const rows = lines.flatMap(({ line, tone }) => {
      const { places, middles, below, above } = columns(line);
      const at = lowerBound(places, place);
      if (places[at] !== place) return [];
      const { name: unit, size } = unitFor(line.metric, middles[at]);
      const step = line.steps.find(([, where]) => where === place);
      const [least, most] = [number((middles[at] - below[at]) / size), number((middles[at] + above[at]) / size)];
      const reach = least !== most ? ` (${least} to ${most})` : "";
      return [element("div", { style: { "--tone": `var(${tone})` } }, element("span", { class: "swatch" }), ` ${label(line)}: ${number(middles[at] / size)} ${unit}${reach}${step ? `, ${step[2]}` : ""}`)];
    });
    const head = element("b", {}, `${commit.tags || commit.hash.slice(0, 9)}`);
    return [head, element("div", { class: "where" }, `${day(commit.time)} ${commit.subject}`), ...(rows.length ? rows : [element("div", {}, "not measured")])];
  }

  const address = (commit) => ((commit.run && all.runUrl) || all.commitUrl).replaceAll("{commit}", commit.hash);

  function draw() {
    legend();
    const lines = shown();
    const [low, high] = extent(lines);
    const { name: unit, size } = unitFor(state.metric, high);
    const series = lines.map(({ tone }) => ({ stroke: colour(tone), width: 1.5, paths: uPlot.paths.stepped({ align: 1 }) }));
    $("chart").chart?.remove();
    const wide = state.range[1] - state.range[0];
    chart($("chart"), {
      data: lines.map(({ line }) => [columns(line).places, columns(line).middles]),
      series,
      height: HEIGHT,
      x: { range: state.range, size: 32, space: 90, values: (places) => places.map((tick) => (Number.isInteger(tick) && commits[tick] ? ((wide > 60 && day(commits[tick].time)) || commits[tick].short) : "")) },
      y: { range: [low, high], size: 78, label: `${all.metrics[state.metric][0]}${unit ? ` (${unit})` : ""}`, grid: true, splits: () => roundValues(low, high, 7, size), values: (places) => places.map((place) => number(place / size)) },
      under: (pen, plot) => {
        releases(pen, plot);
        bands(pen, plot, lines);
      },
      over: (pen, plot) => steps(pen, plot, lines),
      hover: (x, y, plot) => hover(x, plot, lines),
      // A double click would open what a click opens, twice: the button shows all again.
      zoom: (range) => range && show(range),
      click: (x, y, plot) => {
        const commit = commits[Math.round(plot.at(x))];
        if (commit && address(commit)) open(address(commit), "_blank", "noopener");
      },
    });
    $("whole").hidden = wide >= whole()[1] - whole()[0];
  }

  const whole = () => [-0.5, Math.max(commits.length - 0.5, 1)];

  function show(range) {
    const [low, high] = range || whole();
    state.range = high - low < 2 ? [(low + high) / 2 - 1, (low + high) / 2 + 1] : [low, high];
    draw();
  }

  // -- events

  function choose() {
    state.machine = Number(state.machine);
    fillChoices();
    draw();
  }

  controls(state, { model: choose, metric: choose, show: choose, machine: choose, zero: draw });
  $("whole").addEventListener("click", () => show(null));
  for (const button of document.querySelectorAll("[data-change]")) {
    button.addEventListener("click", () => {
      const [place, number] = all.changes[Number(button.dataset.change)];
      const line = all.lines[number];
      Object.assign(state, { machine: line.machine, model: line.model, metric: line.metric, show: `p ${line.phase}` });
      state.hidden.clear();
      fillChoices();
      show([Math.max(place - 25, -0.5), Math.min(place + 25, commits.length - 0.5)]);
      $("chart-section").scrollIntoView();
      say(`The chart shows ${commits[place].short}`);
    });
  }
  if (all.runUrl || all.commitUrl) $("click-hint").textContent = ` A click opens the ${all.runUrl ? "run" : "commit"}.`;
  if (all.lines.length) {
    watchTheme(draw);
    const last = (line) => columns(line).places.at(-1);
    state.machine = all.lines.reduce((best, line) => (last(line) > last(best) ? line : best)).machine;
    fillChoices();
    show(null);
  }
})();
