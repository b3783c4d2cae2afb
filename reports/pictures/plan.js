"use strict";
// Draws the data of plan_page.py: memory over the steps of each order, and below it each arena, with a rectangle for each tensor's live range
// at its offset. All charts share one span of steps. Names reach the page as text nodes and as canvas text only.
(() => {
  const { $, element, colour, font, fitted, coarse, chart, watchTheme } = memprof;
  const data = memprof.data();
  const INK = "#111111"; // on tensors, whose colours are light in both themes
  const whole = [0, data.operators];
  const state = { zoom: null };
  let charts = [];

  const range = () => state.zoom || whole;
  const amount = (bytes) => bytes / data.unit.size;

  function zoom(span) {
    state.zoom = span && [Math.max(span[0], whole[0]), Math.min(span[1], whole[1])];
    for (const drawing of charts) drawing.show(range());
  }

  const shared = (more) => ({ padding: [8, 12, 0, 0], zoom: coarse() ? undefined : zoom, sync: "plan", ...more });
  const steps = (label) => ({ range: range(), size: label ? 44 : 24, label });

  function drawLines() {
    const boxes = $("orders").querySelectorAll("input");
    const shown = data.orders.filter((_, place) => boxes[place].checked);
    const lines = shown.map((order) => ({
      data: [[...order.steps.map((_, place) => place), data.operators], [...order.steps, order.steps[order.steps.length - 1]].map((step) => amount(step.bytes))],
      look: { stroke: colour(order.colour), width: 2, dash: order.dash, paths: uPlot.paths.stepped({ align: 1 }) },
    }));
    if (data.bound && boxes[data.orders.length].checked)
      lines.push({ data: [whole, whole.map(() => amount(data.bound.bytes))], look: { stroke: colour("--muted"), width: 1.5, dash: [2, 3] } });
    const most = Math.max(...data.orders.flatMap((order) => order.steps.map((step) => step.bytes)), data.bound?.bytes || 0);
    return chart(
      $("lines"),
      shared({
        data: lines.map((line) => line.data),
        series: lines.map((line) => line.look),
        height: 280,
        x: steps("step"),
        y: { range: [0, amount(most) * 1.08 || 1], size: 70, label: data.unit.name, grid: true },
        hover: (x, y, at) => stepTip(shown, x, y, at),
      }),
    );
  }

  function stepTip(shown, x, y, at) {
    const place = Math.min(Math.max(Math.floor(at.at(x)), 0), data.operators - 1);
    const away = (order) => Math.abs(at.top(amount(order.steps[place].bytes)) - y);
    const [order] = [...shown].sort((a, b) => away(a) - away(b));
    if (!order) return null;
    const step = order.steps[place];
    return [
      element("div", {}, element("b", {}, step.name), ` (${step.kind}), step ${place + 1}${shown.length > 1 ? ` of ${order.name}` : ""}`),
      element("div", {}, step.text),
      element("div", { class: "where" }, step.used),
    ];
  }

  function drawArena(order, place) {
    const isLast = place === data.orders.length - 1;
    return chart(
      $(`arena-${place}`),
      shared({
        height: order.high + (isLast ? 52 : 32),
        x: steps(isLast ? "step" : ""),
        y: { range: [0, amount(data.most) * 1.03 * (order.high / Math.max(...data.orders.map((other) => other.high))) || 1], size: 70, label: data.unit.name, grid: true },
        over: (pen, at) => order.tensors.forEach((tensor) => drawTensor(pen, at, tensor)),
        hover: (x, y, at) => tensorTip(order, x, y, at),
      }),
    );
  }

  function boxOf(at, { lower, upper, offset, bytes }) {
    const [left, right] = [Math.max(at.left(lower), 0), Math.min(at.left(upper), at.wide)];
    const [top, bottom] = [at.top(amount(offset + bytes)), at.top(amount(offset))];
    return { left, top, wide: right - left, high: bottom - top };
  }

  function drawTensor(pen, at, tensor) {
    const { left, top, wide, high } = boxOf(at, tensor);
    if (wide <= 0) return;
    pen.fillStyle = data.colours[tensor.lower % data.colours.length];
    pen.fillRect(left, top, wide, Math.max(high, 0.5));
    // A rectangle thinner than a few edges would show nothing but them.
    if (Math.min(wide, high) > 4) {
      pen.strokeStyle = "#333333";
      pen.lineWidth = 0.5;
      pen.strokeRect(left, top, wide, high);
    }
    write(pen, tensor, { left, top, wide, high });
  }

  // The first of its names that fits into a tensor, level or upright.
  function write(pen, tensor, { left, top, wide, high }) {
    if (Math.max(wide, high) < 14 || Math.min(wide, high) < 11) return;
    pen.font = font(10);
    for (const text of tensor.names)
      for (const [upright, room, least] of [[false, wide, high], [true, high, wide]]) {
        if (least < 12 || pen.measureText(text).width > room - 6) continue;
        pen.save();
        pen.fillStyle = INK;
        pen.textAlign = "center";
        pen.textBaseline = "middle";
        pen.translate(left + wide / 2, top + high / 2);
        if (upright) pen.rotate(-Math.PI / 2);
        pen.fillText(fitted(pen, text, room), 0, 0);
        pen.restore();
        return;
      }
  }

  function tensorTip(order, x, y, at) {
    const tensor = order.tensors.find((placed) => {
      const { left, top, wide, high } = boxOf(at, placed);
      return x >= left && x < left + wide && y >= top && y < top + high;
    });
    if (!tensor) return null;
    return [
      element("div", {}, element("b", {}, tensor.names[0])),
      element("div", {}, `${tensor.size} at offset ${tensor.offset.toLocaleString("en")}`),
      element("div", { class: "where" }, `steps ${tensor.lower + 1} to ${tensor.upper}`),
    ];
  }

  function drawAll() {
    charts.forEach((drawing) => drawing.remove());
    charts = [drawLines(), ...data.orders.map(drawArena)];
  }

  watchTheme(drawAll);
  $("orders").addEventListener("change", drawAll);
  $("reset").addEventListener("click", () => zoom(null));
  drawAll();
})();
