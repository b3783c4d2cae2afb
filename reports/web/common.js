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
    const raw = atob(text);
    const letters = new Uint8Array(raw.length);
    for (let place = 0; place < raw.length; place++) letters[place] = raw.charCodeAt(place);
    return new Kind(letters.buffer);
  }

  // The unit for values up to `largest`: its name and size. kinds: the units of each kind of figure, as Python hands them over.
  function unitOf(kinds, kind, largest, wanted = "") {
    const units = kinds[kind];
    if (!units) return { name: "", size: 1 };
    const name = wanted || units.steps.find(([, least]) => largest >= least)[0];
    return { name, size: units.sizes[name] };
  }

  // -- colours

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  const parts = (hex) => [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));

  function mixed(hex, other, share) {
    const [a, b] = [parts(hex), parts(other)];
    return "#" + a.map((value, place) => Math.round(value * share + b[place] * (1 - share)).toString(16).padStart(2, "0")).join("");
  }

  // -- canvases

  const font = (size) => `${size}px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif`;

  function cut(text, keep) {
    const tail = Math.floor(keep / 3);
    return text.slice(0, keep - tail) + "…" + (tail ? text.slice(-tail) : "");
  }

  // As much of a text's beginning and end as fits. Short texts are not measured, so that ten thousand names are cheap.
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

  // -- themes and paper

  // The theme is the system's until the button switches it; paper is light, narrow, and cannot be unfolded. draw: draws everything again that
  // does not take its colours from the style sheet.
  function theming(draw) {
    const button = $("theme");
    const set = (name, drawn = true) => {
      root.dataset.theme = name;
      button.textContent = name === "dark" ? "Light theme" : "Dark theme";
      if (drawn) draw();
    };
    let switched = false;
    button.addEventListener("click", () => {
      switched = true;
      set(root.dataset.theme === "dark" ? "light" : "dark");
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
      if (!switched) set(event.matches ? "dark" : "light");
    });
    let before = null;
    addEventListener("beforeprint", () => {
      before = { theme: root.dataset.theme, folded: [...document.querySelectorAll("details:not([open])")] };
      for (const details of before.folded) details.open = true;
      document.body.style.width = "680px";
      set("light");
    });
    addEventListener("afterprint", () => {
      if (!before) return;
      document.body.style.width = "";
      for (const details of before.folded) details.open = false;
      set(before.theme);
      before = null;
    });
    root.classList.add("scripted");
    set(root.dataset.theme, false);
  }

  return { TONES, root, $, element, say, data, unpacked, unitOf, colour, mixed, font, cut, fitted, tip, coarse, chart, theming };
})();
