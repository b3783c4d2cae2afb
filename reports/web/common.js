"use strict";
// Shared by all pages: elements whose text stays text, colours of the theme, canvases, the tooltip, and charts. uPlot draws a chart's axes and
// lines, and handles zoom and cursor. The page draws bands, boxes and markers in uPlot's hooks.
const memprof = (() => {
  const root = document.documentElement;
  const TONES = 7;

  // -- elements

  const $ = (id) => document.getElementById(id);

  function element(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "style") for (const [property, text] of Object.entries(value)) node.style.setProperty(property, text);
      else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value !== undefined && value !== false) node.setAttribute(key, value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  // Makes screen readers say a text.
  const say = (text) => {
    $("announced").textContent = text;
  };

  const data = () => JSON.parse($("data").textContent);

  // A column that Python packed: base64 of a little-endian array.
  function unpacked(text, Kind) {
    return new Kind(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
  }

  // The unit for values up to `largest`: its name and size. kinds: the units of each kind of figure, as Python hands them over.
  function unitOf(kinds, kind, largest) {
    const units = kinds[kind];
    if (!units) return { name: "", size: 1 };
    const [name] = units.steps.find(([, least]) => largest >= least);
    return { name, size: units.sizes[name] };
  }

  // The place of the first of these ascending values that is not below one; their number if all are.
  function lowerBound(values, least) {
    let [low, high] = [0, values.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] < least) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // -- colours

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  const mixed = (one, other, share) => `color-mix(in srgb, ${one} ${100 * share}%, ${other})`;

  // -- canvases

  const font = (size) => `${size}px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif`;

  const cut = (text, keep) => text.slice(0, keep) + "…";

  const short = (text, most) => (text.length <= most ? text : cut(text, most - 1));

  // As much of a text's beginning as fits. Short texts are not measured, so that ten thousand names are cheap.
  function fitted(pen, text, room) {
    if (text.length * 9 <= room || pen.measureText(text.slice(0, 400)).width <= room) return text.length <= 400 ? text : text.slice(0, 400) + "…";
    let low = 0;
    let high = Math.min(text.length - 1, Math.ceil(room / 3));
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (pen.measureText(cut(text, middle)).width <= room) low = middle;
      else high = middle - 1;
    }
    return low < 3 ? "" : cut(text, low);
  }

  // -- the tooltip

  // Shows these children beside the pointer; without children it hides.
  function tip(event, ...children) {
    const box = $("tip");
    box.hidden = !children.length;
    if (!children.length) return;
    box.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
    const [wide, high] = [box.offsetWidth, box.offsetHeight];
    box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - wide - 8))}px`;
    box.style.top = `${event.clientY + 18 + high > innerHeight ? Math.max(4, event.clientY - high - 12) : event.clientY + 18}px`;
  }

  // -- charts

  const coarse = () => matchMedia("(pointer: coarse)").matches;

  // A chart in a host element, which keeps it as .chart.
  //   data, series   uPlot's, in its mode 2, where each series has its own times: [x, y]; empty lists if the hooks draw everything
  //   x, y           {range: [from, to], label, size (pixels that the axis takes, 0 hides it), grid, values (texts of ticks), splits (where they are)}
  //   under, over    drawn before the grid and after the lines: (pen, chart), a unit of the pen being a CSS pixel from the plot's corner
  //   hover          (x, y, chart) -> children of the tooltip; x and y are CSS pixels in the plot, chart.at(x) the value there
  //   zoom           called with [from, to] when a span was dragged over, with null after a double click
  //   click          called with x and y in CSS pixels
  // The chart that it returns has the plot's size and turns values into pixels and back; show() moves the span of time, remove() ends it.
  function chart(host, { data: columns = [], series = [], height, x, y, padding = [8, 10, 0, 0], under, over, hover, zoom, click, sync }) {
    const axis = (scale, { size, label = "", grid = false, values, splits, space }) => ({
      scale,
      show: size > 0,
      side: scale === "x" ? 2 : 3,
      size: label ? size - 18 : size,
      gap: 4,
      font: font(11),
      stroke: colour("--muted"),
      label: label || undefined,
      labelFont: font(12),
      labelSize: 18,
      labelGap: 0,
      grid: { show: grid, stroke: colour("--line"), width: 1 },
      ticks: { show: scale === "x", stroke: colour("--line"), size: 4, width: 1 },
      border: { show: scale === "x", stroke: colour("--line"), width: 1 },
      ...(values ? { values: (_, ticks) => values(ticks) } : {}),
      ...(splits ? { splits } : {}),
      ...(space ? { space } : {}),
    });
    // The pen of a hook counts device pixels from the canvas' corner; the page's pen counts CSS pixels from the plot's.
    const drawing = (draw) => (u) => {
      if (!draw) return;
      const ratio = devicePixelRatio || 1;
      const pen = u.ctx;
      pen.save();
      pen.setTransform(ratio, 0, 0, ratio, u.bbox.left, u.bbox.top);
      pen.font = font(11);
      pen.textAlign = "left";
      pen.textBaseline = "alphabetic";
      draw(pen, plot);
      pen.restore();
    };
    const plot = {
      range: x.range,
      at: (left) => plot.u.posToVal(left, "x"),
      left: (value) => plot.u.valToPos(value, "x"),
      top: (value) => plot.u.valToPos(value, "y"),
      get wide() {
        return plot.u.over.clientWidth;
      },
      get high() {
        return plot.u.over.clientHeight;
      },
      show(range) {
        plot.range = range;
        plot.u.setScale("x", { min: range[0], max: range[1] });
      },
      remove() {
        watch.disconnect();
        plot.u.destroy();
      },
    };
    const nothing = { facets: [{ scale: "x", auto: false }, { scale: "y", auto: false }], points: { show: false }, stroke: "transparent" };
    const drawn = series.length ? series : [{}];
    plot.u = new uPlot(
      {
        mode: 2,
        width: Math.max(host.clientWidth, 120),
        height,
        padding,
        legend: { show: false },
        scales: { x: { time: false, range: () => plot.range }, y: { range: () => y.range } },
        axes: [axis("x", x), axis("y", y)],
        series: [{}, ...drawn.map((look) => ({ ...nothing, ...look }))],
        cursor: {
          show: Boolean(hover || zoom),
          y: false,
          points: { show: false },
          drag: { x: Boolean(zoom), y: false, setScale: false },
          bind: { dblclick: () => () => zoom?.(null) },
          ...(sync ? { sync: { key: sync, setSeries: false } } : {}),
        },
        hooks: {
          drawClear: [drawing(under)],
          draw: [drawing(over)],
          setSelect: [
            (u) => {
              const { left, width } = u.select;
              if (width < 4) return;
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
              zoom?.([u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
            },
          ],
        },
      },
      [null, ...(columns.length ? columns : [[[], []]])],
      (u, init) => {
        plot.u = u; // the hooks run before the constructor is done
        host.replaceChildren(u.root);
        init();
      },
    );
    const { over: face } = plot.u;
    const at = (event, act) => {
      const box = face.getBoundingClientRect();
      return act(event.clientX - box.left, event.clientY - box.top, plot);
    };
    if (hover) {
      face.addEventListener("mousemove", (event) => tip(event, ...(at(event, hover) || [])));
      face.addEventListener("mouseleave", (event) => tip(event));
    }
    if (click) face.addEventListener("click", (event) => at(event, click));
    const watch = new ResizeObserver(() => {
      if (host.clientWidth && Math.abs(host.clientWidth - plot.u.width) >= 1) plot.u.setSize({ width: host.clientWidth, height });
    });
    watch.observe(host);
    host.chart = plot;
    return plot;
  }

  // Phases as bands behind a chart, each with the first of its names that fits. phases: {names, begin, end} in the units of the time axis.
  function phaseBands(pen, at, phases) {
    pen.beginPath();
    pen.rect(0, 0, at.wide, at.high);
    pen.clip();
    phases.forEach(({ names, begin, end }, place) => {
      const [left, right] = [Math.max(at.left(begin), 0), Math.min(at.left(end), at.wide)];
      pen.fillStyle = colour("--band");
      if (place % 2 === 0) pen.fillRect(left, 0, right - left, at.high);
      const name = names.find((text) => pen.measureText(text).width <= right - left - 6);
      pen.fillStyle = colour("--muted");
      if (name) pen.fillText(name, left + 3, 11);
    });
  }

  // Round values from one to another, about so many, for the ticks of an axis that counts in this unit.
  function roundValues(low, high, count, unit) {
    const rough = (high - low) / unit / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power * unit;
    const values = [];
    for (let value = Math.ceil(low / step) * step; value <= high; value += step) values.push(value);
    return values;
  }

  // -- controls

  // Keeps in a state what the controls of these ids say, and draws what hangs on one after a change.
  function controls(state, draws) {
    for (const [id, draw] of Object.entries(draws))
      $(id)?.addEventListener("change", ({ target }) => {
        state[id] = target.type === "checkbox" ? target.checked : target.value;
        draw();
      });
  }

  // Fills a choice with options, each a value and its text; returns the value that is chosen: the wanted one if it is there, else the first.
  function options(id, choices, wanted) {
    $(id).replaceChildren(...choices.map(([value, text]) => element("option", { value }, text)));
    $(id).value = choices.some(([value]) => value === wanted) ? wanted : (choices[0] || [""])[0];
    return $(id).value;
  }

  // Draws again where the colours change: the system's theme was switched, or the page is printed, for paper is light.
  function watchTheme(draw) {
    root.classList.add("scripted");
    matchMedia("screen and (prefers-color-scheme: dark)").addEventListener("change", draw);
  }

  return {
    TONES, $, element, say, data, unpacked, unitOf, lowerBound, colour, mixed, font, short, fitted, tip,
    coarse, chart, phaseBands, roundValues, controls, options, watchTheme,
  };
})();
