"use strict";
// Draws the figures of drawn.py: the heap over time, and the tree of a chosen snapshot as an icicle or a flame graph. Names come from
// measured programs: they reach the page as text nodes or as canvas text, never as markup. No walk over a tree is recursive.
(() => {
  const { TONES, $, element, say, unpacked, colour, mixed, font, fitted, short, tip, chart, phaseBands, roundValues, controls, watchTheme } = memprof;
  const data = memprof.data();
  const BELOW = -2;
  const ROW = 20;
  const MOST_ROWS = 500;
  const MOST_NODES = 300000;
  const LEAST_LINE = 0.01; // of a node's bytes
  const ANCESTORS = 3;
  const TINT = 0.44; // of a module's colour in its boxes, so that names on them can be read in both themes
  const WHOLE = "all of the heap";

  const state = {
    areas: "function",
    by: "function",
    tableBy: "function",
    shape: "icicle",
    invert: false,
    fold: true,
    scaled: true,
    search: "",
    files: data.files.map(({ shown }) => ({ point: shown, asked: shown, boxes: [] })),
  };

  // -- small tools

  function bytes(count) {
    let size = Math.abs(count);
    const sign = count < 0 ? "-" : "";
    for (const name of ["B", "KiB", "MiB"]) {
      if (size < (name === "B" ? 1000 : 1024)) return `${sign}${name === "B" ? size.toFixed(0) : size.toFixed(1)} ${name}`;
      size /= 1024;
    }
    return `${sign}${size.toFixed(2)} GiB`;
  }

  // 100% is written only for the whole, and 0% only for nothing.
  function percent(part, whole) {
    const text = whole ? ((100 * part) / whole).toFixed(1) : "0.0";
    if (part > 0 && part < whole && text === "0.0") return "<0.1%";
    if (part > 0 && part < whole && text === "100.0") return ">99.9%";
    return `${text}%`;
  }

  // A canvas as sharp as the screen, its unit a CSS pixel.
  function sharp(canvas, wide, high) {
    const ratio = Math.min(devicePixelRatio || 1, Math.sqrt(3.2e7 / Math.max(wide * high, 1)));
    canvas.width = Math.max(1, Math.round(wide * ratio));
    canvas.height = Math.max(1, Math.round(high * ratio));
    canvas.style.height = `${high}px`;
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, wide, high);
    return pen;
  }

  // -- names

  // unknown: a chain of nameless frames of a module says no more than its first.
  const frames = data.frames.map(([name, module, source, allocator]) => ({ name, module, source, allocator, unknown: data.names[name][1].startsWith("???") }));

  function named(node) {
    if (node.parent < 0) return { text: WHOLE, full: WHOLE, module: "", source: "" };
    if (node.key === BELOW) {
      const text =
        state.invert && node.parent === 0
          ? "(called from places below the threshold)"
          : node.places
            ? `(${node.places.toLocaleString("en")} smaller place${node.places === 1 ? "" : "s"})`
            : "(smaller places)";
      return { text, full: text, module: "", source: "" };
    }
    const name = ofFrame(frames[node.frame], state.by);
    return node.lines > 1 && name.source ? { ...name, source: `${name.source} and ${node.lines - 1} more line${node.lines > 2 ? "s" : ""}` } : name;
  }

  function ofFrame(frame, by) {
    const module = data.modules[frame.module];
    if (by === "module") return { text: module, full: module, module: "", source: "" };
    const [text, full] = data.names[frame.name];
    const beside = by === "line" && frame.source ? ` ${frame.source}` : "";
    return { text: text + beside, full, module, source: frame.source };
  }

  // Modules by the bytes that they allocate in the largest trees. The first have a colour each, the others share grey.
  const modules = (() => {
    const held = new Map();
    data.files.forEach((file, place) => {
      const layout = shaped(place, file.shown, { by: "module", invert: false, fold: true });
      for (const node of layout ? layout.nodes : [])
        if (node.key >= 0) held.set(node.key, (held.get(node.key) || 0) + node.bytes * (node.parent ? 1e-6 : 1));
    });
    return [...held].sort((a, b) => b[1] - a[1]).map(([module]) => module);
  })();
  const toneOf = new Map(modules.map((module, place) => [module, place]));

  // -- trees

  function treeOf(place, point) {
    const file = data.files[place];
    const number = point < 0 ? -1 : file.tree[point];
    if (number < 0) return null;
    const tree = file.trees[number];
    if (typeof tree.frame === "string") {
      tree.frame = unpacked(tree.frame, Int32Array);
      tree.parent = unpacked(tree.parent, Int32Array);
      tree.bytes = unpacked(tree.bytes, Float64Array);
      tree.places = unpacked(tree.places, Int32Array);
      tree.own = Float64Array.from(tree.bytes);
      for (let node = 1; node < tree.own.length; node++) tree.own[tree.parent[node]] -= tree.bytes[node];
    }
    return tree;
  }

  function keys(by, fold) {
    return frames.map((frame, place) => (fold && frame.allocator ? -1 : by === "module" ? frame.module : by === "line" ? place : frame.name));
  }

  // A snapshot's tree merged by function, module or line, in the wanted direction: nodes with their children, the larger first.
  function shaped(place, point, { by, invert, fold }) {
    const tree = treeOf(place, point);
    if (!tree) return null;
    const key = keys(by, fold);
    const nodes = [{ key: -1, frame: -1, parent: -1, own: tree.own[0], places: 0, children: [] }];
    const known = new Map();
    const counts = new Map();
    if (by === "function") for (const group of key) counts.set(group, (counts.get(group) || 0) + 1);
    const many = frames.length + data.names.length + data.modules.length + 3;
    const child = (above, group, frame, places, size) => {
      const name = above * many + group + 3;
      let number = known.get(name);
      if (number === undefined) {
        number = nodes.length;
        nodes.push({ key: group, frame, lines: 1, held: counts.get(group) > 1 ? new Map() : null, parent: above, own: 0, places: 0, children: [] });
        known.set(name, number);
        nodes[above].children.push(number);
      }
      const { held } = nodes[number];
      if (held) held.set(frame, (held.get(frame) || 0) + size);
      nodes[number].places += places;
      return number;
    };
    const step = (above, node, size) => {
      const frame = tree.frame[node];
      const group = frame < 0 ? BELOW : key[frame];
      if (group === -1 || (above > 0 && nodes[above].key === group && (by === "module" || (frame >= 0 && frames[frame].unknown)))) return above;
      return child(above, group, frame, frame < 0 ? tree.places[node] : 0, size);
    };
    if (!invert) {
      const at = new Int32Array(tree.frame.length);
      for (let node = 1; node < at.length; node++) {
        at[node] = step(at[tree.parent[node]], node, tree.bytes[node]);
        nodes[at[node]].own += tree.own[node];
      }
    } else
      // A turned tree can have as many nodes as its stacks have frames together. The largest come first, the others are gathered.
      for (const end of [...tree.own.keys()].filter((node) => node && tree.own[node] > 0).sort((a, b) => tree.own[b] - tree.own[a])) {
        let above = 0;
        if (nodes.length > MOST_NODES) above = child(0, BELOW, -1, 1, 0);
        else for (let node = end; node > 0; node = tree.parent[node]) above = step(above, node, tree.own[end]);
        nodes[above].own += tree.own[end];
      }
    for (const node of nodes) node.bytes = node.own;
    for (let place = nodes.length - 1; place > 0; place--) nodes[nodes[place].parent].bytes += nodes[place].bytes;
    nodes.forEach(toLargest);
    return laidOut(nodes);
  }

  // A node that is made of several frames is named by the largest of them; `lines` is how many have at least a hundredth of its bytes.
  function toLargest(node) {
    if (!node.held) return;
    const sizes = [...node.held];
    node.frame = sizes.reduce((most, next) => (next[1] > most[1] ? next : most))[0];
    const whole = sizes.reduce((sum, [, size]) => sum + size, 0);
    node.lines = new Set(sizes.filter(([, size]) => size >= LEAST_LINE * whole).map(([frame]) => frames[frame].source)).size;
    node.held = null;
  }

  // Gives each node its place, in bytes from the left: children stand in its width, the larger first. A node comes after its parent.
  function laidOut(nodes) {
    nodes[0].x = 0;
    for (const node of nodes) {
      node.children.sort((a, b) => (nodes[a].key === BELOW) - (nodes[b].key === BELOW) || nodes[b].bytes - nodes[a].bytes);
      let x = node.x;
      for (const child of node.children) {
        nodes[child].x = x;
        x += nodes[child].bytes;
      }
    }
    return { nodes };
  }

  // -- search

  // The matching nodes, and the bytes of the outermost of them, for a match contains the matches below it.
  function matches({ nodes }) {
    const wanted = state.search.trim().toLowerCase();
    const found = { marked: new Uint8Array(nodes.length), count: 0, size: 0, any: wanted !== "" };
    if (!found.any) return found;
    const inside = new Uint8Array(nodes.length);
    nodes.forEach((node, place) => {
      const { text, full, module, source } = named(node);
      const hit = node.key >= 0 && `${full}\n${text}\n${module}\n${source}`.toLowerCase().includes(wanted);
      const within = node.parent >= 0 && inside[node.parent];
      inside[place] = within || hit;
      if (!hit) return;
      found.marked[place] = 1;
      found.count++;
      if (!within) found.size += node.bytes;
    });
    return found;
  }

  // -- the chart

  // The look of an area, by its full name: the same in every file. Modules have the colours that they have in the trees.
  const rankOf = (() => {
    const ranksBy = { function: new Map(), module: new Map(modules.map((module, place) => [data.modules[module], place])) };
    for (const [by, ranks] of Object.entries(ranksBy))
      for (const file of data.files)
        (file.stacks[by]?.full || []).forEach((name, place) => {
          if (file.stacks[by].kinds[place] === "site" && !ranks.has(name)) ranks.set(name, ranks.size);
        });
    return ranksBy;
  })();

  function areaTone(stack, place) {
    const page = colour("--page");
    const grey = { others: 0.7, unlisted: 0.45, extra: 0.25, stacks: 0.1 }[stack.kinds[place]];
    if (grey) return mixed(colour("--muted"), page, grey);
    const rank = rankOf[state.areas].get(stack.full[place]);
    return mixed(colour(`--v${rank % TONES}`), page, [1, 0.6, 0.35][Math.min(Math.floor(rank / TONES), 2)]);
  }

  const MOST_DOTS = 30; // of snapshots: where there are more, the steps alone say where they are
  const SLIVER = 1 / 40; // of the width
  const NEAR = 2; // pixels
  const HEAD = 16; // pixels above the plot, in which the chosen snapshot has its number

  // The scale of a file's chart. xs: where each snapshot begins and, as it is drawn on to the next, where the last ends.
  function chartScale(file) {
    const first = file.time[0];
    const last = Math.max(...file.time);
    const tail = (last - first || 1) / 59;
    const most = Math.max(1, state.scaled ? Math.max(...data.files.map((other) => (other.peak < 0 ? 0 : other.total[other.peak]))) : file.total[file.peak]) * 1.18;
    const range = last > first ? [first, last + tail] : file.axis[1] ? [first - 0.5, first + 0.5] : [first, first + tail];
    return { xs: [...file.time, file.time[file.time.length - 1] + tail], range, most };
  }

  function drawChart(place) {
    const file = data.files[place];
    const host = $(`chart-${place}`);
    if (!file.index.length) return;
    const { xs, range, most } = chartScale(file);
    const lines = areas(file);
    const [label, size] = file.axis;
    const unit = [2 ** 30, 2 ** 20, 2 ** 10, 1].find((unit) => most >= unit);
    const again = (values) => [...values, values[values.length - 1]];
    host.chart?.remove();
    chart(host, {
      data: lines.map((line) => [xs, again(line.values)]),
      series: lines.map(({ look }) => ({ ...look, paths: uPlot.paths.stepped({ align: 1 }) })),
      height: innerWidth <= 640 ? 230 : 290,
      padding: [HEAD, 12, 0, 0],
      x: { range, size: 44, label, values: (at) => at.map((time) => (size ? `${Number((time / size).toPrecision(4))}` : "")), space: 90 },
      y: { range: [0, most], size: 66, grid: true, splits: () => roundValues(0, most, 5, unit), values: (at) => at.map((value) => (value ? bytes(value).replace(".0 ", " ") : "0")) },
      under: (pen, at) => phaseBands(pen, at, certainPhases(file, range[1])),
      over: (pen, at) => {
        const edges = xs.map(at.left);
        uncertainBorders(pen, file, range[0], at);
        estimates(pen, file, at, edges);
        snapshotMarks(pen, file, at, edges);
        peakMark(pen, file, at);
        chosenMark(pen, place, at);
      },
      hover: (x, y, at) => chartTip(file, pointAt(file, at, x)),
      click: (x, y, at) => choose(place, pointAt(file, at, x)),
    });
  }

  // Areas and the total as uPlot draws them: each is filled down to 0, the highest first, so that the next covers the part below it.
  function areas(file) {
    const total = { values: file.total, look: { stroke: colour("--ink"), width: 1.5 } };
    if (!file.trees.length) return [total];
    const stack = file.stacks[state.areas];
    let sum = file.total.map(() => 0);
    const stacked = stack.values.map((values, row) => {
      sum = sum.map((below, point) => below + values[point]);
      return { values: sum, look: { width: 0, stroke: "transparent", fill: areaTone(stack, row) } };
    });
    return [...stacked.reverse(), total];
  }

  // A dot where each snapshot was taken, where they are few, and a tick below the axis where it has a tree.
  function snapshotMarks(pen, file, at, edges) {
    pen.strokeStyle = pen.fillStyle = colour("--ink");
    pen.lineWidth = 1;
    file.total.forEach((size, point) => {
      if (file.total.length <= MOST_DOTS) {
        pen.beginPath();
        pen.arc(edges[point], at.top(size), 2.5, 0, 7);
        pen.fill();
      }
      if (file.tree[point] < 0) return;
      pen.beginPath();
      pen.moveTo(edges[point], at.high + 1);
      pen.lineTo(edges[point], at.high + 7);
      pen.stroke();
    });
  }

  // Paler where areas are estimated, as no tree is there. A sliver between two such snapshots is paler too, or the areas would be all stripes.
  function estimates(pen, file, at, edges) {
    if (!file.trees.length) return;
    pen.fillStyle = colour("--page");
    pen.globalAlpha = 0.3;
    pen.beginPath();
    file.total.forEach((size, point) => {
      const [left, wide] = [edges[point], edges[point + 1] - edges[point]];
      const sliver = wide < SLIVER * at.wide && file.known[point - 1] === false && file.known[point + 1] === false;
      if (!file.known[point] || sliver) pen.rect(left, at.top(size), wide, at.high - at.top(size));
    });
    pen.fill();
    pen.globalAlpha = 1;
  }

  // The part of each phase that lies in it for certain, however far its borders are off.
  function certainPhases(file, last) {
    const [before, behind] = file.border_error;
    const parts = file.phases.map(([name, begin, end]) => ({ names: [name], begin: begin && begin + behind, end: end === null ? last : end - before }));
    return parts.map((part) => ({ ...part, end: Math.max(part.begin, part.end) }));
  }

  // Shades the strip in which each phase begins, unless it is too narrow to be seen.
  function uncertainBorders(pen, file, first, at) {
    const [before, behind] = file.border_error;
    pen.fillStyle = colour("--ink");
    pen.globalAlpha = 0.17;
    for (const [, begin] of file.phases.filter(([, begin]) => begin > first)) {
      const left = at.left(Math.max(begin - before, first));
      const wide = at.left(begin + behind) - left;
      if (wide > 2) pen.fillRect(left, 0, wide, at.high);
    }
    pen.globalAlpha = 1;
  }

  function peakMark(pen, file, at) {
    const x = at.left(file.time[file.peak]);
    const y = at.top(file.total[file.peak]);
    pen.fillStyle = colour("--ink");
    pen.beginPath();
    pen.moveTo(x, y - 1);
    pen.lineTo(x - 5, y - 9);
    pen.lineTo(x + 5, y - 9);
    pen.closePath();
    pen.fill();
    pen.font = `600 ${font(12)}`;
    const text = `${file.noun} ${bytes(file.total[file.peak])}`;
    const wide = pen.measureText(text).width;
    // Beside the mark, on the side with room.
    const right = x + 9 + wide < at.wide;
    pen.textAlign = right ? "left" : "right";
    const from = right ? x + 9 : x - 9;
    pen.globalAlpha = 0.75;
    pen.fillStyle = colour("--page");
    pen.fillRect(right ? from - 2 : from - wide - 2, y - 13, wide + 4, 14);
    pen.globalAlpha = 1;
    pen.fillStyle = colour("--ink");
    pen.fillText(text, from, y - 2);
    pen.font = font(11);
  }

  function chosenMark(pen, place, at) {
    const file = data.files[place];
    const point = state.files[place].point;
    if (point < 0) return;
    const x = at.left(file.time[point]);
    pen.strokeStyle = pen.fillStyle = colour("--accent");
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(x, 0);
    pen.lineTo(x, at.high + 8);
    pen.stroke();
    pen.beginPath();
    pen.arc(x, at.top(file.total[point]), 4, 0, 7);
    pen.fill();
    const text = `snapshot ${file.index[point]}`;
    const half = pen.measureText(text).width / 2;
    pen.textAlign = "center";
    pen.fillText(text, Math.min(Math.max(x, half), at.wide - half), -4);
  }

  // The snapshot that is drawn at a place on the chart, or the next if it begins so near that it can be meant.
  function pointAt(file, at, x) {
    return Math.max(0, file.time.findLastIndex((time) => time <= at.at(x + NEAR)));
  }

  // The snapshots of a file that have a tree.
  const withTree = (file) => file.tree.flatMap((tree, point) => (tree < 0 ? [] : [point]));

  // Shows the tree of a snapshot, or that of the nearest that has one.
  function choose(place, point) {
    const file = data.files[place];
    const view = state.files[place];
    const away = (other) => Math.abs(file.time[other] - file.time[point]);
    const chosen = file.tree[point] < 0 ? withTree(file).sort((a, b) => away(a) - away(b))[0] : point;
    if (chosen === undefined) {
      say("No snapshot of this profile has a tree");
      return;
    }
    Object.assign(view, { point: chosen, asked: point });
    reshape(place);
    drawChart(place);
    drawList(place);
    drawTree(place);
    drawMatched();
    drawTables();
    say(`${caption(place)}: ${bytes(file.total[chosen])}`);
  }

  function caption(place) {
    const { point } = state.files[place];
    return point < 0 ? "no snapshot with a tree" : data.files[place].moment[point];
  }

  function drawList(place) {
    const file = data.files[place];
    const stack = file.stacks[state.areas];
    const point = state.files[place].point;
    if (!stack || point < 0) return;
    // A site that is not listed may still hold what the tool left out.
    const unlisted = stack.kinds.reduce((sum, kind, row) => (kind === "unlisted" ? sum + stack.values[row][point] : sum), 0);
    const none = unlisted ? `none listed there, ${bytes(unlisted)} at most` : "none there";
    const items = stack.names.map((name, row) => {
      const size = stack.values[row][point];
      const beside = stack.modules[row] && stack.modules[row] !== name ? `  ${stack.modules[row]}` : "";
      return element(
        "li",
        { title: stack.full[row] },
        element("i", { style: { background: areaTone(stack, row) } }),
        element("span", { class: "name" }, name, element("span", { class: "muted" }, beside)),
        element("span", { class: "figure" }, size ? `${bytes(size)} ${percent(size, file.total[point])}` : none),
      );
    });
    $(`list-${place}`).replaceChildren(...items.reverse());
  }

  // -- the tree

  // Lays out the tree of the chosen snapshot, and zooms to the whole of it.
  function reshape(place) {
    const layout = shaped(place, state.files[place].point, state);
    Object.assign(state.files[place], { layout, matched: layout && matches(layout), zoom: 0, focus: 0 });
  }

  function scaleOf(place) {
    const view = state.files[place];
    const node = view.layout.nodes[view.zoom];
    if (!state.scaled || view.zoom) return node.bytes || 1;
    return Math.max(1, ...state.files.map((view) => (view.layout ? view.layout.nodes[0].bytes : 0)));
  }

  // The chain from the root to the zoomed node; only its end is drawn where it is long.
  function above(layout, zoom) {
    const chain = [];
    for (let node = layout.nodes[zoom].parent; node >= 0; node = layout.nodes[node].parent) chain.push(node);
    return chain.reverse().slice(-ANCESTORS);
  }

  // The colour of a node, from the theme's colours read once: there may be a hundred thousand boxes.
  function palette() {
    const [page, grey] = [colour("--page"), colour("--muted")];
    const [whole, below, other] = [0.35, 0.14, 0.28].map((share) => mixed(grey, page, share));
    const tones = [...Array(TONES).keys()].map((place) => mixed(colour(`--v${place}`), page, TINT));
    return (node) => {
      if (node.parent < 0) return whole;
      if (node.key === BELOW) return below;
      return tones[toneOf.get(frames[node.frame].module)] || other;
    };
  }

  function drawTree(place) {
    const view = state.files[place];
    const canvas = $(`tree-${place}`);
    const size = view.layout ? `: ${bytes(view.layout.nodes[0].bytes)}` : "";
    const without = view.asked === view.point ? "" : ` (snapshot ${data.files[place].index[view.asked]} has no tree)`;
    $(`caption-${place}`).textContent = caption(place) + size + without;
    canvas.hidden = !view.layout;
    if (!view.layout) return;
    const { nodes } = view.layout;
    const wide = canvas.clientWidth;
    const scale = wide / scaleOf(place);
    const begin = nodes[view.zoom].x;
    const chain = above(view.layout, view.zoom);
    const below = visible(view.layout, view.zoom, scale);
    const rows = [...chain.map((node) => [node]), ...below.slice(0, MOST_ROWS)];
    const high = rows.length * ROW + 1;
    const flame = state.shape === "flame";
    const boxOf = (node, row) => {
      const y = flame ? high - 1 - (row + 1) * ROW : row * ROW;
      if (row < chain.length) return { node, x: 0, y, w: wide, faint: true };
      return { node, x: (nodes[node].x - begin) * scale, y, w: nodes[node].bytes * scale };
    };
    view.boxes = rows.flatMap((row, place) => row.map((node) => boxOf(node, place)));
    const style = { view, pen: sharp(canvas, wide, high), ink: colour("--ink"), accent: colour("--accent"), tone: palette() };
    style.pen.font = font(12);
    for (const box of view.boxes) rectangle(style, box);
    focus(place, view.focus);
    mark(place, "hover", -1);
    if (flame) canvas.parentElement.scrollTop = canvas.parentElement.scrollHeight;
    Object.assign(canvas.dataset, {
      rows: rows.length,
      boxes: view.boxes.length,
      zoom: named(nodes[view.zoom]).text,
      cut: below.length > MOST_ROWS ? "1" : "",
    });
    canvas.setAttribute("aria-label", `${flame ? "Flame graph" : "Icicle"} of ${caption(place)}, ${nodes.length} frames`);
    $("reset").disabled = !state.files.some((view) => view.zoom);
  }

  // The nodes below the zoomed one, row by row, that are at least half a pixel wide.
  function visible(layout, zoom, scale) {
    const rows = [[zoom]];
    while (rows.length <= MOST_ROWS) {
      const next = [];
      for (const node of rows[rows.length - 1])
        for (const child of layout.nodes[node].children) if (layout.nodes[child].bytes * scale >= 0.5) next.push(child);
      if (!next.length) break;
      rows.push(next);
    }
    return rows;
  }

  function rectangle({ view, pen, ink, accent, tone }, { node: place, x, y, w, faint }) {
    const node = view.layout.nodes[place];
    const { any, marked } = view.matched;
    const gap = w > 3 ? 1 : 0;
    const dim = faint || (any && !marked[place]);
    pen.globalAlpha = dim ? 0.38 : 1;
    pen.fillStyle = tone(node);
    pen.fillRect(x, y, Math.max(w - gap, 0.5), ROW - 1);
    pen.globalAlpha = 1;
    if (any && marked[place]) {
      pen.strokeStyle = accent;
      pen.lineWidth = 2;
      pen.strokeRect(x + 1, y + 1, Math.max(w - gap - 2, 0.5), ROW - 3);
    }
    if (w < 26) return;
    pen.fillStyle = ink;
    pen.globalAlpha = dim ? 0.75 : 1;
    const name = named(node);
    const size = bytes(node.bytes);
    const text = fitted(pen, w > 190 ? `${name.text}  ${size}` : name.text, w - gap - 8);
    if (text) pen.fillText(text, x + 4, y + 14);
    pen.globalAlpha = 1;
  }

  // Frames a node of the tree, the one in focus or the one below the pointer; none where it is not drawn.
  function mark(place, name, node) {
    const frame = $(`tree-${place}`).parentElement.querySelector(`.${name}`);
    const box = state.files[place].boxes.find((drawn) => drawn.node === node);
    frame.hidden = !box;
    if (box) Object.assign(frame.style, { left: `${box.x}px`, top: `${box.y}px`, width: `${Math.max(box.w - 1, 2)}px`, height: `${ROW - 1}px` });
  }

  function nodeAt(place, event) {
    const { left, top } = $(`tree-${place}`).getBoundingClientRect();
    const [right, down] = [event.clientX - left, event.clientY - top];
    const hit = state.files[place].boxes.find(({ x, y, w }) => down >= y && down < y + ROW && right >= x && right < x + Math.max(w, 1));
    return hit ? hit.node : -1;
  }

  function shareLine(view, node) {
    const [whole, zoomed] = [view.layout.nodes[0].bytes, view.layout.nodes[view.zoom].bytes];
    const ofZoomed = view.zoom ? `, ${percent(node.bytes, zoomed)} of what is zoomed` : "";
    const self = node.own > 0 && node.children.length ? `; ${bytes(node.own)} of it in no node ${state.shape === "flame" ? "above" : "below"}` : "";
    return `${bytes(node.bytes)}, ${percent(node.bytes, whole)} of the snapshot${ofZoomed}${self}`;
  }

  // What is known of a node: its name in full, where it is, and how much it holds.
  function facts(place, node) {
    const view = state.files[place];
    const name = named(view.layout.nodes[node]);
    return [
      element("b", { class: "full name" }, name.full),
      element("div", { class: "where" }, [name.module, name.source].filter(Boolean).join(" · ")),
      element("div", {}, shareLine(view, view.layout.nodes[node])),
    ];
  }

  // Takes a node into focus: the keys go on from it, and its facts stand below the tree.
  function focus(place, node) {
    state.files[place].focus = node;
    mark(place, "focus", node);
    $(`detail-${place}`).replaceChildren(...facts(place, node));
  }

  function zoom(place, node) {
    const view = state.files[place];
    Object.assign(view, { zoom: node, focus: node });
    drawTree(place);
    say(`Zoomed to ${named(view.layout.nodes[node]).text}, ${bytes(view.layout.nodes[node].bytes)}`);
  }

  function treeKeys(place, event) {
    const view = state.files[place];
    if (!view.layout) return;
    const { nodes } = view.layout;
    const node = nodes[view.focus];
    const siblings = node.parent >= 0 && view.focus !== view.zoom ? nodes[node.parent].children : [view.focus];
    const at = siblings.indexOf(view.focus);
    const [deeper, higher] = state.shape === "flame" ? ["ArrowUp", "ArrowDown"] : ["ArrowDown", "ArrowUp"];
    if (event.key === "Enter" || event.key === " ") zoom(place, view.focus);
    else if (event.key === "Escape") zoom(place, view.zoom ? nodes[view.zoom].parent : 0);
    else if (event.key === "Home") zoom(place, 0);
    else {
      const next = {
        [deeper]: node.children[0],
        [higher]: node.parent,
        ArrowRight: siblings[at + 1],
        ArrowLeft: siblings[at - 1],
      }[event.key];
      if (next === undefined) return;
      if (next >= 0 && next === node.parent && view.focus === view.zoom) zoom(place, next);
      else if (next >= 0) {
        focus(place, next);
        say(`${named(nodes[next]).text}: ${shareLine(view, nodes[next])}`);
      }
    }
    event.preventDefault();
  }

  // -- tooltips

  function chartTip(file, point) {
    const stack = file.stacks[state.areas];
    const rows = file.trees.length
      ? stack.names
          .map((name, row) => [name, stack.values[row][point]])
          .filter(([, size]) => size > 0)
          .reverse()
          .map(([name, size]) => element("tr", {}, element("td", {}, short(name, 60)), element("td", {}, bytes(size))))
      : [];
    const known = file.known[point] ? "" : file.trees.length ? " · parts estimated: no tree here" : " · no tree";
    return [
      element("b", {}, bytes(file.total[point])),
      ` ${file.moment[point]}${known}`,
      element("table", {}, element("tbody", {}, ...rows)),
    ];
  }

  function treeTip(place, event) {
    const node = nodeAt(place, event);
    mark(place, "hover", node);
    tip(event, ...(node < 0 ? [] : facts(place, node)));
  }

  // -- tables

  // Bytes by group: those that it allocates itself, and those in whose stack it stands anywhere, counted once a stack.
  function sums(place, by) {
    const view = state.files[place];
    const layout = view.point < 0 ? null : shaped(place, view.point, { by, invert: false, fold: state.fold });
    if (!layout) return null;
    const groups = new Map();
    const group = (key, frame) => {
      if (!groups.has(key)) groups.set(key, { key, frame, own: 0, total: 0 });
      return groups.get(key);
    };
    const open = new Map();
    const todo = [...layout.nodes[0].children];
    while (todo.length) {
      const place = todo.pop();
      if (place < 0) {
        const key = layout.nodes[~place].key;
        open.set(key, open.get(key) - 1);
        continue;
      }
      const node = layout.nodes[place];
      if (node.key !== BELOW) {
        const sum = group(node.key, node.frame);
        if (node.parent === 0) {
          sum.own += node.bytes;
          sum.frame = node.frame; // of the largest line that allocates
        }
        if (!open.get(node.key)) sum.total += node.bytes;
      }
      open.set(node.key, (open.get(node.key) || 0) + 1);
      todo.push(~place, ...node.children);
    }
    return { whole: layout.nodes[0].bytes, groups };
  }

  function drawTables() {
    const by = state.tableBy;
    const tables = data.files.map((_, place) => sums(place, by));
    const rows = new Map();
    tables.forEach((table, place) => {
      if (table)
        for (const [key, row] of table.groups) {
          if (!rows.has(key)) rows.set(key, { frame: row.frame, cells: [], most: 0 });
          const line = rows.get(key);
          line.cells[place] = row;
          line.most = Math.max(line.most, row.own, row.total * 1e-6);
        }
    });
    const ordered = [...rows.values()].sort((a, b) => b.most - a.most).slice(0, 25);
    const several = data.files.length > 1;
    const head = data.files.flatMap((file) =>
      ["self", "", "total"].map((word) => element("th", { scope: "col" }, several && word ? `${word}, ${short(file.name, 30)}` : word)),
    );
    const body = ordered.map((row) => {
      const name = ofFrame(frames[row.frame], by);
      return element(
        "tr",
        {},
        element("th", { scope: "row" }, element("span", { class: "clamp name", title: name.full }, name.text, name.module ? element("span", { class: "muted" }, `  ${name.module}`) : null)),
        ...data.files.flatMap((_, place) => {
          const cell = row.cells[place];
          if (!cell) return [element("td", { class: "absent" }, "-"), element("td"), element("td", { class: "absent" }, "-")];
          return [element("td", {}, bytes(cell.own)), element("td", { class: "absent" }, percent(cell.own, tables[place].whole)), element("td", {}, bytes(cell.total))];
        }),
      );
    });
    const title = data.files.map((file, place) => (several ? `${file.name}: ` : "") + caption(place)).join("; ");
    $("tables").replaceChildren(
      element(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Largest allocation sites" },
        element(
          "table",
          {},
          element("caption", {}, `By ${by}, ${title}`),
          element("thead", {}, element("tr", {}, element("th", { scope: "col" }, by), ...head)),
          element("tbody", {}, ...body),
        ),
      ),
      element("p", { class: "muted" }, "self: it is what allocates, first on the stack; total: it stands anywhere on the stack. " + (rows.size > ordered.length ? `The ${ordered.length} largest of ${rows.size}.` : "")),
    );
  }

  // -- everything

  function drawModules() {
    const page = colour("--page");
    const legend = modules.slice(0, TONES).map((module, place) => [data.modules[module], mixed(colour(`--v${place}`), page, TINT)]);
    if (modules.length > TONES) legend.push([`${modules.length - TONES} other modules`, mixed(colour("--muted"), page, 0.28)]);
    const entry = ([name, tone]) => element("span", { class: "name" }, element("i", { class: "tone", style: { "--tone": tone } }), ` ${name}`);
    $("modules").replaceChildren(...legend.map(entry));
  }

  function drawMatched() {
    const words = ({ matched: { count, size }, layout }) =>
      `${count} frame${count === 1 ? "" : "s"} match, ${bytes(size)} (${percent(size, layout.nodes[0].bytes)})`;
    $("matched").textContent = state.files.filter((view) => view.matched?.any).map(words).join(" | ");
  }

  function drawCharts() {
    data.files.forEach((_, place) => {
      drawChart(place);
      drawList(place);
    });
  }

  function drawTrees() {
    data.files.forEach((_, place) => drawTree(place));
  }

  function rebuild() {
    data.files.forEach((_, place) => reshape(place));
    drawTrees();
    drawMatched();
  }

  function drawAll() {
    drawModules();
    drawCharts();
    drawTrees();
  }

  function connectFile(place) {
    const [host, tree] = [$(`chart-${place}`), $(`tree-${place}`)];
    host?.addEventListener("keydown", (event) => chartKeys(place, event));
    tree.addEventListener("keydown", (event) => treeKeys(place, event));
    tree.addEventListener("click", (event) => {
      const node = nodeAt(place, event);
      if (node >= 0) zoom(place, node);
    });
    tree.addEventListener("mousemove", (event) => treeTip(place, event));
    tree.addEventListener("mouseleave", (event) => {
      tip(event);
      mark(place, "hover", -1);
    });
    let wide = tree.clientWidth;
    const watch = new ResizeObserver(() => {
      if (tree.clientWidth !== wide) drawTree(place);
      wide = tree.clientWidth;
    });
    watch.observe(tree);
    for (const button of tree.closest("figure").querySelectorAll("button")) button.addEventListener("click", () => walk(place, Number(button.value)));
  }

  // Walks the snapshots that have a tree.
  function walk(place, by) {
    const points = withTree(data.files[place]);
    const next = points[points.indexOf(state.files[place].point) + by];
    if (next !== undefined) choose(place, next);
  }

  function chartKeys(place, event) {
    const points = withTree(data.files[place]);
    const act = {
      ArrowLeft: () => walk(place, -1),
      ArrowRight: () => walk(place, 1),
      Home: () => choose(place, points[0]),
      End: () => choose(place, points[points.length - 1]),
      p: () => choose(place, data.files[place].shown),
    }[event.key];
    if (!act || !points.length || event.ctrlKey || event.metaKey || event.altKey) return;
    act();
    event.preventDefault();
  }

  function connect() {
    const refold = () => {
      rebuild();
      drawTables();
    };
    controls(state, { areas: drawCharts, by: rebuild, tableBy: drawTables, shape: drawTrees, invert: rebuild, fold: refold, scaled: drawAll });
    let waiting = 0;
    $("search").addEventListener("input", (event) => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        state.search = event.target.value;
        for (const view of state.files) view.matched = view.layout && matches(view.layout);
        drawTrees();
        drawMatched();
      }, 120);
    });
    $("reset").addEventListener("click", () => {
      for (const view of state.files) Object.assign(view, { zoom: 0, focus: 0 });
      drawTrees();
      say("The whole tree is shown");
    });
    addEventListener("keydown", (event) => {
      if (event.key === "/" && !["INPUT", "SELECT"].includes(document.activeElement.tagName)) {
        $("search").focus();
        event.preventDefault();
      }
    });
  }

  watchTheme(drawAll);
  connect();
  data.files.forEach((_, place) => {
    connectFile(place);
    reshape(place);
  });
  drawAll();
  drawTables();
  document.documentElement.dataset.ready = "1";
})();
